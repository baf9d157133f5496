"""Noise that is not white and even, as cameras leave it: its level by brightness, and what it is like in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.kernel.noise_level import CELL
from slir.kernel.shipped import shipped_kernel
from slir.kernel.stage import pad_by_mirror
from slir.trust.spread import box

NOT_WHITE = 1.7
"""The noise is not white and even where the network tells this many times the level that white noise would have."""

FAINT = 0.5 / 255
"""A level that nobody sees, range 1."""

SMALLEST = 32
"""Least side of a picture of which the network can tell how its noise varies."""

BINS, FEWEST = 6, 8
"""Bins of brightness, each with as many squares of the picture, and the fewest squares that one may have."""

QUIET = 0.3
"""Quantile of the levels in a bin that counts: texture looks like noise, but not in the calmer parts of a picture."""

MARGIN = 1.25
"""Factor by which the network that restores is told a higher level than was found: too low a level costs more."""

AROUND = 4
"""Radius of the squares of pixels whose mean is the brightness of a pixel."""

COARSE = 1.8
"""Noise is called coarse from this ratio of its level to that of the white noise that would explain its finest part."""

AMOUNTS = ((1 / 255, "faint"), (5 / 255, "little"), (15 / 255, "some"), (math.inf, "strong"))
"""Noise levels, range 1, and what noise below each of them is called."""

UNEVEN = 1.35
"""Ratio of the levels in the shadows and in the highlights from which on it is told."""


@dataclass(frozen=True)
class NoiseCurve:
    """The noise level of a plane by brightness, both in range 1; linear between nodes, constant beyond them."""

    brightness: tuple[float, ...]
    level: tuple[float, ...]

    def at(self, plane: Tensor) -> Tensor:
        """The level of each pixel: (H, W) -> (H, W)."""
        nodes, levels = plane.new_tensor(self.brightness), plane.new_tensor(self.level)
        if len(nodes) == 1:
            return levels.expand(plane.shape).clone()
        mean = box(plane, AROUND).contiguous()
        right = torch.searchsorted(nodes, mean).clamp(1, len(nodes) - 1)
        part = ((mean - nodes[right - 1]) / (nodes[right] - nodes[right - 1])).clamp(0, 1)
        return torch.lerp(levels[right - 1], levels[right], part)

    @property
    def middle(self) -> float:
        """The level of a pixel of median brightness."""
        return sorted(self.level)[len(self.level) // 2]


@dataclass(frozen=True)
class NoiseFound:
    """curves: of each plane. coarseness: how many times the level that the finest part of the noise would have if it
    were white."""

    curves: tuple[NoiseCurve, ...]
    coarseness: float

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(curve.middle for curve in self.curves)

    def of(self, number: int, planes: Tensor, factor: float = 1.0) -> Tensor:
        """The level to restore with at each pixel of the planes from `number` on: (H, W) or (C, H, W) -> the same."""
        factor *= MARGIN
        if planes.ndim == 2:
            return factor * self.curves[number].at(planes)
        return factor * torch.stack([curve.at(plane) for curve, plane in zip(self.curves[number:], planes)])

    @property
    def kind(self) -> str:
        """What the noise is called."""
        return "coarse noise" if self.coarseness > COARSE else "noise"

    @property
    def place(self) -> str:
        """Where there is more of it, in words; empty where it is much the same everywhere."""
        dark, bright = (sum(curve.level[end] for curve in self.curves) for end in (0, -1))
        if dark > UNEVEN * bright:
            return "more in the shadows"
        return "more in the highlights" if bright > UNEVEN * dark else ""


def noise_in_words(levels: Sequence[float], spans: Sequence[float], found: NoiseFound | None = None) -> str:
    """Noise of these levels, range 1: "little noise of about 2.1 grey levels".

    spans: how many pixel values the range is, for each level. found: what is known of noise that is not white and even.
    """
    share = sum(levels) / len(levels)
    if share == 0:
        return "no noise"
    amount = next(words for limit, words in AMOUNTS if share < limit)
    level = float(f"{sum(map(mul, levels, spans)) / len(levels):.2g}")
    unit = "grey levels" if spans[0] == 255 else "pixel values"
    text = f"{amount} {found.kind if found else 'noise'} of about {level:g} {unit}"
    return f"{text}, {found.place}" if found and found.place else text


def find_noise(planes: list[Tensor], white: Sequence[float], *, colours: bool) -> NoiseFound | None:
    """The noise of planes with values in [0, 1], where it is not white and even; else None.

    white: the level of each plane's noise if it were. colours: whether the first three planes are those of one picture.
    """
    network = shipped_kernel().noise
    if network is None or min(planes[0].shape) < SMALLEST:
        return None
    network = network.to(planes[0].device)
    first = [torch.stack(planes[:3])] if colours else []
    groups = [*first, *(plane[None] for plane in planes[3 if colours else 0 :])]
    cells = torch.cat([network.cells(group) for group in groups])
    curves = tuple(noise_curve(plane, level) for plane, level in zip(planes, cells))
    found = NoiseFound(curves, 1.0)
    if all(level <= NOT_WHITE * max(own, FAINT) for level, own in zip(found.levels, white)):
        return None
    return NoiseFound(curves, sum(found.levels) / max(sum(white), len(planes) * FAINT / 2))


def noise_curve(plane: Tensor, cells: Tensor) -> NoiseCurve:
    """The curve of a plane (H, W) from the levels in its squares (⌈H/8⌉, ⌈W/8⌉)."""
    light, level = F.avg_pool2d(pad_by_mirror(plane), CELL)[0, 0].flatten(), cells.flatten()
    order = light.argsort(stable=True)
    nodes: list[tuple[float, float]] = []
    for part in order.chunk(max(1, min(BINS, len(order) // FEWEST))):
        brightness = float(light[part].median())
        if not nodes or brightness > nodes[-1][0]:
            nodes.append((brightness, float(level[part].quantile(QUIET))))
    return NoiseCurve(tuple(node[0] for node in nodes), tuple(node[1] for node in nodes))
