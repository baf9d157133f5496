"""Strips and tiles of an open TIFF file, decoded by rows as windows need them.

Segments may be as wide as the picture, so what is held must not grow with them. Small ones are kept for the next
window, up to a limit. Pixels that are not compressed are read a few rows at a time. Large strips that were deflated
are inflated a few rows at a time, and again from a mark on for the windows beside.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from slir.io import tiff_codec
from slir.io.tiff_page import DEFLATE, NONE, OLD_DEFLATE, Page

_CACHE = 32 << 20  # bytes of decoded segments that are kept for the next window
_LARGE = 4 << 20  # bytes of a decoded segment from which on it is inflated by rows
_PART = 1 << 20  # bytes of rows that are decoded at a time
_ENDS = "ends before its pixels do: the file is truncated or damaged"

Key = tuple[int, int]
"""(number of the page, number of the segment in it)."""


def by_rows(page: Page) -> bool:
    """Whether the segments of a page need not be decoded whole."""
    return page.compression == NONE or _streamed(page)


def _streamed(page: Page) -> bool:
    return page.compression in (DEFLATE, OLD_DEFLATE) and page.segment[0] * page.row_bytes > _LARGE


class Segments:
    """The segments of the pages of an open file."""

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._kept: dict[Key, np.ndarray] = {}
        self._marks: dict[Key, _Inflating] = {}
        self._held = 0  # bytes of what is kept

    def keep_only(self, keys: set[Key]) -> None:
        """Let go of all segments but these: windows come beside or below each other."""
        for key in self._kept.keys() - keys:
            self._held -= self._kept.pop(key).nbytes
        for key in self._marks.keys() - keys:
            del self._marks[key]

    def read(self, page: Page, key: Key, rows: range) -> Iterator[tuple[int, np.ndarray]]:
        """Some rows of a segment, in parts from top to bottom: the first row of each, and (h, w, samples) pixels."""
        step = max(1, _PART // page.row_bytes)
        if page.compression == NONE:
            for first in range(rows.start, rows.stop, step):
                count = min(step, rows.stop - first)
                self._stream.seek(int(page.offsets[key[1]]) + first * page.row_bytes)
                yield first, tiff_codec.decode(self._stream.read(count * page.row_bytes), page, count)
        elif _streamed(page):
            yield from self._inflated(page, key, rows, step)
        else:
            yield rows.start, self._whole(page, key)[rows.start : rows.stop]

    def _whole(self, page: Page, key: Key) -> np.ndarray:
        """A segment, kept where there is room: of a band that is too large, windows beside find a part at least."""
        if key in self._kept:
            return self._kept[key]
        self._stream.seek(int(page.offsets[key[1]]))
        top = key[1] // page.across % page.down * page.segment[0]
        height = page.segment[0] if page.tiled else min(page.segment[0], page.size[0] - top)
        pixels = tiff_codec.decode(self._stream.read(int(page.counts[key[1]])), page, height)
        if not self._kept or self._held + pixels.nbytes <= _CACHE:  # one is kept however large it is
            self._kept[key] = pixels
            self._held += pixels.nbytes
        return pixels

    def _inflated(self, page: Page, key: Key, rows: range, step: int) -> Iterator[tuple[int, np.ndarray]]:
        bare = replace(page, compression=NONE)
        mark = self._marks.get(key)
        if mark is None or mark.row > rows.start:
            mark = _Inflating(self._stream, int(page.offsets[key[1]]), int(page.counts[key[1]]), page.row_bytes)
        while mark.row < rows.start:
            mark.rows(min(step, rows.start - mark.row))
        self._marks[key] = mark
        inflating = mark.copy()
        while inflating.row < rows.stop:
            first, count = inflating.row, min(step, rows.stop - inflating.row)
            yield first, tiff_codec.decode(inflating.rows(count), bare, count)


class _Inflating:
    """A deflated segment of which `row` rows have been inflated."""

    def __init__(self, stream: BinaryIO, offset: int, count: int, row_bytes: int):
        self.row = 0
        self._stream, self._at, self._end, self._row_bytes = stream, offset, offset + count, row_bytes
        self._unpacker = zlib.decompressobj()
        self._ahead = b""  # read, but not inflated yet

    def copy(self) -> _Inflating:
        """One that goes on from here on its own."""
        other = _Inflating(self._stream, self._at, self._end - self._at, self._row_bytes)
        other.row, other._unpacker, other._ahead = self.row, self._unpacker.copy(), self._ahead
        return other

    def rows(self, count: int) -> bytes:
        """The bytes of the next rows."""
        parts, missing = [], count * self._row_bytes
        while missing:
            try:
                raw = self._unpacker.decompress(self._ahead, missing)
            except zlib.error as error:
                raise ValueError(f"has damaged pixel data ({error})") from error
            self._ahead = self._unpacker.unconsumed_tail
            parts.append(raw)
            missing -= len(raw)
            if missing and not raw and not self._ahead:
                self._more()
        self.row += count
        return b"".join(parts)

    def _more(self) -> None:
        self._stream.seek(self._at)
        self._ahead = self._stream.read(min(_PART, self._end - self._at))
        self._at += len(self._ahead)
        if not self._ahead or self._unpacker.eof:
            raise ValueError(_ENDS)
