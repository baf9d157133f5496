"""Pictures inside of TIFF's strips and tiles that a library decodes: their own headers, read before it sees them.

A decoder allocates what the codestream declares, not what the strip or tile has room for. So a codestream of another
size is refused here, as is one whose structure would take far more memory than its pixels do. Containers are taken
off: what was looked at is what is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from slir.io import webp
from slir.io.boxes import boxes
from slir.io.unpacking import unpacked, zstd_size

Shape = tuple[int, int, int]
"""(height, width, channels)."""

_DAMAGED = "has damaged pixel data"


def jpeg2000(data: bytes, shape: Shape, dtype: np.dtype) -> bytes:
    """A JPEG 2000 codestream of this shape."""
    if data[4:8] == b"jP  ":
        data = next((body for kind, body in boxes(data) if kind == b"jp2c"), b"")
    if data[:4] != b"\xff\x4f\xff\x51" or len(data) < 42:
        raise ValueError(f"{_DAMAGED} (no JPEG 2000 codestream)")
    x1, y1, x0, y0, tile_width, tile_height, tile_x0, tile_y0, channels = struct.unpack_from(">8IH", data, 8)
    _compare("JPEG 2000", (y1 - y0, x1 - x0), channels, shape)
    steps = data[42 : 42 + 3 * channels]  # depth, and the steps of its samples across and down, of each channel
    if len(steps) < 3 * channels or set(steps[1::3] + steps[2::3]) != {1}:
        raise ValueError("is compressed by JPEG 2000 with channels of different sizes, which slir cannot read")
    if not tile_width or not tile_height or tile_x0 > x0 or tile_y0 > y0:
        raise ValueError(f"{_DAMAGED} (JPEG 2000 tiles of no size)")
    tiles = -(-(x1 - tile_x0) // tile_width) * -(-(y1 - tile_y0) // tile_height)
    widest, highest = min(tile_width, x1 - x0), min(tile_height, y1 - y0)
    layers, heaviest = 0, 0
    for kind, body in _jpeg2000_styles(data):
        try:
            if kind == 0x52:  # COD
                flags, layers, body = body[0], max(layers, int.from_bytes(body[2:4], "big")), body[5:]
            else:  # COC
                at = 1 if channels < 257 else 2
                flags, body = body[at], body[at + 1 :]
            heaviest = max(heaviest, _jpeg2000_blocks(widest, highest, flags, body, layers))
        except IndexError:
            raise ValueError(f"{_DAMAGED} (JPEG 2000 header)") from None
    needed = tiles * (6000 + 1200 * channels) + channels * heaviest  # roughly what OpenJPEG takes
    if needed > (1 << 26) + 8 * shape[0] * shape[1] * shape[2]:
        raise ValueError("would take far more memory than its pixels: its JPEG 2000 codestream has too many parts")
    return data


def _jpeg2000_styles(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The segments COD and COC of the main header and of all tiles: how they are coded."""
    at, end_of_tile = 2, None
    while at + 4 <= len(data):
        mark, length = struct.unpack_from(">HH", data, at)
        if mark == 0xFF90 and at + 10 <= len(data):  # SOT: a part of a tile begins
            bytes_of_tile = struct.unpack_from(">I", data, at + 6)[0]
            end_of_tile = at + bytes_of_tile if bytes_of_tile else len(data)
        elif mark == 0xFF93 and end_of_tile is not None:  # SOD: its pixels, up to the next part
            if end_of_tile <= at:
                raise ValueError(f"{_DAMAGED} (JPEG 2000 tiles overlap)")
            at = end_of_tile
            continue
        elif mark in (0xFF52, 0xFF53):
            yield mark & 0xFF, data[at + 4 : at + 2 + length]
        elif mark == 0xFFD9:
            return
        at += 2 + length


def _jpeg2000_blocks(width: int, height: int, flags: int, body: bytes, layers: int) -> int:
    """Bytes, roughly, for the code blocks and precincts of a tile's channel."""
    levels, block_width, block_height = body[0], body[1] + 2, body[2] + 2  # powers of 2
    if levels > 32:
        raise IndexError
    needed = 0
    for level in range(levels + 1):  # 0 is the coarsest
        sides = [(side >> (levels - level)) + 2 for side in (width, height)]
        precinct = body[5 + level] if flags & 1 else 0xFF
        blocks, packets = 3 if level else 1, 1
        for side, block, most in zip(sides, (block_width, block_height), (precinct & 15, precinct >> 4)):
            blocks *= (side >> min(block, max(0, most - (level > 0)))) + 1
            packets *= (side >> most) + 1
        needed += 600 * blocks + 2 * (levels + 1) * layers * packets
    return needed


