"""Noise that is not white and even: its level at each pixel, told by a network, and what it is like in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.defaults import shipped_kernel
from slir.kernel.noise_level import CELL, LocalNoise
from slir.kernel.stage import mirrored

NOT_WHITE = 1.25
"""The noise is not white and even where the network tells this many times the level that white noise would have."""

FAINT = 0.5 / 255
"""A level that nobody sees, range 1."""

SMALLEST = 32
"""Least side of a picture of which the network can tell how its noise varies."""

COARSE = 1.8
"""Noise is called coarse from this ratio of its level to that of the white noise that would explain its finest part."""

UNEVEN = 1.35
"""Ratio of the levels in the dark and in the bright third of a picture from which on it is told."""


@dataclass(frozen=True)
class NoiseFound:
    """levels: of each plane's noise, range 1, the median over the picture. coarseness: how many times the level that
    the finest part of the noise would have if it were white. shadows: level in the dark third of the picture over that in
    the bright third.
    """

    levels: tuple[float, ...]
    coarseness: float
    shadows: float

    def words(self, span: float) -> str:
        """In words, for pixel values of which `span` is the range."""
        kind = "coarse noise" if self.coarseness > COARSE else "noise"
        level = span * sum(self.levels) / len(self.levels)
        text = f"{kind} of about {level:.2g} {'grey levels' if span == 255 else 'pixel values'}"
        if self.shadows > UNEVEN:
            return f"{text}, more in the shadows"
        return f"{text}, more in the highlights" if self.shadows < 1 / UNEVEN else text


def local_noise(device: torch.device) -> LocalNoise | None:
    """What tells the noise level at each pixel, where the shipped kernel has it."""
    network = shipped_kernel().noise
    return None if network is None else LocalNoise(network.to(device))


def find_noise(planes: list[Tensor], white: Sequence[float], *, colours: bool) -> NoiseFound | None:
    """The noise of planes with values in [0, 1], where it is not white and even; else None.

    white: the level of each plane's noise if it were. colours: whether the first three planes are those of one picture.
    """
    told = local_noise(planes[0].device)
    if told is None or min(planes[0].shape) < SMALLEST:
        return None
    first = [torch.stack(planes[:3])] if colours else []
    groups = [*first, *(plane[None] for plane in planes[3 if colours else 0 :])]
    cells = torch.cat([told.cells(group) for group in groups])
    levels = cells.flatten(1).median(1).values.tolist()
    if all(level <= NOT_WHITE * max(own, FAINT) for level, own in zip(levels, white)):
        return None
    level, light = cells.mean(0).flatten(), cell_means(torch.stack(planes).mean(0)).flatten()
    order, third = light.argsort(), max(1, len(light) // 3)
    dark, bright = (float(level[part].median()) for part in (order[:third], order[-third:]))
    coarseness = sum(levels) / max(sum(white), len(planes) * FAINT / 2)
    return NoiseFound(tuple(levels), coarseness, (dark + FAINT) / (bright + FAINT))


def cell_means(plane: Tensor) -> Tensor:
    """Brightness of each square of 8×8 pixels: (H, W) -> (⌈H/8⌉, ⌈W/8⌉)."""
    return F.avg_pool2d(mirrored(plane), CELL)[0, 0]
