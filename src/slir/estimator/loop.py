"""The loop: y and B in, x̂ out. It reads like the paper, and fits on a screen.

x̂(y) = argmin_x  Σ_p Σ_i αᵢ(y_p) ℓ(x_p, xⁱ)  +  γ/2 ‖y − Bx‖²
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.kernel.stage import KernelStage
from slir.model import AnyStage, ImageQuadratic, Model, Stage, aggregate
from slir.operators import Identity, Mask, Operator
from slir.preprocessing.arrays import is_lazy
from slir.solvers.admm import Dual
from slir.solvers.solution import Solution, Verdict
from slir.solvers.system import System
from slir.trust.evidence import box
from slir.trust.record import expected_error_map
from slir.views import Similar, State

AROUND = 3
"""Radius of the squares in which what is left over is compared with the noise."""

CHI2_THRESHOLD = 1.6
"""Times its variance that noise hardly ever reaches in such a square, of 49 pixels: four standard deviations."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Restoration:
    """x: (H, W), on x's own pixels (`operator.crop` gives the part that y shows). stats: one dict a stage.

    residual: root mean square of y − Bx, where y shows anything; of channels restored together (C, H, W), one each.
    unit: of the loop.
    error: root mean square error to expect at each pixel of x, where that was asked for and the model can say it.
    """

    x: Tensor
    stats: list[dict[str, Any]] = field(default_factory=list)
    residual: Any = float("nan")
    unit: float = 1.0
    error: Tensor | None = None

    def channels(self) -> list[Restoration]:
        """One for each channel of those that were restored together."""
        errors = [None] * len(self.x) if self.error is None else list(self.error)
        parts = zip(self.x, self.residual, errors)
        return [replace(self, x=x, residual=residual, error=error) for x, residual, error in parts]


@torch.no_grad()
def restore(
    y: Tensor,
    operator: Operator,
    model: Model,
    *,
    sigma: float | Sequence[float] = 0.0,
    unit: float | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    observe: Callable[[int, Tensor], None] | None = None,
    errors: bool = False,
) -> Restoration:
    """Restore one plane y (h, w) with values in [0, 1], seen through `operator`, by the stages of `model`.

    y: a model with a learnt kernel also takes channels (C, h, w), which it sees together.
    sigma: of the noise, range 1; one for each channel. Learnt stages go by it; the paper's were fitted to theirs.
    unit: of a cascade's loop, where it is known already.
    observe: called as observe(t, x) with the estimate that stage t is about to see, and once more with the last one. Of
        a cascade that is z, in which its patches agree: x stays close to y until the last stage where B is I.
    errors: say which error to expect at each pixel (`slir.trust`). `restore_tiled` goes on to the
        picture's own test, without which it may be further off.

    Of a y that is an array of Dask, x is one too, on the pixels that y shows, and there are no stats.
    """
    if is_lazy(y):
        from slir.cluster.arrays import restore_lazily

        mask = operator.missing if isinstance(operator, Mask) else None
        lazy = restore_lazily(y, lambda shape: operator, sigma, model=model, data_range=1.0, mask=mask)  # type: ignore[arg-type]
        return Restoration(lazy)
    shape = operator.x_shape((y.shape[-2], y.shape[-1]))
    state = begin(in_whole_blocks(y, operator, model), operator, model, per_channel(sigma, y), unit)

    def shown(x: Tensor) -> Tensor:
        return x[..., : shape[0], : shape[1]] * state.unit

    dual = Dual() if model.splitting == "admm" else None
    stats: list[dict[str, Any]] = []
    for number, stage in enumerate(model.stages):
        if progress:
            progress(number, len(model.stages), "restoring")
        if observe:
            observe(number, shown(state.z if model.learnt else state.x))
        telling = errors and tells_errors(model, number)
        state, measured = advance(state, stage, dual=dual, generator=generator, telling=telling)
        stats.append(measured)
        if dual is None and measured["x_steps"] == 0 and _only_tighter(stage, model.stages[number + 1 :]):
            break
    state = finished(state, model)
    if progress:
        progress(len(model.stages), len(model.stages), "restoring")
    if observe:
        observe(len(model.stages), shown(state.x))
    squares = operator.residual(state.y, state.x).square().mean((-2, -1)) / operator.observed_fraction
    residual = (squares.sqrt() * state.unit).tolist()
    error = expected_error_map(state, model, exact=not bool(torch.as_tensor(sigma).any())) if errors else None
    return Restoration(shown(state.x), stats, residual, state.unit, None if error is None else shown(error))


