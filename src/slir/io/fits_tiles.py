"""Tiles of a compressed FITS picture, looked at before astropy unpacks them.

astropy inflates whatever a gzip stream grows to. It lets HCOMPRESS write as many pixels as its own header declares into
the room that a tile has.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slir.io.codecs import check_rare
from slir.io.unpacking import unpacked

_BYTES = {"L": 1, "B": 1, "A": 1, "I": 2, "J": 4, "E": 4, "K": 8, "D": 8, "C": 8, "P": 8, "M": 16, "Q": 16}
_PACKED, _ZIPPED = "COMPRESSED_DATA", "GZIP_COMPRESSED_DATA"


class Tiles:
    """The tiles of a picture of these sides, slowest first. Their table has this header; its data are at `start`."""

    def __init__(self, path: Path, start: int, header: Mapping[str, Any], sides: Sequence[int]):
        self._path, self._start, self._sides = path, start, sides
        self._row, self._kind = header["NAXIS1"], str(header["ZCMPTYPE"])
        self._heap = header.get("THEAP", header["NAXIS1"] * header["NAXIS2"])
        axes = range(len(sides), 0, -1)
        self._tile = [int(header.get(f"ZTILE{axis}", sides[-1] if axis == 1 else 1)) for axis in axes]
        if self._kind.startswith(("HCOMPRESS", "PLIO")):
            check_rare(self._kind)
        if min(self._tile) < 1:
            raise ValueError("has a header that makes no sense")
        self._grid = [-(-side // tile) for side, tile in zip(sides, self._tile)]
        self._columns: dict[
            str, tuple[int, str, int]
        ] = {}  # place in a row, form of a place in the heap, bytes a number
        at = 0
        for field in range(1, header["TFIELDS"] + 1):
            form = re.match(r"(\d*)([A-Z])([A-Z]?)", str(header[f"TFORM{field}"]))
            if form is None or form[2] not in _BYTES:
                raise ValueError("has a header that makes no sense")
            if form[2] in "PQ" and form[3] in _BYTES:
                place = {"P": ">2i", "Q": ">2q"}[form[2]]
                self._columns[str(header.get(f"TTYPE{field}"))] = (at, place, _BYTES[form[3]])
            at += int(form[1] or 1) * _BYTES[form[2]]
        self._seen: set[int] = set()

    def check(self, window: Sequence[range]) -> None:
        """Raise ValueError where a tile that the window touches would not be of its size."""
        touched = [range(part.start // tile, (part.stop - 1) // tile + 1) for part, tile in zip(window, self._tile)]
        with open(self._path, "rb") as stream:
            for place in itertools.product(*touched):
                number = int(np.ravel_multi_index(place, self._grid))
                if number not in self._seen:
                    pixels = math.prod(
                        min(tile, side - at * tile) for at, tile, side in zip(place, self._tile, self._sides)
                    )
                    self._check(stream, number, pixels)
                    self._seen.add(number)

    def _check(self, stream: Any, number: int, pixels: int) -> None:
        data, kind = self._stored(stream, number, _PACKED), self._kind
        if not data:
            data, kind = self._stored(stream, number, _ZIPPED), "GZIP"
        if not data:
            return
        if kind.startswith("GZIP"):
            unpacked("gzip", data, 8 * pixels, {})
        elif kind.startswith("HCOMPRESS"):
            sides = struct.unpack_from(">2i", data, 2) if len(data) >= 10 else (0, 0)
            if min(sides) < 1 or math.prod(sides) != pixels:
                found = " × ".join(map(str, sides))
                raise ValueError(f"has a tile that declares {found} pixels instead of {pixels:,}: the file is damaged")

    def _stored(self, stream: Any, number: int, column: str) -> bytes:
        if column not in self._columns:
            return b""
        at, place, item = self._columns[column]
        stream.seek(self._start + number * self._row + at)
        count, offset = struct.unpack(place, stream.read(struct.calcsize(place)))
        if count < 0 or offset < 0:
            raise ValueError("has tiles that lie outside of it: the file is damaged")
        stream.seek(self._start + self._heap + offset)
        return bytes(stream.read(count * item))
