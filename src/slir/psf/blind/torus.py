"""Periodic pictures: what the Fourier domain needs of a picture whose borders do not meet."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import rfft2
from slir.operators.convolution import fast_length

Shape = tuple[int, int]

LEAST_GAP = 8
"""Least number of pixels over which opposite borders of a picture are led into each other."""


def joined(y: Tensor, shape: Shape) -> Tensor:
    """A picture whose opposite borders meet smoothly: (h, w) -> `shape`, y in its first rows and columns."""
    return _along_rows(_along_rows(y, shape[1]).T, shape[0]).T.contiguous()


def _along_rows(y: Tensor, length: int) -> Tensor:
    gap = length - y.shape[1]
    share = (1 - torch.cos(torch.arange(1, gap + 1, dtype=y.dtype) * (math.pi / (gap + 1)))) / 2
    return torch.cat([y, y[:, -1:] * (1 - share) + y[:, :1] * share], 1)


def spectrum(psf: Tensor, shape: Shape) -> Tensor:
    """Transform of a PSF whose centre pixel is the origin: (h, w // 2 + 1)."""
    tall, wide = psf.shape
    placed = F.pad(psf, (0, shape[1] - wide, 0, shape[0] - tall))
    return rfft2(torch.roll(placed, (-(tall // 2), -(wide // 2)), (0, 1)))


def difference_power(shape: Shape) -> Tensor:
    """|d|² of the differences down and right: (h, w // 2 + 1)."""
    rows, cols = torch.fft.fftfreq(shape[0]), torch.fft.rfftfreq(shape[1])
    return 4 * (torch.sin(math.pi * rows)[:, None] ** 2 + torch.sin(math.pi * cols)[None] ** 2)


def differences(x: Tensor) -> Tensor:
    """Forward differences, down and right: (h, w) -> (2, h, w)."""
    return torch.stack([torch.roll(x, -1, 0) - x, torch.roll(x, -1, 1) - x])


def divergence(g: Tensor) -> Tensor:
    """Adjoint of `differences`: (2, h, w) -> (h, w)."""
    return (torch.roll(g[0], 1, 0) - g[0]) + (torch.roll(g[1], 1, 1) - g[1])


@dataclass(frozen=True)
class Scene:
    """A blurred picture on a torus that holds PSFs of up to `side` pixels.

    y: the picture, borders joined. size: of the picture itself. weight: from 0 at the picture's borders and at pixels
    that are left out to 1 elsewhere, on the torus.
    """

    y: Tensor
    size: Shape
    weight: Tensor

    @classmethod
    def of(cls, y: Tensor, usable: Tensor, side: int) -> Scene:
        """y: (h, w). usable: (h, w), false where a pixel is clipped. side: of the PSF."""
        height, width = y.shape
        gap = max(side, LEAST_GAP)
        shape = fast_length(height + gap), fast_length(width + gap)
        bell = _ramps(height - 1, side // 2)[:, None] * _ramps(width - 1, side // 2)[None]
        weight = bell * _away_from_holes(usable, side // 2)[:-1, :-1]
        return cls(
            joined(y, shape), (height, width), F.pad(weight, (0, shape[1] - width + 1, 0, shape[0] - height + 1))
        )

    @property
    def shape(self) -> Shape:
        return self.y.shape[0], self.y.shape[1]

    def placed(self, x: Tensor) -> Tensor:
        """A picture of the scene's size on the torus; zero beyond it, where the weight is zero."""
        return F.pad(x, (0, self.shape[1] - x.shape[1], 0, self.shape[0] - x.shape[0]))


def _ramps(length: int, margin: int) -> Tensor:
    """A bell with a flat top along an axis, and ramps of `margin` pixels."""
    place = torch.arange(length, dtype=torch.float32)
    distance = torch.minimum(place, length - 1 - place) / max(margin, 2)
    return (1 - torch.cos(math.pi * distance.clamp(0, 1))) / 2


def _away_from_holes(usable: Tensor, reach: int) -> Tensor:
    """One where no pixel within a PSF's reach is left out, with ramps: (h, w)."""
    if bool(usable.all()):
        return torch.ones(usable.shape)
    side = 2 * max(reach, 1) + 1
    holes = (~usable).float()[None, None]
    wide = F.max_pool2d(holes, side, 1, side // 2)
    return 1 - F.avg_pool2d(F.max_pool2d(wide, side, 1, side // 2), side, 1, side // 2, count_include_pad=False)[0, 0]
