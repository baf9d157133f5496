"""The linear systems of a cascade as dense matrices, and a learnt stage one patch at a time: NumPy, float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reference.patches import corners


def gradient(shape: tuple[int, int]) -> np.ndarray:
    """∇ as a matrix: a row for each pair of neighbouring pixels, which are 1 apart."""
    height, width = shape
    rows = []
    for i in range(height):
        for j in range(width):
            for a, b in ((i + 1, j), (i, j + 1)):
                if a < height and b < width:
                    row = np.zeros(height * width)
                    row[a * width + b], row[i * width + j] = 1, -1
                    rows.append(row)
    return np.stack(rows)


def smooth(matrix: np.ndarray, y: np.ndarray, shape: tuple[int, int], sigma: float, slope: float) -> np.ndarray:
    """argmin_x ‖y − Bx‖²/σ² + ‖∇x‖²/g²."""
    grad = gradient(shape)
    system = matrix.T @ matrix / sigma**2 + grad.T @ grad / slope**2
    return np.linalg.solve(system, matrix.T @ y.ravel() / sigma**2).reshape(shape)


def follow(matrix: np.ndarray, y: np.ndarray, z: np.ndarray, sigma: float, level: float) -> np.ndarray:
    """argmin_x ‖y − Bx‖²/σ² + ‖x − z‖²/level²."""
    system = matrix.T @ matrix / sigma**2 + np.eye(z.size) / level**2
    return np.linalg.solve(system, matrix.T @ y.ravel() / sigma**2 + z.ravel() / level**2).reshape(z.shape)


def inverse_residual(matrix: np.ndarray, y: np.ndarray, x: np.ndarray, rho: float) -> np.ndarray:
    """(BᵀB + ρI)⁻¹ Bᵀ(y − Bx)."""
    rhs = matrix.T @ (y.ravel() - matrix @ x.ravel())
    return np.linalg.solve(matrix.T @ matrix + rho * np.eye(x.size), rhs).reshape(x.shape)


def learnt_z(
    z: np.ndarray,
    views: list[tuple[np.ndarray, int]],
    size: int,
    stride: int,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """The mean, at each pixel, of z_p + predict(f_p, z_p) over the patches p that it lies in.

    views: (image, window) of each; the first loses the mean of z_p.
    """
    total, count = np.zeros_like(z), np.zeros_like(z)
    for row, col in corners(z.shape, size, stride):
        here = (slice(row, row + size), slice(col, col + size))
        seen = []
        for image, window in views:
            wide = np.pad(image, window, mode="reflect")
            spare = abs(window - size) // 2  # before the patch, or inside it
            top, left = (window + start + (spare if window < size else -spare) for start in (row, col))
            seen.append(wide[top : top + window, left : left + window].ravel())
        seen[0] = seen[0] - z[here].mean()
        total[here] += z[here] + predict(np.concatenate(seen), z[here].ravel()).reshape(size, size)
        count[here] += 1
    return total / count
