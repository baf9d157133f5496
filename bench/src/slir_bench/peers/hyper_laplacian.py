"""HL: deconvolution with a hyper-Laplacian prior on the gradients,

    min_x  λ/2 ‖k ⊛ x − y‖²  +  Σ_f Σ |f ⊛ x|^α,       f ∈ {horizontal, vertical difference},  α = 2/3,

by half-quadratic splitting. For β = 1, √8, 8, …, 256:

    w_f = argmin_w |w|^α + β/2 (w − f ⊛ x)²,      x = argmin_x λ/2 ‖k ⊛ x − y‖² + β/2 Σ_f ‖f ⊛ x − w_f‖²  (by FFT).

D. Krishnan, R. Fergus, "Fast image deconvolution using hyper-Laplacian priors", NIPS, 2009. λ = 2000 is their value for
1 % noise; for another σ the data's weight keeps to λ = 2000 (0.01/σ)².
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir_bench.peers.base import Peer
from slir_bench.peers.forward import edge_tapered
from slir_bench.protocols import Case


def shrink(v: Tensor, beta: float, alpha: float, *, steps: int = 8) -> Tensor:
    """argmin_w |w|^α + β/2 (w − v)², elementwise, for 0 < α < 1.

    Below τ the minimum is 0. Above, it is the larger root of w = |v| − (α/β) w^(α−1), whose fixed-point map contracts
    by α/2 or better from |v| on, so that a few steps replace the authors' lookup table.
    """
    least = (2 * (1 - alpha) / beta) ** (1 / (2 - alpha))  # the smallest non-zero minimiser
    threshold = least * (2 - alpha) / (2 * (1 - alpha))
    size = v.abs()
    w = size.clone()
    for _ in range(steps):
        w = size - (alpha / beta) * w.clamp(min=least) ** (alpha - 1)
    return torch.where(size > threshold, w * v.sign(), torch.zeros_like(v))


class HyperLaplacian(Peer):
    """Deblurring; full size."""

    name = "HL"
    kinds = frozenset({"deblur"})

    def __init__(self, **options: Any):
        super().__init__({"alpha": 2 / 3, "lambda": 2000.0, "beta": [1.0, 256.0, 8**0.5]}, **options)

    def restore(self, case: Case) -> np.ndarray:
        assert case.psf is not None
        alpha, (beta, last, growth) = self.settings["alpha"], self.settings["beta"]
        weight = self.settings["lambda"] * (0.01 / case.sigma) ** 2
        y = torch.from_numpy(edge_tapered(case)).to(self.device)
        psf = torch.from_numpy(case.psf).to(self.device)
        blur = self._spectrum(psf, y, (psf.shape[0] // 2, psf.shape[1] // 2))
        difference = torch.tensor([[1.0, -1.0]], device=self.device)
        filters = [self._spectrum(difference, y, (0, 0)), self._spectrum(difference.T, y, (0, 0))]
        data, curvature = weight * blur.conj() * torch.fft.rfft2(y), weight * blur.abs() ** 2
        roughness = sum(f.abs() ** 2 for f in filters)

        x = y
        while beta <= last * 1.001:
            spectrum = torch.fft.rfft2(x)
            w = [shrink(torch.fft.irfft2(f * spectrum, s=y.shape), beta, alpha) for f in filters]
            pull = sum(f.conj() * torch.fft.rfft2(v) for f, v in zip(filters, w))
            x = torch.fft.irfft2((data + beta * pull) / (curvature + beta * roughness), s=y.shape)
            beta *= growth
        return x.cpu().numpy()

    @staticmethod
    def _spectrum(kernel: Tensor, like: Tensor, centre: tuple[int, int]) -> Tensor:
        padded = torch.zeros_like(like)
        padded[: kernel.shape[0], : kernel.shape[1]] = kernel
        return torch.fft.rfft2(padded.roll((-centre[0], -centre[1]), (0, 1)))
