"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slir.errors import FileError


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; put it in the place of `path` when the block ends well, else remove it.

    The temporary file lies in the same folder, so that the last step is one atomic rename; it keeps the suffix, by
    which some writers choose their format. A reader of `path` sees the old file or the new one, never a part. A
    symbolic link stays a link: what it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    check_folder(path)
    try:
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem[:40]}.", suffix=f".tmp{target.suffix}"
        )
        os.close(handle)
    except OSError as error:
        raise FileError(path, f"cannot be written ({_reason(error)})", "Choose another output folder.") from error
    temporary = Path(name)
    try:
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
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the data are safe already; only the name could be lost with the power
        _sync(target.parent, os.O_RDONLY)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """As `whole_file`, for a format that is a folder of files.

    No file system exchanges two folders in one step: one that is there already is moved aside just before the new one
    takes its place, and removed after it. Whoever is killed between the two finds it beside, with `.old` in its name.
    """
    target = Path(os.path.realpath(path))
    check_folder(path, replaces_folder=True)
    prefix, suffix = f".{target.stem[:40]}.", f".tmp{target.suffix}"
    try:
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=suffix))
    except OSError as error:
        raise FileError(path, f"cannot be written ({_reason(error)})", "Choose another output folder.") from error
    try:
        yield temporary
        os.chmod(temporary, _mode(target, 0o777))
        old = temporary.with_suffix(f".old{target.suffix}")
        if target.exists():
            os.rename(target, old)
        os.rename(temporary, target)
        shutil.rmtree(old, ignore_errors=True)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            path, f"cannot be written ({_reason(error)})", "Check the free space and the rights of its folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
