"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slir.errors import FileError

PACKED = 4
"""How many times smaller than its pixels a file may well be."""

_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; put it in the place of `path` when the block ends well, else remove it.

    The temporary file lies in the same folder, so that the last step is one atomic rename; it keeps the suffix, by
    which some writers choose their format. A reader of `path` sees the old file or the new one, never a part. A
    symbolic link stays a link: what it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    check_folder(path)
    temporary = None
    try:
        with uninterrupted():
            temporary = _made(tempfile.mkstemp, target, path)
        yield temporary
        os.chmod(temporary, _mode(target))
        _sync(temporary, os.O_RDWR)
        os.replace(temporary, target)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            path, f"cannot be written ({_reason(error)})", "Check the free space and the rights of its folder."
        ) from error
    finally:
        with uninterrupted():
            if temporary is not None:
                temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the data are safe already; only the name could be lost with the power
        _sync(target.parent, os.O_RDONLY)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """As `whole_file`, for a format that is a folder of files; see `replace_folder`."""
    target = Path(os.path.realpath(path))
    check_folder(path, replaces_folder=True)
    temporary = None
    try:
        with uninterrupted():
            temporary = _made(tempfile.mkdtemp, target, path)
        yield temporary
        os.chmod(temporary, _mode(target, 0o777))
        with uninterrupted():
            replace_folder(temporary, target)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            path, f"cannot be written ({_reason(error)})", "Check the free space and the rights of its folder."
        ) from error
    finally:
        with uninterrupted():
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(new: Path, target: Path) -> None:
    """Put a folder where another may be, which is removed.

    Linux exchanges the two in one step. Elsewhere the old one is moved aside just before: whoever is killed between
    the two renames finds it beside, in a hidden folder with `.old` in its name.
    """
    if not target.exists():
        os.rename(new, target)
    elif _exchanged(new, target):
        shutil.rmtree(new, ignore_errors=True)
    else:
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.stem[:40]}.", suffix=".old"))
        old = aside / target.name
        os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            os.rename(old, target)
            aside.rmdir()
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two folders have changed places; not every system can do that."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C until the block has ended; then it acts as ever. For steps that must not be left halfway.

    Python hands signals to the main thread alone, so there is nothing to do in others.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    held: list[Any] = []
    signal.signal(signal.SIGINT, lambda *what: held.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(*held[0])


def check_folder(path: str | os.PathLike[str], *, replaces_folder: bool = False) -> None:
    """Raise FileError unless `path` is a place where a file can be put (or a folder in a folder's place)."""
    path = Path(path)
    if path.is_dir() and not replaces_folder:
        raise FileError(path, "is a folder, not a file", f"Name a file in it, such as {path / 'restored.png'}.")
    folder = path.parent
    if not folder.exists():
        raise FileError(path, f"its folder {folder} does not exist", f"Create it first: mkdir -p '{folder}'")
    if not folder.is_dir():
        raise FileError(path, f"{folder} is a file, not a folder", "Choose another output folder.")
    if not os.access(folder, os.W_OK):
        raise FileError(path, f"its folder {folder} is write-protected", "Choose another output folder.")


def check_space(path: Path, size: int) -> None:
    """Raise FileError where pixels of so many bytes cannot fit on the disk, packed as they may be."""
    free = shutil.disk_usage(path.parent).free
    if size > PACKED * free:
        reason = f"has {size / 1e6:,.1f} MB of pixels, but on its disk {free / 1e6:,.1f} MB are free"
        raise FileError(path, reason, "Make room, or choose another output folder.")


def _made(make: Callable[..., Any], target: Path, path: str | os.PathLike[str]) -> Path:
    """A new temporary file or folder (`make`, of `tempfile`) beside `target`, which users know as `path`."""
    try:
        made = make(dir=target.parent, prefix=f".{target.stem[:40]}.", suffix=f".tmp{target.suffix}")
    except OSError as error:
        raise FileError(path, f"cannot be written ({_reason(error)})", "Choose another output folder.") from error
    if isinstance(made, str):
        return Path(made)
    handle, name = made
    os.close(handle)
    return Path(name)


def _mode(target: Path, most: int = 0o666) -> int:
    """The rights of the file that is replaced, or those that a new file gets."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return most & ~umask


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
