"""TIFF files: strips and tiles are decoded as windows need them, pages are planes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from slir.io import tiff_text
from slir.io.picture import Head, range_of
from slir.io.source import Source, reasons
from slir.io.tiff_meta import DESCRIPTION, NAME, Private, exif_block, kept, meta_of
from slir.io.tiff_page import (
    COMPRESSIONS,
    DEFLATE,
    JPEG,
    KNOWN,
    NONE,
    OLD_DEFLATE,
    PALETTE,
    PREMULTIPLIED,
    RGB,
    Page,
)
from slir.io.tiff_pages import read_pages, with_hidden
from slir.io.tiff_segments import Key, Segments, by_rows

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
EXTENSIONS = (".tif", ".tiff", ".btf", ".tf8")
_ALL = slice(None)
_SMALL = 64 << 20  # planes that are not worth a word about how they are decoded


class TiffSource(Source):
    """A TIFF file. Windows decode only the strips or tiles that they touch."""

    form = NAME

    def __init__(self, path: Path):
        self.path = path
        self._stream = open(path, "rb")  # noqa: SIM115  (closed by close)
        self._segments = Segments(self._stream)
        try:
            with reasons(path, NAME):
                self._open(os.fstat(self._stream.fileno()).st_size)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._stream.close()
        self._segments.keep_only(set())

    def _open(self, size: int) -> None:
        notes: list[str] = []
        pages = read_pages(self._stream, size, notes)
        page = pages[0]
        text = page.tags[DESCRIPTION].text() if DESCRIPTION in page.tags else ""
        if tiff_text.foreign_files(text):
            raise ValueError("is one of several files that make up an OME-TIFF: join their pages into one file first")
        self._pages = with_hidden(pages, text, size, notes)
        self._apart = page.samples if page.channels_apart else 1
        self._palette = page.photometric == PALETTE and not tiff_text.is_imagej(text)
        axes, shape = tiff_text.axes(text, len(self._pages), page.samples)
        if self._apart > 1:
            axes, shape = axes + "S", (*shape, self._apart)
        dtype = _palette_of(page).dtype if self._palette else page.dtype
        colour = self._palette or (page.colours == 3 and self._apart == 1)
        private = self._private(colour=colour, hidden=len(self._pages) > len(pages))
        premultiplied = self._apart == 1 and page.extras == (PREMULTIPLIED,)
        block = exif_block(self._stream, page.tags, page.layout, size)
        head = Head(
            size=page.size,
            dtype=dtype,
            colour=colour,
            has_alpha=self._apart == 1 and page.samples > page.colours,
            axes=axes,
            shape=shape,
            data_range=range_of(dtype),
            meta=meta_of(page.tags, block, premultiplied, private),
        )
        largest = min(page.segment[0], page.size[0]) * page.row_bytes
        large = by_rows(page) or 2 * largest <= head.plane_bytes
        if not large and head.plane_bytes > _SMALL:
            notes.append("its pixels are compressed in one piece, which is decoded whole")
        self.head = replace(head, large=large, notes=(*_conversions(page, self._palette), *notes))

    def _private(self, *, colour: bool, hidden: bool) -> Private:
        page = self._pages[0]
        return Private(
            layout=page.layout,
            compressed=page.compression != NONE,
            tile=page.segment if page.tiled else None,
            rows=None if page.tiled else page.segment[0],
            planar=page.planar,
            photometric=RGB if colour else page.photometric,
            extras=page.extras,
            samples=self._apart,
            hidden=hidden and self._apart == 1 and not page.planar,
            shape=page.shape,
            pages=tuple(_page_tags(other, self._palette) for other in self._pages),
        )

    def _read(self, plane: int, rows: range, cols: range) -> np.ndarray:
        number, channel = divmod(plane, self._apart)
        page = self._pages[number]
        samples = range(channel, channel + 1) if self._apart > 1 else range(page.samples)
        window = np.empty((len(rows), len(cols), len(samples)), page.dtype)
        places = [
            (sample, down, across)
            for down in range(rows.start // page.segment[0], (rows.stop - 1) // page.segment[0] + 1)
            for across in range(cols.start // page.segment[1], (cols.stop - 1) // page.segment[1] + 1)
            for sample in (samples if page.planar else samples[:1])  # of one of them, or of all
        ]
        self._segments.keep_only({(number, page.index(*place)) for place in places})
        for sample, down, across in places:
            key, corner = (number, page.index(sample, down, across)), (down * page.segment[0], across * page.segment[1])
            if page.planar:
                self._fill(window[..., sample - samples.start, None], key, corner, rows, cols, _ALL)
            else:
                self._fill(window, key, corner, rows, cols, slice(samples.start, samples.stop))
        return _in_colour(window, page, self._palette)

    def _fill(
        self, window: np.ndarray, key: Key, corner: tuple[int, int], rows: range, cols: range, samples: slice
    ) -> None:
        """Copy what the segment with this upper left corner holds of the window."""
        page, (top, left) = self._pages[key[0]], corner
        height, width = min(page.segment[0], page.size[0] - top), min(page.segment[1], page.size[1] - left)
        within = range(max(rows.start, top) - top, min(rows.stop, top + height) - top)
        beside = slice(max(cols.start, left), min(cols.stop, left + width))
        there = slice(beside.start - cols.start, beside.stop - cols.start)
        for first, part in self._segments.read(page, key, within):
            at = top + first - rows.start
            window[at : at + len(part), there] = part[:, beside.start - left : beside.stop - left, samples]


def refusal(head: Head) -> str | None:
    """Why TIFF cannot hold such a picture, or None."""
    if head.dtype.name in KNOWN:
        return None
    return f"TIFF holds integers of 8 to 32 bits and floats, but the pixels are {head.dtype}"


def _page_tags(page: Page, palette: bool) -> dict:
    tags = kept(page.tags)
    if palette or page.photometric != PALETTE:
        tags.pop(320, None)
    return tags


def _palette_of(page: Page) -> np.ndarray:
    """(3, N) colours. The table has 16 bits; most writers only used 8, repeated (× 257) or shifted (× 256)."""
    table = page.tags[320].numbers()
    table = table[: len(table) // 3 * 3].reshape(3, -1).astype(np.uint16)
    return (table >> 8).astype(np.uint8) if not (table % 257).any() or not (table % 256).any() else table


def _in_colour(window: np.ndarray, page: Page, palette: bool) -> np.ndarray:
    """Expand palettes and greys of fewer than 8 bits; every other picture passes as it is."""
    if palette:
        table = _palette_of(page)
        if table.shape[1] <= int(window[..., 0].max()):
            raise ValueError("has a damaged palette")
        colours = np.moveaxis(table[:, window[..., 0]], 0, -1)
        return np.concatenate([colours, window[..., 1:].astype(table.dtype)], axis=-1)
    if page.bits < 8:
        return window * np.uint8(255 // ((1 << page.bits) - 1))
    return window


def _conversions(page: Page, palette: bool) -> Sequence[str]:
    """What will not come back as it was."""
    notes = []
    if palette:
        notes.append("its palette was expanded to RGB")
    elif page.bits < 8:
        notes.append(f"its {page.bits}-bit greys were expanded to 8 bits")
    if page.compression not in (NONE, DEFLATE, OLD_DEFLATE):
        lost = ", so that nothing more is lost" if page.compression == JPEG else ""
        notes.append(f"its {COMPRESSIONS.get(page.compression, 'rare')} compression becomes deflate in TIFF{lost}")
    if page.channels_apart and not page.planar:
        notes.append("its interleaved channels are restored and stored one after the other")
    return notes