def per_channel(sigma: float | Sequence[float], y: Tensor) -> Any:
    """σ as the loop takes it: a number for a plane, (C, 1, 1) for channels."""
    if y.ndim == 2:
        return sigma
    sigmas = torch.as_tensor(sigma, dtype=y.dtype, device=y.device).reshape(-1, 1, 1)
    return sigmas.expand(len(y), 1, 1)


def in_whole_blocks(y: Tensor, operator: Operator, model: Model) -> Tensor:
    """y (h, w), gone on mirrored until it is made of whole blocks of the pixels that coarse views average; where y and
    x are not the same image, as it is.

    Elsewhere than on their beginning a coarse view has a form that no map has learnt from: of an odd number of rows the
    last one would be restored worse than it came. What is added is cut away in the end.
    """
    views = (view for stage in model.stages for view in getattr(stage, "views", ()) if isinstance(view, Similar))
    block = lcm(*(view.scale for view in views))
    rows, cols = (-length % block for length in y.shape[-2:])
    if not isinstance(operator, Identity) or (rows, cols) == (0, 0) or rows >= y.shape[0] or cols >= y.shape[1]:
        return y
    return F.pad(y[None, None], (0, cols, 0, rows), mode="reflect")[0, 0]


def begin(y: Tensor, operator: Operator, model: Model, sigma: float, unit: float | None = None) -> State:
    """x⁽⁰⁾ and the unit of the loop, as the first stage wants them."""
    return model.stages[0].opening(y, operator, sigma, unit)


def tells_errors(model: Model, number: int) -> bool:
    """Whether errors to expect are told from what a stage does: the last with a network, and the last of all."""
    rest = model.stages[number + 1 :]
    network = isinstance(model.stages[number], KernelStage)
    return not rest or (network and not any(isinstance(stage, KernelStage) for stage in rest))


def advance(
    state: State,
    stage: AnyStage,
    *,
    dual: Dual | None = None,
    generator: torch.Generator | None = None,
    telling: bool = False,
) -> tuple[State, dict[str, Any]]:
    """One turn: describe, pull, solve. Also what was measured on the way.

    telling: keep what errors to expect are told from (`tells_errors`)."""
    if state.x.ndim > 2 and not getattr(stage, "joint", False):
        return _advance_brightness(state, stage, generator), {"x_steps": 0, "x_residual": 0.0}
    state = replace(state, told=state.told or {} if telling else None)
    grid = stage.grid((state.x.shape[-2], state.x.shape[-1]))
    if dual is None or not isinstance(stage, Stage):
        quadratic, state = stage.z_update(state, grid, generator)  # what is known at each patch, and what it asks for
    else:
        pull = dual.pull(stage, stage.describe(state.x, grid), grid.extract(state.x), generator)
        quadratic = aggregate(grid, [(slice(None), pull)])
    solved, z = x_update(state, quadratic, stage)  # (H, W)  the x-update
    if dual is not None:
        dual.step(grid.extract(solved.value))
    stats: dict[str, Any] = {
        **quadratic.stats,
        "x_steps": solved.stats["steps"],
        "x_residual": solved.stats["residual"],
    }
    if solved.verdict is not Verdict.CONVERGED:
        stats["x_verdict"] = solved.verdict.value
    return replace(state, x=solved.value, z=z), stats


def _advance_brightness(state: State, stage: AnyStage, generator: torch.Generator | None) -> State:
    """A stage that sees one plane, on top of one that sees channels: what it changes in their mean, all take."""
    plane = brightness(state)
    quadratic, _ = stage.z_update(plane, stage.grid((plane.x.shape[0], plane.x.shape[1])), generator)
    z = state.z + (quadratic.moment / quadratic.diagonal - plane.z)
    return replace(state, x=z, z=z)


