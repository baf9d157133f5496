"""c_{B,σ}, the theorem's λ, and the generalisation bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from slir.errors import InputError
from slir.operators import Downsample, Identity, Mask, Operator
from slir.theory.correlation import bank_correlation

Numbers = float | Sequence[float] | np.ndarray


def constraint_ratio(
    operator: Operator,
    sigma: float = 0.0,
    n_pixels: int | None = None,
    *,
    per_pixel: bool = True,
    exact: bool = False,
) -> float:
    """An upper bound of c_{B,σ} = E_y diam(C_{B,σ}(y)) / diam(X), C_{B,σ}(y) = {x ∈ X : ‖Bx − y‖₂ ≤ σ}, X = [0, 1]ᵈ.

    What is left to learn once y is known, as a share of everything: the smaller, the more the data say by themselves.
    diam(X) = √d. The paper's proposition (appendix A.2) prints, up to a constant,

        denoising      min(σ/√d, 1)
        inpainting     s^½      s the share of missing pixels; no noise
        downsampling   k^−½     k the factor; no noise

    and this function returns that by default. Where the print is loose, or wrong, `exact=True` does the geometry:

    - σ in C_{B,σ} bounds the norm of the whole noise vector, while elsewhere σ is the standard deviation at a pixel.
      The norm is then close to σ√h for h observed pixels, d cancels, and denoising has min(σ, 1).
    - A ball of radius σ has diameter 2σ, not the σ of the proof. exact: min(2σ/√d, 1).
    - The missing pixels are free and span a cube of dimension sd, so inpainting is right without noise. exact adds
      the noise of the known pixels: (s + min(4σ²/d, 1 − s))^½.
    - The proof for downsampling takes C to be a cube of dimension d/k. That is the number of pixels that are *seen*
      (with k = f² for a factor f per axis, which is how it is read here: 1/f), while those that stay free are the
      d(1 − 1/f²) others. So the print says that a larger factor is easier, and the truth is the reverse. exact:
      (1 − 1/f² + min(4σ²/d, 1/f²))^½ where B only drops pixels. Where B averages first (bicubic, box, Gaussian) the
      set is an oblique cut through the cube and may be as wide as the cube itself: under a 2×2 box filter the two
      chequerboards give the same grey y and differ by √d. There exact returns 1, the one bound for all y.

    Parameters
    ----------
    operator : Identity, Mask or Downsample.
    sigma : noise level on the scale where X = [0, 1]ᵈ.
    n_pixels : d; only needed where per_pixel=False meets noise.
    per_pixel : whether sigma is the standard deviation at a pixel, or the norm of the noise vector.
    """
    if not sigma >= 0:
        raise InputError("sigma", "be zero or positive", sigma, "Pass the noise level on the scale where white is 1.")
    if isinstance(operator, Identity):
        ball = _noise_share(sigma, n_pixels, per_pixel, 1.0) ** 0.5
        return min(2 * ball if exact else ball, 1.0)
    if isinstance(operator, Mask):
        free = float(operator.missing.double().mean())
        printed, n_pixels = free**0.5, operator.missing.numel() if n_pixels is None else n_pixels
    elif isinstance(operator, Downsample):
        free = 1 - 1 / operator.factor**2
        printed = 1 / operator.factor
        if exact and int((operator.kernel != 0).sum()) > 1:
            return 1.0
    else:
        remedy = "For another operator pass c=1 to slir.theory.bound: the ratio never exceeds it."
        rule = "be Identity, Mask or Downsample, which the paper's proposition covers"
        raise InputError("operator", rule, type(operator).__name__, remedy)
    if not exact:
        return printed
    seen = 1 - free
    return (free + min(4 * _noise_share(sigma, n_pixels, per_pixel, seen), seen)) ** 0.5


def _noise_share(sigma: float, n_pixels: int | None, per_pixel: bool, seen: float) -> float:
    """‖noise‖²/d, for noise on the share `seen` of the pixels."""
    if per_pixel or sigma == 0:
        return sigma**2 * seen
    if n_pixels is None or n_pixels < 1:
        remedy = "Pass the number of pixels d of x, or the standard deviation at a pixel with per_pixel=True."
        raise InputError("n_pixels", "be given where sigma is the norm of the noise vector", n_pixels, remedy)
    return sigma**2 / n_pixels


def lam(m: Numbers, *, q: float, patches: float, n: Numbers, r: float = 1.0) -> Any:
    """The λ of kernel ridge regression for which the theorem holds: λ = r (1/m + q/(|P|n))^½.

    m: patches in the bank. n: images they come from. patches: |P|. Numbers, or arrays that broadcast; so is the result.
    """
    _check(m=m, n=n, patches=patches, r=r)
    _check(zero=True, q=q)
    return r * np.sqrt(1 / np.asarray(m, dtype=float) + q / (patches * np.asarray(n, dtype=float)))


def bound(m: Numbers, n: Numbers, *, q: float, patches: float, c: float = 1.0, r: float = 1.0, g: float = 1.0) -> Any:
    """The theorem's bound on the excess risk: 12 c^½ r^½ g (1/m + (1 + q)/(|P|n))^¼.

    m, n: as in `lam`, numbers or arrays that broadcast. c: c_{B,σ}, see `constraint_ratio`; 1 always holds.
    g: the norm of the target in the kernel's space, which nobody knows. So the bound shows how the risk falls with m
    and n, and where more patches of the same images stop helping: m ≈ |P|n/(1 + q). It does not say how large it is.
    """
    _check(m=m, n=n, patches=patches, r=r, g=g)
    _check(zero=True, q=q, c=c)
    images = np.asarray(n, dtype=float)
    rate = (1 / np.asarray(m, dtype=float) + (1 + q) / (patches * images)) ** 0.25
    return 12 * np.sqrt(c * r) * g * rate


def _check(*, zero: bool = False, **values: Numbers) -> None:
    for name, value in values.items():
        array = np.asarray(value, dtype=float)
        if not (np.isfinite(array).all() and (array >= 0 if zero else array > 0).all()):
            remedy = "An estimate of q that fell below 0 by chance counts as 0." if name == "q" else "See the help."
            raise InputError(name, f"be {'zero or ' if zero else ''}positive and finite", value, remedy)


def theorem_lam(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    *,
    m: int = 10_000,
    size: int = 8,
    window: int | None = None,
    keep_dc: bool = False,
    s: float = 1.0,
    kernel: str = "gaussian",
    centres: int | None = 256,
    seed: int = 0,
) -> float:
    """λ of the theorem for the bank that `slir.paper_model` would sample, with q measured on its degraded images.

    images: n ≥ 2 clean planes (H, W) in [0, 1]. The other arguments are those of `slir.theory.bank_correlation`, with
    the bandwidth s of kernel ridge weights.
    """
    found = bank_correlation(
        images,
        operator,
        sigma,
        m=m,
        size=size,
        window=window,
        keep_dc=keep_dc,
        s=s,
        kernel=kernel,
        centres=centres,
        seed=seed,
    )
    return float(lam(m, q=max(found.q, 0.0), patches=found.patches, n=found.images))
