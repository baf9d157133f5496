"""One file restored: what to do to it, said once; checked, done, and written down so that it can be done again.

job = Job(Problem("denoise"), Path("night.png"), Path("clean.png"))
outcome = run(job)                        # writes clean.png and clean.png.json
again = provenance.load("clean.png.json")   # the same job, to be run again: the same bytes
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slir import io
from slir.errors import FileError, InputError
from slir.files.atomic_output import ERROR_MAPS, INTERVALS, maps_of, sidecar_of, staged
from slir.files.warning_log import caught
from slir.preprocessing.resampling import Reduction
from slir.problem import NAN, Problem, parse_sigma

if TYPE_CHECKING:
    from slir.files.restore_file import Found, Work
    from slir.trust.explain import Explanation

Progress = Callable[[int, int, str], None]
Restore = Callable[[io.Source, io.Sink, "Work", Progress | None], "Found"]
LOWEST, HIGHEST = 5, 99
"""Intervals that calibrations know, in percent."""


@dataclass(frozen=True, eq=False)
class Job:
    """What to do to one file.

    problem : the task and its settings. Its sigma may be "10%" of the range of the pixel values, its mask an image that
        is not black where a pixel is missing, or "nan" where such pixels are NaN.
    made_by : in words, where the blur kernel came from, for whoever reads the sidecar.
    model : a file that `slir fit` wrote; None for the one inside slir.
    data_range : white, or (black, white); None for what the file says.
    called : the image's name for people, where the file has another.
    threads : cores that the work may use; None for all. Sums in another order differ in their last bits, so the same
        bytes need the same number.
    error_map : write the errors to expect beside the output too, as `slir.files.atomic_output.maps_of` names them.
    interval : write the bounds that hold the true pixel so many times out of a hundred, likewise; None for none.
    """

    problem: Problem
    image: Path
    output: Path
    made_by: str = ""
    model: Path | None = None
    data_range: float | tuple[float, float] | None = None
    device: str | None = None
    seed: int = 0
    threads: int | None = None
    called: str = ""
    error_map: bool = False
    interval: float | None = None

    def __post_init__(self) -> None:
        parse_sigma(self.problem.sigma)
        if self.threads is not None and self.threads < 1:
            raise InputError("threads", "be at least 1", self.threads, "Pass the number of cores to use.")
        if self.interval is not None and not LOWEST <= self.interval <= HIGHEST:
            rule, remedy = f"lie between {LOWEST} and {HIGHEST}", "90 holds the true pixel nine times out of ten."
            raise InputError("interval", rule, self.interval, remedy)

    def at_size(self, head: io.Head) -> Job:
        """The job with the settings that depend on the size of a file."""
        return replace(self, problem=self.problem.at_size(head.size))

    def with_settings(self, **settings: Any) -> Job:
        """The same job of a problem with other settings."""
        return replace(self, problem=self.problem.replace(**settings))

    @property
    def inputs(self) -> dict[str, Path]:
        """The files that are read, but for the model: "input" and "mask"."""
        mask = self.problem.mask
        return {"input": self.image, **({"mask": mask} if isinstance(mask, Path) else {})}

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All files that are asked for, but for the sidecar."""
        return (self.output, *self.maps(self.output).values())

    def maps(self, output: Path) -> dict[str, Path]:
        """The error maps and intervals that are asked for, by kind, beside an output."""
        kinds = (*(ERROR_MAPS if self.error_map else ()), *(() if self.interval is None else INTERVALS))
        return {kind: path for kind, path in maps_of(output).items() if kind in kinds}

    def check(self) -> io.Head:
        """Raise what can be said before the work begins; else what the file holds. Nothing is written."""
        io.check_output(self.output)
        with io.open_source(self.image) as source:
            head = source.head
            sized = self.at_size(head)
            io.check_output(self.output, head.scaled(sized.problem.scale))
        self._limits(head)
        with open_missing(self, head):
            pass  # the mask is there, and of the image's size
        _check_model(self)
        check_errors(sized)
        return head

    def _ends(self, head: io.Head) -> tuple[float, float] | None:
        """Black and white; None where nobody says it."""
        limits, _ = self._limits(head)
        return limits if limits is None or isinstance(limits, tuple) else (0.0, limits)

    def _limits(self, head: io.Head) -> tuple[float | tuple[float, float] | None, float | str]:
        """The range of the pixel values and σ in their units; errors where only the user can know them."""
        limits = head.data_range if self.data_range is None else self.data_range
        if limits is None and head.dtype.kind == "f" and not self.problem.volumetric:
            rule = "be given for an image of floats"
            raise InputError("data_range", rule, "missing", "Pass 1 where white is 1, 255 where white is 255.")
        kind, value = parse_sigma(self.problem.sigma)
        if kind != "percent":
            return limits, value
        if limits is None:
            rule = "be in pixel values where their range is not known"
            remedy = "Pass it in pixel values, or specify the data range."
            raise InputError("sigma", rule, repr(self.problem.sigma), remedy)
        low, high = limits if isinstance(limits, tuple) else (0.0, limits)
        assert isinstance(value, float)  # a percentage is one
        return limits, value / 100 * (high - low)


