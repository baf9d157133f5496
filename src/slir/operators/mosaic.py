"""B = one colour at each pixel: what a camera's sensor records."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape, fingerprint
from slir.operators.mask import filled, repeated

COLOURS = "RGB"

PATTERNS = {
    "RGGB": ("RG", "GB"),
    "BGGR": ("BG", "GR"),
    "GRBG": ("GR", "BG"),
    "GBRG": ("GB", "RG"),
    "X-Trans": ("GBGGRG", "RGRBGB", "GBGGRG", "GRGGBG", "BGBRGR", "GRGGBG"),
}
"""Colour filter arrays by their names, row by row from the first pixel."""


def checked_pattern(pattern: Any) -> Tensor:
    """The number of the colour at each pixel of a pattern: (h, w) int64, 0, 1, 2 for R, G, B."""
    rule = f"be one of {', '.join(PATTERNS)}, rows of the letters R, G, B, or an array of 0, 1, 2"
    remedy = 'Pass ("RG", "GB"), for example.'
    if isinstance(pattern, str):
        if pattern not in PATTERNS:
            raise InputError("pattern", rule, repr(pattern), remedy)
        pattern = PATTERNS[pattern]
    if isinstance(pattern, list | tuple) and all(isinstance(row, str) for row in pattern):
        pattern = [[COLOURS.find(letter) for letter in row] for row in pattern]
    try:
        array = torch.as_tensor(np.asarray(pattern.cpu() if isinstance(pattern, Tensor) else pattern))
    except (TypeError, ValueError) as error:
        raise InputError("pattern", rule, repr(pattern), remedy) from error
    whole = array.ndim == 2 and array.numel() > 0 and not array.is_floating_point()
    if not whole or int(array.min()) < 0 or int(array.max()) > 2:
        raise InputError("pattern", rule, repr(pattern), remedy)
    return array.long()


class ColourFilterArray(Operator):
    """y holds one colour of x at each pixel: (..., 3, H, W) -> (..., H, W). Its inverse is demosaicking.

    pattern: "RGGB", "BGGR", "GRBG", "GBRG" (Bayer), "X-Trans", rows of letters such as ("RG", "GB"), or an array of the
    colours' numbers. It begins at the first pixel and is repeated over the image.
    """

    reach = 0
    recordable = True
    shareable = True
    x_planes = (3,)

    def __init__(self, pattern: str | tuple[str, ...] | np.ndarray | Tensor = "RGGB"):
        self.pattern = checked_pattern(pattern)
        self._kept: dict[tuple, Tensor] = {}

    def y_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        return y_shape

    def recorded(self, like: Tensor) -> Tensor:
        """One where a colour is recorded, zero elsewhere, for images like this one: (3, H, W)."""
        shape = (like.shape[-2], like.shape[-1])
        key = (shape, like.device, like.dtype)
        if key not in self._kept:
            self._kept = {key: self._recorded(shape).to(like)}
        return self._kept[key]

    def _recorded(self, shape: Shape) -> Tensor:
        """The same as booleans on the CPU."""
        return repeated(self.pattern, shape) == torch.arange(3)[:, None, None]

    def forward(self, x: Tensor) -> Tensor:
        return (self.recorded(x) * x).sum(-3)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.recorded(y) * y[..., None, :, :]

    def normal(self, x: Tensor) -> Tensor:
        return self.recorded(x) * x

    def normal_diagonal(self, weights: Tensor) -> Tensor:
        return self.adjoint(weights)

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        """The share of pixels that record each colour."""
        return self._recorded((self.pattern.shape[0], self.pattern.shape[1])).to(like).mean((-2, -1), keepdim=True)

    def constants(self) -> list[Tensor]:
        return list(self._kept.values())

    def guess(self, y: Tensor) -> Tensor:
        """Each colour from its own neighbours."""
        return filled(self.adjoint(y), self.recorded(y) == 0)

    def part(self, rows: slice, cols: slice) -> Operator | None:
        start = (rows.start or 0, cols.start or 0)
        if all(own % length == 0 for own, length in zip(start, self.pattern.shape)):
            return self
        return ColourFilterArray(self.pattern.roll((-start[0], -start[1]), (0, 1)))

    def describe(self) -> dict[str, Any]:
        return {"kind": "colour filter array", "pattern": fingerprint(self.pattern)}
