"""The kernels as functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from slir.fused.bank import COLUMNS, TiledBank, padded
from slir.fused.kernels import mass_kernel, moments_kernel, weiszfeld_kernel
from slir.solvers.solution import Solution, Verdict

FLOOR = 2e-5
"""Least distance of a patch to one of the bank's: with less, a pull would not be a number in half precision."""

ROUNDS = (3, 3, 4, 5, 8, 12)
"""Steps between which patches that have converged are dropped."""


def _blocks(count: int, block: int) -> tuple[int]:
    return (-(-count // block),)


def nw_moments(bank: TiledBank, seen: Tensor, *, block: int = 128, tile: int = 64, warps: int = 4) -> Tensor:
    """Σᵢ αᵢ(f) xⁱ for Nadaraya–Watson weights: (c, d) -> (c, k)."""
    wide, deep = bank.clean.shape[1], bank.features.shape[1]
    own = bank.described(seen)
    out = seen.new_empty(len(seen), wide)
    if len(seen):
        moments_kernel[_blocks(len(seen), block)](
            own, bank.features, bank.bias, bank.clean, out, len(seen), len(bank.clean),
            DEEP=deep, PART=COLUMNS, WIDE=wide, BLOCK=block, TILE=tile, num_warps=warps,
        )  # fmt: skip
    return out[:, : len(bank.centre)] + bank.centre


def nw_euclidean(
    bank: TiledBank,
    seen: Tensor,
    x: Tensor,
    beta: float,
    *,
    tol: float = 1e-3,
    max_steps: int = 20,
    floor: float = FLOOR,
    block: int = 64,
    tile: int = 128,
    warps: int = 4,
    stages: int = 2,
) -> Solution:
    """`slir.solvers.weiszfeld.weiszfeld` for the Euclidean loss and Nadaraya–Watson weights α(f): (c, d), (c, k)."""
    k, wide, deep = x.shape[1], bank.clean.shape[1], bank.features.shape[1]
    count = len(x)
    if count == 0:
        return Solution(torch.empty_like(x), Verdict.CONVERGED, {"steps": 0.0, "error": 0.0})
    own, middle = bank.described(seen), padded(x - bank.centre, wide).contiguous()
    z = middle.clone()
    spread = bank.norms.sum() / bank.bias.isfinite().sum()
    scale = (spread + middle.square().sum(1)).sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    rounding = 4 * torch.finfo(x.dtype).eps * float(bank.norms.max())
    highest, mass = torch.empty_like(scale), torch.empty_like(scale)
    change, left = (torch.full_like(scale, torch.inf) for _ in range(2))
    mass_kernel[_blocks(count, 128)](
        own, bank.features, bank.bias, highest, mass, count, len(bank.clean),
        DEEP=deep, PART=COLUMNS, BLOCK=128, TILE=128, num_warps=8,
    )  # fmt: skip
    which, taken = torch.arange(count, device=x.device), 0
    for steps in ROUNDS:
        steps = min(steps, max_steps - taken)
        weiszfeld_kernel[_blocks(len(which), block)](
            which, own, bank.features, bank.bias, bank.clean, bank.norms, middle, z, highest, mass, scale, change, left,
            len(which), len(bank.clean), beta, tol, max(floor, rounding**0.5), steps,
            DEEP=deep, PART=COLUMNS, WIDE=wide, BLOCK=block, TILE=tile, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        taken += steps
        which = which[left[which] >= tol]
        if not len(which) or taken >= max_steps:
            break
    error = float(left.max())
    verdict = Verdict.CONVERGED if error < tol else Verdict.STEP_LIMIT
    return Solution(z[:, :k] + bank.centre, verdict, {"steps": float(taken), "error": error})