def lerc(data: bytes, shape: Shape, dtype: np.dtype) -> bytes:
    """A LERC blob of this shape; some are deflated, or compressed by zstd, once more."""
    most = shape[0] * shape[1] * shape[2] * (dtype.itemsize + 1) + 4096
    if data[:1] == b"\x78":
        data = unpacked("zlib", data, most, {})
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        import imagecodecs

        if zstd_size(data) > most:
            raise ValueError("would grow far beyond its declared size")
        data = bytes(imagecodecs.zstd_decode(data, out=most))
    if data[:6] != b"Lerc2 " or len(data) < 50:
        raise ValueError(f"{_DAMAGED} (no LERC blob of version 2 or later)")
    version = int.from_bytes(data[6:10], "little")
    height, width, depth = struct.unpack_from("<3I", data, 14 if version >= 3 else 10)
    _compare("LERC", (height, width), depth if version >= 4 else 1, shape)
    return data


def webp_of(data: bytes, shape: Shape, dtype: np.dtype) -> bytes:
    """A WebP file of this shape."""
    _compare("WebP", webp.still_size(data), shape[2], shape)
    return data


def jpegxl(data: bytes, shape: Shape, dtype: np.dtype) -> bytes:
    """A JPEG XL codestream of this shape."""
    if data[4:8] == b"JXL ":
        parts = list(boxes(data))
        whole = b"".join(body for kind, body in parts if kind == b"jxlc")
        data = whole or b"".join(body[4:] for kind, body in parts if kind == b"jxlp")
    if data[:2] != b"\xff\x0a":
        raise ValueError(f"{_DAMAGED} (no JPEG XL codestream)")
    bits = _Bits(data[2:66])
    height, width = _jpegxl_size(bits)
    extra = 0
    if not bits.take(1):  # not everything as usual
        if bits.take(1):
            bits.take(3)  # orientation
            if bits.take(1):
                _jpegxl_size(bits)  # at which it is meant to be shown
            if bits.take(2):  # a preview, an animation
                raise ValueError("has a strip or tile of JPEG XL that is more than one picture")
        if bits.take(1):  # floats
            bits.choose((32, 0), (16, 0), (24, 0), (1, 6))
            bits.take(4)
        else:
            bits.choose((8, 0), (10, 0), (12, 0), (1, 6))
        bits.take(1)
        extra = bits.choose((0, 0), (1, 0), (2, 4), (1, 12))
    # How many of the channels are colours is said further on; the others can be very many.
    _compare("JPEG XL", (height, width), shape[2] if extra < shape[2] else extra + 1, shape)
    return data


def _jpegxl_size(bits: _Bits) -> tuple[int, int]:
    small = bits.take(1)

    def side() -> int:
        return 8 * (bits.take(5) + 1) if small else bits.choose((1, 9), (1, 13), (1, 18), (1, 30))

    height, ratio = side(), bits.take(3)
    if not ratio:
        return height, side()
    across, down = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))[ratio - 1]
    return height, height * across // down


class _Bits:
    """Numbers of a few bits each, the lowest bit of a byte first. Beyond the end there are zeros."""

    def __init__(self, data: bytes):
        self._left = int.from_bytes(data, "little")

    def take(self, count: int) -> int:
        value = self._left & ((1 << count) - 1)
        self._left >>= count
        return value

    def choose(self, *ways: tuple[int, int]) -> int:
        """A number stored in one of four ways, (offset, bits)."""
        offset, count = ways[self.take(2)]
        return offset + self.take(count)


def _compare(name: str, size: tuple[int, int], channels: int, shape: Shape) -> None:
    if (*size, channels) != shape:
        found, wanted = (" × ".join(map(str, (sides[1], sides[0], *sides[2:]))) for sides in ((*size, channels), shape))
        raise ValueError(f"has a strip or tile of {name} that declares {found} samples instead of {wanted}")
