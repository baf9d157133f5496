"""The z-update for one patch, slowly and obviously: NumPy, float64, loops, scipy.optimize and brute force."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def phi(name: str, distance: float, delta: float = 0.1) -> float:
    """The losses of slir.losses, written out once more."""
    if name == "squared":
        return distance**2 / 2
    if name == "euclidean":
        return distance
    return distance**2 / (2 * delta) if distance <= delta else distance - delta / 2


def energy(name: str, alpha: np.ndarray, bank: np.ndarray, x: np.ndarray, beta: float, z: np.ndarray) -> float:
    """Σᵢ αᵢ φ(‖z − xⁱ‖) + β/2 ‖z − x‖², alpha (m,), bank (m, k), x and z (k,)."""
    pulled = sum(a * phi(name, float(np.linalg.norm(z - patch))) for a, patch in zip(alpha, bank))
    return pulled + beta / 2 * float(np.sum((z - x) ** 2))


def minimum(name: str, alpha: np.ndarray, bank: np.ndarray, x: np.ndarray, beta: float) -> np.ndarray:
    """The best of: every bank patch itself (the kinks), and what BFGS finds from x and from near the best patch."""

    def objective(z: np.ndarray) -> float:
        return energy(name, alpha, bank, x, beta, z)

    best = min(bank, key=objective)
    found = [minimize(objective, start, method="BFGS", options={"gtol": 1e-9}).x for start in (x, (9 * best + x) / 10)]
    polished = [minimize(objective, z, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15}).x for z in found]
    return min([best, *found, *polished], key=objective)


def minimum_on_a_line(name: str, alpha: np.ndarray, bank: np.ndarray, x: float, beta: float) -> float:
    """For k = 1: the best point of a grid over all that the answer could be, and of the bank."""
    low, high = min(bank.min(), x), max(bank.max(), x)
    grid = np.concatenate([np.linspace(low, high, 20001), bank, [x]])
    values = beta / 2 * (grid - x) ** 2
    for a, patch in zip(alpha, bank):
        values += a * np.array([phi(name, abs(point - patch)) for point in grid])
    return float(grid[values.argmin()])
