"""The choice among kernels: how well each explains the picture's spectrum, and its edges."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.operators.convolution import fast_length
from slir.psf.blind.edges import sharp_edges
from slir.psf.blind.torus import Scene, difference_power, differences, spectrum

STRENGTH, CONTRAST = 4e-3, 0.2
"""Weight of an edge, and the standard deviation that pictures are scaled to, where their edges are counted."""

SPECTRAL_WEIGHT, EDGE_WEIGHT = 5.0, 4.0
"""Weights of the two terms of `cost`, set on simulated shakes."""

MARGIN = 40
GAINS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5, 7.0, 10.0)
TILTS = (-0.3, 0.0, 0.3)


def cost(y: Tensor, usable: Tensor, kernel: Tensor, sigma: float) -> float:
    """How little a kernel explains y: the smaller, the better. It compares kernels of one picture."""
    return SPECTRAL_WEIGHT * spectral_cost(y, kernel, sigma) + EDGE_WEIGHT * math.log(edge_cost(y, usable, kernel))


def spectral_cost(y: Tensor, kernel: Tensor, sigma: float) -> float:
    """Mean negative log-likelihood of y's gradients, where those of the sharp picture have the power g²|d|^(2·tilt).

    In y that is g²|k|²|d|^(2·tilt), beside σ²|d|² of the noise. g² and the tilt take the best of a few values. Phases
    are not seen.
    """
    shape = fast_length(y.shape[0]), fast_length(y.shape[1])
    bell = _bell(y)
    placed = F.pad(y, (0, shape[1] - y.shape[1], 0, shape[0] - y.shape[0]))
    window = F.pad(bell, (0, shape[1] - bell.shape[1], 0, shape[0] - bell.shape[0]))
    found = rfft2(differences(placed) * window)
    power = (found.real.square() + found.imag.square()).sum(0) / bell.square().sum()
    otf = spectrum(kernel, shape)
    passed = otf.real**2 + otf.imag**2
    smooth = difference_power(shape)
    noise = sigma**2 * smooth + 1e-7
    costs = []
    for tilt in TILTS:
        tilted = passed * smooth.clamp(min=1e-4) ** tilt
        gain = float(power.mean() / tilted.mean())
        for times in GAINS:
            expected = times * gain * tilted + noise
            costs.append(float((expected.log() + power / expected)[1:, 1:].mean()))
    return min(costs)


def edge_cost(y: Tensor, usable: Tensor, kernel: Tensor) -> float:
    """‖k ∗ x − y‖² + strength · #{pixels with ∇x ≠ 0} of the picture of sharp edges x that the kernel leads to."""
    scaled = (y - y.mean()) * (CONTRAST / float(y.std().clamp(min=1e-6)))
    scene = Scene.of(scaled, usable, kernel.shape[0])
    x = sharp_edges(scene, kernel, STRENGTH)
    inside = scene.weight > 0
    residual = irfft2(rfft2(x) * spectrum(kernel, scene.shape), scene.shape) - scene.y
    edges = differences(x).square().sum(0) > 1e-5
    return float(residual[inside].square().sum()) + STRENGTH * float(edges[inside].sum()) + 1e-9


def _bell(y: Tensor) -> Tensor:
    """Hann's ramps at the borders of a picture whose last row and column have no difference: (h − 1, w − 1)."""
    sides = []
    for side in y.shape:
        place = torch.arange(side - 1, dtype=torch.float32)
        distance = torch.minimum(place, side - 2 - place) / min(MARGIN, max(2, side // 3))
        sides.append((1 - torch.cos(math.pi * distance.clamp(0, 1))) / 2)
    return torch.outer(*sides)
