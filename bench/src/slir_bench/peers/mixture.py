"""A mixture of zero-mean Gaussians on patches without their mean, and its fit by expectation–maximisation.

A patch lives in the 63 DCT coefficients beside the constant one. The quadratic form fᵀPf is linear in the products
f_i f_j, i ≤ j, so the log-likelihoods of a chunk under all K components are one matrix product W·F, of (K, 2016) with
(2016, chunk); and the M-step's scatter matrices are another, F·rᵀ. Both run at the speed of a square product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from slir.descriptors import dct_basis

FLOOR = 2e-6
"""Least variance along any axis: with a range of 1, about that of rounding to 8 bits."""


def patch_basis(side: int) -> Tensor:
    """The orthonormal DCT on `side`² pixels less the constant: (side² − 1, side²)."""
    return dct_basis(side)[1:].float()


def sample_patches(images: Sequence[np.ndarray], count: int, side: int, *, seed: int) -> Tensor:
    """About `count` patches in the basis above, equally many from each image: (side² − 1, count)."""
    generator = torch.Generator().manual_seed(seed)
    each, basis, parts = max(1, count // len(images)), patch_basis(side), []
    for image in images:
        windows = torch.from_numpy(np.ascontiguousarray(image)).unfold(0, side, 1).unfold(1, side, 1)
        top = torch.randint(windows.shape[0], (each,), generator=generator)
        left = torch.randint(windows.shape[1], (each,), generator=generator)
        parts.append(windows[top, left].reshape(each, -1) @ basis.T)
    return torch.cat(parts).T.contiguous()


def products(features: Tensor) -> Tensor:
    """F: the products f_i f_j, i ≤ j, of each column: (d, P) -> (d(d+1)/2, P)."""
    d = len(features)
    if features.device.type != "cpu":  # in few launches
        i, j = torch.triu_indices(d, d, device=features.device)
        return features[i] * features[j]
    out = features.new_empty(d * (d + 1) // 2, features.shape[1])
    row = 0
    for i in range(d):
        torch.mul(features[i], features[i:], out=out[row : row + d - i])
        row += d - i
    return out


@dataclass(frozen=True)
class Mixture:
    """Weights π (K,), and covariances U diag(s) Uᵀ by their axes U (K, d, d) and variances s, `spread` (K, d)."""

    weights: Tensor
    axes: Tensor
    spread: Tensor

    @property
    def chunk(self) -> int:
        """Columns at a time. On a CPU, small enough (16 MB of products) for the allocator to reuse the memory."""
        return 2048 if self.weights.device.type == "cpu" else 65536

    @classmethod
    def of(cls, weights: Tensor, covariances: Tensor) -> Mixture:
        spread, axes = torch.linalg.eigh(covariances.double())
        # Row by row, as a file holds them, so that products round alike.
        return cls(weights.float(), axes.float().contiguous(), spread.clamp(min=FLOOR).float())

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray], device: str) -> Mixture:
        weights, axes, spread = (torch.from_numpy(arrays[name]).to(device) for name in ("weights", "axes", "spread"))
        return cls(weights, axes, spread)

    def to(self, device: torch.device | str) -> Mixture:
        return Mixture(self.weights.to(device), self.axes.to(device), self.spread.to(device))

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).cpu().numpy() for name in ("weights", "axes", "spread")}

    def widened(self, variance: float) -> Mixture:
        """The mixture seen through white noise of this variance."""
        return Mixture(self.weights, self.axes, self.spread + variance)

    def log_joint(self, features: Tensor, outer: Tensor | None = None) -> Tensor:
        """log π_k + log N(f; 0, Σ_k) for each column, less the constant d/2·log 2π: (K, P)."""
        outer = products(features) if outer is None else outer
        constant = self.weights.log() - 0.5 * self.spread.log().sum(1)
        return constant[:, None] + self._quadratic @ outer

    @cached_property
    def _quadratic(self) -> Tensor:
        """W: −½ of each precision, its off-diagonal terms doubled, in the order of `products`: (K, d(d+1)/2)."""
        precision = (self.axes / self.spread[:, None, :]) @ self.axes.mT
        i, j = torch.triu_indices(*precision.shape[1:], device=precision.device)
        return precision[:, i, j] * torch.where(i == j, -0.5, -1.0)


def fit_mixture(
    features: Tensor, components: int, *, rounds: int, generator: torch.Generator
) -> tuple[Mixture, list[float]]:
    """EM from a first partition by contrast and direction. Also the mean log-likelihood before each round.

    E: r_k(f) ∝ π_k N(f; 0, Σ_k).    M: π_k = mean r_k,  Σ_k = Σ r_k f fᵀ / Σ r_k.
    """
    d, count = features.shape
    i, j = torch.triu_indices(d, d, device=features.device)
    mixture, path = _first(features, components, generator), []
    for _ in range(rounds):
        mass = torch.zeros(components, dtype=torch.float64, device=features.device)
        scatter = torch.zeros(components, len(i), dtype=torch.float64, device=features.device)
        likelihood = 0.0
        for part in features.split(mixture.chunk, dim=1):
            outer = products(part)
            joint = mixture.log_joint(part, outer)
            evidence = joint.logsumexp(0)
            share = (joint - evidence).exp()  # (K, P)
            likelihood += float(evidence.double().sum())
            mass += share.double().sum(1)
            scatter += (share @ outer.T).double()
        path.append(likelihood / count - 0.5 * d * float(np.log(2 * np.pi)))
        covariances = torch.zeros(components, d, d, dtype=torch.float64, device=features.device)
        covariances[:, i, j] = covariances[:, j, i] = scatter / mass.clamp(min=1e-6)[:, None]
        mixture = Mixture.of((mass / count).clamp(min=1e-12), covariances)
    return mixture, path


def _first(features: Tensor, components: int, generator: torch.Generator) -> Mixture:
    """Patches ranked by norm into bands; in each, the nearest in direction, up to sign, of a few drawn patches."""
    d, count = features.shape
    bands = max(1, min(10, components // 4))
    order = features.square().sum(0).argsort()
    overall = features @ features.T / count
    weights, covariances = [], []
    for b, band in enumerate(order.tensor_split(bands)):
        k = components * (b + 1) // bands - components * b // bands
        members = features[:, band]
        seeds = members[:, torch.randperm(len(band), generator=generator)[:k].to(features.device)]
        nearest = (seeds / seeds.norm(dim=0).clamp(min=1e-6)).T @ members
        label = nearest.abs().argmax(0)
        scale = members.square().mean() / features.square().mean().clamp(min=1e-30)
        for own in range(k):
            mine = members[:, label == own]
            covariances.append((mine @ mine.T + d * scale * overall) / (mine.shape[1] + d))  # d pseudo-patches
            weights.append((mine.shape[1] + 1) / (count + components))
    return Mixture.of(torch.tensor(weights, device=features.device), torch.stack(covariances))
