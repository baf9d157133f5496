"""SDCA without duality for the z-update with signed weights: stochastic, with no dual problem and no convex terms."""

from __future__ import annotations

import torch
from torch import Tensor

from slir.errors import InputError
from slir.losses import Loss
from slir.solvers.newton import anchors, gradient
from slir.solvers.solution import Solution, Verdict
from slir.solvers.weiszfeld import check_problem


def dual_free_sdca(
    loss: Loss,
    alpha: Tensor,
    bank: Tensor,
    x: Tensor,
    beta: float,
    *,
    smoothing: float = 1e-5,
    tol: float = 1e-5,
    max_passes: int = 2000,
    generator: torch.Generator | None = None,
) -> Solution:
    """Minimise  E(z) = Σᵢ fᵢ(z) + β/2 ‖z − x‖²,  fᵢ(z) = αᵢ φ(‖z − xⁱ‖),  for each patch x; the αᵢ may be negative.

    With pseudo-duals μᵢ, kept so that z = x + Σᵢ μᵢ/β, and i drawn with the probability pᵢ, a step is

        v = ∇fᵢ(z) + μᵢ,    μᵢ ← μᵢ − (ηβ/pᵢ) v,    z ← z − (η/pᵢ) v.

    On average z moves by −η∇E(z), and the noise of the steps vanishes with v as μᵢ → −∇fᵢ(z*). Here pᵢ ∝ |αᵢ| + their
    mean, zero where αᵢ is.

    Step size. For Lᵢ-smooth fᵢ and a convex E, the Lyapunov function ‖z − z*‖² + Σᵢ (2η/βpᵢ)‖μᵢ − μᵢ*‖² shrinks by the
    factor 1 − ηβ in each step, on average, if  η ≤ min pᵢ/(2β)  and

        η ≤ 1 / (2 max Lᵢ/pᵢ)      if every αᵢ ≥ 0  (every fᵢ convex; 1/η grows like the condition number),
        η ≤ β / (2 Σᵢ Lᵢ²/pᵢ)      otherwise        (like its square).

    A bound valid for all z does not exist at a kink, so before each pass over the bank Lᵢ is set to twice what it is at
    z, |αᵢ|φ′(d)/d, but to no less than 0.8 of what it was. As even that is local, η is halved after a pass that makes
    ‖∇E‖ more than twice as large, and grows back by a tenth after every other.

    The kink of a loss with `loss.floor` > 0 is replaced by φ(√(d² + ε²)), ε = smoothing; whether a bank patch itself is
    the minimum is tested after each pass, as in `newton`. It is slow where the minimum is close to a bank patch but not
    at it, as Lᵢ is then large; and if E is not convex, there is no promise at all.

    Parameters
    ----------
    alpha, bank, x : (c, m), (m, k), (c, k); c·m·k pseudo-duals are held.
    smoothing : in units of the pixel values.
    tol : a patch has converged when ‖∇E‖ ≤ tol · (Σᵢ ‖∇fᵢ‖ + β‖z − x‖); checked after each pass.
    max_passes : passes of m steps.

    Returns
    -------
    Solution with value (c, k), stats `steps` (m a pass) and `residual` (‖∇E‖ relative as above, largest).

    S. Shalev-Shwartz, "SDCA without duality, regularization, and individual convexity", 2016; non-uniform sampling:
    D. Csiba and P. Richtárik, "Primal method for ERM with flexible mini-batching schemes", 2015.
    """
    check_problem(alpha, bank, x, beta)
    if not smoothing >= 0:
        raise InputError("smoothing", "be non-negative", smoothing, "Give a distance much smaller than the patches'.")
    if x.shape[0] == 0:
        return Solution(x.clone(), Verdict.CONVERGED, {"steps": 0.0, "residual": 0.0})
    centre, (c, m) = bank.mean(0), alpha.shape
    bank, x = bank - centre, x - centre
    smoothing = smoothing if loss.floor > 0 else 0.0
    size = alpha.abs()
    chance = torch.where(size > 0, size + size.mean(1, keepdim=True), 0.0)
    chance[~chance.any(1)] = 1.0  # all weights zero: any draw leaves z = x
    chance /= chance.sum(1, keepdim=True)  # (c, m)
    convex = (alpha >= 0).all(1)
    z, mu, smoothness = x.clone(), x.new_zeros(c, m, x.shape[1]), torch.zeros_like(alpha)
    caution, last = torch.ones_like(x[:, 0]), torch.full_like(x[:, 0], float("inf"))
    done, every = torch.zeros_like(convex), torch.arange(c, device=x.device)
    for passes in range(max_passes + 1):
        z = torch.where(done[:, None], z, x + mu.sum(1) / beta)  # afresh, so that rounding errors do not pile up
        slope, residual, pull = gradient(loss, alpha, bank, x, beta, z, smoothing=smoothing)
        norm = torch.linalg.vector_norm(slope, dim=1)
        done |= residual <= tol
        if loss.floor > 0:
            anchor, optimal = anchors(loss, alpha, bank, x, beta, z)
            z = torch.where((optimal & ~done)[:, None], anchor, z)
            residual, done = residual.masked_fill(optimal, 0), done | optimal
        if passes == max_passes or bool(done.all()):
            break
        caution = torch.where(norm > 2 * last, caution / 2, (1.1 * caution).clamp_max_(1))
        last, smoothness = norm, torch.maximum(2 * pull.abs(), 0.8 * smoothness)
        eta = caution * _step_size(smoothness, chance, convex, beta)
        drawn = torch.multinomial(chance, m, replacement=True, generator=generator)  # (c, m)
        rate = torch.where(done[:, None], 0.0, eta[:, None] * beta / chance.gather(1, drawn))
        for s in range(m):
            i = drawn[:, s]
            difference, old = z - bank[i], mu[every, i]
            distance = (difference.square().sum(1) + smoothing**2).sqrt_()
            v = (alpha[every, i] * loss.weight(distance))[:, None] * difference + old
            move = rate[:, s, None] * v
            mu[every, i] = old - move
            z = z - move / beta
    left = float(torch.where(done & (residual > tol), 0.0, residual).max())
    verdict = Verdict.CONVERGED if bool(done.all()) else Verdict.STEP_LIMIT
    return Solution(z + centre, verdict, {"steps": float(passes * m), "residual": left})


def _step_size(smoothness: Tensor, chance: Tensor, convex: Tensor, beta: float) -> Tensor:
    """η (c,) by the rule of `dual_free_sdca`; smoothness and chance (c, m)."""
    drawable = chance.clamp_min(torch.finfo(chance.dtype).tiny)
    smallest = torch.where(chance > 0, chance, float("inf")).amin(1)
    all_convex = 0.5 / (smoothness / drawable).amax(1)
    some_convex = beta / (2 * (smoothness.square() / drawable).sum(1))
    return torch.minimum(torch.where(convex, all_convex, some_convex), smallest / (2 * beta))
