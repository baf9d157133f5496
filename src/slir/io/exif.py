"""The little of EXIF that slir itself must understand: which way up the picture is, and its size and resolution."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from slir.io.picture import Meta, Resolution

PREFIX = b"Exif\0\0"
EXIF, GPS, INTEROP = 0x8769, 0x8825, 0xA005
_ORIENTATION, _X, _Y, _UNIT = 0x0112, 0x011A, 0x011B, 0x0128
_ACROSS, _DOWN = 0xA002, 0xA003  # PixelXDimension, PixelYDimension
_SHORT, _LONG, _RATIONAL = 3, 4, 5
_MOST_ENTRIES = 1000


@dataclass(frozen=True)
class _Entry:
    """One entry of a directory, and where its value lies in the block."""

    tag: int
    kind: int
    count: int
    at: int


def orientation(block: bytes | None) -> int:
    """1 to 8; 1, upright, where the block does not say or cannot be parsed."""
    entry = _found(block).get(_ORIENTATION)
    if block is None or entry is None or entry.kind != _SHORT:
        return 1
    (value,) = struct.unpack_from(_order(block) + "H", block, entry.at)
    return value if 1 <= value <= 8 else 1


def resolution(block: bytes | None) -> Resolution | None:
    """What the block says, or None."""
    found = _found(block)
    if block is None or _X not in found or _Y not in found:
        return None
    values = []
    for entry in (found[_X], found[_Y]):
        if entry.kind != _RATIONAL:
            return None
        top, bottom = struct.unpack_from(_order(block) + "II", block, entry.at)
        if not top or not bottom:
            return None
        values.append(top / bottom)
    unit = 2
    if _UNIT in found and found[_UNIT].kind == _SHORT:
        (unit,) = struct.unpack_from(_order(block) + "H", block, found[_UNIT].at)
    return Resolution(values[0], values[1], {1: "none", 3: "cm"}.get(unit, "inch"))


def block(meta: Meta) -> bytes | None:
    """The EXIF block to write: the one that was read, or, for a turned picture without one, one that says only that.

    Of a picture that was made larger, the block's size and resolution are changed, in their places; all else stays.
    """
    if meta.exif is not None:
        return meta.exif if meta.scale == 1 else _scaled(meta.exif, meta.scale)
    if meta.orientation == 1:
        return None
    # little-endian TIFF: header, one directory with one entry (tag, type SHORT, count 1, value), no next directory
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, _ORIENTATION, _SHORT, 1, meta.orientation, 0, 0)


def upright(block: bytes | None) -> bytes | None:
    """The block of a picture whose pixels have been turned as it said."""
    entry = _found(block).get(_ORIENTATION)
    if block is None or entry is None or entry.kind != _SHORT:
        return block
    out = bytearray(block)
    struct.pack_into(_order(block) + "H", out, entry.at, 1)
    return bytes(out)


def _scaled(block: bytes, scale: float) -> bytes:
    out, order = bytearray(block), _order(block)
    for tag, entry in _found(block).items():
        if tag in (_ACROSS, _DOWN) and entry.kind in (_SHORT, _LONG):
            form, most = ("H", 0xFFFF) if entry.kind == _SHORT else ("I", 0xFFFFFFFF)
            (value,) = struct.unpack_from(order + form, block, entry.at)
            struct.pack_into(order + form, out, entry.at, min(round(value * scale), most))
        elif tag in (_X, _Y) and entry.kind == _RATIONAL:
            top, bottom = struct.unpack_from(order + "II", block, entry.at)
            if round(top * scale) <= 0xFFFFFFFF:
                struct.pack_into(order + "II", out, entry.at, round(top * scale), bottom)
    return bytes(out)


def _order(block: bytes) -> str:
    return "<" if block[:2] == b"II" else ">"


def _found(block: bytes | None) -> dict[int, _Entry]:
    """The numbers of the first directory and of the EXIF one. A damaged block has none: it must not stop the pixels."""
    if block is None or len(block) < 8 or block[:2] not in (b"II", b"MM"):
        return {}
    order = _order(block)
    (first,) = struct.unpack_from(order + "I", block, 4)
    found = {entry.tag: entry for entry in _entries(block, first)}
    if EXIF in found and found[EXIF].kind == _LONG:
        (inner,) = struct.unpack_from(order + "I", block, found[EXIF].at)
        found = {entry.tag: entry for entry in _entries(block, inner)} | found
    return found


def _entries(block: bytes, at: int) -> Iterator[_Entry]:
    """Entries of one number each, whose value lies within the block."""
    order = _order(block)
    if not 8 <= at <= len(block) - 2:
        return
    (count,) = struct.unpack_from(order + "H", block, at)
    for place in range(at + 2, min(at + 2 + 12 * min(count, _MOST_ENTRIES), len(block) - 11), 12):
        tag, kind, length = struct.unpack_from(order + "HHI", block, place)
        if length != 1 or kind not in (_SHORT, _LONG, _RATIONAL):
            continue
        value = place + 8
        if kind == _RATIONAL:
            (value,) = struct.unpack_from(order + "I", block, value)
        if value + 8 <= len(block) or (kind != _RATIONAL and value + 4 <= len(block)):
            yield _Entry(tag, kind, length, value)
