"""Training crops: cut from clean pictures, degraded, and put at the start of a cascade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.bank import degrade
from slir.cascade import begin_learnt
from slir.errors import InputError
from slir.families import Family
from slir.model import ImageQuadratic
from slir.operators import Operator
from slir.operators.base import Shape
from slir.plans import Plan
from slir.views import State

LEAST = 32
"""Smallest side of a picture to learn from: less shows hardly a patch with what surrounds it."""


@dataclass(frozen=True, eq=False)
class Crop:
    """A piece of a picture and what was made of it, range 1. All that was drawn at random is in here.

    sigma: as it is told to what is learnt. fold: which cross-fitting leaves out with it.
    inside: the pixels that y shows: errors count there alone.
    picture: which one it was cut from; those of one group count as one. grain: standard deviation of what was added.
    """

    clean: Tensor
    y: Tensor
    operator: Operator
    sigma: float
    fold: int
    inside: tuple[slice, slice]
    picture: int = 0
    grain: float = 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """A training crop on its way through the stages. clean and the state count in the case's unit.

    views, quadratic, moved: what a stage that is being learnt sees, the prior term of its patches, and the x that each
    level gives.
    own: what the test of its result on itself found (`slir.trust.own_test`).
    """

    clean: Tensor
    state: State
    fold: int
    inside: tuple[slice, slice]
    picture: int = 0
    grain: float = 0.0
    views: tuple[Tensor, ...] = ()
    quadratic: ImageQuadratic | None = None
    moved: tuple[Tensor, ...] = ()
    own: Tensor | None = None

    @property
    def shape(self) -> Shape:
        return self.clean.shape[0], self.clean.shape[1]

    def error(self, image: Tensor) -> Tensor:
        return (image - self.clean)[self.inside]

    def psnr(self, image: Tensor) -> float:
        """Of an image in units, the range being 1."""
        inside = (image * self.state.unit).clamp(0, 1) - self.clean * self.state.unit
        return -10 * float(inside[self.inside].square().mean().log10())


def check_pictures(planes: Sequence[Tensor], crops: int, side: int, folds: int) -> None:
    if not planes:
        raise InputError("images", "hold at least one picture", "empty", "Pass clean pictures to learn from.")
    for number, plane in enumerate(planes):
        if min(plane.shape) < LEAST:
            shape = f"{plane.shape[0]}×{plane.shape[1]}"
            raise InputError(
                f"images[{number}]", f"have at least {LEAST} pixels a side", shape, "Learn from larger ones."
            )
    if side < LEAST:
        raise InputError("side", f"be at least {LEAST}", side, "160 is a start.")
    if folds < 1:
        raise InputError("folds", "be at least 1", folds, "4 is a start.")
    if crops < folds:
        raise InputError("crops", f"be at least the number of folds, {folds}", crops, "64 is a start.")


def draw_crops(
    planes: Sequence[Tensor],
    groups: Sequence[int],
    family: Family,
    crops: int,
    side: int,
    folds: int,
    generator: torch.Generator,
    plan: Plan | None = None,
    hidden: float | None = None,
) -> list[Crop]:
    """Crops of the planes, degraded: equally many from each plane, at places and in orientations drawn at random.

    plan: how σ is misstated to what is learnt, and which grain is added; None states σ as it is and adds none.
    hidden: the most grain, as a share of σ; None is any.
    """
    caution, doubt, grain = (plan.caution, plan.doubt, plan.grain) if plan else (1.0, 0.0, ())
    drawn = []
    for number in range(crops):
        source = number % len(planes)
        crop = _random_crop(planes[source], side, generator)
        operator, sigma = family.draw(generator, (crop.shape[0], crop.shape[1]))
        shape = operator.for_training((crop.shape[0], crop.shape[1]))[1]
        clean = crop[: shape[0], : shape[1]].contiguous()
        own = 0.0
        if grain:  # in turn over the planes and over the crops of each, none of it to even or odd planes alone
            own = grain[(source + source // len(grain) + number // len(planes)) % len(grain)]
            own = own if hidden is None else min(own, hidden * sigma)
            clean = clean + own * torch.randn(clean.shape, generator=generator)
        y = degrade(clean, operator, sigma, generator)
        if float(torch.rand(1, generator=generator)) < 0.5:  # half of the world's pictures come in 8 bits
            y = (y * 255).round() / 255
        row, col, height, width = operator.shown((y.shape[0], y.shape[1]))
        told = caution * sigma
        if doubt:
            told *= 1 + doubt * (2 * float(torch.rand(1, generator=generator)) - 1)
        fold = groups[source] % folds if len(set(groups)) > 1 else number % folds
        inside = (slice(row, row + height), slice(col, col + width))
        drawn.append(Crop(clean, y, operator, told, fold, inside, groups[source], own))
    return drawn


def _random_crop(plane: Tensor, side: int, generator: torch.Generator) -> Tensor:
    height, width = min(side, plane.shape[0]), min(side, plane.shape[1])
    limits = (plane.shape[0] - height + 1, plane.shape[1] - width + 1, 2, 2, 2)
    row, col, upside, sideways, turned = (int(torch.randint(n, (1,), generator=generator)) for n in limits)
    crop = plane[row : row + height, col : col + width]
    crop = crop.flip(0) if upside else crop
    crop = crop.flip(1) if sideways else crop
    return (crop.T if turned else crop).contiguous()


def begun(crop: Crop, device: torch.device) -> Case:
    """The crop at the start of a cascade."""
    state = begin_learnt(crop.y.to(device), crop.operator, crop.sigma)
    return Case(crop.clean.to(device) / state.unit, state, crop.fold, crop.inside, crop.picture, crop.grain)
