"""B = diag(d): gains of pixels, and the weights that noise of several strengths asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.mask import filled, repeated

FAINT = 1e-2
"""Gains below this share of the largest tell nothing when x is guessed from y alone."""


EVEN = 0.1
"""Least gain, as a share of the largest, of pixels that all tell about as much."""


class Diagonal(Operator):
    """y = gains · x, pixel by pixel: a flat field, vignetting, exposure.

    Noise that is not the same everywhere is a diagonal too: y/s = diag(1/s)Bx + ε for noise of standard deviation s.

    gains: (H, W), the same for all planes, or with the planes first: (C, H, W).
    """

    reach = 0
    recordable = True
    shareable = True

    def __init__(self, gains: Tensor | np.ndarray):
        self.gains = self._there = torch.as_tensor(
            gains if isinstance(gains, Tensor) else np.asarray(gains, np.float64)
        ).double()
        if self.gains.ndim < 2:
            shape = f"of shape {tuple(self.gains.shape)}"
            raise InputError("gains", "have two dimensions, or more with the planes first", shape, "Pass one plane.")
        if not bool(torch.isfinite(self.gains).all()):
            raise InputError("gains", "be finite", "NaN or infinite at some pixels", "Pass 0 where nothing is seen.")
        if not bool(self.gains.any()):
            raise InputError("gains", "leave at least one pixel", "zero everywhere", "Pass 1 where a pixel is seen.")
        self.x_planes = self.y_planes = tuple(self.gains.shape[:-2])

    def y_shape(self, x_shape: Shape) -> Shape:
        if tuple(x_shape) != tuple(self.gains.shape[-2:]):
            rule = f"have the image's shape {tuple(x_shape)}"
            raise InputError("gains", rule, f"of shape {tuple(self.gains.shape)}", "Crop or resize them.")
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        return self.y_shape(y_shape)

    def _on(self, like: Tensor) -> Tensor:
        """The gains where they are used again and again."""
        if self._there.device != like.device or self._there.dtype != like.dtype:
            self._there = self.gains.to(like)
        return self._there

    def forward(self, x: Tensor) -> Tensor:
        return self._on(x) * x

    def adjoint(self, y: Tensor) -> Tensor:
        return self.forward(y)

    def normal(self, x: Tensor) -> Tensor:
        return self._on(x).square() * x

    @property
    def observes_pixels(self) -> bool:
        return bool(self.gains.abs().min() > EVEN * self.gains.abs().max())

    @property
    def observed_fraction(self) -> float:
        return float((self.gains != 0).double().mean())

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        return torch.where(self._on(x) == 0, 0.0, y - self.forward(x))

    def normal_diagonal(self, weights: Tensor) -> Tensor:
        return self._on(weights).square() * weights

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        """The mean of the squared gains."""
        return self._on(like).square().mean((-2, -1), keepdim=True)

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """Exact without smoothing; with it, its diagonal."""
        return Preconditioner(torch.div, weight * self._on(like).square() + ridge + 4 * smooth)

    def guess(self, y: Tensor) -> Tensor:
        """y/d, and neighbours where d is next to nothing."""
        gains = self._on(y)
        seen = gains.abs() > FAINT * gains.abs().max()
        return filled(torch.where(seen, y / gains, 0.0), ~seen)

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """None where nothing is seen there."""
        gains = self.gains[..., rows, cols]
        return Diagonal(gains) if bool(gains.any()) else None

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The gains repeated over the picture."""
        return Diagonal(repeated(self.gains, shape)), shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "diagonal", "gains": fingerprint(self.gains)}
