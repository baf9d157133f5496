"""JPEG files, by Pillow."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from PIL import Image

from slir.io import exif
from slir.io.picture import Head, Meta, Resolution, range_of
from slir.io.pillow_file import opened

SIGNATURE = b"\xff\xd8\xff"
EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".jfif")
NAME = "JPEG"
#: Segments that Pillow does not write but that are kept, byte for byte: captions and keywords (IPTC), long XMP.
_KEPT = (("APP13", b"Photoshop 3.0\0"), ("APP1", b"http://ns.adobe.com/xmp/extension/\0"))


#: Sum of the luminance table of the standard's annex K, which a quality of 50 means.
_TABLE_SUM = 3688


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a JPEG file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    notes: list[str] = []
    with opened(data, "JPEG") as image:
        if image.mode not in ("L", "RGB", "CMYK"):
            raise ValueError(f"has {image.mode} colours, which slir cannot read")
        if getattr(image, "n_frames", 1) > 1:
            notes.append("the file holds more than one picture; only the first is restored and kept")
        info, (width, height), mode = dict(image.info), image.size, image.mode
        found = getattr(image, "applist", [])
        tables = getattr(image, "quantization", {})
    icc, colour = info.get("icc_profile"), mode != "L"
    to_rgb = _to_srgb(icc) if mode == "CMYK" else None
    if mode == "CMYK":
        how = "with its profile" if to_rgb else "without a profile, so they may be off"
        notes.append(f"its CMYK colours are converted to sRGB {how}")
    segments = [
        (name, body) for name, body in found if any(name == app and body.startswith(mark) for app, mark in _KEPT)
    ]
    block = info.get("exif")
    if block is not None:
        block = block.removeprefix(exif.PREFIX) or None
    comment = info.get("comment")
    meta = Meta(
        icc=None if mode == "CMYK" else icc,  # without a profile colours are sRGB
        exif=block,
        xmp=info.get("xmp"),
        orientation=exif.orientation(block),
        resolution=_resolution(info),
        text={} if not comment else {"Comment": comment.decode("utf-8", "replace")},
        private={NAME: tuple(segments)},
    )

    def decode() -> np.ndarray:
        with opened(data, "JPEG") as image:
            shown = (to_rgb or (lambda own: own.convert("RGB")))(image) if mode == "CMYK" else image
            return np.array(shown, dtype=np.uint8).reshape(height, width, 3 if colour else 1)

    dtype = np.dtype(np.uint8)
    head = Head(
        size=(height, width),
        dtype=dtype,
        colour=colour,
        data_range=range_of(dtype),
        meta=meta,
        notes=tuple(notes),
        quality=_quality(tables),
    )
    return head, decode


def _quality(tables: dict[int, list[int]]) -> int | None:
    """1 to 100, as the JPEG library of the Independent JPEG Group scales the standard's table; None without a table.

    Programs that scale it otherwise get the quality whose table is as coarse.
    """
    if 0 not in tables:
        return None
    scale = sum(tables[0]) / _TABLE_SUM
    return round(min(100.0, max(1.0, 100 - 50 * scale if scale <= 1 else 50 / scale)))


def _to_srgb(icc: bytes | None) -> Callable[[Image.Image], Image.Image] | None:
    """What converts CMYK colours of a profile; None where there is no profile that can."""
    if icc is None:
        return None
    try:
        from PIL import ImageCms

        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        srgb = ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(profile, srgb, "CMYK", "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC)
    except Exception:  # a damaged profile, one of other colours, or a Pillow without littleCMS
        return None

    def convert(image: Image.Image) -> Image.Image:
        converted = ImageCms.applyTransform(image, transform)
        assert converted is not None  # it is only where the image is changed in place
        return converted

    return convert


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
