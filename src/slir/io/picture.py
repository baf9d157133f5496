"""What a file holds, once it is in memory: the pixels as they were stored, and all that must go out with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from slir.preprocessing.resampling import enlarged_size

#: The most pixels that are decoded at once. Pillow stops at the same number; above it a small file can fill the memory.
MAX_PIXELS = 178_956_970
#: Above so many bytes, a file must not grow by more than so many times: photographs do not, decompression bombs do.
LARGE, _MOST_GROWTH = 1 << 28, 200
#: The same for all that a file holds, which is never in memory at once and may be mostly empty.
BEST_RATIO = 50_000


@dataclass(frozen=True)
class Resolution:
    """Pixels per unit of length, across and down. `unit` is "inch", "cm" or "none" (only the ratio means something)."""

    x: float
    y: float
    unit: str = "inch"

    def per_inch(self) -> tuple[float, float] | None:
        """The same in pixels per inch, or None where no length is meant."""
        scale = {"inch": 1.0, "cm": 2.54}.get(self.unit)
        return None if scale is None else (self.x * scale, self.y * scale)


@dataclass(frozen=True)
class Meta:
    """What travels beside the pixels.

    icc : colour profile, as stored.
    exif : EXIF block in its TIFF form, without the `Exif\\0\\0` that JPEG puts before it.
    xmp : XMP packet.
    orientation : 1 to 8 as EXIF and TIFF count them. The pixels are never turned; the tag goes out as it came in.
    resolution : pixels per inch or centimetre.
    premultiplied : whether the colours were already multiplied by alpha, as some TIFF files have them.
    text : other text by keyword (PNG text, JPEG comment, TIFF description, software, artist, ...).
    private : what only one format understands, by that format's name; other formats ignore it.
    scale : how many times finer the pixels are than those that `private` and `exif` speak of. `resolution` has it in.
    centred : whether an old pixel covers its scale × scale new ones, else it sits on the first of them.
    """

    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    orientation: int = 1
    resolution: Resolution | None = None
    premultiplied: bool = False
    text: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, object] = field(default_factory=dict)
    scale: float = 1.0
    centred: bool = True

    def scaled(self, scale: float, *, down: float | None = None, centred: bool = True) -> Meta:
        """The same for a picture whose pixels are `scale` times finer (`down` times along the height)."""
        old, down = self.resolution, scale if down is None else down
        resolution = None if old is None else Resolution(old.x * scale, old.y * down, old.unit)
        return replace(self, resolution=resolution, scale=self.scale * scale, centred=self.centred and centred)


@dataclass(frozen=True)
class Picture:
    """One image with all that its file said about it.

    pixels : (H, W) or (H, W, 3) array of the dtype that the file stores; alpha is not among the channels.
    channel_axis : None for grey, -1 for colour.
    alpha : (H, W) array of the dtype of `pixels`, or None.
    data_range : width of the range of pixel values; None where the file does not say (floats, 32-bit and signed
        integers), and then only the user knows.
    meta : colour profile, EXIF, resolution, ...
    notes : what was changed on reading and will not come back on writing, in words for the user.
    """

    pixels: np.ndarray
    channel_axis: int | None = None
    alpha: np.ndarray | None = None
    data_range: float | None = None
    meta: Meta = field(default_factory=Meta)
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.pixels.shape[0], self.pixels.shape[1]

    @property
    def layout(self) -> str:
        """ "grey", "grey+alpha", "RGB" or "RGBA"."""
        colour = "grey" if self.channel_axis is None else "RGB"
        if self.alpha is None:
            return colour
        return "grey+alpha" if colour == "grey" else "RGBA"

    def interleaved(self) -> np.ndarray:
        """(H, W, C) array of the colour channels and, last, alpha."""
        planes = self.pixels[..., None] if self.channel_axis is None else self.pixels
        if self.alpha is None:
            return planes
        return np.concatenate([planes, self.alpha[..., None].astype(planes.dtype, copy=False)], axis=-1)

    def with_pixels(self, pixels: np.ndarray, *, alpha: np.ndarray | None = None) -> Picture:
        """The same file with other pixels. When they are more or fewer, alpha must come too and resolution follows."""
        if pixels.ndim != self.pixels.ndim:
            raise ValueError(f"pixels of {pixels.ndim} axes cannot replace pixels of {self.pixels.ndim}")
        height, width = self.size
        new_height, new_width = pixels.shape[:2]
        if (new_height, new_width) == (height, width):
            return replace(self, pixels=pixels, alpha=self.alpha if alpha is None else alpha)
        if (alpha is None) != (self.alpha is None):
            raise ValueError("a picture with alpha needs an alpha of the new size")
        meta = self.meta.scaled(new_width / width, down=new_height / height)
        return replace(self, pixels=pixels, alpha=alpha, meta=meta)

    @property
    def head(self) -> Head:
        """The same without the pixels."""
        return Head(
            size=self.size,
            dtype=self.pixels.dtype,
            colour=self.channel_axis is not None,
            has_alpha=self.alpha is not None,
            data_range=self.data_range,
            meta=self.meta,
            notes=self.notes,
        )


@dataclass(frozen=True)
class Head:
    """What a file says of its pixels: one or more planes of one size, one dtype and one colour layout.

    size : (height, width) of a plane.
    axes, shape : the axes before height and width as the file names them ("TZ"), and their lengths; planes are counted
        along them, the last axis fastest.
    large : whether a window can be read for less memory than the whole plane.
    quality : of JPEG compression, 1 to 100; None for other formats.
    The rest as in Picture.
    """

    size: tuple[int, int]
    dtype: np.dtype
    colour: bool = False
    has_alpha: bool = False
    axes: str = ""
    shape: tuple[int, ...] = ()
    data_range: float | None = None
    large: bool = False
    meta: Meta = field(default_factory=Meta)
    notes: tuple[str, ...] = ()
    quality: int | None = None

    @property
    def planes(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        """Samples a pixel, alpha among them."""
        return (3 if self.colour else 1) + self.has_alpha

    @property
    def layout(self) -> str:
        """ "grey", "grey+alpha", "RGB" or "RGBA"."""
        return {1: "grey", 2: "grey+alpha", 3: "RGB", 4: "RGBA"}[self.channels]

    @property
    def plane_bytes(self) -> int:
        return math.prod(self.size) * self.channels * self.dtype.itemsize

    def scaled(self, scale: float, *, centred: bool = True) -> Head:
        """The same for planes `scale` times as high and as wide."""
        if scale == 1:
            return self
        return replace(self, size=enlarged_size(self.size, scale), meta=self.meta.scaled(scale, centred=centred))


def from_interleaved(
    planes: np.ndarray, *, meta: Meta, notes: tuple[str, ...] = (), data_range: float | None = None
) -> Picture:
    """A Picture from (H, W) or from (H, W, C) with C = 1 grey, 2 grey+alpha, 3 RGB, 4 RGBA."""
    if planes.ndim == 2:
        planes = planes[..., None]
    channels = planes.shape[2]
    alpha = np.ascontiguousarray(planes[..., -1]) if channels in (2, 4) else None
    grey = channels <= 2
    pixels = np.ascontiguousarray(planes[..., 0] if grey else planes[..., :3])
    return Picture(
        pixels=pixels,
        channel_axis=None if grey else -1,
        alpha=alpha,
        data_range=range_of(pixels.dtype) if data_range is None else data_range,
        meta=meta,
        notes=notes,
    )


def check_growth(head: Head, stored: int, *, at_once: bool = True) -> None:
    """Raise ValueError where decoding a plane from so many bytes `stored` would fill the memory, or where they cannot
    be meant to be so many pixels. at_once : whether it cannot be decoded by parts."""
    height, width = head.size
    if at_once and height * width > MAX_PIXELS:
        raise ValueError(f"declares {width} × {height} pixels; the most is {MAX_PIXELS:,}")
    check_growth_of(head.plane_bytes, stored, f"{width} × {height} pixels")


def check_growth_of(declared: int, stored: int, what: str = "") -> None:
    """The same for so many bytes that may be `declared` in words."""
    if declared > max(LARGE, _MOST_GROWTH * stored):
        raise ValueError(f"declares {what or f'{declared:,} bytes of pixels'} but holds too few bytes for them")


def range_of(dtype: np.dtype) -> float | None:
    """The range that a dtype implies: 255 and 65535; None for those that rarely use all of theirs."""
    return {np.dtype(np.uint8): 255.0, np.dtype(np.uint16): 65535.0}.get(np.dtype(dtype))