def brightness(state: State) -> State:
    """The mean of the channels, as a stage that sees one plane takes it; a state of one plane as it is."""
    if state.x.ndim == 2:
        return state
    kept = {name: image.mean(0) for name, image in state.kept.items()}
    return replace(state, x=state.x.mean(0), z=state.z.mean(0), kept=kept)


def finished(state: State, model: Model) -> State:
    """The state after the last stage, as it is given back."""
    noise_alone = model.learnt and isinstance(state.operator, Identity)
    return replace(state, x=residual_correction(state)) if noise_alone else state


def residual_correction(state: State) -> Tensor:
    """x̂ of a denoised y, but closer to y where more is left over than noise can be: (H, W).

        x + (y − x) L/(L + 1),    L = max(0, mean of (y − x)²/σ² around a pixel − CHI2_THRESHOLD)

    It is the x-update with an error of x that y itself shows, Lσ². In pictures like those that were learnt from there
    is hardly such a place. But stars and drawings have edges of thousands of σ, which no cell has ever seen.
    """
    left = state.y - state.x
    excess = box(left.square(), AROUND).div_(state.sigma**2).sub_(CHI2_THRESHOLD).clamp_(min=0)
    return state.x + left.mul_(excess / (excess + 1))


def _only_tighter(stage: AnyStage, rest: tuple[AnyStage, ...]) -> bool:
    """Whether what is left is this stage again with β no smaller. When it moved nothing, then neither will they."""
    if not isinstance(stage, Stage) or stage.beta is None:
        return False
    beta = stage.beta
    return all(
        isinstance(other, Stage)
        and other.beta is not None
        and other.beta >= beta
        and replace(other, beta=beta) == stage
        for other in rest
    )


def x_update(state: State, quadratic: ImageQuadratic, stage: AnyStage) -> tuple[Solution, Tensor]:
    """The x-update, a linear system in x solved by conjugate gradient (eq. msesystem); and z, where the patches agree:

    (γBᵀB + Σ_p s_p R_pᵀR_p) x = γBᵀy + Σ_p R_pᵀ v_p,        z = Σ_p R_pᵀ v_p / Σ_p s_p R_pᵀR_p

    It stops when the residual is tolerance · mean(Σ s_p R_pᵀR_p), root mean square. The system's curvature is nowhere
    less than that diagonal, also where B sees nothing, so the tolerance is about the error left in x at most. (A
    residual compared with the right-hand side, which γ makes large, would say nothing about what B does not see.)
    """
    if state.x.ndim > 2:
        return _x_update_each(state, quadratic, stage)
    gamma, diagonal, moment = stage.system(quadratic, state.sigma)
    z = moment / diagonal
    if gamma == 0:
        return Solution(z, Verdict.CONVERGED, {"steps": 0, "residual": 0.0}), z
    tolerance, start = stage.begin(state, z)
    target = tolerance * float(diagonal.mean().abs()) * z.numel() ** 0.5
    system = System(state.operator, gamma, diagonal)
    return system.explain(state.y, start, moment=moment, target=target), z


def _x_update_each(state: State, quadratic: ImageQuadratic, stage: AnyStage) -> tuple[Solution, Tensor]:
    """The same of channels, each with its own σ: (C, H, W)."""
    parts = []
    for c, (y, x, z) in enumerate(zip(state.y, state.x, state.z)):
        one = replace(state, y=y, x=x, z=z, sigma=float(state.sigma[c]))
        parts.append(x_update(one, ImageQuadratic(quadratic.diagonal[c], quadratic.moment[c]), stage))
    solutions = [solved for solved, _ in parts]
    worst = max(solutions, key=lambda own: (own.verdict is not Verdict.CONVERGED, own.stats["steps"]))
    return replace(worst, value=torch.stack([own.value for own in solutions])), torch.stack([z for _, z in parts])