@dataclass(frozen=True)
class Outcome:
    """What was done. `sigma` and `residual` count in pixel values: one number, or one a channel; of a stack, the
    mean over its planes. `noise` : what was estimated, in words; empty where nothing was. `memory` : the most that the
    process has held so far, in bytes; None where the system does not say. `error_maps`, `intervals` : files beside the
    output, where they were asked for and there are any.
    """

    seconds: float
    size: tuple[int, int]
    layout: str
    dtype: str
    planes: int = 1
    sigma: float | tuple[float, ...] | None = None
    residual: float | tuple[float, ...] | None = None
    noise: str = ""
    memory: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error_maps: tuple[str, ...] = ()
    intervals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Watch:
    """Who looks on. What they raise ends the work.

    progress : called as progress(done, total, what).
    observe : called as observe(plane, image) with the estimate after each stage.
    keep : called as keep(plane, result) with the `slir.tasks.Result` of each plane.
    Planes too large to be held (`slir.files.restore_file.LARGE`) report progress alone.
    """

    progress: Progress | None = None
    observe: Callable[[int, np.ndarray], None] | None = None
    keep: Callable[[int, Any], None] | None = None


def run(
    job: Job,
    *,
    sidecar: bool = True,
    progress: Progress | None = None,
    watch: Watch | None = None,
    restore: Restore | None = None,
) -> Outcome:
    """Restore a file: its output is put in place whole, with its sidecar, or not at all.

    sidecar : write `OUT.json` beside the output. Without it, one that tells of the output's predecessor is removed.
    progress : called as progress(done, total, what). watch : the same, for those who want to see more.
    restore : what restores an open file into another; None for `slir.files.restore_file`, which does it here.
    """
    from slir.compute import peak_memory
    from slir.files import provenance

    watch = Watch(progress) if watch is None else watch
    job.check()
    place = sidecar_of(Path(os.path.realpath(job.output)))
    ours = provenance.is_sidecar(place)
    older = provenance.load(place).maps() if ours else {}
    if sidecar and place.exists() and not ours:
        raise FileError(place, "exists already and is not a sidecar of slir", "Move it, or restore without a sidecar.")
    with caught() as told, staged(job.output) as stage, using_threads(job.threads) as threads:
        start = time.perf_counter()
        inputs = provenance.fingerprints(job) if sidecar else {}  # before the work: the output may replace the image
        engine = _engine if restore is None else partial(_engine, restore=restore)
        head, found = engine(job, stage.output, watch)
        made = {kind: path for kind, path in job.maps(job.output).items() if stage.maps[kind].exists()}
        outcome = Outcome(
            seconds=time.perf_counter() - start,
            size=head.size,
            layout=head.layout,
            dtype=str(head.dtype),
            planes=head.planes,
            memory=peak_memory(),
            notes=head.notes,
            warnings=told(),
            error_maps=tuple(str(made[kind]) for kind in ERROR_MAPS if kind in made),
            intervals=tuple(str(made[kind]) for kind in INTERVALS if kind in made),
            **found,
        )
        if sidecar:
            provenance.write(stage, job, outcome, inputs=inputs, threads=threads)
        elif ours:
            place.unlink()
    for kind, path in older.items():  # else they would be taken for those of the new output
        if kind not in made:
            path.unlink(missing_ok=True)
    return outcome


def _engine(job: Job, output: Path, watch: Watch, *, restore: Restore | None = None) -> tuple[io.Head, dict[str, Any]]:
    """Where files meet the restoration: job.image plane by plane into `output`; and what was found on the way."""
    from slir.trust.files import ErrorMaps

    with ExitStack() as opened:
        source = opened.enter_context(io.open_source(job.image))
        missing = opened.enter_context(open_missing(job, source.head))
        job = job.at_size(source.head)
        problem = job.problem
        notes: tuple[str, ...] = ()
        sink: Any = io.create(output, source, scale=problem.scale, centred=problem.centred, history=_history(job))
        reduction, large = None, source.head.scaled(problem.factor)
        if problem.factor != problem.scale:
            reduction = Reduction(problem.scale / problem.factor, centred=problem.centred)
            sink = io.ReducedSink(sink, reduction, large.size, limits=job._ends(source.head))
            notes = (f"restored at {problem.factor} times its size, then reduced to {problem.scale:.6g} times",)
        seen: dict[str, Any] = {"observe": watch.observe, "keep": watch.keep}
        if places := job.maps(output):
            maps = opened.enter_context(ErrorMaps(places, large, source.head.scaled(problem.scale), reduction))
            seen |= {"errors": maps.take}
        if restore is not None and problem.volumetric:
            raise InputError("cluster", "be left out for volumes", "asked for", "Restore the file on one machine.")
        own = job if restore is None else replace(job, device=None)  # the device is then others' affair
        work = work_of(own, source.head, missing=missing, **seen)
        with sink:
            found = (restore or _restorer(problem))(source, sink, work, watch.progress)
        head = replace(source.head, notes=(*source.head.notes, *notes, *found.notes))
        stored = f"JPEG of quality {head.quality}" if found.noise and head.quality else ""
        noise = "; ".join(filter(None, (found.noise, stored)))
        return head, {"sigma": found.sigma, "residual": found.residual, "noise": noise}


