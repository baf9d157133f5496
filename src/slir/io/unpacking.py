"""Bytes unpacked into no more memory than they are known to need, by the names that Zarr has for compressors.

A stream's own header says how much a decoder allocates, and most decoders go on for as long as the stream does. So
streams are unpacked up to a limit, and where only a decoder for the whole is at hand, its header is read first.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from slir.io.picture import check_growth_of

_MOST_DICTIONARY = 1 << 27  # bytes that LZMA may look back, twice as many as its highest level asks for
_BLOCK, _SLACK = 1 << 17, 1 << 26  # the most that a block of zstd holds; what blocks that are not full seem to hold
_TOO_MUCH = "would grow far beyond its declared size"
_DAMAGED = "has damaged pixel data"


def unpacked(name: str, data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    """At most `most` bytes from a compressor's stream; one that would grow further is refused.

    name, settings : of the compressor. Raises ValueError, with the reason, also where there is none of that name.
    """
    if name not in _WAYS:
        raise ValueError(f"is compressed by {name}, which slir cannot read")
    check_growth_of(most, len(data))
    try:
        raw = _WAYS[name](data, most, settings)
    except (OSError, EOFError, RuntimeError, zlib.error, lzma.LZMAError, struct.error) as error:
        raise ValueError(f"{_DAMAGED} ({' '.join(str(error).split())})") from error
    if len(raw) > most:
        raise ValueError(_TOO_MUCH)
    return raw


def _in_streams(begin: Callable[[], Any], data: bytes, most: int) -> bytes:
    """One stream after the other, each by a decompressor of its own, until the data ends."""
    parts, left = [], most + 1
    while data and left > 0:
        unpacker = begin()
        part = unpacker.decompress(data, left)
        parts.append(part)
        left -= len(part)
        if not unpacker.eof and left > 0:
            raise EOFError("the stream ends too early")
        data = unpacker.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _zlib(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    return zlib.decompressobj().decompress(data, most + 1)


def _gzip(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    return _in_streams(lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), data, most)


def _bz2(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    return _in_streams(bz2.BZ2Decompressor, data, most)


def _lzma(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    form, filters = settings.get("format", lzma.FORMAT_XZ), settings.get("filters")
    if form != lzma.FORMAT_RAW:
        return _in_streams(lambda: lzma.LZMADecompressor(form, memlimit=_MOST_DICTIONARY), data, most)
    if any(step.get("dict_size", 0) > _MOST_DICTIONARY for step in filters or ()):
        raise ValueError(_TOO_MUCH)
    return lzma.LZMADecompressor(form, filters=filters).decompress(data, most + 1)


def _zstd(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    from numcodecs.zstd import Zstd

    if zstd_size(data) > most:
        raise ValueError(_TOO_MUCH)
    return Zstd().decode(data)


def zstd_size(data: bytes) -> int:
    """What a stream of zstd says it grows to; where it does not say so, about what its blocks can hold at most."""
    at, size = 0, 0
    while at < len(data):
        (mark,) = struct.unpack_from("<I", data, at)
        if mark & 0xFFFFFFF0 == 0x184D2A50:  # not for decoders
            at += 8 + struct.unpack_from("<I", data, at + 4)[0]
            continue
        if mark != 0xFD2FB528:
            raise ValueError(f"{_DAMAGED} (no zstd frame)")
        flags = data[at + 4]
        single = flags >> 5 & 1
        at += 6 - single + (0, 1, 2, 4)[flags & 3]
        length = (single, 2, 4, 8)[flags >> 6]
        declared = int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0)
        at, blocks, last = at + length, 0, 0
        while not last:
            if at + 3 > len(data):
                raise ValueError("ends before its pixels do: the file is truncated or damaged")
            block = int.from_bytes(data[at : at + 3], "little")
            last, kind, count = block & 1, block >> 1 & 3, block >> 3
            at += 3 + (1 if kind == 1 else count)
            blocks += _BLOCK if kind == 2 else count
        at += 4 * (flags >> 2 & 1)  # a checksum
        size += declared if length else max(0, blocks - _SLACK)
    return size


def _blosc(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    from numcodecs.blosc import Blosc

    size, block, stored = struct.unpack_from("<3I", data, 4)
    if max(size, block) > most:
        raise ValueError(_TOO_MUCH)
    if stored > len(data):
        raise ValueError("ends before its pixels do: the file is truncated or damaged")
    return Blosc().decode(data)


def _lz4(data: bytes, most: int, settings: Mapping[str, Any]) -> bytes:
    from numcodecs.lz4 import LZ4

    if struct.unpack_from("<I", data)[0] > most:
        raise ValueError(_TOO_MUCH)
    return LZ4().decode(data)


_WAYS: dict[str, Callable[[bytes, int, Mapping[str, Any]], bytes]] = {
    "zlib": _zlib,
    "gzip": _gzip,
    "bz2": _bz2,
    "lzma": _lzma,
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
}
