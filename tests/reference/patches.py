"""Patches, one at a time."""

from __future__ import annotations

import numpy as np


def starts(length: int, size: int, stride: int) -> list[int]:
    """Every stride-th start that fits; and the last one that fits, whatever the stride."""
    found = [i for i in range(length) if i % stride == 0 and i + size <= length]
    return found if found[-1] == length - size else [*found, length - size]


def corners(shape: tuple[int, int], size: int, stride: int) -> list[tuple[int, int]]:
    """The first pixel of each patch, row by row."""
    return [(i, j) for i in starts(shape[0], size, stride) for j in starts(shape[1], size, stride)]


def selection(shape: tuple[int, int], size: int, corner: tuple[int, int]) -> np.ndarray:
    """R_p as a matrix of zeros and ones, (size², H·W)."""
    rows = np.zeros((size * size, shape[0] * shape[1]))
    for i in range(size):
        for j in range(size):
            rows[i * size + j, (corner[0] + i) * shape[1] + corner[1] + j] = 1
    return rows
