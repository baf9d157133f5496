"""Operators on a torus, a different one for each picture of a batch, with x-updates in closed form.

They are `slir.operators` with circular borders, on any device. Each has

    forward(x)            Bx
    adjoint(y)            Bᵀy
    update(y, z, ridge)   argmin_x ‖y − Bx‖² + ridge ‖x − z‖² = z + (BᵀB + ridge I)⁻¹Bᵀ(y − Bz)
    start(y, weight)      argmin_x ‖y − Bx‖² + weight ‖∇x‖²
    residual(x, y, ridge) what the kernel's stage sees of y − Bx

Pictures are (N, C, H, W); ridge and weight are (N, 1, 1, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-4
"""Added to ∇ᵀ∇, whose constant images would have no inverse."""

STEPS = 40
"""Of conjugate gradient, for the start of a mask."""


def roughness(height: int, width: int, device: torch.device) -> Tensor:
    """Spectrum of ∇ᵀ∇ on all frequencies: (H, W)."""
    rows, cols = (torch.arange(n, device=device) / n for n in (height, width))
    return (4 - 2 * torch.cos(2 * math.pi * rows)[:, None] - 2 * torch.cos(2 * math.pi * cols)).float()


@dataclass(frozen=True)
class Blurs:
    """spectra: of the PSFs, half of the frequencies (N, 1, H, W/2 + 1)."""

    spectra: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft2(self.spectra * torch.fft.rfft2(x))

    def adjoint(self, y: Tensor) -> Tensor:
        return torch.fft.irfft2(self.spectra.conj() * torch.fft.rfft2(y))

    def update(self, y: Tensor, z: Tensor, ridge: Tensor) -> Tensor:
        return z + self.residual(z, y, ridge)

    def residual(self, x: Tensor, y: Tensor, ridge: Tensor) -> Tensor:
        left = torch.fft.rfft2(y) - self.spectra * torch.fft.rfft2(x)
        return torch.fft.irfft2(self.spectra.conj() * left / (self.spectra.abs().square() + ridge))

    def start(self, y: Tensor, weight: Tensor) -> Tensor:
        rough = roughness(y.shape[-2], y.shape[-1], y.device)[:, : self.spectra.shape[-1]] + EPSILON
        passed = self.spectra.conj() * torch.fft.rfft2(y)
        return torch.fft.irfft2(passed / (self.spectra.abs().square() + weight * rough))


@dataclass(frozen=True)
class Downsamplings:
    """spectra: of the filters, all frequencies (N, 1, H, W). factor: every factor-th pixel is kept."""

    spectra: Tensor
    factor: int

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.ifft2(self.spectra * torch.fft.fft2(x)).real[..., :: self.factor, :: self.factor]

    def adjoint(self, y: Tensor) -> Tensor:
        height, width = (n * self.factor for n in y.shape[-2:])
        fine = y.new_zeros(*y.shape[:-2], height, width)
        fine[..., :: self.factor, :: self.factor] = y
        return torch.fft.ifft2(self.spectra.conj() * torch.fft.fft2(fine)).real

    def update(self, y: Tensor, z: Tensor, ridge: Tensor) -> Tensor:
        kept = self._fold(self.spectra.abs().square())  # BBᵀ
        left = torch.fft.ifft2(torch.fft.fft2(y - self.forward(z)) / (kept + ridge)).real
        return z + self.adjoint(left)

    def residual(self, x: Tensor, y: Tensor, ridge: Tensor) -> Tensor:
        return self.adjoint(y - self.forward(x))

    def start(self, y: Tensor, weight: Tensor) -> Tensor:
        """D⁻¹Bᵀ(BD⁻¹Bᵀ + I)⁻¹y with D = weight ∇ᵀ∇."""
        height, width = self.spectra.shape[-2:]
        smooth = weight * (roughness(height, width, y.device) + EPSILON)
        kept = self._fold(self.spectra.abs().square() / smooth)
        back = self.adjoint(torch.fft.ifft2(torch.fft.fft2(y) / (kept + 1)).real)
        return torch.fft.ifft2(torch.fft.fft2(back) / smooth).real

    def _fold(self, power: Tensor) -> Tensor:
        """Mean over the frequencies that decimation makes one: (…, H, W) -> (…, H/f, W/f)."""
        f = self.factor
        height, width = power.shape[-2] // f, power.shape[-1] // f
        return power.view(*power.shape[:-2], f, height, f, width).mean((-4, -2))


@dataclass(frozen=True)
class Masks:
    """known: 1 where a pixel is known, else 0: (N, 1, H, W)."""

    known: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.known * x

    adjoint = forward

    def update(self, y: Tensor, z: Tensor, ridge: Tensor) -> Tensor:
        return z + self.known * (y - z) / (1 + ridge)

    def residual(self, x: Tensor, y: Tensor, ridge: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def start(self, y: Tensor, weight: Tensor) -> Tensor:
        """By conjugate gradient, as a mask and a gradient share no basis."""
        diagonal = self.known + 4 * weight

        def apply(x: Tensor) -> Tensor:
            around = x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)
            return self.known * x + weight * (4 * x - around)

        def dot(a: Tensor, b: Tensor) -> Tensor:
            return (a * b).sum((-2, -1), keepdim=True)

        mean = y.sum((-2, -1), keepdim=True) / self.known.sum((-2, -1), keepdim=True)
        x = torch.where(self.known > 0, y, mean)
        left = self.known * y - apply(x)
        step = left / diagonal
        size = dot(left, step)
        for _ in range(STEPS):
            image = apply(step)
            along = size / dot(step, image).clamp(min=1e-20)
            x, left = x + along * step, left - along * image
            ahead = left / diagonal
            before, size = size, dot(left, ahead)
            step = ahead + size / before.clamp(min=1e-20) * step
        return x


Operators = Blurs | Downsamplings | Masks
