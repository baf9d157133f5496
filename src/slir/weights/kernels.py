"""Kernels k(f, f′) between feature vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slir.errors import InputError


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """‖aᵢ − bⱼ‖², by one matrix product: (c, d), (m, d) -> (c, m). Rounding may leave tiny negatives; they are zero."""
    b_norms = b.square().sum(-1)
    return torch.addmm(b_norms[None], a, b.T, alpha=-2).add_(a.square().sum(-1, keepdim=True)).clamp_min_(0)


@dataclass(frozen=True)
class Kernel:
    """gaussian: exp(−‖f − f′‖²/2σ_k²). laplacian: exp(−‖f − f′‖/σ_k). Both have r = k(f, f) = 1."""

    name: str
    bandwidth: float

    def __post_init__(self) -> None:
        if self.name not in ("gaussian", "laplacian"):
            raise InputError("kernel", "be 'gaussian' or 'laplacian'", repr(self.name), "Pick one of these.")
        if not self.bandwidth > 0:
            remedy = "A bank of equal patches has none: use richer images, or pass a bandwidth."
            raise InputError("bandwidth", "be positive", self.bandwidth, remedy)

    def log(self, a: Tensor, b: Tensor) -> Tensor:
        """log k for all pairs: (c, d), (m, d) -> (c, m)."""
        distance = squared_distances(a, b)
        if self.name == "gaussian":
            return distance.mul_(-1 / (2 * self.bandwidth**2))
        return distance.sqrt_().mul_(-1 / self.bandwidth)

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """k for all pairs: (c, d), (m, d) -> (c, m)."""
        return self.log(a, b).exp_()
