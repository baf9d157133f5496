"""Which pixel values become 0 and 1 inside: black and white, or that part of the range which a picture fills.

Cascades know pictures that fill their range, and no noise below what rounding to 8 bits leaves of it. A micrograph that
holds 200 to 1,000 of 65,535 counts would drown in that noise. But twice the pixel values with twice the σ are restored
to twice the result, whatever the shift: so such a picture is stretched, and its result shrunk again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slir.arrays import Canvas
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

FARTHEST = 64
"""Most that a picture which fills its range is stretched beyond it. Much more, and 32-bit floats would show."""

PIXELS = 2**16
"""Pixels that are looked at."""


def stretchable(operator: Operator, dtype: np.dtype) -> bool:
    """Whether a picture may be stretched: B leaves constants as they are, and there is room between integers."""
    return isinstance(operator, Identity | Blur | Downsample | Mask) and dtype.itemsize > 1


def stretched(frame: Canvas, array: np.ndarray, operator: Operator, sigma: float | None, *, black: bool) -> Canvas:
    """The canvas with the part of the range that `array` fills, where that is little.

    sigma: in pixel values, None where it is not known. black: whether 0 has to stay black.
    """
    if not stretchable(operator, array.dtype):
        return frame
    values = _some_values(frame, array, operator)
    cut = int(TAIL * len(values))
    low, high = (float(value) for value in (values[cut], values[-1 - cut]))
    low = frame.low if black else low
    filled = high - low
    if not 0 < filled < FILLED * frame.span:
        return frame
    width = max(filled, STEPS * _step(values), 0.0 if sigma is None else sigma / LOUDEST)
    if width >= frame.span:
        return frame
    low = low if black else (low + high - width) / 2
    return replace(frame, low=low, high=low + width)


def loud_enough(frame: Canvas, array: np.ndarray, operator: Operator, sigma: float, least: float) -> Canvas:
    """The canvas with so little of the range that σ, a share of it, becomes `least` at least.

    For noise alone: where more is lost than that, errors are those of the picture and not of σ.
    """
    if not (isinstance(operator, Identity) and 0 < sigma < least and stretchable(operator, array.dtype)):
        return frame
    width = frame.span * max(sigma / least, 1 / FARTHEST)
    width = max(width, STEPS * _step(_some_values(frame, array, operator)))
    return frame if width >= frame.span else replace(frame, high=frame.low + width)


def _some_values(frame: Canvas, array: np.ndarray, operator: Operator) -> np.ndarray:
    """Of the pixels that are known, in order: (n,)."""
    values = array if frame.channel_axis is None else np.moveaxis(array, frame.channel_axis, -1)
    if isinstance(operator, Mask) and operator.missing.shape == values.shape[:2]:
        values = values[~operator.missing.cpu().numpy()]
    values = values.reshape(-1)
    if len(values) > PIXELS:
        values = values[np.random.default_rng(0).integers(len(values), size=PIXELS)]
    return np.sort(values).astype(np.float64)


def _step(values: np.ndarray) -> float:
    """Between neighbouring values, at least."""
    steps = np.diff(np.unique(values))
    return float(steps.min()) if len(steps) else 0.0
