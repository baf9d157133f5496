"""What the processes of the crew do: one reads what clients send, others restore.

Every function's first argument is `tell`: it sends something to the server, and raises `Stopped` when the work is no
longer wanted. What is sent, and what functions return, is JSON; `tell` takes bytes too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from slir import io
from slir.files import jobs
from slir.files.jobs import Job, Outcome, Watch, run
from slir.io.codecs import leave_out_rare_codecs
from slir.io.picture import range_of
from slir.problem import tasks
from slir.web import crew, display, trust
from slir.web.crops import preview
from slir.web.display import View
from slir.web.problems import Problem

Tell = Callable[..., None]
PREVIEWS = 12
"""Estimates that are kept of one job: of more, the oldest go."""


# --- The reader: everything that decodes a client's file, but for restoring it -------------------------------------


def look(tell: Tell, path: Path, most_pixels: int) -> dict[str, Any]:
    """What an image file holds, decoded once so that damage is found now; tells a picture of it, as PNG."""
    with io.open_source(path) as source:
        head = source.head
        height, width = head.size
        if height * width * head.planes > most_pixels:
            planes = f" in {head.planes} planes" if head.planes > 1 else ""
            detail = f"It has {width} × {height} pixels{planes}; the limit is {most_pixels:,}."
            remedy = "Crop it or make it smaller, or restore it with the command line."
            raise Problem(413, "The picture is too large", detail, remedy=remedy)
        pixels = source.read().pixels
        for plane in range(1, head.planes):
            tell()
            source.read(plane)
    view = display.view_of(pixels)
    tell(display.png(display.reduced(view.shown(pixels), display.LARGEST)))
    holes = pixels.dtype.kind == "f" and not np.isfinite(pixels).all()
    return {
        "width": width,
        "height": height,
        "colour": head.colour,
        "dtype": str(head.dtype),
        "planes": head.planes,
        "data_range": head.data_range,
        "orientation": head.meta.orientation,
        "notes": list(head.notes),
        **({"task_hint": next(name for name, task in tasks().items() if task.masked)} if holes else {}),
        "view": (view.black, view.white),
    }


def show(tell: Tell, path: Path, view: View, most: int, plane: int = 0) -> None:
    """Tells a plane of an image file, as PNG."""
    tell(display.png(_shown(path, view, most, plane)))


def _shown(path: Path, view: View, most: int, plane: int = 0) -> np.ndarray:
    with io.open_source(path) as source:
        pixels = source.read(plane).pixels
    return display.reduced(view.shown(pixels), most)


def kernel(tell: Tell, path: Path, widest: int) -> list[list[float]]:
    """The rows of a blur kernel from a file."""
    found = io.read_psf(path)
    if found.ndim != 2:
        detail = "The page restores planes, and this kernel has three axes."
        raise Problem(422, "The kernel is not a plane", detail, argument="psf", remedy="Use slir deblur for volumes.")
    if max(found.shape) > widest:
        detail = f"It has {found.shape[1]} × {found.shape[0]} pixels; the limit is {widest} × {widest}."
        raise Problem(413, "The kernel is too large", detail, argument="psf", remedy="Crop it to its support.")
    return found.tolist()


def mask(tell: Tell, path: Path, size: tuple[int, int]) -> float:
    """The share of pixels that a mask says are missing."""
    return float(io.read_mask(path, size).mean())


def check(tell: Tell, job: Job) -> None:
    """Raise what can be said of a job before the work begins."""
    job.check()


def values(tell: Tell, paths: list[Path], plane: int, row: int, col: int) -> list[list[float | None] | None]:
    """A pixel's value in a plane of each file, by channel; None where a file does not reach so far."""
    found: list[list[float | None] | None] = []
    for path in paths:
        with io.open_source(path) as source:
            inside = row < source.size[0] and col < source.size[1]
            pixel = source.read(plane, slice(row, row + 1), slice(col, col + 1)).pixels if inside else None
        found.append(None if pixel is None else trust.plain(np.ravel(pixel).astype(np.float64)))
    return found


def serve_reader(connection: Connection, memory: int | None) -> None:
    leave_out_rare_codecs()
    skills: dict[str, Callable[..., Any]] = {
        "look": look,
        "show": show,
        "kernel": kernel,
        "mask": mask,
        "check": check,
        "values": values,
    }
    crew.serve(connection, memory, skills, writes=False)


# --- Those who restore ---------------------------------------------------------------------------------------------


def warm(tell: Tell, device: str | None) -> None:
    """Load what every restoration needs, and do a small one, so that the first click does not wait for it."""
    import slir

    rng = np.random.default_rng(0)
    slir.denoise(rng.normal(128, 20, (64, 64)).clip(0, 255).astype(np.uint8), sigma=20, device=device)


