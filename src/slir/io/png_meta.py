"""Metadata of PNG files: chunks <-> Meta."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from slir.io import exif
from slir.io.picture import Meta, Resolution

NAME = "PNG"
_XMP = "XML:com.adobe.xmp"
#: How colours are meant and when they were taken: kept byte for byte.
_KEPT = (b"cICP", b"mDCV", b"cLLI", b"gAMA", b"cHRM", b"sRGB", b"tIME")
#: What Meta has a place for.
_UNDERSTOOD = (b"tEXt", b"zTXt", b"iTXt", b"pHYs", b"eXIf")
_MOST_TEXT = 1 << 24


def meta_of(chunks: list[tuple[bytes, bytes]]) -> Meta:
    """Metadata that cannot be parsed is left out: it never stops the pixels from being read."""
    found: dict[bytes, bytes] = {}
    text: dict[str, str] = {}
    room = _MOST_TEXT
    for kind, body in chunks:
        found.setdefault(kind, body)
        if kind in (b"tEXt", b"zTXt", b"iTXt") and room:
            try:
                keyword, value = _text(kind, body, room)
            except zlib.error:
                continue
            except ValueError:  # not text, or too long: a thousand of them must not take a thousand times as long
                room //= 2
                continue
            text.setdefault(keyword, value)
            room = max(0, room - len(value))
    icc = None
    if b"iCCP" in found:
        _, _, rest = found[b"iCCP"].partition(b"\0")
        try:
            icc = _small_inflate(rest[1:], _MOST_TEXT) or None
        except (ValueError, zlib.error):
            icc = None
    resolution = None
    if len(found.get(b"pHYs", b"")) == 9:
        x, y, unit = struct.unpack(">IIB", found[b"pHYs"])
        if x and y:
            resolution = Resolution(x / 100, y / 100, "cm") if unit == 1 else Resolution(x, y, "none")
    block = found.get(b"eXIf")
    xmp = text.pop(_XMP, None)
    return Meta(
        icc=icc,
        exif=block,
        xmp=None if xmp is None else xmp.encode(),
        orientation=exif.orientation(block),
        resolution=resolution,
        text=text,
        private={NAME: tuple(chunk for chunk in chunks if _is_kept(chunk[0]))},
    )


def _is_kept(kind: bytes) -> bool:
    """Lower case in the first letter means that pixels can do without it, in the last that it may be copied blindly."""
    return kind in _KEPT or (kind not in _UNDERSTOOD and bool(kind[0] & kind[3] & 0x20))


def chunks_of(meta: Meta) -> Iterator[tuple[bytes, bytes]]:
    kept = meta.private.get(NAME, ())
    assert isinstance(kept, tuple)
    yield from kept
    if meta.icc is not None:
        yield b"iCCP", b"ICC profile\0\0" + zlib.compress(meta.icc)
    if meta.resolution is not None:
        lengths = meta.resolution.per_inch()
        x, y = (meta.resolution.x, meta.resolution.y) if lengths is None else (v / 0.0254 for v in lengths)
        if 0.5 <= x < 2**31 and 0.5 <= y < 2**31:
            yield b"pHYs", struct.pack(">IIB", round(x), round(y), int(lengths is not None))
    block = exif.block(meta)
    if block is not None:
        yield b"eXIf", block
    if meta.xmp is not None:
        yield b"iTXt", _XMP.encode() + b"\0\0\0\0\0" + meta.xmp
    for keyword, value in meta.text.items():
        name = keyword.encode("latin-1", "replace")[:79].replace(b"\0", b" ") or b"Comment"
        yield b"iTXt", name + b"\0\0\0\0\0" + value.replace("\0", " ").encode()


def _text(kind: bytes, body: bytes, most: int) -> tuple[str, str]:
    name, _, rest = body.partition(b"\0")
    keyword = name.decode("latin-1")
    if kind == b"tEXt":
        return keyword, rest.decode("latin-1")
    if kind == b"zTXt":
        return keyword, _small_inflate(rest[1:], most).decode("latin-1")
    packed = rest[:1] == b"\1"
    _language, _, rest = rest[2:].partition(b"\0")
    _translated, _, value = rest.partition(b"\0")
    return keyword, (_small_inflate(value, most) if packed else value).decode()


def _small_inflate(data: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj()
    out = unpacker.decompress(data, most)
    if not unpacker.eof:
        raise ValueError("longer than any metadata should be")
    return out
