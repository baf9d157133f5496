"""Boxes of the ISO's base media format: JPEG 2000, JPEG XL, HEIF and AVIF are made of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The outermost boxes: kind and contents. Raises ValueError where one is longer than the file."""
    at = 0
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1 and start + 8 <= len(data):
            length, start = struct.unpack_from(">Q", data, start)[0], start + 8
        end = at + length if length else len(data)
        if not start <= end <= len(data):
            raise ValueError(f"ends inside its {kind.decode('latin-1')!r} box: the file is truncated or damaged")
        yield kind, data[start:end]
        at = end


def item_entries(data: bytes) -> Iterator[bytes]:
    """What a HEIF or AVIF file says of each of its items: the contents of the boxes `infe`."""
    for meta in _known(data, b"meta"):
        for table in _known(meta[4:], b"iinf"):
            yield from _known(table[4 + (4 if table[0] else 2) :] if len(table) > 8 else b"", b"infe")


def _known(data: bytes, wanted: bytes) -> Iterator[bytes]:
    """The boxes of a kind, up to where no more boxes can be told apart."""
    try:
        yield from (body for kind, body in boxes(data) if kind == wanted)
    except ValueError:
        return
