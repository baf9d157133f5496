"""TIFF files of one page, by tifffile; and by Pillow where a compression needs it and no bit is lost on the way."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
import tifffile
from PIL import Image

from slir.io.picture import MAX_PIXELS, Head, Meta, Picture, Resolution, from_interleaved

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
EXTENSIONS = (".tif", ".tiff")
NAME = "TIFF"

_UNCOMPRESSED, _DEFLATE = 1, (8, 32946)
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6
_PREMULTIPLIED, _UNASSOCIATED = 1, 2
_UNITS = {1: "none", 2: "inch", 3: "cm"}
_XMP, _ORIENTATION, _EXIF = 700, 274, 34665
#: Text tags that go out as they came in. The first three have arguments of their own in tifffile.
_TEXT = {"ImageDescription": 270, "Software": 305, "DateTime": 306}
_MORE_TEXT = {"Make": 271, "Model": 272, "Artist": 315, "HostComputer": 316, "Copyright": 33432}
_DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    picture = _read(data)
    return picture.head, picture.interleaved


def _read(data: bytes) -> Picture:
    """Decode a TIFF file. Raises ValueError with the reason where it cannot be."""
    notes: list[str] = []
    with _quiet(), tifffile.TiffFile(io.BytesIO(data)) as file:
        page = _only_page(file, notes)
        _check(page, len(data))
        planes = _pixels(page, data)
        description = page.tags.get(_TEXT["ImageDescription"])
        meta = _meta(page, "" if description is None else description.value)
        if _EXIF in page.tags:
            notes.append("the EXIF block inside the TIFF file is not kept")
        planes = _in_colour(planes, page, notes)
    return from_interleaved(planes, meta=meta, notes=tuple(notes))


def encode(stream: BinaryIO, planes: np.ndarray, meta: Meta) -> None:
    write(stream, from_interleaved(planes, meta=meta))


def write(stream: BinaryIO, picture: Picture) -> None:
    """Encode a picture of any dtype in `_DTYPES`: compressed by deflate unless it came from an uncompressed TIFF."""
    meta = picture.meta
    private = meta.private.get(NAME, {})
    assert isinstance(private, dict)
    planes = picture.interleaved()
    extras = [] if picture.alpha is None else [private.get("alpha", _UNASSOCIATED)]
    compress = private.get("compressed", True)
    text = {code: meta.text[name].encode() + b"\0" for name, code in _MORE_TEXT.items() if meta.text.get(name)}
    tags: list[tuple] = [(code, 2, len(value), value, True) for code, value in text.items()]
    if meta.xmp is not None:
        tags.append((_XMP, 1, len(meta.xmp), meta.xmp, True))
    if meta.orientation != 1:
        tags.append((_ORIENTATION, 3, 1, meta.orientation, True))
    resolution = meta.resolution
    tifffile.imwrite(
        stream,
        planes if planes.shape[2] > 1 else planes[..., 0],
        photometric=private.get("photometric", _BLACK_IS_ZERO) if picture.channel_axis is None else _RGB,
        planarconfig="contig" if planes.shape[2] > 1 else None,
        extrasamples=extras or None,
        compression="zlib" if compress else None,
        predictor=compress and planes.dtype.kind in "iu",
        rowsperstrip=max(1, (1 << 18) // max(1, planes[:1].nbytes)) if compress else None,
        iccprofile=meta.icc,
        resolution=None if resolution is None else (resolution.x, resolution.y),
        resolutionunit=None if resolution is None else {v: k for k, v in _UNITS.items()}[resolution.unit],
        description=meta.text.get("ImageDescription", "").encode() or None,
        software=meta.text.get("Software", "").encode() or False,
        datetime=_date(meta.text.get("DateTime")),
        metadata=None,
        extratags=tags,
    )


def refusal(head: Head) -> str | None:
    """Why TIFF cannot hold such a picture, or None."""
    if head.dtype.name in _DTYPES:
        return None
    return f"TIFF holds integers of 8 to 32 bits and floats, but the pixels are {head.dtype}"


def _only_page(file: tifffile.TiffFile, notes: list[str]) -> tifffile.TiffPage:
    if len(file.pages) == 0:
        raise ValueError("holds no image: the file is truncated or damaged")
    pages = [page.aspage() for page in file.pages]
    whole = [page for page in pages if not page.is_reduced] or pages[:1]
    page = whole[0]
    shape = file.series[0].shape if file.series else page.shape
    if len(whole) > 1 or math.prod(shape) > math.prod(page.shape):
        count = len(whole) if len(whole) > 1 else math.prod(shape) // max(1, math.prod(page.shape))
        raise ValueError(f"holds {count} pages; slir reads one at a time")
    if len(pages) > 1:
        notes.append("the smaller copies of the picture in the file (thumbnails) are not kept")
    return page


def _check(page: tifffile.TiffPage, size: int) -> None:
    """Refuse what cannot be decoded, or only at the price of all memory, before any pixel is decoded."""
    if page.imagewidth * page.imagelength > MAX_PIXELS or page.imagedepth > 1:
        raise ValueError(f"declares {page.imagewidth} × {page.imagelength} pixels; the most is {MAX_PIXELS:,}")
    if page.dtype is None or page.bitspersample not in (1, 8, 16, 32, 64) or not page.shape:
        raise ValueError(f"has {page.bitspersample} bits a sample, which slir cannot read")
    if 0 in page.shape:
        raise ValueError("has no pixels")
    if not page.dataoffsets or len(page.dataoffsets) != len(page.databytecounts):
        raise ValueError("holds no pixels: the file is truncated or damaged")
    for offset, count in zip(page.dataoffsets, page.databytecounts):
        if count <= 0 or offset <= 0 or offset + count > size:
            raise ValueError("ends before its pixels do: the file is truncated or damaged")
    if page.compression == _UNCOMPRESSED and sum(page.databytecounts) < page.nbytes * min(page.bitspersample, 8) // 8:
        raise ValueError("holds fewer bytes than its size needs: the file is truncated or damaged")
    kind, extras = int(page.photometric), len(page.extrasamples)
    if kind not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _YCBCR):
        name = getattr(page.photometric, "name", str(page.photometric))
        raise ValueError(f"has {name} colours, which slir cannot read")
    if extras > 1 or page.samplesperpixel - extras != (3 if kind in (_RGB, _YCBCR) else 1):
        raise ValueError(f"has {page.samplesperpixel} channels; slir reads grey, RGB, and either with alpha")


def _pixels(page: tifffile.TiffPage, data: bytes) -> np.ndarray:
    """(H, W, C) as stored, in the machine's byte order."""
    if page.compression in _DEFLATE:
        _check_deflate(page, data)
    try:
        planes = page.asarray()
    except Exception as error:
        if "imagecodecs" not in str(error):
            raise
        planes = _by_pillow(page, data)
    if planes.ndim == 2:
        planes = planes[..., None]
    elif page.axes == "SYX" and planes.shape == page.shape:
        planes = np.moveaxis(planes, 0, -1)
    if planes.ndim != 3:
        raise ValueError(f"has axes {page.axes}; slir reads grey, RGB, and either with alpha")
    return planes.astype(planes.dtype.newbyteorder("="), copy=False)


