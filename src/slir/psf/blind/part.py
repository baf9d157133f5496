"""The part of a picture that a kernel is estimated on: the one that tells most."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PART = 448
"""Side of the part of a large picture."""

CLIPPED = 2e-3
"""Share of pixels at an end of the range from which they count as clipped."""


def usable_pixels(y: Tensor, channels: list[Tensor]) -> Tensor:
    """Where no channel is clipped: (h, w). Clipped is the largest value where many pixels share it, and their
    neighbours, which a sensor spreads."""
    clipped = torch.zeros(y.shape, dtype=torch.bool)
    for channel in channels:
        top = channel == channel.max()
        if float(top.float().mean()) > CLIPPED:
            clipped |= top
    return F.max_pool2d(clipped.float()[None, None], 3, 1, 1)[0, 0] == 0


def telling_part(y: Tensor, usable: Tensor, side: int = PART) -> tuple[slice, slice]:
    """The square of at most `side` pixels with the most gradient that is usable."""
    if max(y.shape) <= side:
        return slice(0, y.shape[0]), slice(0, y.shape[1])
    gradient = torch.zeros_like(y)
    gradient[:-1, :-1] = ((y[1:, :-1] - y[:-1, :-1]).abs() + (y[:-1, 1:] - y[:-1, :-1]).abs()).clamp(max=0.2)
    sides = [min(side, length) for length in y.shape]
    stride = max(16, side // 8)
    energy = F.avg_pool2d((gradient * usable)[None, None], sides, stride)[0, 0]
    row, col = divmod(int(energy.argmax()), energy.shape[1])
    return slice(row * stride, row * stride + sides[0]), slice(col * stride, col * stride + sides[1])
