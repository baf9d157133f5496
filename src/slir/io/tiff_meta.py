"""Tags of a TIFF file <-> Meta: those that other formats have too, and all the others as they are."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import BinaryIO

from slir.io import exif, tiff_text
from slir.io.ifd import (
    ASCII,
    BYTE,
    DOUBLE,
    IFD,
    IFD8,
    RATIONAL,
    SHORT,
    UNDEFINED,
    Layout,
    Order,
    Tag,
    Tags,
    read_directory,
    read_start,
    tag,
    write_directory,
)
from slir.io.picture import Head, Meta, Resolution
from slir.io.tiff_text import PageShape

NAME = "TIFF"
_SUBFILE, DESCRIPTION, _ORIENTATION, _X, _Y, _UNIT, _XMP, _ICC = 254, 270, 274, 282, 283, 296, 700, 34675
_TEXT = {"ImageDescription": DESCRIPTION, "Software": 305, "DateTime": 306, "Artist": 315, "Copyright": 33432}
_CAMERA = (271, 272)  # make, model
_UNITS = {1: "none", 2: "inch", 3: "cm"}
#: How the pixels are stored, which is the writer's affair, and places in the old file, which mean nothing in the new.
_STRUCTURE = {
    *range(255, 260), 262, 266, 273, 277, 278, 279, 284, 288, 289, 292, 293, 317, *range(322, 326), 330, 338, 339,
    347, *range(512, 522), *range(529, 533), 34412, exif.EXIF, exif.GPS, exif.INTEROP,
}  # fmt: skip
_PIXEL_SCALE, _TIE_POINTS, _TRANSFORM = 33550, 33922, 34264  # GeoTIFF
_LONGEST_IN_EXIF = 2000


@dataclass(frozen=True)
class Private:
    """What only TIFF has.

    layout : byte order, and whether it is a BigTIFF.
    compressed, tile, rows, planar, photometric, extras : how the pixels were stored; rows are those of a strip,
        extras what TIFF says of samples beyond the colours.
    samples : how many planes are the channels of one page, or 1.
    hidden : whether only the first page has a directory; the others follow it without a gap.
    shape : of the pages that were read, if any.
    pages : by page, the tags that say nothing of how pixels are stored.
    """

    layout: Layout = field(default_factory=Layout)
    compressed: bool = True
    tile: tuple[int, int] | None = None
    rows: int | None = None
    planar: bool = False
    photometric: int = 1
    extras: tuple[int, ...] = ()
    samples: int = 1
    hidden: bool = False
    shape: PageShape | None = None
    pages: tuple[Mapping[int, Tag], ...] = ()

    def new_shape(self, head: Head) -> PageShape:
        """Of the pages that are written."""
        samples = self.samples if self.samples > 1 else head.channels
        apart = samples if self.planar or self.samples > 1 else 1
        return PageShape(apart, head.size, samples // apart)


def kept(tags: Mapping[int, Tag]) -> dict[int, Tag]:
    """The tags that are to go out as they came in."""
    found = {code: value for code, value in tags.items() if code not in _STRUCTURE and value.kind not in (IFD, IFD8)}
    if _SUBFILE in found and found[_SUBFILE].number() & 1:  # a smaller copy of something that is not there any more
        del found[_SUBFILE]
    return found


def exif_block(stream: BinaryIO, tags: Mapping[int, Tag], layout: Layout, size: int) -> bytes | None:
    """The EXIF directories of a page, and its tags that belong to them, as a block of their own."""
    inner: dict[int, Tags] = {}
    for code in (exif.EXIF, exif.GPS):
        if code in tags:
            try:
                inner[code] = _inner(stream, tags[code].number(), layout, size)
            except ValueError:  # damaged metadata must not stop the pixels
                continue
    if not inner and not any(code in tags for code in _CAMERA):
        return None
    outer = {code: tags[code] for code in (*_CAMERA, *_TEXT.values(), _ORIENTATION, _X, _Y, _UNIT) if code in tags}
    outer = {code: value for code, value in outer.items() if len(value.data) <= _LONGEST_IN_EXIF}
    return block_of({**outer, **inner}, layout.order)


def block_of(tags: Tags, order: Order) -> bytes:
    """An EXIF block of these directories."""
    small = Layout(order)
    block = io.BytesIO()
    block.write(small.start + bytes(small.offset.size))
    at, _ = write_directory(block, tags, small)
    block.seek(len(small.start))
    block.write(small.offset.pack(at))
    return block.getvalue()


def meta_of(tags: Mapping[int, Tag], block: bytes | None, premultiplied: bool, private: Private | None) -> Meta:
    """What a page's tags say that other formats can say too."""
    text = {name: tags[code].text() for name, code in _TEXT.items() if code in tags and tags[code].kind == ASCII}
    orientation = tags[_ORIENTATION].number() if _ORIENTATION in tags else 1
    icc, xmp = tags.get(_ICC), tags.get(_XMP)
    return Meta(
        icc=icc.data or None if icc is not None else None,
        exif=block,
        xmp=xmp.data if xmp is not None and xmp.kind in (BYTE, UNDEFINED) else None,
        orientation=orientation if orientation in range(1, 9) else 1,
        resolution=_resolution(tags),
        premultiplied=premultiplied,
        text={name: value for name, value in text.items() if value and not tiff_text.is_shaped(value)},
        private={} if private is None else {NAME: private},
    )


