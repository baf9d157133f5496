"""Image files to pictures and back: which format a file is, and what to say when it cannot be read or written."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slir.errors import FileError
from slir.io import avif, bmp, fits, heif, jpeg, omezarr, png, tiff, webp, zarr_meta
from slir.io.atomic import check_folder, check_space
from slir.io.picture import Head, Picture
from slir.io.sink import Sink, WholeSink
from slir.io.source import Source, WholeSource, read_bytes
from slir.io.tiff_sink import TiffSink

__all__ = [
    "read", "write", "open_source", "create", "check_output", "can_hold", "is_image_name", "result_suffix",
    "read_bytes", "EXTENSIONS",
]  # fmt: skip


@dataclass(frozen=True)
class Format:
    """One file format. A further one is a module with these functions and a line in `FORMATS`.

    is_start : whether these are the first bytes of such a file.
    open : a path -> Source; raises FileError where it cannot.
    create : a path, what the file is to hold, and lines of history -> Sink.
    refusal : why the format cannot hold such a picture, or None where it can.
    stacks : whether a file can hold more than one plane.
    written_as : the suffix of results where the format itself is not written.
    package, extra : what must be installed, and the extra of slir that does it.
    """

    name: str
    extensions: tuple[str, ...]
    is_start: Callable[[bytes], bool]
    open: Callable[[Path], Source]
    create: Callable[[Path, Head, Sequence[str]], Sink]
    refusal: Callable[[Head], str | None]
    stacks: bool = False
    written_as: str = ""
    package: str = ""
    extra: str = ""


FORMATS = (
    Format(
        png.NAME,
        png.EXTENSIONS,
        lambda start: start.startswith(png.SIGNATURE),
        lambda path: WholeSource(path, png.NAME, png.begin),
        lambda path, head, history: WholeSink(path, head, png.encode),
        png.refusal,
    ),
    Format(
        jpeg.NAME,
        jpeg.EXTENSIONS,
        lambda start: start.startswith(jpeg.SIGNATURE),
        lambda path: WholeSource(path, jpeg.NAME, jpeg.begin),
        lambda path, head, history: WholeSink(path, head, jpeg.encode),
        jpeg.refusal,
    ),
    Format(
        tiff.NAME,
        tiff.EXTENSIONS,
        lambda start: start.startswith(tiff.SIGNATURES),
        tiff.TiffSource,
        lambda path, head, history: TiffSink(path, head),
        tiff.refusal,
        stacks=True,
    ),
    Format(
        webp.NAME,
        webp.EXTENSIONS,
        webp.is_start,
        lambda path: WholeSource(path, webp.NAME, webp.begin),
        lambda path, head, history: WholeSink(path, head, webp.encode),
        webp.refusal,
    ),
    Format(
        avif.NAME,
        avif.EXTENSIONS,
        avif.is_start,
        lambda path: WholeSource(path, avif.NAME, avif.begin),
        lambda path, head, history: WholeSink(path, head, avif.encode),
        avif.refusal,
    ),
    Format(
        heif.NAME,
        heif.EXTENSIONS,
        heif.is_start,
        lambda path: WholeSource(path, heif.NAME, heif.begin),
        heif.create,
        heif.refusal,
        written_as=".png",
        package="pi_heif",
        extra="heif",
    ),
    Format(
        bmp.NAME,
        bmp.EXTENSIONS,
        lambda start: start.startswith(bmp.SIGNATURE),
        lambda path: WholeSource(path, bmp.NAME, bmp.begin),
        lambda path, head, history: WholeSink(path, head, bmp.encode),
        bmp.refusal,
    ),
    Format(
        fits.NAME,
        fits.EXTENSIONS,
        lambda start: start.startswith(fits.SIGNATURE),
        fits.FitsSource,
        fits.FitsSink,
        fits.refusal,
        stacks=True,
        package="astropy",
        extra="fits",
    ),
    Format(
        omezarr.NAME,
        omezarr.EXTENSIONS,
        lambda start: False,  # a folder has no first bytes
        omezarr.ZarrSource,
        lambda path, head, history: omezarr.ZarrSink(path, head),
        omezarr.refusal,
        stacks=True,
        package="zarr",
        extra="zarr",
    ),
)
#: The suffixes, in lower case, of the files that can be read and written.
EXTENSIONS = tuple(extension for form in FORMATS for extension in form.extensions)

_KNOWN = "PNG, JPEG, WebP, AVIF, BMP, TIFF, FITS or OME-Zarr (.png, .jpg, .webp, .avif, .bmp, .tif, .fits, .zarr)"
#: Formats that people often hand over, so that the message can name them.
_FOREIGN = {
    b"GIF8": "GIF",
    b"%PDF": "PDF",
    b"PK\x03\x04": "ZIP",
    b"\0\0\1\0": "ICO",
    b"\x93NUMPY": "NumPy",
    b"\x1f\x8b": "gzip",
}


def read(path: str | os.PathLike[str]) -> Picture:
    """The picture in an image file, its pixels as they are stored.

    Raises FileError, with the reason and the remedy, for a file that is missing, empty, damaged, truncated, of another
    kind than its name says, of an unknown kind, that holds more than one plane, or that declares more pixels than
    `slir.io.picture.MAX_PIXELS`.
    """
    with open_source(path) as source:
        if source.planes > 1:
            remedy = "Use the command line, or slir.io.open_source, which reads plane by plane."
            raise FileError(path, f"holds {source.planes} pages; slir.io.read reads one picture", remedy)
        return source.read()


def write(path: str | os.PathLike[str], picture: Picture) -> None:
    """Write a picture in the format that the name's suffix says: whole, or, on any failure, not at all."""
    path = Path(path)
    check_output(path, picture)
    with _sink(path, picture.head, ()) as sink:
        sink.write(picture)


