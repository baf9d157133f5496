"""Slight softness: the Gaussian blur that a picture's spectrum shows."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.trust.spectra import periodogram

SIDE = 64
"""Side of the windows whose spectra are averaged."""

WIDEST, STEP = 4.0, 0.1
SLOPES = torch.arange(1.2, 3.01, 0.2)
USUAL_SLOPE, SLOPE_WEIGHT = 2.0, 0.03
"""The power of sharp pictures falls as frequency^(−2·slope); a slope away from the usual one costs so much."""

OWN = 0.25
"""Softness of pictures that nobody blurred, as `_likeliest` reads it."""

TIMES = 1.23
"""How many times as wide as `_likeliest` reads it a Gaussian is, on photographs blurred by a known one."""

AROUND, LEAST_EDGE, LEAST_EDGES, SHARPEST = 9, 0.12, 200, 0.97
"""Pixels along an edge's ramp; the range that makes it an edge; how many are needed; the quantile of the sharpest."""

LOW, LOWEST = 0.5, 2.5
"""Frequencies, squared and in radians, that the gain starts from; and periods a window below which there is picture
rather than texture."""


def estimate_softness(y: Tensor, sigma: float) -> float:
    """Standard deviation in pixels of the Gaussian that made y, (h, w), soft; 0 where nothing speaks for one.

    sigma: of the noise. The model of the power spectrum is g² |f|^(−2·slope) exp(−s²|f|²) + σ²; s, slope and g² are
    those of the greatest likelihood.
    """
    side = min(SIDE, *y.shape)
    power = periodogram(y.double(), side)
    rows, cols = torch.fft.fftfreq(side).double(), torch.fft.rfftfreq(side).double()
    radius = rows[:, None] ** 2 + cols[None] ** 2
    seen = (radius > (LOWEST / side) ** 2) & (radius < 0.25)
    found = _likeliest(power[seen], (2 * math.pi) ** 2 * radius[seen], max(sigma, 1 / 255) ** 2)
    return TIMES * math.sqrt(max(0.0, found**2 - OWN**2 / 4))


def _likeliest(power: Tensor, square: Tensor, noise: float) -> float:
    """s of the greatest likelihood on a grid, refined by a parabola. square: |f|² in radians."""
    widths = torch.arange(0, WIDEST + STEP / 2, STEP, dtype=torch.float64)
    lines = -SLOPES.double()[:, None] * square.log()  # (slopes, frequencies)
    prior = SLOPE_WEIGHT * (SLOPES.double() - USUAL_SLOPE) ** 2
    excess, low = power - noise, square < LOW
    costs = []
    for width in widths:
        shape = (lines - width**2 * square).exp() + 1e-30
        gain = (excess.clamp(min=0)[low].sum() / shape[:, low].sum(1)).clamp(min=1e-12)[:, None]
        for _ in range(4):
            trust = (gain * shape / (gain * shape + noise)) ** 2
            gain = ((trust * excess / shape).sum(1) / trust.sum(1)).clamp(min=1e-12)[:, None]
        expected = gain * shape + noise
        costs.append(float(((expected.log() + power / expected).mean(1) + prior).min()))
    return _minimum(costs)


def _minimum(costs: list[float]) -> float:
    best = min(range(len(costs)), key=costs.__getitem__)
    if not 0 < best < len(costs) - 1:
        return best * STEP
    left, middle, right = costs[best - 1 : best + 2]
    return (best + 0.5 * (left - right) / (left - 2 * middle + right)) * STEP


def edge_sharpness(y: Tensor, sigma: float) -> float:
    """Share of an edge that lies within a single pixel, along rows or columns, whichever is less; 0 without edges.

    It compares differences of neighbours with the range of the nine pixels around them, and takes the sharpest edges.
    """
    return min(_sharpest(y, sigma), _sharpest(y.T, sigma))


def _sharpest(y: Tensor, sigma: float) -> float:
    rows = y[:, None]
    highest, lowest = (F.max_pool1d(each, AROUND, 1, AROUND // 2)[:, 0, :-1] for each in (rows, -rows))
    span = highest + lowest
    edges = span > max(LEAST_EDGE, 8 * sigma)
    if int(edges.sum()) < LEAST_EDGES:
        return 0.0
    shares = torch.diff(y, dim=1).abs()[edges] / span[edges]
    return float(shares.kthvalue(max(1, round(SHARPEST * len(shares)))).values)
