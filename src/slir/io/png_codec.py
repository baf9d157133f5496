"""PNG's pixels: the five row filters and zlib, at 8 and 16 bits, by NumPy.

Pillow opens a 16-bit colour PNG as 8-bit without a word, so those are decoded here; and all PNG files are encoded here,
so that there is one way out. Filters see bytes, each beside the same byte of the pixels around, and not what the bytes
mean. So `_unfilter` lets Pillow undo them, on pictures of 8 bits of up to four of a pixel's bytes each.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterable
from io import BytesIO

import numpy as np
from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"

NONE, SUB, UP, AVERAGE, PAETH = range(5)
_BLOCK_ROWS = 64
_MOST_OCTETS = 4  # of a pixel of 8-bit RGB with alpha

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
    octets = np.empty_like(coded)
    for start in range(0, step, _MOST_OCTETS):
        part = coded[..., start : start + _MOST_OCTETS]
        colour = {1: 0, 2: 4, 3: 2, 4: 6}[part.shape[2]]
        header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
        lines = np.concatenate([filters[:, None], part.reshape(height, -1)], axis=1)
        packed = zlib.compress(lines.data, 0)
        chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
        octets[..., start : start + _MOST_OCTETS] = pillow(chunks).reshape(part.shape)
    return octets


def pillow(chunks: Iterable[tuple[bytes, bytes]], mode: str | None = None) -> np.ndarray:
    """The pixels of a PNG file of these chunks as Pillow sees them, in a mode of Pillow's or as they are."""
    stream = BytesIO(SIGNATURE + b"".join(chunk(kind, body) for kind, body in chunks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of sizes that our own limit allows
        with Image.open(stream, formats=["PNG"]) as image:
            return np.array(image if mode in (None, image.mode) else image.convert(mode))


def chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk of a PNG file, with its length and its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def _mean(left: np.ndarray, above: np.ndarray) -> np.ndarray:
    return ((left.astype(np.int16) + above) >> 1).astype(np.uint8)


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Of the three neighbours, the one nearest to left + above − corner; ties go in that order."""
    a, b, c = left.astype(np.int16), above.astype(np.int16), corner.astype(np.int16)
    to_left, to_above, to_corner = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    out = np.where(to_above <= to_corner, above, corner)
    return np.where((to_left <= to_above) & (to_left <= to_corner), left, out)
