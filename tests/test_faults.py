"""Faults of the file system, one by one, in a batch of three files: what was there stays, what is new is whole.

As SQLite is tested: the n-th operation of the file system fails, for every n of a run, either once or with all that
follow it, or the process is killed there. Afterwards every output is whole or absent, with nothing told wrongly; a
further run completes the work.
"""

from __future__ import annotations

import builtins
import contextlib
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
OTHERS = ("a.fits", "b.jpg", "c.bmp")


class Disk:
    """Counts operations; the one whose number is `at` fails, and with `lasting` all after it.

    deadly : it kills the process instead. reads : files opened to be read count too, and reading from them.
    """

    def __init__(self, at: int = -1, lasting: bool = False, *, deadly: bool = False, reads: bool = False):
        self.at, self.lasting, self.deadly, self.reads, self.count = at, lasting, deadly, reads, 0

    def operate(self, fault: int = errno.ENOSPC) -> None:
        number, self.count = self.count, self.count + 1
        if number == self.at or (self.lasting and 0 <= self.at < number):
            if self.deadly:
                os._exit(KILLED)
            raise OSError(fault, os.strerror(fault))

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*given: Any, **named: Any) -> Any:
            self.operate()
            return function(*given, **named)

        return operation

    def open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, *given: Any, **named: Any
    ) -> Any:
        """Files write, and read where that counts, through this object."""
        writes = bool(set(mode) & set("wax+"))
        if not (writes or (self.reads and "b" in mode)):
            return _OPEN(file, mode, buffering, encoding, *given, **named)
        self.operate(errno.ENOSPC if writes else errno.EIO)
        disk = self

        class Raw(streams_of_python.FileIO):
            def write(self, data: Any) -> int:
                disk.operate()
                return super().write(data)

            def readinto(self, room: Any) -> int:
                if disk.reads:
                    disk.operate(errno.EIO)
                return super().readinto(room) or 0

            def readall(self) -> bytes:
                if disk.reads:
                    disk.operate(errno.EIO)
                return super().readall()

        raw = Raw(file, mode.replace("b", "").replace("t", ""), opener=named.get("opener"))
        if buffering == 0:
            return raw
        buffers = streams_of_python.BufferedWriter if writes else streams_of_python.BufferedReader
        binary: Any = (streams_of_python.BufferedRandom if "+" in mode else buffers)(raw)
        return binary if "b" in mode else streams_of_python.TextIOWrapper(binary, encoding or "utf-8", *given)


_OPEN = builtins.open
KILLED = 9


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
    for name in (*NAMES, *OTHERS):
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
    return {name: atomic_output.digest(folder / name) for name in (*NAMES, *OTHERS) if (folder / name).exists()}


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


def attempt(folder: Path, names: tuple[str, ...], before: str, disk: Disk) -> tuple[list[Report], dict[str, str]]:
    """A batch on this disk, where nothing was before, or older outputs. What it reports, and hashes of the older."""
    out = folder / "out"
    if out.exists():
        emptied(out)
    older = older_outputs(out, names) if before != "nothing" else {}
    with faulty(disk):
        return restored(folder, names), older


def completed(folder: Path, names: tuple[str, ...], wanted: dict[str, str]) -> None:
    """A further run, on a disk without faults, makes all outputs and leaves nothing else."""
    restored(folder, names)
    assert hashes(folder / "out") == wanted
    hidden = [path.name for path in (folder / "out").iterdir() if path.name.startswith(".")]
    assert not [name for name in hidden if not name.endswith(".old")]


def undisturbed(folder: Path, names: tuple[str, ...], before: str, disk: Disk) -> dict[str, str]:
    reports, _ = attempt(folder, names, before, disk)
    assert [report.status for report in reports] == ["restored"] * len(names)
    assert disk.count > 20 * len(names)
    wanted = hashes(folder / "out")
    assert len(wanted) == len(names)
    return wanted


@pytest.mark.parametrize(
    ("before", "lasting", "names", "reads"),
    [
        ("nothing", True, NAMES, False),
        ("older", False, NAMES, False),
        ("older", False, ("b.tif",), True),
        ("older", False, OTHERS[:1], True),
        ("older, of which folders cannot be exchanged", False, ("c.zarr",), False),
    ],
)
def test_every_fault_of_a_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: str, lasting: bool, names: tuple[str, ...], reads: bool
) -> None:
    if "cannot" in before:
        monkeypatch.setattr(atomic, "_exchanged", lambda *_: False)
    counter = Disk(reads=reads)
    wanted = undisturbed(folder, names, before, counter)
    for at in range(counter.count):
        reports, older = attempt(folder, names, before, Disk(at, lasting, reads=reads))
        check(folder, reports, wanted, older)
        completed(folder, names, wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked, which is quick")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_killed_at_every_operation(folder: Path) -> None:
    """What is there afterwards is whole, old or new, and its sidecar does not tell of another."""
    names = ("a.png", "c.zarr")
    counter = Disk()
    wanted = undisturbed(folder, names, "older", counter)
    for at in range(counter.count):
        if (child := os.fork()) == 0:
            with contextlib.suppress(BaseException):
                attempt(folder, names, "older", Disk(at, deadly=True))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == KILLED
        made = hashes(folder / "out")
        old = older_outputs(folder / "elsewhere", names)
        for name in names:
            assert made.get(name) in (wanted[name], old[name]), f"killed at {at}"
            if made[name] == wanted[name]:
                assert provenance.load(atomic_output.sidecar_of(folder / "out" / name)).is_own_output()
        completed(folder, names, wanted)


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
