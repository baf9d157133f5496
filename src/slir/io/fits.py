"""FITS files, their headers by astropy. Pixels are read and written row by row; all other parts are copied."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from slir.errors import FileError
from slir.io.fits_header import BITPIX, BLOCK, CARD, DataSum, Numbers, rewritten, scaled
from slir.io.fits_parts import Alone, Part, first_picture
from slir.io.fits_tiles import Tiles
from slir.io.picture import Head, Meta, check_growth, range_of
from slir.io.sink import Sink
from slir.io.source import Source, read_bytes, reasons

NAME = "FITS"
EXTENSIONS = (".fits", ".fit", ".fts", ".fz")
SIGNATURE = b"SIMPLE  ="
_CHECKSUMS = ("CHECKSUM", "DATASUM")


@dataclass(frozen=True)
class Private:
    """What only FITS has.

    header : cards of the picture's part of the file, as text.
    numbers : how its pixels are stored.
    path, stamp : the file, and its size and time of change when it was read.
    before, after : the bytes of the file, from and to, that hold its other parts.
    """

    header: str
    numbers: Numbers
    path: Path
    stamp: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]


class FitsSource(Source):
    """The first picture of a FITS file. Axes beyond the second are planes, named by their numbers ("3")."""

    form = NAME

    def __init__(self, path: Path):
        read_bytes(path, 1)
        self.path = path
        self._stack = contextlib.ExitStack()
        try:
            with reasons(path, NAME), _quiet():
                self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def _open(self) -> None:
        from astropy.io import fits

        stat = os.stat(self.path)
        stream = self._stack.enter_context(open(self.path, "rb"))  # noqa: SIM115
        part = first_picture(stream, stat.st_size)
        self._compressed, self._offset, sides = part.compressed, part.data, part.sides
        text, self._section = part.text, None
        header = fits.Header.fromstring(text)
        # astropy must find the counts that were checked: it has ways of its own to spell a keyword.
        if not all(sides) or any(header.get(key) != value for key, value in part.counts.items()):
            raise ValueError("has a header that makes no sense")
        if part.end > stat.st_size:
            declared = f"declares {' × '.join(map(str, sides))} pixels"
            raise ValueError(f"{declared} but holds too few bytes: it is truncated")
        _check_sum(stream, part)
        if self._compressed:
            options: dict[str, Any] = {"memmap": False, "lazy_load_hdus": True, "do_not_scale_image_data": True}
            parts = self._stack.enter_context(fits.open(BufferedReader(Alone(stream, part)), **options))
            header, self._section = parts[1].header, parts[1].section
            text = header.tostring()
        self._numbers = Numbers.of(header)
        self._sides = tuple(reversed(sides))  # (..., H, W)
        if self._compressed:
            self._tiles = Tiles(self.path, self._offset, fits.Header.fromstring(part.text), self._sides)
        long = [(str(axis + 3), side) for axis, side in enumerate(sides[2:]) if side > 1][::-1]
        dtype = self._numbers.dtype
        private = Private(
            header=text,
            numbers=self._numbers,
            path=self.path.absolute(),
            stamp=(stat.st_size, stat.st_mtime_ns),
            before=(0, part.start),
            after=(part.next, stat.st_size),
        )
        notes = ["its compression is not kept"] if self._compressed else []
        if "CHECKSUM" in header:
            notes.append("its checksum is left out, because it describes the old pixels")
        self.head = Head(
            size=(sides[1], sides[0]),
            dtype=dtype,
            axes="".join(name for name, _ in long),
            shape=tuple(side for _, side in long),
            data_range=range_of(dtype),
            large=True,
            meta=Meta(private={NAME: private}),
            notes=tuple(notes),
        )
        if self._compressed:
            check_growth(self.head, part.end - part.data)

    def _read(self, plane: int, rows: range, cols: range) -> np.ndarray:
        height, width = self.size
        if self._section is not None:
            place = np.unravel_index(plane, self._sides[:-2]) if len(self._sides) > 2 else ()
            self._tiles.check([*(range(int(at), int(at) + 1) for at in place), rows, cols])
            where = (*(int(at) for at in place), slice(rows.start, rows.stop), slice(cols.start, cols.stop))
            with _quiet():
                window = np.asarray(self._section[where])
        else:
            stored = self._numbers.stored
            window = np.empty((len(rows), len(cols)), stored)
            with open(self.path, "rb") as stream:
                for row, pixels in zip(rows, window):  # not all columns: memory must not grow with the width
                    stream.seek(self._offset + ((plane * height + row) * width + cols.start) * stored.itemsize)
                    pixels[:] = np.frombuffer(stream.read(pixels.nbytes), stored)
        return self._numbers.values(window)[..., None]


class FitsSink(Sink):
    """Writes a FITS file row by row, in the place that the picture had among the other parts of the file."""

    def __init__(self, path: Path, head: Head, history: Sequence[str]):
        super().__init__(path, head)
        private = head.meta.private.get(NAME)
        self._private = private if isinstance(private, Private) and private.numbers.dtype == head.dtype else None
        self._numbers = Numbers.for_dtype(head.dtype) if self._private is None else self._private.numbers
        self._history = tuple(history)

    def _start(self, temporary: Path) -> None:
        self._stream = open(temporary, "wb")  # noqa: SIM115  (closed by _finish or _abandon)
        if self._private is not None:
            self._copy(self._private, self._private.before)
        with _quiet():
            header = self._header()
        self._sum, self._sum_at = DataSum(), self._stream.tell() + len(header.rstrip()) - len(b"END") - CARD
        self._stream.write(header)

    def _header(self) -> bytes:
        """The old header, with the new size and coordinates, or a new one."""
        from astropy.io import fits

        head, values = self.head, {}
        if self._private is None:
            text = self._numbers.cards((*head.shape, *head.size)[::-1])
        else:
            text = self._private.header
            if head.meta.scale != 1:
                old = fits.Header.fromstring(text)
                values = scaled(old, head.size, head.meta.scale, centred=head.meta.centred)
        return rewritten(text, values, left_out=_CHECKSUMS, history=self._history)

    def _put(self, plane: int, top: int, left: int, pixels: np.ndarray) -> None:
        data = self._numbers.stored_as(pixels[..., 0]).tobytes()
        self._sum.add(data)
        self._stream.write(data)

    def _finish(self) -> None:
        padding = bytes(-self._stream.tell() % BLOCK)
        self._sum.add(padding)
        self._stream.write(padding)
        end = self._stream.tell()
        self._stream.seek(self._sum_at)
        self._stream.write(self._sum.card)
        self._stream.seek(end)
        if self._private is not None:
            self._copy(self._private, self._private.after)
        self._stream.close()

    def _copy(self, private: Private, span: tuple[int, int]) -> None:
        """Parts of the file that was read, as they are."""
        left = span[1] - span[0]
        if left <= 0:  # none, or the last block of the file is short
            return
        try:
            stat = os.stat(private.path)
            if (stat.st_size, stat.st_mtime_ns) != private.stamp:
                raise FileError(private.path, "has changed since it was read", "Read it again.")
            with open(private.path, "rb") as stream:
                stream.seek(span[0])
                while left and (data := stream.read(min(left, 1 << 20))):
                    self._stream.write(data)
                    left -= len(data)
        except FileNotFoundError as error:
            raise FileError(private.path, "is gone, and with it the other parts of the file", "Restore it.") from error


def refusal(head: Head) -> str | None:
    """Why FITS cannot hold such a picture, or None."""
    if head.colour or head.has_alpha:
        return f"FITS holds grey planes, but the picture is {head.layout}"
    if head.dtype.name not in BITPIX:
        return f"FITS holds integers of 8 to 64 bits and floats of 32 and 64, but the pixels are {head.dtype}"
    return None


def _check_sum(stream: BinaryIO, part: Part) -> None:
    """Raise ValueError where the picture's part has a DATASUM that its bytes do not add up to."""
    cards = (part.text[at : at + CARD] for at in range(0, len(part.text), CARD))
    said = next((card for card in cards if card.startswith("DATASUM ")), "")
    wanted = re.search("= *'? *([0-9]+) *'?", said)
    if wanted is None:
        return
    stream.seek(part.data)
    found, left = DataSum(), part.next - part.data
    while left > 0 and (data := stream.read(min(left, 1 << 20))):
        found.add(data)
        left -= len(data)
    if found.value != int(wanted[1]):
        raise ValueError("has damaged pixel data: they do not add up to the DATASUM in the header")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """astropy warns of what it finds odd in a file; what matters is raised by this module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
