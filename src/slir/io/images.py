"""Image files to pictures and back: which format a file is, and what to say when it cannot be read or written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from slir.errors import FileError
from slir.io import jpeg, png, tiff
from slir.io.atomic import check_folder, whole_file
from slir.io.picture import Picture


@dataclass(frozen=True)
class Format:
    """One file format. A further one is a module with these functions and a line in `FORMATS`.

    read : the bytes of a file -> Picture; raises any exception, with the reason as its text, where it cannot.
    write : a picture to a binary stream.
    refusal : why the format cannot hold a picture, or None where it can.
    """

    name: str
    extensions: tuple[str, ...]
    signatures: tuple[bytes, ...]
    read: Callable[[bytes], Picture]
    write: Callable[[BinaryIO, Picture], None]
    refusal: Callable[[Picture], str | None]


FORMATS = (
    Format(png.NAME, png.EXTENSIONS, (png.SIGNATURE,), png.read, png.write, png.refusal),
    Format(jpeg.NAME, jpeg.EXTENSIONS, (jpeg.SIGNATURE,), jpeg.read, jpeg.write, jpeg.refusal),
    Format(tiff.NAME, tiff.EXTENSIONS, tiff.SIGNATURES, tiff.read, tiff.write, tiff.refusal),
)
#: The suffixes, in lower case, of the files that can be read and written.
EXTENSIONS = tuple(extension for form in FORMATS for extension in form.extensions)

_KNOWN = "PNG, JPEG or TIFF (.png, .jpg, .tif)"
#: Formats that people often hand over, so that the message can name them.
_FOREIGN = {
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"%PDF": "PDF",
    b"PK\x03\x04": "ZIP",
    b"SIMPLE": "FITS",
    b"\0\0\1\0": "ICO",
    b"\x93NUMPY": "NumPy",
    b"\x1f\x8b": "gzip",
}


def read(path: str | os.PathLike[str]) -> Picture:
    """The picture in a PNG, JPEG or TIFF file, its pixels as they are stored.

    Raises FileError, with the reason and the remedy, for a file that is missing, empty, damaged, truncated, of another
    kind than its name says, of an unknown kind, or that declares more pixels than `slir.io.picture.MAX_PIXELS`.
    """
    path = Path(path)
    data = read_bytes(path, limit=_check_kind)
    form = _format_of(data)
    assert form is not None  # _check_kind has seen to it
    try:
        return form.read(data)
    except MemoryError as error:
        raise FileError(path, "does not fit into memory", "Crop it, or use a machine with more.") from error
    except Exception as error:  # decoders raise all sorts of exceptions on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        if not reason.startswith(("is ", "has ", "holds ", "ends ", "declares ", "would ", "its ", "only ")):
            reason = f"cannot be decoded as {form.name} ({reason[:200]})"
        raise FileError(path, reason, _remedy(reason)) from error


def write(path: str | os.PathLike[str], picture: Picture) -> None:
    """Write a picture in the format that the name's suffix says: whole, or, on any failure, not at all."""
    path = Path(path)
    check_output(path, picture)
    form = _format_named(path)
    with whole_file(path) as temporary, open(temporary, "wb") as stream:
        form.write(stream, picture)


def check_output(path: str | os.PathLike[str], picture: Picture | None = None) -> None:
    """Raise FileError if `write(path, picture)` could not succeed: to be asked before long work, not after it."""
    path = Path(path)
    check_folder(path)
    form = _format_named(path)
    if picture is None:
        return
    why = form.refusal(picture)
    if why is not None:
        able = next((other for other in FORMATS if other.refusal(picture) is None), None)
        remedy = "Convert the picture first." if able is None else f"Write {path.stem}{able.extensions[0]} instead."
        raise FileError(path, why, remedy)


def is_image_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file's suffix is that of a format that can be read."""
    return Path(path).suffix.lower() in EXTENSIONS


def read_bytes(path: Path, *, limit: Callable[[Path, bytes], None] | None = None) -> bytes:
    """The contents of a file, as FileError says where there are none. `limit` sees the first bytes, and may refuse."""
    try:
        if path.is_dir():
            raise FileError(path, "is a folder, not a file", "Name one file in it.")
        if path.exists() and not path.is_file():
            raise FileError(path, "is not a regular file", "Save the image to a file first.")
        with open(path, "rb") as stream:
            start = stream.read(32)
            if not start:
                raise FileError(path, "is empty", "Copy or download it again.")
            if limit is not None:
                limit(path, start)
            return start + stream.read()
    except FileNotFoundError as error:
        raise FileError(path, "does not exist", "Check the name and the folder.") from error
    except PermissionError as error:
        raise FileError(path, "may not be read (permission denied)", "Change its rights.") from error
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be read ({error})", "Check the disk, or copy the file again.") from error
    except MemoryError as error:
        raise FileError(path, "does not fit into memory", "Use a machine with more.") from error


def _check_kind(path: Path, start: bytes) -> None:
    form = _format_of(start)
    suffix = path.suffix.lower()
    if form is not None:
        if suffix not in form.extensions:
            claim = next((other.name for other in FORMATS if suffix in other.extensions), None)
            says = (
                f"its name says {claim}"
                if claim
                else f"its name ends in {suffix!r}"
                if suffix
                else "its name has no suffix"
            )
            new = path.with_name(path.stem + form.extensions[0]).name if path.stem else "its true name"
            raise FileError(path, f"is a {form.name} file but {says}", f"Rename it to {new}.")
        return
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        kind: str | None = "WebP"
    elif start[4:8] == b"ftyp":
        kind = "HEIF, AVIF or video"
    else:
        kind = next((name for mark, name in _FOREIGN.items() if start.startswith(mark)), None)
    if suffix in EXTENSIONS:
        claim = next(other.name for other in FORMATS if suffix in other.extensions)
        reason = (
            f"is a {kind} file but its name says {claim}"
            if kind
            else f"is not a {claim} file, or is damaged at its start"
        )
    else:
        reason = f"is a {kind} file, which slir cannot read" if kind else "is not an image that slir can read"
    raise FileError(path, reason, f"Convert it to {_KNOWN}.")


def _format_of(data: bytes) -> Format | None:
    return next((form for form in FORMATS if data.startswith(form.signatures)), None)


def _format_named(path: Path) -> Format:
    suffix = path.suffix.lower()
    form = next((form for form in FORMATS if suffix in form.extensions), None)
    if form is None:
        reason = f"has the unknown suffix {path.suffix!r}" if path.suffix else "has no suffix that says its format"
        raise FileError(path, reason, f"Choose a name that ends as {_KNOWN} does.")
    return form


def _remedy(reason: str) -> str:
    """What to do about a file that does not decode, by the words of the reason."""
    for words, remedy in (
        (("pages",), "Save each page as a file of its own."),
        (("animation",), "Save one frame as a file of its own."),
        (("interlaced",), "Save it without interlacing, or as TIFF."),
        (("imagecodecs",), "Install it, or save the file uncompressed or with deflate (zip) compression."),
        (("the most is", "decompression bomb", "exceeds limit"), "Crop or tile the image."),
        (("colours", "channels", "bits a sample", "of type", "axes"), "Convert it to grey or RGB, with 8 or 16 bits."),
    ):
        if any(word in reason for word in words):
            return remedy
    return "Copy, download or export it again."
