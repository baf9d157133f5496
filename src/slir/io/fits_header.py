"""FITS headers: how numbers are stored, and where on the sky the pixels of a larger picture are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from astropy.io.fits import Header

_STORED = {8: "u1", 16: "i2", 32: "i4", 64: "i8", -32: "f4", -64: "f8"}
#: FITS has no unsigned integers but of 8 bits: they are signed ones with an offset.
_OFFSET = {(8, -128): "i1", (16, 32768): "u2", (32, 2147483648): "u4"}
BITPIX = {np.dtype(code).name: bits for bits, code in _STORED.items()} | {
    np.dtype(code).name: bits for (bits, _), code in _OFFSET.items()
}


@dataclass(frozen=True)
class Numbers:
    """How pixels are stored: value = scale × stored + zero; `blank` is the integer that stands for NaN."""

    bitpix: int
    scale: float = 1.0
    zero: float = 0.0
    blank: int | None = None

    @classmethod
    def of(cls, header: Header) -> Numbers:
        bitpix = header.get("BITPIX")
        if bitpix not in _STORED:
            raise ValueError(f"has {bitpix} bits a sample, which slir cannot read")
        scale, zero, blank = (
            header.get(key, default) for key, default in (("BSCALE", 1), ("BZERO", 0), ("BLANK", None))
        )
        if not all(isinstance(value, int | float) for value in (scale, zero)) or not scale:
            raise ValueError("has a BSCALE or BZERO that makes no sense")
        return cls(bitpix, float(scale), float(zero), int(blank) if isinstance(blank, int) and bitpix > 0 else None)

    @classmethod
    def for_dtype(cls, dtype: np.dtype) -> Numbers:
        bitpix = BITPIX[dtype.name]
        zero = next((zero for (bits, zero), code in _OFFSET.items() if np.dtype(code) == dtype), 0)
        return cls(bitpix, 1.0, float(zero))

    @property
    def stored(self) -> np.dtype:
        return np.dtype(_STORED[self.bitpix]).newbyteorder(">")

    @property
    def dtype(self) -> np.dtype:
        """What the pixels are, once read: integers, unless they are scaled or may be blank."""
        native = np.dtype(_STORED[self.bitpix])
        if native.kind == "f" or (self.scale == 1 and self.zero == 0 and self.blank is None):
            return native
        if self.scale == 1 and self.blank is None and (self.bitpix, self.zero) in _OFFSET:
            return np.dtype(_OFFSET[self.bitpix, int(self.zero)])
        return np.dtype(np.float32 if self.bitpix in (8, 16) else np.float64)

    def values(self, stored: np.ndarray) -> np.ndarray:
        if self.dtype.kind in "iu":  # modular, so that the offset is exact
            return (stored.astype(np.int64) + int(self.zero)).astype(self.dtype)
        if self.scale == 1 and self.zero == 0 and self.blank is None:
            return stored.astype(self.dtype)
        values = stored.astype(np.float64) * self.scale + self.zero
        if self.blank is not None:
            values[stored == self.blank] = np.nan
        return values.astype(self.dtype)

    def stored_as(self, values: np.ndarray) -> np.ndarray:
        if self.dtype.kind in "iu":
            return (values.astype(np.int64) - int(self.zero)).astype(self.stored)
        if self.stored.kind == "f":
            plain = self.scale == 1 and self.zero == 0
            return (values if plain else (values.astype(np.float64) - self.zero) / self.scale).astype(self.stored)
        numbers = np.rint((values.astype(np.float64) - self.zero) / self.scale)
        missing = np.isnan(numbers)
        if missing.any() and self.blank is None:
            raise ValueError("a pixel is NaN, but the FITS header has no BLANK that could stand for it")
        limits = np.iinfo(self.stored)
        numbers = np.clip(np.where(missing, 0, numbers), limits.min, limits.max).astype(np.int64)
        return np.where(missing, self.blank or 0, numbers).astype(self.stored)


def scale_header(header: Header, size: tuple[int, int], scale: float, *, centred: bool) -> None:
    """Change size and coordinates to those of a picture whose pixels are `scale` times finer, in place."""
    header["NAXIS2"], header["NAXIS1"] = size
    for key in list(header):
        if re.fullmatch(r"CRPIX[12][A-Z]?", key) or re.fullmatch(r"LTV[12]", key):
            _change(header, key, lambda value: _moved(value, scale, centred))
        elif re.fullmatch(r"CD\d+_[12][A-Z]?", key):
            _change(header, key, lambda value: value / scale)
        elif re.fullmatch(r"LTM\d_[12]", key) or re.fullmatch(r"XPIXSZ|YPIXSZ", key):
            factor = scale if key.startswith("LTM") else 1 / scale
            _change(header, key, lambda value, factor=factor: value * factor)
        elif found := re.fullmatch(r"[AB]P?_(\d)_(\d)", key):  # SIP: polynomials of pixels, in pixels
            power = int(found[1]) + int(found[2])
            _change(header, key, lambda value, power=power: value * scale ** (1 - power))
    for letter in ("", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"):
        _scale_steps(header, letter, scale)


def _scale_steps(header: Header, letter: str, scale: float) -> None:
    """CDELT counts along the axes of the sky; it stands for those of the picture unless PC mixes in a third axis."""
    if any(f"CD{row}_{column}{letter}" in header for row in (1, 2) for column in (1, 2)):
        return
    mixed = [key for key in header if re.fullmatch(rf"PC([12]_[3-9]|[3-9]_[12]){letter}", key) and header[key]]
    if not mixed:
        for axis in (1, 2):
            _change(header, f"CDELT{axis}{letter}", lambda value: value / scale)
        return
    for row in range(1, 10):
        for column in (1, 2):
            key = f"PC{row}_{column}{letter}"
            if row == column and key not in header:
                header[key] = 1.0
            _change(header, key, lambda value: value / scale)


def _moved(value: float, scale: float, centred: bool) -> float:
    """Pixel coordinates, whose first pixel has its middle at 1."""
    return (value - 0.5) * scale + 0.5 if centred else (value - 1) * scale + 1


def _change(header: Header, key: str, change: Any) -> None:
    value = header.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        header[key] = change(float(value))
