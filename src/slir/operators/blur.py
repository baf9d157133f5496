"""B = convolution with a PSF: deblurring."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute import to_numpy
from slir.errors import InputError
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.convolution import Border, Convolution, inverse_on_torus


def checked_psf(psf: Tensor | np.ndarray, *, argument: str = "psf", unit_sum: bool = True, axes: int = 2) -> Tensor:
    """A PSF as a float64 tensor on the CPU, after the checks that users need; see the messages."""
    try:
        array = torch.as_tensor(to_numpy(psf, argument).astype(np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(argument, "be an array of numbers", repr(psf), "slir.psf builds some.") from error
    if array.ndim != axes or array.numel() == 0:
        shape = f"of shape {tuple(array.shape)}"
        remedy = "Pass one plane, e.g. psf[..., 0]." if axes == 2 else "Pass (Z, Y, X)."
        rule = f"be a non-empty array of {'two' if axes == 2 else 'three'} dimensions"
        raise InputError(argument, rule, shape, remedy)
    if not bool(torch.isfinite(array).all()):
        raise InputError(argument, "be finite", "partly NaN or infinite", "Replace these values by zero.")
    total = float(array.sum())
    if unit_sum and abs(total - 1) > 1e-3:
        raise InputError(argument, "sum to one", f"summing to {total:.6g}", "Divide it by its sum: psf / psf.sum().")
    return array


class Blur(Operator):
    """y = psf * x, a true convolution (the PSF flipped), with one of the borders of `slir.operators.convolution`.

    psf: (K, L), any odd or even size, summing to one.
    """

    recordable = True
    shareable = True
    task = "deblur"
    keeps_constants = True
    psf: Tensor

    def __init__(self, psf: Tensor | np.ndarray, border: Border = "unknown"):
        self.psf = checked_psf(psf)
        self.convolution = Convolution(self.psf, border)
        self.reach = max(self.psf.shape) - 1

    @property
    def border(self) -> Border:
        return self.convolution.border

    @property
    def bordered(self) -> Convolution | None:
        return self.convolution if self.border == "unknown" else None

    def y_shape(self, x_shape: Shape) -> Shape:
        height, width = self.convolution.y_shape(x_shape)
        return height, width

    def x_shape(self, y_shape: Shape) -> Shape:
        height, width = self.convolution.x_shape(y_shape)
        return height, width

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution.forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.convolution.adjoint(y)

    def normal(self, x: Tensor) -> Tensor:
        return self.convolution.normal(x)

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """Exact on a torus; what a border does is left to conjugate gradient."""
        return inverse_on_torus(self.power, like, weight, ridge, smooth, circular=self.border == "circular")

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        return self.convolution.power(shape, like)

    def constants(self) -> list[Tensor]:
        return self.convolution.constants()

    def margins(self) -> tuple[int, int, int, int]:
        (top, bottom), (left, right) = self.convolution.margins()
        return top, bottom, left, right

    def guess(self, y: Tensor) -> Tensor:
        """y, its edge pixels repeated outwards over the unknown border."""
        top, bottom, left, right = self.margins()
        padded = F.pad(y.reshape(1, -1, *y.shape[-2:]), (left, right, top, bottom), mode="replicate")
        return padded.reshape(*y.shape[:-2], *padded.shape[-2:])

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """The same; a circular border alone ties far pixels together."""
        return None if self.border == "circular" else self

    def describe(self) -> dict[str, Any]:
        return {"kind": "blur", "border": self.border, "psf": fingerprint(self.psf)}
