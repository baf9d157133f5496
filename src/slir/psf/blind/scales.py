"""From coarse to fine: a kernel of a few pixels on a small picture first, then larger ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.psf.blind.edges import sharp_edges
from slir.psf.blind.kernel import fit_kernel
from slir.psf.blind.support import cleaned
from slir.psf.blind.torus import Scene

FACTOR = math.sqrt(2)
LEAST_SIDE = 3
STEPS = 5
"""Pairs of steps, picture and kernel, on each scale."""
FIRST_STRENGTH, DECAY = 4e-3, 1.1


@dataclass(frozen=True)
class Start:
    """Settings of one search. side: of the kernel. strength: least weight of the count of edges. ridge: weight of the
    kernel's squares. contrast: standard deviation to which the picture is scaled; None leaves it."""

    side: int
    strength: float
    ridge: float
    contrast: float | None = None


def search(y: Tensor, usable: Tensor, start: Start) -> Tensor:
    """A kernel of start.side pixels that turns a picture of sharp edges into y: (h, w) in [0, 1] -> (K, K)."""
    if start.contrast is not None:
        y = (y - y.mean()) * (start.contrast / float(y.std().clamp(min=1e-6)))
    finest = math.ceil(math.log(start.side / LEAST_SIDE, FACTOR)) if start.side > LEAST_SIDE else 0
    strength = max(FIRST_STRENGTH, start.strength)
    kernel = _first()
    for level in range(finest, -1, -1):
        side = _odd(start.side * FACTOR**-level)
        scene = Scene.of(*_reduced(y, usable, FACTOR**-level), side)
        kernel = cleaned(resized(kernel, (side, side)), faint=0, speck=0)
        for _ in range(STEPS):
            x = sharp_edges(scene, kernel, strength)
            kernel = cleaned(fit_kernel(x, scene, side, start.ridge))
            strength = max(strength / DECAY, start.strength)
    return kernel


def resized(image: Tensor, shape: tuple[int, int]) -> Tensor:
    """A plane of another size, antialiased."""
    if tuple(image.shape) == shape:
        return image
    return F.interpolate(image[None, None], shape, mode="bicubic", antialias=True, align_corners=False)[0, 0]


def _first() -> Tensor:
    """Two pixels side by side: nothing moves from a single one."""
    kernel = torch.zeros(LEAST_SIDE, LEAST_SIDE)
    kernel[1, :2] = 0.5
    return kernel


def _reduced(y: Tensor, usable: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    shape = round(y.shape[0] * scale), round(y.shape[1] * scale)
    return resized(y, shape), resized(usable.float(), shape) > 0.99


def _odd(side: float) -> int:
    return max(LEAST_SIDE, 2 * round((side - 1) / 2) + 1)
