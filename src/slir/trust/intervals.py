"""Calibration: how often the truth lies within so many expected errors, measured on pictures that were held out.

Split-conformal prediction, conditional on the expected error: the scores |x̂ − x|/ê of held-out pixels are put into bins
by ê, and the interval at a level is x̂ ± q·ê with q that quantile of the bin's scores. On pictures that are exchangeable
with those it holds the truth as often as it says, whatever the errors' distribution and however wrong ê is; a good ê
makes it narrow. Pixels of one picture are not independent, so it holds on average over pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.errors import InputError

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)
BINS = 16
"""Bins by expected error, equally many pixels in each."""

FEWEST = 2000
"""Pixels that a bin holds at least; fewer bins are made of few pixels."""


LEAST = 1e-7
"""Smallest error that is expected anywhere, range 1."""


def log_square(error: Tensor) -> Tensor:
    """log E[(x̂ − x)²] from a root mean square error."""
    return 2 * error.clamp(min=LEAST).log()


@dataclass(frozen=True)
class Calibration:
    """raw: (b,) log of the error that the model expects; ratio: (b,) the factor that corrects it.
    expected: (b,) log ê. absolute: (b,) E|x̂ − x|/ê. quantiles: (levels, b), of |x̂ − x|/ê.
    Errors count where the range is 1. pixels: number of held-out pixels."""

    raw: Tensor
    ratio: Tensor
    expected: Tensor
    absolute: Tensor
    quantiles: Tensor
    pixels: int = 0

    def error(self, log_square: Tensor) -> Tensor:
        """ê, the root mean square error to expect: (H, W) -> (H, W)."""
        raw = log_square / 2
        return interpolate(raw, self.raw, self.ratio.log()).add_(raw).exp_()

    def absolute_error(self, error: Tensor) -> Tensor:
        """The absolute error to expect, from ê."""
        return error * interpolate(_log(error), self.expected, self.absolute)

    def half_width(self, error: Tensor, level: float) -> Tensor:
        """What to add and to subtract at a level, from ê."""
        if not LEVELS[0] <= level <= LEVELS[-1]:
            rule = f"lie between {LEVELS[0]} and {LEVELS[-1]}"
            raise InputError("level", rule, level, "0.9 contains the true value nine times out of ten.")
        above = next(number for number, known in enumerate(LEVELS) if known >= level)
        own = self.quantiles[above]
        if above > 0 and LEVELS[above] > level:
            # Between levels, straight in log(1 − level), in which tails are nearly straight.
            low, high, here = (math.log(1 - value) for value in (LEVELS[above - 1], LEVELS[above], level))
            share = (here - low) / (high - low)
            own = (1 - share) * self.quantiles[above - 1] + share * own
        return error * interpolate(_log(error), self.expected, own)


def calibrate_errors(log_square: Tensor, errors: Tensor) -> Calibration:
    """log_square: log E[(x̂ − x)²] that the model expects at held-out pixels, (n,). errors: x̂ − x there."""
    raw, sizes = log_square.double().cpu() / 2, errors.double().cpu().abs()
    bins = max(1, min(BINS, len(raw) // FEWEST))
    parts = raw.argsort().tensor_split(bins)
    centres = torch.stack([raw[part].mean() for part in parts])
    squares = sizes.square(), (2 * raw).exp()  # means of each: a single pixel may expect next to nothing
    ratio = torch.stack([(squares[0][part].mean() / squares[1][part].mean()).sqrt() for part in parts])
    expected = interpolate(raw, centres, ratio.log()) + raw
    parts = expected.argsort().tensor_split(bins)
    scores = sizes / expected.exp()
    middles = torch.stack([expected[part].mean() for part in parts])
    absolute = torch.stack([sizes[part].mean() / expected[part].exp().mean() for part in parts])
    quantiles = torch.stack([_upper_quantiles(scores[part]) for part in parts], 1)
    return Calibration(centres.float(), ratio.float(), middles.float(), absolute.float(), quantiles.float(), len(raw))


def _upper_quantiles(scores: Tensor) -> Tensor:
    """The ⌈(n + 1)·level⌉-th smallest of n scores, for each level: what the guarantee asks for."""
    ordered = scores.sort().values
    n = len(ordered)
    return torch.stack([ordered[min(n, math.ceil((n + 1) * level)) - 1] for level in LEVELS])


def _log(error: Tensor) -> Tensor:
    return error.clamp(min=1e-12).log()


def interpolate(values: Tensor, places: Tensor, heights: Tensor) -> Tensor:
    """The polygon through (places, heights), constant beyond its ends, at `values`."""
    places, heights = places.to(values), heights.to(values)
    if len(places) == 1:
        return heights.expand(values.shape).clone()
    right = torch.searchsorted(places, values.contiguous()).clamp_(1, len(places) - 1)
    left = right - 1
    share = ((values - places[left]) / (places[right] - places[left]).clamp(min=1e-9)).clamp_(0, 1)
    return torch.lerp(heights[left], heights[right], share)
