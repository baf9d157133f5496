"""Cubic convolution, a = −1/2, on the grid that the decimation left: sample j of y lies on pixel `factor`·j of x.

R. Keys, "Cubic convolution interpolation for digital image processing", IEEE Trans. ASSP, 1981.
"""

from __future__ import annotations

import numpy as np

from slir_bench.peers.base import Peer
from slir_bench.protocols import Case


def keys(t: np.ndarray) -> np.ndarray:
    """Keys's kernel: 1.5|t|³ − 2.5|t|² + 1 within 1, −0.5|t|³ + 2.5|t|² − 4|t| + 2 within 2, else 0."""
    t = np.abs(t)
    near = 1.5 * t**3 - 2.5 * t**2 + 1
    far = -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def enlarge(y: np.ndarray, factor: int) -> np.ndarray:
    """y enlarged by `factor` along both axes, its edge repeated."""
    for axis in (0, 1):
        size = y.shape[axis]
        place = np.arange(size * factor) / factor
        first = np.floor(place).astype(int) - 1
        moved = np.moveaxis(y, axis, 0)
        y = np.moveaxis(
            sum(
                keys(place - (first + j))[:, None] * moved[np.clip(first + j, 0, size - 1)]  # (factor·size, other)
                for j in range(4)
            ),
            0,
            axis,
        )
    return y.astype(np.float32)


def fill(y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lost pixels from the flat triangles between the known ones; outside their hull, the nearest."""
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

    known, lost = np.argwhere(mask), np.argwhere(~mask)
    out, guess = y.copy(), LinearNDInterpolator(known, y[mask])(lost)
    outside = np.isnan(guess)
    if outside.any():
        guess[outside] = NearestNDInterpolator(known, y[mask])(lost[outside])
    out[~mask] = guess
    return out


class Bicubic(Peer):
    """Upsampling; full size."""

    name = "bicubic"
    kinds = frozenset({"upsample"})

    def restore(self, case: Case) -> np.ndarray:
        return enlarge(case.y, case.factor)


class Triangles(Peer):
    """Inpainting by linear interpolation between scattered points; full size."""

    name = "linear"
    kinds = frozenset({"inpaint"})

    def restore(self, case: Case) -> np.ndarray:
        assert case.mask is not None
        return fill(case.y, case.mask)
