"""Pictures that are lost in noise: restored at the size at which something is left to see.

The kernel has learnt from noise of up to about the contrast of a picture. Far beyond that the mean of 2×2 pixels has
half of the noise and nearly all of what can be seen.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from slir.operators import Downsample

LOUD = 3.0
"""Most that σ may be, as a multiple of the standard deviation of the picture, before it is halved."""

BLOCK = 8
"""Side of the blocks whose means tell the picture's standard deviation."""

SURE = 3.0
"""Standard errors by which that has to differ from noise."""

SMALLEST = 32
"""Side from which on a picture is halved."""


def halved(y: Tensor, sigmas: list[float]) -> tuple[Tensor, list[float], list[tuple[int, int]]]:
    """y (C, h, w) and its noise after as many halvings as it needs, and the sizes before each of them."""
    sizes: list[tuple[int, int]] = []
    while min(y.shape[-2:]) >= SMALLEST and min(sigmas) > LOUD * contrast(y, sigmas):
        sizes.append((y.shape[-2], y.shape[-1]))
        padded = F.pad(y, (0, y.shape[-1] % 2, 0, y.shape[-2] % 2), mode="replicate")
        y, sigmas = F.avg_pool2d(padded, 2), [sigma / 2 for sigma in sigmas]
    return y, sigmas, sizes


def enlarged(x: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """x after as many doublings, by bicubic interpolation."""
    for height, width in reversed(sizes):
        x = Downsample(2, "box").guess(x)[..., :height, :width]
    return x


def contrast(y: Tensor, sigmas: list[float]) -> float:
    """Standard deviation of the picture under the noise: that of the means of blocks, less their noise; at least what
    could go unseen. The largest of the channels."""
    means = F.avg_pool2d(y, BLOCK).flatten(1).double()
    found = []
    for own, sigma in zip(means, sigmas):
        noise = (sigma / BLOCK) ** 2
        found.append(max(float(own.var()) - noise, SURE * noise * (2 / len(own)) ** 0.5))
    return max(found) ** 0.5
