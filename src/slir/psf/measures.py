"""What a kernel measures."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline


def centroid(kernel: np.ndarray) -> tuple[float, float]:
    """Σ k_ij (i, j) / Σ k_ij, in pixels (down, right) from the centre pixel: (K, L) -> two numbers."""
    total = kernel.sum()
    rows, columns = (np.arange(side) - side // 2 for side in kernel.shape)
    return float(kernel.sum(1) @ rows / total), float(kernel.sum(0) @ columns / total)


def fwhm(kernel: np.ndarray) -> tuple[float, float]:
    """Full width at half maximum in pixels, (down, across): (K, L) -> two numbers.

    Each is read on the line through the brightest pixel (of those within a tenth of it, the one next to the centroid:
    a plateau has no other middle), from where it first falls to half of the maximum on one side to where it does on
    the other. Between pixels the line is a cubic spline; beyond the kernel it is zero.
    """
    peak = kernel.max()
    down, right = centroid(kernel)
    rows, columns = np.nonzero(kernel >= 0.9 * peak)
    away = np.hypot(rows - kernel.shape[0] // 2 - down, columns - kernel.shape[1] // 2 - right)
    row, column = int(rows[away.argmin()]), int(columns[away.argmin()])
    return _width(kernel[:, column], row, peak / 2), _width(kernel[row], column, peak / 2)


def _width(line: np.ndarray, inside: int, level: float) -> float:
    """How long the line stays above the level around a pixel where it is."""
    curve = CubicSpline(np.arange(-3, len(line) + 3), np.pad(line, 3) - level)
    crossings = curve.roots(extrapolate=False)
    return float(crossings[crossings > inside].min() - crossings[crossings < inside].max())