def page_tags(head: Head, private: Private, page: int, name: str) -> dict[int, Tag | Tags]:
    """The tags of a page of the new file, of that name, that say nothing of how pixels are stored.

    Tags that came in go out as they are, unless Meta says something else than they do.
    """
    meta, order = head.meta, private.layout.order
    raw = private.pages[page] if page < len(private.pages) else {}
    said = meta_of(raw, None, False, None)
    tags: dict[int, Tag | Tags] = dict(raw)
    if page == 0:
        _set_first(tags, meta, said, order)
    elif not raw and meta.icc is not None:
        tags[_ICC] = tag(UNDEFINED, meta.icc, order)
    wanted = said.scaled(meta.scale).resolution if page and raw else meta.resolution
    if wanted != said.resolution:
        tags |= _resolution_tags(wanted, order)
    if meta.scale != 1:
        _scale_geography(tags, meta.scale)
    old = description.text() if isinstance(description := tags.get(DESCRIPTION), Tag) else ""
    new = tiff_text.rewritten(old, scale=meta.scale, size=head.size, name=name)
    if private.shape is not None and tiff_text.is_shaped(old):
        left = len(private.pages) - page
        new = tiff_text.reshaped(old, private.shape, private.new_shape(head), pages=left, hidden=private.hidden)
    if page == 0 and not old and not private.pages and head.axes:
        new = tiff_text.shaped(head.axes, (*head.shape, *head.size), head.channels)
    if new != old:
        tags[DESCRIPTION] = tag(ASCII, new.encode(errors="replace") + b"\0", order)  # a file's name is any bytes
    if not new:
        tags.pop(DESCRIPTION, None)
    return tags


def _set_first(tags: dict[int, Tag | Tags], meta: Meta, said: Meta, order: Order) -> None:
    """What the first page says for the whole file."""
    for name, code, kind in (("icc", _ICC, UNDEFINED), ("xmp", _XMP, BYTE)):
        wanted = getattr(meta, name)
        if wanted != getattr(said, name):
            tags.pop(code, None)
            if wanted is not None:
                tags[code] = tag(kind, wanted, order)
    if meta.orientation != said.orientation:
        tags[_ORIENTATION] = tag(SHORT, meta.orientation, order)
    for key, code in _TEXT.items():
        if meta.text.get(key) != said.text.get(key):
            tags.pop(code, None)
            if meta.text.get(key):
                tags[code] = tag(ASCII, meta.text[key].encode() + b"\0", order)
    block = exif.block(meta) if meta.exif is not None else None
    if block is not None:
        for code, value in exif_tags(block).items():
            if code in (exif.EXIF, exif.GPS) or code in _CAMERA or code in _TEXT.values():
                tags.setdefault(code, value)


def exif_tags(block: bytes) -> dict[int, Tag | Tags]:
    """The first directory of an EXIF block, with the EXIF and GPS ones in it; none where the block is damaged."""
    stream = io.BytesIO(block)
    try:
        layout, first = read_start(stream)
        outer, _ = read_directory(stream, first, layout, len(block))
        tags: dict[int, Tag | Tags] = dict(outer)
        for code in (exif.EXIF, exif.GPS):
            if code in outer:
                tags[code] = _inner(stream, outer[code].number(), layout, len(block))
    except ValueError:
        return {}
    return tags


def _inner(stream: BinaryIO, at: int, layout: Layout, size: int) -> Tags:
    """An EXIF or GPS directory, with the one that it may hold itself."""
    found, _ = read_directory(stream, at, layout, size)
    tags: dict[int, Tag | Tags] = dict(found)
    if exif.INTEROP in found:
        del tags[exif.INTEROP]
        with contextlib.suppress(ValueError):  # if it is damaged, the rest is not
            tags[exif.INTEROP] = read_directory(stream, found[exif.INTEROP].number(), layout, size)[0]
    return tags


def _resolution(tags: Mapping[int, Tag]) -> Resolution | None:
    values = []
    for code in (_X, _Y):
        if code not in tags or tags[code].kind != RATIONAL or tags[code].count != 1:
            return None
        top, bottom = (int(number) for number in tags[code].numbers())
        if not top or not bottom:
            return None
        values.append(top / bottom)
    unit = _UNITS.get(tags[_UNIT].number() if _UNIT in tags else 2)
    return None if unit is None else Resolution(values[0], values[1], unit)


def _resolution_tags(resolution: Resolution | None, order: Order) -> dict[int, Tag]:
    if resolution is None:
        return {}
    unit = next(code for code, name in _UNITS.items() if name == resolution.unit)
    return {
        _X: tag(RATIONAL, _ratio(resolution.x), order),
        _Y: tag(RATIONAL, _ratio(resolution.y), order),
        _UNIT: tag(SHORT, unit, order),
    }


def _ratio(value: float) -> tuple[int, int]:
    """Two numbers of 32 bits whose ratio is as near to the value as they allow."""
    most = 0xFFFFFFFF
    if not 1 / most <= value <= most:
        return (most, 1) if value > 1 else (1, most)
    limit = int(min(most, most / value))
    ratio = Fraction(value).limit_denominator(max(1, limit))
    return ratio.numerator, ratio.denominator


def _scale_geography(tags: dict[int, Tag | Tags], scale: float) -> None:
    """GeoTIFF: from pixels to places on the earth; pixel coordinates count corners, so they are simply multiplied."""
    for code, count, factors in (
        (_PIXEL_SCALE, 3, (1 / scale, 1 / scale, 1)),
        (_TIE_POINTS, 6, (scale, scale, 1, 1, 1, 1)),
        (_TRANSFORM, 16, (1 / scale, 1 / scale, 1, 1) * 4),
    ):
        old = tags.get(code)
        if isinstance(old, Tag) and old.kind == DOUBLE and old.count and old.count % count == 0:
            tags[code] = tag(DOUBLE, (old.numbers().reshape(-1, count) * factors).ravel(), old.order)
