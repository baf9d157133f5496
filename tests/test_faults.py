"""Faults of the file system, one by one, in a batch of three files: what was there stays, what is new is whole.

As SQLite is tested: the n-th operation that changes the disk fails, for every n of a run, either once or with all that
follow it. Afterwards every output is whole or absent, with nothing told wrongly; a further run completes the work.
"""

from __future__ import annotations

import builtins
import errno
import io as streams_of_python
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slir import io
from slir.errors import FileError
from slir.files import atomic_output, batch, provenance, restore_file
from slir.files.batch import Policy, Report
from slir.files.jobs import Job
from slir.io import Picture, atomic
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
OPERATIONS = ("open", "replace", "rename", "fsync", "chmod", "mkdir", "unlink", "rmdir", "ftruncate")
NAMES = ("a.png", "b.tif", "c.zarr")


class Disk:
    """Counts operations; the one whose number is `at` fails, and with `lasting` all after it."""

    def __init__(self, at: int = -1, lasting: bool = False):
        self.at, self.lasting, self.count = at, lasting, 0

    def operate(self) -> None:
        number, self.count = self.count, self.count + 1
        if number == self.at or (self.lasting and 0 <= self.at < number):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*given: Any, **named: Any) -> Any:
            self.operate()
            return function(*given, **named)

        return operation

    def open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, *given: Any, **named: Any
    ) -> Any:
        """Files opened for writing write through this object."""
        if not set(mode) & set("wax+"):
            return _OPEN(file, mode, buffering, encoding, *given, **named)
        self.operate()
        disk = self

        class Raw(streams_of_python.FileIO):
            def write(self, data: Any) -> int:
                disk.operate()
                return super().write(data)

        raw = Raw(file, mode.replace("b", "").replace("t", ""), opener=named.get("opener"))
        if buffering == 0:
            return raw
        binary = (streams_of_python.BufferedRandom if "+" in mode else streams_of_python.BufferedWriter)(raw)
        return binary if "b" in mode else streams_of_python.TextIOWrapper(binary, encoding or "utf-8", *given)


_OPEN = builtins.open


@contextmanager
def faulty(disk: Disk) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, disk.wrapped(getattr(os, name)))
        exchanged = disk.wrapped(atomic._exchanged)
        patch.setattr(atomic, "_exchanged", lambda *names: _true(exchanged, *names))
        for module in (builtins, streams_of_python, tempfile._io):  # type: ignore[attr-defined]
            patch.setattr(module, "open", disk.open)
        yield


def _true(function: Callable[..., bool], *given: Any) -> bool:
    """What a function says; False where it raises."""
    try:
        return function(*given)
    except OSError:
        return False


def identity(source: io.Source, sink: io.Sink, work: Any, progress: Any = None) -> Any:
    """In the place of a restoration."""
    for plane in range(source.planes):
        sink.write(source.read(plane), plane=plane)
    return restore_file.Found(4.25, 1.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(restore_file, "restore_file", identity)
    monkeypatch.setattr(provenance, "versions", lambda: {"slir": "0"})  # which takes long
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # likewise; it is counted, and fails, all the same
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for name in NAMES:
        io.write(tmp_path / "in" / name, Picture(rng.integers(60, 190, (9, 12)).astype(np.uint8)))
    return tmp_path


def restored(folder: Path, names: tuple[str, ...]) -> list[Report]:
    jobs = [Job(Problem("denoise", sigma=5), folder / "in" / name, folder / "out" / name) for name in names]
    return list(batch.run(jobs, policy=Policy(force=True)))


def emptied(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def hashes(folder: Path) -> dict[str, str]:
    """Of the outputs that are there."""
    return {name: atomic_output.digest(folder / name) for name in NAMES if (folder / name).exists()}


def check(folder: Path, reports: list[Report], wanted: dict[str, str], older: dict[str, str]) -> None:
    """Each output is the new one or as it was before; its report and its sidecar say so."""
    made = hashes(folder / "out")
    for report in reports:
        name = report.job.output.name
        assert "bug in slir" not in report.reason, report.details
        assert made.get(name) in (wanted[name], older.get(name)), report
        if report.status == "restored":
            assert made[name] == wanted[name]
            assert provenance.load(atomic_output.sidecar_of(report.job.output)).is_own_output()


def older_outputs(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Images of another content where the outputs will be."""
    folder.mkdir(exist_ok=True)
    for name in names:
        io.write(folder / name, Picture(np.full((9, 12), 7, np.uint8)))
    return hashes(folder)


@pytest.mark.parametrize(
    ("before", "lasting", "names"),
    [
        ("nothing", True, NAMES),
        ("older", False, NAMES),
        ("older, of which folders cannot be exchanged", False, ("c.zarr",)),
    ],
)
def test_every_fault_of_a_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: str, lasting: bool, names: tuple[str, ...]
) -> None:
    if "cannot" in before:
        monkeypatch.setattr(atomic, "_exchanged", lambda *_: False)
    out = folder / "out"

    def attempt(disk: Disk) -> tuple[list[Report], dict[str, str]]:
        if out.exists():
            emptied(out)
        older = older_outputs(out, names) if before != "nothing" else {}
        with faulty(disk):
            return restored(folder, names), older

    counter = Disk()
    reports, _ = attempt(counter)
    assert [report.status for report in reports] == ["restored"] * len(names)
    assert counter.count > 20 * len(names)
    wanted = hashes(out)
    assert len(wanted) == len(names)
    for at in range(counter.count):
        reports, older = attempt(Disk(at, lasting))
        check(folder, reports, wanted, older)
        restored(folder, names)
        assert hashes(out) == wanted
        hidden = [path for path in out.iterdir() if path.name.startswith(".") and not path.name.endswith(".old")]
        assert not hidden, f"left over after fault {at}"


def test_no_more_open_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be locked is no reason to make another, or to wait for a minute."""

    def full(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = sorted(folder.iterdir())
    monkeypatch.setattr(atomic_output, "_lock", full)
    with pytest.raises(FileError, match="Too many open files"), atomic_output.staged(folder / "a.png"):
        pass
    assert sorted(folder.iterdir()) == before
    assert atomic_output.clear_stale([folder]) == 0
