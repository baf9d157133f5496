"""A crop of a picture, restored with the settings of a job: what the page shows before the whole is restored."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from slir import io
from slir.files.jobs import Job, caught, open_missing, work_of
from slir.files.provenance import problem_settings
from slir.io import Head, Picture
from slir.web import display
from slir.web.display import View

SIDE = 144
"""Pixels of a side of the crop, of the result."""

HALO = (48, 128)
"""Fewest and most pixels around the crop that are restored with it."""

_NOISE: dict[tuple[Any, ...], float] = {}
_REMEMBERED = 64


def preview(tell: Callable[..., None], job: Job, plane: int, row: int, col: int, view: View) -> dict[str, Any]:
    """The crop around a pixel before and after, as PNG in base64; where it lies, and the noise that was assumed.

    "auto" is the noise of the whole plane. It is estimated once for each picture, so that the next preview is quick.
    """
    with caught():
        if job.problem.sigma == "auto":
            job = job.with_settings(sigma=_noise(job, plane))
        if job.problem.options.get("border") == "circular":  # which a crop is not
            job = job.with_settings(border="unknown")
        head = _head(job.image)
        factor = job.problem.factor
        margin = int(np.clip(job.problem.operator().reach + 1, *HALO)) // factor
        axes = [_span(centre, SIDE // factor, margin, side) for centre, side in zip((row, col), head.size)]
        (rows, seen_rows), (cols, seen_cols) = axes
        picture = _window(job.image, plane, *seen_rows, *seen_cols)
        tell()
        sigma, after = _restored(job, head, picture)
    inside = [slice(own[0] - seen[0], own[1] - seen[0]) for own, seen in axes]
    fine = [slice(factor * part.start, factor * part.stop) for part in inside]
    return {
        "row": rows[0],
        "col": cols[0],
        "height": rows[1] - rows[0],
        "width": cols[1] - cols[0],
        "sigma": sigma,
        "before": _shown(view, picture.pixels[inside[0], inside[1]]),
        "after": _shown(view, after[fine[0], fine[1]]),
    }


class _Crop:
    """A window of a plane as a source, and as the sink of its result."""

    def __init__(self, picture: Picture):
        self.picture = picture

    def read(self, plane: int) -> Picture:
        return self.picture

    def write(self, picture: Picture, *, plane: int) -> None:
        self.picture = picture


def _restored(job: Job, head: Head, picture: Picture) -> tuple[Any, np.ndarray]:
    """σ and the pixels of the result."""
    from slir.files.restore_file import restore_whole

    crop: Any = _Crop(picture)
    sigma, _ = restore_whole(crop, 0, crop, work_of(job, head, missing=None))
    return sigma, crop.picture.pixels


def _noise(job: Job, plane: int) -> float:
    """The noise of a plane as a restoration of all of it estimates it: the root mean square of its channels."""
    from slir.files.restore_file import Windows

    key = (job.image, plane, job.problem.task.name, json.dumps(problem_settings(job.problem)), job.data_range)
    if key not in _NOISE:
        with io.open_source(job.image) as source, open_missing(job, source.head) as missing:
            decision = Windows(source, plane, work_of(job, source.head, missing=missing)).decision
        if len(_NOISE) >= _REMEMBERED:
            _NOISE.clear()
        _NOISE[key] = float(np.sqrt(np.mean(np.square(np.multiply(decision.treatment.sigmas, decision.spans)))))
    return _NOISE[key]


@lru_cache(maxsize=_REMEMBERED)
def _head(path: Path) -> Head:
    with io.open_source(path) as source:
        return source.head


@lru_cache(maxsize=8)
def _window(path: Path, plane: int, top: int, bottom: int, left: int, right: int) -> Picture:
    with io.open_source(path) as source:
        return source.read(plane, slice(top, bottom), slice(left, right))


def _span(centre: int, side: int, margin: int, length: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Begin and end of the crop along one axis, and of the crop with its margin."""
    start = max(0, min(centre - side // 2, length - side))
    stop = min(length, start + side)
    return (start, stop), (max(0, start - margin), min(length, stop + margin))


def _shown(view: View, pixels: np.ndarray) -> str:
    return base64.b64encode(display.png(view.shown(pixels))).decode()
