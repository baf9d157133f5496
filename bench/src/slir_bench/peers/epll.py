"""EPLL: a mixture of Gaussians as a prior on every patch,

    min_x  λ/2 ‖Ax − y‖²  −  Σ_p log p(R_p x),        λ = 64/σ²,

by half-quadratic splitting. For each β of the schedule:

    z_p = the Wiener estimate of R_p x at noise 1/β, under the component of the largest posterior,
    x   = argmin_x λ/2 ‖Ax − y‖² + β/2 Σ_p ‖R_p x − z_p‖²      (conjugate gradients; the unknown border is part of x).

As in the authors' code, every pixel counts as covered by 64 patches, those near the border by the mean of fewer.
Schedules: β = (1, 4, 8, 16, 32)/σ² for denoising and 50·(1, 2, 4, …, 64) for the rest.

D. Zoran, Y. Weiss, "From learning models of natural image patches to whole image restoration", ICCV, 2011. The authors'
mixture was learnt from 2 million patches and has small means; `slir_bench.peers.mixture`, which learns ours,
holds the means at zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import fold, unfold

from slir_bench.peers.base import Arrays, Peer
from slir_bench.peers.forward import Forward, conjugate_gradients, first_guess
from slir_bench.peers.mixture import Mixture, fit_mixture, patch_basis, sample_patches
from slir_bench.protocols import Case

SIDE = 8
BLOCK = 1 << 16
"""Patches that are grouped by component at a time."""


class EPLL(Peer):
    """All four kinds; full size, with the unknown border of a blurred image restored too."""

    name = "EPLL"
    kinds = frozenset({"deblur", "upsample", "denoise", "inpaint"})
    images = 200

    def __init__(self, *, components: int = 200, patches: int = 200_000, rounds: int = 25, **options: Any):
        super().__init__(
            {
                "components": components,
                "patches": patches,
                "rounds": rounds,
                "images": self.images,
                "betas": [50.0 * 2**k for k in range(7)],
                "betas times sigma^2 (denoising)": [1, 4, 8, 16, 32],
                "least sigma": 1 / 255,
            },
            **options,
        )

    def fit_key(self, case: Case) -> dict[str, Any]:
        """One mixture serves all tables."""
        return {name: self.settings[name] for name in ("components", "patches", "rounds", "images")}

    def fit(self, images: Sequence[np.ndarray], case: Case) -> Arrays:
        settings = self.settings
        patches = sample_patches(images, settings["patches"], SIDE, seed=0)
        mixture, _ = fit_mixture(
            patches.to(self.device), settings["components"], rounds=settings["rounds"], generator=_generator()
        )
        return mixture.arrays()

    def restore(self, case: Case) -> np.ndarray:
        mixture = Mixture.load(self.model, self.device)
        sigma = max(case.sigma, self.settings["least sigma"])  # a noiseless y is still rounded, and CG must converge
        betas = self.settings["betas"]
        if case.kind == "denoise":
            betas = [b / sigma**2 for b in self.settings["betas times sigma^2 (denoising)"]]
        weight = SIDE**2 / sigma**2

        forward = Forward(case, self.device)
        x = torch.from_numpy(first_guess(case)).to(self.device)
        y = torch.from_numpy(case.y).to(self.device)
        data = forward.adjoint(y)
        counts = glue(cut(torch.ones_like(x)), x.shape)
        for beta in betas:
            mean = glue(most_likely(cut(x), mixture, beta), x.shape) / counts
            ratio = SIDE**2 * beta / weight
            x = conjugate_gradients(
                lambda v, r=ratio: forward.adjoint(forward.apply(v)) + r * v,  # type: ignore[misc]
                data + ratio * mean,
                x,
            )
        return x.cpu().numpy()


def most_likely(patches: Tensor, mixture: Mixture, beta: float) -> Tensor:
    """z_p for every column of `patches` (64, P): the mean kept, the rest Wiener-filtered by its likeliest component.

    k = argmax_k log π_k + log N(f; 0, Σ_k + I/β),     f̂ = Σ_k (Σ_k + I/β)⁻¹ f.
    """
    basis = patch_basis(SIDE).to(patches)  # (63, 64)
    noisy = mixture.widened(1 / beta)
    gain = mixture.spread / noisy.spread  # (K, 63)
    filters = (mixture.axes * gain[:, None, :]) @ mixture.axes.mT  # (K, 63, 63)
    out = torch.empty_like(patches)
    for start in range(0, patches.shape[1], BLOCK):
        part = patches[:, start : start + BLOCK]
        features = basis @ part  # (63, block)
        chosen = torch.cat([noisy.log_joint(few).argmax(0) for few in features.split(noisy.chunk, dim=1)])
        order = chosen.argsort(stable=True)
        sizes = torch.bincount(chosen, minlength=len(filters)).tolist()
        estimate = torch.empty_like(features)
        for k, members in enumerate(order.split(sizes)):
            if len(members):
                estimate[:, members] = filters[k] @ features[:, members]
        out[:, start : start + BLOCK] = basis.T @ estimate + part.mean(0, keepdim=True)
    return out


def cut(x: Tensor) -> Tensor:
    """All overlapping patches of an image, as columns: (64, P)."""
    return unfold(x[None, None], SIDE)[0]


def glue(patches: Tensor, shape: torch.Size) -> Tensor:
    """Σ_p R_pᵀ z_p, the adjoint of `cut`."""
    return fold(patches[None], shape, SIDE)[0, 0]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
