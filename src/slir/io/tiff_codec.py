"""Strips and tiles of TIFF files: bytes to pixels and back. What a segment may grow to is known beforehand."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import PIL
from PIL import Image

from slir.io import codestreams
from slir.io.codecs import check_rare
from slir.io.ifd import LONG, SHORT, Layout, Order, Tag, tag, write_directory
from slir.io.tiff_page import COMPRESSIONS, DEFLATE, JPEG, LZW, NONE, OLD_DEFLATE, OLD_JPEG, YCBCR, Page

_ZSTD = 50000
_BYTES = {LZW: "lzw", 32773: "packbits", 34925: "lzma", _ZSTD: "zstd"}  # bytes in, bytes out
_FAX = (2, 3, 4)
#: Pictures of their own: what checks their headers, imagecodecs' name for them, options of its decoder.
_PICTURES: dict[int, tuple[Callable[[bytes, codestreams.Shape, np.dtype], bytes], str, dict[str, Any]]] = {
    34712: (codestreams.jpeg2000, "jpeg2k", {}),
    34887: (codestreams.lerc, "lerc", {}),
    50001: (codestreams.webp_of, "webp", {}),
    50002: (codestreams.jpegxl, "jpegxl", {"index": 0}),  # without an index all frames are decoded to count them
}
_JPEG_TABLES = 347


def decode(data: bytes, page: Page, rows: int) -> np.ndarray:
    """(rows, columns, samples) pixels of a segment, in the machine's byte order."""
    shape = (rows, page.segment[1], page.inner)
    if page.compression in (JPEG, OLD_JPEG):
        return _jpeg(data, page, shape)
    size = rows * page.row_bytes
    if page.compression == NONE:
        raw = data
    elif page.compression in (DEFLATE, OLD_DEFLATE):
        raw = _inflate(data, size)
    elif page.compression in _BYTES:
        raw = _unpack(data, page, rows)
    elif page.compression in _FAX and page.bits == 1:
        check_rare("fax")
        raw = _by_libtiff(data, page, rows)
    else:
        return _by_imagecodecs(data, page, shape)
    if len(raw) < size:
        raise ValueError("ends before its pixels do: the file is truncated or damaged")
    if page.bits < 8:
        return _unpacked(np.frombuffer(raw, np.uint8, size).reshape(rows, -1), page)
    if page.predictor == 3:
        return _unpredicted_floats(np.frombuffer(raw, np.uint8, size).reshape(rows, -1), page).reshape(shape)
    pixels = np.frombuffer(raw, page.dtype.newbyteorder(page.layout.order), size // page.dtype.itemsize).reshape(shape)
    pixels = pixels.astype(page.dtype, copy=False)
    return _summed(pixels) if page.predictor == 2 else pixels


def encode(pixels: np.ndarray, *, order: Order, compressed: bool, predicted: bool) -> bytes:
    """The bytes of a segment of (h, w, samples) pixels: as they are, or deflated after taking differences."""
    if predicted:
        words = pixels.view(f"u{pixels.dtype.itemsize}")  # differences wrap around, as unsigned numbers do
        pixels = words.copy()
        pixels[:, 1:] -= words[:, :-1]
    raw = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(order)).tobytes()
    return zlib.compress(raw, 6) if compressed else raw


