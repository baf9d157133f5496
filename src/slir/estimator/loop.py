"""The loop: y and B in, x̂ out. It reads like the paper, and fits on a screen.

x̂(y) = argmin_x  Σ_p Σ_i αᵢ(y_p) ℓ(x_p, xⁱ)  +  γ/2 ‖y − Bx‖²
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from slir.compute import is_lazy
from slir.estimator.admm import Dual
from slir.estimator.start import observed_pixels, smooth_start
from slir.estimator.state import State
from slir.kernel.cell_ridge import CellRidgeStage
from slir.model import AnyStage, ImageQuadratic, Model, Stage, aggregate
from slir.operators import Operator
from slir.solvers.solution import Solution, Verdict
from slir.solvers.system import System
from slir.trust.intervals import log_square
from slir.trust.spread import box, weights_spread

AROUND = 3
"""Radius of the squares in which what is left over is compared with the noise."""

CHI2_THRESHOLD = 1.6
"""Times its variance that noise hardly ever reaches in such a square, of 49 pixels: four standard deviations."""

EXACT = 1e-6
"""Noise level below which a pixel counts as exact, range 1."""

Progress = Callable[[int, int, str], None]
Sigma = float | Sequence[float] | Tensor | Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Restoration:
    """x: (H, W), on x's own pixels (`operator.crop` gives the part that y shows). stats: one dict a stage.

    residual: root mean square of y − Bx, where y shows anything; of channels restored together (C, H, W), one each.
    error: root mean square error to expect at each pixel of x, where that was asked for and the model can say it.
    """

    x: Tensor
    stats: list[dict[str, Any]] = field(default_factory=list)
    residual: Any = float("nan")
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
    sigma: Sigma = 0.0,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    observe: Callable[[int, Tensor], None] | None = None,
    errors: bool = False,
) -> Restoration:
    """Restore y with values in [0, 1], seen through `operator`, by the stages of `model`.

    y: (h, w), with the axes before these that `operator` makes together (`y_planes`). A model with a learnt kernel also
        takes channels (C, ..., h, w), which it restores together, and batches of them (N, C, ..., h, w).
    sigma: of the noise, range 1; one for each channel, or for each image and channel. Where B is the identity, a
        learnt kernel takes the level of each pixel too: a tensor of y's shape, or a function from y to it. The paper's
        stages were fitted to one noise level.
    observe: called as observe(t, x) with the estimate before stage t, and once more with the last one. With a learnt
        kernel that is z, the average of the patches.
    errors: give the error to expect at each pixel (`slir.trust`).

    Of a y that is an array of Dask, x is one too, on the pixels that y shows, and there are no stats.
    """
    if is_lazy(y):
        from slir.cluster.arrays import restore_lazily

        mask = operator.missing
        lazy = restore_lazily(y, lambda shape: operator, sigma, model=model, data_range=1.0, mask=mask)  # type: ignore[arg-type]
        return Restoration(lazy)
    state = begin(y, operator, model, per_plane(sigma, y, operator))
    dual = Dual() if model.splitting == "admm" else None
    stats: list[dict[str, Any]] = []
    for number, stage in enumerate(model.stages):
        if progress:
            progress(number, len(model.stages), "restoring")
        if observe:
            observe(number, state.z if model.learnt else state.x)
        asked = errors and gives_errors(model, number)
        state, measured = advance(state, stage, dual=dual, generator=generator, errors=asked)
        stats.append(measured)
        if dual is None and measured["x_steps"] == 0 and _only_tighter(stage, model.stages[number + 1 :]):
            break
    state = final_state(state, model)
    if progress:
        progress(len(model.stages), len(model.stages), "restoring")
    if observe:
        observe(len(model.stages), state.x)
    axes = tuple(range(-2 - len(operator.y_planes), 0))
    squares = operator.residual(state.y, state.x).square().mean(axes) / operator.observed_fraction
    error = expected_error_map(state, model, exact=not bool(torch.as_tensor(state.sigma).any())) if errors else None
    return Restoration(state.x, stats, squares.sqrt().tolist(), error)


def per_plane(sigma: Sigma, y: Tensor, operator: Operator) -> Any:
    """σ as the loop takes it: a number where B takes all of y together, else one for each plane that B treats by
    itself, with an axis for each of x's that B takes together, (C, 1, 1) for example; or of y's shape."""
    if callable(sigma):
        sigma = sigma(y)
    if isinstance(sigma, Tensor) and sigma.shape == y.shape:
        return sigma
    batch = operator.batch(y)
    if not batch:
        return sigma
    sigmas = torch.as_tensor(sigma, dtype=y.dtype, device=y.device)
    return sigmas.expand(batch).reshape(*batch, *[1] * (2 + len(operator.x_planes)))


def begin(y: Tensor, operator: Operator, model: Model, sigma: Any) -> State:
    """x⁽⁰⁾: what y says of each pixel where noise alone is to be undone, else a smooth image that explains y; the
    operator's guess for the paper's stages."""
    if not model.learnt:
        x = operator.guess(y)
    elif operator.observes_pixels:
        x = observed_pixels(y, operator)
    else:
        batch = operator.batch(y)
        flat = y.reshape(-1, *y.shape[len(batch) :])
        sigmas = torch.as_tensor(sigma).reshape(-1).expand(len(flat)).tolist()
        x = torch.stack([smooth_start(operator, own, noise) for own, noise in zip(flat, sigmas)])
        x = x.reshape(*batch, *x.shape[1:])
    return State(y, operator, x, x, sigma)


def gives_errors(model: Model, number: int) -> bool:
    """Whether a stage gives the error to expect: the last one, but for a closed-form stage on top of it."""
    return all(isinstance(stage, CellRidgeStage) for stage in model.stages[number + 1 :])


def raw_error(state: State, model: Model) -> Tensor:
    """The root mean square error that the last stage expects, before calibration: the network's own, or the spread of a
    bank's weights."""
    last = model.stages[-1]
    if isinstance(last, Stage):
        return weights_spread(state.x, last).sqrt()
    assert state.error is not None  # it was asked for
    return state.error


