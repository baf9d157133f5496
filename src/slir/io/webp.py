"""WebP files, by Pillow."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
from PIL import Image

from slir.io import exif
from slir.io.picture import Head, Meta, check_growth, range_of
from slir.io.pillow_file import opened

EXTENSIONS = (".webp",)
NAME = "WebP"
_MOST = 16_383  # pixels a side


def is_start(start: bytes) -> bool:
    return start[:4] == b"RIFF" and start[8:12] == b"WEBP"


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a WebP file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    chunks = _chunks(data)
    height, width = _size(chunks)
    check_growth(Head(size=(height, width), dtype=np.dtype(np.uint8), colour=True), len(data))  # before libwebp does
    with opened(data, "WEBP") as image:
        if image.size != (width, height):
            raise ValueError("has chunks that contradict each other: the file is damaged")
        if image.mode not in ("RGB", "RGBA"):
            raise ValueError(f"has {image.mode} colours, which slir cannot read")
        has_alpha = image.mode == "RGBA"
    block = chunks.get(b"EXIF")
    if block is not None:
        block = block.removeprefix(exif.PREFIX) or None
    meta = Meta(
        icc=chunks.get(b"ICCP"),
        exif=block,
        xmp=chunks.get(b"XMP "),
        orientation=exif.orientation(block),
        resolution=exif.resolution(block),
        private={NAME: {"lossless": b"VP8L" in chunks}},
    )

    def decode() -> np.ndarray:
        with opened(data, "WEBP") as image:
            return np.array(image)

    dtype = np.dtype(np.uint8)
    head = Head(
        size=(height, width), dtype=dtype, colour=True, has_alpha=has_alpha, data_range=range_of(dtype), meta=meta
    )
    return head, decode


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    """Write (H, W, 3) or (H, W, 4) uint8 pixels: without loss, unless they come from a lossy WebP file."""
    private = meta.private.get(NAME, {})
    assert isinstance(private, dict)
    options: dict[str, object] = {"lossless": True, "quality": 70}  # here quality is effort
    if not private.get("lossless", True):
        options = {"quality": 95, "alpha_quality": 100}
    for name, block in (("icc_profile", meta.icc), ("exif", exif.block(meta)), ("xmp", meta.xmp)):
        if block is not None:
            options[name] = block
    # exact: colours under transparent pixels are data too
    Image.fromarray(np.ascontiguousarray(planes)).save(stream, format="WEBP", exact=True, **options)


def refusal(head: Head) -> str | None:
    """Why WebP cannot hold such a picture, or None."""
    if head.dtype != np.uint8:
        return f"WebP holds 8-bit integers, but the pixels are {head.dtype}"
    if not head.colour:
        return "WebP holds RGB, but the picture is grey"
    if head.meta.premultiplied:
        return "WebP holds no colours that are multiplied by alpha, but the picture's are"
    if max(head.size) > _MOST:
        return f"WebP holds at most {_MOST} pixels a side, but the picture has {max(head.size)}"
    return None


def still_size(data: bytes) -> tuple[int, int]:
    """(height, width) of a file that holds one picture."""
    return _size(_chunks(data))


def _chunks(data: bytes) -> dict[bytes, bytes]:
    """The chunks of a file that holds one picture."""
    chunks = dict(reversed(list(_all_chunks(data))))  # the first of a kind counts
    if b"ANIM" in chunks or b"ANMF" in chunks:
        raise ValueError("is an animation")
    if b"VP8 " not in chunks and b"VP8L" not in chunks:
        raise ValueError("holds no pixels: the file is truncated or damaged")
    return chunks


def _all_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    end, at = 8 + int.from_bytes(data[4:8], "little"), 12
    if end > len(data):
        raise ValueError("ends before its last chunk does: the file is truncated")
    while at + 8 <= end:
        kind, length = struct.unpack_from("<4sI", data, at)
        if at + 8 + length > end:
            raise ValueError(f"ends inside its {kind.decode('latin-1')!r} chunk: the file is truncated or damaged")
        yield kind, data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


def _size(chunks: dict[bytes, bytes]) -> tuple[int, int]:
    """(height, width), from the first chunk that says it."""
    if len(chunks.get(b"VP8X", b"")) >= 10:
        body = chunks[b"VP8X"]
        width, height = (int.from_bytes(body[at : at + 3], "little") + 1 for at in (4, 7))
    elif len(chunks.get(b"VP8L", b"")) >= 5:
        bits = int.from_bytes(chunks[b"VP8L"][1:5], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif len(chunks.get(b"VP8 ", b"")) >= 10:
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", chunks[b"VP8 "], 6))
    else:
        raise ValueError("has a header that makes no sense")
    return height, width
