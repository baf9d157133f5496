"""The little of EXIF that slir itself must understand: which way up the picture is."""

from __future__ import annotations

import struct

from PIL import Image

from slir.io.picture import Meta

PREFIX = b"Exif\0\0"
_ORIENTATION = 0x0112


def orientation(block: bytes | None) -> int:
    """1 to 8; 1, upright, where the block does not say or cannot be parsed."""
    if not block:
        return 1
    try:
        tags = Image.Exif()
        tags.load(PREFIX + block)
        value = tags.get(_ORIENTATION, 1)
    except Exception:  # a damaged block is passed on as it is; it must not stop the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def block(meta: Meta) -> bytes | None:
    """The EXIF block to write: the one that was read, or, for a turned picture without one, one that says only that."""
    if meta.exif is not None:
        return meta.exif
    if meta.orientation == 1:
        return None
    # little-endian TIFF: header, one directory with one entry (tag, type SHORT, count 1, value), no next directory
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, _ORIENTATION, 3, 1, meta.orientation, 0, 0)
