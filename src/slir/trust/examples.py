"""Examples: some of the patches that a model learnt from, and the weights with which they make up a patch.

A ridge in a cell is a sum over millions of training pairs, none of which a model file holds. But with the squared loss
all that the estimator knows of α is Σᵢ αᵢxⁱ, and a few thousand patches span everything that a patch can be: so the
same estimator has weights on these. Of all that give exactly Σᵢ αᵢxⁱ, the ones shown are the most local,

    α = argmin Σᵢ αᵢ²/κᵢ   under   Σᵢ αᵢxⁱ = pull,      κᵢ = exp(−‖pull − xⁱ‖²/2h²)

which are those of local linear regression: the more an example looks like the patch, the more it may say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COUNT = 3072
"""Examples that a model keeps."""

TURNS = 8
"""Pictures were learnt from turned and mirrored, so each example stands for so many."""

NEIGHBOURS = 24
"""Examples within h of the patch, in the weights' sense."""

FARTHEST = 1e-7
"""Least κ beside the largest: enough that any patch can be made up."""


@dataclass(frozen=True)
class Examples:
    """patches: (n, size, size), 8 bits of [0, 1]. origin: (n, 3), picture, row and column. sources: pictures' names."""

    patches: Tensor
    origin: Tensor
    sources: tuple[str, ...]

    @property
    def size(self) -> int:
        return self.patches.shape[1]

    def turned(self) -> Tensor:
        """All of them in all orientations, those of one orientation together: (8n, size²) in [0, 1]."""
        upright = self.patches.double() / 255
        ways = [upright, upright.mT]
        ways += [way.flip(1) for way in ways]
        ways += [way.flip(2) for way in ways]
        return torch.cat([way.flatten(1) for way in ways])

    def place(self, number: int) -> tuple[str, int, int]:
        """Where one of the turned ones comes from: picture, row, column."""
        picture, row, col = self.origin[number % len(self.origin)].tolist()
        return self.sources[picture], row, col


def draw_examples(
    planes: Sequence[Tensor],
    names: Sequence[str],
    cells: Callable[[Tensor], Tensor],
    *,
    size: int,
    generator: torch.Generator,
    count: int = COUNT,
) -> Examples:
    """Patches of all pictures, as many of each kind: most patches of pictures are flat, and flat ones tell nothing.

    planes: (H, W) in [0, 1]. cells: what kind clean patches (P, size²) are of.
    """
    drawn, origins = [], []
    each = -(-16 * count // len(planes))
    for number, plane in enumerate(planes):
        windows = plane.cpu().unfold(0, size, 1).unfold(1, size, 1)
        rows = torch.randint(windows.shape[0], (each,), generator=generator)
        cols = torch.randint(windows.shape[1], (each,), generator=generator)
        drawn.append(windows[rows, cols])
        origins.append(torch.stack([torch.full_like(rows, number), rows, cols], 1))
    patches, origin = torch.cat(drawn), torch.cat(origins)
    kinds = cells(patches.flatten(1))
    # By turns one of each kind: the rank of a patch among its kind decides, and kinds with few give all they have.
    order = kinds.argsort(stable=True)
    first = torch.searchsorted(kinds[order], kinds[order])
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - first
    kept = rank.argsort(stable=True)[:count].sort().values
    eight = (patches[kept] * 255).round_().clamp_(0, 255).to(torch.uint8)
    return Examples(eight, origin[kept].to(torch.int32), tuple(names))


def local_weights(pull: Tensor, patches: Tensor) -> Tensor:
    """α (n,) with Σᵢ αᵢxⁱ = pull, as local as can be: pull (k,), patches (n, k), both centred, in double precision."""
    if not pull.any():
        return patches.new_zeros(len(patches))
    apart = (patches - pull).square().sum(1)
    near = apart.topk(min(NEIGHBOURS, len(apart)), largest=False).values
    reach = (near[-1] - near[0]).clamp(min=1e-3 * float(pull.square().sum()))
    kernel = torch.exp(-2 * (apart - near[0]) / reach).clamp_(min=FARTHEST)
    size = pull.norm()
    gram = patches.T @ (kernel[:, None] * patches) / size**2
    alpha, left = torch.zeros_like(kernel), pull
    for _ in range(3):  # the last bits by refinement: the system is as badly conditioned as patches are smooth
        found = torch.linalg.lstsq(gram, left[:, None] / size, driver="gelsd").solution[:, 0]
        alpha = alpha + kernel * (patches @ found) / size
        left = pull - alpha @ patches
    return alpha
