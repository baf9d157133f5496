"""What Zeyde et al. and Timofte et al. share: features of the bicubic interpolation, pairs, coupled dictionaries.

A patch covers 3×3 samples of y, so (3·factor)² pixels of x. Its features are the first and second differences of the
interpolated image over the patch, reduced by PCA to 99.9 % of their energy. What is learnt is x less its interpolation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import fold, pad, unfold

from slir_bench.peers.bicubic import enlarge
from slir_bench.peers.sparse import k_svd, matching_pursuit
from slir_bench.protocols import shrunk

ENERGY = 0.999


def describe(y: Tensor, factor: int, basis: Tensor) -> tuple[Tensor, Tensor]:
    """The interpolated image, and one feature vector for each patch of it: (P, d). `basis` (4·side², d)."""
    bicubic = torch.from_numpy(enlarge(y.cpu().numpy(), factor)).to(y.device)
    return bicubic, _differences(bicubic, factor) @ basis


def paste(bicubic: Tensor, patches: Tensor, factor: int) -> Tensor:
    """The interpolated image plus the mean of the patches (P, side²) that cover each pixel."""
    side = 3 * factor
    total = fold(patches.T[None], bicubic.shape, side, stride=factor)
    counts = fold(torch.ones_like(patches).T[None], bicubic.shape, side, stride=factor)
    return bicubic + (total / counts)[0, 0]


def training_pairs(images: Sequence[np.ndarray], count: int, factor: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """`count` pairs of features (count, d) and missing details (count, side²), and the basis of the features."""
    generator = torch.Generator().manual_seed(0)
    each, low, high = max(1, count // len(images)), [], []
    for image in images:
        case = shrunk("", "", "", image)
        bicubic = torch.from_numpy(enlarge(case.y, factor))
        features, details = _differences(bicubic, factor), _cut(torch.from_numpy(case.clean) - bicubic, factor)
        some = torch.randperm(len(features), generator=generator)[:each]
        low.append(features[some])
        high.append(details[some])
    raw = torch.cat(low).to(device)
    energy, axes = torch.linalg.eigh((raw.T @ raw).double() / len(raw))
    kept = int((energy.flip(0).cumsum(0) / energy.sum() < ENERGY).sum()) + 1
    basis = axes[:, -kept:].float()
    return raw @ basis, torch.cat(high).to(device), basis


def coupled_dictionaries(low: Tensor, high: Tensor, *, atoms: int, rounds: int, most: int) -> tuple[Tensor, Tensor]:
    """K-SVD on the features, then D_h = P_h Aᵀ (A Aᵀ)⁻¹, the least-squares dictionary of the details for its codes."""
    lively = low[low.norm(dim=1) > low.norm(dim=1).median()]
    seeds = lively[torch.randperm(len(lively), generator=torch.Generator().manual_seed(0))[:atoms].to(low.device)]
    learnt = k_svd(low, seeds / seeds.norm(dim=1, keepdim=True), rounds=rounds, most=most)
    index, weight = matching_pursuit(low, learnt, most=most)
    codes = low.new_zeros(len(low), len(learnt)).scatter_add_(1, index, weight)
    normal = codes.T @ codes
    normal.diagonal().add_(1e-6 * normal.diagonal().mean() + 1e-12)
    return learnt, torch.linalg.solve(normal, codes.T @ high)


def _differences(bicubic: Tensor, factor: int) -> Tensor:
    """First and second differences along both axes, a sample of y apart: (P, 4·side²)."""
    rows, columns = bicubic.shape
    wide = pad(bicubic[None, None], (factor,) * 4, mode="replicate")[0, 0]

    def moved(down: int, right: int) -> Tensor:
        return wide[factor + down :, factor + right :][:rows, :columns]

    before, after = -(factor // 2), factor - factor // 2
    maps = [
        moved(0, before) - moved(0, after),
        moved(before, 0) - moved(after, 0),
        (moved(0, -factor) + moved(0, factor)) / 2 - bicubic,
        (moved(-factor, 0) + moved(factor, 0)) / 2 - bicubic,
    ]
    return unfold(torch.stack(maps)[None], 3 * factor, stride=factor)[0].T


def _cut(x: Tensor, factor: int) -> Tensor:
    return unfold(x[None, None], 3 * factor, stride=factor)[0].T
