"""Large images in tiles: memory does not grow with the image.

Each tile is restored with a halo around it, in which the edge of the tile may do harm, and cut out of it. Tiles begin
where the patches of the whole image begin, so that inside the halo the same is computed as without tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Any

import torch
from torch import Tensor

from slir.compute import chunks, memory_for_tiles
from slir.estimator.loop import Progress, Restoration, Sigma, restore
from slir.kernel.network import MULTIPLE
from slir.kernel.stage import KernelStage
from slir.model import Model, Stage
from slir.operators import Operator
from slir.operators.base import Shape
from slir.trust.spread import spread_stride

KERNEL_HELD = 190
"""Numbers a pixel that a learnt kernel holds, whose features are kept in all scales."""

FELT = 0.75
"""Share of a network's reach up to which an edge is felt in one stage, by more than 2e-6. Over five stages it is felt
by more than 7e-5 up to the whole reach."""

LEAST = 64
"""Smallest side of a tile without its halo: smaller ones are nearly all halo."""


def restore_tiled(
    y: Tensor,
    operator: Operator,
    model: Model,
    *,
    sigma: Sigma = 0.0,
    tile: int | None = None,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
    observe: Callable[[Tensor], None] | None = None,
    errors: bool = False,
) -> Restoration:
    """`restore`, in tiles where the image is larger than one: (..., h, w) -> x on the pixels that y shows.

    tile: side in pixels of x, halo not counted; None takes what fits into memory. Operators that cannot be cut
    (circular borders, linear maps of one's own), and ADMM, whose dual variables are of the whole, are restored whole.
    stats: of the tiles one after the other.
    observe: called with the estimate after each stage, or, in tiles, with what is done of it after each of them.
    errors: give the error to expect at each pixel.
    """
    shape = (y.shape[-2], y.shape[-1])
    side = tile_side(model, y.device, shape, operator) if tile is None else tile
    pieces = list(cut(shape, operator, model, side))
    if len(pieces) < 2 or model.splitting == "admm" or any(piece.operator is None for piece in pieces):
        look = None if observe is None else _after_stages(observe, operator, shape)
        told: dict[str, Any] = {"generator": generator, "progress": progress, "observe": look, "errors": errors}
        whole = restore(y, operator, model, sigma=sigma, **told)
        error = None if whole.error is None else operator.crop(whole.error, shape)
        return replace(whole, x=operator.crop(whole.x, shape), error=error)
    scale = operator.scale
    batch = operator.batch(y)
    x = y.new_empty(*batch, *operator.x_planes, scale * shape[0], scale * shape[1])
    if observe is not None:  # until its turn comes, a tile shows what there is without any work
        x = operator.crop(operator.guess(y), shape).clone()
    error = torch.empty_like(x) if errors else None
    stats: list[dict[str, Any]] = []
    squares = y.new_zeros(batch, dtype=torch.float64)
    for number, piece in enumerate(pieces):
        assert piece.operator is not None  # seen above
        part = restore(
            y[..., *piece.seen],
            piece.operator,
            model,
            sigma=sigma[..., *piece.seen] if isinstance(sigma, Tensor) and sigma.shape == y.shape else sigma,
            generator=generator,
            progress=_share(progress, number, len(pieces)),
            errors=errors,
        )
        height, width = (axis.stop - axis.start for axis in piece.seen)
        inner = piece.operator.crop(part.x, (height, width))
        x[..., *scale_window(piece.own, scale)] = inner[..., *scale_window(piece.within, scale)]
        if error is not None and part.error is not None:
            cropped = piece.operator.crop(part.error, (height, width))
            error[..., *scale_window(piece.own, scale)] = cropped[..., *scale_window(piece.within, scale)]
        else:
            error = None
        stats += part.stats
        if observe is not None:
            observe(x)
        misfit = piece.operator.residual(y[..., *piece.seen], part.x)[..., *piece.within]
        squares += misfit.double().square().flatten(len(batch)).sum(-1)
    count = operator.observed_fraction * prod(operator.y_planes) * shape[0] * shape[1]
    residual = (squares / count).sqrt().tolist()
    return Restoration(x, stats, residual, error)


@dataclass(frozen=True)
class Piece:
    """own: the pixels of y that it answers for. seen: these and the halo. within: the former, counted in the latter.
    operator: B for what is seen, None where it cannot be cut."""

    own: tuple[slice, slice]
    seen: tuple[slice, slice]
    within: tuple[slice, slice]
    operator: Operator | None


def cut(shape: Shape, operator: Operator, model: Model, side: int) -> Iterator[Piece]:
    """The pieces of a y of this shape, row by row; `side` in pixels of x, halo not counted."""
    scale, step, margin = operator.scale, period(model), _margin(model, operator)
    side = max(1, max(side, LEAST) // (scale * step)) * step
    axes = []
    for length in shape:
        axis = []
        count = _count(length, side, margin)
        steps = -(-length // step)
        for part in chunks(steps, -(-steps // count)):
            own = slice(step * part.start, min(step * part.stop, length))
            seen = slice(max(0, own.start - margin), min(length, own.stop + margin))
            axis.append((own, seen, slice(own.start - seen.start, own.stop - seen.start)))
        axes.append(axis)
    for (own_row, row, in_row), (own_col, col, in_col) in itertools.product(*axes):
        yield Piece((own_row, own_col), (row, col), (in_row, in_col), operator.part(row, col))


def piece_around(shape: Shape, operator: Operator, model: Model, window: tuple[slice, slice]) -> Piece:
    """The piece of a y of this shape that answers for a window of it, no larger than it has to be."""
    step, margin = period(model), _margin(model, operator)
    own, seen, within = [], [], []
    for part, length in zip(window, shape):
        start, stop = step * (part.start // step), min(length, step * -(-part.stop // step))
        own.append(slice(start, stop))
        seen.append(slice(max(0, start - margin), min(length, stop + margin)))
        within.append(slice(start - seen[-1].start, stop - seen[-1].start))
    return Piece((own[0], own[1]), (seen[0], seen[1]), (within[0], within[1]), operator.part(seen[0], seen[1]))


def period(model: Model) -> int:
    """Patches of all stages begin at multiples of this."""
    steps = [1]
    for stage in model.stages:
        steps.append(MULTIPLE if isinstance(stage, KernelStage) else stage.stride)
        if isinstance(stage, Stage):
            steps.append(spread_stride(stage))
    return lcm(*steps)


def halo(model: Model, operator: Operator) -> int:
    """How far from a tile's edge, in pixels of x, its result is no longer felt.

    A stage passes on what it sees through its patches, and so does the spread of its weights; the x-update feels an
    edge some PSFs away.
    """
    first = model.stages[0]
    if isinstance(first, KernelStage):
        reach = first.network.reach
        once = int(FELT * reach)
        return once if len(model.stages) == 1 else max(reach, once + 4 * operator.reach)
    return sum(stage.size for stage in model.stages) + model.stages[-1].size + 4 * operator.reach


def _margin(model: Model, operator: Operator) -> int:
    """The halo in pixels of y, as many as let a tile begin where patches do."""
    step = period(model)  # y's pixels, so also x's
    return -(-halo(model, operator) // (operator.scale * step)) * step


def tile_side(model: Model, device: torch.device, shape: Shape, operator: Operator) -> int:
    """The side of tiles for a y of this shape, in pixels of x, halo not counted: the largest whose restoration, halo
    and all, fits into the memory that tiles may take. As few tiles as can be see least of the image twice."""
    numbers = max(44 + 3 * stage.size**2 / stage.stride**2 for stage in model.stages)
    numbers = KERNEL_HELD if model.learnt else numbers
    room = memory_for_tiles(device) / (4 * numbers)
    unit, margin = operator.scale * period(model), operator.scale * _margin(model, operator)
    lengths = [operator.scale * length for length in shape]

    def seen(length: int, side: int) -> int:
        """By the largest tile along an axis, as `cut` cuts it; of two tiles each has an edge of the image."""
        count = _count(length, side, margin)
        return length if count == 1 else -(-length // (count * unit)) * unit + margin * min(2, count - 1)

    for count in itertools.count(1):
        side = -(-max(lengths) // (count * unit)) * unit
        if seen(lengths[0], side) * seen(lengths[1], side) <= room or side <= LEAST:
            return side
    raise AssertionError("sides shrink until they are small enough")


def _count(length: int, side: int, margin: int) -> int:
    """Of tiles along an axis. What is hardly longer than one is not cut."""
    return 1 if length <= side + 2 * margin else -(-length // side)


def scale_window(axes: tuple[slice, slice], scale: int) -> tuple[slice, slice]:
    """The pixels of x that belong to these of y."""
    rows, cols = (slice(scale * axis.start, scale * axis.stop) for axis in axes)
    return rows, cols


def _after_stages(observe: Callable[[Tensor], None], operator: Operator, shape: Shape) -> Callable[[int, Tensor], None]:
    """What y shows of the estimates; the first, which no stage has seen yet, is left out."""
    return lambda number, x: observe(operator.crop(x, shape)) if number else None


def _share(progress: Progress | None, number: int, tiles: int) -> Callable[[int, int, str], None] | None:
    """Progress of one tile as a part of the whole."""
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(number * total + done, tiles * total, what)
