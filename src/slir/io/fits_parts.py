"""The parts of a FITS file, from their headers: where each is, and what it holds.

Headers are checked here before astropy sees them: it counts in loops up to whatever number a header declares, and goes
back in the file where a size is negative.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from slir.io.fits_header import BITPIX, BLOCK, CARD, Numbers, rewritten

MOST_BLOCKS = 1000
"""Longest header, in blocks of 36 cards."""

MOST_AXES = 16
_MOST_COUNTED = 999  # axes and columns: three digits of a keyword
_NONSENSE = "has a header that makes no sense"
_COUNTS = re.compile(r"BITPIX|PCOUNT|GCOUNT|TFIELDS|Z?NAXIS\d*|ZTILE\d+")
_INTEGER = re.compile(r"= *([+-]?\d+) *(?:/.*)?", re.DOTALL)
_VALUED_END = re.compile("END *[=/]")
_COLUMN = re.compile(r"TFORM\d+")
_FORM = re.compile(r" *' *(\d*)([LXBIJKAEDCMPQ])")
_WIDTHS = {"X": 1 / 8, **dict.fromkeys("LBA", 1), "I": 2, **dict.fromkeys("JE", 4), **dict.fromkeys("KDCP", 8),
           **dict.fromkeys("MQ", 16)}  # fmt: skip
"""Bytes of one element of a column."""

_IMAGES, _TABLES = ("SIMPLE", "IMAGE", "IUEIMAGE"), ("BINTABLE", "A3DTABLE")


@dataclass(frozen=True)
class Part:
    """A header and the data after it.

    start, data, end : where the header begins, where the data begin, and where they end, without padding.
    text : the header's cards as they are stored; not all are ASCII, though they should be.
    counts : the integers that say how much data there are, by keyword.
    sides : lengths of the picture's axes, the fastest first; none where the part holds no picture.
    compressed : whether the picture is stored by tiles in a table.
    """

    start: int
    data: int
    end: int
    text: str
    counts: dict[str, int]
    sides: tuple[int, ...]
    compressed: bool

    @property
    def next(self) -> int:
        """Where the next part begins."""
        return self.end + -self.end % BLOCK


def first_picture(stream: BinaryIO, size: int) -> Part:
    """The first part of a file of so many bytes that holds a picture. Raises ValueError with the reason."""
    at = 0
    while at < size:
        part = _part(stream, at)
        if part.sides:
            return part
        at = part.next  # never less than a block further
    raise ValueError("holds no picture of two or more dimensions")


def _part(stream: BinaryIO, start: int) -> Part:
    stream.seek(start)
    text = _header(stream)
    if any(_VALUED_END.match(line) for line in _cards(text)):
        # astropy takes it for the end of the header in some files and for a card in others, and so do programs
        raise ValueError("has an END card with a value: where its header ends is not clear, so that it is damaged")
    kind = _kind(text)
    counts = _counts(text)
    axes = _axes(counts, "NAXIS")
    if counts.get("BITPIX") not in BITPIX.values() or counts.get("TFIELDS", 0) > _MOST_COUNTED:
        raise ValueError(_NONSENSE)
    pixels = math.prod(axes) if axes else 0
    stored = abs(counts["BITPIX"]) // 8 * counts.get("GCOUNT", 1) * (counts.get("PCOUNT", 0) + pixels)
    compressed = kind in _TABLES and _value(text, "ZIMAGE") == "T"
    sides = _axes(counts, "ZNAXIS") if compressed else axes if kind in _IMAGES else ()
    if compressed and _width(text) > counts.get("NAXIS1", 0):
        raise ValueError(_NONSENSE)
    data = start + len(text)
    sides = sides if 2 <= len(sides) <= MOST_AXES else ()
    return Part(start, data, data + (stored if axes else 0), text, counts, sides, compressed)


def _header(stream: BinaryIO) -> str:
    """The blocks of a header, to the one that holds its END."""
    blocks: list[str] = []
    while len(blocks) < MOST_BLOCKS:
        block = stream.read(BLOCK).decode("latin-1")
        if len(block) < BLOCK:
            raise ValueError("ends within a header: it is truncated")
        blocks.append(block)
        if any(line[:8].rstrip() == "END" for line in _cards(block)):
            return "".join(blocks)
    raise ValueError(f"has a header of more than {MOST_BLOCKS} blocks")


def _cards(text: str) -> Iterator[str]:
    return (text[at : at + CARD] for at in range(0, len(text), CARD))


def _kind(text: str) -> str:
    """ "SIMPLE" for the first part of a file; of others what they say that they are."""
    key = text[:8].rstrip()
    if key == "SIMPLE" and _value(text, key) == "T":
        return key
    if key != "XTENSION":
        raise ValueError(_NONSENSE)
    return _value(text, key).strip("' ")


def _value(text: str, key: str) -> str:
    """The value of a keyword as it is stored, without its comment; nothing where there is none."""
    line = next((line for line in _cards(text) if line[:10] == f"{key:<8}= "), "")
    return line[10:].partition("/")[0].strip()


def _counts(text: str) -> dict[str, int]:
    """The integers that say how much data there are. Each may be given once, so that every reader finds the same."""
    found: dict[str, int] = {}
    for line in _cards(text):
        key = line[:8].strip().upper()
        if key == "END":
            break
        if _COUNTS.fullmatch(key):
            value = _INTEGER.fullmatch(line[8:])
            if value is None or found.setdefault(key, int(value[1])) != int(value[1]):
                raise ValueError(_NONSENSE)
    if any(not 0 <= value < 2**63 for key, value in found.items() if key != "BITPIX"):
        raise ValueError(_NONSENSE)
    return found


def _axes(counts: dict[str, int], key: str) -> tuple[int, ...]:
    number = counts.get(key, -1)
    sides = [counts.get(f"{key}{axis}") for axis in range(1, min(number, _MOST_COUNTED) + 1)]
    found = tuple(side for side in sides if side is not None)
    if len(found) != number:
        raise ValueError(_NONSENSE)
    return found


def _width(text: str) -> int:
    """Bytes of a row of a table, by its columns."""
    forms = [_FORM.match(line[10:]) for line in _cards(text) if _COLUMN.fullmatch(line[:8].strip().upper())]
    return sum(math.ceil(int(form[1] or 1) * _WIDTHS[form[2]]) for form in forms if form)


class Alone(io.RawIOBase):
    """A part of a file as if it were a file of its own, after an empty first part, as FITS wants it."""

    def __init__(self, stream: BinaryIO, part: Part):
        self._stream, self._part, self._at = stream, part, 0
        self._first = rewritten(Numbers(8).cards(()), {}, left_out=(), history=())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        length = len(self._first) + self._part.next - self._part.start
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: length}[whence]
        return self._at

    def readinto(self, buffer) -> int:
        inside = self._at - len(self._first)
        if inside < 0:
            data = self._first[self._at : self._at + len(buffer)]
        else:
            self._stream.seek(self._part.start + inside)
            data = self._stream.read(max(0, min(len(buffer), self._part.next - self._part.start - inside)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
