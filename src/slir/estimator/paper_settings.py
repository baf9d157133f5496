"""Settings by task, loss and weights: the paper's where they reach its figures, else what training images chose.

The data term γ/2‖y − Bx‖² is worth 1/σ², so a recipe states γσ² and is carried to any noise level; σ is never taken
below what rounding to 8 bits leaves. docs/experiments.md has the figures behind each number.
"""

from __future__ import annotations

from dataclasses import dataclass

from slir.losses import Loss, Squared
from slir.operators import Operator

ROUNDING = 1 / 255 / 12**0.5
"""Standard deviation of the error of rounding to 8 bits, on the scale where the range is 1."""


@dataclass(frozen=True)
class Recipe:
    """γ; β⁽ᵗ⁾ = β₀δᵗ for t = 0 … stages−1 (β₀ = None solves the squared loss as one system); s, λ and view of α."""

    gamma: float
    beta0: float | None = None
    delta: float = 2.0
    stages: int = 1
    s: float = 0.2
    lam: float = 1e-6
    view: str = "seen"


def recipe(operator: Operator, sigma: float, loss: Loss, weights: str) -> Recipe:
    """The recipe for a task. `weights` is "nw", or any other name for the kernel ridge kinds."""
    sigma = max(sigma, ROUNDING)
    ridge = weights != "nw"
    return _BY_TASK.get(operator.task, _deblurring)(sigma, loss, ridge)


def _deblurring(sigma: float, loss: Loss, ridge: bool) -> Recipe:
    """The paper: γ = 5000 (MSE) or 3200 (ℓ₂) at σ = 0.01, β₀ = 3, δ = 2, T = 8, s = 0.2."""
    if isinstance(loss, Squared):
        if ridge:
            return Recipe(gamma=0.25 / sigma**2, s=0.7, lam=1e-7)
        return Recipe(gamma=0.5 / sigma**2)
    return Recipe(gamma=0.32 / sigma**2, beta0=3.0, stages=8)


def sharper_deblurring(sigma: float) -> Recipe:
    """Deblurring with the Euclidean loss and Nadaraya–Watson weights as training images would have it.

    A start at a fifth of the paper's β₀ trusts the data while the estimate is still blurred, and once it is not, the
    bank is better described by its clean patches: about 1 dB more than the paper's settings.
    """
    sigma = max(sigma, ROUNDING)
    return Recipe(gamma=0.45 / sigma**2, beta0=0.6, delta=1.5, stages=8, view="seen-then-clean")


def _denoising(sigma: float, loss: Loss, ridge: bool) -> Recipe:
    """Chosen on training images: the paper's β₀ = 0.015 lets patches go further than their weights can be trusted."""
    if isinstance(loss, Squared):
        if ridge:
            return Recipe(gamma=0.02 / sigma**2, s=1.0, lam=1e-6)
        return Recipe(gamma=0.15 / sigma**2, s=0.15)
    return Recipe(gamma=0.06 / sigma**2.5, beta0=0.485 / sigma**0.5, stages=5, s=0.1, view="clean")


def _filling_in(sigma: float, loss: Loss, ridge: bool) -> Recipe:
    """Upsampling and inpainting: B leaves most of x open. The paper: γ = 6000, β₀ = 0.5, δ = 2, T = 3, s = 0.2.

    Without noise any γ that is large beside β gives the same picture; with noise the data term may not be trusted
    beyond 1/σ². The last β of the Euclidean loss is 16 and wants a larger γ than one solve of the squared loss.
    """
    if isinstance(loss, Squared):
        gamma = min(6000.0, 0.3 / sigma**2)
        return Recipe(gamma=gamma, s=1.0, lam=1e-7) if ridge else Recipe(gamma=gamma, s=0.05)
    return Recipe(gamma=min(60_000.0, 0.3 / sigma**2), beta0=1.0, stages=5, s=0.07)


_BY_TASK = {"denoise": _denoising, "upsample": _filling_in, "inpaint": _filling_in}
"""Any other operator is undone as a blur is."""
