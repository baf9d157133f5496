"""B = keep every f-th pixel of an anti-aliased image: upsampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.blur import checked_psf
from slir.operators.convolution import Border, Convolution
from slir.operators.line import lines_of

Antialias = str | float | np.ndarray | Tensor


def cubic(t: Tensor) -> Tensor:
    """Keys' cubic kernel with a = −1/2, the one that image software calls bicubic."""
    t = t.abs()
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, 0.0))


def antialias_kernel(antialias: Antialias, factor: int) -> tuple[Tensor, int]:
    """The filter before decimation and the phase it is decimated at.

    antialias: "bicubic" or "box", stretched by the factor as image software does when it shrinks: coarse pixel (0, 0)
        then covers fine pixels 0 … f−1; or the standard deviation of a Gaussian in fine pixels (cut off at four of
        them); or a kernel. With these two, coarse pixel (0, 0) sits on fine pixel (0, 0).
    """
    if isinstance(antialias, str):
        # Coarse pixels are centred between fine ones when f is even: taps at t = j − (f−1)/2, sizes of f's parity.
        size = {"bicubic": 4 * factor - factor % 2, "box": factor}.get(antialias)
        if size is None:
            remedy = "Pass a name, the standard deviation of a Gaussian in fine pixels, or a kernel."
            raise InputError("antialias", "be 'bicubic' or 'box' where it is a name", repr(antialias), remedy)
        t = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2) / factor
        line = cubic(t) if antialias == "bicubic" else torch.ones(size, dtype=torch.float64)
        line = line / line.sum()
        return torch.outer(line, line), factor // 2
    if isinstance(antialias, np.ndarray | Tensor) and antialias.ndim == 0:
        antialias = float(antialias)
    if isinstance(antialias, int | float | np.number):
        antialias = float(antialias)
        if not (antialias > 0 and math.isfinite(antialias)):
            remedy = "Pass a positive σ in fine pixels, or a kernel [[1.0]] for plain decimation."
            raise InputError("antialias", "be positive where it is a number", antialias, remedy)
        radius = max(1, int(4 * antialias + 0.5))
        line = torch.exp(-(torch.arange(-radius, radius + 1, dtype=torch.float64) ** 2) / (2 * antialias**2))
        line = line / line.sum()
        return torch.outer(line, line), 0
    return checked_psf(antialias, argument="antialias"), 0


class Downsample(Operator):
    """y[i, j] = (kernel * x)[f·i + phase, f·j + phase].

    factor: f, a whole number ≥ 1; the sides of x are multiples of it.
    antialias: see `antialias_kernel`.
    phase: where in its f×f block the kept pixel lies, 0 … f−1; None leaves it to the kernel.
    border: how the filter continues x beyond its edges, "reflect" or "circular".
    """

    recordable = True
    shareable = True
    task = "upsample"
    keeps_constants = True

    def __init__(
        self, factor: int, antialias: Antialias = "bicubic", *, phase: int | None = None, border: Border = "reflect"
    ):
        if (
            not isinstance(factor, int | float | np.number)
            or not math.isfinite(factor)
            or factor != int(factor)
            or factor < 1
        ):
            raise InputError("factor", "be a whole number of at least 1", factor, "slir.upsample takes other numbers.")
        self.factor = self.scale = int(factor)
        self.kernel, own_phase = antialias_kernel(antialias, self.factor)
        self.phase = own_phase if phase is None else phase
        if self.phase not in range(self.factor):
            raise InputError("phase", f"lie in 0 … {self.factor - 1}", phase, "It counts fine pixels in a block.")
        if border == "unknown":
            raise InputError("border", "be 'reflect' or 'circular' for downsampling", "'unknown'", "Use 'reflect'.")
        self.convolution = Convolution(self.kernel, border)
        self.lines = lines_of(self.kernel, self.factor, self.phase, circular=border == "circular")
        self.reach = max(self.kernel.shape) - 1 + self.factor

    @property
    def calibration(self) -> str:
        return f"upsample{self.factor}" if self.factor > 1 else super().calibration

    def y_shape(self, x_shape: Shape) -> Shape:
        height, width = x_shape
        if height % self.factor or width % self.factor:
            best = f"{height - height % self.factor}×{width - width % self.factor}"
            rule = f"have sides that are multiples of the factor {self.factor}"
            raise InputError("image", rule, f"{height}×{width}", f"Crop it to {best}.")
        self.convolution.y_shape(x_shape)
        return height // self.factor, width // self.factor

    def x_shape(self, y_shape: Shape) -> Shape:
        return y_shape[0] * self.factor, y_shape[1] * self.factor

    def forward(self, x: Tensor) -> Tensor:
        self.y_shape((x.shape[-2], x.shape[-1]))
        if self.lines is None or x.device.type != "cpu":
            return self.convolution.forward(x)[..., self.phase :: self.factor, self.phase :: self.factor]
        down, across = self.lines
        return across.forward(down.forward(x).mT.contiguous()).mT.contiguous()

    def adjoint(self, y: Tensor) -> Tensor:
        if self.lines is not None and y.device.type == "cpu":
            down, across = self.lines
            return down.adjoint(across.adjoint(y.mT.contiguous()).mT.contiguous())
        x = y.new_zeros(*y.shape[:-2], *self.x_shape((y.shape[-2], y.shape[-1])))
        x[..., self.phase :: self.factor, self.phase :: self.factor] = y
        return self.convolution.adjoint(x)

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        """That of the filter, of whose pixels one of factor² is kept."""
        return self.convolution.power(shape, like) / self.factor**2

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """None: the kernel was learnt from residuals that Bᵀ alone brings back, without an inverse."""
        return None

    def constants(self) -> list[Tensor]:
        return self.convolution.constants()

    def guess(self, y: Tensor) -> Tensor:
        """Bicubic interpolation of y at the fine pixels, the samples placed where the operator took them."""
        rows, cols = self.convolution.size
        for axis, size in ((-2, rows), (-1, cols)):
            length = y.shape[axis]
            centre = self.phase - (0 if size % 2 else 0.5)  # even kernels are centred half a pixel before their index
            fine = torch.arange(length * self.factor, dtype=torch.float64)
            coarse = (fine - centre) / self.factor
            base = coarse.floor()
            total = torch.zeros_like(y.repeat_interleave(self.factor, axis))
            for tap in (-1, 0, 1, 2):
                index = (base + tap).clamp(0, length - 1).long().to(y.device)
                weight = cubic(coarse - base - tap).to(y)
                total += y.index_select(axis, index) * (weight[:, None] if axis == -2 else weight)
            y = total
        return y

    def part(self, rows: slice, cols: slice) -> Operator | None:
        return None if self.convolution.border == "circular" else self

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        return self, (shape[0] - shape[0] % self.factor, shape[1] - shape[1] % self.factor)

    def describe(self) -> dict[str, Any]:
        kernel = fingerprint(self.kernel)
        border = self.convolution.border
        return {"kind": "downsample", "factor": self.factor, "phase": self.phase, "border": border, "kernel": kernel}
