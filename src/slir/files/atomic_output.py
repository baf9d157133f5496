"""Results put in place together with what says how they were made, so that a run may be killed at any moment.

A result is written into a hidden folder beside its place, then renamed into it. The folder is locked while its maker
lives; the lock falls with the process, however it ends, so that a later run can tell what is left over from what is
being made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slir.errors import FileError
from slir.io.atomic import check_folder, replace_folder, uninterrupted

try:
    import fcntl
except ImportError:  # Windows has no flock
    fcntl = None  # type: ignore[assignment]

PREFIX = ".slir-"
SUFFIX = ".part"
SIDECAR = ".json"
NO_LOCKS = -1
DAY = 86400.0
PATIENCE = 60.0
"""Seconds to wait for another run to put its result in place."""


@dataclass(frozen=True)
class Stage:
    """A hidden folder that holds a result until it is whole.

    output : where the result is to be written for now: in the hidden folder, under the name that it will have.
    target : where it will be, links followed.
    """

    output: Path
    target: Path

    @property
    def sidecar(self) -> Path:
        """Where to write what says how the result was made; it goes where `sidecar_of(target)` says."""
        return sidecar_of(self.output)

    @property
    def maps(self) -> dict[str, Path]:
        """Where to write error maps and intervals, if there are any; they go where `maps_of(target)` says."""
        return maps_of(self.output)


def sidecar_of(output: Path) -> Path:
    """clean.png -> clean.png.json."""
    return output.with_name(output.name + SIDECAR)


ERROR_MAPS = ("error.tif", "error.png")
"""The errors to expect, as numbers and as a picture."""
INTERVALS = ("low.tif", "high.tif")
"""The bounds of an interval, as numbers."""


def maps_of(output: Path) -> dict[str, Path]:
    """clean.png -> clean.error.tif and the others, by kind."""
    return {kind: output.with_name(f"{output.stem}.{kind}") for kind in (*ERROR_MAPS, *INTERVALS)}


@contextlib.contextmanager
def staged(output: str | os.PathLike[str]) -> Iterator[Stage]:
    """Give a `Stage` to write to; when the block ends well, put in place what it holds, else remove it.

    The sidecar goes first, then error maps and intervals, then the result. A run that is killed in between leaves a
    sidecar whose result or map is missing, or is not the one that the sidecar describes by its hash: either way it is
    seen that the result is still to be made. In the other order a result could stay without its sidecar for ever.
    """
    target = Path(os.path.realpath(output))
    if not target.is_dir():
        check_folder(target)
    folder = lock = None
    try:
        with uninterrupted():
            folder, lock = _locked_folder(target)
        stage = Stage(folder / target.name, target)
        yield stage
        with uninterrupted(), _one_at_a_time(target.parent):
            _put_in_place(stage)
    except FileError:
        raise
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise FileError(output, reason, "Check the free space and the rights of its folder.") from error
    finally:
        with uninterrupted():
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            _unlock(lock)


def _put_in_place(stage: Stage) -> None:
    place = sidecar_of(stage.target)
    if stage.sidecar.exists():
        _sync(stage.sidecar)
        os.replace(stage.sidecar, place)
    kept = maps_of(stage.target)
    for kind, made in stage.maps.items():
        if made.exists():
            os.replace(made, kept[kind])
    with contextlib.suppress(OSError):  # a file that is replaced hands on its rights
        if stage.output.is_file():
            os.chmod(stage.output, stage.target.stat().st_mode & 0o777)
    if stage.output.is_dir():
        replace_folder(stage.output, stage.target)
    else:
        os.replace(stage.output, stage.target)
    with contextlib.suppress(OSError):
        _sync(stage.target.parent)


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Lock a folder while a result and its sidecar are put into it: both are then of the same run.

    The lock falls with the process. Where the file system has no locks there is none.
    """
    end = time.monotonic() + PATIENCE
    while (lock := _lock(folder) if os.access(folder, os.R_OK) else NO_LOCKS) is None:
        if time.monotonic() > end:
            raise FileError(folder, "has been locked by another run for a minute", "End that run.")
        time.sleep(0.002)
    try:
        yield
    finally:
        _unlock(lock)


def clear_stale(folders: Iterable[Path]) -> int:
    """Remove what runs that were killed have left in these folders; what a living run is making stays. How many."""
    removed = 0
    for folder in folders:
        for path in folder.glob(f"{PREFIX}*{SUFFIX}") if folder.is_dir() else ():
            try:
                lock = _lock(path)
            except OSError:
                continue
            if lock is None or (lock == NO_LOCKS and not _is_old(path)):
                continue
            shutil.rmtree(path, ignore_errors=True)
            _unlock(lock)
            removed += 1
    return removed


def _locked_folder(target: Path) -> tuple[Path, int]:
    """A new hidden folder beside `target`, and the lock that says that its maker lives."""
    while True:
        try:
            folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=PREFIX, suffix=SUFFIX))
        except OSError as error:
            reason = f"cannot be written ({error.strerror or error})"
            raise FileError(target, reason, "Choose another output folder.") from error
        try:
            lock = _lock(folder)
        except OSError:
            folder.rmdir()
            raise
        if lock is not None and folder.exists():  # else somebody took it for a left-over before it was locked
            return folder, lock
        _unlock(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; NO_LOCKS where the system has none; None where another holds it, or
    where it is no folder (a link to one is none: what it leads to is not slir's). OSError where it cannot be opened."""
    if folder.is_symlink() or not folder.is_dir():
        return None
    if fcntl is None:
        return NO_LOCKS
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):  # another process has removed it
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        return None if isinstance(error, BlockingIOError) else NO_LOCKS  # some network disks cannot lock folders
    return descriptor


def _unlock(lock: int | None) -> None:
    if lock not in (None, NO_LOCKS):
        os.close(lock)


def _is_old(folder: Path) -> bool:
    """Where nothing tells the dead from the living, a folder that nobody touched for a day counts as left over."""
    try:
        return time.time() - folder.stat().st_mtime > DAY
    except OSError:
        return False


def digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file, or of all files of a folder with their names (a Zarr image is a folder)."""
    path = Path(path)
    try:
        if not path.is_dir():
            with open(path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        total = hashlib.sha256()
        for file in sorted(each for each in path.rglob("*") if each.is_file()):
            total.update(f"{file.relative_to(path).as_posix()}\0{digest(file)}\n".encode(errors="surrogateescape"))
        return total.hexdigest()
    except FileNotFoundError as error:
        raise FileError(path, "does not exist", "Check the name and the folder.") from error
    except OSError as error:
        raise FileError(
            path, f"cannot be read ({error.strerror or error})", "Check its rights and the disk."
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
