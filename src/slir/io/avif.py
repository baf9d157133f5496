"""AVIF files, by Pillow."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from PIL import Image, features

from slir.io import av1, exif
from slir.io.boxes import items
from slir.io.picture import Head, Meta, range_of
from slir.io.pillow_file import opened

EXTENSIONS = (".avif",)
NAME = "AVIF"
_FREE = 1 << 23
"""Pixels that a codestream may have in any case."""

_MOST = 65_535  # pixels a side


def is_start(start: bytes) -> bool:
    return start[4:12] in (b"ftypavif", b"ftypavis")


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What an AVIF file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    _check_pillow()
    with opened(data, "AVIF") as image:
        if data[8:12] == b"avis" or getattr(image, "n_frames", 1) > 1:
            raise ValueError("is an animation")
        if image.mode not in ("RGB", "RGBA"):
            raise ValueError(f"has {image.mode} colours, which slir cannot read")
        info, (width, height), has_alpha = dict(image.info), image.size, image.mode == "RGBA"
    _check_codestreams(data, height * width)
    block = info.get("exif")
    if block is not None:
        block = block.removeprefix(exif.PREFIX) or None
    meta = Meta(
        icc=info.get("icc_profile") or None,
        exif=block,
        xmp=info.get("xmp") or None,
        orientation=exif.orientation(block),
        resolution=exif.resolution(block),
    )

    def decode() -> np.ndarray:
        with opened(data, "AVIF") as image:
            return np.array(image)

    depth = _bits(data)
    notes = (f"its {depth} bits a sample are read as 8",) if depth > 8 else ()
    dtype = np.dtype(np.uint8)
    told: dict = {"data_range": range_of(dtype), "meta": meta, "notes": notes}
    return Head((height, width), dtype, colour=True, has_alpha=has_alpha, **told), decode


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    """Write (H, W, 3) or (H, W, 4) uint8 pixels, at quality 95 and with colour at full resolution."""
    _check_pillow()
    blocks = (("icc_profile", meta.icc), ("exif", exif.block(meta)), ("xmp", meta.xmp))
    options: dict[str, object] = {name: block for name, block in blocks if block is not None}
    # One thread: the same pixels then give the same bytes.
    image = Image.fromarray(np.ascontiguousarray(planes))
    image.save(stream, format="AVIF", quality=95, subsampling="4:4:4", max_threads=1, **options)


def refusal(head: Head) -> str | None:
    """Why AVIF cannot hold such a picture, or None."""
    if head.dtype != np.uint8:
        return f"slir writes AVIF with 8-bit integers, but the pixels are {head.dtype}"
    if not head.colour:
        return "AVIF holds RGB, but the picture is grey"
    if head.meta.premultiplied:
        return "AVIF holds no colours that are multiplied by alpha, but the picture's are"
    if max(head.size) > _MOST:
        return f"AVIF holds at most {_MOST} pixels a side, but the picture has {max(head.size)}"
    return None


def _bits(data: bytes) -> int:
    """Bits a sample, as the first `pixi` box says; 8 where there is none."""
    at = data[: 1 << 16].find(b"pixi")
    return max(data[at + 9 : at + 9 + data[at + 8]], default=8) if 0 <= at < len(data) - 9 else 8


def _check_codestreams(data: bytes, pixels: int) -> None:
    """Raise ValueError where a picture inside is far larger than the file declares: all of it would be decoded."""
    for stream in items(data, b"av01"):
        for height, width in av1.sizes(stream):
            if height * width > max(_FREE, pixels):
                raise ValueError(f"declares {pixels:,} pixels, but its codestream {width} × {height}")


def _check_pillow() -> None:
    if not features.check("avif"):
        raise ValueError("is compressed by AVIF, which this build of Pillow does not decode")
