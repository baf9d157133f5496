"""A picture's own test: errors that were expected, compared with errors that can be seen.

x̂ at half its size is a sharp picture of the same things, whose truth is known. Degraded as y was, and restored by the
same model, it shows

    ρ = ½ log( Σ (x̂₂ − x₂)² / Σ ê₂² ),        x₂ = means of 2×2 pixels of x̂,   x̂₂ restored from Bx₂ + noise

how far errors lie from those that were expected. Where they do at half the size, they mostly do at the whole:

    ê ← ê · exp(b (ρ − ρ̄))        with b and ρ̄ learnt from training crops (`slir.trust.record`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.bank import degrade
from slir.errors import InputError
from slir.model import Model
from slir.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE = 0.7
"""Of a side of x̂ that is tested, its middle: half of the picture, and so an eighth of the work."""

WHOLE, MOST = 256, 1024
"""Pixels a side up to which all of x̂ is tested, and beyond which no more of it is."""

FEWEST = 500
"""Pixels of x₂ that must have errors."""

CROPS = 12
"""From fewer training crops nothing is learnt."""

ENDS = (0.02, 0.98)
"""Quantiles of ρ beyond which it counts as the quantile."""


@dataclass(frozen=True)
class OwnTest:
    """slope: b. centre: ρ̄. ends: the ρ that were met in training."""

    slope: float
    centre: float
    ends: tuple[float, float]

    def log_factor(self, found: float) -> float:
        """b (ρ − ρ̄)."""
        low, high = self.ends
        return self.slope * (min(max(found, low), high) - self.centre)


def found_in(x: Tensor, operator: Operator, model: Model, sigma: float) -> float | None:
    """ρ of an x̂ with range 1, (H, W); None where it cannot be tested so."""
    from slir.restoration import restore  # which asks for what is expected

    half = F.avg_pool2d(_middle(x)[None, None], 2)[0, 0]
    try:
        other, shape = operator.for_training((half.shape[0], half.shape[1]))
    except InputError:  # it fits pictures of one size alone
        return None
    if min(other.y_shape(shape)) < 16:
        return None
    clean = half[: shape[0], : shape[1]].contiguous()
    y = degrade(clean, other, sigma, torch.Generator().manual_seed(0))
    again = restore(y, other, model, sigma=sigma, errors=True)
    if again.error is None:
        return None
    shown = (y.shape[0], y.shape[1])
    errors, expected = other.crop(again.x - clean, shown), other.crop(again.error, shown)
    counted = expected > 0  # what is known beforehand is not
    if int(counted.sum()) < FEWEST:
        return None
    found, wanted = (float(image[counted].double().square().sum()) for image in (errors, expected))
    return 0.5 * float(torch.tensor(max(found, 1e-30) / wanted).log())


def learn(found: Sequence[float | None], missed: Sequence[float]) -> OwnTest | None:
    """From ρ of training crops, and by how much their own errors differ from what was expected: ½ log(Σe²/Σê²).

    Least squares of the one on the other, made smaller as far as it may be chance. None where nothing is left.
    """
    pairs = [(own, miss) for own, miss in zip(found, missed) if own is not None]
    if len(pairs) < CROPS:
        return None
    own, miss = torch.tensor(pairs, dtype=torch.float64).T
    low, high = (float(torch.quantile(own, end)) for end in ENDS)
    own = own.clamp(low, high)
    centre = own.mean()
    away, wanted = own - centre, miss - miss.mean()
    power = float(away.square().sum())
    if power < 1e-12:
        return None
    slope = float((away * wanted).sum()) / power
    chance = float((wanted - slope * away).square().sum()) / (len(pairs) - 2) / power  # the variance of the slope
    slope *= max(0.0, 1 - chance / max(slope**2, 1e-12))
    return OwnTest(min(slope, 1.0), float(centre), (low, high)) if slope > 0 else None


def _middle(x: Tensor) -> Tensor:
    rows, cols = (_middle_of(length) for length in x.shape)
    return x[rows, cols]


def _middle_of(length: int) -> slice:
    side = min(length, MOST, max(WHOLE, round(SHARE * length)))
    first = (length - side) // 2
    return slice(first, first + side)
