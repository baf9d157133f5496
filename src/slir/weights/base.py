"""What every kind of weights offers: fitted on a bank, it gives α, or the action of α, for a batch of descriptors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slir.errors import InputError

if TYPE_CHECKING:
    from slir.fused.bank import TiledBank


class Fitted(ABC):
    """Weights fitted to a bank of m pairs (feature, clean patch).

    features: (m, d). clean: (m, k), centred.
    """

    features: Tensor
    clean: Tensor
    signed: bool
    """Whether weights may be negative, which rules some solvers out."""

    @property
    def tiled(self) -> TiledBank | None:
        """The bank as the kernels of `slir.fused` read it, where these know the weights and run on its device."""
        return None

    @property
    def by_contrast(self) -> Fitted:
        """The same, the bank in an order in which patches of like weight lie together, where there is one."""
        return self

    @abstractmethod
    def alpha(self, seen: Tensor) -> Tensor:
        """α(y_p): (c, d) -> (c, m)."""

    def moments(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Σᵢαᵢ and Σᵢαᵢxⁱ: (c, d) -> (c,), (c, k). All that the squared loss needs to know of α."""
        alpha = self.alpha(seen)
        return alpha.sum(-1), alpha @ self.clean


class Weights(ABC):
    """How weights are computed, before any bank is seen: settings alone."""

    @abstractmethod
    def fit(self, features: Tensor, clean: Tensor) -> Fitted:
        """features (m, d), clean (m, k) -> the fitted weights. Deterministic."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """JSON from which a model file makes the same weights again: "kind", a name of `WEIGHTS`, and its arguments."""


def check_s(s: float) -> None:
    """s scales the bandwidth, so it is positive."""
    if not s > 0:
        raise InputError("s", "be positive", s, "It is a share of the features' standard deviation; 0.2 is a start.")


def ones_column(clean: Tensor) -> Tensor:
    """[clean, 1]: (m, k) -> (m, k + 1), so that one product gives both moments."""
    return torch.cat([clean, clean.new_ones(len(clean), 1)], 1)
