"""What a finished restoration shows of its own error: where it is lively, where its parts disagree, what y does not
say.

Each piece of evidence is an image, the logarithm of a local second moment, in units of the loop. The prior's own
conditional second moment is one of them: Σᵢ αᵢ (xⁱ − Σⱼ αⱼxʲ)² where weights are a bank's, and of cascades that of the
Gaussians of like patches (`slir.similar.collaborate_and_tell`), σ²C(C + σ²I)⁻¹.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.model import AnyStage, Stage
from slir.operators import Mask
from slir.patches import PatchGrid
from slir.views import State

Evidence = Iterator[tuple[str, Callable[[], Tensor]]]

FAINT = 1e-4
"""Squares below this, in units, count alike: no evidence is better than rounding."""

FLAT = 1e-3
"""The same for contrast."""

WIDE = 31
"""Radius of the windows that tell what kind of picture it is: texture that was smoothed away left traces elsewhere."""


TOLD = {"spread": (0, 1, 3, 15), "apart": (0, 15)}
"""Radii at which second moments that views told (`State.told`) are looked at."""

AROUND = (0, 1, 3, 15, WIDE)
"""Radii at which it is looked at what is expected around a pixel."""

REACH = WIDE + 6
"""How far evidence looks."""


def evidence(state: State, stage: AnyStage) -> Evidence:
    """Names, and what makes the image (H, W) of each: they are made one at a time, so memory holds few.

    state: as the last stage left it. stage: that stage.
    """
    yield from _contrast(state.x)
    yield from _local("data", (state.x - state.z).square(), (1, 3, 15))
    for name, image in state.kept.items():
        yield from _local(name, (image - state.x).square(), (0, 1, 3, 15))
    for name, image in (state.told or {}).items():
        yield from _local(name, image, TOLD[name.split()[0]])
    misfit = state.operator.adjoint(state.operator.residual(state.y, state.x)) / max(state.sigma, 1e-6)
    yield from _local("residual", misfit.square(), (1, 3, 7, 15, WIDE))
    if isinstance(state.operator, Mask):
        known = 1.0 - state.operator.missing.to(state.x)
        for radius in (1, 3, 7):
            yield f"known {radius}", partial(_log_mean, known, radius, 0.02)
    if isinstance(stage, Stage):
        yield "spread", lambda: weights_spread(state, stage).add_(1e-8).log_()
    # The same everywhere, but not from picture to picture.
    yield "unit", lambda: torch.full_like(state.x, math.log(state.unit))
    yield "noise", lambda: torch.full_like(state.x, math.log(max(state.sigma, 1e-6)))


def around(log_square: Tensor) -> Evidence:
    """What is expected around a pixel, as evidence for a second look: (H, W) log E[(x̂ − x)²] of the first.

    Single pieces of evidence say how lively or how doubtful a place is; what they come to together, and how that
    changes from place to place, tells a leaf on a wall from a leaf in a tree.
    """
    for radius in AROUND:
        yield f"expected {radius}", partial(box, log_square, radius)
    yield "uneven", lambda: _log_mean((log_square - box(log_square, 7)).square(), 15, FLAT)


def _contrast(x: Tensor) -> Evidence:
    """How lively x is, by the size of its details."""
    fine = (x - box(x, 1)).square()
    for radius in (1, 7, WIDE):
        yield f"detail {radius}", partial(_log_mean, fine, radius, FLAT)
    yield "texture", lambda: box(_log_mean(fine, 1, FLAT), WIDE)
    yield "coarse texture", lambda: box(_log_mean((box(x, 1) - box(x, 4)).square(), 2, FLAT), WIDE)
    for radius in (3, 7):
        yield f"contrast {radius}", partial(_log_mean, (x - box(x, radius)).square(), radius, FLAT)


def _local(name: str, squares: Tensor, radii: tuple[int, ...]) -> Evidence:
    for radius in radii:
        yield f"{name} {radius}", partial(_log_mean, squares, radius, FAINT)


def _log_mean(squares: Tensor, radius: int, least: float) -> Tensor:
    return box(squares, radius).clamp(min=0).add_(least).log_()  # differences of sums may be a little less than none


def box(image: Tensor, radius: int) -> Tensor:
    """Means over squares of 2·radius + 1 pixels a side, mirrored beyond the border: (..., H, W) -> (..., H, W).

    Differences of running sums, which cost the same for any radius; in double precision, because what is faint here may
    stand beside what is not.
    """
    if radius == 0:
        return image
    planes = image.reshape(1, -1, *image.shape[-2:])
    for axis in (-2, -1):
        length = image.shape[axis]
        own = min(radius, length - 1)
        pad = (0, 0, own, own) if axis == -2 else (own, own, 0, 0)
        sums = F.pad(planes, pad, mode="reflect").cumsum(axis, dtype=torch.float64)
        total = sums.narrow(axis, 2 * own, length).clone()
        total.narrow(axis, 1, length - 1).sub_(sums.narrow(axis, 0, length - 1))
        planes = total.div_(2 * own + 1).to(image.dtype)
    return planes.view(image.shape)


def spread_stride(stage: Stage) -> int:
    """Of the coarse grid."""
    return max(1, stage.size // 2)


def weights_spread(state: State, stage: Stage) -> Tensor:
    """E[(x − E x)²] under a bank's weights, per pixel, the mean over the patches of a coarse grid: (H, W).

    Weights that may be negative make it negative in places; these count as none.
    """
    fitted = stage.prior.fitted
    grid = PatchGrid((state.x.shape[0], state.x.shape[1]), stage.size, spread_stride(stage))
    total = torch.zeros_like(state.x)
    count = grid.counts(state.x)
    for rows in grid.bands(1024):
        seen = stage.describe(state.x, grid, rows)
        alpha = fitted.alpha(seen)
        sums = alpha.sum(1, keepdim=True)
        mean, square = alpha @ fitted.clean / sums, alpha @ fitted.clean.square() / sums
        grid.assemble((square - mean.square()).clamp_(min=0), rows=rows, into=total)
    return total / count
