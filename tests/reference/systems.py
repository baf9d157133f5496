"""The smooth start as a dense linear system: NumPy, float64."""

from __future__ import annotations

import numpy as np


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
