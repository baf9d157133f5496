"""Which pixel values become 0 and 1 inside: black and white, or that part of the range which a picture fills.

Cascades know pictures that fill their range, and no noise below what rounding to 8 bits leaves of it. A micrograph that
holds 200 to 1,000 of 65,535 counts would drown in that noise. But twice the pixel values with twice the σ are restored
to twice the result, whatever the shift: so such a picture is stretched, and its result shrunk again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slir.arrays import Canvas
from slir.errors import SlirWarning
from slir.operators import Blur, Downsample, Identity, Mask, Operator

FILLED = 1 / 4
"""Share of the range from which on a picture is left as it is."""

TAIL = 1e-3
"""Share of the pixels that may be darker, or brighter, than what counts: hot pixels, a star or two."""

LOUDEST = 1 / 4
"""Most that σ may be, as a share of what is left of the range."""

STEPS = 255
"""Steps between neighbouring values that are left of the range at least: then the noise that rounding leaves in an
integer is as much as cascades take it to be."""

FEW = 32
"""Different values up to which a picture is drawn rather than rounded: their distances say nothing about rounding."""

FARTHEST = 64
"""Most that a picture which fills its range is stretched beyond it. Much more, and 32-bit floats would show."""

OUTLYING = 1024
"""Most that a single pixel may lie away, counted in what is left of the range, where Fourier transforms carry its
rounding everywhere."""

PIXELS = 2**16
"""Pixels that are looked at."""


def stretchable(operator: Operator, dtype: np.dtype) -> bool:
    """Whether a picture may be stretched: B leaves constants as they are, and there is room between integers."""
    return isinstance(operator, Identity | Blur | Downsample | Mask) and dtype.itemsize > 1


def stretched(
    frame: Canvas, array: np.ndarray, operator: Operator, sigma: float | None, *, black: bool, apart: bool = False
) -> Canvas:
    """The canvas with the part of the range that `array` fills, where that is little.

    array: (H, W) or (H, W, C), the image or a sample of it, of which a mask is too. sigma: in pixel values, None where
    it is not known. black: whether black has to stay where it is; of signed integers that is 0. apart: whether channels
    are looked at one by one.
    """
    if not stretchable(operator, array.dtype):
        return frame
    whole = frame.ranges[0]
    if black and array.dtype.kind == "i" and whole[0] == float(np.iinfo(array.dtype).min):
        whole = (0.0, whole[1])
    known = _known(array, operator)
    parts = np.moveaxis(known, -1, 0) if apart else [known]
    far = np.inf if isinstance(operator, Identity) else OUTLYING
    found = tuple(_filled(part.reshape(-1), whole, sigma, black, far) for part in parts)
    return replace(frame, ranges=found if apart else found * len(frame.ranges))


def _filled(
    known: np.ndarray, whole: tuple[float, float], sigma: float | None, black: bool, far: float
) -> tuple[float, float]:
    """The part of the range `whole` that these values fill; all of it where they do not leave much of it. far: how far
    away, counted in that part, a single pixel may lie."""
    values = _some(known)
    cut = int(TAIL * len(values))
    least, most = float(known.min()), float(known.max())
    low, high = float(values[cut]), float(values[-1 - cut])
    if low == high:  # of one value but for a few pixels
        low, high = least, most
    low = whole[0] if black else low
    if high - low >= FILLED * (whole[1] - whole[0]):
        return whole
    width = max(high - low, STEPS * _step(values, known.dtype), 0.0 if sigma is None else sigma / LOUDEST)
    if (outlying := max(high - least, most - low) / far) > width:
        advice = f"Some pixels, up to {most:g} and down to {least:g}, lie far beyond the others, {low:g} to {high:g}"
        warnings.warn(f"{advice}. Fill them in first: slir.inpaint.", SlirWarning, stacklevel=6)
        width = outlying
    if not 0 < width < whole[1] - whole[0]:
        return whole
    low = low if black else (low + high - width) / 2
    return low, low + width


def loud_enough(frame: Canvas, array: np.ndarray, operator: Operator, sigmas: Sequence[float], least: float) -> Canvas:
    """The canvas with so little of the range that σ, a share of it, becomes `least` at least; that of the channel with
    the least noise, where there are several, and they share a range.

    For noise alone: where more is lost than that, errors are those of the picture and not of σ.
    """
    if not (isinstance(operator, Identity) and stretchable(operator, array.dtype)):
        return frame
    shared = len(set(frame.ranges)) == 1
    quietest = min((sigma for sigma in sigmas if sigma > 0), default=least)
    step = _step(_some(array.reshape(-1)), array.dtype)
    ranges = []
    for (low, high), sigma in zip(frame.ranges, sigmas):
        share = (quietest if shared else sigma or least) / least
        width = max((high - low) * max(share, 1 / FARTHEST), STEPS * step)
        ranges.append((low, low + width if width < high - low else high))
    return frame if tuple(ranges) == frame.ranges else replace(frame, ranges=tuple(ranges))


def _known(array: np.ndarray, operator: Operator) -> np.ndarray:
    """The pixels that a mask leaves, (n,) or (n, C); all of them elsewhere."""
    if isinstance(operator, Mask) and operator.missing.shape == array.shape[:2]:
        return array[~operator.missing.cpu().numpy()]
    return array


def _some(values: np.ndarray) -> np.ndarray:
    """Some of the values, in order: (n,)."""
    if len(values) > PIXELS:
        values = values[np.random.default_rng(0).integers(len(values), size=PIXELS)]
    return np.sort(values).astype(np.float64)


def _step(values: np.ndarray, dtype: np.dtype) -> float:
    """Between neighbouring values, at least; 0 where floats tell of none."""
    steps = np.diff(np.unique(values))
    if len(steps) >= FEW:
        return float(steps.min())
    return 1.0 if dtype.kind in "iu" else 0.0