def _check_deflate(page: tifffile.TiffPage, data: bytes) -> None:
    """No strip may grow beyond what its place in the image needs (tifffile would follow it to the end of memory)."""
    expected = page.nbytes + 64
    for offset, count in zip(page.dataoffsets, page.databytecounts):
        if count * 1100 > max(2 * expected, 1 << 26):
            grown = zlib.decompressobj().decompress(data[offset : offset + count], 2 * expected)
            if len(grown) >= 2 * expected:
                raise ValueError("would grow far beyond its declared size")


def _by_pillow(page: tifffile.TiffPage, data: bytes) -> np.ndarray:
    """LZW, JPEG and fax compression, which tifffile reads only with the package imagecodecs."""
    name = getattr(page.compression, "name", str(page.compression))
    kind, extras = int(page.photometric), tuple(map(int, page.extrasamples))
    straight = kind in (_BLACK_IS_ZERO, _RGB, _YCBCR) and extras in ((), (_UNASSOCIATED,))
    if straight and (page.dtype == np.uint8 or (page.samplesperpixel == 1 and page.dtype in (np.uint16, np.float32))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=["TIFF"]) as image:
                planes = np.array(image)
        height_width = (page.imagelength, page.imagewidth)
        if planes.dtype == page.dtype and planes.shape[:2] == height_width and planes.size == math.prod(page.shape):
            return planes
    raise ValueError(f"is compressed by {name}, which needs the package imagecodecs (pip install imagecodecs)")


