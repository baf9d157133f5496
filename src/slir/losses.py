"""Losses ℓ(z, x′) between patches: functions of the distance, ℓ(z, x′) = φ(‖z − x′‖₂).

Every solver of the z-update

    min_z  Σᵢ αᵢ φ(‖z − xⁱ‖) + β/2 ‖z − x‖²

needs φ itself and the weight w(d) = φ′(d)/d, because the gradient of αᵢφ(‖z − xⁱ‖) is αᵢ w(d) (z − xⁱ): each clean
patch pulls like a spring of stiffness αᵢ w. Newton's method also needs w′(d)/d, for the Hessian

    αᵢ [ w(d) I + (w′(d)/d) (z − xⁱ)(z − xⁱ)ᵀ ].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.errors import InputError


class Loss(ABC):
    """A convex, non-decreasing function of the distance between two patches.

    `floor` is the distance below which weights are computed as if at `floor`; it only matters for losses that have a
    kink at zero, where the gradient does not exist.
    """

    name: str
    floor: float = 0.0

    @abstractmethod
    def value(self, distance: Tensor) -> Tensor:
        """φ(d)."""

    @abstractmethod
    def weight(self, distance: Tensor) -> Tensor:
        """w(d) = φ′(d)/d."""

    @abstractmethod
    def weight_slope(self, distance: Tensor) -> Tensor:
        """w′(d)/d."""


@dataclass(frozen=True)
class Squared(Loss):
    """φ(d) = d²/2: the paper's MSE loss, with the ½ that makes its linear system (eq. msesystem) exact."""

    name = "squared"

    def value(self, distance: Tensor) -> Tensor:
        return distance.square() / 2

    def weight(self, distance: Tensor) -> Tensor:
        return torch.ones_like(distance)

    def weight_slope(self, distance: Tensor) -> Tensor:
        return torch.zeros_like(distance)


@dataclass(frozen=True)
class Euclidean(Loss):
    """φ(d) = d: the paper's ℓ₂ loss. Not differentiable at d = 0."""

    floor: float = 1e-6
    name = "euclidean"

    def value(self, distance: Tensor) -> Tensor:
        return distance

    def weight(self, distance: Tensor) -> Tensor:
        return distance.clamp_min(self.floor).reciprocal()

    def weight_slope(self, distance: Tensor) -> Tensor:
        return -distance.clamp_min(self.floor).pow(-3)


@dataclass(frozen=True)
class Huber(Loss):
    """φ(d) = d²/(2δ) up to δ, d − δ/2 beyond: squared for near patches, Euclidean for far ones.

    `delta` is a distance between patches, in units of the pixel values.
    """

    delta: float = 0.1
    name = "huber"

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise InputError("delta", "be positive", self.delta, "Use the Euclidean loss for delta = 0.")

    def value(self, distance: Tensor) -> Tensor:
        near = distance.square() / (2 * self.delta)
        return torch.where(distance <= self.delta, near, distance - self.delta / 2)

    def weight(self, distance: Tensor) -> Tensor:
        return distance.clamp_min(self.delta).reciprocal()

    def weight_slope(self, distance: Tensor) -> Tensor:
        return torch.where(distance <= self.delta, 0.0, -distance.clamp_min(self.delta).pow(-3))


def loss_named(loss: str | Loss) -> Loss:
    """The loss that a name stands for; a `Loss` passes through."""
    if isinstance(loss, Loss):
        return loss
    known: dict[str, type[Loss]] = {"squared": Squared, "euclidean": Euclidean, "huber": Huber}
    if loss not in known:
        raise InputError(
            "loss", f"be one of {', '.join(known)} or a slir.losses.Loss", repr(loss), "Pick one of these."
        )
    return known[loss]()


def energy(loss: Loss, alpha: Tensor, bank: Tensor, x: Tensor, beta: float, z: Tensor) -> Tensor:
    """Σᵢ αᵢ φ(‖z − xⁱ‖) + β/2 ‖z − x‖², one value a patch.

    alpha (c, m), bank (m, k), x and z (c, k) -> (c,)
    """
    distance = torch.cdist(z, bank, compute_mode="donot_use_mm_for_euclid_dist")  # (c, m)
    return (alpha * loss.value(distance)).sum(-1) + beta / 2 * (z - x).square().sum(-1)
