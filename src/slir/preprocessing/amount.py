"""How much of what denoising removes is removed, of brightness and of colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slir.errors import InputError, is_finite

if TYPE_CHECKING:
    from torch import Tensor

MOST = 3.0
"""Largest strength: a level so far above that of the noise removes all that can be taken for noise."""


@dataclass(frozen=True)
class Amount:
    """strength: of brightness, chroma: of differences between colours. 0 keeps the noise, 1 removes what was found,
    above 1 a higher noise level is assumed."""

    strength: float = 1.0
    chroma: float = 1.0

    @classmethod
    def of(cls, strength: float, chroma: float | None) -> Amount:
        """The amount that a user asks for. chroma: as the strength where it is None."""
        for name, value in (("strength", strength), ("chroma", strength if chroma is None else chroma)):
            if not (isinstance(value, int | float) and is_finite(value) and 0 <= value <= MOST):
                rule = f"be a number from 0 to {MOST:g}"
                raise InputError(name, rule, repr(value), "1 removes the noise that was found, 0.5 half of it.")
        return cls(float(strength), float(strength if chroma is None else chroma))

    @property
    def level(self) -> float:
        """Factor on the noise level."""
        return max(1.0, self.strength, self.chroma)

    @property
    def whole(self) -> bool:
        """Whether all is removed."""
        return min(self.strength, self.chroma) >= 1

    def blend(self, before: Tensor, after: Tensor) -> Tensor:
        """What is kept of a plane (H, W), or of colours (3, H, W), before and after denoising."""
        if self.whole:
            return after
        removed = after - before
        light = removed.mean(0, keepdim=True) if removed.ndim > 2 else removed
        return before + min(1.0, self.strength) * light + min(1.0, self.chroma) * (removed - light)


ALL = Amount()
"""The amount where nothing is asked for."""
