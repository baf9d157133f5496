"""Sparse codes and K-SVD, batched over signals so that they run as matrix products on either device.

Y. Pati, R. Rezaiifar, P. Krishnaprasad, "Orthogonal matching pursuit", Asilomar, 1993.
M. Aharon, M. Elad, A. Bruckstein, "K-SVD", IEEE TSP, 2006, with the approximate atom update of R. Rubinstein,
M. Zibulevsky, M. Elad, "Efficient implementation of the K-SVD algorithm", Technion CS-2008-08.
"""

from __future__ import annotations

import torch
from torch import Tensor


def matching_pursuit(signals: Tensor, atoms: Tensor, *, most: int, error: float = 0.0) -> tuple[Tensor, Tensor]:
    """Orthogonal matching pursuit of each row: the atoms' indices (P, most) and coefficients (P, most).

    `atoms` (n, d) have unit norm. A row stops at `most` atoms, or as soon as its squared residual is at most `error`;
    unused places have coefficient 0.
    """
    index = torch.zeros(len(signals), most, dtype=torch.long, device=signals.device)
    weight = signals.new_zeros(len(signals), most)
    gram = atoms @ atoms.T
    chunk = max(1, (1 << 22) // len(atoms))  # 16 MB of correlations
    for start in range(0, len(signals), chunk):
        part = signals[start : start + chunk]
        fit = part @ atoms.T  # (p, n), kept: the residual's correlations follow from it and the Gram matrix
        energy = part.square().sum(1)
        active = (energy > error).nonzero().squeeze(1)
        chosen = torch.zeros(len(part), most, dtype=torch.long, device=part.device)
        found = part.new_zeros(len(part), most)
        left = fit[active].clone()
        for k in range(most):
            if not len(active):
                break
            chosen[active, k] = left.abs().argmax(1)
            now = chosen[active, : k + 1]
            block = gram[now[:, :, None], now[:, None, :]]
            block.diagonal(dim1=1, dim2=2).add_(1e-5)  # two atoms that are nearly the same must not make it singular
            right = fit[active[:, None], now]
            a = torch.cholesky_solve(right[:, :, None], torch.linalg.cholesky(block)).squeeze(2)
            found[active, : k + 1] = a
            going = energy[active] - (a * right).sum(1) > error  # ‖s − Da‖² = ‖s‖² − aᵀDᵀs at the optimum
            active, now, a = active[going], now[going], a[going]
            if k + 1 < most:
                left = fit[active]
                for j in range(k + 1):
                    left -= a[:, j, None] * gram[now[:, j]]
                left.scatter_(1, now, 0.0)  # never the same atom again
        index[start : start + chunk], weight[start : start + chunk] = chosen, found
    return index, weight


def k_svd(signals: Tensor, atoms: Tensor, *, rounds: int, most: int, error: float = 0.0) -> Tensor:
    """Adapt `atoms` (n, d) to the rows of `signals`: code them, then improve one atom after the other, in turn.

    Atom j and its coefficients g become, with E the residual of its users without it: d ← Eᵀg/‖Eᵀg‖, g ← E d. An atom
    that nobody uses becomes the worst-coded signal.
    """
    atoms = atoms.clone()
    for _ in range(rounds):
        index, weight = matching_pursuit(signals, atoms, most=most, error=error)
        residual = signals - decode(index, weight, atoms)
        used = weight != 0
        flat = index[used]
        rows = used.nonzero()[:, 0]
        order = flat.argsort(stable=True)
        sizes = torch.bincount(flat, minlength=len(atoms)).tolist()
        values, places = weight[used], used.nonzero()[:, 1]
        worst = iter(residual.square().sum(1).topk(min(len(atoms), len(signals))).indices.tolist())
        for j, mine in enumerate(order.split(sizes)):
            if not len(mine):
                spare = signals[next(worst)]
                atoms[j] = spare / spare.norm().clamp(min=1e-9)
                continue
            users, g = rows[mine], values[mine]
            without = residual[users] + g[:, None] * atoms[j]
            new = without.T @ g
            new = new / new.norm().clamp(min=1e-9)
            g = without @ new
            residual[users] = without - g[:, None] * new
            weight[users, places[mine]] = g
            atoms[j] = new
    return atoms


def decode(index: Tensor, weight: Tensor, atoms: Tensor) -> Tensor:
    """Σ_k weight_k · atom(index_k) for each row."""
    out = atoms.new_zeros(len(index), atoms.shape[1])
    for k in range(index.shape[1]):
        out += weight[:, k, None] * atoms[index[:, k]]
    return out
