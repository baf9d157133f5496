"""Stochastic dual coordinate ascent for the z-update with the Euclidean loss: the paper's algorithm, with its gap."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slir.errors import InputError
from slir.solvers.solution import Solution, Verdict
from slir.solvers.weiszfeld import check_problem


def sdca(
    alpha: Tensor,
    bank: Tensor,
    x: Tensor,
    beta: float,
    *,
    sampling: str = "gap",
    refresh: int = 25,
    tol: float = 1e-5,
    max_steps: int | None = None,
    generator: torch.Generator | None = None,
    on_refresh: Callable[[int, Tensor], None] | None = None,
) -> Solution:
    """Minimise  Σᵢ αᵢ ‖z − xⁱ‖ + β/2 ‖z − x‖²  over z, for each patch x, with α ≥ 0, and prove it by a duality gap.

    The dual is max over ‖μᵢ‖ ≤ αᵢ of  Σᵢ μᵢᵀ(xⁱ − x) − ‖Σᵢ μᵢ‖²/(2β), with z = x + Σᵢ μᵢ/β. A step maximises it exactly
    in one μᵢ:

        b = z − μᵢ/β − xⁱ,    μᵢ ← −b min(αᵢ/‖b‖, β),    z ← z + (new μᵢ − old μᵢ)/β.

    Primal minus dual is the sum of individual gaps gᵢ = αᵢ‖z − xⁱ‖ + μᵢᵀ(z − xⁱ) ≥ 0, which bounds the error of the
    energy, and so ‖z − z*‖² ≤ 2 gap/β. All gaps, and z = x + Σᵢ μᵢ/β, are computed afresh every `refresh` steps.

    Between two refreshes i is drawn in proportion to the last gaps, or uniformly, without replacement: a step makes its
    own gᵢ zero, so that what it has just solved need not come again before the gaps are known anew.

    It holds μ and the differences z − xⁱ, so 2·c·m·k numbers: for large banks pass few patches at a time, or use
    `weiszfeld`, which finds the same z with c·m numbers but proves less.

    Parameters
    ----------
    alpha, bank, x : (c, m), (m, k), (c, k)
    sampling : "gap" or "uniform".
    refresh : steps between two computations of all gaps.
    tol : a patch has converged, and is left alone, when its gap ≤ tol · its energy. Rounding keeps the gap above about
        ε Σα ‖z − x‖ if the minimum is a bank patch: in float32 do not ask for much less than 10⁻⁶.
    max_steps : coordinate steps for each patch; 200 for each bank patch if not given.
    generator : source of the random draws, on the device of x.
    on_refresh : called as on_refresh(step, gap) at each refresh, with the gaps (c,).

    Returns
    -------
    Solution with value (c, k), stats `steps` and `gap`, the largest gap relative to its energy.

    S. Shalev-Shwartz and T. Zhang, "Stochastic dual coordinate ascent methods for regularized loss minimization", 2013;
    gap sampling: A. Osokin et al., "Minding the gaps for block Frank-Wolfe optimization of structured SVMs", 2016.
    """
    check_problem(alpha, bank, x, beta, signed=False)
    if sampling not in ("gap", "uniform"):
        raise InputError("sampling", "be 'gap' or 'uniform'", repr(sampling), "Pick one of these.")
    if refresh < 1:
        raise InputError("refresh", "be at least 1", refresh, "25 is a good value.")
    m = bank.shape[0]
    limit = 200 * m if max_steps is None else max_steps
    mu = x.new_zeros(*alpha.shape, x.shape[1])  # (c, m, k)
    step, relative = 0, x.new_zeros(())
    while True:
        # All is relative to x, where numbers and so rounding errors are small; and afresh, so that they do not pile up.
        shift = mu.sum(1) / beta  # z − x
        gaps, distance = _individual_gaps(alpha, bank, mu, x, shift)
        gap = gaps.sum(1)
        primal = (alpha * distance).sum(1) + beta / 2 * shift.square().sum(1)
        if on_refresh is not None:
            on_refresh(step, gap)
        active = gap > tol * primal
        if not bool(active.any()) or step >= limit:
            break
        rows = active.nonzero()[:, 0]
        steps = min(refresh, m, limit - step)
        chance = gaps[rows] if sampling == "gap" else torch.ones_like(gaps[rows])
        # The floor lets a draw go on when fewer patches than steps have a gap, and mends gaps below zero by rounding.
        chance = chance.clamp_min(1e-12 * chance.amax(1, keepdim=True))
        drawn = torch.multinomial(chance, steps, replacement=False, generator=generator)  # (rows, steps)
        mu[rows[:, None], drawn] = _ascend(
            alpha[rows[:, None], drawn], bank[drawn] - x[rows, None], mu[rows[:, None], drawn], shift[rows], beta
        )
        step += steps
    if x.shape[0]:
        relative = (gap / primal.clamp_min(torch.finfo(x.dtype).tiny)).max()
    verdict = Verdict.STEP_LIMIT if bool(active.any()) else Verdict.CONVERGED
    return Solution(x + shift, verdict, {"steps": float(step), "gap": float(relative)})


def _individual_gaps(alpha: Tensor, bank: Tensor, mu: Tensor, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """gᵢ = αᵢ‖z − xⁱ‖ + μᵢᵀ(z − xⁱ) and ‖z − xⁱ‖, both (c, m); from differences, as products would cancel near xⁱ."""
    difference = (bank - x[:, None]).sub_(shift[:, None]).neg_()  # (c, m, k)
    distance = torch.linalg.vector_norm(difference, dim=2)
    return alpha * distance + difference.mul_(mu).sum(2), distance


def _ascend(alpha: Tensor, offsets: Tensor, mu: Tensor, shift: Tensor, beta: float) -> Tensor:
    """The new μ after one exact step in each drawn coordinate, in order.

    alpha (c, s), offsets xⁱ − x and mu (c, s, k), shift z − x (c, k)
    """
    updated = torch.empty_like(mu)
    for s in range(mu.shape[1]):
        b = shift - mu[:, s] / beta - offsets[:, s]
        length = torch.linalg.vector_norm(b, dim=1).clamp_min_(torch.finfo(b.dtype).tiny)
        updated[:, s] = b * -(alpha[:, s] / length).clamp_max_(beta)[:, None]
        shift = shift + (updated[:, s] - mu[:, s]) / beta
    return updated
