"""A crop of a picture, restored with the settings of a job: what the page shows before the whole is restored."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slir import io
from slir.files.jobs import Job, caught, open_missing, work_of
from slir.files.provenance import problem_settings
from slir.io import Head, Picture
from slir.problem import parse_sigma
from slir.web import display
from slir.web.display import View

if TYPE_CHECKING:
    from slir.preprocessing.windows import Decision

SIDE = 144
"""Pixels of a side of the crop, of the result."""

HALO = (48, 128)
"""Fewest and most pixels around the crop that are restored with it."""

_DECISIONS: dict[tuple[Any, ...], Decision] = {}
_REMEMBERED = 64


def preview(tell: Callable[..., None], job: Job, plane: int, row: int, col: int, view: View) -> dict[str, Any]:
    """The crop around a pixel before and after, as PNG in base64; where it lies, and the noise that was assumed.

    Noise that is to be estimated is that of the whole plane, estimated once for each picture. The next preview is then
    quick. Other decisions are made from the crop.
    """
    from slir.estimator.tiling import Piece
    from slir.files.restore_file import Windows

    with caught():
        if job.problem.options.get("border") == "circular":  # which a crop is not
            job = job.with_settings(border="unknown")
        head = _head(job.image)
        factor = job.problem.factor
        margin = int(np.clip(job.problem.operator().reach + 1, *HALO)) // factor
        (rows, seen_rows), (cols, seen_cols) = axes = [
            _span(centre, SIDE // factor, margin, side) for centre, side in zip((row, col), head.size)
        ]
        crop: Any = _Crop(_window(job.image, plane, *seen_rows, *seen_cols))
        decision = _decision(job, plane) if parse_sigma(job.problem.sigma)[0] == "name" else None
        tell()
        work = work_of(job, head, missing=None)
        down, across = (slice(own[0] - seen[0], own[1] - seen[0]) for own, seen in axes)
        inside = (down, across)
        piece = Piece(inside, (slice(None), slice(None)), inside, work.problem.operator(crop.size))
        part = Windows(crop, 0, work, decision).restore_piece(piece)
    noise = part.found[0].tolist()
    return {
        "row": rows[0],
        "col": cols[0],
        "height": rows[1] - rows[0],
        "width": cols[1] - cols[0],
        "sigma": noise if crop.colour else noise[0],
        "noise": "" if decision is None else decision.noise_in_words,
        "before": _shown(view, crop.read(0, *inside).pixels),
        "after": _shown(view, part.picture.pixels),
    }


@dataclass(frozen=True)
class _Crop:
    """A window of a plane as a source of its own."""

    picture: Picture

    @property
    def size(self) -> tuple[int, int]:
        return self.picture.size

    @property
    def colour(self) -> bool:
        return self.picture.channel_axis is not None

    def read(self, plane: int, rows: slice, cols: slice) -> Picture:
        alpha = self.picture.alpha
        alpha = None if alpha is None else alpha[rows, cols]
        return replace(self.picture, pixels=self.picture.pixels[rows, cols], alpha=alpha)


def _decision(job: Job, plane: int) -> Decision:
    """What a restoration of the whole plane decides."""
    from slir.files.restore_file import Windows

    everything = job.with_settings(strength=1.0) if "strength" in job.problem.options else job
    key = (job.image, plane, job.problem.task.name, json.dumps(problem_settings(everything.problem)), job.data_range)
    if key not in _DECISIONS:
        with io.open_source(job.image) as source, open_missing(job, source.head) as missing:
            decision = Windows(source, plane, work_of(everything, source.head, missing=missing)).decision
        if len(_DECISIONS) >= _REMEMBERED:
            _DECISIONS.clear()
        _DECISIONS[key] = decision
    decision = _DECISIONS[key]
    return replace(decision, treatment=replace(decision.treatment, amount=job.problem.amount))


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
