"""The spread of a bank's weights, as an error to expect; and means over squares of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.patches import PatchGrid

if TYPE_CHECKING:
    from slir.model import Stage


def box(image: Tensor, radius: int) -> Tensor:
    """Means over squares of 2·radius + 1 pixels a side, mirrored beyond the border: (..., H, W) -> (..., H, W).

    Differences of running sums, which cost the same for any radius. They are summed in double precision, because faint
    pixels may lie beside bright ones.
    """
    if radius == 0:
        return image
    planes = image.reshape(1, -1, *image.shape[-2:])
    for axis in (-2, -1):
        length = image.shape[axis]
        own = min(radius, length - 1)
        pad = (0, 0, own, own) if axis == -2 else (own, own, 0, 0)
        sums = F.pad(planes, pad, mode="reflect").cumsum(axis, dtype=torch.float64)
        total = sums.narrow(axis, 2 * own, length).clone()
        total.narrow(axis, 1, length - 1).sub_(sums.narrow(axis, 0, length - 1))
        planes = total.div_(2 * own + 1).to(image.dtype)
    return planes.view(image.shape)


def spread_stride(stage: Stage) -> int:
    """Stride of the coarse grid on which the spread is computed."""
    return max(1, stage.size // 2)


def weights_spread(x: Tensor, stage: Stage) -> Tensor:
    """E[(x − E x)²] under a bank's weights, per pixel, averaged over the patches of a coarse grid: (H, W).

    Negative weights may make it negative in places; these count as zero.
    """
    fitted = stage.prior.fitted
    grid = PatchGrid((x.shape[0], x.shape[1]), stage.size, spread_stride(stage))
    total = torch.zeros_like(x)
    count = grid.counts(x)
    for rows in grid.bands(1024):
        seen = stage.describe(x, grid, rows)
        alpha = fitted.alpha(seen)
        sums = alpha.sum(1, keepdim=True)
        mean, square = alpha @ fitted.clean / sums, alpha @ fitted.clean.square() / sums
        grid.assemble((square - mean.square()).clamp_(min=0), rows=rows, into=total)
    return total / count
