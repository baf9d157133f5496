"""B = diag(known): inpainting."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import to_numpy
from slir.errors import InputError
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.convolution import Convolution


class Mask(Operator):
    """y = known · x: pixels where `missing` is true are not observed and read zero.

    missing: (H, W) bool, true where a pixel is missing, or (C, H, W) for a mask of each channel.
    """

    reach = 0
    recordable = True
    shareable = True
    task = calibration = "inpaint"
    keeps_constants = True
    missing: Tensor

    def __init__(self, missing: Tensor | np.ndarray):
        missing = torch.as_tensor(missing if isinstance(missing, Tensor) else to_numpy(missing, "mask"))
        if missing.ndim not in (2, 3):
            shape = f"of shape {tuple(missing.shape)}"
            raise InputError("mask", "have two dimensions, or three with the channels first", shape, "Pass one plane.")
        self.x_planes = self.y_planes = tuple(missing.shape[:-2])
        self.missing = self._there = missing.bool()
        if bool(self.missing.all()):
            raise InputError(
                "mask", "leave at least one pixel", "true everywhere", "Is it inverted? True means missing."
            )

    def y_shape(self, x_shape: Shape) -> Shape:
        if tuple(x_shape) != tuple(self.missing.shape[-2:]):
            rule = f"have the image's shape {tuple(x_shape)}"
            raise InputError("mask", rule, f"of shape {tuple(self.missing.shape)}", "Crop or resize the mask.")
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        return self.y_shape(y_shape)

    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(self._missing_on(x.device), 0.0)

    def _missing_on(self, device: torch.device) -> Tensor:
        """The mask where it is used again and again."""
        if self._there.device != device:
            self._there = self.missing.to(device)
        return self._there

    def adjoint(self, y: Tensor) -> Tensor:
        return self.forward(y)

    def normal(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        return self.forward(y - x)

    @property
    def observed_fraction(self) -> float:
        return 1 - float(self.missing.double().mean())

    def normal_diagonal(self, weights: Tensor) -> Tensor:
        return self.forward(weights)

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        """The share of known pixels."""
        return (~self._missing_on(like.device)).to(like).mean((-2, -1), keepdim=True)

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """Exact without smoothing; with it, its diagonal."""
        diagonal = torch.where(self._missing_on(like.device), 0.0, weight) + ridge + 4 * smooth
        return Preconditioner(torch.div, diagonal)

    def guess(self, y: Tensor) -> Tensor:
        return filled(self.forward(y), self._missing_on(y.device))

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """None where nothing is known there."""
        missing = self.missing[..., rows, cols]
        return None if bool(missing.all()) else Mask(missing)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The mask's pattern repeated over the picture, so that it loses pixels in the same way."""
        return Mask(repeated(self.missing, shape)), shape

    def describe(self) -> dict[str, Any]:
        share = float(self.missing.double().mean())
        return {"kind": "mask", "missing": fingerprint(self.missing), "share_missing": share}


def filled(values: Tensor, missing: Tensor) -> Tensor:
    """Missing pixels from their known neighbours: normalised Gaussian averages, from the finest that sees any.

    values: (..., H, W), zero where they are missing. missing: (H, W), or (C, H, W).
    """
    known = (~missing).to(values)
    result, still = values, missing
    sigma = 0.7
    while bool(still.any()) and sigma < max(values.shape[-2:]):
        lines = []
        for length in values.shape[-2:]:
            radius = min(int(3 * sigma) + 1, (length - 1) // 2)
            lines.append(torch.exp(-(torch.arange(-radius, radius + 1, dtype=torch.float64) ** 2) / (2 * sigma**2)))
        blur = Convolution(torch.outer(lines[0] / lines[0].sum(), lines[1] / lines[1].sum()), border="reflect")
        weight = blur.forward(known)
        reached = still & (weight > 1e-2)
        result = torch.where(reached, blur.forward(values) / weight, result)
        still = still & ~reached
        sigma *= 1.5
    count = known.sum((-2, -1), keepdim=True).clamp_min(1)
    mean = values.sum((-2, -1), keepdim=True) / count  # for what lies too far from anything known
    return torch.where(still, mean, result)


def repeated(pattern: Tensor, shape: Shape) -> Tensor:
    """A pattern (..., h, w) repeated until it covers this shape, and cut to it."""
    times = [-(-length // own) for length, own in zip(shape, pattern.shape[-2:])]
    return pattern.repeat(*[1] * (pattern.ndim - 2), *times)[..., : shape[0], : shape[1]]
