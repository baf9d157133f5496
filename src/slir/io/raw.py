"""Raw files of cameras, by rawpy (LibRaw): what the sensor recorded, and what is needed to make a picture of it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slir.errors import FileError
from slir.io import exif, icc, jpeg
from slir.io.codecs import check_rare
from slir.io.ifd import Tag, Tags, read_directory, read_start
from slir.io.picture import MAX_PIXELS, Meta, check_growth_of
from slir.io.source import read_bytes
from slir.io.tiff_meta import block_of, exif_block, exif_tags

#: The suffixes, in lower case, of raw files. LibRaw looks at the bytes alone.
EXTENSIONS = (
    ".dng", ".nef", ".nrw", ".cr2", ".cr3", ".crw", ".arw", ".srf", ".sr2", ".raf", ".orf", ".ori", ".rw2", ".rwl",
    ".raw", ".pef", ".srw", ".3fr", ".fff", ".iiq", ".mrw", ".mef", ".mos", ".erf", ".kdc", ".dcr", ".gpr", ".x3f",
)  # fmt: skip
#: EXIF tags that speak of the old file: the maker's note, colour space, width and height of the preview.
_OF_THE_FILE = (0x927C, 0xA001, 0xA002, 0xA003)
_LONGEST_EXIF = 60_000
_LEAST_AT_TOP, _SHARE_AT_TOP, _LEAST_WHITE = 32, 2e-4, 0.75
_REMEDY = "Develop it with the program of the camera's maker, then pass slir its TIFF."


@dataclass(frozen=True)
class RawPicture:
    """What a sensor recorded, one colour a pixel, as `slir.develop` takes it.

    mosaic : (H, W), the numbers of the sensor, without its border of covered pixels.
    pattern : (h, w), the number of the colour at each pixel, 0, 1, 2 for R, G, B; it begins at the first pixel and is
        repeated. 2×2 is a Bayer mosaic, 6×6 an X-Trans one.
    black : (h, w), the number that stands for no light, for each pixel of the pattern.
    white : the number at which the sensor saturates.
    white_balance : factors of R, G and B of the camera's white balance; the smallest is 1.
    to_srgb : (3, 3), from white-balanced colours of the camera to linear sRGB.
    flip : how the picture is to be turned, as LibRaw counts it: 1 mirrors columns, 2 rows, then 4 exchanges both.
    meta : EXIF of the file, for the turned picture.
    notes : what is unusual about the file, in words for the user.
    """

    mosaic: np.ndarray
    pattern: np.ndarray
    black: np.ndarray
    white: float
    white_balance: np.ndarray = field(default_factory=lambda: np.ones(3))
    to_srgb: np.ndarray = field(default_factory=lambda: np.eye(3))
    flip: int = 0
    meta: Meta = field(default_factory=Meta)
    notes: tuple[str, ...] = ()

    def turned(self, picture: np.ndarray) -> np.ndarray:
        """A picture of the mosaic's height and width, upright."""
        picture = picture[:: -1 if self.flip & 2 else 1, :: -1 if self.flip & 1 else 1]
        return picture.swapaxes(0, 1) if self.flip & 4 else picture


