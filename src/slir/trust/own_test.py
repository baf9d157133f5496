"""A picture's own test: errors that were expected, compared with errors that can be seen.

x̂ at half its size is a sharp picture of the same things, whose truth is known. Degraded as y was, and restored by the
same model, it shows

    ρ = ½ log( Σ (x̂₂ − x₂)² / Σ ê₂² ),        x₂ = means of 2×2 pixels of x̂,   x̂₂ restored from Bx₂ + noise

how far errors lie from those that were expected. Where they do at half the size, they mostly do at the whole:

    ê ← ê · exp(b (ρ − ρ̄))        with b and ρ̄ learnt from training crops (`slir.trust.record`)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.bank import degrade
from slir.errors import SlirError
from slir.model import Model
from slir.operators import Mask, Operator
from slir.operators.base import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE = 0.6
"""Of a side of x̂ that is tested, the middle: a third of the picture, and a tenth of its pixels restored again."""

WHOLE, MOST = 256, 1024
"""Pixels a side up to which all of x̂ is tested, and beyond which no more of it is."""

SMALLEST, FEWEST = 16, 500
"""Pixels a side that are restored, and those that must have errors."""

ALIKE = 1.5
"""How far the share of pixels that B shows may differ in the test."""

PICTURES = 8
"""From fewer nothing is learnt."""

ENDS = (0.02, 0.98)
"""Quantiles of ρ, and of what it is to tell, beyond which they count as the quantile."""

FAINT = 1e-4
"""Squares of errors below this share of what was expected count alike: a blank picture has none."""

MOST_LOG = math.log(2)
"""No test changes what is expected by more."""


@dataclass(frozen=True)
class OwnTest:
    """slope: b. centre: ρ̄. ends: the ρ that were met in training."""

    slope: float
    centre: float
    ends: tuple[float, float]

    def log_factor(self, found: float) -> float:
        """b (ρ − ρ̄)."""
        low, high = self.ends
        factor = self.slope * (min(max(found, low), high) - self.centre)
        return min(max(factor, -MOST_LOG), MOST_LOG)


def found_in(x: Tensor, operator: Operator, model: Model, sigma: float) -> float | None:
    """ρ of an x̂ in the range's units, (H, W); None where it cannot be tested so, for whatever reason."""
    half = F.avg_pool2d(_middle(x)[None, None], 2)[0, 0]
    try:
        return _tried(half, operator, model, sigma)
    except (SlirError, RuntimeError, ValueError):  # an operator that fits one size alone, a PSF too wide, no memory
        return None


def _tried(half: Tensor, operator: Operator, model: Model, sigma: float) -> float | None:
    from slir.restoration import restore  # which asks for what is expected

    other, shape = _for_half(operator, (half.shape[0], half.shape[1]))
    if min(other.y_shape(shape)) < SMALLEST or not 1 / ALIKE < other.shows / operator.shows < ALIKE:
        return None
    clean = half[: shape[0], : shape[1]].contiguous()
    generator = torch.Generator().manual_seed(0)
    y = degrade(clean, other, sigma, generator)
    again = restore(y, other, model, sigma=sigma, errors=True, generator=generator)
    if again.error is None:
        return None
    shown = (y.shape[0], y.shape[1])
    errors, expected = other.crop(again.x - clean, shown), other.crop(again.error, shown)
    counted = expected > 0  # what is known beforehand is not
    if int(counted.sum()) < FEWEST:
        return None
    found = log_ratio(errors[counted], expected[counted])
    return found if math.isfinite(found) else None


def log_ratio(errors: Tensor, expected: Tensor) -> float:
    """½ log(Σe²/Σê²)."""
    had, wanted = (float(one.double().square().sum()) for one in (errors, expected))
    return 0.5 * math.log(max(had / wanted, FAINT))


def learn(found: Sequence[float | None], missed: Sequence[float], pictures: Sequence[int]) -> OwnTest | None:
    """From ρ of training crops, by how much their own errors differ from what was expected, and the picture of each.

    Least squares of the one on the other, made smaller as far as it may be chance; crops of one picture are no
    independent draws. None where nothing is left.
    """
    triples = [own for own in zip(found, missed, pictures) if own[0] is not None]
    if len({own[2] for own in triples}) < PICTURES:
        return None
    own, miss, owner = torch.tensor(triples, dtype=torch.float64).T
    (low, high), (least, most) = ([float(torch.quantile(one, end)) for end in ENDS] for one in (own, miss))
    own, miss = own.clamp(low, high), miss.clamp(least, most)
    centre = own.mean()
    away, wanted = own - centre, miss - miss.mean()
    power = float(away.square().sum())
    if power < 1e-12:
        return None
    slope = float((away * wanted).sum()) / power
    left = away * (wanted - slope * away)
    sums = torch.stack([left[owner == one].sum() for one in owner.unique()])
    chance = float(sums.square().sum()) * len(sums) / (len(sums) - 1) / power**2  # the variance of the slope
    slope *= max(0.0, 1 - chance / max(slope**2, 1e-12))
    return OwnTest(min(slope, 1.0), float(centre), (low, high)) if slope > 0 else None


def _for_half(operator: Operator, shape: Shape) -> tuple[Operator, Shape]:
    """B for a picture of half the size, and the shape that it takes."""
    if not isinstance(operator, Mask):
        return operator.for_training(shape)
    starts = [(whole - own) // 2 for whole, own in zip(operator.missing.shape, shape)]
    rows, cols = (slice(start, start + own) for start, own in zip(starts, shape))
    return Mask(operator.missing[rows, cols]), shape


def _middle(x: Tensor) -> Tensor:
    rows, cols = (_middle_of(length) for length in x.shape)
    return x[rows, cols]


def _middle_of(length: int) -> slice:
    side = min(length, MOST, max(WHOLE, round(SHARE * length)))
    first = (length - side) // 2
    return slice(first, first + side)
