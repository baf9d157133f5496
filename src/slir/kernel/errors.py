"""Errors to expect from the network's own head."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from slir.kernel.stage import ERROR
from slir.model import AnyStage
from slir.views import State

LEAST = 1e-7
"""Smallest error that is expected anywhere, range 1."""


@dataclass(frozen=True)
class NetworkErrors:
    """log E[(x̂ − x)²] as the last stage's network expects it; what a calibration corrects."""

    reach: int = 0

    def log_square(self, state: State, stage: AnyStage) -> Tensor:
        """(H, W), or (C, H, W) of channels restored together."""
        assert state.told is not None  # the last stage was asked for it
        return 2 * state.told[ERROR].clamp(min=LEAST).log()
