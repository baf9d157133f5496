"""Ridge regression per cell: kernel ridge with the kernel k(f, f′) = 1[same cell]·⟨f, f′⟩, whose α is never formed.

With pairs (f, t) of what is seen and what is wanted, and S_c = Σ f fᵀ, T_c = Σ f tᵀ over the pairs of cell c,

    W₀  = argmin Σ ‖t − W₀ᵀf‖² + λ n ‖D^½ W₀‖²                    one map for all cells, shrunk towards doing nothing
    W_c = argmin Σ_c ‖t − W_cᵀf‖² + τ e_c ‖F^½ (W_c − W₀)‖²       a cell's own, shrunk towards the common one

with D the features' mean squares, F = S/n + λD their second moments over all cells and e_c the energy of a pair of cell
c beside F's, so that λ and τ have no units: τ counts pairs. Both are chosen by leaving out whole folds of images, which
is exact from the sums S and T alone, and honest where a formula that takes pairs to be independent is not: overlapping
patches of one image are far from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

LAMBDAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
ROUNDING = 1e-6
"""What products in single precision leave uncertain in S, as a share of its diagonal."""

BLOCK = 64
"""Rows of one cell that a GPU multiplies together."""

TAUS = (1e2, 1e3, 1e4, 1e5, 1e6, 1e7)


class Sums:
    """S, T and what the loss needs beside them, per fold and cell, added up chunk by chunk: memory knows no m.

    folds: of images. cells: C. seen: d. wanted: k.
    """

    def __init__(self, folds: int, cells: int, seen: int, wanted: int, device: torch.device | str):
        double = {"dtype": torch.float64, "device": device}
        self.outer = torch.zeros(folds, cells, seen, seen, **double)  # type: ignore[call-overload]
        self.cross = torch.zeros(folds, cells, seen, wanted, **double)  # type: ignore[call-overload]
        self.energy = torch.zeros(folds, cells, **double)  # type: ignore[call-overload]
        self.pairs = torch.zeros(folds, cells, **double)  # type: ignore[call-overload]

    @property
    def folds(self) -> int:
        return len(self.pairs)

    def add(self, fold: int, cell: Tensor, seen: Tensor, wanted: Tensor) -> None:
        """Pairs of an image of one fold: cell (P,), seen (P, d), wanted (P, k)."""
        order, sizes = by_cell(cell, self.pairs.shape[1])
        seen, wanted = seen[order], wanted[order]
        start = 0
        for c, size in enumerate(sizes):
            if size:
                f, t = seen[start : start + size], wanted[start : start + size]
                self.outer[fold, c] += f.T @ f
                self.cross[fold, c] += f.T @ t
                self.energy[fold, c] += t.double().square().sum()
                self.pairs[fold, c] += size
                start += size

    def __iadd__(self, other: Sums) -> Sums:
        for own, more in zip(self.tensors, other.tensors):
            own += more
        return self

    def __add__(self, other: Sums) -> Sums:
        return Sums.made_of(own + more for own, more in zip(self.tensors, other.tensors))

    @classmethod
    def side_by_side(cls, folds: Sequence[Sums]) -> Sums:
        """Those of several folds, each from one of these."""
        return cls.made_of(torch.cat(own) for own in zip(*(sums.tensors for sums in folds)))

    @classmethod
    def made_of(cls, tensors: Iterable[Tensor]) -> Sums:
        made = cls.__new__(cls)
        made.outer, made.cross, made.energy, made.pairs = tensors
        return made

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.outer, self.cross, self.energy, self.pairs

    def to(self, device: torch.device | str) -> Sums:
        return Sums.made_of(own.to(device) for own in self.tensors)

    def __getstate__(self) -> list[np.ndarray]:
        """For other processes: arrays travel without being copied, tensors do not."""
        return [own.cpu().numpy() for own in self.tensors]

    def __setstate__(self, arrays: list[np.ndarray]) -> None:
        # What arrives may be read-only, and is only read: whoever adds to it adds out of place first.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            self.outer, self.cross, self.energy, self.pairs = map(torch.from_numpy, arrays)

    def without(self, fold: int | None) -> _Part:
        """The sums over all folds but one, or over all."""
        kept = [k for k in range(self.folds) if k != fold] or [0]
        return _Part(*(total[kept].sum(0) for total in (self.outer, self.cross, self.energy, self.pairs)))

    def only(self, fold: int) -> _Part:
        return _Part(self.outer[fold], self.cross[fold], self.energy[fold], self.pairs[fold])


@dataclass(frozen=True)
class _Part:
    """The sums over some folds: (C, d, d), (C, d, k), (C,), (C,)."""

    outer: Tensor
    cross: Tensor
    energy: Tensor
    pairs: Tensor

    def common(self, lam: float) -> Tensor:
        """W₀ (d, k)."""
        return _solve(_ridged(self.outer.sum(0), lam), self.cross.sum(0))

    def maps(self, lam: float, tau: float, common: Tensor | None = None) -> Tensor:
        """W_c of every cell, (C, d, k)."""
        common = self.common(lam) if common is None else common
        typical = _ridged(self.outer.sum(0), lam) / self.pairs.sum()  # F
        energy = self.outer.diagonal(dim1=-2, dim2=-1).sum(-1) / self.pairs.clamp(min=1)
        # A cell without pairs has no energy; any positive pull then gives it the common map.
        pull = (tau * energy / typical.trace()).clamp(min=1e-6)[:, None, None]
        maps = _solve(_ridged(self.outer, ROUNDING) + pull * typical, self.cross + pull * (typical @ common))
        return maps.contiguous()  # row by row, as a file holds them, so that products round alike

    def loss(self, maps: Tensor) -> float:
        """Mean of ‖t − W_cᵀf‖² over the pairs. maps: (C, d, k), or (d, k) for all."""
        wanted = (maps * (self.outer @ maps)).sum() - 2 * (maps * self.cross).sum() + self.energy.sum()
        return float(wanted / self.pairs.sum().clamp(min=1))


def _solve(matrix: Tensor, rhs: Tensor) -> Tensor:
    """matrix⁻¹ rhs. S was summed in single precision: a matrix of few pairs may miss being positive by a rounding."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    more = ROUNDING
    while bool(failed.any()):
        more *= 10
        factor, failed = torch.linalg.cholesky_ex(_ridged(matrix, more))
    return torch.cholesky_solve(rhs, factor)


