"""Newton's method for the z-update with signed weights, such as those of kernel ridge regression."""

from __future__ import annotations

import torch
from torch import Tensor

from slir.compute import rows_that_fit
from slir.errors import InputError
from slir.losses import Loss
from slir.solvers.solution import Solution, Verdict
from slir.solvers.weiszfeld import check_problem

_SMOOTHING = (1e-1, 1e-2, 1e-3, 0.0)  # of the kink, relative to the spread of the bank; each level starts from the last


def newton(
    loss: Loss, alpha: Tensor, bank: Tensor, x: Tensor, beta: float, *, tol: float = 1e-5, max_steps: int = 100
) -> Solution:
    """Find a minimum of  E(z) = Σᵢ αᵢ φ(‖z − xⁱ‖) + β/2 ‖z − x‖²  for each patch x; the αᵢ may be negative.

        z ← z − t H⁻¹∇E,    H = βI + Σᵢ αᵢ [wᵢI + (w′ᵢ/dᵢ)(z − xⁱ)(z − xⁱ)ᵀ]

    with t halved until E falls enough (Armijo). Where E is not convex H has eigenvalues λ ≤ 0; these are replaced by
    max(|λ|, a thousandth of the largest), so that every step goes down, and the minimum may be a local one.

    A loss with a kink at d = 0 (those with `loss.floor` > 0) is approached through φ(√(d² + ε²)), for ε that decreases
    to zero, each from the last answer. After each level, the patch a that pulls the hardest is tried as the answer: it
    is a (local) minimum if and only if what the others pull with there, ‖Σ_{i≠a} αᵢwᵢ(a − xⁱ) + β(a − x)‖, is at most
    α_a φ′(0). The z that are not caught this way end where E is smooth.

    A patch has converged when ‖∇E‖ ≤ tol · (Σᵢ ‖αᵢwᵢ(z − xⁱ)‖ + β‖z − x‖): the pulls cancel up to the fraction tol, or
    as far as the rounding of z allows.

    It forms the differences z − xⁱ and (k, k) systems, so c·m·k² operations a step: an exact tool, not a fast one.

    Parameters
    ----------
    alpha, bank, x : (c, m), (m, k), (c, k)
    max_steps : Newton steps at each level of smoothing.

    Returns
    -------
    Solution with value (c, k); stats `steps` (of the slowest patch), `residual` (‖∇E‖ relative as above, largest) and
    `indefinite`, the share of patches that met a Hessian which was not positive definite; the verdict is INDEFINITE if
    there were any and the tolerance was not reached.

    The paper points to U. Marteau-Ferey et al., "Globally convergent Newton methods for ill-conditioned generalized
    self-concordant losses", 2019; the safeguards here are those of J. Nocedal and S. Wright, 2006, chapter 3.
    """
    check_problem(alpha, bank, x, beta)
    if max_steps < 1:
        raise InputError("max_steps", "be at least 1", max_steps, "Give the largest number of steps to take.")
    centre = bank.mean(0)  # smaller numbers, smaller rounding errors
    bank, x = bank - centre, x - centre
    spread = float(bank.square().sum(1).mean().sqrt())
    levels = [spread * level for level in _SMOOTHING] if loss.floor > 0 else [0.0]
    z, steps = x.clone(), 0
    residual, indefinite = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0], dtype=torch.bool)
    rows = rows_that_fit(2 * x.element_size() * bank.numel(), x.device)  # the differences z − xⁱ, (c, m, k)
    for block in (slice(first, first + rows) for first in range(0, x.shape[0], rows)):
        problem, caught = (loss, alpha[block], bank, x[block], beta), torch.zeros_like(indefinite[block])
        for level in levels:
            taken = _descend(problem, z[block], residual[block], indefinite[block], caught, level, tol, max_steps)
            steps = max(steps, taken)
            if loss.floor > 0:
                nearest, optimal = anchors(*problem, z[block])
                caught |= optimal
                z[block] = torch.where(caught[:, None], torch.where(optimal[:, None], nearest, z[block]), z[block])
        residual[block].masked_fill_(caught, 0)
    left = float(residual.max()) if x.shape[0] else 0.0
    shifted = float(indefinite.to(x.dtype).mean()) if x.shape[0] else 0.0
    failed = Verdict.INDEFINITE if shifted > 0 else Verdict.STEP_LIMIT
    stats = {"steps": float(steps), "residual": left, "indefinite": shifted}
    return Solution(z + centre, Verdict.CONVERGED if left <= tol else failed, stats)


