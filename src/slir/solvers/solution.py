"""What every solver returns: a value, a verdict, statistics. Solvers never print and never raise for not converging."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import torch


class Verdict(StrEnum):
    """How a solve ended. A verdict other than `CONVERGED` comes with usable numbers and with advice."""

    CONVERGED = "converged"
    STEP_LIMIT = "stopped at its step limit before reaching the tolerance; allow more steps or a larger tolerance"
    INDEFINITE = "met a direction of non-positive curvature, so the energy is not convex; raise gamma, beta or lambda"


@dataclass(frozen=True)
class Solution:
    """`value` solves the problem as well as `verdict` says; `stats` holds what was measured on the way.

    Every solver fills `stats["steps"]` and the residual or gap that its tolerance speaks of.
    """

    value: torch.Tensor
    verdict: Verdict
    stats: dict[str, float] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        return self.verdict is Verdict.CONVERGED
