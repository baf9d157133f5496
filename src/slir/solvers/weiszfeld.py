"""Weiszfeld's fixed point for the z-update, many patches at a time: the fast solver for weights α ≥ 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slir.compute import chunks, rows_per_block
from slir.errors import InputError
from slir.losses import Euclidean, Huber, Loss, Squared
from slir.solvers.solution import Solution, Verdict

FARTHEST = 4.0
"""How far two steps may be continued: as if each were 0.8 of the one before."""

LEAST = 0.4
"""Share of a step that is left to go after it, at least."""


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
        low, high = (float(bound) for bound in tensor.aminmax()) if tensor.numel() else (0.0, 0.0)
        if not -math.inf < low <= high < math.inf:
            raise InputError(
                name, "be finite", f"between {low} and {high}", "Replace what is missing before restoring."
            )
        if name == "alpha" and low < 0 and not signed:
            remedy = "Weights of kernel ridge regression are signed: use newton or dual_free_sdca for them."
            raise InputError(name, "be non-negative", f"{low:.3g} at its smallest", remedy)


def weiszfeld(
    loss: Loss,
    alpha: Tensor,
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

        z ← (βx + Σᵢ wᵢxⁱ) / (β + Σᵢ wᵢ),    wᵢ = αᵢ φ′(dᵢ)/dᵢ,    dᵢ = ‖z − xⁱ‖.

    Such a step never raises the energy, provided that φ′(d)/d does not increase with d, as for every loss here. For the
    squared loss one step is exact.

    The Euclidean loss has a kink at each xⁱ, where wᵢ is infinite; and the distances, which come from a matrix product,
    are worth nothing below about √ε‖xⁱ‖ (10⁻³ in float32). So the patch that pulls the hardest, a, keeps its norm as it
    is, which has a closed form: with s and q the total weight and the centre of mass of x and of the other patches,

        z ← a + max(0, 1 − α_a / (s ‖q − a‖)) (q − a),    s = β + Σ_{i≠a} wᵢ,    q = (βx + Σ_{i≠a} wᵢxⁱ) / s.

    This needs no distance to a, and stops exactly at a if and only if a is the minimum. Copies of a in the bank count
    as one patch with the sum of their weights. Another patch nearer to z than those 10⁻³ pulls as if at that distance.
    (A matrix product in TF32 would make that 10⁻¹; PyTorch uses it only if told to.)

    Two steps show where a third would lead (Anderson's mixing of depth one): with g the result of a step from z, and
    Δ = g − z,

        z ← g + θ (g − g′),    θ = −⟨Δ, Δ − Δ′⟩ / ‖Δ − Δ′‖²,  at least 0 and at most FARTHEST,

    primes marking the step before. That halves the number of steps. Where Δ grew, or g is the patch a itself, z ← g.

    A patch has converged when min(r, max(LEAST, ρ/(1 − ρ)))·‖Δ‖ < tol·scale, where ρ = ‖Δ‖/‖Δ′‖, r = Σ_{i≠a} wᵢ/β, and
    scale² = (mean squared distance of the bank to its mean) + ‖x − that mean‖². By the strong convexity of the energy
    r‖Δ‖ bounds the distance of g to the minimum; the ratio foretells it.
    A patch that has converged does not move any more, whatever its neighbours in the batch do.

    Parameters
    ----------
    alpha, bank, x : (c, m), (m, k), (c, k)
    start : (c, k), where z starts; x if not given.

    Returns
    -------
    Solution with value (c, k), stats `steps` (of the slowest patch), `error` (the left side above over scale, largest).

    E. Weiszfeld, "Sur le point pour lequel la somme des distances de n points donnés est minimum", 1937; on the kink,
    Y. Vardi and C.-H. Zhang, "The multivariate L1-median and associated data depth", 2000.
    """
    check_problem(alpha, bank, x, beta, signed=False)
    if max_steps < 1:
        raise InputError("max_steps", "be at least 1", max_steps, "Give the largest number of steps to take.")
    if start is not None and start.shape != x.shape:
        raise InputError("start", f"have shape {tuple(x.shape)}", tuple(start.shape), "Give one start for each patch.")
    if isinstance(loss, Squared) or x.shape[0] == 0:
        mean = torch.addmm(beta * x, alpha, bank) / (beta + alpha.sum(1, keepdim=True))
        return Solution(mean, Verdict.CONVERGED, {"steps": 1.0, "error": 0.0})

    centre = bank.mean(0)  # small norms: less cancellation in the distances
    bank, x = bank - centre, x - centre
    start = x if start is None else start - centre
    norms = bank.square().sum(1, keepdim=True)
    lifted = torch.cat([bank, norms, torch.ones_like(norms)], 1)  # (m, k + 2): squared distances by one product
    z, error, steps = torch.empty_like(x), 0.0, 0
    for block in chunks(len(x), rows_per_block(len(bank), x.device)):
        z[block], left, taken = _solve_block(
            loss, alpha[block], bank, lifted, x[block], beta, tol, max_steps, start[block]
        )
        error, steps = max(error, left), max(steps, taken)
    verdict = Verdict.CONVERGED if error < tol else Verdict.STEP_LIMIT
    return Solution(z.add_(centre), verdict, {"steps": float(steps), "error": error})


