"""Boxes of the ISO's base media format: JPEG 2000, JPEG XL, HEIF and AVIF are made of them."""

from __future__ import annotations

import io
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


def items(data: bytes, wanted: bytes) -> Iterator[bytes]:
    """The data of the items of a type in a HEIF or AVIF file. Raises ValueError where its tables are damaged."""
    numbers = set()
    for entry in item_entries(data):
        wide = 4 if entry[:1] == b"\3" else 2
        if entry[6 + wide : 10 + wide] == wanted:
            numbers.add(int.from_bytes(entry[4 : 4 + wide], "big"))
    for meta in _known(data, b"meta"):
        inner = b"".join(_known(meta[4:], b"idat"))
        for table in _known(meta[4:], b"iloc"):
            for number, own, extents in _locations(table):
                if number in numbers:
                    place = inner if own else data
                    yield b"".join(place[at : at + length if length else None] for at, length in extents)


def _locations(table: bytes) -> Iterator[tuple[int, bool, list[tuple[int, int]]]]:
    """Of each item in a box `iloc`: its number, whether it lies in the box `idat`, and places with lengths."""
    stream, version = io.BytesIO(table), table[0] if table else 0
    stream.seek(4)

    def take(size: int) -> int:
        found = stream.read(size)
        if len(found) < size:
            raise ValueError("has a damaged table of items")
        return int.from_bytes(found, "big")

    sizes = take(2)
    offset_size, length_size, base_size = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_size, wide = (sizes & 15 if version else 0), 4 if version == 2 else 2
    for _ in range(take(wide)):
        number, method = take(wide), take(2) & 15 if version else 0
        take(2)
        base, extents = take(base_size), []
        for _ in range(take(2)):
            take(index_size)
            extents.append((base + take(offset_size), take(length_size)))
        yield number, method == 1, extents


def _known(data: bytes, wanted: bytes) -> Iterator[bytes]:
    """The boxes of a kind, up to where no more boxes can be told apart."""
    try:
        yield from (body for kind, body in boxes(data) if kind == wanted)
    except ValueError:
        return
