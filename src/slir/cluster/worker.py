"""What a worker does: it is equipped once for a job, then restores tiles of it.

Its model is sent to it once, with the job, by Dask's plugins; a worker that joins later, or takes the place of one that
died, is equipped too. Images are read and tiles written by the workers themselves, from and to disks that all see.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import Any

from distributed import WorkerPlugin

from slir import io
from slir.cluster.folder import Folder, Tile
from slir.cluster.process import check_release, settle_in
from slir.errors import FileError, SlirError
from slir.estimator.tiling import Piece
from slir.files import restore_file
from slir.files.jobs import Job, open_missing, using_threads, work_of
from slir.files.warning_log import caught
from slir.io import Picture
from slir.model import Model
from slir.preprocessing.windows import Decision
from slir.result import Uncertainty


@dataclass(frozen=True, eq=False)
class Kit:
    """All that a worker needs for a job.

    token: the run's name. model: as it was loaded, without the job's device; None for those inside slir.
    cut: whether planes are restored by windows. release: of the slir that sends it.
    """

    token: str
    job: Job
    model: Model | None
    folder: Folder
    cut: bool
    release: tuple[str, str]


class Equip(WorkerPlugin):
    """Gives a worker its kit."""

    idempotent = True

    def __init__(self, kit: Kit):
        self.kit, self.name = kit, f"slir-{kit.token}"

    def setup(self, worker: Any) -> None:
        try:
            self._check(worker)
        except SlirError as error:
            _REFUSED[self.kit.token] = error  # of a worker that joins later, Dask only logs it
            raise
        _KITS[self.kit.token] = self.kit

    def _check(self, worker: Any) -> None:
        check_release(self.kit.release, worker.address)
        for path in (*self.kit.job.inputs.values(), self.kit.folder.path):
            if not path.exists():
                remedy = "Put images and outputs on a disk that all machines of the cluster see under the same name."
                raise FileError(path, f"cannot be seen by the worker at {worker.address}", remedy)

    def teardown(self, worker: Any) -> None:
        _KITS.pop(self.kit.token, None)
        _REFUSED.pop(self.kit.token, None)
        for key in [key for key in _BENCHES if key[0] == self.kit.token]:
            _BENCHES.pop(key).opened.close()


_KITS: dict[str, Kit] = {}
_REFUSED: dict[str, SlirError] = {}
"""Why a worker is no good for a job: it has another slir, say, since it was installed anew meanwhile."""

_BENCHES: dict[tuple[str, int], _Bench] = {}


@dataclass(eq=False)
class _Bench:
    """Files that are open, and what to do to them. A thread has its own."""

    kit: Kit
    opened: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        job = self.kit.job
        self.source = self.opened.enter_context(io.open_source(job.image))
        missing = self.opened.enter_context(open_missing(job, self.source.head))
        model = None if self.kit.model is None else self.kit.model.to(job.device or "cpu")
        self.work = replace(work_of(replace(job, model=None), self.source.head, missing=missing), model=model)
        self.pieces: list[Piece] = []
        if self.kit.cut:
            self.pieces = restore_file.pieces_of(
                self.source.size, self.work, lead_model(self.work, self.source), self.side
            )

    @property
    def side(self) -> int:
        return self.kit.folder.side

    @property
    def errors(self) -> bool:
        """Whether errors to expect are asked for."""
        return bool(self.kit.job.maps(self.kit.job.output))


def _bench(token: str) -> _Bench:
    key = (token, get_ident())
    if token in _REFUSED:
        raise _REFUSED[token]
    settle_in(_KITS[token].job.device)
    if key not in _BENCHES:
        _BENCHES[key] = _Bench(_KITS[token])
    return _BENCHES[key]


def lead_model(work: restore_file.Work, source: io.Source) -> Model:
    """The model that does most of the work, whose reach decides how tiles are cut."""
    from slir.kernel.shipped import default_model

    return work.model or default_model(work.problem.operator(source.size))


def decide(token: str, plane: int) -> tuple[Decision, tuple[str, ...]]:
    """What is the same for all tiles of a plane, from a sample; and warnings."""
    bench = _bench(token)
    with caught() as told, using_threads(1):
        windows = restore_file.Windows(bench.source, plane, bench.work, errors=bench.errors)
    return windows.decision.light(), told()


def restore_tile(token: str, plane: int, number: int, decided: tuple[Decision, tuple[str, ...]] | None) -> float:
    """Restore a tile into its file; seconds. What is there already is not done again.

    decided : None where the tile is all of its plane.
    """
    bench, start = _bench(token), time.perf_counter()
    place = bench.kit.folder.place(plane, number)
    if not place.exists():
        with using_threads(bench.kit.job.threads):
            tile = _whole(bench, plane) if decided is None else _window(bench, plane, number, *decided)
        tile.save(place)
    return time.perf_counter() - start


def _window(bench: _Bench, plane: int, number: int, decision: Decision, told: tuple[str, ...]) -> Tile:
    decision = decision.with_model(bench.work.model)
    windows = restore_file.Windows(bench.source, plane, bench.work, decision, errors=bench.errors)
    part = windows.restore_piece(bench.pieces[number])
    sigma, residual = part.found.tolist()
    said = {"sigma": sigma, "residual": residual, "noise": decision.noise_in_words, "spans": decision.spans}
    said["warnings"] = told
    return _tile(part.picture, said, part.uncertainty or Uncertainty())


def _tile(picture: Picture, said: dict[str, Any], own: Uncertainty) -> Tile:
    return Tile(picture.pixels, {**said, "reason": own.reason}, picture.alpha, own.error, own.low, own.high)


class _Kept:
    """In place of a sink and of a file of error maps: keeps what it is given."""

    def __init__(self) -> None:
        self.uncertainty = Uncertainty()

    def write(self, picture: Picture, *, plane: int) -> None:
        self.picture = picture

    def errors(self, plane: int, uncertainty: Uncertainty, window: restore_file.Window | None) -> None:
        self.uncertainty = uncertainty


def _whole(bench: _Bench, plane: int) -> Tile:
    kept = _Kept()
    work = replace(bench.work, errors=kept.errors if bench.errors else None)
    with caught() as told:
        found = restore_file.restore_whole(bench.source, plane, kept, work)  # type: ignore[arg-type]
    said = {**found._asdict(), "warnings": told()}
    return _tile(kept.picture, said, kept.uncertainty)