def open_source(path: str | os.PathLike[str]) -> Source:
    """Open an image file to read it by windows and planes. Raises FileError, as `read` does."""
    path = Path(path)
    form = _format_of(path)
    _check_package(path, form)
    return form.open(path)


def create(
    path: str | os.PathLike[str],
    source: Source | Head,
    *,
    scale: float = 1,
    centred: bool = True,
    history: Sequence[str] = (),
) -> Sink:
    """A file to be written by windows, which holds what `source` holds, with all of its metadata.

    scale : how many times as high and as wide the planes are; resolution, voxel size and coordinates follow.
    centred : whether an old pixel covers its scale × scale new ones, else it sits on the first of them.
    history : lines on how the file was made, for formats that have a place for them (FITS).
    """
    path = Path(path)
    head = (source.head if isinstance(source, Source) else source).scaled(scale, centred=centred)
    check_output(path, head)
    return _sink(path, head, history)


def _sink(path: Path, head: Head, history: Sequence[str]) -> Sink:
    form = _format_named(path)
    sink = form.create(path, head, history)
    sink.reopen = form.open
    return sink


def check_output(path: str | os.PathLike[str], what: Picture | Source | Head | None = None) -> None:
    """Raise FileError if a file of that name could not be written: to be asked before long work, not after it.

    what : what the file is to hold; without it only the name and the folder are looked at.
    """
    path = Path(path)
    form = _format_named(path)
    check_folder(path, replaces_folder=form.name == omezarr.NAME and zarr_meta.is_store(path))
    _check_package(path, form)
    if what is None:
        return
    head = what if isinstance(what, Head) else what.head
    why = _refusal(form, head)
    if why is not None:
        able = next((other for other in FORMATS if _refusal(other, head) is None), None)
        remedy = "Convert the picture first." if able is None else f"Write {path.stem}{able.extensions[0]} instead."
        raise FileError(path, why, remedy)
    check_space(path, head.planes * head.plane_bytes)


def can_hold(path: str | os.PathLike[str], head: Head) -> bool:
    """Whether the format that a file's suffix gives can hold such a picture."""
    return _refusal(_format_named(Path(path)), head) is None


def is_image_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file's suffix is that of a format that can be read."""
    return Path(path).suffix.lower() in EXTENSIONS


def result_suffix(path: str | os.PathLike[str]) -> str:
    """The suffix of what an image of this name becomes: its own, but where its format is not written."""
    suffix = Path(path).suffix
    return next((form.written_as for form in FORMATS if suffix.lower() in form.extensions), "") or suffix


def _refusal(form: Format, head: Head) -> str | None:
    if head.planes > 1 and not form.stacks:
        return f"{form.name} holds one picture, but there are {head.planes} planes"
    return form.refusal(head)


def _check_package(path: Path, form: Format) -> None:
    if form.package and importlib.util.find_spec(form.package) is None:
        remedy = f"Run pip install 'slir[{form.extra}]'."
        raise FileError(path, f"is {form.name}, which needs the package {form.package}", remedy)


def _format_of(path: Path) -> Format:
    """The format that a file's first bytes say, which must be the one that its name says."""
    if path.is_dir() and (zarr_meta.is_store(path) or path.suffix.lower() in omezarr.EXTENSIONS):
        if not zarr_meta.is_store(path):
            raise FileError(path, "is a folder named as Zarr, but it holds no Zarr metadata", "Copy it again.")
        return next(form for form in FORMATS if form.name == omezarr.NAME)
    start = read_bytes(path, 32)
    form = next((form for form in FORMATS if form.is_start(start)), None)
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
        return form
    kind = next((name for mark, name in _FOREIGN.items() if start.startswith(mark)), None)
    if start[4:8] == b"ftyp":
        kind = "video"
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


def _format_named(path: Path) -> Format:
    suffix = path.suffix.lower()
    form = next((form for form in FORMATS if suffix in form.extensions), None)
    if form is None:
        reason = f"has the unknown suffix {path.suffix!r}" if path.suffix else "has no suffix that gives its format"
        raise FileError(path, reason, f"Choose a name that ends as {_KNOWN} does.")
    return form
