"""How long a restoration will take and how much memory: estimates, from a small one made on the spot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from slir.compute.memory import CPU_TILES
from slir.io import Head
from slir.jobs import Job, load_model, parse_sigma, using_threads
from slir.streams import LARGE

SIDE = 128
"""Of the picture that is timed, in pixels of the result: the time a pixel hardly changes from there on."""

BASE = 450 * 2**20
"""Bytes that Python, torch and a model take."""

PER_PIXEL = 500
"""Bytes that a pixel of the result takes while it is restored, up to the size of a tile."""

COLOUR = 2.0
"""Colour costs as much as two grey pictures: its brightness, and two differences with half of the stages each."""


@dataclass(frozen=True)
class Estimate:
    """seconds, and bytes of memory at most, that a file will take."""

    seconds: float
    memory: int


def estimate(job: Job, head: Head, pace: float) -> Estimate:
    """For a file of which the head is known. pace : seconds a pixel, by `calibrate`."""
    pixels = head.size[0] * head.size[1] * job.scale**2
    channels = 3 if head.colour else 1
    at_once = min(pixels, LARGE)  # larger planes are restored by windows
    held = at_once * channels * 8 + (at_once if head.large else pixels) * channels * 2 * head.dtype.itemsize
    seconds = pace * pixels * head.planes * (COLOUR if head.colour else 1.0)
    return Estimate(seconds, BASE + min(PER_PIXEL * pixels, CPU_TILES) + held)


def calibrate(job: Job) -> float:
    """Seconds that a pixel of a grey result takes on this machine: the job, done to a small picture of our own."""
    small = max(16, -(-SIDE // job.scale))
    if job.psf is not None and job.task == "deblur":
        small = max(small, *job.psf.shape)
    _restore(job, small)  # once to load what is loaded once
    start = time.perf_counter()
    _restore(job, small)
    return (time.perf_counter() - start) / (small * job.scale) ** 2


def _restore(job: Job, side: int) -> None:
    from slir import tasks

    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:side, :side]
    texture = 128 + 60 * np.sin(rows / 3) * np.cos(cols / 5) + rng.normal(0, 8, (side, side))
    pixels = texture.clip(0, 255).astype(np.float32)
    own: dict[str, Any] = {"mask": rng.random(pixels.shape) < 0.2} if job.task == "inpaint" else job.own
    kind, sigma = parse_sigma(job.sigma)
    with using_threads(job.threads):
        getattr(tasks, job.task)(
            pixels,
            **own,
            sigma=sigma if kind == "name" else 8.0 if sigma else 0.0,
            model=load_model(job),
            data_range=255.0,
            device=job.device,
            rng=job.seed,
        )
