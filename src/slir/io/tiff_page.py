"""One page of a TIFF file: how its pixels lie in strips or tiles, checked before any of them is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from slir.io.ifd import Layout, Tag
from slir.io.tiff_text import PageShape

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, YCBCR = 0, 1, 2, 3, 6
UNSPECIFIED, PREMULTIPLIED, UNASSOCIATED = 0, 1, 2
NONE, LZW, OLD_JPEG, JPEG, DEFLATE, OLD_DEFLATE = 1, 5, 6, 7, 8, 32946
COMPRESSIONS = {
    NONE: "none", 2: "CCITT", 3: "fax", 4: "fax", LZW: "LZW", OLD_JPEG: "old JPEG", JPEG: "JPEG", DEFLATE: "deflate",
    32773: "PackBits", OLD_DEFLATE: "deflate", 34712: "JPEG 2000", 34887: "LERC", 34925: "LZMA", 50000: "zstd",
    50001: "WebP", 50002: "JPEG XL",
}  # fmt: skip
_DTYPES = {1: "u", 2: "i", 3: "f"}
#: dtypes that a page may have.
KNOWN = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")
MOST_SIDE = 1 << 24


@dataclass(frozen=True)
class Page:
    """How pixels are stored.

    size : (height, width).
    segment : (rows, columns) of a strip or tile; tiles at the edges are full, strips are not.
    samples : numbers a pixel; `extras` says what those beyond the colours mean.
    planar : whether each sample has segments of its own.
    offsets, counts : where the segments' bytes lie in the file.
    tags : all tags, as they are stored.
    """

    layout: Layout
    size: tuple[int, int]
    dtype: np.dtype
    bits: int
    samples: int
    extras: tuple[int, ...]
    photometric: int
    compression: int
    predictor: int
    planar: bool
    tiled: bool
    segment: tuple[int, int]
    offsets: np.ndarray
    counts: np.ndarray
    tags: Mapping[int, Tag]

    @property
    def down(self) -> int:
        """Segments from top to bottom."""
        return -(-self.size[0] // self.segment[0])

    @property
    def across(self) -> int:
        return -(-self.size[1] // self.segment[1])

    def index(self, sample: int, down: int, across: int) -> int:
        """The number of the segment at a place of the grid; the same for all samples where they share segments."""
        return ((sample if self.planar else 0) * self.down + down) * self.across + across

    @property
    def inner(self) -> int:
        """Samples a pixel of a segment."""
        return 1 if self.planar else self.samples

    @property
    def shape(self) -> PageShape:
        return PageShape(self.samples if self.planar else 1, self.size, self.inner)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a decoded segment."""
        return (self.segment[1] * self.inner * self.bits + 7) // 8

    @property
    def colours(self) -> int:
        return 3 if self.photometric in (RGB, YCBCR) else 1

    @property
    def channels_apart(self) -> bool:
        """Whether samples are channels, each a picture of its own, and not colours with or without alpha."""
        extras = self.samples - self.colours
        clear = self.extras[-1:] in ((UNASSOCIATED,), (PREMULTIPLIED,))
        return extras > 1 or (extras == 1 and self.colours == 1 and not clear)

    def kind(self) -> tuple:
        """What must be the same in all pages of a stack."""
        return self.size, self.dtype, self.bits, self.samples, self.extras, self.photometric, self.channels_apart


def parse(tags: Mapping[int, Tag], layout: Layout, size: int) -> Page:
    """A page from its tags, in a file of `size` bytes. Raises ValueError, with the reason, where it cannot be read."""

    def number(code: int, default: int) -> int:
        return tags[code].number(default) if code in tags else default

    height, width = number(257, 0), number(256, 0)
    if not 0 < height <= MOST_SIDE or not 0 < width <= MOST_SIDE:
        raise ValueError(
            f"declares {width} × {height} pixels, which makes no sense" if height and width else "has no pixels"
        )
    samples, bits = number(277, 1), _all_same(tags.get(258), 1, "bits a sample")
    if not 0 < samples <= 65535:
        raise ValueError(f"has {samples} channels")
    compression, photometric = number(259, 1), number(262, BLACK_IS_ZERO)
    tiled = 322 in tags
    segment = (number(323, 0), number(322, 0)) if tiled else (min(number(278, height) or height, height), width)
    if not all(0 < side <= MOST_SIDE for side in segment):
        raise ValueError(f"has tiles of {segment[1]} × {segment[0]} pixels, which makes no sense")
    page = Page(
        layout=layout,
        size=(height, width),
        dtype=_dtype(bits, _all_same(tags.get(339), 1, "sample formats")),
        bits=bits,
        samples=samples,
        extras=tuple(int(value) for value in tags[338].numbers()) if 338 in tags else (),
        photometric=photometric,
        compression=compression,
        predictor=number(317, 1),
        planar=number(284, 1) == 2 and samples > 1,
        tiled=tiled,
        segment=segment,
        offsets=_places(tags, 324 if tiled else 273),
        counts=_places(tags, 325 if tiled else 279),
        tags=tags,
    )
    _check_colours(page)
    return _checked(page, size)


