"""Whether a kernel that was found can be trusted."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.psf.blind.joint import Joint, posterior_power
from slir.psf.blind.kernel import fit_kernel
from slir.psf.blind.support import cleaned
from slir.psf.blind.torus import Scene

RIDGE = 20.0
"""Weight of the kernel's squares where a quarter of the picture has to give it."""

QUARTER = 0.1
"""Share of the gradient's energy that a quarter needs to say something."""


def similarity(first: Tensor, second: Tensor) -> float:
    """How alike two kernels are, wherever they lie: the largest correlation over shifts, after a little blur; 1 at
    best."""
    side = 2 * max(*first.shape, *second.shape) + 8
    shape = (side, side)
    blurred = [rfft2(_smoothed(F.pad(each, (2, 2, 2, 2))), shape) for each in (first, second)]
    product = irfft2(blurred[0] * blurred[1].conj(), shape).max()
    norms = [irfft2(each * each.conj(), shape)[0, 0] for each in blurred]
    return float(product / (norms[0] * norms[1]).sqrt().clamp(min=1e-12))


def evenness(y: Tensor, usable: Tensor, joint: Joint, sigma: float) -> float:
    """How alike the kernels of the picture's quarters are to that of the whole: the lower median of similarities."""
    rows, cols = (side // 2 for side in y.shape)
    side = joint.kernel.shape[0]
    if min(rows, cols) < 2 * side:
        return 1.0
    likeness, energies = [], []
    for top in (0, y.shape[0] - rows):
        for left in (0, y.shape[1] - cols):
            window = slice(top, top + rows), slice(left, left + cols)
            scene = Scene.of(y[window], usable[window], side)
            x = scene.placed(joint.x[window])
            variance = posterior_power(x, scene, joint.kernel, sigma)
            kernel = cleaned(fit_kernel(x, scene, side, RIDGE, variance))
            likeness.append(similarity(kernel, joint.kernel))
            energies.append(float((torch.diff(joint.x[window], dim=0)).square().sum()))
    telling = [own for own, energy in zip(likeness, energies) if energy > QUARTER * sum(energies)]
    return sorted(telling)[(len(telling) - 1) // 2]


def _smoothed(kernel: Tensor) -> Tensor:
    bell = torch.exp(-0.5 * torch.arange(-2, 3, dtype=kernel.dtype).square())
    bell = bell / bell.sum()
    plane = kernel[None, None]
    plane = F.conv2d(plane, bell.view(1, 1, -1, 1), padding=(2, 0))
    return F.conv2d(plane, bell.view(1, 1, 1, -1), padding=(0, 2))[0, 0]
