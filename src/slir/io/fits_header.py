"""FITS headers: how numbers are stored, and where on the sky the pixels of a larger picture are."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from astropy.io.fits import Header

CARD, BLOCK = 80, 2880
_STORED = {8: "u1", 16: "i2", 32: "i4", 64: "i8", -32: "f4", -64: "f8"}
#: FITS has no unsigned integers but of 8 bits: they are signed ones with an offset.
_OFFSET = {(8, -128): "i1", (16, 32768): "u2", (32, 2147483648): "u4"}
BITPIX = {np.dtype(code).name: bits for bits, code in _STORED.items()} | {
    np.dtype(code).name: bits for (bits, _), code in _OFFSET.items()
}


_VAST = {bitpix: 1e38 if bitpix < 0 else 1e38 / 2**bitpix for bitpix in _STORED}
"""Sizes that BSCALE and BZERO must not reach, so that scaled numbers fit into single precision."""


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
        # The largest number that BITPIX stands for, once scaled, must be one of single precision.
        if (
            not all(isinstance(value, int | float) and abs(value) < _VAST[bitpix] for value in (scale, zero))
            or not scale
        ):
            raise ValueError("has a BSCALE or BZERO that makes no sense")
        return cls(bitpix, float(scale), float(zero), int(blank) if isinstance(blank, int) and bitpix > 0 else None)

    @classmethod
    def for_dtype(cls, dtype: np.dtype) -> Numbers:
        bitpix = BITPIX[dtype.name]
        zero = next((zero for (bits, zero), code in _OFFSET.items() if np.dtype(code) == dtype), 0)
        return cls(bitpix, 1.0, float(zero))

    def cards(self, sides: Sequence[int]) -> str:
        """The header, unpadded, of a new file with axes of these lengths, the fastest first."""
        pairs: list[tuple[str, float]] = [("SIMPLE", True), ("BITPIX", self.bitpix), ("NAXIS", len(sides))]
        pairs += [(f"NAXIS{axis}", side) for axis, side in enumerate(sides, 1)]
        if self.zero:
            pairs += [("BSCALE", 1), ("BZERO", int(self.zero))]
        return "".join(_card(key, value) for key, value in pairs)

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


class DataSum:
    """The sum of the words of 32 bits in a part's data, with what is carried over added again, as DATASUM has it."""

    def __init__(self) -> None:
        self._total, self._rest = 0, b""

    def add(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // 4 * 4
        self._rest = data[whole:]
        self._total += int(np.frombuffer(data, ">u4", whole // 4).sum(dtype=np.uint64))

    @property
    def value(self) -> int:
        total = self._total
        while total >> 32:
            total = (total & 0xFFFFFFFF) + (total >> 32)
        return total

    @property
    def card(self) -> bytes:
        return f"DATASUM = '{self.value:<10}'         / of the pixels as they are stored".ljust(CARD).encode()


def scaled(header: Header, size: tuple[int, int], scale: float, *, centred: bool) -> dict[str, float]:
    """The keywords that change, with their new values, when a picture's pixels become `scale` times finer.

    size : the new (height, width).
    """
    values: dict[str, float] = {"NAXIS2": size[0], "NAXIS1": size[1]}
    old = {key: float(value) for key in set(header) if key and (value := _number(header, key)) is not None}
    for key, value in old.items():
        if re.fullmatch(r"CRPIX[12][A-Z]?|LTV[12]", key):
            # The middle of the first pixel is at 1.
            values[key] = (value - 0.5) * scale + 0.5 if centred else (value - 1) * scale + 1
        elif re.fullmatch(r"CD\d+_[12][A-Z]?|[XY]PIXSZ", key):
            values[key] = value / scale
        elif re.fullmatch(r"LTM\d_[12]", key):
            values[key] = value * scale
        elif found := re.fullmatch(r"[AB]P?_(\d)_(\d)", key):  # SIP: polynomials of pixels, in pixels
            values[key] = value * scale ** (1 - int(found[1]) - int(found[2]))
    for letter in ("", *string.ascii_uppercase):
        values |= _steps(old, letter, scale)
    return values


def _steps(old: dict[str, float], letter: str, scale: float) -> dict[str, float]:
    """CDELT counts along the axes of the sky; it stands for those of the picture unless PC mixes in a third axis."""
    if any(f"CD{row}_{column}{letter}" in old for row in (1, 2) for column in (1, 2)):
        return {}
    if not any(re.fullmatch(rf"PC([12]_[3-9]|[3-9]_[12]){letter}", key) and value for key, value in old.items()):
        keys = [f"CDELT{axis}{letter}" for axis in (1, 2)]
        return {key: old[key] / scale for key in keys if key in old}
    matrix = {f"PC{axis}_{axis}{letter}": 1.0 for axis in (1, 2)} | old  # what is left out is 1 on the diagonal
    return {key: value / scale for key, value in matrix.items() if re.fullmatch(rf"PC\d_[12]{letter}", key)}


def rewritten(text: str, values: dict[str, float], *, left_out: Sequence[str], history: Sequence[str]) -> bytes:
    """A header of these cards, padded: all as they are stored, but for the keywords that have new values.

    The last card is a DATASUM, to be replaced once the pixels are known.
    """
    lines, left = [], dict(values)
    for line in (text[at : at + CARD] for at in range(0, len(text), CARD)):
        key = line[:8].rstrip()
        if key == "END":
            break
        if key in left:  # a number, so that the first slash begins the comment
            line = _card(key, left.pop(key), line[10:].partition("/")[2].strip())
        if key not in left_out:
            lines.append(line.ljust(CARD))
    while lines and not lines[-1].strip():
        lines.pop()
    lines += [_card(key, value) for key, value in left.items()]
    for note in history:
        plain = note.encode("ascii", "replace").decode()
        lines += [f"HISTORY {plain[at : at + 72]}".ljust(CARD) for at in range(0, max(1, len(plain)), 72)]
    whole = "".join(lines).encode("latin-1") + DataSum().card + b"END".ljust(CARD)
    return whole + b" " * (-len(whole) % BLOCK)


def _card(key: str, value: float, comment: str = "") -> str:
    """A keyword and a number or truth value, where FITS wants them."""
    shown = ("T" if value else "F") if isinstance(value, bool) else repr(value).upper()
    return (f"{key:<8}= {shown:>20}" + (f" / {comment}" if comment else "")).ljust(CARD)[:CARD]


def _number(header: Header, key: str) -> float | None:
    try:
        value = header[key]
    except Exception:  # a card that cannot be parsed is kept as it is
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
