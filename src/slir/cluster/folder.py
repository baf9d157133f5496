"""Tiles that are done, in a hidden folder beside the output: a run that was killed goes on with them.

A tile is one .npz file, whole or not there, so it does not matter how often it is written, nor by whom. `run.json` says
which run the tiles belong to: the same image, settings, model and versions. Tiles of another run are thrown away.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from slir.errors import FileError
from slir.files.atomic_output import _lock, _unlock
from slir.files.jobs import Job

SUFFIX = ".slir-tiles"
VERSION = 3
RECORD = "run.json"
_OWN = re.compile(r"\d+-\d+\.npz|\.[0-9a-f]{32}\.tmp|" + re.escape(RECORD))
"""Names of the files that are written here. Nothing else is removed."""


_OPTIONAL = ("alpha", "error", "low", "high")
"""Arrays of a tile that not every one has."""


@dataclass(frozen=True, eq=False)
class Tile:
    """What a piece of a plane became.

    said: as JSON: "sigma" and "residual", "warnings", "spans" of windows, "reason" of `slir.result.Uncertainty`,
    whose arrays are error, low and high.
    """

    pixels: np.ndarray
    said: dict[str, Any]
    alpha: np.ndarray | None = None
    error: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def save(self, path: Path) -> None:
        """Write it whole. Two workers may do so at once: they write the same."""
        arrays = {name: getattr(self, name) for name in ("pixels", *_OPTIONAL)}
        given: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            with open(temporary, "xb") as stream:
                np.savez(stream, said=json.dumps(self.said, default=float), **given)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Tile:
        with np.load(path) as found:
            return cls(found["pixels"], json.loads(str(found["said"])), *(found.get(name) for name in _OPTIONAL))


@dataclass(frozen=True)
class Folder:
    """path: where the tiles of one output lie. side: of the tiles, which must not change halfway."""

    path: Path
    side: int

    def place(self, plane: int, number: int) -> Path:
        return self.path / f"{plane}-{number}.npz"

    def finished_tiles(self, wanted: list[tuple[int, int]]) -> set[tuple[int, int]]:
        """Which of these tiles, (plane, number), are there. One that a crash of the machine damaged is not."""
        there = {path.name for path in self.path.iterdir() if path.is_file()}
        candidates = [each for each in wanted if self.place(*each).name in there]
        return {each for each in candidates if _is_whole(self.place(*each))}


@contextlib.contextmanager
def tiles_of(job: Job, *, side: int) -> Iterator[Folder]:
    """Give the folder of a job's tiles, with what an earlier run of the same job left in it.

    side : of tiles, where there is no earlier run. The folder stays where the block fails, and is removed where it ends
    well. Raises FileError where another run has it.
    """
    target = Path(os.path.realpath(job.output))
    path = target.with_name(f".{target.name}{SUFFIX}")
    with _refusals(job.output):
        path.mkdir(exist_ok=True)
    if path.is_symlink():
        raise FileError(path, "is a link, but slir makes a folder of that name", "Remove it, or choose another output.")
    lock = _lock(path)
    if lock is None:
        raise FileError(job.output, "is being made by another run", "Wait for its end, or choose another name.")
    try:
        with _refusals(job.output):
            side = _same_run(path, job, side)
        yield Folder(path, side)
        with contextlib.suppress(OSError):  # files of others stay, and the folder with them
            _clear(path)
            path.rmdir()
    finally:
        _unlock(lock)


@contextlib.contextmanager
def _refusals(output: Path) -> Iterator[None]:
    """Say which output is meant where the system refuses something."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise FileError(output, reason, "Choose another output folder.") from error


def _same_run(path: Path, job: Job, side: int) -> int:
    """The side of the tiles that are there, if they are of this run; else begin anew with `side`."""
    record, identity = path / RECORD, identity_of(job)
    if record.is_file():
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # damaged
            found = json.loads(record.read_text(encoding="utf-8"))
            if found["run"] == identity:
                return int(found["side"])
    _clear(path)
    record.write_text(json.dumps({"run": identity, "side": side}, indent=2), encoding="utf-8")
    return side


def _clear(path: Path) -> None:
    """Remove what slir has written here, and no other file."""
    for each in path.iterdir():
        if _OWN.fullmatch(each.name):
            each.unlink()


def identity_of(job: Job) -> dict[str, Any]:
    """All that decides what the tiles hold. Images are known by size and time, as hashing a large one takes long."""
    from slir.files import provenance
    from slir.kernel.shipped import shipped_hash

    told = {
        "slir": "tiles",
        "version": VERSION,
        "task": job.problem.task.name,
        "settings": provenance.settings(job),
        "error_map": job.error_map,
        "interval": job.interval,
        "model": shipped_hash() if job.model is None else _stamp(job.model),
        "versions": provenance.versions(),
        **{what: _stamp(path) for what, path in job.inputs.items()},
    }
    return json.loads(json.dumps(told))


def _stamp(path: Path) -> list[Any]:
    """Where a file is, its bytes and when it changed; of a folder (Zarr), their sum and the last time."""
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    stats = [each.stat() for each in files]
    newest = max((stat.st_mtime_ns for stat in stats), default=0)
    return [os.path.realpath(path), len(files), sum(stat.st_size for stat in stats), newest]


def _is_whole(path: Path) -> bool:
    """Whether a tile can be read. The names of its parts stand at the end of the file."""
    try:
        with ZipFile(path) as found:
            return {"pixels.npy", "said.npy"} <= set(found.namelist())
    except (OSError, BadZipFile):
        return False