def gradient(
    loss: Loss, alpha: Tensor, bank: Tensor, x: Tensor, beta: float, z: Tensor, *, smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """∇E(z) (c, k); its norm relative to the sum of the norms of its terms (c,); the pulls αᵢwᵢ (c, m).

    The relative norm is less what rounding z to its dtype makes of it, which near a kink is all that there is.
    """
    difference = z[:, None] - bank  # (c, m, k): a product of matrices would cancel near the kinks
    distance = torch.linalg.vector_norm(difference, dim=2)
    pull = alpha * loss.weight((distance.square() + smoothing**2).sqrt_())
    size = pull.abs()
    slope = torch.bmm(pull[:, None], difference)[:, 0] + beta * (z - x)
    terms = (size * distance).sum(1) + beta * torch.linalg.vector_norm(z - x, dim=1)
    number = torch.finfo(z.dtype)
    rounding = 8 * number.eps * (size.sum(1) + beta) * torch.linalg.vector_norm(z, dim=1)
    excess = (torch.linalg.vector_norm(slope, dim=1) - rounding).clamp_min_(0)
    return slope, excess / terms.clamp_min(number.tiny), pull


def anchors(loss: Loss, alpha: Tensor, bank: Tensor, x: Tensor, beta: float, z: Tensor) -> tuple[Tensor, Tensor]:
    """The bank patch that pulls each z the hardest (c, k), and whether its kink is a minimum of the energy (c,)."""
    anchor = bank[gradient(loss, alpha, bank, x, beta, z)[2].argmax(1)]
    copies = torch.linalg.vector_norm(anchor[:, None] - bank, dim=2) <= loss.floor  # (c, m), the anchor among them
    others, _, _ = gradient(loss, alpha.masked_fill(copies, 0), bank, x, beta, anchor)
    slope = float(loss.weight(bank.new_tensor(loss.floor))) * loss.floor  # φ′(0)
    return anchor, torch.linalg.vector_norm(others, dim=1) <= slope * (alpha * copies).sum(1)


def _descend(
    problem: tuple[Loss, Tensor, Tensor, Tensor, float],
    z: Tensor,
    residual: Tensor,
    indefinite: Tensor,
    caught: Tensor,
    smoothing: float,
    tol: float,
    max_steps: int,
) -> int:
    """Newton steps on z (c, k), in place as are `residual` and `indefinite`; returns how many."""
    loss, alpha, bank, _, beta = problem
    for step in range(max_steps + 1):
        slope, relative, pull = gradient(*problem, z, smoothing=smoothing)
        residual.copy_(relative)
        moving = (residual > tol) & ~caught
        if step == max_steps or not bool(moving.any()):
            break
        difference = z[:, None] - bank
        distance = (difference.square().sum(2) + smoothing**2).sqrt_()
        hessian = torch.bmm(((alpha * loss.weight_slope(distance))[..., None] * difference).mT, difference)
        hessian.diagonal(dim1=1, dim2=2).add_(pull.sum(1, keepdim=True) + beta)
        factor, info = torch.linalg.cholesky_ex(hessian)
        bad = (info > 0).nonzero()[:, 0]
        if len(bad):
            values, vectors = torch.linalg.eigh(hessian[bad])
            values = values.abs().maximum(1e-3 * values.abs().amax(1, keepdim=True))
            factor[bad] = torch.linalg.cholesky((vectors * values[:, None]) @ vectors.mT)
            indefinite[bad] |= moving[bad]
        direction = -torch.cholesky_solve(slope[..., None], factor)[..., 0]
        length = _armijo(problem, z, direction, (slope * direction).sum(1), moving, smoothing)
        z.add_(length[:, None] * direction)
        if not bool(length.any()):  # no step lowers the energy beyond rounding
            break
    return step


def _armijo(
    problem: tuple[Loss, Tensor, Tensor, Tensor, float],
    z: Tensor,
    direction: Tensor,
    slope: Tensor,
    moving: Tensor,
    smoothing: float,
) -> Tensor:
    """For each patch the largest of 1, ½, ¼, … that lowers the energy by 10⁻⁴ of what the slope promises; or zero."""
    loss, alpha, bank, x, beta = problem

    def energy(at: Tensor) -> tuple[Tensor, Tensor]:
        distance = torch.linalg.vector_norm(at[:, None] - bank, dim=2).square_().add_(smoothing**2).sqrt_()
        terms, anchoring = alpha * loss.value(distance), beta / 2 * (at - x).square().sum(1)
        return terms.sum(1) + anchoring, terms.abs().sum(1) + anchoring

    start, size = energy(z)
    rounding = 8 * torch.finfo(z.dtype).eps * size  # without it the last steps would be refused
    length, searching = torch.zeros_like(slope), moving.clone()
    for halving in range(30):
        trial = 0.5**halving
        passed = searching & (energy(z + trial * direction)[0] <= start + 1e-4 * trial * slope + rounding)
        length[passed] = trial
        searching &= ~passed
        if not bool(searching.any()):
            break
    return length
