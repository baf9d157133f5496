"""Picture and kernel together: slir's loop, with a kernel step after every stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slir.estimator.loop import begin, x_update
from slir.kernel.shipped import default_model
from slir.operators import Blur
from slir.psf.blind.kernel import fit_kernel
from slir.psf.blind.support import cleaned
from slir.psf.blind.torus import Scene, difference_power, differences, spectrum

FAINT, SPECK = 0.01, 0.05
"""As in `slir.psf.blind.support`: a restoration leaves less that is wrong in a kernel than sharp edges do."""
RIDGE = 2.0


@dataclass(frozen=True)
class Joint:
    """kernel: (K, K). x: the restoration on y's pixels. chi2: mean of (y − k ∗ x)²/σ²."""

    kernel: Tensor
    x: Tensor
    chi2: float


@torch.no_grad()
def restore_jointly(y: Tensor, usable: Tensor, kernel: Tensor, sigma: float) -> Joint:
    """A better kernel, and the restoration of y with it.

        z ← the learnt kernel's estimate of x,   k ← argmin E‖k ∗ ∇x − ∇y‖²,   x ← argmin ‖y − k ∗ x‖²/σ² + …

    The expectation is over what is not known of x: about z with the variance of a Gaussian posterior
    (`posterior_power`). With z alone for x, k would become sharper from turn to turn.
    """
    scene, side = Scene.of(y, usable, kernel.shape[0]), kernel.shape[0]
    operator = _blur(kernel)
    model = default_model(operator)
    state = begin(y, operator, model, sigma)
    for stage in model.stages:
        quadratic, state = stage.z_update(state, stage.grid((state.x.shape[0], state.x.shape[1])))
        z = scene.placed(operator.crop(quadratic.moment / quadratic.diagonal, scene.size))
        kernel = cleaned(
            fit_kernel(z, scene, side, RIDGE, posterior_power(z, scene, kernel, sigma)), faint=FAINT, speck=SPECK
        )
        operator = _blur(kernel)
        state = replace(state, operator=operator)
        solution, z = x_update(state, quadratic, stage)
        state = replace(state, x=solution.value, z=z)
    squares = operator.residual(y, state.z)[usable].square().mean()
    return Joint(kernel, operator.crop(state.z, scene.size), float(squares) / sigma**2)


def posterior_power(x: Tensor, scene: Scene, kernel: Tensor, sigma: float) -> Tensor:
    """Power of the error of w∇x: |d|² Σw² / (|k|²/σ² + |d|²/g²), g² the mean squared gradient of x.

    This is the posterior variance under white gradients: what the blur leaves of a frequency, against the noise.
    """
    weight = scene.weight.square().sum()
    gradient = float((differences(x) * scene.weight).square().sum() / weight)
    otf, power = spectrum(kernel, scene.shape), difference_power(scene.shape)
    return weight * power / ((otf.real**2 + otf.imag**2) / sigma**2 + power / max(gradient, 1e-9))


def _blur(kernel: Tensor) -> Blur:
    exact = kernel.double()
    return Blur(exact / exact.sum())
