"""Ridge regression per cell, solved from sums: kernel ridge regression whose α is never formed.

With pairs (f, t) of what is seen and what is missing, and S_c = Σ f fᵀ, T_c = Σ f tᵀ over the pairs of cell c,

    W₀  = argmin Σ ‖t − W₀ᵀf‖² + λ n ‖D^½ W₀‖²                    one map for all cells, shrunk towards zero
    W_c = argmin Σ_c ‖t − W_cᵀf‖² + τ e_c ‖F^½ (W_c − W₀)‖²       one map a cell, shrunk towards the common one

with D the mean squares of the features, F = S/n + λD their second moments over all cells and e_c the energy of a pair
of cell c relative to F. So λ and τ have no units: τ counts pairs. Both are chosen by leaving out whole folds of
pictures, since overlapping patches of one picture are not independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from slir.kernel.cell_ridge import by_cell

LAMBDAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

TAUS = (0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e5)
"""Judged by single patches, weak ridges look bad: most of their variance is averaged away where patches overlap."""

ROUNDING = 1e-6
"""Relative error that products in single precision leave in S."""


class Sums:
    """S (folds, C, d, d), T (folds, C, d, k), Σ‖t‖² and the number of pairs (folds, C). Sums of pictures add up."""

    def __init__(self, folds: int, cells: int, seen: int, wanted: int, device: torch.device | str):
        shapes = (folds, cells, seen, seen), (folds, cells, seen, wanted), (folds, cells), (folds, cells)
        made = (torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes)
        self.outer, self.cross, self.energy, self.pairs = made

    @property
    def folds(self) -> int:
        return len(self.pairs)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.outer, self.cross, self.energy, self.pairs

    def add(self, fold: int, cell: Tensor, seen: Tensor, wanted: Tensor) -> None:
        """Add the pairs of a picture: cell (P,), seen f (P, d), wanted t (P, k)."""
        order, sizes = by_cell(cell, self.pairs.shape[1])
        parts = zip(seen[order].split(sizes), wanted[order].split(sizes))
        for c, (f, t) in enumerate(parts):
            if len(f):
                self.outer[fold, c] += f.T @ f
                self.cross[fold, c] += f.T @ t
                self.energy[fold, c] += t.double().square().sum()
                self.pairs[fold, c] += len(f)

    @classmethod
    def made_of(cls, tensors: Iterable[Tensor]) -> Sums:
        made = cls.__new__(cls)
        made.outer, made.cross, made.energy, made.pairs = tensors
        return made

    def to(self, device: torch.device | str) -> Sums:
        return Sums.made_of(own.to(device) for own in self.tensors)

    def __getstate__(self) -> list[np.ndarray]:
        """For other processes: arrays travel without being copied, tensors do not."""
        return [own.cpu().numpy() for own in self.tensors]

    def __setstate__(self, arrays: list[np.ndarray]) -> None:
        with warnings.catch_warnings():  # what arrives may be read-only, and is only read
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            self.outer, self.cross, self.energy, self.pairs = map(torch.from_numpy, arrays)

    def over(self, folds: Sequence[int]) -> CellSums:
        """The sums over some folds."""
        return CellSums(*(total[list(folds)].sum(0) for total in self.tensors))


@dataclass(frozen=True)
class CellSums:
    """The sums over some folds: (C, d, d), (C, d, k), (C,), (C,)."""

    outer: Tensor
    cross: Tensor
    energy: Tensor
    pairs: Tensor

    def common(self, lam: float) -> Tensor:
        """W₀ (d, k)."""
        return _solve(_add_ridge(self.outer.sum(0), lam), self.cross.sum(0))

    def maps(self, lam: float, tau: float) -> Tensor:
        """W_c of every cell, (C, d, k)."""
        common = self.common(lam)
        typical = _add_ridge(self.outer.sum(0), lam) / self.pairs.sum()  # F
        energy = self.outer.diagonal(dim1=-2, dim2=-1).sum(-1) / self.pairs.clamp(min=1)
        # A cell without pairs has no energy; any positive weight then gives it the common map.
        weight = (tau * energy / typical.trace()).clamp(min=1e-6)[:, None, None]
        maps = _solve(_add_ridge(self.outer, ROUNDING) + weight * typical, self.cross + weight * (typical @ common))
        return maps.contiguous()  # row by row, as a file holds them, so that products round alike

    def loss(self, maps: Tensor) -> float:
        """Mean of ‖t − W_cᵀf‖² over the pairs. maps: (C, d, k), or (d, k) for all cells."""
        wanted = (maps * (self.outer @ maps)).sum() - 2 * (maps * self.cross).sum() + self.energy.sum()
        return float(wanted / self.pairs.sum().clamp(min=1))


def _solve(matrix: Tensor, rhs: Tensor) -> Tensor:
    """matrix⁻¹ rhs. S was summed in single precision: with few pairs, rounding may make it slightly indefinite."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    more = ROUNDING
    while bool(failed.any()):
        more *= 10
        factor, failed = torch.linalg.cholesky_ex(_add_ridge(matrix, more))
    return torch.cholesky_solve(rhs, factor)


def _add_ridge(outer: Tensor, lam: float) -> Tensor:
    """S + λD, and a trace more for features that are always zero."""
    diagonal = outer.diagonal(dim1=-2, dim2=-1)
    return outer + torch.diag_embed(lam * diagonal + 1e-12 * diagonal.mean(-1, keepdim=True) + 1e-30)


@dataclass(frozen=True)
class CellRidge:
    """maps: W (C, d, k), from all folds. lam, tau: as chosen. error: the mean error that τ was chosen by, or NaN."""

    maps: Tensor
    lam: float
    tau: float
    error: float


def fit_cell_ridge(
    sums: Sums,
    error: Callable[[int, Tensor], float],
    *,
    lams: Sequence[float] = LAMBDAS,
    taus: Sequence[float] = TAUS,
) -> CellRidge:
    """Choose λ by the loss on the folds left out, τ by `error(fold, maps)` there; then solve for all folds.

    With pairs of one fold alone nothing can be left out, and the middle of each range is taken.
    """
    mass = sums.pairs.sum(1)
    usable = [fold for fold in range(sums.folds) if 0 < float(mass[fold]) < float(mass.sum())]
    rests = [sums.over([k for k in range(sums.folds) if k != fold]) for fold in usable]
    lam, tau, best = lams[len(lams) // 2], taus[len(taus) // 2], float("nan")
    if usable:
        held = [sums.over([fold]) for fold in usable]
        lam = min(lams, key=lambda value: sum(own.loss(rest.common(value)) for own, rest in zip(held, rests)))
        errors: dict[float, float] = {}
        for value in taus:  # the error has one valley in τ: stop when it rises
            found = [error(fold, rest.maps(lam, value)) for fold, rest in zip(usable, rests)]
            errors[value] = sum(found) / len(found)
            if errors[value] > 1.001 * min(errors.values()):
                break
        tau = min(errors, key=lambda value: errors[value])
        best = errors[tau]
    return CellRidge(sums.over(range(sums.folds)).maps(lam, tau), lam, tau, best)
