"""KSVD: sparse codes over a learnt dictionary.

Denoising, M. Elad, M. Aharon, "Image denoising via sparse and redundant representations over learned dictionaries",
IEEE TIP, 2006: a dictionary of 256 atoms learnt on clean patches, adapted to the noisy image, each patch coded until
its error is what the noise explains, and the image the weighted mean of codes and data:

    a_p = argmin ‖a‖₀  s.t.  ‖D a − y_p‖² ≤ 64 (1.15 σ)²,
    x   = (μ y + Σ R_pᵀ D a_p) / (μ + Σ R_pᵀ R_p),          μ = 30/(255 σ).

Upsampling, R. Zeyde, M. Elad, M. Protter, "On single image scale-up using sparse-representations", 2010: a patch's
features are coded with 3 atoms of a low-resolution dictionary, and the same code over the coupled dictionary D_h gives
what bicubic interpolation misses,   D_h = P_h Aᵀ (A Aᵀ)⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir_bench.peers.base import Arrays, Peer
from slir_bench.peers.scaleup import coupled_dictionaries, describe, paste, training_pairs
from slir_bench.peers.sparse import decode, k_svd, matching_pursuit
from slir_bench.protocols import Case

SIDE = 8


class KSVD(Peer):
    """Denoising and upsampling; full size."""

    name = "KSVD"
    kinds = frozenset({"denoise", "upsample"})
    images = 100

    def __init__(self, *, scale: float = 1.0, rounds: tuple[int, int] = (10, 20), **options: Any):
        """`scale` shrinks the dictionaries and their training sets; `rounds` are those of denoising and upsampling."""
        denoise = {"atoms": int(256 * scale), "patches": int(40_000 * scale), "gain": 1.15, "most": 24}
        upsample = {"atoms": int(1000 * scale), "pairs": int(100_000 * scale), "most": 3}
        settings = {"denoise": denoise | {"rounds": rounds[0]}, "upsample": upsample | {"rounds": rounds[1]}}
        super().__init__(settings | {"images": self.images}, **options)

    def fit_key(self, case: Case) -> dict[str, Any]:
        return self.settings[case.kind] | {"images": self.images, "kind": case.kind, "factor": case.factor}

    def fit(self, images: Sequence[np.ndarray], case: Case) -> Arrays:
        if case.kind == "upsample":
            return self._fit_upsampling(images, case.factor)
        settings = self.settings["denoise"]
        generator = torch.Generator().manual_seed(0)
        each, parts = max(1, settings["patches"] // len(images)), []
        for image in images:
            own = _patches(torch.from_numpy(image))
            parts.append(own[torch.randperm(len(own), generator=generator)[:each]])
        patches = torch.cat(parts)[torch.randperm(each * len(images), generator=generator)].to(self.device)
        patches = patches - patches.mean(1, keepdim=True)
        seeds = patches[patches.norm(dim=1) > patches.norm(dim=1).median()][: settings["atoms"]]
        atoms = k_svd(patches, seeds / seeds.norm(dim=1, keepdim=True), rounds=settings["rounds"], most=6)
        return {"atoms": atoms.cpu().numpy()}

    def restore(self, case: Case) -> np.ndarray:
        model = {name: torch.from_numpy(array).to(self.device) for name, array in self.model.items()}
        y = torch.from_numpy(case.y).to(self.device)
        if case.kind == "upsample":
            bicubic, features = describe(y, case.factor, model["basis"])
            index, weight = matching_pursuit(features, model["low"], most=self.settings["upsample"]["most"])
            return paste(bicubic, decode(index, weight, model["high"]), case.factor).cpu().numpy()
        return self._denoise(y, case.sigma, model["atoms"]).cpu().numpy()

    def _denoise(self, y: Tensor, sigma: float, atoms: Tensor) -> Tensor:
        settings = self.settings["denoise"]
        patches = _patches(y)
        mean = patches.mean(1, keepdim=True)
        patches = patches - mean
        error = SIDE**2 * (settings["gain"] * sigma) ** 2
        some = torch.randperm(len(patches), generator=torch.Generator().manual_seed(0))[: settings["patches"]]
        adapted = k_svd(
            patches[some.to(y.device)], atoms, rounds=settings["rounds"], most=settings["most"], error=error
        )
        index, weight = matching_pursuit(patches, adapted, most=settings["most"], error=error)
        clean = decode(index, weight, adapted) + mean
        total = _glue(clean, y.shape)
        counts = _glue(torch.ones_like(clean), y.shape)
        trust = 30 / (255 * sigma)  # Elad and Aharon's weight of the noisy image
        return (trust * y + total) / (trust + counts)

    def _fit_upsampling(self, images: Sequence[np.ndarray], factor: int) -> Arrays:
        settings = self.settings["upsample"]
        low, high, basis = training_pairs(images, settings["pairs"], factor, self.device)
        atoms, details = coupled_dictionaries(
            low, high, atoms=settings["atoms"], rounds=settings["rounds"], most=settings["most"]
        )
        return {name: tensor.cpu().numpy() for name, tensor in (("basis", basis), ("low", atoms), ("high", details))}


def _patches(y: Tensor) -> Tensor:
    """All overlapping patches as rows, (P, 64)."""
    return torch.nn.functional.unfold(y[None, None], SIDE)[0].T


def _glue(patches: Tensor, shape: torch.Size) -> Tensor:
    return torch.nn.functional.fold(patches.T[None], shape, SIDE)[0, 0]
