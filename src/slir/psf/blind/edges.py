"""The latent picture of sharp edges: few gradients that are not zero."""

from __future__ import annotations

from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.psf.blind.torus import Scene, difference_power, differences, divergence, spectrum

LAST_PENALTY = 1e5
"""Weight of the splitting at which gradients are as good as equal to their thresholded copies."""


def sharp_edges(scene: Scene, psf: Tensor, strength: float) -> Tensor:
    """x̂ = argmin ‖k ∗ x − y‖² + strength · #{pixels with ∇x ≠ 0}, on the torus (Xu et al., 2011; Pan et al., 2014).

    Half-quadratic splitting: with a penalty β that doubles, gradients below √(strength/β) become zero, and x follows in
    closed form in the Fourier domain. A larger strength keeps fewer edges.
    """
    otf = spectrum(psf, scene.shape)
    data, power = otf.conj() * rfft2(scene.y), otf.real**2 + otf.imag**2
    smooth = difference_power(scene.shape)
    x, penalty = scene.y, 2 * strength
    while penalty < LAST_PENALTY:
        gradient = differences(x)
        kept = gradient * (gradient.square().sum(0) >= strength / penalty)
        x = irfft2((data + penalty * rfft2(divergence(kept))) / (power + penalty * smooth), scene.shape)
        penalty *= 2
    return x
