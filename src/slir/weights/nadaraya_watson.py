"""Nadaraya–Watson weights: α(y_p) = v / 1ᵀv with vᵢ = k(y_p, yⁱ) (eq. alphanw)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slir.compute import chunks, rows_in_cache
from slir.descriptors import bandwidth
from slir.fused import usable
from slir.weights.base import Fitted, Weights, check_s
from slir.weights.kernels import Kernel

if TYPE_CHECKING:
    from slir.fused.bank import TiledBank

FAINTEST = -100.0
"""Least weight as a power of two, beside the largest: what it adds is lost in rounding, but the denormal numbers that
most of a row would be make a CPU slow."""


@dataclass(frozen=True)
class FittedNadarayaWatson(Fitted):
    kernel: Kernel
    features: Tensor
    clean: Tensor
    signed = False

    def alpha(self, seen: Tensor) -> Tensor:
        # A softmax of log k: where every kernel value would underflow, the nearest patches still share the weight.
        if self.kernel.name == "gaussian":
            alpha = torch.cat([seen, torch.ones_like(seen[:, :1])], 1) @ self._scores.T
            for block in chunks(len(seen), rows_in_cache(len(self.features), seen)):
                own = alpha[block]
                own.sub_(own.amax(1, keepdim=True)).clamp_min_(FAINTEST).exp2_()
                own.mul_(1 / own.sum(1, keepdim=True))
            return alpha
        return torch.softmax(self.kernel.log(seen, self.features), -1)

    def moments(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        tiled = self.tiled
        if tiled is None:
            return super().moments(seen)
        from slir.fused.launch import nw_moments

        return seen.new_ones(len(seen)), nw_moments(tiled, seen)

    @cached_property
    def _scores(self) -> Tensor:
        """(m, d + 1): times (f, 1) it gives log₂ k up to a number for each row.

        log k = (fᵀf′ − ‖f′‖²/2 − ‖f‖²/2)/σ_k², and the last term is the same for all of a row. In powers of two, which
        take half as long.
        """
        precision = self.kernel.bandwidth**-2 / math.log(2)
        return torch.cat([self.features, self.features.square().sum(1, keepdim=True) / -2], 1) * precision

    @cached_property
    def by_contrast(self) -> FittedNadarayaWatson:
        # Features whose lengths differ much are far apart, so only bank patches of about a patch's contrast speak.
        order = torch.linalg.vector_norm(self.features, dim=1).argsort()
        return replace(self, features=self.features[order], clean=self.clean[order])

    @cached_property
    def tiled(self) -> TiledBank | None:
        """The bank as the fused kernels read it, where they can be used."""
        if self.kernel.name != "gaussian" or not usable(self.clean):
            return None
        from slir.fused.bank import tiled_bank

        return tiled_bank(self.features, self.clean, self.kernel.bandwidth)


@dataclass(frozen=True)
class NadarayaWatson(Weights):
    """Non-negative weights that sum to one: the closer a bank patch looks, the more it speaks.

    s: how far patches are heard, as a share of the features' overall standard deviation (the paper's s). Small values
        copy the nearest patches, detail and noise alike; large values average many and smooth.
    """

    s: float = 0.2
    kernel: str = "gaussian"

    def __post_init__(self) -> None:
        check_s(self.s)

    def fit(self, features: Tensor, clean: Tensor) -> FittedNadarayaWatson:
        return FittedNadarayaWatson(Kernel(self.kernel, bandwidth(features, self.s)), features, clean)

    def settings(self) -> dict[str, Any]:
        return {"kind": "nw", "s": self.s, "kernel": self.kernel}