def _inflate(data: bytes, size: int) -> bytes:
    """At most `size` bytes; a stream that would grow far beyond that is a bomb."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(data, size)
        more = b"" if unpacker.eof else unpacker.decompress(unpacker.unconsumed_tail, size + 64)
    except zlib.error as error:
        raise ValueError(f"has damaged pixel data ({error})") from error
    if len(more) > size:
        raise ValueError("would grow far beyond its declared size")
    return raw


def _summed(pixels: np.ndarray) -> np.ndarray:
    words = pixels.view(f"u{pixels.dtype.itemsize}")
    return np.cumsum(words, axis=1, dtype=words.dtype).view(pixels.dtype)


def _unpredicted_floats(octets: np.ndarray, page: Page) -> np.ndarray:
    """Rows of differences of bytes, the most significant byte of all numbers first (TIFF Technical Note 3)."""
    step, item = page.inner, page.dtype.itemsize
    rows, length = octets.shape
    summed = np.cumsum(octets.reshape(rows, -1, step), axis=1, dtype=np.uint8).reshape(rows, item, length // item)
    return np.ascontiguousarray(summed.transpose(0, 2, 1)).view(page.dtype.newbyteorder(">")).astype(page.dtype)


def _unpacked(octets: np.ndarray, page: Page) -> np.ndarray:
    """Numbers of 1, 2 or 4 bits, as they are."""
    width = page.segment[1]
    reverse = 266 in page.tags and page.tags[266].number() == 2 and page.compression not in _FAX
    bits = np.unpackbits(octets, axis=1, bitorder="little" if reverse else "big")[:, : width * page.bits]
    bits = bits.reshape(len(octets), width, page.bits)
    weights = (1 << np.arange(page.bits)[::-1]).astype(np.uint8)
    return (bits * weights).sum(axis=2, dtype=np.uint8)[..., None]


def _unpack(data: bytes, page: Page, rows: int) -> bytes:
    """By imagecodecs, where it is installed, since libtiff prints what it finds wrong with damaged files."""
    try:
        import imagecodecs
    except ImportError:
        if page.compression == _ZSTD and int(PIL.__version__.split(".")[0]) < 12:  # their libtiff was built without it
            raise ValueError("is compressed by zstd, which needs the package imagecodecs, or Pillow 12") from None
        return _by_libtiff(data, page, rows)
    return getattr(imagecodecs, f"{_BYTES[page.compression]}_decode")(data, out=rows * page.row_bytes)


def _by_libtiff(data: bytes, page: Page, rows: int) -> bytes:
    """Let Pillow's libtiff unpack a segment, as a TIFF file of 8-bit greys (of 1-bit ones for fax) around it."""
    fax = page.compression in _FAX
    width = page.segment[1] if fax else page.row_bytes
    tags = {258: tag(SHORT, 1 if fax else 8), 262: tag(SHORT, 1)}
    for code in (266, 292, 293):  # order of bits, options of fax
        if fax and code in page.tags:
            tags[code] = page.tags[code].in_order("<")
    pixels = np.asarray(_opened(_wrapped(data, page, (rows, width), tags), "TIFF", (rows, width)))
    return np.packbits(pixels, axis=1).tobytes() if fax else pixels.tobytes()


def _wrapped(data: bytes, page: Page, size: tuple[int, int], tags: dict[int, Tag]) -> BytesIO:
    """A TIFF file around one segment."""
    layout = Layout()
    stream = BytesIO()
    stream.write(layout.start + bytes(4) + data)
    common = {256: size[1], 257: size[0], 273: 8, 278: size[0], 279: len(data)}
    all_tags = {code: tag(LONG, value) for code, value in common.items()}
    all_tags |= {259: tag(SHORT, page.compression), 277: tag(SHORT, 1)} | tags
    at, _ = write_directory(stream, all_tags, layout)
    stream.seek(4)
    stream.write(layout.offset.pack(at))
    stream.seek(0)
    return stream


def _jpeg(data: bytes, page: Page, shape: tuple[int, int, int]) -> np.ndarray:
    """A JPEG file is the page's tables and the segment; Adobe's marker says whether its colours are RGB already."""
    if page.dtype != np.uint8 or shape[2] not in (1, 3):
        raise ValueError(f"is compressed by JPEG with {shape[2]} channels of type {page.dtype}, which slir cannot read")
    tables = page.tags[_JPEG_TABLES].data if _JPEG_TABLES in page.tags else b""
    marker = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([page.photometric == YCBCR]) if shape[2] == 3 else b""
    pixels = np.asarray(_opened(BytesIO(b"\xff\xd8" + marker + tables[2:-2] + data[2:]), "JPEG", shape[:2]))
    return pixels.reshape(shape)


def _opened(stream: BytesIO, form: str, size: tuple[int, int]) -> Image.Image:
    """An image that must have the size (height, width)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(stream, formats=[form]) as image:
            if image.size != size[::-1]:
                raise ValueError(f"has a strip or tile of {image.size} pixels instead of {size[::-1]}")
            image.load()
            return image


def _by_imagecodecs(data: bytes, page: Page, shape: tuple[int, int, int]) -> np.ndarray:
    """Rarer compressions, where imagecodecs is installed."""
    name = COMPRESSIONS.get(page.compression)
    if page.compression not in _PICTURES:
        raise ValueError(f"is compressed by {name or f'method {page.compression}'}, which slir cannot read")
    check_rare(COMPRESSIONS[page.compression])
    take, how, options = _PICTURES[page.compression]
    try:
        import imagecodecs

        pixels = getattr(imagecodecs, f"{how}_decode")(take(data, shape, page.dtype), **options)
    except ImportError:
        raise ValueError(f"is compressed by {name}, which needs the package imagecodecs") from None
    if pixels.dtype != page.dtype or pixels.shape not in (shape, shape[: 2 + (shape[2] > 1)]):
        raise ValueError(f"is compressed by {name} in a way that slir cannot read")
    pixels = pixels.reshape(shape)
    return _summed(pixels) if page.predictor == 2 else pixels
