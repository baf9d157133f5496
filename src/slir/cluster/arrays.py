"""Arrays of Dask, which stay lazy: nothing is read or restored before the result is computed.

The image is cut as one machine cuts it (`slir.estimator.tiling`), in blocks that follow its chunks where these are of
a good size. Each block is restored with a halo as wide as operator and model reach. What has to be known about the
whole (noise, colours, the share of missing pixels) is decided by one more task a plane, from the sample that one
machine takes.

Axes before height and width are planes, each restored by itself; the model is one object of the graph, which goes to
each worker once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from slir.cluster.blocks import Grid, Plan, box_object, decide, restore_block
from slir.errors import InputError
from slir.estimator.tiling import cut, halo, period, tile_side
from slir.model import Model
from slir.operators import Blur, Mask, Operator
from slir.operators.base import Shape
from slir.preprocessing.amount import ALL, Amount
from slir.preprocessing.arrays import DataRange, as_numpy, pixel_range
from slir.preprocessing.ranges import stretchable
from slir.preprocessing.treatment import sample

NOTHING = Mask(np.zeros((1, 1), bool))
"""Stands for the masks of inpainting, of which every block has its own."""


def restore_lazily(
    image: Any,
    make: Callable[[Shape], Operator] | None,
    sigma: float | str,
    *,
    amount: Amount = ALL,
    model: Model | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    mask: Any = None,
) -> Any:
    """A Dask array, restored when it is computed: same dtype, planes and channels.

    make: (height, width) -> B; None where there is a mask. mask: (H, W), or with the axes of the image's
    planes. The rest as for every task (`slir.tasks`).
    """
    import dask
    import dask.array as da

    array = _as_planes(image, channel_axis)
    size = (int(array.shape[-2]), int(array.shape[-1]))
    operator = NOTHING if make is None or mask is not None else make(size)
    colour = channel_axis is not None
    plan = Plan(operator, sigma, size, model, data_range, colour, str(device or "cpu"), seed, amount)
    _check(plan, array.dtype)
    plan.grid = Grid.of(list(cut(size, operator, plan.lead, _side(array, plan))))
    name = uuid.uuid4().hex
    sent = dask.delayed(plan, name=f"slir-plan-{name}", traverse=False)
    holes = [] if mask is None else [_missing(mask, array, channel_axis)]
    blocks = [_with_halo(each, plan.grid) for each in (array, *holes)]
    decisions = da.from_array(box_object(None, array.ndim), chunks=1)
    if plan.known is None:
        decisions = _decisions(array, holes, sent, name)
    chunks = (*array.chunks[:-2], *plan.grid.out_chunks(operator.scale))
    settings = {"dtype": array.dtype, "meta": np.empty((0,) * array.ndim, array.dtype), "name": f"slir-{name}"}
    restored = da.map_blocks(restore_block, blocks[0], decisions, *blocks[1:], plan=sent, chunks=chunks, **settings)
    return restored if channel_axis is None else da.moveaxis(restored, -3, channel_axis)


def _as_planes(image: Any, channel_axis: int | None) -> Any:
    """The image as (planes ..., [channels], H, W), a plane and all its channels in one chunk."""
    import dask.array as da

    as_numpy(np.ones((1, 1), image.dtype))
    least = 2 if channel_axis is None else 3
    if image.ndim < least:
        remedy = "Pass channel_axis=-1 for colour images (..., H, W, C)."
        raise InputError("image", f"have at least {least} dimensions", image.shape, remedy)
    if not np.isfinite(np.array(image.shape, float)).all():
        remedy = "Call image.compute_chunk_sizes() first."
        raise InputError("image", "have a known shape", f"of shape {image.shape}", remedy)
    if channel_axis is not None:
        if not -image.ndim <= channel_axis < image.ndim:
            raise InputError("channel_axis", f"name one of the image's {image.ndim} axes", channel_axis, "Often -1.")
        image = da.moveaxis(image, channel_axis, -3)
    alone = dict.fromkeys(range(image.ndim - least), 1)
    return image.rechunk(alone if channel_axis is None else {**alone, image.ndim - 3: -1})


def _check(plan: Plan, dtype: np.dtype) -> None:
    """Raise for what is wrong whatever the pixels; decide at once where they do not matter."""
    from slir.restoration import MIN_SIDE

    size, operator = plan.size, plan.operator
    if min(size) < MIN_SIDE:
        raise InputError("image", f"have at least {MIN_SIDE} pixels a side", f"{size[0]}×{size[1]}", "Pad it first.")
    if operator is not NOTHING:
        operator.y_shape(operator.x_shape(size))
        if operator.part(slice(0, size[0]), slice(0, size[1])) is None:
            remedy = "Use the border 'unknown' or 'reflect', or restore image.compute()."
            raise InputError("image", "be in memory where far pixels depend on each other", "a Dask array", remedy)
    if plan.lead.splitting == "admm":
        remedy = "Use a model with splitting 'hqs', or restore image.compute()."
        raise InputError("image", "be in memory for ADMM, which ties all pixels", "a Dask array", remedy)
    black, _ = pixel_range(np.empty(0, dtype), plan.data_range)
    flat = np.full((MIN_SIDE, MIN_SIDE, 1) if plan.colour else (MIN_SIDE, MIN_SIDE), black).astype(dtype)
    told = plan.decide(flat, Mask(np.zeros(flat.shape[:2], bool)) if operator is NOTHING else operator)
    told_by_pixels = isinstance(plan.sigma, str) or plan.colour or operator is NOTHING or isinstance(operator, Blur)
    if not (told_by_pixels or (plan.model is None and stretchable(operator, dtype))):
        plan.known = told


def _side(array: Any, plan: Plan) -> int:
    """Of blocks, in pixels of x: that of the largest chunk; but no smaller than four halos, as else most of the work
    is done twice, and no larger than what fits into memory."""
    scale, reach = plan.operator.scale, halo(plan.lead, plan.operator)
    largest = scale * max(max(array.chunks[-2]), max(array.chunks[-1]))
    most = tile_side(plan.lead, torch.device("cpu"), plan.size, plan.operator)
    least = 2 * (reach + scale * period(plan.lead))  # Dask takes a halo from the next block alone
    return max(least, min(max(largest, 4 * reach), most))


def _with_halo(array: Any, grid: Grid) -> Any:
    """The array in blocks that overlap."""
    from dask.array.overlap import overlap

    chunks = grid.out_chunks(1)
    last = {array.ndim - 2: chunks[0], array.ndim - 1: chunks[1]}
    depth = dict.fromkeys(range(array.ndim - 2), 0) | dict(zip((array.ndim - 2, array.ndim - 1), grid.margin))
    return overlap(array.rechunk(last), depth=depth, boundary="none", allow_rechunk=False)


def _missing(mask: Any, array: Any, channel_axis: int | None) -> Any:
    """The mask as an array of Dask, (H, W) or (planes ..., [1], H, W)."""
    import dask.array as da

    mask = mask.detach().cpu().numpy() if isinstance(mask, torch.Tensor) else mask
    mask = da.asarray(mask).astype(bool)
    planes = array.shape[:-2] if channel_axis is None else array.shape[:-3]
    if mask.shape not in (array.shape[-2:], (*planes, *array.shape[-2:])):
        remedy = f"The image has planes of {array.shape[-2:]}; crop or resize the mask."
        raise InputError("mask", "have the image's height and width", f"of shape {mask.shape}", remedy)
    if mask.ndim > 2 and channel_axis is not None:
        mask = mask[..., None, :, :]
    return mask.rechunk(dict.fromkeys(range(mask.ndim - 2), 1))


def _decisions(array: Any, holes: list[Any], sent: Any, name: str) -> Any:
    """One decision a plane, from a sample, as an array of objects (planes ..., [1], 1, 1)."""
    import dask.array as da

    windows = sample((int(array.shape[-2]), int(array.shape[-1])))
    samples = []
    for each in (array, *holes):
        seen = da.concatenate([each[(..., *window)] for window in windows], axis=-2)
        samples.append(seen.rechunk({seen.ndim - 2: -1, seen.ndim - 1: -1}))
    chunks = (*((1,) * len(own) for own in array.chunks[:-2]), (1,), (1,))
    settings = {"dtype": object, "meta": np.empty((0,) * array.ndim, object), "name": f"slir-decide-{name}"}
    return da.map_blocks(decide, *samples, plan=sent, chunks=chunks, **settings)