def _all_same(tag: Tag | None, default: int, what: str) -> int:
    values = {default} if tag is None else {int(value) for value in tag.numbers()}
    if len(values) != 1:
        raise ValueError(f"has channels of different {what}: {sorted(values)}")
    return values.pop()


def _dtype(bits: int, form: int) -> np.dtype:
    if bits in (1, 2, 4) and form in (1, 4):
        return np.dtype(np.uint8)
    name = {4: "u"}.get(form, _DTYPES.get(form, ""))
    if not name or bits not in (8, 16, 32, 64) or (name == "f" and bits == 8):
        raise ValueError(f"has {bits} bits a sample of type {form}, which slir cannot read")
    dtype = np.dtype(f"{name}{bits // 8}")
    if dtype.name not in KNOWN:
        raise ValueError(f"has pixels of type {dtype}, which slir cannot read")
    return dtype


def _places(tags: Mapping[int, Tag], code: int) -> np.ndarray:
    # Some writers put strips' places into the tags of tiles or the other way round.
    tag = tags.get(code) or tags.get({324: 273, 325: 279, 273: 324, 279: 325}[code])
    return np.zeros(0, np.int64) if tag is None else tag.numbers().astype(np.int64)


def _check_colours(page: Page) -> None:
    if page.photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, YCBCR):
        name = {5: "CMYK", 8: "CIELab", 9: "ICCLab", 10: "ITULab", 32803: "raw (Bayer)", 32844: "LogL"}
        raise ValueError(f"has {name.get(page.photometric, page.photometric)} colours, which slir cannot read")
    if page.samples < page.colours or (page.bits < 8 and page.samples > 1):
        raise ValueError(
            f"has {page.samples} channels of {page.bits} bits; slir reads grey, RGB, and either with alpha"
        )
    if page.photometric == YCBCR and page.compression != JPEG:
        raise ValueError("has YCbCr colours that are not compressed by JPEG, which slir cannot read")
    if page.photometric == PALETTE and (320 not in page.tags or page.samples > 2 or page.dtype.kind != "u"):
        raise ValueError("has a damaged palette")
    if page.predictor not in (1, 2, 3) or (page.predictor == 3 and page.dtype.kind != "f"):
        raise ValueError(f"has pixels predicted by rule {page.predictor}, which slir cannot read")


def _checked(page: Page, size: int) -> Page:
    """The page with exactly as many segments as it needs, all of which lie within the file."""
    need = page.down * page.across * (page.samples if page.planar else 1)
    whole = page.segment[0] * page.row_bytes
    offsets, counts = page.offsets, page.counts
    height, width = page.size
    if page.compression == NONE and height * width * page.samples * page.bits // 8 > size:
        raise ValueError(
            f"declares {width} × {height} pixels but holds too few bytes: the file is truncated or damaged"
        )
    if page.compression == NONE and len(counts) < need:  # then it is known how many bytes a segment has
        counts = np.full(min(need, len(offsets)), whole)
    if min(len(offsets), len(counts)) < need:
        raise ValueError("holds fewer strips or tiles than its size needs: the file is truncated or damaged")
    offsets, counts = offsets[:need], counts[:need].copy()
    if page.compression == NONE:
        rows = np.full(need, page.segment[0])
        if not page.tiled and page.size[0] % page.segment[0]:
            rows[page.down - 1 :: page.down] = page.size[0] % page.segment[0]
        if (counts < rows * page.row_bytes).any():
            raise ValueError("holds fewer bytes than its size needs: the file is truncated or damaged")
        counts = rows * page.row_bytes
    if (offsets <= 0).any() or (counts <= 0).any() or (offsets > size - counts).any():
        raise ValueError("ends before its pixels do: the file is truncated or damaged")
    return replace(page, offsets=offsets, counts=counts)
