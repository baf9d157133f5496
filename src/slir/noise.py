"""σ of white noise, from the image alone."""

from __future__ import annotations

import torch
from torch import Tensor

from slir.descriptors import dct_basis
from slir.patches import PatchGrid

SIZE = 8
_FLAT_SHARE = 0.1
_MIN_FLAT = 64
_MAD = 0.674489750196


def estimate_sigma(image: Tensor) -> float:
    """The standard deviation of white Gaussian noise in one plane (H, W), in the plane's units.

    Noise is spread evenly over all DCT coefficients of a patch, pictures live in the low ones. So: take the patches
    whose low and middle frequencies are weakest, since there the picture adds least, and read the median absolute
    value of their highest frequencies (after Ponomarenko et al., 2007). Choosing patches by other coefficients than
    those that are read keeps the choice from biasing the reading.
    """
    if min(image.shape) < SIZE:
        return 0.0
    grid = PatchGrid((image.shape[0], image.shape[1]), SIZE, stride=2 if min(image.shape) >= 64 else 1)
    coefficients = grid.extract(image) @ dct_basis(SIZE).to(image).T  # (P, 64)
    u = torch.arange(SIZE)
    order = (u[:, None] + u[None]).reshape(-1).to(image.device)
    low = coefficients[:, (order > 0) & (order < 7)].square().mean(1)
    high = coefficients[:, order >= 9]
    count = min(len(low), max(_MIN_FLAT, int(_FLAT_SHARE * len(low))))
    flattest = low.topk(count, largest=False).indices
    return float(high[flattest].abs().median()) / _MAD
