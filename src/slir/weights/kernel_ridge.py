"""Kernel ridge regression weights: (K + mλI) α(y_p) = v(y_p) with vᵢ = k(y_p, yⁱ) (eq. alphakrr)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from slir.compute import chunks, rows_that_fit
from slir.descriptors import bandwidth
from slir.errors import InputError
from slir.weights.base import Fitted, Weights, check_s, ones_column
from slir.weights.kernels import Kernel

EXACT_LIMIT = 20_000
"""Largest bank whose m × m kernel matrix is factorised (3.2 GB in double precision)."""


def check_settings(lam: float, s: float) -> None:
    if not lam > 0:
        raise InputError("lam", "be positive", lam, "λ = 1e-6 is a start; lam='theorem' takes the bound's.")
    check_s(s)


def cholesky(matrix: Tensor, lam: float) -> Tensor:
    """The Cholesky factor of a positive definite matrix, or an error that says how to make it one."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info):
        remedy = "Pass a larger lam."
        raise InputError("lam", "be large enough to make K + mλI positive definite in double precision", lam, remedy)
    return factor


@dataclass(frozen=True)
class FittedKernelRidge(Fitted):
    """Exact. `coefficients` (m, k + 1) is (K + mλI)⁻¹[x, 1], so that the moments need no α at all."""

    kernel: Kernel
    features: Tensor
    clean: Tensor
    factor: Tensor
    coefficients: Tensor
    signed = True

    def alpha(self, seen: Tensor) -> Tensor:
        v = self.kernel.gram(seen.double(), self.features.double())
        return torch.cholesky_solve(v.T, self.factor).T.to(seen)

    def moments(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        both = self.kernel.gram(seen, self.features) @ self.coefficients
        return both[:, -1], both[:, :-1]


@dataclass(frozen=True)
class KernelRidge(Weights):
    """Signed weights that solve the regression of which Nadaraya–Watson is the crude form.

    lam: the ridge λ. Larger values trust the bank less; Σα shrinks with it and the data term takes over.
    s: bandwidth as a share of the features' overall standard deviation; regression wants it wider than
        Nadaraya–Watson does.
    """

    lam: float = 1e-5
    s: float = 1.0
    kernel: str = "gaussian"

    def __post_init__(self) -> None:
        if not self.lam > 0:
            raise InputError(
                "lam", "be positive", self.lam, "λ = 1e-5 is a start; slir.theory.lam gives the theorem's."
            )

    def fit(self, features: Tensor, clean: Tensor) -> FittedKernelRidge:
        m = len(features)
        if m > EXACT_LIMIT:
            remedy = "Use Nystrom weights, or a smaller bank."
            raise InputError("the bank", f"hold at most {EXACT_LIMIT} pairs for exact kernel ridge", f"of {m}", remedy)
        kernel = Kernel(self.kernel, bandwidth(features, self.s))
        gram = kernel.gram(features.double(), features.double())
        gram.diagonal().add_(m * self.lam)
        factor = cholesky(gram, self.lam)
        coefficients = torch.cholesky_solve(ones_column(clean.double()), factor).to(features)
        return FittedKernelRidge(kernel, features, clean, factor, coefficients)

    def settings(self) -> dict[str, Any]:
        return {"kind": "krr", "lam": self.lam, "s": self.s, "kernel": self.kernel}


@dataclass(frozen=True)
class FittedNystrom(Fitted):
    """`factor` is the Cholesky factor of K_Mm K_mM + mλ K_MM, `coefficients` (M, k + 1) its solution for [x, 1]."""

    kernel: Kernel
    features: Tensor
    clean: Tensor
    centres: Tensor
    factor: Tensor
    coefficients: Tensor
    signed = True

    @cached_property
    def spread(self) -> Tensor:
        """(m, M), which maps kernel values at the centres to weights on all pairs; made when α itself is asked for."""
        spread = self.features.new_empty(len(self.features), len(self.centres))
        for piece in chunks(len(spread), rows_that_fit(16 * len(self.centres), spread.device)):
            rows = self.kernel.gram(self.features[piece].double(), self.centres.double())
            spread[piece] = torch.cholesky_solve(rows.T, self.factor).T.to(spread)
        return spread

    def alpha(self, seen: Tensor) -> Tensor:
        return self.kernel.gram(seen, self.centres) @ self.spread.T

    def moments(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        both = self.kernel.gram(seen, self.centres) @ self.coefficients
        return both[:, -1], both[:, :-1]


@dataclass(frozen=True)
class Nystrom(Weights):
    """Kernel ridge restricted to functions spanned by M of the m pairs (Rudi, Camoriano & Rosasco, 2015):

        α(y_p) = K_mM (K_Mm K_mM + mλ K_MM)⁻¹ v_M(y_p).

    For M = m it is the exact weights. K_mM is visited in chunks. centres: M. seed: which pairs are the centres.
    """

    lam: float = 1e-5
    s: float = 1.0
    kernel: str = "gaussian"
    centres: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self.lam, self.s)
        if self.centres < 1:
            raise InputError("centres", "be at least 1", self.centres, "2000 is a good start.")

    def fit(self, features: Tensor, clean: Tensor) -> FittedNystrom:
        m, count = len(features), min(self.centres, len(features))
        kernel = Kernel(self.kernel, bandwidth(features, self.s))
        chosen = torch.randperm(m, generator=torch.Generator().manual_seed(self.seed))[:count].to(features.device)
        centres = features[chosen].double()
        system = kernel.gram(centres, centres).mul_(m * self.lam)
        targets = ones_column(clean.double())
        moments = centres.new_zeros(count, targets.shape[1])
        for piece in chunks(m, rows_that_fit(16 * count, features.device)):
            rows = kernel.gram(features[piece].double(), centres)
            system.addmm_(rows.T, rows)
            moments.addmm_(rows.T, targets[piece])
        # K_MM may be singular to rounding where centres nearly coincide; this much jitter changes nothing else.
        system.diagonal().add_(1e-12 * float(system.diagonal().max()))
        factor = cholesky(system, self.lam)
        coefficients = torch.cholesky_solve(moments, factor).to(features)
        return FittedNystrom(kernel, features, clean, centres.to(features), factor, coefficients)

    def settings(self) -> dict[str, Any]:
        own = {"lam": self.lam, "s": self.s, "kernel": self.kernel, "centres": self.centres, "seed": self.seed}
        return {"kind": "nystrom", **own}
