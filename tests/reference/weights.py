"""Kernels, weights and features with loops over pairs."""

from __future__ import annotations

import math

import numpy as np


def kernel(name: str, bandwidth: float, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """k(aᵢ, bⱼ) for all pairs."""
    values = np.empty((len(a), len(b)))
    for i, u in enumerate(a):
        for j, v in enumerate(b):
            distance = math.sqrt(sum((p - q) ** 2 for p, q in zip(u.tolist(), v.tolist())))
            scaled = distance / bandwidth
            values[i, j] = math.exp(-(scaled**2) / 2 if name == "gaussian" else -scaled)
    return values


def nadaraya_watson(values: np.ndarray) -> np.ndarray:
    """α = v / 1ᵀv, a row at a time."""
    return np.stack([row / row.sum() for row in values])


def kernel_ridge(gram: np.ndarray, values: np.ndarray, lam: float) -> np.ndarray:
    """(K + mλI) α = v, a row at a time."""
    system = gram + len(gram) * lam * np.eye(len(gram))
    return np.stack([np.linalg.solve(system, row) for row in values])


def dct(patch: np.ndarray) -> np.ndarray:
    """The orthonormal two-dimensional DCT-II of a square patch, straight from its definition."""
    n = len(patch)
    out = np.zeros((n, n))
    for u in range(n):
        for v in range(n):
            for i in range(n):
                for j in range(n):
                    wave = math.cos(math.pi * (i + 0.5) * u / n) * math.cos(math.pi * (j + 0.5) * v / n)
                    out[u, v] += patch[i, j] * wave
            out[u, v] *= math.sqrt((1 if u == 0 else 2) / n) * math.sqrt((1 if v == 0 else 2) / n)
    return out