def _in_colour(planes: np.ndarray, page: tifffile.TiffPage, notes: list[str]) -> np.ndarray:
    """Expand palettes and 1-bit images; every other picture passes as it is."""
    if int(page.photometric) == _PALETTE:
        table = None if page.colormap is None else np.asarray(page.colormap)
        if table is None or table.shape[1] <= int(planes.max()):
            raise ValueError("has a damaged palette")
        notes.append("its palette was expanded to RGB")
        # The table has 16 bits; most writers only used 8, repeated (× 257) or shifted (× 256).
        if not (table % 257).any() or not (table % 256).any():
            table = (table >> 8).astype(np.uint8)
        return np.concatenate([np.moveaxis(table[:, planes[..., 0]], 0, -1), planes[..., 1:]], axis=-1).astype(
            table.dtype
        )
    if planes.dtype == np.bool_:
        notes.append("its 1-bit greys were expanded to 8 bits")
        return planes.astype(np.uint8) * np.uint8(255)
    if planes.dtype.name not in _DTYPES:
        raise ValueError(f"has pixels of type {planes.dtype}, which slir cannot read")
    return planes


def _meta(page: tifffile.TiffPage, description: object) -> Meta:
    text = {}
    for name, code in (_TEXT | _MORE_TEXT).items():
        tag = page.tags.get(code)
        value = description if name == "ImageDescription" else None if tag is None else tag.value
        if isinstance(value, str) and value and not value.startswith('{"shape"'):  # tifffile's own note to itself
            text[name] = value
    profile = page.iccprofile
    xmp = page.tags.get(_XMP)
    orientation = page.tags.get(_ORIENTATION)
    kind = int(page.photometric)
    extras = tuple(map(int, page.extrasamples))
    private: dict[str, object] = {
        "compressed": page.compression != _UNCOMPRESSED,
        "photometric": kind if kind in (_WHITE_IS_ZERO, _BLACK_IS_ZERO) else _BLACK_IS_ZERO,
    }
    if extras:
        private["alpha"] = extras[0]
    return Meta(
        icc=bytes(profile) if profile else None,
        xmp=bytes(xmp.value) if xmp is not None and isinstance(xmp.value, bytes | bytearray) else None,
        orientation=int(orientation.value) if orientation is not None and orientation.value in range(1, 9) else 1,
        resolution=_resolution(page),
        premultiplied=extras == (_PREMULTIPLIED,),
        text=text,
        private={NAME: private},
    )


def _resolution(page: tifffile.TiffPage) -> Resolution | None:
    across, down, unit = (page.tags.get(code) for code in (282, 283, 296))
    try:
        x, y = (float(tag.value[0] / tag.value[1]) for tag in (across, down))  # type: ignore[union-attr]
        name = _UNITS[2 if unit is None else int(unit.value)]
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, ZeroDivisionError):
        return None
    return Resolution(x, y, name) if x > 0 and y > 0 else None


def _date(value: str | None) -> str | None:
    """tifffile takes only the 19 characters that the standard asks for."""
    return value if value is not None and len(value) == 19 and value[16] == ":" else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """tifffile logs what it finds odd in a file; what matters is raised by this module."""
    logger = logging.getLogger("tifffile")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
