"""The pages of a TIFF file that are planes of one stack."""

from __future__ import annotations

from dataclasses import replace
from typing import BinaryIO

import numpy as np

from slir.io import tiff_text
from slir.io.ifd import read_directories, read_start
from slir.io.picture import BEST_RATIO, LARGE, Head, check_growth
from slir.io.tiff_page import DEFLATE, JPEG, LZW, NONE, OLD_DEFLATE, Page, parse
from slir.io.tiff_segments import by_rows

_STK, _SUB, _REDUCED, _MASK = 33629, 330, 1, 4
#: What some compressions reach at best; a file that declares more pixels than that is lying.
_BEST_RATIO = {DEFLATE: 1100, OLD_DEFLATE: 1100, LZW: 1400, JPEG: 1000}


def read_pages(stream: BinaryIO, size: int, notes: list[str]) -> list[Page]:
    """The pages that are pictures, all of one kind; `notes` learns which ones are left out."""
    layout, first = read_start(stream)
    pages: list[Page] = []
    smaller: list[dict] = []
    inner = False
    for tags in read_directories(stream, layout, first, size):
        if _STK in tags:
            raise ValueError("is a MetaMorph stack, which slir cannot read: save it as OME-TIFF")
        if 254 in tags and tags[254].number() & (_REDUCED | _MASK):
            smaller.append(tags)
            continue
        page = parse(tags, layout, size)
        inner = inner or _SUB in tags
        if pages and page.kind() != pages[0].kind():
            raise ValueError(f"holds pages of different sizes or types: page {len(pages) + 1} is not as the first")
        pages.append(page)
    if not pages and smaller:
        pages.append(parse(smaller.pop(0), layout, size))
    if not pages:
        raise ValueError("holds no image: the file is truncated or damaged")
    if smaller or inner:
        notes.append("the smaller copies of the picture in the file (thumbnails, pyramids) and its masks are not kept")
    for page in pages:
        _check_growth(page)
    return pages


def with_hidden(pages: list[Page], text: str, size: int, notes: list[str]) -> list[Page]:
    """Add the planes that follow the only page without a directory of their own, as its description `text` says."""
    page = pages[0]
    count = tiff_text.hidden_planes(text, page.shape) if len(pages) == 1 else 1
    step = int(page.counts.sum())
    in_one_piece = np.array_equal(page.offsets[1:], (page.offsets + page.counts)[:-1])
    if count == 1 or page.compression != NONE or page.tiled or not in_one_piece:
        return pages
    room = size - int(page.offsets[0])
    if room < 1.5 * step:  # one page of a stack, saved with the description of all
        notes.append(f"its description declares {count} pages, but there is one")
        return pages
    if room < count * step:
        raise ValueError(f"holds fewer bytes than its {count} pages need: the file is truncated or damaged")
    return [replace(page, offsets=page.offsets + number * step) for number in range(count)]


def _check_growth(page: Page) -> None:
    """A page may not ask for more memory, nor all of it for more work, than its bytes are worth."""
    if page.compression == NONE:
        return
    rows, cols = page.segment
    segment = Head(size=(rows, cols * page.inner), dtype=page.dtype)
    check_growth(segment, int(page.counts.max()), at_once=not by_rows(page))
    ratio = _BEST_RATIO.get(page.compression, BEST_RATIO)
    if rows * page.row_bytes * len(page.counts) > max(LARGE, ratio * int(page.counts.sum())):
        height, width = page.size
        raise ValueError(f"declares {width} × {height} pixels but holds too few bytes for them")
