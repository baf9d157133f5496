"""Colour: channels turned to brightness and two differences, restored there, and turned back.

The channels of a photograph hold the same edges, the noise in them is independent. So the mean of the three is a
picture with less noise than any of them, and what is left, the differences, is smooth and cheap to restore. The turn is
orthonormal but for a scale on each axis: white noise stays white, and an operator that treats all channels alike
commutes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.cascade import LearntStage
from slir.kernel.stage import KernelStage, stages
from slir.model import Model

AXES = ((1.0, 1.0, 1.0), (1.0, 0.0, -1.0), (1.0, -2.0, 1.0))
"""Brightness, and the two differences, before each is brought to length one."""

SCALES = (3**-0.5, 2.0, 2.0)
"""Brightness is then the channels' mean; differences get about the contrast of pictures, which models learnt from."""

BLOCK = 4
"""Side of the blocks whose means are compared: they have less noise than pixels."""

ALIKE = 0.5
"""Least correlation of the channels' edges for which they count as colours of one picture."""


def turn() -> Tensor:
    """T: scaled axes by rows, (3, 3) float64."""
    axes = torch.tensor(AXES, dtype=torch.float64)
    return axes / axes.norm(dim=1, keepdim=True) * torch.tensor(SCALES, dtype=torch.float64)[:, None]


def to_axes(planes: Sequence[Tensor]) -> list[Tensor]:
    """T applied to three channels."""
    return _mixed(turn(), planes)


def along_axes(sigmas: Sequence[float]) -> list[float]:
    """The standard deviation along each axis of noise that has these in the channels, √Σ_c T_ac² σ_c²."""
    return (turn().square() @ torch.tensor(sigmas, dtype=torch.float64).square()).sqrt().tolist()


def from_axes(planes: Sequence[Tensor]) -> list[Tensor]:
    """T⁻¹ applied: the channels again."""
    return _mixed(torch.linalg.inv(turn()), planes)


def spread_over_channels(residuals: Sequence[float]) -> list[float]:
    """Root mean squares along the axes -> those of the channels, taking axes to be independent."""
    back = torch.linalg.inv(turn()).square()
    return (back @ torch.tensor(residuals, dtype=torch.float64).square()).sqrt().tolist()


def sizes_in_channels(sizes: Sequence[Tensor]) -> list[Tensor]:
    """The same for images: √Σ_a (T⁻¹)_ca² s_a²."""
    squares = [size.square() for size in sizes]
    return [plane.sqrt_() for plane in _mixed(torch.linalg.inv(turn()).square(), squares)]


def _mixed(matrix: Tensor, planes: Sequence[Tensor]) -> list[Tensor]:
    mixed = []
    for row in matrix.tolist():
        total = torch.zeros_like(planes[0])
        for weight, plane in zip(row, planes):
            total.add_(plane, alpha=weight)
        mixed.append(total)
    return mixed


def alike(planes: Sequence[Tensor], sigmas: Sequence[float]) -> bool:
    """Whether channels are colours of one picture, rather than pictures of their own (dyes in a microscope, say).

    By the correlation of their edges, differences between neighbouring blocks of pixels, less what the noise adds to
    their squares; where that leaves next to nothing, by what little correlation there is.
    """
    coarse = [F.avg_pool2d(plane[None, None], BLOCK)[0, 0] for plane in planes]
    edges = [(plane[:, 1:] - plane[:, :-1]).flatten() for plane in coarse]
    whole = [max(float(edge.square().mean()), 1e-30) for edge in edges]
    power = [both - 2 * (sigma / BLOCK) ** 2 for both, sigma in zip(whole, sigmas)]
    clear = all(own > 0.1 * both for own, both in zip(power, whole))
    against = power if clear else whole
    found = [
        float((edges[one] * edges[other]).mean()) / (against[one] * against[other]) ** 0.5
        for one, other in combinations(range(len(planes)), 2)
    ]
    return sum(found) / len(found) > (ALIKE if clear else 0.1 * ALIKE)


def brief(model: Model) -> Model:
    """The first half of a cascade's stages, two at least: enough for differences, which have little detail."""
    count = max(2, -(-len(model.stages) // 2))
    if count >= len(model.stages) or len({type(stage) for stage in model.stages}) > 1 or not model.learnt:
        return model
    if "_brief" not in model.__dict__:  # made once, so that what is kept by stage is found again
        first, last = model.stages[: count - 1], model.stages[count - 1]
        shorter: tuple = (*first, replace(last, level=0.0)) if isinstance(last, LearntStage) else ()
        if isinstance(last, KernelStage):  # levels fall to the noise's own in as many stages as there are
            shorter = stages(last.network, count)
        model.__dict__["_brief"] = replace(model, stages=shorter)
    return model.__dict__["_brief"]
