"""What a model knows about its errors: calibrations by noise level, and what they hold for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slir.estimator.paper_settings import ROUNDING
from slir.operators import Operator
from slir.trust.intervals import Calibration, interpolate

ROOM = 1.1
"""Factor by which σ may lie beyond the levels that were calibrated."""


@dataclass(frozen=True)
class Trust:
    """calibrations: how the errors that a model expects compare with the truth on held-out pictures, at the noise
    levels `nodes`, which increase. Between nodes results are interpolated, linearly in log σ.

    sigma: the least and the largest noise level that was calibrated. what: the family of degradations and the pictures,
    as JSON. Noise levels count where the range is 1; none is below that of rounding to 8 bits.
    """

    nodes: tuple[float, ...]
    calibrations: tuple[Calibration, ...]
    sigma: tuple[float, float]
    what: dict[str, Any]

    @property
    def pixels(self) -> int:
        """Number of held-out pixels."""
        return sum(calibration.pixels for calibration in self.calibrations)

    def error(self, log_square: Tensor, sigma: float | Tensor) -> Tensor:
        """ê, the root mean square error to expect, from what the model expects: (…, H, W) -> (…, H, W).

        sigma: the noise level, a number or a tensor that broadcasts.
        """
        return self._interpolate(sigma, log_square, lambda calibration: calibration.error(log_square))

    def absolute_error(self, error: Tensor, sigma: float | Tensor) -> Tensor:
        """The absolute error to expect, from ê."""
        return self._interpolate(sigma, error, lambda calibration: calibration.absolute_error(error))

    def half_width(self, error: Tensor, level: float, sigma: float | Tensor) -> Tensor:
        """What to add and to subtract at a level, from ê."""
        return self._interpolate(sigma, error, lambda calibration: calibration.half_width(error, level))

    def _interpolate(self, sigma: float | Tensor, like: Tensor, of: Callable[[Calibration], Tensor]) -> Tensor:
        nodes = torch.tensor(self.nodes, dtype=like.dtype, device=like.device).log()
        place = torch.as_tensor(sigma, dtype=like.dtype, device=like.device).clamp(min=ROUNDING).log()
        position = interpolate(torch.atleast_1d(place), nodes, torch.arange(len(nodes)))
        total = torch.zeros_like(like)
        for number, calibration in enumerate(self.calibrations):
            weight = (1 - (position - number).abs()).clamp(min=0)
            if weight.any():
                total += weight * of(calibration)
        return total

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
