"""What a kernel measures."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline


def centroid(kernel: np.ndarray) -> tuple[float, ...]:
    """Σ k_ij (i, j) / Σ k_ij, in pixels (down, right) from the centre pixel: (K, L) -> two numbers. Of a volume
    (Z, K, L) three, (z, y, x)."""
    total = kernel.sum()
    steps = [np.arange(side) - side // 2 for side in kernel.shape]
    return tuple(float(_along(kernel, axis) @ step / total) for axis, step in enumerate(steps))


def _along(kernel: np.ndarray, axis: int) -> np.ndarray:
    """Sums over all other axes."""
    return kernel.sum(tuple(other for other in range(kernel.ndim) if other != axis))


def fwhm(kernel: np.ndarray) -> tuple[float, ...]:
    """Full width at half maximum in pixels, (down, across): (K, L) -> two numbers. Of a volume three, (z, y, x).

    Each is read on the line through the brightest pixel (of those within a tenth of it, the one next to the centroid:
    a plateau has no other middle), from where it first falls to half of the maximum on one side to where it does on
    the other. Between pixels the line is a cubic spline; beyond the kernel it is zero.
    """
    peak = kernel.max()
    bright = np.argwhere(kernel >= 0.9 * peak)
    away = np.linalg.norm(bright - np.array(kernel.shape) // 2 - centroid(kernel), axis=1)
    place = bright[away.argmin()]
    lines = [np.moveaxis(kernel, axis, -1)[tuple(np.delete(place, axis))] for axis in range(kernel.ndim)]
    return tuple(_width(line, int(inside), peak / 2) for line, inside in zip(lines, place))


def _width(line: np.ndarray, inside: int, level: float) -> float:
    """How long the line stays above the level around a pixel where it is."""
    curve = CubicSpline(np.arange(-3, len(line) + 3), np.pad(line, 3) - level)
    crossings = curve.roots(extrapolate=False)
    return float(crossings[crossings > inside].min() - crossings[crossings < inside].max())
