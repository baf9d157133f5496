"""The support of a kernel: faint pixels and loose specks are removed, the light is centred."""

from __future__ import annotations

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

FAINT = 0.05
"""Share of the largest value below which a pixel of an unfinished kernel is set to zero."""

SPECK = 0.1
"""Share of the light below which a part that touches no other is removed."""

_EVERYWHERE = np.ones((3, 3), dtype=bool)


def cleaned(kernel: Tensor, *, faint: float = FAINT, speck: float = SPECK) -> Tensor:
    """Kernel of sum one without faint pixels and specks, its light centred to whole pixels: (K, K) -> (K, K)."""
    values = kernel.clamp(min=0).double().numpy()
    if not values.sum() > 0:
        return centre_point(kernel.shape[0])
    values = np.where(values < faint * values.max(), 0, values)
    values = _without_specks(values, speck)
    return torch.from_numpy(_centred(values / values.sum())).float()


def centre_point(side: int) -> Tensor:
    """The kernel that leaves a picture as it is."""
    kernel = torch.zeros(side, side)
    kernel[side // 2, side // 2] = 1
    return kernel


def _without_specks(values: np.ndarray, speck: float) -> np.ndarray:
    labels, count = ndimage.label(values > 0, _EVERYWHERE)
    if count < 2:
        return values
    light = ndimage.sum(values, labels, np.arange(count + 1))
    kept = light >= min(speck * values.sum(), light[1:].max())
    return np.where(kept[labels], values, 0)


def _centred(values: np.ndarray) -> np.ndarray:
    """The same with its centroid within half a pixel of the centre; what leaves the frame is lost."""
    shift = [round(side // 2 - at) for side, at in zip(values.shape, ndimage.center_of_mass(values))]
    moved = ndimage.shift(values, shift, order=0)
    return moved / moved.sum()
