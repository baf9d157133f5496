"""JPEG files, by Pillow."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
from PIL import Image

from slir.io import exif
from slir.io.picture import Head, Meta, Resolution, range_of

SIGNATURE = b"\xff\xd8\xff"
EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif")
NAME = "JPEG"
#: Segments that Pillow does not write but that are kept, byte for byte: captions and keywords (IPTC), long XMP.
_KEPT = (("APP13", b"Photoshop 3.0\0"), ("APP1", b"http://ns.adobe.com/xmp/extension/\0"))


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a JPEG file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    notes: list[str] = []
    with _opened(data) as image:
        if image.mode not in ("L", "RGB"):
            raise ValueError(f"has {image.mode} colours, which slir cannot read")
        if getattr(image, "n_frames", 1) > 1:
            notes.append("the file holds more than one picture; only the first is restored and kept")
        info, (width, height), colour = dict(image.info), image.size, image.mode == "RGB"
        found = getattr(image, "applist", [])
    segments = [
        (name, body) for name, body in found if any(name == app and body.startswith(mark) for app, mark in _KEPT)
    ]
    block = info.get("exif")
    if block is not None:
        block = block.removeprefix(exif.PREFIX) or None
    comment = info.get("comment")
    meta = Meta(
        icc=info.get("icc_profile"),
        exif=block,
        xmp=info.get("xmp"),
        orientation=exif.orientation(block),
        resolution=_resolution(info),
        text={} if not comment else {"Comment": comment.decode("utf-8", "replace")},
        private={NAME: tuple(segments)},
    )

    def decode() -> np.ndarray:
        with _opened(data) as image:
            return np.array(image, dtype=np.uint8).reshape(height, width, 3 if colour else 1)

    dtype = np.dtype(np.uint8)
    head = Head(
        size=(height, width), dtype=dtype, colour=colour, data_range=range_of(dtype), meta=meta, notes=tuple(notes)
    )
    return head, decode


@contextlib.contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        # Pillow warns of metadata it cannot parse and of sizes under its own limit; neither spoils the pixels.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
            yield image


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    """Write (H, W, 1) or (H, W, 3) uint8 pixels, at quality 95 and with colour at full resolution."""
    segments = meta.private.get(NAME, ())
    assert isinstance(segments, tuple)
    parts = (bytes([0xFF, 0xE0 + int(name[3:])]) + struct.pack(">H", 2 + len(body)) + body for name, body in segments)
    options: dict[str, object] = {"extra": b"".join(parts)}
    block = exif.block(meta)
    if block is not None:
        options["exif"] = exif.PREFIX + block
    if meta.icc is not None:
        options["icc_profile"] = meta.icc
    if meta.xmp is not None and len(meta.xmp) < 65_000:
        options["xmp"] = meta.xmp
    if meta.text.get("Comment"):
        options["comment"] = meta.text["Comment"].encode()[:65_000]
    lengths = None if meta.resolution is None else meta.resolution.per_inch()
    if lengths is not None and all(0.5 <= value < 65_535 for value in lengths):
        options["dpi"] = tuple(round(value) for value in lengths)
    image = Image.fromarray(np.ascontiguousarray(planes if planes.shape[2] == 3 else planes[..., 0]))
    image.save(stream, format="JPEG", quality=95, subsampling="4:4:4", **options)


def refusal(head: Head) -> str | None:
    """Why JPEG cannot hold such a picture, or None."""
    if head.dtype != np.uint8:
        return f"JPEG holds 8-bit integers, but the pixels are {head.dtype}"
    if head.has_alpha:
        return "JPEG holds no transparency, but the picture has an alpha channel"
    if max(head.size) > 65_500:
        return f"JPEG holds at most 65500 pixels a side, but the picture has {max(head.size)}"
    if head.meta.exif is not None and len(head.meta.exif) > 65_000:
        return "its EXIF block is longer than JPEG can hold"
    return None


def _resolution(info: dict) -> Resolution | None:
    density, unit = info.get("jfif_density"), info.get("jfif_unit")
    if density and unit == 2 and all(density):
        return Resolution(float(density[0]), float(density[1]), "cm")
    if "dpi" not in info:
        return None
    try:
        x, y = (float(value) for value in info["dpi"])
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return Resolution(x, y, "inch") if x > 0 and y > 0 else None
