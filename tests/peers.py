"""slir as deepinv's own tests take it (`scripts/peer_tests.py`): operators as physics, a reconstructor as a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from slir import psf
from slir.adapters.deepinv import Reconstructor, to_physics
from slir.operators import (
    Blur,
    ColourFilterArray,
    Diagonal,
    Downsample,
    Identity,
    Linear,
    Mask,
    Operator,
    PerChannel,
    Stack,
    VaryingBlur,
)

RNG = np.random.default_rng
SHAKE = psf.gaussian(0.7)


def _mask(*shape: int) -> Mask:
    return Mask(RNG(1).random(shape) < 0.4)


def _varying(height: int, width: int) -> VaryingBlur:
    psfs = np.stack([[psf.gaussian(0.5 + 0.1 * (i + j), 1.0)[:5, :5] for j in range(2)] for i in range(2)])
    psfs = psfs / psfs.sum((-2, -1), keepdims=True)
    return VaryingBlur(psfs, (height - psfs.shape[2] + 1, width - psfs.shape[3] + 1))


# name: the operator for images of this size, and ‖B‖². deepinv checks no norm of names with a border in them.
MADE: dict[str, tuple[Callable[[int, int], Operator], float]] = {
    "identity": (lambda h, w: Identity(), 1.0),
    "blur_valid": (lambda h, w: Blur(SHAKE), 1.0),
    "blur_circular": (lambda h, w: Blur(SHAKE, "circular"), 1.0),
    "blur_reflect": (lambda h, w: Blur(SHAKE, "reflect"), 1.0),
    "varying_blur_valid": (_varying, 1.0),
    "downsample_reflect": (lambda h, w: Downsample(2), 1.0),
    "mask": (_mask, 1.0),
    "mask_of_channels": (lambda h, w: _mask(3, h, w), 1.0),
    "colour_filter_array": (lambda h, w: ColourFilterArray("GRBG"), 1.0),
    "diagonal": (lambda h, w: Diagonal(np.linspace(0.5, 1, h * w).reshape(h, w)), 1.0),
    "per_channel": (lambda h, w: PerChannel([Blur(psf.gaussian(s), "circular") for s in (0.5, 0.51, 0.52)]), 1.0),
    "views_valid": (lambda h, w: Stack([Blur(SHAKE), Identity()]), 2.0),
    "product_valid": (lambda h, w: Downsample(2) @ Blur(np.ones((1, 3)) / 3, "reflect"), 1.0),
    "sum": (lambda h, w: 0.5 * Identity() + 0.5 * Blur(SHAKE, "circular"), 1.0),
    "scaled": (lambda h, w: 2.0 * Blur(SHAKE, "circular"), 4.0),
    "matrix_valid": (lambda h, w: Linear(RNG(2).normal(size=(h * w // 2, h * w)), (h, w), (h // 2, w)), 1.0),
}
OPERATORS = list(MADE)


def find_operator(
    name: str, device: Any, imsize: tuple[int, ...] | None = None, get_physics_param: bool = False
) -> tuple[Any, ...]:
    """As deepinv's: the physics, the size of its images, ‖A‖², their type, and the names of its parameters."""
    size = imsize or (3, 16, 8)
    make, norm = MADE[name]
    found = to_physics(make(size[-2], size[-1])), size, norm, torch.float
    return (*found, []) if get_physics_param else found


def choose_restoration_model(*ignored: Any, **settings: Any) -> Reconstructor:
    return Reconstructor()
