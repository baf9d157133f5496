"""Stacks in files restored as volumes: (Z, Y, X) of each time and channel, the other axes as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from slir.errors import InputError
from slir.files.restore_file import Found, PlaneStats, Work
from slir.io import Sink, Source
from slir.io.pixel_size import pixel_size
from slir.restoration import Settings
from slir.volumes import restore_stack

Progress = Callable[[int, int, str], None]

UNKNOWN_SIZE = "the file does not say how far apart its voxels are along z, y and x, so they were taken for cubes"


def restore_volumes(source: Source, sink: Sink, work: Work, progress: Progress | None = None) -> Found:
    """Every volume of `source`, restored, into `sink`."""
    depth = _depth(source)
    problem = work.problem
    notes: tuple[str, ...] = ()
    if problem.options.get("voxel_size") is None:
        size = voxel_size(source)
        problem = problem.replace(voxel_size=size)
        notes = () if size else (UNKNOWN_SIZE,)
    grid = np.arange(source.planes).reshape(source.shape or (1,))
    volumes = np.moveaxis(grid, depth, -1).reshape(-1, grid.shape[depth])  # the planes of each
    restored: dict[int, np.ndarray] = {}
    found = []
    for number, planes in enumerate(volumes):
        pixels = np.stack([_grey(source, int(plane)) for plane in planes])
        tell: Any = False if progress is None else partial(_tell, progress, number, len(volumes))
        settings = Settings(work.model, work.data_range, None, work.device, work.seed, tell, None, "stats")
        result = restore_stack(pixels, problem, settings)
        restored |= {int(plane): own for plane, own in zip(planes, result.image)}
        found.append(PlaneStats(result.stats.get("sigma"), result.stats.get("residual")))
    for plane in range(source.planes):
        picture = source.read(plane)
        sink.write(picture.with_pixels(restored.pop(plane), alpha=picture.alpha), plane=plane)
    return Found.of_planes(found, notes)


def voxel_size(source: Source) -> tuple[float, float, float] | None:
    """(z, y, x) in one unit, as the file says; None where it does not."""
    steps = [pixel_size(source.meta).get(axis) for axis in "zyx"]
    known = [step for step in steps if step is not None]
    if len(known) < 3 or len({unit for _, unit in known}) > 1:
        return None
    (z, _), (y, _), (x, _) = known
    return z, y, x


def _depth(source: Source) -> int:
    """Which of the leading axes is z: the one of that name, or the only one."""
    axes = source.axes[: len(source.shape)].upper()
    if source.colour or source.planes < 2:
        found = "in colour" if source.colour else "a single plane"
        raise InputError("image", "be a grey stack for a PSF of three axes", found, "Pass a stack of planes.")
    if "Z" in axes:
        return axes.index("Z")
    if len(source.shape) > 1:
        remedy = "Save it with its axes named, as ImageJ and OME do."
        raise InputError("image", "name its axis z for a PSF of three axes", f"of axes {axes}", remedy)
    return 0


def _grey(source: Source, plane: int) -> np.ndarray:
    return source.read(plane).pixels


def _tell(progress: Progress, number: int, count: int, done: int, total: int, what: str) -> None:
    """Progress of one volume as a part of the whole."""
    progress(number * total + done, count * total, what)
