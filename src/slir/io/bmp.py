"""BMP files, by Pillow."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from PIL import Image

from slir.io.picture import Head, Meta, Resolution, range_of
from slir.io.pillow_file import opened

SIGNATURE = b"BM"
EXTENSIONS = (".bmp", ".dib")
NAME = "BMP"
_INFO_HEADER = 40  # bytes of the oldest header that has a resolution
_PLACE, _PER_METRE = 14, 24


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a BMP file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    notes = []
    with opened(data, "BMP") as image:
        mode, (width, height) = image.mode, image.size
        if mode == "P":
            notes.append("its palette is not kept")
        elif mode == "1":
            notes.append("its single bits become grey values of 8 bits")
        elif mode not in ("L", "RGB", "RGBA"):
            raise ValueError(f"has {mode} colours, which slir cannot read")
    wanted = {"P": "RGB", "1": "L"}.get(mode, mode)

    def decode() -> np.ndarray:
        with opened(data, "BMP") as image:
            return np.array(image.convert(wanted), dtype=np.uint8).reshape(height, width, len(wanted))

    dtype = np.dtype(np.uint8)
    told: dict = {"data_range": range_of(dtype), "meta": Meta(resolution=_resolution(data)), "notes": tuple(notes)}
    return Head((height, width), dtype, colour=wanted != "L", has_alpha=wanted == "RGBA", **told), decode


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    """Write (H, W, 1) or (H, W, 3) uint8 pixels. The format has room for the resolution and no other metadata."""
    lengths = None if meta.resolution is None else meta.resolution.per_inch()
    options = {} if lengths is None else {"dpi": lengths}
    image = Image.fromarray(np.ascontiguousarray(planes if planes.shape[2] == 3 else planes[..., 0]))
    whole = io.BytesIO()  # Pillow looks back in what it writes
    image.save(whole, format="BMP", **options)
    stream.write(whole.getvalue())


def refusal(head: Head) -> str | None:
    """Why BMP cannot hold such a picture, or None."""
    if head.dtype != np.uint8:
        return f"BMP holds 8-bit integers, but the pixels are {head.dtype}"
    if head.has_alpha:
        return "BMP holds no transparency, but the picture has an alpha channel"
    if head.meta.orientation != 1:
        return "BMP does not store an orientation, but this picture has one"
    return None


def _resolution(data: bytes) -> Resolution | None:
    if int.from_bytes(data[_PLACE : _PLACE + 4], "little") < _INFO_HEADER:
        return None
    place = _PLACE + _PER_METRE
    x, y = (int.from_bytes(data[at : at + 4], "little", signed=True) for at in (place, place + 4))
    return Resolution(x / 100, y / 100, "cm") if x > 0 and y > 0 else None
