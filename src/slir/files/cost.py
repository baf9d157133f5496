"""How long a restoration will take and how much memory: estimates, from small ones made on the spot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import isqrt, prod

import numpy as np

from slir.compute.devices import pick_device
from slir.compute.memory import CPU_TILES
from slir.errors import InputError
from slir.estimator.tiling import cut, tile_side
from slir.files.jobs import Job, load_model, using_threads
from slir.files.restore_file import LARGE
from slir.files.warning_log import caught
from slir.io import Head
from slir.kernel.shipped import default_model
from slir.problem import parse_sigma
from slir.restoration import Settings, restore_image

PATIENCE = 0.5
"""Seconds that timing may take once all is loaded; more only where the smallest picture does."""

LEAST, MOST = 64, 1024
"""Sides of the pictures that are timed, in pixels of the result."""

EXAMINED = 2**19
"""Pixels of a plane from which on the estimates of its noise take no longer."""

BASE = 450 * 2**20
"""Bytes that Python, torch and a model take."""

PER_PIXEL = 760
"""Bytes that a pixel of the result takes while it is restored, up to the size of a tile."""


@dataclass(frozen=True)
class Estimate:
    """seconds, and bytes of memory at most, that a file will take."""

    seconds: float
    memory: int


@dataclass(frozen=True)
class Pace:
    """Seconds that a plane takes: `fixed`, `each` for every pixel that is restored, halos of tiles included, and
    `examined` for every pixel of the image up to EXAMINED."""

    fixed: float
    each: float
    examined: float


def estimate(job: Job, head: Head, pace: Pace) -> Estimate:
    """For a file of which the head is known. pace : of such files, by `calibrate`."""
    pixels = head.size[0] * head.size[1] * job.problem.factor**2
    channels = 3 if head.colour else 1
    at_once = min(pixels, LARGE)  # larger planes are restored by windows
    held = at_once * channels * 8 + (at_once if head.large else pixels) * channels * 2 * head.dtype.itemsize
    plane = pace.fixed + pace.each * _with_halos(job, head) + pace.examined * min(prod(head.size), EXAMINED)
    return Estimate(head.planes * plane, BASE + min(PER_PIXEL * pixels, CPU_TILES) + held)


def _with_halos(job: Job, head: Head) -> int:
    """Pixels of a plane of the result, those counted again that several tiles see."""
    problem = job.problem.at_whole_scale()
    operator = problem.operator(head.size)
    model = load_model(job) or default_model(operator)
    pieces = list(cut(head.size, operator, model, tile_side(model, pick_device(job.device), head.size, operator)))
    whole = prod(head.size) if any(piece.operator is None for piece in pieces) else 0
    return problem.factor**2 * (whole or sum(prod(axis.stop - axis.start for axis in piece.seen) for piece in pieces))


def calibrate(job: Job, *, colour: bool = False) -> Pace:
    """On this machine, as busy as it is: the job, done to pictures of our own, as large as PATIENCE allows. What
    restoring these takes beyond the smallest one is the cost of their pixels."""
    if job.problem.volumetric:
        raise InputError("a dry run", "be of planes", "of volumes", "Try a part of the stack to see how long it takes.")
    factor = job.problem.factor
    side = small = max(16, LEAST // factor, job.problem.operator().reach + 1)
    _seconds(job, small, colour)  # to load what is loaded once
    end = time.perf_counter() + PATIENCE
    examining, restoring = _seconds(job, small, colour)
    first = restoring
    while (growth := min((end - time.perf_counter()) / (examining + restoring), (MOST / (side * factor)) ** 2)) >= 1.5:
        side = isqrt(int(growth * (side * factor) ** 2)) // factor
        examining, restoring = _seconds(job, side, colour)
    pixels = (side * factor) ** 2
    more = pixels - (small * factor) ** 2
    each = (restoring - first) / more if more else 0.0
    each = each if each > 0 else restoring / pixels  # there was no time for another, or the machine has hiccups
    return Pace(max(0.0, restoring - each * pixels), each, examining / side**2)


def _seconds(job: Job, side: int, colour: bool) -> tuple[float, float]:
    """What examining a picture takes, before it is restored and after, and what restoring it takes."""
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:side, :side]
    texture = 128 + 60 * np.sin(rows / 3) * np.cos(cols / 5)
    texture = np.stack([texture] * 3, -1) if colour else texture
    pixels = (texture + rng.normal(0, 8, texture.shape)).clip(0, 255).astype(np.float32)
    kind, sigma = parse_sigma(job.problem.sigma)
    problem = job.problem.at_whole_scale().replace(sigma=sigma if kind == "name" else 8.0 if sigma else 0.0)
    if problem.task.masked:
        problem = problem.replace(mask=rng.random((side, side)) < 0.2)
    steps: list[float] = []
    settings = Settings(
        model=load_model(job),
        data_range=255.0,
        channel_axis=-1 if colour else None,
        device=job.device,
        rng=job.seed,
        progress=lambda *_: steps.append(time.perf_counter()),
        return_info=True if job.maps(job.output) else "stats",
    )
    start = time.perf_counter()
    with using_threads(job.threads), caught():  # what speaks against a texture of ours is nobody's concern
        restore_image(pixels, problem, settings)
    whole = time.perf_counter() - start
    restoring = steps[-1] - steps[0] if steps else 0.0
    return whole - restoring, restoring