def expected_error_map(state: State, model: Model, *, exact: bool = False) -> Tensor | None:
    """The root mean square error to expect at each pixel of x̂; None for a learnt model that is not calibrated.

    exact: whether pixels that are observed came without noise.
    """
    if model.learnt and model.trust is None:
        return None
    error = raw_error(state, model)
    if model.trust is not None:
        error = model.trust.error(log_square(error), state.sigma)
    observed = state.operator.diagonal_like(error) if exact else None
    return error if observed is None else error * (observed == 0)


def advance(
    state: State,
    stage: AnyStage,
    *,
    dual: Dual | None = None,
    generator: torch.Generator | None = None,
    errors: bool = False,
) -> tuple[State, dict[str, Any]]:
    """One stage: z-update and x-update; and its statistics. errors: keep the error to expect (`gives_errors`)."""
    if state.x.ndim > 2 and not getattr(stage, "joint", False):
        return _advance_brightness(state, stage, generator), {"x_steps": 0, "x_residual": 0.0}
    grid = stage.grid((state.x.shape[-2], state.x.shape[-1]))
    if dual is None or not isinstance(stage, Stage):
        quadratic, state = stage.z_update(state, grid, generator, errors=errors)
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
    seen = None if state.seen is None else state.seen.mean(0)
    return replace(state, x=state.x.mean(0), z=state.z.mean(0), seen=seen)


def final_state(state: State, model: Model) -> State:
    """The state after the last stage, as it is given back. The paper's stages minimise an energy, and that is it."""
    if not model.learnt:
        return state
    if not bool(torch.as_tensor(state.sigma).any()):
        return replace(state, x=exact_pixels(state))
    return replace(state, x=residual_correction(state)) if state.operator.observes_pixels else state


def exact_pixels(state: State) -> Tensor:
    """x̂ where y came without noise: pixels that y shows by themselves are what it says."""
    back = state.operator.adjoint(state.y)
    diagonal = state.operator.diagonal_like(back)
    return state.x if diagonal is None else torch.where(diagonal > 0, back / diagonal, state.x)


def residual_correction(state: State) -> Tensor:
    """x̂ of a denoised y, but closer to y where more is left over than noise can be: (H, W).

        x + (y − x) L/(L + 1),    L = max(0, mean of (y − x)²/σ² around a pixel − CHI2_THRESHOLD)

    It is the x-update with an error of x that y itself shows, Lσ². In pictures like those that were learnt from there
    is hardly such a place. But stars and drawings have edges of thousands of σ.
    """
    left = observed_pixels(state.y, state.operator) - state.x
    noise = state.pixel_noise().clamp(min=EXACT)  # σ may be 0 in one of several channels
    excess = box((left / noise).square(), AROUND).sub_(CHI2_THRESHOLD).clamp_(min=0)
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
    if state.operator.batch(state.y):
        return _x_update_each(state, quadratic, stage)
    gamma, diagonal, moment = stage.system(quadratic, state.sigma)
    z = moment / diagonal
    if gamma == 0:
        return Solution(z, Verdict.CONVERGED, {"steps": 0, "residual": 0.0}), z
    tolerance, start = stage.solve_from(state, z)
    target = tolerance * float(diagonal.mean().abs()) * z.numel() ** 0.5
    system = System(state.operator, gamma, diagonal)
    return system.explain(state.y, start, moment=moment, target=target), z


def _x_update_each(state: State, quadratic: ImageQuadratic, stage: AnyStage) -> tuple[Solution, Tensor]:
    """The same of images that B treats by themselves, each with its own σ: (C, H, W), (N, C, H, W)."""
    batch = state.operator.batch(state.y)
    parts = []
    for at in itertools.product(*map(range, batch)):
        one = replace(state, y=state.y[at], x=state.x[at], z=state.z[at], sigma=float(state.sigma[at].mean()))
        parts.append(x_update(one, ImageQuadratic(quadratic.diagonal[at], quadratic.moment[at]), stage))
    solutions = [solved for solved, _ in parts]
    worst = max(solutions, key=lambda own: (own.verdict is not Verdict.CONVERGED, own.stats["steps"]))
    value, z = (torch.stack(images).reshape(state.x.shape) for images in zip(*[(own.value, z) for own, z in parts]))
    return replace(worst, value=value), z
