"""PNG files: chunks and colour types. The pixels' coding is in `png_codec`, metadata in `png_meta`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from slir.io import png_codec
from slir.io.picture import MAX_PIXELS, Head, Meta, range_of
from slir.io.png_codec import SIGNATURE as SIGNATURE
from slir.io.png_meta import NAME as NAME
from slir.io.png_meta import chunks_of, meta_of

EXTENSIONS = (".png",)

_GREY, _RGB, _PALETTE, _GREY_ALPHA, _RGBA = 0, 2, 3, 4, 6
_CHANNELS = {_GREY: 1, _RGB: 3, _PALETTE: 1, _GREY_ALPHA: 2, _RGBA: 4}
_DEPTHS = {_GREY: (1, 2, 4, 8, 16), _RGB: (8, 16), _PALETTE: (1, 2, 4, 8), _GREY_ALPHA: (8, 16), _RGBA: (8, 16)}
#: zlib never shrinks more than this; a file that declares more pixels than it could hold is refused before decoding.
_BEST_RATIO = 1100


@dataclass(frozen=True)
class _Header:
    width: int
    height: int
    depth: int
    colour: int
    interlaced: bool


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a PNG file says of its pixels, and what decodes them. Raises ValueError with the reason where it cannot."""
    chunks = list(_chunks(data))
    header = _header(chunks)
    if any(kind == b"acTL" for kind, _ in chunks):
        raise ValueError("is an animation")
    packed = [body for kind, body in chunks if kind == b"IDAT"]
    if not packed:
        raise ValueError("holds no pixels: the file is truncated")
    bits = header.width * header.height * header.depth * _CHANNELS[header.colour]
    if bits // 8 > _BEST_RATIO * sum(map(len, packed)):
        raise ValueError(f"declares {header.width} × {header.height} pixels but holds too few bytes for them")
    key = next((body for kind, body in chunks if kind == b"tRNS"), None)
    notes: list[str] = []
    if header.colour == _PALETTE:
        notes.append("its palette was expanded to RGB")
    elif key is not None and header.colour in (_GREY, _RGB):
        notes.append("its transparent colour became an alpha channel")
    if header.depth < 8 and header.colour == _GREY:
        notes.append(f"its {header.depth}-bit greys were expanded to 8 bits")
    dtype = np.dtype(np.uint16 if header.depth == 16 else np.uint8)
    head = Head(
        size=(header.height, header.width),
        dtype=dtype,
        colour=header.colour in (_RGB, _PALETTE, _RGBA),
        has_alpha=header.colour in (_GREY_ALPHA, _RGBA) or key is not None,
        data_range=range_of(dtype),
        meta=meta_of(chunks),
        notes=tuple(notes),
    )

    def decode() -> np.ndarray:
        if header.depth < 16:
            planes = _by_pillow(chunks, {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[head.channels])
            return planes if planes.ndim == 3 else planes[..., None]
        planes = _sixteen_bits(chunks, packed, header)
        return planes if key is None or header.colour not in (_GREY, _RGB) else _with_key(planes, key)

    return head, decode


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    """Write (H, W, C) pixels of uint8 or uint16, alpha last."""
    height, width, channels = planes.shape
    colour = {1: _GREY, 2: _GREY_ALPHA, 3: _RGB, 4: _RGBA}[channels]
    stream.write(SIGNATURE)
    _put(stream, b"IHDR", struct.pack(">IIBBBBB", width, height, 8 * planes.dtype.itemsize, colour, 0, 0, 0))
    for kind, body in chunks_of(meta):
        _put(stream, kind, body)
    packed = png_codec.encode(planes)
    for start in range(0, len(packed), 1 << 20):
        _put(stream, b"IDAT", packed[start : start + (1 << 20)])
    _put(stream, b"IEND", b"")


def refusal(head: Head) -> str | None:
    """Why PNG cannot hold such a picture, or None."""
    if head.dtype not in (np.uint8, np.uint16):
        return f"PNG holds 8-bit and 16-bit integers, but the pixels are {head.dtype}"
    if head.meta.premultiplied:
        return "PNG holds no colours that are multiplied by alpha, but the picture's are"
    return None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while True:
        if at + 12 > len(data):
            raise ValueError("ends before its end mark: the file is truncated")
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        tail = data[at + 8 + length : at + 12 + length]
        if len(body) < length or len(tail) < 4:
            raise ValueError(f"ends inside its {kind.decode('latin-1')!r} chunk: the file is truncated")
        critical = kind[0] & 0x20 == 0  # an upper-case first letter
        if zlib.crc32(kind + body) == int.from_bytes(tail, "big"):
            yield kind, body
        elif critical:
            raise ValueError(f"its {kind.decode('latin-1')!r} chunk is damaged (wrong checksum)")
        if kind == b"IEND":
            return
        at += 12 + length


def _header(chunks: list[tuple[bytes, bytes]]) -> _Header:
    if chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        raise ValueError("has no header")
    width, height, depth, colour, packing, filtering, interlace = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth not in _DEPTHS.get(colour, ()) or packing or filtering or interlace > 1 or not width or not height:
        raise ValueError("has a header that makes no sense")
    if width * height > MAX_PIXELS:
        raise ValueError(f"declares {width} × {height} pixels; the most is {MAX_PIXELS:,}")
    return _Header(width, height, depth, colour, bool(interlace))


def _sixteen_bits(chunks: list[tuple[bytes, bytes]], packed: list[bytes], header: _Header) -> np.ndarray:
    if header.colour == _GREY:
        return _by_pillow(chunks, "I;16").astype(np.uint16)[..., None]
    return png_codec.decode(
        packed,
        height=header.height,
        width=header.width,
        channels=_CHANNELS[header.colour],
        dtype=np.uint16,
        interlaced=header.interlaced,
    )


def _by_pillow(chunks: list[tuple[bytes, bytes]], mode: str) -> np.ndarray:
    """Pillow sees the pixels only: whatever is wrong with metadata must not stop it."""
    kept = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
    return png_codec.pillow(((kind, body) for kind, body in chunks if kind in kept), mode)


def _with_key(planes: np.ndarray, key: bytes) -> np.ndarray:
    """Append the alpha that a single transparent colour stands for."""
    if len(key) != 2 * planes.shape[2]:
        raise ValueError("its 'tRNS' chunk is damaged")
    clear = (planes == np.frombuffer(key, ">u2")).all(axis=2, keepdims=True)
    return np.concatenate([planes, np.where(clear, 0, 65535).astype(planes.dtype)], axis=2)


def _put(stream: BinaryIO, kind: bytes, body: bytes) -> None:
    stream.write(png_codec.chunk(kind, body))
