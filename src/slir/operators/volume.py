"""B = convolution of a volume with a PSF of three axes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from slir.errors import InputError, is_finite
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.blur import checked_psf
from slir.operators.convolution import Convolution, inverse_on_torus


class VolumeBlur(Operator):
    """y = psf * x for stacks of planes (Z, H, W), what lies beyond y unknown on all sides.

    The planes of y are what B makes of more planes of x: Z + D − 1 of them, for a PSF of D planes.

    psf: (D, K, L), summing to one. depth: Z, the number of planes of y. spacing: the distances (z, y, x) of voxels in
    any unit, by which smoothness is measured.
    """

    recordable = True
    shareable = True
    keeps_constants = True
    psf: Tensor

    def __init__(self, psf: Tensor | np.ndarray, depth: int, spacing: Sequence[float] = (1.0, 1.0, 1.0)):
        self.psf = checked_psf(psf, axes=3)
        if not (isinstance(depth, int | np.integer) and depth >= 1):
            raise InputError("depth", "be a number of planes of at least 1", depth, "Pass len(volume).")
        if len(spacing) != 3 or not all(is_finite(step) and step > 0 for step in spacing):
            rule = "be three positive distances, (z, y, x)"
            raise InputError("spacing", rule, spacing, "Pass the voxel size, such as (200, 65, 65).")
        self.spacing = tuple(step / min(spacing) for step in spacing)
        self.convolution = Convolution(self.psf)
        self.x_planes, self.y_planes = (int(depth) + self.psf.shape[0] - 1,), (int(depth),)
        self.reach = max(self.psf.shape[1:]) - 1

    @property
    def bordered(self) -> Convolution:
        return self.convolution

    @property
    def calibration(self) -> str:
        return "volume"

    def y_shape(self, x_shape: Shape) -> Shape:
        _, height, width = self.convolution.y_shape((*self.x_planes, *x_shape))
        return height, width

    def x_shape(self, y_shape: Shape) -> Shape:
        _, height, width = self.convolution.x_shape((*self.y_planes, *y_shape))
        return height, width

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution.forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.convolution.adjoint(y)

    def normal(self, x: Tensor) -> Tensor:
        return self.convolution.normal(x)

    def power(self, shape: tuple[int, ...], like: Tensor) -> Tensor | None:
        """Of volumes (Z, H, W); there is none of planes."""
        return self.convolution.power(shape, like) if len(shape) == 3 else None

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """Exact on a torus; what the border does is left to conjugate gradient."""
        return inverse_on_torus(self.power, like, weight, ridge, smooth, spacing=self.spacing)

    def constants(self) -> list[Tensor]:
        return self.convolution.constants()

    def margins(self) -> tuple[int, int, int, int]:
        _, (top, bottom), (left, right) = self.convolution.margins()
        return top, bottom, left, right

    def crop(self, x: Tensor, y_shape: Shape) -> Tensor:
        """The part of x that y shows, as many planes as y has."""
        above, _ = self.convolution.margins()[0]
        return super().crop(x, y_shape)[..., above : above + self.y_planes[0], :, :]

    def guess(self, y: Tensor) -> Tensor:
        """y, its edge voxels repeated outwards over the unknown border."""
        margins = [side for pair in reversed(self.convolution.margins()) for side in pair]
        padded = F.pad(y.reshape(1, -1, *y.shape[-3:]), margins, mode="replicate")
        return padded.reshape(*y.shape[:-3], *padded.shape[-3:])

    def of_depth(self, depth: int) -> VolumeBlur:
        """The same for another number of planes."""
        if (depth,) == self.y_planes:
            return self
        other = copy(self)
        other.x_planes, other.y_planes = (depth + self.psf.shape[0] - 1,), (depth,)
        return other

    def part(self, rows: slice, cols: slice) -> Operator:
        return self

    def describe(self) -> dict[str, Any]:
        return {"kind": "volume blur", "psf": fingerprint(self.psf), "spacing": list(self.spacing)}
