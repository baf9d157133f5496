"""Ridge per cell from the pairs themselves: stacked least squares in NumPy, float64."""

from __future__ import annotations

import numpy as np


def common(f: np.ndarray, t: np.ndarray, lam: float) -> np.ndarray:
    """W₀ = argmin Σ ‖t − W₀ᵀf‖² + λ n ‖D^½ W₀‖², D the features' mean squares: least squares with rows added."""
    penalty = np.sqrt(lam * len(f)) * np.diag(np.sqrt((f**2).mean(0)))
    rows, values = np.vstack([f, penalty]), np.vstack([t, np.zeros((f.shape[1], t.shape[1]))])
    return np.linalg.lstsq(rows, values, rcond=None)[0]


def maps(cell: np.ndarray, f: np.ndarray, t: np.ndarray, cells: int, lam: float, tau: float) -> np.ndarray:
    """W_c = argmin Σ_c ‖t − W_cᵀf‖² + τ e_c ‖F^½ (W_c − W₀)‖², F = S/n + λD, e_c = mean_c ‖f‖² / tr F."""
    base = common(f, t, lam)
    second = f.T @ f / len(f) + lam * np.diag((f**2).mean(0))
    root = np.linalg.cholesky(second).T  # ‖root v‖² = vᵀFv
    out = []
    for c in range(cells):
        own, wanted = f[cell == c], t[cell == c]
        if len(own) == 0:
            out.append(base)
            continue
        energy = (own**2).sum(1).mean() / np.trace(second)
        pull = np.sqrt(tau * energy) * root
        out.append(np.linalg.lstsq(np.vstack([own, pull]), np.vstack([wanted, pull @ base]), rcond=None)[0])
    return np.stack(out)


def predict(own: np.ndarray, cell: np.ndarray, f: np.ndarray) -> np.ndarray:
    return np.stack([own[c].T @ row for c, row in zip(cell, f)])


def loss(own: np.ndarray, cell: np.ndarray, f: np.ndarray, t: np.ndarray) -> float:
    """Mean of ‖t − W_cᵀf‖² over the pairs."""
    return float(((t - predict(own, cell, f)) ** 2).sum(1).mean())