def repeated(cell: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A pattern (h, w) repeated until it covers this shape, and cut to it."""
    return np.tile(cell, [-(-length // own) for length, own in zip(shape, cell.shape)])[: shape[0], : shape[1]]


def is_raw_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file's suffix is that of a raw file."""
    return Path(path).suffix.lower() in EXTENSIONS


def read_raw(path: str | os.PathLike[str]) -> RawPicture:
    """What the sensor recorded, from a raw file of a camera. It needs rawpy: pip install "slir[raw]".

    Raises FileError, with the reason and the remedy, for a file that is missing, damaged, not a raw file, or too large;
    and for sensors without a mosaic of red, green and blue (linear DNG, Foveon, monochrome, four colours).
    """
    if importlib.util.find_spec("rawpy") is None:
        raise FileError(path, "is a raw file, which needs the package rawpy", 'Run pip install "slir[raw]".')
    data = read_bytes(Path(path))
    with _reasons(path), contextlib.closing(_opened(data)) as raw:
        meta = Meta(exif=_exif(data, raw))  # before the pixels: a preview cannot be read after them
        raw.unpack()
        return _picture(raw, meta)


@contextlib.contextmanager
def _reasons(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of LibRaw into words."""
    import rawpy

    try:
        yield
    except (rawpy.LibRawFileUnsupportedError, rawpy.LibRawIOError) as error:
        remedy = "slir reads pictures of other formats with slir denoise."
        raise FileError(path, "is damaged, or not a raw file that LibRaw can read", remedy) from error
    except (rawpy.LibRawError, rawpy.NotSupportedError) as error:
        said = error.args[0] if error.args else type(error).__name__
        words = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise FileError(path, f"cannot be decoded ({words})", "Copy it again from the camera.") from error
    except (NotImplementedError, ValueError) as error:
        raise FileError(path, str(error), _REMEDY) from error


def _opened(data: bytes) -> Any:
    """The file with its header read, if its pixels may be decoded."""
    import rawpy

    check_rare("LibRaw")
    raw = rawpy.RawPy()
    raw.open_buffer(io.BytesIO(data))
    height, width = raw.sizes.raw_height, raw.sizes.raw_width
    if height * width > MAX_PIXELS:
        raise ValueError(f"declares {width} × {height} pixels; the most is {MAX_PIXELS:,}")
    check_growth_of(2 * height * width, len(data), f"{width} × {height} pixels")
    return raw


def _picture(raw: Any, meta: Meta) -> RawPicture:
    colours = _colours(raw)
    balance, balance_note = _white_balance(raw)
    matrix, matrix_note = _matrix(raw)
    mosaic = raw.raw_image_visible.copy()
    if not mosaic.size:
        raise ValueError("declares no pixels: the file is damaged")
    black = np.array(raw.black_level_per_channel, np.float64)[colours]
    white = _white(mosaic, float(raw.white_level))
    if white <= black.max():
        raise ValueError(f"declares white ({white:g}) that is no brighter than black ({black.max():g})")
    aspect = raw.sizes.pixel_aspect
    shape_note = f"its pixels are not square ({aspect:.3g}); the result keeps them" if abs(aspect - 1) > 0.01 else ""
    notes = tuple(note for note in (balance_note, matrix_note, shape_note) if note)
    pattern = np.where(colours == 3, 1, colours).astype(np.int64)
    return RawPicture(mosaic, pattern, black, white, balance, matrix, raw.sizes.flip, meta, notes)


def _colours(raw: Any) -> np.ndarray:
    """The pattern as LibRaw numbers colours, 3 for the second green; ValueError where it is none of R, G and B."""
    pattern = raw.raw_pattern
    if pattern is None:
        raise ValueError("holds all colours at each pixel (linear DNG, Foveon, sRAW), so there is no mosaic to develop")
    if raw.num_colors == 1:
        raise ValueError("is of a monochrome sensor, which has no colours to develop")
    top, left = raw.sizes.top_margin, raw.sizes.left_margin  # the border of covered pixels
    rows, cols = pattern.shape
    pattern = np.array([[raw.raw_color(top + row, left + col) for col in range(cols)] for row in range(rows)])
    letters = raw.color_desc.decode("ascii", "replace")
    if raw.num_colors != 3 or letters[:3] != "RGB" or letters[3:4] not in ("", "G") or pattern.max() > 3:
        raise ValueError(f"is of a sensor with the colours {letters}; slir develops mosaics of red, green and blue")
    if not {0, 1, 2} <= set(np.where(pattern == 3, 1, pattern).ravel().tolist()):
        raise ValueError("has a mosaic that lacks one of red, green and blue: the file is damaged")
    return pattern


def _white(mosaic: np.ndarray, declared: float) -> float:
    """Where the sensor saturates: what the file says, or a lower number that a heap of pixels shares as the highest."""
    top = int(mosaic.max())
    heaped = np.count_nonzero(mosaic == top) > max(_LEAST_AT_TOP, _SHARE_AT_TOP * mosaic.size)
    return float(top) if heaped and _LEAST_WHITE * declared <= top < declared else declared


def _white_balance(raw: Any) -> tuple[np.ndarray, str]:
    """Factors of R, G, B as the camera says them, or else for daylight; and a note."""
    note = ""
    for factors in (raw.camera_whitebalance[:3], raw.daylight_whitebalance[:3]):
        balance = np.array(factors, np.float64)
        if np.isfinite(balance).all() and (balance > 0).all():
            return balance / balance.min(), note
        note = "it holds no white balance of the camera; that for daylight is used"
    return np.ones(3), "it holds no white balance; colours may be off"


def _matrix(raw: Any) -> tuple[np.ndarray, str]:
    """From white-balanced colours of the camera to linear sRGB; and a note. White stays white."""
    own = np.array(raw.color_matrix, np.float64)[:, :3]
    if np.isfinite(own).all() and own[0, 0] > 0.125:
        return own, ""
    known = np.array(raw.rgb_xyz_matrix, np.float64)[:3] @ icc.SRGB.to_xyz  # linear sRGB -> camera
    sums = known.sum(1, keepdims=True)
    if np.isfinite(known).all() and (sums > 0).all() and np.linalg.cond(known / sums) < 1e4:
        return np.linalg.inv(known / sums), ""
    return np.eye(3), "LibRaw has no colour matrix for this camera; colours are those of its sensor"


def _exif(data: bytes, raw: Any) -> bytes | None:
    """EXIF of the file, from its directories where it is made of them, else from its preview, for a turned picture."""
    block = None
    with contextlib.suppress(ValueError):
        layout, first = read_start(stream := io.BytesIO(data))
        tags, _ = read_directory(stream, first, layout, len(data))
        block = exif_block(stream, tags, layout, len(data))
    if block is None:
        block = _preview_exif(raw)
    if block is None:
        return None
    outer = exif_tags(block)
    short: dict[int, Tag | Tags] = {code: value for code, value in outer.items() if code != exif.EXIF}
    inner = outer.get(exif.EXIF)
    if isinstance(inner, dict):
        short[exif.EXIF] = {code: value for code, value in inner.items() if code not in _OF_THE_FILE}
    block = exif.upright(block_of(short, "<")) if short else None
    return block if block is not None and len(block) <= _LONGEST_EXIF else None


def _preview_exif(raw: Any) -> bytes | None:
    """EXIF of the JPEG that a camera puts into its raw files, if there is one."""
    import rawpy

    try:
        thumb = raw.extract_thumb()
        return jpeg.begin(bytes(thumb.data))[0].meta.exif if thumb.format == rawpy.ThumbFormat.JPEG else None
    except (rawpy.LibRawError, ValueError, OSError):  # a damaged preview must not stop the pixels
        return None
