"""What a model knows about its errors: the calibration, and what it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slir.estimator.paper_settings import ROUNDING
from slir.operators import Operator
from slir.trust.intervals import Calibration

ROOM = 1.1
"""Factor by which σ may lie beyond the levels that were calibrated."""


@dataclass(frozen=True)
class Trust:
    """calibration: how the errors that a network expects compare with the truth on held-out pictures.

    sigma: the least and the largest noise level that was calibrated, range 1. what: the family of degradations and the
    pictures, as JSON.
    """

    calibration: Calibration
    sigma: tuple[float, float]
    what: dict[str, Any]

    def reason(self, operator: Operator, sigma: float) -> str:
        """Why the calibration does not hold for a restoration, in words; empty where it does."""
        own, ours = self.what.get("family", {}).get("operator"), operator.describe()
        if own and operator.missing is None and own != ours:
            return "the model was calibrated for another operator than this one"
        asked = max(sigma, ROUNDING)
        if not self.sigma[0] / ROOM <= asked <= self.sigma[1] * ROOM:
            low, high = self.sigma
            return f"the model was calibrated for a sigma of {low:.3g} to {high:.3g} of the range, not {asked:.3g}"
        return ""