def _restorer(problem: Problem) -> Restore:
    """What restores the planes, or the volumes, of a file."""
    from slir.files.restore_file import restore_file
    from slir.files.restore_stack import restore_volumes

    return restore_volumes if problem.volumetric else restore_file


def work_of(job: Job, head: io.Head, *, missing: Any, **seen: Any) -> Work:
    """What to do to each plane of a file. missing : by windows, from `open_missing`. seen : whom to tell of it."""
    from slir.files import restore_file

    limits, sigma = job._limits(head)
    problem = job.problem.at_size(head.size).at_whole_scale().replace(sigma=sigma)
    settings: dict[str, Any] = {"model": load_model(job), "device": job.device, "seed": job.seed, **seen}
    settings |= {"level": None if job.interval is None else job.interval / 100}
    return restore_file.Work(problem, limits, missing=missing, **settings)


@contextmanager
def open_missing(job: Job, head: io.Head) -> Iterator[Any]:
    """Give where pixels are missing, by windows, while the mask's file is open; None where no file says it."""
    mask = job.problem.mask
    if isinstance(mask, Path):
        with io.open_mask(mask, head.size) as missing:
            yield missing
    elif mask is None or head.dtype.kind == "f":
        yield None
    else:
        remedy = "Pass an image of the missing pixels."
        raise InputError("mask", "be a file for images of integers, which hold no NaN", repr(NAN), remedy)


def explain(job: Job, at: tuple[int, int], *, k: int = 16, plane: int = 0) -> Explanation:
    """What the pixel `at` (row, col) of the job's output would be made from: the k examples that say most. Nothing is
    written, and no more is restored than the pixel needs. plane : of a stack."""
    from slir.files import restore_file

    if job.problem.volumetric:
        raise InputError("psf", "have two axes for explanations", "of three axes", "Explain a plane with its own PSF.")
    with io.open_source(job.image) as source, open_missing(job, source.head) as missing:
        if not 0 <= plane < source.planes:
            rule = f"lie in 0 … {source.planes - 1}"
            raise InputError("plane", rule, plane, "It counts the pages or slices of the file from 0.")
        return restore_file.explain(source, plane, work_of(job, source.head, missing=missing), at, k=k)


def _history(job: Job) -> list[str]:
    """Lines for formats that keep a history. The same job always writes the same."""
    from slir import __version__

    return [f"slir {__version__}: {job.problem.task.name} of {job.called or job.image.name}, sigma {job.problem.sigma}"]


def _check_model(job: Job) -> None:
    if job.model is not None and not job.model.is_file():
        raise FileError(job.model, "there is no such model file", "Check the path, or make one with slir fit.")


def check_errors(job: Job) -> None:
    """Raise where an error map or an interval is asked for that cannot be had, before the work begins."""
    problem = job.problem
    if problem.volumetric and job.maps(job.output):
        remedy = "Leave it out: errors to expect are calibrated for planes."
        raise InputError("error maps and intervals", "be left out for volumes", "asked for", remedy)
    if job.interval is not None and problem.factor != problem.scale:
        rule = "be left out where the factor is not whole"
        found = f"{job.interval:g} for a factor of {problem.scale:.6g}"
        raise InputError("interval", rule, found, f"Pass a factor of {problem.factor}, or ask for an error map.")
    if not job.maps(job.output):
        return
    taken = {os.path.realpath(path) for path in (*job.inputs.values(), job.model) if path is not None}
    for path in job.outputs[1:]:
        if os.path.realpath(path) in taken:
            raise FileError(
                path,
                "is read from, and would be replaced by an error map or an interval",
                "Choose another output name.",
            )
    from slir.kernel.shipped import default_model

    model = load_model(job) or default_model(problem.operator())
    if model.learnt and model.trust is None:
        asked = "an error map" if job.error_map else "an interval"
        remedy = f"slir calibrate adds what it needs to a model; or do not ask for {asked}."
        raise InputError("model", f"be calibrated where {asked} is asked for", "without calibration", remedy)


def load_model(job: Job) -> Any:
    """The job's model, kept for the next file; None for those inside slir, which are kept anyway."""
    if job.model is None:
        return None
    _check_model(job)
    stat = job.model.stat()
    return _load_cached(job.model, job.device, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _load_cached(path: Path, device: str | None, *version: int) -> Any:
    import slir

    return slir.load(path, device=device)


@contextmanager
def using_threads(wanted: int | None) -> Iterator[int]:
    """Give the number of cores that the work uses, which is `wanted` while the block lasts."""
    import torch

    before = torch.get_num_threads()
    if wanted is None:
        yield before
        return
    torch.set_num_threads(wanted)
    try:
        yield wanted
    finally:
        torch.set_num_threads(before)
