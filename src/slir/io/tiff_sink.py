"""TIFF files written strip by strip or tile by tile: nothing but offsets is held for longer than a segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slir.io import tiff_codec
from slir.io.ifd import LONG, LONG8, SHORT, Layout, Tag, Tags, tag, write_directory
from slir.io.picture import Head
from slir.io.sink import Sink
from slir.io.tiff_meta import NAME, Private, page_tags
from slir.io.tiff_page import DEFLATE, NONE, PREMULTIPLIED, RGB, UNASSOCIATED

_STRIP = 1 << 18  # bytes of a strip, unless the file that was read had others
_MOST_STRIP = 1 << 22
_CLASSIC = (1 << 32) - (1 << 26)  # what fits into a TIFF whose offsets have 32 bits, with room for the tags
_SIGNED, _FLOAT = 2, 3


class TiffSink(Sink):
    """Writes a TIFF file: in tiles or strips, compressed, planar, in the byte order of the TIFF file that was read.

    Compression is deflate. A file that may come to more than 4 GB is a BigTIFF.
    """

    def __init__(self, path: Path, head: Head):
        super().__init__(path, head)
        private = head.meta.private.get(NAME)
        self._private = private if isinstance(private, Private) else _for_others(head)
        planes = 1 if self._private.hidden else head.planes
        big = self._private.layout.big or planes * head.plane_bytes > _CLASSIC
        self._layout = Layout(self._private.layout.order, big)
        self.block = self._private.tile or (_strip_rows(head, self._private), head.size[1])
        self._predicted = self._private.compressed and head.dtype.kind in "iu"
        self._places: dict[tuple[int, int, int], tuple[int, int]] = {}  # (sample, down, across) -> offset, count

    @property
    def _apart(self) -> bool:
        """Whether the samples of a pixel are stored in planes."""
        return self._private.new_shape(self.head).apart > 1

    def _start(self, temporary: Path) -> None:
        self._stream = open(temporary, "w+b")  # noqa: SIM115  (closed by _finish or _abandon)
        self._stream.write(self._layout.start)
        self._next = self._stream.tell()  # where the offset of the next directory is to be written
        self._stream.write(bytes(self._layout.offset.size))
        if self._private.hidden:
            self._begin_hidden()

    def _begin_hidden(self) -> None:
        """Write the only directory before the pixels: where they will lie is known, since nothing is compressed."""
        height, width = self.head.size
        row = width * self.head.channels * self.head.dtype.itemsize
        start = self._stream.tell()
        for _ in range(2):  # first to learn how long the directory is
            begin = self._stream.seek(0, 2)
            for number, top in enumerate(range(0, height, self.block[0])):
                self._places[0, number, 0] = (begin + top * row, min(self.block[0], height - top) * row)
            self._stream.truncate(start)
            self._write_page(0)
            self._stream.seek(0, 2)

    def _put(self, plane: int, top: int, left: int, pixels: np.ndarray) -> None:
        page, channel = divmod(plane, self._private.samples)
        parts = np.moveaxis(pixels, -1, 0)[..., None] if self._apart else pixels[None]
        for sample, part in enumerate(parts):
            piece = _padded(part, *self.block) if self._private.tile else part
            self._places[channel + sample, top // self.block[0], left // self.block[1]] = self._append(piece)
        last = (top + pixels.shape[0], left + pixels.shape[1]) == self.head.size
        if last and channel == self._private.samples - 1 and not self._private.hidden:
            self._write_page(page)
            self._places = {}

    def _append(self, piece: np.ndarray) -> tuple[int, int]:
        private = self._private
        data = tiff_codec.encode(
            piece, order=private.layout.order, compressed=private.compressed, predicted=self._predicted
        )
        at = self._stream.seek(0, 2)
        self._stream.write(data)
        return at, len(data)

    def _write_page(self, page: int) -> None:
        tags = page_tags(self.head, self._private, page, self.path.name) | self._structure()
        at, after = write_directory(self._stream, tags, self._layout)
        self._stream.seek(self._next)
        self._stream.write(self._layout.offset.pack(at))
        if not self._private.hidden:
            self._next = after

    def _structure(self) -> dict[int, Tag | Tags]:
        """How the pixels are stored."""
        head, private = self.head, self._private
        samples = private.samples if private.samples > 1 else head.channels
        extras = private.extras if private.samples > 1 else _alpha(head, private)
        places = np.array([place for _, place in sorted(self._places.items())], np.uint64)  # (segments, 2)
        where, lengths = (324, 325) if private.tile else (273, 279)
        long = LONG8 if self._layout.big else LONG
        values: dict[int, tuple[int, object]] = {
            256: (LONG, head.size[1]),
            257: (LONG, head.size[0]),
            258: (SHORT, [8 * head.dtype.itemsize] * samples),
            259: (SHORT, DEFLATE if private.compressed else NONE),
            262: (SHORT, RGB if head.colour else private.photometric),
            277: (SHORT, samples),
            284: (SHORT, 2 if self._apart else 1),
            where: (long, places[:, 0]),
            lengths: (long, places[:, 1]),
        }
        if extras:
            values[338] = (SHORT, extras)
        if head.dtype.kind != "u":
            values[339] = (SHORT, [_SIGNED if head.dtype.kind == "i" else _FLOAT] * samples)
        if self._predicted:
            values[317] = (SHORT, 2)
        if private.tile:
            values |= {322: (LONG, private.tile[1]), 323: (LONG, private.tile[0])}
        else:
            values[278] = (LONG, self.block[0])
        return {code: tag(kind, value, self._layout.order) for code, (kind, value) in values.items()}

    def _finish(self) -> None:
        self._stream.close()


def _for_others(head: Head) -> Private:
    """How pixels are stored that come from no TIFF file. EXIF keeps its byte order, which its blocks may rely on."""
    block = head.meta.exif or b"II"
    return Private(layout=Layout(">" if block[:2] == b"MM" else "<"))


def _strip_rows(head: Head, private: Private) -> int:
    inner = 1 if private.planar else head.channels
    row = head.size[1] * inner * head.dtype.itemsize
    kept = private.rows if private.rows is not None and row * private.rows <= _MOST_STRIP else None
    return min(head.size[0], kept or max(1, _STRIP // row))


def _alpha(head: Head, private: Private) -> tuple[int, ...]:
    if not head.has_alpha:
        return ()
    if head.meta.premultiplied:
        return (PREMULTIPLIED,)
    return private.extras[:1] or (UNASSOCIATED,)


def _padded(piece: np.ndarray, height: int, width: int) -> np.ndarray:
    """A full tile: the edge goes on, which compresses well."""
    beyond = ((0, height - len(piece)), (0, width - piece.shape[1]), (0, 0))
    return np.pad(piece, beyond, mode="edge") if piece.shape[:2] != (height, width) else piece