def _solve_block(
    loss: Loss,
    alpha: Tensor,
    bank: Tensor,
    lifted: Tensor,
    x: Tensor,
    beta: float,
    tol: float,
    max_steps: int,
    z: Tensor,
) -> tuple[Tensor, float, int]:
    """z (c, k), the largest error left, and the steps taken, for patches that fit in one (c, m) buffer."""
    spread, rounding = lifted[:, -2].mean(), 4 * torch.finfo(x.dtype).eps * float(lifted[:, -2].max())
    scale = (spread + x.square().sum(1)).sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    floor = max(loss.delta if isinstance(loss, Huber) else loss.floor, rounding**0.5)
    buffer = torch.empty_like(alpha)  # (c, m), holds in turn the squared distances, the distances and the weights
    last, left, step = torch.full_like(scale, float("inf")), torch.full_like(scale, float("inf")), 0
    stepped, move = z, torch.zeros_like(z)  # of the step before: g′ and Δ′
    result, error = torch.empty_like(x), torch.empty_like(scale)
    rows = torch.arange(len(x), device=x.device)  # which patches the tensors below speak of: those still in work
    while True:
        moving = left >= tol
        active = int(moving.sum()) if step < max_steps else 0
        if active < 0.8 * len(rows):  # dropping rows costs one pass over α, so it waits until it saves more
            result[rows], error[rows] = z, left
            if not active:
                return result, float(error.max()), step
            rows, alpha, x, z, stepped, move = (one[moving] for one in (rows, alpha, x, z, stepped, move))
            scale, last, left = scale[moving], last[moving], left[moving]
        step += 1
        pull = buffer[: len(rows)]
        squared_norm = z.square().sum(1, keepdim=True)
        torch.mm(torch.cat([-2 * z, torch.ones_like(squared_norm), squared_norm], 1), lifted.T, out=pull)
        pull.clamp_min_(floor**2)
        if isinstance(loss, Euclidean | Huber):  # 1/d beyond the floor, and no temporaries
            pull.rsqrt_().mul_(alpha)
        else:
            torch.mul(alpha, loss.weight(pull.sqrt_()), out=pull)
        if isinstance(loss, Euclidean):
            anchor, anchor_alpha = _take_out_hardest(pull, alpha, bank, z, floor)
        stiffness = pull.sum(1, keepdim=True)
        target = torch.addmm(beta * x, pull, bank) / (beta + stiffness)
        free = torch.ones_like(stiffness)
        if isinstance(loss, Euclidean):
            reach = (beta + stiffness) * torch.linalg.vector_norm(target - anchor, dim=1, keepdim=True)
            free = (1 - anchor_alpha / reach.clamp_min(torch.finfo(x.dtype).tiny)).clamp_min_(0)
            target = torch.addcmul(anchor, free, target - anchor)
        change = target - z
        size = torch.linalg.vector_norm(change, dim=1)
        ratio = (size / last.clamp_min(torch.finfo(x.dtype).tiny)).clamp_max_(1 - 1e-6)
        foretold = size * torch.minimum(stiffness[:, 0] / beta, (ratio / (1 - ratio)).clamp_min_(LEAST)) / scale
        done = left < tol
        left = torch.where(done, left, foretold)
        bend = change - move
        farther = -(change * bend).sum(1) / bend.square().sum(1).clamp_min(torch.finfo(x.dtype).tiny)
        farther = torch.where((size < last) & (free[:, 0] > 0), farther.clamp_(0, FARTHEST), 0)
        z = torch.where(done[:, None], z, torch.addcmul(target, farther[:, None], target - stepped))
        stepped, move, last = target, change, size


def _take_out_hardest(pull: Tensor, alpha: Tensor, bank: Tensor, z: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Zero, in place, the weight of the bank patch that pulls each z the hardest; return the patch and its α (c, 1)."""
    # A maximum and its place take ten times as long as the maximum alone, so: the maxima of chunks, then the place.
    m = pull.shape[1]
    width = next(w for w in range(math.isqrt(m), 0, -1) if m % w == 0)
    groups = pull.unflatten(1, (-1, width))
    chunk = groups.amax(2).argmax(1)
    hardest = chunk * width + groups[torch.arange(len(pull), device=pull.device), chunk].argmax(1)
    anchor, hardest = bank[hardest], hardest[:, None]
    anchor_alpha = alpha.gather(1, hardest)
    on_anchor = (torch.linalg.vector_norm(z - anchor, dim=1) <= floor).nonzero()[:, 0]
    if len(on_anchor):  # then all patches at the floor are copies of the anchor, as far as can be told
        weights, alphas = pull[on_anchor], alpha[on_anchor]
        copies = (weights * floor >= alphas * (1 - 1e-5)).scatter_(1, hardest[on_anchor], True)
        anchor_alpha[on_anchor] = (alphas * copies).sum(1, keepdim=True)
        pull[on_anchor] = weights.masked_fill_(copies, 0)
    pull.scatter_(1, hardest, 0)
    return anchor, anchor_alpha
