"""The loop: y and B in, x̂ out. It reads like the paper, and fits on a screen.

x̂(y) = argmin_x  Σ_p Σ_i αᵢ(y_p) ℓ(x_p, xⁱ)  +  γ/2 ‖y − Bx‖²
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from slir.model import Model, Pull, Stage
from slir.operators import Operator
from slir.patches import PatchGrid
from slir.solvers.admm import Dual
from slir.solvers.cg import cg
from slir.solvers.solution import Solution, Verdict

X_TOLERANCE = 4e-4
"""Root mean square error that the x-update may leave in x, whose range is 1: a tenth of an 8-bit grey level."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Restoration:
    """x: (H, W), on x's own pixels (`operator.crop` gives the part that y shows). stats: one dict a stage."""

    x: Tensor
    stats: list[dict[str, Any]] = field(default_factory=list)


@torch.no_grad()
def restore(
    y: Tensor,
    operator: Operator,
    model: Model,
    *,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    observe: Callable[[int, Tensor], None] | None = None,
) -> Restoration:
    """Restore one plane y (h, w) with values in [0, 1], seen through `operator`, by the stages of `model`.

    observe: called as observe(t, x) with the estimate that stage t is about to see, and once more with the last one.
    """
    x = operator.guess(y)
    dual = Dual() if model.splitting == "admm" else None
    stats: list[dict[str, Any]] = []
    for number, stage in enumerate(model.stages):
        if progress:
            progress(number, len(model.stages), "restoring")
        if observe:
            observe(number, x)
        grid = stage.grid((x.shape[-2], x.shape[-1]))
        seen = stage.describe(x, grid)  # (P, d)  what is known at each patch
        patches = grid.extract(x)  # (P, k)
        pull = stage.pull(seen, patches, generator) if dual is None else dual.pull(stage, seen, patches, generator)
        solved = solve(operator, y, grid, pull, stage, start=x)  # (H, W)  the x-update
        x = solved.value
        if dual is not None:
            dual.step(grid.extract(x))
        stats.append({**pull.stats, "x_steps": solved.stats["steps"], "x_residual": solved.stats["residual"]})
        if solved.verdict is not Verdict.CONVERGED:
            stats[-1]["x_verdict"] = solved.verdict.value
        if dual is None and solved.stats["steps"] == 0 and _only_tighter(stage, model.stages[number + 1 :]):
            break
    if progress:
        progress(len(model.stages), len(model.stages), "restoring")
    if observe:
        observe(len(model.stages), x)
    return Restoration(x, stats)


def _only_tighter(stage: Stage, rest: tuple[Stage, ...]) -> bool:
    """Whether what is left is this stage again with β no smaller. When it moved nothing, then neither will they."""
    beta = stage.beta
    return beta is not None and all(
        other.beta is not None and other.beta >= beta and replace(other, beta=beta) == stage for other in rest
    )


def solve(operator: Operator, y: Tensor, grid: PatchGrid, pull: Pull, stage: Stage, *, start: Tensor) -> Solution:
    """The x-update, a linear system in x solved by conjugate gradient (eq. msesystem):

    (γBᵀB + Σ_p s_p R_pᵀR_p) x = γBᵀy + Σ_p R_pᵀ v_p

    It stops when the residual is X_TOLERANCE · mean(Σ s_p R_pᵀR_p), root mean square. The system's curvature is nowhere
    less than that diagonal, also where B sees nothing, so X_TOLERANCE is about the error left in x at most. (A residual
    compared with the right-hand side, which γ makes large, would say nothing about what B does not see.)
    """
    # With a stride, fewer patches speak for the same pixels: each counts stride² times, so that γ keeps its meaning.
    share = stage.stride**2
    diagonal = share * grid.assemble(pull.strength[:, None])
    rhs = stage.gamma * operator.adjoint(y) + share * grid.assemble(pull.moment)
    target = X_TOLERANCE * float(diagonal.mean().abs()) * start.numel() ** 0.5
    return cg(lambda x: stage.gamma * operator.normal(x) + diagonal * x, rhs, start=start, target=target)
