"""TIFF's directories of tags, which EXIF blocks are made of too: read with every length checked, and written.

Values stay as bytes, so that what slir does not understand goes out as it came in.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np

BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, DOUBLE, IFD, LONG8, IFD8 = 1, 2, 3, 4, 5, 7, 12, 13, 16, 18
#: dtype of the numbers of each type; a rational is two of them.
_NUMBERS = {
    BYTE: "u1", ASCII: "u1", SHORT: "u2", LONG: "u4", RATIONAL: "u4", 6: "i1", UNDEFINED: "u1", 8: "i2", 9: "i4",
    10: "i4", 11: "f4", DOUBLE: "f8", IFD: "u4", LONG8: "u8", 17: "i8", IFD8: "u8",
}  # fmt: skip
_SIZES = {kind: np.dtype(code).itemsize * (2 if kind in (RATIONAL, 10) else 1) for kind, code in _NUMBERS.items()}
Order = Literal["<", ">"]
_MOST_ENTRIES = 4096
_MOST_BYTES = 1 << 26


@dataclass(frozen=True)
class Tag:
    """A value as it is stored: `count` items of type `kind`, in the byte order `order`, "<" or ">"."""

    kind: int
    data: bytes
    order: Order = "<"

    @property
    def count(self) -> int:
        return len(self.data) // _SIZES[self.kind]

    def numbers(self) -> np.ndarray:
        """All numbers of the value; of rationals, numerators and denominators in turn."""
        return np.frombuffer(self.data, self.order + _NUMBERS[self.kind])

    def number(self, default: int = 0) -> int:
        """The first number."""
        values = self.numbers()
        return int(values[0]) if len(values) and values.dtype.kind in "iu" else default

    def text(self) -> str:
        """The value as text: UTF-8, or else Latin-1, up to the first zero."""
        raw = self.data.partition(b"\0")[0]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw.decode("latin-1")

    def in_order(self, order: Order) -> Tag:
        """The same value in another byte order."""
        if order == self.order:
            return self
        return tag(self.kind, self.numbers(), order)


Tags = Mapping[int, "Tag | Tags"]
"""A directory: tags by their number; a tag may be a directory of its own."""


def tag(kind: int, values: object, order: Order = "<") -> Tag:
    """A tag of numbers; for text and bytes pass them as they are."""
    if isinstance(values, bytes):
        return Tag(kind, values, order)
    return Tag(kind, np.atleast_1d(np.asarray(values)).astype(order + _NUMBERS[kind]).tobytes(), order)


@dataclass(frozen=True)
class Layout:
    """How a TIFF file counts: byte order, and offsets of 4 bytes, or of 8 in BigTIFF."""

    order: Order = "<"
    big: bool = False

    @property
    def start(self) -> bytes:
        """The bytes that begin the file, but for the offset of the first directory."""
        mark = b"II" if self.order == "<" else b"MM"
        return (
            mark + struct.pack(self.order + "HHH", 43, 8, 0) if self.big else mark + struct.pack(self.order + "H", 42)
        )

    @property
    def offset(self) -> struct.Struct:
        return struct.Struct(self.order + ("Q" if self.big else "I"))

    @property
    def count(self) -> struct.Struct:
        return struct.Struct(self.order + ("Q" if self.big else "H"))

    @property
    def entry(self) -> struct.Struct:
        """Tag, type, count; the value or its offset follows."""
        return struct.Struct(self.order + ("HHQ" if self.big else "HHI"))


def read_start(stream: BinaryIO) -> tuple[Layout, int]:
    """How the file counts, and where its first directory is."""
    stream.seek(0)
    start = stream.read(16)
    layout = Layout("<" if start[:2] == b"II" else ">", start[2:4] in (b"+\0", b"\0+"))
    at = len(layout.start)
    if len(start) < at + layout.offset.size or not start.startswith(layout.start):
        raise ValueError("has a header that makes no sense")
    (first,) = layout.offset.unpack_from(start, at)
    return layout, first


def read_directory(stream: BinaryIO, at: int, layout: Layout, size: int) -> tuple[dict[int, Tag], int]:
    """The tags at an offset of a file of `size` bytes, and where the next directory is (0: there is none)."""
    width = layout.offset.size
    line = layout.entry.size + width
    (count,) = layout.count.unpack(_bytes(stream, at, layout.count.size, size))
    if count > _MOST_ENTRIES:
        raise ValueError(f"has a directory of {count} tags, which makes no sense")
    at += layout.count.size
    body = _bytes(stream, at, count * line, size)
    tags: dict[int, Tag] = {}
    total = 0
    for place in range(0, len(body), line):
        code, kind, length = layout.entry.unpack_from(body, place)
        if kind not in _SIZES:
            continue
        value = body[place + layout.entry.size : place + line]
        length *= _SIZES[kind]
        if length > width:
            (where,) = layout.offset.unpack(value)
            total += length
            if total > _MOST_BYTES or where + length > size:
                raise ValueError(f"has a tag {code} that lies beyond its end: the file is truncated or damaged")
            value = _bytes(stream, where, length, size)
        tags.setdefault(code, Tag(kind, value[:length], layout.order))
    after = at + len(body)
    # Some writers leave out the last offset of the file.
    tail = _bytes(stream, after, width, size) if after + width <= size else bytes(width)
    return tags, layout.offset.unpack(tail)[0]


def read_directories(stream: BinaryIO, layout: Layout, first: int, size: int) -> Iterator[dict[int, Tag]]:
    """One directory after the other, as far as they go. Raises ValueError where they go in a circle."""
    seen = set()
    while first:
        if first in seen:
            raise ValueError("has pages that follow each other in a circle: the file is damaged")
        seen.add(first)
        tags, first = read_directory(stream, first, layout, size)
        yield tags


def write_directory(stream: BinaryIO, tags: Tags, layout: Layout) -> tuple[int, int]:
    """Write at the end of the stream. Gives where it is, and where the offset of the next one (now 0) stands."""
    width = layout.offset.size
    flat: dict[int, Tag] = {}
    for code, value in sorted(tags.items()):
        if isinstance(value, Tag):
            flat[code] = value.in_order(layout.order)
        else:
            flat[code] = tag(LONG8 if layout.big else LONG, write_directory(stream, value, layout)[0], layout.order)
    at = _even(stream)
    after = at + layout.count.size + len(flat) * (layout.entry.size + width)
    lines, values = [], []
    place = after + width
    for code, value in flat.items():
        data = value.data
        if len(data) > width:
            values.append(data + b"\0" * (len(data) % 2))
            data, place = layout.offset.pack(place), place + len(values[-1])
        lines.append(layout.entry.pack(code, value.kind, value.count) + data.ljust(width, b"\0"))
    stream.write(layout.count.pack(len(flat)) + b"".join(lines) + bytes(width) + b"".join(values))
    return at, after


def _even(stream: BinaryIO) -> int:
    """The end of the stream, moved on to where a directory may begin."""
    at = stream.seek(0, 2)
    stream.write(b"\0" * (at % 2))
    return at + at % 2


def _bytes(stream: BinaryIO, at: int, length: int, size: int) -> bytes:
    if at + length > size:
        raise ValueError("ends inside a directory: the file is truncated or damaged")
    stream.seek(at)
    data = stream.read(length)
    if len(data) < length:
        raise ValueError("ends inside a directory: the file is truncated or damaged")
    return data