def _ridged(outer: Tensor, lam: float) -> Tensor:
    """S + λD, and a trace more for features that are always zero."""
    diagonal = outer.diagonal(dim1=-2, dim2=-1)
    return outer + torch.diag_embed(lam * diagonal + 1e-12 * diagonal.mean(-1, keepdim=True) + 1e-30)


@dataclass(frozen=True)
class CellRidge:
    """maps: W (C, d, k), from all folds. held_out: W from all folds but one, for each. lam, tau: as chosen.

    moment: E[f fᵀ] over all pairs, (d, d).
    loss: mean squared error per pixel of `wanted` on folds left out, or the mean of the errors that τ was chosen by.
    before: mean square per pixel of `wanted`.
    """

    maps: Tensor
    held_out: list[Tensor]
    moment: Tensor
    lam: float
    tau: float
    loss: float
    before: float


def fit_cell_ridge(
    sums: Sums,
    *,
    lams: Sequence[float] = LAMBDAS,
    taus: Sequence[float] = TAUS,
    error: Callable[[int, Tensor], float] | None = None,
) -> CellRidge:
    """Choose λ, then τ, by the loss on folds left out; then solve for all. With one fold there is nothing to leave out,
    and the middle of each range is taken.

    error: error(fold, maps) of maps that were fitted without a fold, by which τ is chosen in place of the loss.
    """
    k = sums.cross.shape[-1]
    # A fold can be left out, or judged by, if there are pairs in it and in others.
    mass = sums.pairs.sum(1)
    usable = [fold for fold in range(sums.folds) if 0 < float(mass[fold]) < float(mass.sum())]
    parts = [(sums.without(fold), sums.only(fold)) for fold in usable]
    lam, tau = lams[len(lams) // 2], taus[len(taus) // 2]
    loss = float("nan")
    if parts:
        lam = min(lams, key=lambda value: sum(held.loss(rest.common(value)) for rest, held in parts))
        commons = [rest.common(lam) for rest, _ in parts]
        losses = {}
        for value in taus:  # the loss has one valley in τ: stop when it rises
            found = (
                (fold, held, rest.maps(lam, value, own)) for fold, (rest, held), own in zip(usable, parts, commons)
            )
            losses[value] = sum(error(fold, maps) if error else held.loss(maps) for fold, held, maps in found)
            if losses[value] > 1.001 * min(losses.values()):
                break
        tau = min(losses, key=lambda value: losses[value])
        loss = losses[tau] / len(parts) / (1 if error else k)
    whole = sums.without(None)
    maps = whole.maps(lam, tau).float()
    held_out = [maps] * sums.folds
    for fold, (rest, _) in zip(usable, parts):
        held_out[fold] = rest.maps(lam, tau).float()
    before = float(whole.energy.sum() / whole.pairs.sum().clamp(min=1)) / k
    moment = (whole.outer.sum(0) / whole.pairs.sum().clamp(min=1)).float()
    return CellRidge(maps, held_out, moment, lam, tau, loss, before)


def by_cell(cell: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """The order that brings the members of each cell together, and how many each has."""
    return cell.argsort(stable=True), torch.bincount(cell, minlength=count).tolist()


def apply_maps(maps: Tensor, cell: Tensor, seen: Tensor) -> Tensor:
    """W_cᵀf for each row: maps (C, d, k), cell (P,), seen (P, d) -> (P, k)."""
    if seen.device.type != "cpu":
        return _apply_in_blocks(maps, cell, seen)
    order, sizes = by_cell(cell, len(maps))
    seen = seen[order]
    parts, start = [], 0
    for c, size in enumerate(sizes):
        if size:
            parts.append(seen[start : start + size] @ maps[c])
            start += size
    out = seen.new_empty(len(seen), maps.shape[-1])
    if parts:
        out[order] = torch.cat(parts)
    return out


def _apply_in_blocks(maps: Tensor, cell: Tensor, seen: Tensor) -> Tensor:
    """The same for a GPU, which would wait for a product per cell: every cell's rows fill blocks of their own, and all
    blocks are multiplied in one go."""
    sizes = cell.new_zeros(len(maps)).scatter_add_(0, cell, torch.ones_like(cell))
    taken = (sizes + BLOCK - 1) // BLOCK * BLOCK  # rows, with those that fill up the last block
    ends = taken.cumsum(0)
    order = cell.argsort(stable=True)
    own = cell[order]
    slot = (ends - taken)[own] + torch.arange(len(cell), device=cell.device) - (sizes.cumsum(0) - sizes)[own]
    blocks = len(cell) // BLOCK + len(maps)  # at most; how many there are only the GPU knows
    rows = seen.new_zeros(blocks * BLOCK, seen.shape[1])
    rows[slot] = seen[order]
    starts = torch.arange(0, blocks * BLOCK, BLOCK, device=cell.device)
    owner = torch.searchsorted(ends, starts, right=True).clamp_(max=len(maps) - 1)
    products = rows.view(blocks, BLOCK, -1) @ maps[owner]
    out = seen.new_empty(len(seen), maps.shape[-1])
    out[order] = products.view(blocks * BLOCK, -1)[slot]
    return out
