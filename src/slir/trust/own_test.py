"""A picture's own test: errors that were expected, compared with errors that can be seen.

x̂ at half its size is a sharp picture of the same things, whose truth is known. Degraded as y was, and restored by the
same model, it shows how far errors lie from those that were expected,

    ρᵢ = log mean |x̂₂ − x₂| / ê₂,        x₂ = means of 2×2 pixels of x̂,   x̂₂ restored from Bx₂ + noise

in each fifth i of its pixels by ê₂. Where they do at half the size, they mostly do at the whole. With dᵢ = ρᵢ − ρ̄ᵢ, and
d their mean, the i-th fifth of the pixels by ê, and between the middles of fifths what lies between, becomes

    ê ← ê · exp(b d + c (dᵢ − d))        with b, c and ρ̄ learnt from training crops (`slir.trust.record`)

Of a large picture the middle is tested, and says where fifths begin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.bank import degrade
from slir.compute import chunks
from slir.errors import SlirError
from slir.model import Model
from slir.operators import Mask, Operator
from slir.operators.base import Shape
from slir.trust.intervals import interpolate

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE = 0.6
"""Of a side of x̂ that is tested, the middle: a third of the picture, and a tenth of its pixels restored again."""

SMALL_SHARE, SMALL = 0.75, 192
"""Of small pictures more is tested, up to so many pixels a side: a smaller test is mostly border, where errors are
larger."""

MOST = 1024
"""Pixels a side of which no more is tested."""

SMALLEST, FEWEST = 16, 500
"""Pixels a side of y that are restored, and those that must have errors."""

PAYS, PAYS_SIDE = 8000, 40
"""Pixels that a test restores, and pixels a side of its y, from which on it is quick beside the restoration itself. Of
smaller pictures it would take a third of the time and more, and what few pixels tell is mostly chance."""

ALIKE = 1.5
"""How far the share of pixels that B shows may differ in the test."""

PICTURES = 8
"""From fewer nothing is learnt."""

ENDS = (0.02, 0.98)
"""Quantiles of ρ, and of what it is to tell, beyond which they count as the quantile."""

PARTS = 5
"""Parts of a picture, by expected error, that are tested each on its own: flat ones tell little of lively ones."""

FAINT = 1e-2
"""Errors below this share of what was expected count alike: a blank picture has none."""

MARKS = 100_000
"""Pixels of a map that tell which of its parts a pixel belongs to, and that are corrected at a time."""

MOST_LOG = math.log(2)
"""No test changes what is expected by more."""


@dataclass(frozen=True)
class OwnTest:
    """level, form: b and c. centre: ρ̄. ends: the least and the largest ρᵢ that were met in training."""

    level: float
    form: float
    centre: tuple[float, ...]
    ends: tuple[tuple[float, float], ...]

    def log_factors(self, found: Tensor) -> Tensor:
        """b d + c (dᵢ − d) from ρᵢ, for each part."""
        low, high = torch.tensor(self.ends, dtype=found.dtype).T
        away = found.clamp(low, high) - torch.tensor(self.centre, dtype=found.dtype)
        mean = away.mean()
        return (self.level * mean + self.form * (away - mean)).clamp(-MOST_LOG, MOST_LOG)

    def correction(self, error: Tensor, found: Tensor) -> Correction | None:
        """What ρᵢ say of maps like this one. None where it has no errors."""
        flat = error.reshape(-1)
        some = flat[:: max(1, len(flat) // MARKS)]
        some = some[some > 0]
        if len(some) == 0:
            return None
        middles = (torch.arange(PARTS, device=error.device) + 0.5) / PARTS
        places = torch.quantile(some, middles.to(some)).log()
        return Correction(tuple(places.tolist()), tuple(self.log_factors(found).tolist()))


@dataclass(frozen=True)
class Correction:
    """log ê in the middle of each part, and the logarithm of what it is multiplied with there."""

    places: tuple[float, ...]
    log_factors: tuple[float, ...]

    def apply(self, error: Tensor) -> Tensor:
        """ê after the test: (H, W), in place where that is one piece of memory. Where it is 0 it stays so."""
        flat = error.reshape(-1)
        places, factors = (torch.tensor(own).to(error) for own in (self.places, self.log_factors))
        for few in chunks(len(flat), MARKS):
            own = flat[few]
            own *= interpolate(own.clamp(min=torch.finfo(own.dtype).tiny).log(), places, factors).exp_()
        return flat.view(error.shape)


def found_in(
    x: Tensor, part: tuple[slice, slice], operator: Operator, model: Model, sigma: float, unit: float
) -> Tensor | None:
    """ρᵢ (PARTS,) of a part of x̂, in the range's units: (H, W). A mask is that of all of x. unit: of the loop that
    made it. None where it cannot be tested, for whatever reason."""
    half = F.avg_pool2d(x[part][None, None], 2)[0, 0]
    try:
        seen = Mask(operator.missing[part]) if isinstance(operator, Mask) else operator
        return _tried(half, seen, model, sigma, unit)
    except (SlirError, RuntimeError, ValueError):  # an operator that fits one size alone, no pixel known, no memory
        return None


def _tried(half: Tensor, operator: Operator, model: Model, sigma: float, unit: float) -> Tensor | None:
    from slir.estimator.loop import restore  # which asks for what is expected

    other, shape = _for_half(operator, (half.shape[0], half.shape[1]))
    if (
        min(other.y_shape(shape)) < SMALLEST
        or not 1 / ALIKE < other.observed_fraction / operator.observed_fraction < ALIKE
    ):
        return None
    clean = half[: shape[0], : shape[1]].contiguous()
    generator = torch.Generator().manual_seed(0)
    y = degrade(clean, other, sigma, generator)
    own = unit if model.learnt else None
    again = restore(y, other, model, sigma=sigma, unit=own, errors=True, generator=generator)
    if again.error is None:
        return None
    shown = (y.shape[0], y.shape[1])
    errors, expected = other.crop(again.x - clean, shown), other.crop(again.error, shown)
    counted = expected > 0  # what is known beforehand is not
    if int(counted.sum()) < FEWEST:
        return None
    found = log_scores(errors[counted], expected[counted])
    return found if bool(found.isfinite().all()) else None


def log_scores(errors: Tensor, expected: Tensor) -> Tensor:
    """log of the mean of |e|/ê in each part by ê: (n,), (n,) -> (PARTS,). NaN where there are none."""
    scores = (errors.double().abs() / expected.double())[expected.argsort()]
    return torch.stack([part.mean().clamp(min=FAINT).log() for part in scores.tensor_split(PARTS)]).cpu()


def learn(found: Sequence[Tensor | None], missed: Sequence[Tensor], pictures: Sequence[int]) -> OwnTest | None:
    """From ρᵢ of training crops, the same of their own errors, and the picture of each.

    Least squares of the one on the other, of means over the parts and of what is left without them, each made smaller
    as far as it may be chance. None where nothing is left.
    """
    whole = [own for own in zip(found, missed, pictures) if own[0] is not None and bool(own[1].isfinite().all())]
    if len({own[2] for own in whole}) < PICTURES:
        return None
    own, miss = (torch.stack([one[column] for one in whole]) for column in (0, 1))  # type: ignore[misc]
    owner = torch.tensor([one[2] for one in whole])
    levels = torch.tensor(ENDS, dtype=own.dtype)
    (low, high), (least, most) = (torch.quantile(one, levels, 0) for one in (own, miss))
    own, miss = own.clamp(low, high), miss.clamp(least, most)
    centre = own.mean(0)
    away, wanted = own - centre, miss - miss.mean(0)
    level = _slope(away.mean(1, keepdim=True), wanted.mean(1, keepdim=True), owner)
    form = _slope(away - away.mean(1, keepdim=True), wanted - wanted.mean(1, keepdim=True), owner)
    ends = tuple(zip(low.tolist(), high.tolist()))
    return OwnTest(level, form, tuple(centre.tolist()), ends) if level or form else None


def _slope(away: Tensor, wanted: Tensor, owner: Tensor) -> float:
    """Of wanted on away, both (crops, parts): between 0 and 1. Crops of one owner are no independent draws."""
    power = float(away.square().sum())
    if power < 1e-12:
        return 0.0
    slope = float((away * wanted).sum()) / power
    left = (away * (wanted - slope * away)).sum(1)
    sums = torch.stack([left[owner == one].sum() for one in owner.unique()])
    chance = float(sums.square().sum()) * len(sums) / (len(sums) - 1) / power**2  # the variance of the slope
    return min(max(0.0, slope) * max(0.0, 1 - chance / max(slope**2, 1e-12)), 1.0)


def _for_half(operator: Operator, shape: Shape) -> tuple[Operator, Shape]:
    """B for a picture of half the size, and the shape that it takes."""
    if not isinstance(operator, Mask):
        return operator.for_training(shape)
    starts = [(whole - own) // 2 for whole, own in zip(operator.missing.shape, shape)]
    rows, cols = (slice(start, start + own) for start, own in zip(starts, shape))
    return Mask(operator.missing[rows, cols]), shape


def pays(part: tuple[slice, slice], operator: Operator) -> bool:
    """Whether a test of this part of a picture is worth its time."""
    rows, cols = ((axis.stop - axis.start) // 2 for axis in part)
    return rows * cols >= PAYS and min(rows, cols) >= PAYS_SIDE * operator.scale


def middle(shape: Shape) -> tuple[slice, slice]:
    """What is tested of a picture of this shape."""
    sides = [min(MOST, max(round(SHARE * length), min(SMALL, round(SMALL_SHARE * length)))) for length in shape]
    rows, cols = (slice((whole - own) // 2, (whole + own) // 2) for whole, own in zip(shape, sides))
    return rows, cols
