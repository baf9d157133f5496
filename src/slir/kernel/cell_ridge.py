"""The closed-form stage on top of a network: kernel ridge regression with the kernel 1[same cell]·⟨f, f′⟩.

    z_p ← z_p + W_cᵀ f_p,      f_p = (z_p − mean, x_p − z_p),      c = the cell of z_p

x is the data step that the network saw, z its estimate. Cells are those of k-means with soft borders, so that rounding
never decides between two maps. `slir.kernel.ridge` solves for the maps W_c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from slir.compute import rows_that_fit
from slir.descriptors import dct_basis_on
from slir.estimator.paper_settings import ROUNDING
from slir.estimator.state import State
from slir.model import ImageQuadratic, PatchQuadratic, aggregate
from slir.patches import PatchGrid

SIZE, STRIDE = 8, 2
"""Side and stride of the patches."""

SEEN = 2 * SIZE**2
"""Length of f_p."""

BORDER = 0.02
"""Width of the border between two cells, as a difference of their scores."""

CHUNK = {True: 2048, False: 65536}
"""Patches whose distances to all centres are computed at a time, on a CPU and elsewhere."""


def cell_features(patches: Tensor) -> Tensor:
    """The orthonormal DCT of patches without their mean, by which cells are found: (P, k) -> (P, k − 1)."""
    return patches @ dct_basis_on(round(patches.shape[1] ** 0.5), patches.dtype, patches.device)[1:].T


@dataclass(frozen=True)
class Cells:
    """A partition of patches by the nearest of the centres m (C, d) of k-means.

    The score of a cell is −log(‖f − m_c‖² + r²), with r the length of the error that rounding to 8 bits leaves in f. So
    the width of a border is a share of the distance to the centres.
    """

    centres: Tensor

    def __len__(self) -> int:
        return len(self.centres)

    def _scores(self, features: Tensor) -> Tensor:
        """(P, d) -> (C, P)."""
        lengths = self.centres.square().sum(1, keepdim=True)
        squares = torch.addmm(lengths + features.square().sum(1), self.centres, features.T, alpha=-2)
        return squares.clamp_(min=0).add_(self.centres.shape[1] * ROUNDING**2).log_().neg_()

    def assign(self, features: Tensor) -> Tensor:
        """The cell of each row: (P, d) -> (P,)."""
        chunks = features.split(CHUNK[features.device.type == "cpu"])
        return torch.cat([self._scores(chunk).argmax(0) for chunk in chunks])

    def members(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cell of each row (P,); the rows near a border (n,), the cell beyond it (n,) and its share (n,).

        With the three largest scores ℓ, the share is s = u₂/(u₁ + u₂), u_i = max(0, ℓ_i − max(ℓ₃, ℓ₁ − BORDER)). It is
        ½ where two cells score alike, and 0 where the first leads by a border's width.
        """
        found, start = [], 0
        for chunk in features.split(CHUNK[features.device.type == "cpu"]):
            scores = self._scores(chunk)
            first, cell = scores.max(0)
            scores.scatter_(0, cell[None], -torch.inf)
            near = (first - scores.amax(0) < BORDER).nonzero()[:, 0]
            second, other = scores[:, near].max(0)
            third = scores[:, near].scatter(0, other[None], -torch.inf).amax(0)
            floor = torch.maximum(third, first[near] - BORDER)
            own, rival = first[near] - floor, (second - floor).clamp_(min=0)
            found.append((cell, near + start, other, (rival / (own + rival)).nan_to_num_(0.0)))
            start += len(cell)
        cell, near, other, share = (torch.cat(column) for column in zip(*found))
        return cell, near, other, share

    def to(self, device: torch.device | str) -> Cells:
        return Cells(self.centres.to(device))


def k_means(features: Tensor, count: int, *, rounds: int = 10, generator: torch.Generator) -> Cells:
    """Lloyd's algorithm: features (P, d) -> at most `count` cells.

    The first centres are samples. A centre without members moves to a sample; in the end it is left out.
    """

    def samples(number: int) -> Tensor:
        return features[torch.randperm(len(features), generator=generator)[:number].to(features.device)]

    cells = Cells(samples(count))
    for _ in range(rounds):
        label = cells.assign(features)
        sums = torch.zeros_like(cells.centres).index_add_(0, label, features)
        sizes = torch.bincount(label, minlength=len(cells))[:, None]
        cells = Cells(torch.where(sizes > 0, sums / sizes.clamp(min=1), samples(len(cells))))
    return Cells(cells.centres[torch.bincount(cells.assign(features), minlength=len(cells)) > 0])


def by_cell(cell: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """The order that sorts rows by their cell, and the number of rows of each cell."""
    return cell.argsort(stable=True), torch.bincount(cell, minlength=count).tolist()


def apply_maps(maps: Tensor, cell: Tensor, seen: Tensor) -> Tensor:
    """W_cᵀf for each row: maps (C, d, k), cell (P,), seen (P, d) -> (P, k)."""
    order, sizes = by_cell(cell, len(maps))
    out = seen.new_empty(len(seen), maps.shape[-1])
    parts = [part @ matrix for part, matrix in zip(seen[order].split(sizes), maps) if len(part)]
    if parts:
        out[order] = torch.cat(parts)
    return out


def features(state: State, grid: PatchGrid, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """f_p (P, d) and z_p (P, k) of all patches, or of a band of rows."""
    assert state.seen is not None  # a stage with a network came before
    patches = grid.extract(state.z, rows=rows)
    rest = grid.extract(state.seen, rows=rows) - patches
    return torch.cat([patches - patches.mean(1, keepdim=True), rest], 1), patches


@dataclass(frozen=True)
class CellRidgeStage:
    """z_p ← z_p + W_cᵀf_p, averaged over patches. maps: W (C, d, k)."""

    cells: Cells
    maps: Tensor
    size: int = SIZE
    stride: int = STRIDE

    joint = False

    def grid(self, shape: tuple[int, int]) -> PatchGrid:
        return PatchGrid(shape, self.size, self.stride)

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        """W_cᵀf_p: seen (P, d), patches z_p (P, k) -> (P, k)."""
        cell, near, other, share = self.cells.members(cell_features(patches))
        found = apply_maps(self.maps, cell, seen)
        found[near] = found[near].lerp_(apply_maps(self.maps, other, seen[near]), share[:, None])
        return found

    def target(self, state: State, grid: PatchGrid, rows: slice = slice(None)) -> Tensor:
        """z_p + W_cᵀf_p of the patches of a band: (P, k)."""
        seen, patches = features(state, grid, rows)
        return patches + self.predict(seen, patches)

    def z_update(
        self, state: State, grid: PatchGrid, generator: torch.Generator | None = None, *, errors: bool = False
    ) -> tuple[ImageQuadratic, State]:
        bands = grid.bands(rows_that_fit(4 * SEEN * state.z.element_size(), state.z.device))
        targets = ((rows, self.target(state, grid, rows)) for rows in bands)
        return aggregate(grid, ((rows, PatchQuadratic(z.new_ones(len(z)), z)) for rows, z in targets)), state

    def system(self, quadratic: ImageQuadratic, sigma: float) -> tuple[float, Tensor, Tensor]:
        """No data step: x is z."""
        return 0.0, quadratic.diagonal, quadratic.moment

    def solve_from(self, state: State, z: Tensor) -> tuple[float, Tensor]:
        return 0.0, z

    @property
    def device(self) -> torch.device:
        return self.maps.device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> CellRidgeStage:
        return replace(self, cells=self.cells.to(device), maps=self.maps.to(device))
