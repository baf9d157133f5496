"""PNG's pixels: the five row filters and zlib, at 8 and 16 bits, by NumPy.

Pillow opens a 16-bit colour PNG as 8-bit without a word, so those are decoded here; and all PNG files are encoded here,
so that there is one way out. Undoing a filter needs the pixel to the left, the one above and the one between them;
`_unfilter` therefore walks the anti-diagonals, whose pixels do not depend on each other: H + W steps, each on a whole
diagonal, instead of H · W.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import numpy as np

NONE, SUB, UP, AVERAGE, PAETH = range(5)
_BLOCK_ROWS = 64


#: Interlacing: first row, first column, step down, step across of the seven small images that make up the whole.
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_ALL = ((0, 0, 1, 1),)


def decode(
    data: Iterable[bytes],
    *,
    height: int,
    width: int,
    channels: int,
    dtype: type[np.uint8] | type[np.uint16],
    interlaced: bool = False,
) -> np.ndarray:
    """(H, W, C) pixels from the contents of the IDAT chunks. Raises ValueError where they are not a whole image."""
    item = np.dtype(dtype).itemsize
    places = [
        (slice(top, None, down), slice(left, None, across))
        for top, left, down, across in (_PASSES if interlaced else _ALL)
        if top < height and left < width
    ]
    sizes = [(len(range(height)[rows]), len(range(width)[cols])) for rows, cols in places]
    raw = _inflate(data, sum(rows * (1 + cols * channels * item) for rows, cols in sizes))
    planes = np.empty((height, width, channels), dtype)
    start = 0
    for place, (rows, cols) in zip(places, sizes):
        length = 1 + cols * channels * item  # every row starts with the number of its filter
        lines = np.frombuffer(raw, np.uint8, rows * length, start).reshape(rows, length)
        start += rows * length
        if lines[:, 0].max() > PAETH:
            raise ValueError(f"unknown row filter {lines[:, 0].max()}")
        octets = _unfilter(lines[:, 1:].reshape(rows, cols, channels * item), lines[:, 0])
        planes[place] = octets.view(np.dtype(dtype).newbyteorder(">")).reshape(rows, cols, channels)
    return planes


def encode(planes: np.ndarray, *, filters: np.ndarray | None = None, level: int = 6) -> bytes:
    """The compressed stream for the IDAT chunks, from (H, W, C) pixels of uint8 or uint16.

    filters : (H,) numbers of the row filters; by default the usual rule, row by row the one whose result, read as
        signed bytes, has the smallest sum of magnitudes.
    """
    height, _, channels = planes.shape
    step = channels * planes.dtype.itemsize
    octets = np.ascontiguousarray(planes, dtype=planes.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    packer = zlib.compressobj(level)
    parts = []
    above = np.zeros((1, octets.shape[1]), np.uint8)
    for start in range(0, height, _BLOCK_ROWS):
        rows = octets[start : start + _BLOCK_ROWS]
        tried = _filtered(rows, np.concatenate([above, rows[:-1]]), step)
        if filters is None:
            cost = np.abs(tried.view(np.int8).astype(np.int16)).sum(axis=2, dtype=np.int64)  # (5, rows)
            chosen = cost.argmin(axis=0)
        else:
            chosen = np.asarray(filters[start : start + _BLOCK_ROWS])
        best = tried[chosen, np.arange(len(rows))]
        parts.append(packer.compress(np.concatenate([chosen[:, None].astype(np.uint8), best], axis=1).tobytes()))
        above = rows[-1:]
    parts.append(packer.flush())
    return b"".join(parts)


def _inflate(data: Iterable[bytes], size: int) -> bytes:
    """Exactly `size` bytes; never more in memory than that, whatever the stream would grow to."""
    unpacker = zlib.decompressobj()
    out = bytearray()
    try:
        for piece in data:
            out += unpacker.decompress(piece, size + 1 - len(out))
            if len(out) > size:
                raise ValueError("more pixel data than its size allows")
            if unpacker.eof:
                break
    except zlib.error as error:
        raise ValueError(f"damaged pixel data ({error})") from error
    if len(out) < size:
        raise ValueError(f"only {len(out)} of {size} bytes of pixel data: the file is truncated")
    return bytes(out)


def _filtered(rows: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    """(5, R, bytes): what each filter makes of the rows."""
    left = np.zeros_like(rows)
    left[:, step:] = rows[:, :-step]
    corner = np.zeros_like(rows)
    corner[:, step:] = above[:, :-step]
    out = np.empty((5, *rows.shape), np.uint8)
    out[NONE] = rows
    out[SUB] = rows - left
    out[UP] = rows - above
    out[AVERAGE] = rows - _mean(left, above)
    out[PAETH] = rows - _paeth(left, above, corner)
    return out


def _unfilter(coded: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """(H, W, bytes a pixel) of the filtered rows -> of the pixels."""
    height, width, step = coded.shape
    padded = np.zeros((height + 1, width + 1, step), np.uint8)  # a row and a column of zeros before the first
    padded[1:, 1:] = coded
    flat = padded.reshape(-1, step)
    present = set(np.unique(filters).tolist())
    for first_row, last_row, start in _diagonals(height, width):
        count = last_row - first_row + 1
        stop = start + (count - 1) * width + 1
        here = slice(start, stop, width)  # one row down and one pixel left is `width` further in `padded`
        kind = filters[first_row : last_row + 1, None]
        left = flat[start - 1 : stop - 1 : width]
        above = flat[start - width - 1 : stop - width - 1 : width]
        guess = np.where(kind == SUB, left, 0)
        guess = np.where(kind == UP, above, guess)
        if AVERAGE in present:
            guess = np.where(kind == AVERAGE, _mean(left, above), guess)
        if PAETH in present:
            corner = flat[start - width - 2 : stop - width - 2 : width]
            guess = np.where(kind == PAETH, _paeth(left, above, corner), guess)
        flat[here] += guess.astype(np.uint8)
    return np.ascontiguousarray(padded[1:, 1:])


def _diagonals(height: int, width: int) -> Iterator[tuple[int, int, int]]:
    """(first row, last row, index in the padded image of the pixel in the first row) of every anti-diagonal."""
    for diagonal in range(height + width - 1):
        first = max(0, diagonal - width + 1)
        last = min(height - 1, diagonal)
        column = diagonal - first
        yield first, last, (first + 1) * (width + 1) + column + 1


def _mean(left: np.ndarray, above: np.ndarray) -> np.ndarray:
    return ((left.astype(np.int16) + above) >> 1).astype(np.uint8)


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Of the three neighbours, the one nearest to left + above − corner; ties go in that order."""
    a, b, c = left.astype(np.int16), above.astype(np.int16), corner.astype(np.int16)
    to_left, to_above, to_corner = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    out = np.where(to_above <= to_corner, above, corner)
    return np.where((to_left <= to_above) & (to_left <= to_corner), left, out)
