"""Cells of patches, one sample at a time: NumPy, float64."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal


def most_likely(weights: np.ndarray, covariances: np.ndarray, error: np.ndarray, f: np.ndarray) -> np.ndarray:
    """log π_c + log N(f; 0, Σ_c + E) of each cell, (C,)."""
    zero = np.zeros(len(f))
    return np.array([np.log(w) + multivariate_normal.logpdf(f, zero, s + error) for w, s in zip(weights, covariances)])


def nearest_axis(axes: np.ndarray, bounds: np.ndarray, f: np.ndarray) -> int:
    """The cell of the axis that is nearest in angle, up to sign, in the band of ‖f‖²."""
    angles = [np.arccos(min(1.0, abs(axis @ f) / np.linalg.norm(f))) for axis in axes]
    band = sum(1 for bound in bounds if f @ f > bound)
    return int(np.argmin(angles)) + len(axes) * band


def leaf(directions: np.ndarray, gains: np.ndarray, bounds: np.ndarray, f: np.ndarray) -> tuple[int, float]:
    """The leaf that a walk from the root ends at, and the least margin by which a test was decided on the way, as a
    share of what was summed."""
    node, margin = 0, np.inf
    while node < len(bounds):
        terms = [gain * (direction @ f) ** 2 for gain, direction in zip(gains[node], directions[node])]
        test = sum(terms)
        summed = sum(map(abs, terms)) + abs(bounds[node])
        margin = min(margin, abs(test - bounds[node]) / summed) if summed else margin
        node = 2 * node + (2 if test > bounds[node] else 1)
    return node - len(bounds), margin
