"""Degradations, slowly and obviously: NumPy, float64, one pixel at a time, or a whole matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def index(i: int, length: int, border: str) -> int:
    """Where the image continues beyond its edge."""
    if border == "circular":
        return i % length
    if i < 0:
        return -1 - i
    return 2 * length - 1 - i if i >= length else i


def convolve(x: np.ndarray, psf: np.ndarray, border: str) -> np.ndarray:
    """y[i, j] = Σ psf[k, l] x[i + c − k, j + c′ − l], c = (K − 1)//2; for an unknown border, where x is known alone."""
    (height, width), (tall, wide) = x.shape, psf.shape
    row, col = (tall - 1) // 2, (wide - 1) // 2
    y = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            for k in range(tall):
                for m in range(wide):
                    a, b = i + row - k, j + col - m
                    inside = 0 <= a < height and 0 <= b < width
                    if inside or border != "unknown":
                        y[i, j] += psf[k, m] * x[index(a, height, border), index(b, width, border)]
    if border == "unknown":
        return y[tall - 1 - row : height - row, wide - 1 - col : width - col]
    return y


def convolve_volume(x: np.ndarray, psf: np.ndarray) -> np.ndarray:
    """The same of a volume whose border is unknown: y[i, j, k] = Σ psf[a, b, c] x[i + D − 1 − a, …]."""
    depth, tall, wide = psf.shape
    y = np.zeros([side - own + 1 for side, own in zip(x.shape, psf.shape)])
    for place in np.ndindex(*y.shape):
        i, j, k = place
        for a, b, c in np.ndindex(*psf.shape):
            y[place] += psf[a, b, c] * x[i + depth - 1 - a, j + tall - 1 - b, k + wide - 1 - c]
    return y


def downsample(x: np.ndarray, kernel: np.ndarray, factor: int, phase: int, border: str) -> np.ndarray:
    return convolve(x, kernel, border)[phase::factor, phase::factor]


def matrix(forward: Callable[[np.ndarray], np.ndarray], x_shape: tuple[int, int]) -> np.ndarray:
    """The matrix of a linear map, column by column: what it makes of each image with a single bright pixel."""
    columns = []
    for i in range(x_shape[0]):
        for j in range(x_shape[1]):
            unit = np.zeros(x_shape)
            unit[i, j] = 1
            columns.append(forward(unit).ravel())
    return np.stack(columns, 1)


def varying_blur(x: np.ndarray, psfs: np.ndarray, border: str) -> np.ndarray:
    """Each pixel of y by a PSF of its own, interpolated linearly between the middles of the grid's parts."""
    grid = psfs.shape[:2]
    blurred = np.array([[convolve(x, psfs[i, j], border) for j in range(grid[1])] for i in range(grid[0])])
    height, width = blurred.shape[2:]
    y = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            places = [np.clip((p + 0.5) / n * m - 0.5, 0, m - 1) for p, n, m in zip((i, j), (height, width), grid)]
            for r in range(grid[0]):
                for c in range(grid[1]):
                    weight = max(0, 1 - abs(places[0] - r)) * max(0, 1 - abs(places[1] - c))
                    y[i, j] += weight * blurred[r, c, i, j]
    return y
