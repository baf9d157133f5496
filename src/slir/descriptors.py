"""What the method sees at a patch p: an image around p -> a feature vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import torch
from scipy.fft import dct
from torch import Tensor

from slir.errors import InputError
from slir.patches import PatchGrid


@lru_cache(maxsize=16)
def dct_basis(size: int) -> Tensor:
    """The orthonormal two-dimensional DCT-II as a matrix: coefficients = basis @ patch, (size², size²) float64.

    Row u·size + v is the coefficient of vertical frequency u and horizontal frequency v; row 0 is the DC.
    """
    line = torch.from_numpy(dct(np.eye(size), axis=0, norm="ortho"))
    return torch.kron(line, line)


@cache  # recordings read it
def dct_basis_on(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same for tensors of this kind."""
    return dct_basis(size).to(device, dtype)


@dataclass(frozen=True)
class DctDescriptor:
    """Orthonormal DCT coefficients of the centred window around a patch.

    window: side of the window; None is the patch's own side. A larger window is centred on the patch and sees the
        image mirrored beyond its border.
    keep_dc: whether the window's mean is a feature too. Without it, patches that differ by their brightness alone
        look the same, which is what restoration wants.
    """

    window: int | None = None
    keep_dc: bool = False

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise InputError("window", "be at least 1", self.window, "None takes the patch's own side.")

    def features(self, image: Tensor, grid: PatchGrid, rows: slice = slice(None)) -> Tensor:
        """Features of all patches of an image: (H, W) -> (P, d)."""
        return self.of_patches(grid.extract(image, self.window, rows=rows))

    def of_patches(self, patches: Tensor) -> Tensor:
        """Features of windows given as rows: (P, window²) -> (P, d)."""
        size = round(patches.shape[-1] ** 0.5)
        basis = dct_basis_on(size, patches.dtype, patches.device)
        # Centring changes the DC coefficient alone, because the basis is orthonormal: dropping row 0 is centring.
        return patches @ (basis if self.keep_dc else basis[1:]).T

    def settings(self) -> dict:
        return {"kind": "dct", "window": self.window, "keep_dc": self.keep_dc}


def bandwidth(features: Tensor, s: float = 0.2) -> float:
    """The paper's rule: σ_k = s · ‖(σ¹, …, σᵈ)‖₂ with σʲ the standard deviation of feature j. features (m, d)."""
    return float(s * features.double().var(0, unbiased=False).sum().sqrt())
