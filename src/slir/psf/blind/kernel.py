"""The kernel that explains a blurred picture by a sharp one: regularised least squares on gradients."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.operators.convolution import fast_length
from slir.psf.blind.torus import Scene, differences

STEPS = 100
"""Accelerated gradient steps. The gradients of a picture are nearly white, so that the system is well conditioned."""


def fit_kernel(
    x: Tensor, scene: Scene, side: int, ridge: float, variance: Tensor | None = None, steps: int = STEPS
) -> Tensor:
    """k̂ = argmin Σ w² ‖k ∗ ∇x − ∇y‖² + ridge ‖k‖², k ≥ 0 on side² pixels. It is not scaled to a sum of one.

    x: the sharp picture on the scene's torus. variance: power spectrum of the error of w∇x that is to be expected,
    which is added to that of w∇x. Without it an x that is too smooth gives a k that is too sharp.

    Both gradients are weighted by w, as the weight varies little over a PSF. Sums over pixels then are correlations,
    which the Fourier domain gives at all lags at once.
    """
    edges = rfft2(differences(x) * scene.weight)
    blurred = rfft2(differences(scene.y) * scene.weight)
    power = (edges.real.square() + edges.imag.square()).sum(0)
    if variance is not None:
        power = power + variance
    moment = irfft2((edges.conj() * blurred).sum(0), scene.shape)
    half = side // 2
    target = torch.roll(moment, (half, half), (0, 1))[:side, :side]
    return _non_negative(irfft2(power, scene.shape), target, ridge, steps)


def _non_negative(correlation: Tensor, target: Tensor, ridge: float, steps: int) -> Tensor:
    """argmin ½ kᵀ(A + ridge)k − bᵀk over k ≥ 0 by accelerated projected gradient; A is the correlation at all lags."""
    side = target.shape[0]
    lags = torch.arange(1 - side, side)
    length = fast_length(2 * side - 1)
    block = F.pad(correlation[lags][:, lags], (0, length - 2 * side + 1, 0, length - 2 * side + 1))
    system = rfft2(torch.roll(block, (1 - side, 1 - side), (0, 1))).real
    step = 1 / (float(system.max()) + ridge)
    k = ahead = torch.full_like(target, 1 / target.numel())
    momentum = 1.0
    for _ in range(steps):
        product = irfft2(system * rfft2(ahead, (length, length)), (length, length))[:side, :side]
        following = (ahead - step * (product + ridge * ahead - target)).clamp_(min=0)
        grown = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + ((momentum - 1) / grown) * (following - k)
        k, momentum = following, grown
    return k