@dataclass
class Previews:
    """Estimates of the first plane as numbered pictures in a folder, no more often than they are worth their time."""

    folder: Path
    view: View
    tell: Tell
    number: int = 0
    stage: int = 0
    stages: int = 0
    due: float = 0.0
    kept: list[Path] = field(default_factory=list)

    def progress(self, done: int, total: int, what: str) -> None:
        """Planes may have stages of their own number, each counting as if all were like it: never go back."""
        self.stages = self.stages or total
        self.stage = max(self.stage, done * self.stages // total)
        self.tell(("progress", self.stage, self.stages))

    def observe(self, plane: int, image: np.ndarray) -> None:
        self.tell()
        began = time.monotonic()
        if plane or began < self.due:
            return
        self.number = max(self.number + 1, self.stage + 1)  # progress has told the stage that began
        path = preview_of(self.folder, self.number)
        display.keep(path, display.reduced(self.view.shown(image), display.LARGEST))
        self.kept.append(path)
        while len(self.kept) > PREVIEWS:
            self.kept.pop(0).unlink(missing_ok=True)
        now = time.monotonic()
        self.due = now + 4 * (now - began)
        self.tell(("preview", self.number))


def preview_of(folder: Path, stage: int) -> Path:
    return folder / f"preview-{stage}.png"


def restore(tell: Tell, job: Job, folder: Path, view: View, trusted: bool) -> dict[str, Any]:
    """Do a job as the command line does it, into the same bytes; what there is to look at goes into `folder`.

    trusted : whether to find the error to expect too.
    """
    previews = Previews(folder, view, tell)
    trust.KEPT.pop(folder, None)
    finds: dict[str, Any] = {"error": False, "error_reason": trust.TOO_LARGE if trusted else trust.UNASKED}

    def keep(plane: int, result: Any) -> None:
        if plane == 0:
            finds.update(forward=result.stats.get("forward"))
        if plane == 0 and trusted:
            finds.update(trust.keep(folder, result))
            trust.remember(folder, result)

    outcome = run(job, watch=Watch(previews.progress, previews.observe, keep))
    display.keep(folder / "view.png", _shown(job.output, view, display.LARGEST))
    return trust.plain(_found(outcome, job) | finds)


def explain(tell: Tell, job: Job, folder: Path, plane: int, row: int, col: int, k: int) -> dict[str, Any]:
    """The patches behind a pixel of a job that is done. Where the `Result` of the first plane is no longer at hand the
    job is done again, which gives the same. Of other planes, only what the pixel needs is restored."""
    if plane:
        return trust.explained(lambda: jobs.explain(job, (row, col), k=k, plane=plane))
    result = trust.KEPT.get(folder)
    if result is None:
        results: dict[int, Any] = {}
        again = folder / "again"
        again.mkdir(mode=0o700, exist_ok=True)
        try:
            watch = Watch(lambda *_: tell(), keep=lambda plane, own: results.setdefault(plane, own))
            run(replace(job, output=again / job.output.name), sidecar=False, watch=watch)
        finally:
            shutil.rmtree(again, ignore_errors=True)
        if 0 not in results:
            raise Problem(409, "There is nothing to show", trust.TOO_LARGE)
        result = results[0]
    trust.remember(folder, result)
    if not hasattr(result, "explain"):
        raise Problem(409, "There is nothing to show", trust.UNCALIBRATED)
    return trust.explained(lambda: result.explain(row, col, k))


def _found(outcome: Outcome, job: Job) -> dict[str, Any]:
    height, width = (side * job.problem.factor for side in outcome.size)
    found = {
        "width": width,
        "height": height,
        "sigma": outcome.sigma,
        "residual": outcome.residual,
        "noise": outcome.noise,
        "warnings": list(outcome.warnings),
        "notes": list(outcome.notes),
        "unit_text": _unit(outcome, job),
    }
    return found


def _unit(outcome: Outcome, job: Job) -> str:
    """What numbers of pixel values count in."""
    white = range_of(np.dtype(outcome.dtype)) if job.data_range is None else job.data_range
    if white is None:
        return "pixel values"
    low, high = white if isinstance(white, tuple) else (0.0, white)
    return f"pixel values, {low:g} to {high:g}"


def serve_restorer(connection: Connection, memory: int | None) -> None:
    # Before memory is limited: where there is too little to begin with, libraries look for it for ever.
    leave_out_rare_codecs()
    import scipy.linalg  # noqa: F401
    import torch  # noqa: F401

    skills: dict[str, Callable[..., Any]] = {"warm": warm, "restore": restore, "explain": explain}
    skills["preview"] = preview
    crew.serve(connection, memory, skills)
