"""Which pixel values become 0 and 1 inside: black and white, or that part of the range which a picture fills.

The loop begins at a noise level that is a share of the range, and the network learnt from pictures whose black is 0. So
a micrograph that holds 200 to 1,000 of 65,535 counts is stretched, and its result shrunk again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slir.operators import Operator
from slir.preprocessing.arrays import Canvas

Groups = tuple[tuple[int, ...], ...]
"""Channels that are restored together, by their numbers."""

ENOUGH = 1 / 4
"""Share of the range from which on a picture is left as it is."""

TAIL = 1e-3
"""Share of the pixels that may be darker, or brighter, than what counts: hot pixels, a star or two."""

LOUDEST = 1 / 4
"""Most that σ may be, as a share of what is left of the range."""

STEPS = 255
"""Steps between neighbouring values that are left of the range at least: then the noise that rounding leaves in an
integer is no more than that of 8 bits."""

FEW = 32
"""Different values up to which a picture is drawn rather than rounded: their distances say nothing about rounding."""

OUTLYING = 1024
"""Most that a single pixel may lie away, counted in what is left of the range, where Fourier transforms carry its
rounding everywhere."""

OFFSET = 0.15
"""Share of the brightest pixels from which on the darkest ones may be so bright because of a camera's offset."""

PIXELS = 2**16
"""Pixels that are looked at."""


def stretchable(operator: Operator, dtype: np.dtype) -> bool:
    """Whether a picture may be stretched: B leaves constants as they are, and there is room between integers."""
    return operator.keeps_constants and dtype.itemsize > 1


def black_at_zero(frame: Canvas) -> Canvas:
    """The canvas with black at 0 where nobody said that it is the least that signed integers can be."""
    if frame.dtype.kind != "i" or frame.ranges[0][0] != float(np.iinfo(frame.dtype).min):
        return frame
    return replace(frame, ranges=tuple((0.0, high) for _, high in frame.ranges))


def stretch_range(
    frame: Canvas, array: np.ndarray, operator: Operator, sigma: float | None, groups: Groups, *, black: bool
) -> Canvas:
    """The canvas with the part of the range that `array` fills, where that is little.

    array: (H, W) or (H, W, C), the image or a sample of it, of which a mask is too. sigma: in pixel values, None where
    it is not known. groups: channels that share a range. black: whether black has to stay where it is.
    """
    if not stretchable(operator, array.dtype):
        return frame
    known = _known_pixels(array, operator)
    ranges = list(frame.ranges)
    for group in groups:
        values = known if frame.channel_axis is None else known[..., group]
        filled = filled_range(values.reshape(-1), frame.ranges[group[0]], sigma, black, _reach(operator))
        for number in group:
            ranges[number] = filled
    return replace(frame, ranges=tuple(ranges))


def filled_range(
    known: np.ndarray, whole: tuple[float, float], sigma: float | None, black: bool, far: float
) -> tuple[float, float]:
    """The part of the range `whole` that these values fill; all of it where they do not leave much of it.

    whole: black and white. far: how far away, counted in that part, a single pixel may lie.
    """
    values = _some(known)
    cut = int(TAIL * len(values))
    least, most = float(known.min()), float(known.max())
    low, high = float(values[cut]), float(values[-1 - cut])
    if low == high:  # of one value but for a few pixels
        low, high = least, most
    low = whole[0] if black else low
    if high - low >= ENOUGH * (whole[1] - whole[0]):
        return whole
    width = max(high - low, STEPS * _step(values, known.dtype), 0.0 if sigma is None else sigma / LOUDEST)
    width = max(width, (high - least) / far, (most - low) / far)
    if not 0 < width < whole[1] - whole[0]:
        return whole
    low = low if black else (low + high - width) / 2
    return low, low + width


def far_away(frame: Canvas, array: np.ndarray, operator: Operator) -> list[str]:
    """In words, where single pixels lie so far from the others that they kept these from being stretched."""
    if not (np.isfinite(_reach(operator)) and stretchable(operator, array.dtype)):
        return []
    for number, (low, high) in enumerate(frame.ranges):
        values = array if frame.channel_axis is None else array[..., number]
        least, most = float(values.min()), float(values.max())
        if max(high - least, most - low) >= 0.99 * OUTLYING * (high - low):
            found = f"Some pixels, down to {least:g} or up to {most:g}, lie far away from all others"
            return [f"{found}. Fill them in first, with slir.inpaint: they affect the whole image."]
    return []


def camera_offset(frame: Canvas, array: np.ndarray, quiet: Sequence[bool]) -> list[str]:
    """In words, where black is 0 but the darkest pixels are far above it, as a camera's offset makes them.

    quiet: whether the noise that was read shows no part that is left in the dark, for each channel. An offset hides it.
    """
    for number, (low, _) in enumerate(frame.ranges):
        values = _some((array if frame.channel_axis is None else array[..., number]).reshape(-1))
        cut = int(TAIL * len(values))
        darkest, brightest = values[cut], values[-1 - cut]
        if quiet[number] and low == 0 and darkest > OFFSET * brightest:
            found = f"The darkest pixels are about {darkest:.3g}, far above black, which is 0"
            remedy = "pass it, since noise grows from there: data_range=(offset, white)"
            return [f"{found}. If the camera adds an offset, {remedy}."]
    return []


def _reach(operator: Operator) -> float:
    """How far away, counted in what is left of the range, a pixel may lie."""
    return OUTLYING if operator.reach > 0 else np.inf


def _known_pixels(array: np.ndarray, operator: Operator) -> np.ndarray:
    """The pixels that a mask leaves, (n,) or (n, C); all of them elsewhere."""
    if operator.missing is not None and operator.missing.shape == array.shape[:2]:
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
