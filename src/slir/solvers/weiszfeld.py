"""Weiszfeld's fixed point for the z-update, many patches at a time: the fast solver for weights α ≥ 0."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from slir.compute import chunks, rows_per_block, side_by_side
from slir.errors import InputError
from slir.losses import Euclidean, Huber, Loss, Squared
from slir.solvers.pulls import Pulls, Targets
from slir.solvers.solution import Solution, Verdict

FARTHEST = 4.0
"""How far two steps may be continued: as if each were 0.8 of the one before."""

LEAST = 0.25
"""Share of a step that is left to go after it, at least."""

STRONG = 0.25
"""Share of all stiffness from which on the patch that pulls the hardest keeps its norm as it is."""

CLOSE = 0.05
"""Share of all weight from which on patches at no distance, many copies of one, are looked for."""

NEGLIGIBLE = 0.25
"""Share of the tolerance that may be spent on leaving out bank patches of little weight."""


def check_problem(alpha: Tensor, bank: Tensor, x: Tensor, beta: float, *, signed: bool = True) -> None:
    """Raise `InputError` unless alpha (c, m), bank (m, k), x (c, k) agree and are finite, and beta > 0.

    With signed=False, also unless alpha ≥ 0. Reads the numbers once.
    """
    if bank.ndim != 2 or bank.shape[0] == 0:
        raise InputError("bank", "have shape (m, k) with m > 0", tuple(bank.shape), "Flatten each patch into a row.")
    if x.ndim != 2 or x.shape[1] != bank.shape[1]:
        raise InputError("x", f"have shape (c, {bank.shape[1]})", tuple(x.shape), "Match the bank's patch size.")
    if alpha.shape != (x.shape[0], bank.shape[0]):
        rule = f"have shape {(x.shape[0], bank.shape[0])}"
        raise InputError("alpha", rule, tuple(alpha.shape), "Give one weight for each patch of x and of the bank.")
    for name, tensor in (("alpha", alpha), ("bank", bank), ("x", x)):
        if tensor.dtype not in (torch.float32, torch.float64) or tensor.dtype != x.dtype:
            raise InputError(name, "be float32 or float64, as are the others", tensor.dtype, "Convert with .to(dtype).")
        if tensor.device != x.device:
            raise InputError(name, f"be on {x.device}, as x is", tensor.device, "Move it with .to(device).")
    if not 0 < beta < float("inf"):
        raise InputError("beta", "be positive and finite", beta, "It is the weight of ‖z − x‖²/2.")
    for name, tensor in (("alpha", alpha), ("bank", bank), ("x", x)):
        _check_numbers(name, tensor, signed=signed or name != "alpha")


def _check_numbers(name: str, tensor: Tensor, *, signed: bool = True) -> float:
    """The largest number, once all are known to be finite and, unless signed, non-negative."""
    low, high = (float(bound) for bound in tensor.aminmax()) if tensor.numel() else (0.0, 0.0)
    if not -math.inf < low <= high < math.inf:
        raise InputError(name, "be finite", f"between {low} and {high}", "Replace what is missing before restoring.")
    if low < 0 and not signed:
        remedy = "Weights of kernel ridge regression are signed: use newton or dual_free_sdca for them."
        raise InputError(name, "be non-negative", f"{low:.3g} at its smallest", remedy)
    return high


def weiszfeld(
    loss: Loss,
    alpha: Tensor | Callable[[slice], Tensor],
    bank: Tensor,
    x: Tensor,
    beta: float,
    *,
    tol: float = 1e-4,
    max_steps: int = 50,
    start: Tensor | None = None,
) -> Solution:
    """Minimise  Σᵢ αᵢ φ(‖z − xⁱ‖) + β/2 ‖z − x‖²  over z, for each patch x, with α ≥ 0.

    Each step replaces φ(d) by the parabola that touches it from above, and minimises the sum of parabolas:

        g = (βx + Σᵢ wᵢxⁱ) / (β + Σᵢ wᵢ),    wᵢ = αᵢ φ′(dᵢ)/dᵢ,    dᵢ = ‖z − xⁱ‖.

    Such a step never raises the energy, provided that φ′(d)/d does not increase with d, as for every loss here. For the
    squared loss one step is exact.

    The Euclidean energy is flatter than these parabolas: its Hessian is (β + Σwᵢ)I − Σ wᵢuᵢuᵢᵀ, uᵢ = (z − xⁱ)/dᵢ. Along
    the pull p = Σαᵢuᵢ the second sum is at least κ = ‖p‖²/Σαᵢdᵢ (Cauchy and Schwarz), about half of Σwᵢ where a patch
    stands aside from those it looks like. That costs nothing to know, so steps are Newton's with (β + Σwᵢ)I − κp̂p̂ᵀ:
    longer by (β + Σwᵢ)/(β + Σwᵢ − κ) along p. Where steps do not at least halve, the shorter ones go on.

    The Euclidean loss has a kink at each xⁱ, where wᵢ is infinite; and the distances, which come from a matrix product,
    are worth nothing below about √ε‖xⁱ‖ (10⁻³ in float32). So the patch that pulls the hardest, a, keeps its norm as it
    is where it makes up much of Σwᵢ, which has a closed form: with s and q the total weight and the centre of mass of x
    and of the other patches,

        g = a + max(0, 1 − α_a / (s ‖q − a‖)) (q − a),    s = β + Σ_{i≠a} wᵢ,    q = (βx + Σ_{i≠a} wᵢxⁱ) / s.

    This needs no distance to a, and stops exactly at a if and only if a is the minimum. Copies of a in the bank count
    as one patch with the sum of their weights. Another patch nearer to z than those 10⁻³ pulls as if at that distance.
    (A matrix product in TF32 would make that 10⁻¹; PyTorch uses it only if told to.)

    Two steps show where a third would lead (Anderson's mixing of depth one): with Δ = g − z,

        z ← g + θ (g − g′),    θ = −⟨Δ, Δ − Δ′⟩ / ‖Δ − Δ′‖²,  at least 0 and at most FARTHEST,

    primes marking the step before. Where Δ grew, or g is the patch a itself, z ← g.

    A patch has converged when min(r, max(LEAST, ρ/(1 − ρ)))·‖Δ‖ + ω/β < tol·scale, where ρ = ‖Δ‖/‖Δ′‖,
    r = (Σwᵢ − κ)/β, or Σ_{i≠a} wᵢ/β, and scale² = (mean squared distance of the bank to its mean) + ‖x − that mean‖².
    By the strong convexity of the energy r‖Δ‖ bounds the distance of g to the minimum, to first order in Δ; the ratio
    foretells it. A patch that has converged does not move any more, whatever its neighbours in the batch do.

    Tiles of the bank are left out where all patches of a block together give them so little weight that no patch loses
    more than a quarter of its tolerance. ω is the weight that a patch loses by it. As no uᵢ is longer than one, that
    moves its minimum by no more than ω/β (for losses with φ′ ≤ 1, and only there). It helps to have like patches next
    to each other, in x and in the bank.

    Parameters
    ----------
    alpha, bank, x : (c, m), (m, k), (c, k). Instead of all of α, a function that gives it for a slice of the patches.
    start : (c, k), where z starts; x if not given.

    Returns
    -------
    Solution with value (c, k), stats `steps` (of the slowest patch), `error` (the left side above over scale, largest)
    and `dropped` (ω, largest).

    E. Weiszfeld, "Sur le point pour lequel la somme des distances de n points donnés est minimum", 1937; on the kink,
    Y. Vardi and C.-H. Zhang, "The multivariate L1-median and associated data depth", 2000.
    """
    if max_steps < 1:
        raise InputError("max_steps", "be at least 1", max_steps, "Give the largest number of steps to take.")
    if start is not None and start.shape != x.shape:
        raise InputError("start", f"have shape {tuple(x.shape)}", tuple(start.shape), "Give one start for each patch.")
    if isinstance(loss, Squared) or x.shape[0] == 0:
        own = alpha(slice(None)) if callable(alpha) else alpha
        check_problem(own, bank, x, beta, signed=False)
        mean = torch.addmm(beta * x, own, bank) / (beta + own.sum(1, keepdim=True))
        return Solution(mean, Verdict.CONVERGED, {"steps": 1.0, "error": 0.0, "dropped": 0.0})
    if callable(alpha):  # it is looked at when its turn comes
        check_problem(x.new_zeros(0, len(bank)), bank, x[:0], beta)
        _check_numbers("x", x)
    else:
        check_problem(alpha, bank, x, beta, signed=False)

    centre = bank.mean(0)  # small norms: less cancellation in the distances
    bank, x = bank - centre, x - centre
    z = x.clone() if start is None else start - centre
    spread = bank.square().sum(1).mean()
    scale = (spread + x.square().sum(1)).sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    negligible = scale * (NEGLIGIBLE * tol * beta if isinstance(loss, Euclidean | Huber) else 0)
    rows = rows_per_block(len(bank), x.device)
    targets = Targets.of(bank, min(rows, len(x)))

    def solve(block: slice) -> tuple[float, float, float]:
        own = alpha(block) if callable(alpha) else alpha[block]
        highest = _check_numbers("alpha", own, signed=False)
        pulls = Pulls.of(loss, targets, own, negligible[block])
        peaked = isinstance(loss, Euclidean) and highest > STRONG * beta * pulls.floor  # else no patch is an anchor
        z[block], left, taken = _solve_block(pulls, x[block], beta, tol, max_steps, z[block], scale[block], peaked)
        return float(taken), left, float(pulls.dropped.max())

    steps, error, dropped = (max(each) for each in zip(*side_by_side(solve, chunks(len(x), rows), x.device)))
    verdict = Verdict.CONVERGED if error < tol else Verdict.STEP_LIMIT
    return Solution(z.add_(centre), verdict, {"steps": steps, "error": error, "dropped": dropped})


def _solve_block(
    pulls: Pulls, x: Tensor, beta: float, tol: float, max_steps: int, z: Tensor, scale: Tensor, peaked: bool
) -> tuple[Tensor, float, int]:
    """z (c, k), the largest error left, and the steps taken."""
    tiny = torch.finfo(x.dtype).tiny
    missed = pulls.dropped / (beta * scale)
    last, left, step = torch.full_like(scale, float("inf")), torch.full_like(scale, float("inf")), 0
    stepped, move = z, torch.zeros_like(z)  # of the step before: g′ and Δ′
    bold = torch.ones_like(scale, dtype=torch.bool)  # as long as steps shrink well
    result, error = torch.empty_like(x), torch.empty_like(scale)
    rows = torch.arange(len(x), device=x.device)  # which patches the tensors below speak of: those still in work
    while True:
        moving = left >= tol
        active = int(moving.sum()) if step < max_steps else 0
        if active < 0.8 * len(rows):  # dropping rows costs one pass over α, so it waits until it saves more
            result[rows], error[rows] = z, left
            if not active:
                return result, float(error.max()), step
            pulls = pulls.of_rows(moving)
            rows, x, z, stepped, move = (one[moving] for one in (rows, x, z, stepped, move))
            scale, last, left, missed, bold = (one[moving] for one in (scale, last, left, missed, bold))
        step += 1
        target, doubt, free = _step(pulls, x, beta, z, bold, peaked)
        change = target - z
        size = torch.linalg.vector_norm(change, dim=1)
        ratio = (size / last.clamp_min(tiny)).clamp_max_(1 - 1e-6)
        foretold = size * torch.minimum(doubt, (ratio / (1 - ratio)).clamp_min_(LEAST)) / scale + missed
        bold, done = bold & (size < last / 2), left < tol
        left = torch.where(done, left, foretold)
        bend = change - move
        farther = -(change * bend).sum(1) / bend.square().sum(1).clamp_min(tiny)
        farther = torch.where((size < last) & free, farther.clamp_(0, FARTHEST), 0)
        z = torch.where(done[:, None], z, torch.addcmul(target, farther[:, None], target - stepped))
        stepped, move, last = target, change, size


def _step(pulls: Pulls, x: Tensor, beta: float, z: Tensor, bold: Tensor, peaked: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The result g of a step from z (c, k); r (c,); and whether it is free, that is not held by a patch (c,)."""
    sums, tiny = pulls.at(z, peaked=peaked), torch.finfo(z.dtype).tiny
    stiff, room = beta + sums.stiffness, sums.stiffness
    target, free = torch.add(sums.moment, x, alpha=beta).div_(stiff), torch.ones_like(stiff, dtype=torch.bool)
    if isinstance(pulls.loss, Euclidean):
        slope, spread = torch.addcmul(-sums.moment, sums.stiffness, z), sums.spread.clamp_min(tiny)  # p and Σαᵢdᵢ
        curved = torch.minimum(slope.square().sum(1, keepdim=True) / spread, sums.stiffness)  # κ
        room = room - torch.where(bold[:, None], curved, 0)
        farther = (slope * (target - z)).sum(1, keepdim=True) / (spread * (beta + room))
        target.addcmul_(torch.where(bold[:, None], farther, 0), slope)
    if not peaked:
        return target, room[:, 0] / beta, free[:, 0]
    held = (sums.peaks.amax(1) > STRONG * stiff[:, 0]) | (pulls.floor * sums.stiffness[:, 0] > CLOSE * pulls.total)
    strong = (held | ~bold).nonzero()[:, 0]
    if len(strong):
        anchor = pulls.anchor(sums, z, strong)
        stiff = beta + anchor.rest
        away = torch.add(anchor.moment, x[strong], alpha=beta).div_(stiff) - anchor.patch  # q − a
        reach = stiff * torch.linalg.vector_norm(away, dim=1, keepdim=True)
        share = (1 - anchor.hold / reach.clamp_min(tiny)).clamp_min_(0)
        target[strong], room[strong], free[strong] = torch.addcmul(anchor.patch, share, away), anchor.rest, share > 0
    return target, room[:, 0] / beta, free[:, 0]
