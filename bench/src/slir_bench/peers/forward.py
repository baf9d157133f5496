"""The benchmark's own operators A, so that no peer's figure depends on the engine that it is compared with.

* deblur: y = valid part of k ∗ x. Valid values of a circular convolution on a grid at least as large as x are those of
  the true one, so one product of spectra does it, whatever the border.
* upsample: y = ↓(g ⊛ x), circular.
* inpaint: y = mask · x.   denoise: y = x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from slir_bench.protocols import Case


class Forward:
    """A and Aᵀ of one case on `device`, float32."""

    def __init__(self, case: Case, device: str):
        self.case = case
        self.shape = case.clean.shape
        self.mask = None if case.mask is None else torch.from_numpy(case.mask).to(device)
        if case.psf is not None:
            psf = torch.from_numpy(case.psf).to(device)
            self.grid = self.shape
            if case.kind == "deblur":
                self.grid = tuple(next_fast_len(side, real=True) for side in self.shape)
            kernel = torch.zeros(self.grid, device=device)
            kernel[: psf.shape[0], : psf.shape[1]] = psf
            if case.kind == "upsample":
                kernel = kernel.roll((-(psf.shape[0] // 2), -(psf.shape[1] // 2)), (0, 1))
            self.spectrum = torch.fft.rfft2(kernel)
            self.lost = (psf.shape[0] - 1, psf.shape[1] - 1)

    def apply(self, x: Tensor) -> Tensor:
        """A x."""
        if self.case.kind == "denoise":
            return x
        if self.mask is not None:
            return x * self.mask
        wide = torch.fft.irfft2(torch.fft.rfft2(x, s=self.grid) * self.spectrum, s=self.grid)
        if self.case.kind == "upsample":
            return wide[:: self.case.factor, :: self.case.factor]
        return wide[self.lost[0] : self.shape[0], self.lost[1] : self.shape[1]]

    def adjoint(self, y: Tensor) -> Tensor:
        """Aᵀ y."""
        if self.case.kind == "denoise":
            return y
        if self.mask is not None:
            return y * self.mask
        wide = torch.zeros(self.grid, device=y.device)
        if self.case.kind == "upsample":
            wide[:: self.case.factor, :: self.case.factor] = y
        else:
            wide[self.lost[0] : self.shape[0], self.lost[1] : self.shape[1]] = y
        wide = torch.fft.irfft2(torch.fft.rfft2(wide) * self.spectrum.conj(), s=self.grid)
        return wide[: self.shape[0], : self.shape[1]]


def conjugate_gradients(
    matrix: Callable[[Tensor], Tensor], right: Tensor, start: Tensor, *, steps: int = 60, tolerance: float = 1e-4
) -> Tensor:
    """Solve a symmetric positive system to a relative residual of `tolerance`, or for `steps` steps."""
    x = start.clone()
    residual = right - matrix(x)
    direction, energy = residual.clone(), residual.square().sum()
    goal = tolerance**2 * right.square().sum()
    for _ in range(steps):
        if energy <= goal:
            break
        image = matrix(direction)
        step = energy / (direction * image).sum()
        x += step * direction
        residual -= step * image
        before, energy = energy, residual.square().sum()
        direction = residual + (energy / before) * direction
    return x


def first_guess(case: Case) -> np.ndarray:
    """A start of the clean image's size: y continued by its edge, interpolated, or as it is."""
    if case.kind == "deblur":
        return np.pad(case.y, case.border, mode="edge")
    if case.kind == "upsample":
        from slir_bench.peers.bicubic import enlarge

        return enlarge(case.y, case.factor)
    if case.mask is not None:
        from slir_bench.peers.bicubic import fill

        return fill(case.y, case.mask)
    return case.y


def edge_tapered(case: Case, times: int = 4) -> np.ndarray:
    """y of the clean image's size, its border continued and then blended into its own circular blur `times` times.

    The blend's weight falls off like the kernel's autocorrelation, so that a circular model of the blur holds at the
    border too (as MATLAB's edgetaper does, and Krishnan and Fergus use it).
    """
    assert case.psf is not None
    y = np.pad(case.y, case.border, mode="edge").astype(np.float64)
    kernel = np.zeros(y.shape)
    kernel[: case.psf.shape[0], : case.psf.shape[1]] = case.psf
    kernel = np.roll(kernel, [-(side // 2) for side in case.psf.shape], (0, 1))
    spectrum = np.fft.rfft2(kernel)
    ramps = []
    for axis, side in enumerate(y.shape):
        line = np.abs(np.fft.fft(case.psf.sum(axis=1 - axis), side - 1)) ** 2
        correlation = np.fft.ifft(line).real
        ramps.append(1 - np.append(correlation, correlation[0]) / correlation.max())
    weight = np.outer(*ramps)
    for _ in range(times):
        y = weight * y + (1 - weight) * np.fft.irfft2(np.fft.rfft2(y) * spectrum, s=y.shape)
    return y.astype(np.float32)
