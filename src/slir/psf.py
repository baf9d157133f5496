"""Point spread functions of the usual blurs.

All are float64, odd-sized, centred, non-negative, symmetric about their centre, and sum to one.
"""

from __future__ import annotations

import math

import numpy as np

from slir.errors import InputError

_SAMPLES = 128  # a pixel, along the line that is integrated numerically


def gaussian(sigma: float, size: int | None = None) -> np.ndarray:
    """Out of focus or through turbulent air, roughly: a Gaussian of standard deviation `sigma` pixels.

    It is sampled at the pixel centres, as `scipy.ndimage.gaussian_filter` does it. `size` is the side, an odd
    number; by default it reaches four standard deviations each way.
    """
    _check("sigma", sigma, "It is the standard deviation in pixels, such as 1.6.")
    if size is None:
        size = 2 * math.ceil(4 * sigma) + 1
    elif int(size) != size or size < 1 or size % 2 == 0:
        raise InputError("size", "be a positive odd number", size, "Only an odd side has a pixel in its centre.")
    at = np.arange(int(size)) - int(size) // 2
    line = np.exp(-0.5 * (at / sigma) ** 2)
    kernel = np.outer(line, line)
    return kernel / kernel.sum()


def motion(length: float, angle: float) -> np.ndarray:
    """The camera moved along a straight line of `length` pixels, evenly.

    angle : degrees from "to the right", counter-clockwise as the picture is seen: 90 is up. A motion and its reverse
        are the same.

    The line is spread over the pixels next to it in proportion to their nearness (bilinearly), so that lengths and
    angles between whole pixels count. A line of length 1 is thus a little wider than a pixel.
    """
    _check("length", length, "It is the length of the path in pixels, such as 15.")
    if not math.isfinite(angle):
        raise InputError("angle", "be a finite number of degrees", angle, "0 is to the right and 90 is up.")
    count = max(1, math.ceil(length * _SAMPLES))
    along = ((np.arange(count) + 0.5) / count - 0.5) * length  # midpoints of equal pieces
    turn = math.radians(angle)
    x, y = along * math.cos(turn), -along * math.sin(turn)  # rows count downwards
    radius = math.ceil(length / 2) + 1
    kernel = np.zeros((2 * radius + 1, 2 * radius + 1))
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = x - column, y - row
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            np.add.at(kernel, (row + dy + radius, column + dx + radius), wy * wx)
    kernel = (kernel + kernel[::-1, ::-1]) / 2  # exactly symmetric, whatever rounding did
    return _trimmed(kernel / kernel.sum())


def defocus(radius: float) -> np.ndarray:
    """The lens was out of focus: a disk of `radius` pixels, every pixel weighted by how much of it the disk covers."""
    _check("radius", radius, "It is the radius in pixels of the disk that a point of light becomes, such as 3.5.")
    half = max(0, math.ceil(radius - 0.5))
    side = 2 * half + 1
    # Along x by midpoints, along y exactly: the disk spans −h … h above x, a pixel row j − ½ … j + ½.
    x = (np.arange(side * _SAMPLES) + 0.5) / _SAMPLES - half - 0.5
    h = np.sqrt(np.clip(radius**2 - x**2, 0, None))[None, :]
    row = (np.arange(side) - half)[:, None]
    covered = np.clip(np.minimum(h, row + 0.5) - np.maximum(-h, row - 0.5), 0, None)  # (side, side · samples)
    kernel = covered.reshape(side, side, _SAMPLES).mean(axis=2)
    kernel = (kernel + kernel.T) / 2
    kernel = (kernel + kernel[::-1, ::-1]) / 2
    return _trimmed(kernel / kernel.sum())


def _check(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(name, "be a positive finite number", value, remedy)


def _trimmed(kernel: np.ndarray, tiny: float = 1e-12) -> np.ndarray:
    """Without the outer rows and columns that hold nothing; the centre stays the centre."""
    while kernel.shape[0] > 1 and kernel[0].max() <= tiny:
        kernel = kernel[1:-1]
    while kernel.shape[1] > 1 and kernel[:, 0].max() <= tiny:
        kernel = kernel[:, 1:-1]
    return np.ascontiguousarray(kernel / kernel.sum())
