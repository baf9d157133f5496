"""Which width of the PSF the spectrum of y speaks for.

A restoration explains y with whatever PSF it is given, so its residual hardly tells a wrong one. But spectra of
pictures are smooth, near a power law, and a blur writes its own into them: dark where the PSF's spectrum has its zeros,
noise alone beyond what it lets through. So, with P the mean periodogram of y over windows, and b the spectrum of the
PSF stretched s times:

    P(ω) ≈ S(ω) |b(sω)|² + σ²,    log S = θ · (1, log ω, log² ω, cos 2φ, sin 2φ, cos 4φ, sin 4φ)

θ and σ² are fitted anew for each s by Whittle's likelihood Σ log m(ω) + P(ω)/m(ω), m being the right-hand side.
The s of the greatest likelihood is what y speaks for. Neither a σ that was told nor the restoration has a part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

WINDOW, MOST_WINDOWS = 128, 7
"""Side of the windows, halved or doubled where image or PSF ask for it; and how many, at most, down and across."""
LEAST_WINDOW = 64
SCALES = tuple(1.12**step for step in range(-4, 5))
STEPS = 8
_NONE, _SMALL = 1e-14, 1e-3


@dataclass(frozen=True)
class Width:
    """scale: how many times wider than the PSF that was given is the one that y speaks for.
    gain: by how much the logarithm of the likelihood is greater there than at the PSF as given, in units of one
    frequency of a periodogram."""

    scale: float
    gain: float


def find_width(y: Tensor, psf: Tensor) -> Width | None:
    """The width of `psf` that the image y (h, w) speaks for; None where y is too small to say, or holds nothing."""
    extent = max(_extent(psf))
    side = WINDOW
    while side < 2 * SCALES[-1] * extent:  # what the PSF correlates has to fit into a window
        side *= 2
    while side > min(y.shape):
        side //= 2
    if side < max(LEAST_WINDOW, 2 * extent) or extent < 2:
        return None
    power = periodogram(y.double(), side)
    terms, chosen = _terms(side, y.device)
    seen = power[chosen]
    if not float(seen.max()) > _NONE:
        return None
    through = torch.stack([_through(psf.to(power), scale, side)[chosen] for scale in SCALES])  # (scales, frequencies)
    misfits = _misfits(seen, through, terms) * min(1.0, (WINDOW / side) ** 2)
    best = int(misfits.argmin())
    return Width(_between(misfits, best), float(misfits[len(SCALES) // 2] - misfits[best]))


def periodogram(y: Tensor, side: int) -> Tensor:
    """Mean of |FFT|² over windows of y that overlap by half, or are spread over a large image, each under Hann's bell:
    (side, side // 2 + 1). White noise of variance σ² gives σ² everywhere."""
    bell = _bell(side, y)
    weight = torch.outer(bell, bell) / bell.square().sum()
    rows, cols = (_starts(length, side) for length in y.shape)
    windows = torch.stack([y[row : row + side, col : col + side] for row in rows for col in cols])
    means = (windows * weight).sum((-2, -1), keepdim=True) / weight.sum()
    spectra = torch.fft.rfft2((windows - means) * weight)
    return (spectra.real.square() + spectra.imag.square()).mean(0)


def _bell(side: int, like: Tensor) -> Tensor:
    return torch.sin(math.pi * (torch.arange(side, dtype=like.dtype, device=like.device) + 0.5) / side) ** 2


def _starts(length: int, side: int) -> list[int]:
    """Where windows begin along an axis of this length."""
    count = min(MOST_WINDOWS, -(-2 * (length - side) // side) + 1)
    return [(length - side) * number // max(1, count - 1) for number in range(count)]


def _extent(psf: Tensor) -> tuple[int, int]:
    """Height and width of the box that holds all but the faintest of the PSF."""
    places = (psf.abs() > _SMALL * psf.abs().max()).nonzero()
    tall, wide = (places.amax(0) - places.amin(0) + 1).tolist()
    return tall, wide


def _through(psf: Tensor, scale: float, side: int) -> Tensor:
    """|b|² of the PSF stretched `scale` times, as windows show it: (side, side // 2 + 1).

    Stretching moves its taps apart, and each becomes a wider square: b(sω) sinc(sω)/sinc(ω). A window smears |b|²,
    which fills its zeros: the PSF's autocorrelation is weighted by that of the bell.
    """
    spectrum = psf.to(torch.complex128)
    for axis, frequencies in enumerate((torch.fft.fftfreq(side), torch.fft.rfftfreq(side))):
        f = frequencies.to(psf)
        turn = torch.exp(-2j * math.pi * scale * torch.outer(f, torch.arange(psf.shape[axis]).to(psf)))
        turn = turn * (torch.sinc(scale * f) / torch.sinc(f))[:, None]
        spectrum = turn @ spectrum if axis == 0 else spectrum @ turn.T
    power = spectrum.real.square() + spectrum.imag.square()
    bell = _bell(side, psf)
    overlap = torch.fft.irfft(torch.fft.rfft(bell, 2 * side).abs().square(), 2 * side)[:side]
    lags = torch.minimum(torch.arange(side), side - torch.arange(side)).to(psf.device)
    overlap = overlap[lags] / overlap[0]
    correlation = torch.fft.irfft2(power, s=(side, side)) * torch.outer(overlap, overlap)
    return torch.fft.rfft2(correlation).real.clamp(min=_NONE)


@lru_cache(maxsize=4)
def _terms(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What log S is a sum of: (frequencies, 7); and which frequencies of a periodogram count: each once, and those too
    low to tell from the mean not at all."""
    down, right = torch.fft.fftfreq(side).double()[:, None], torch.fft.rfftfreq(side).double()
    chosen = (torch.hypot(down, right) >= 2.5 / side) & ~((right == 0) & (down < 0))
    radius, angle = torch.hypot(down, right)[chosen].log(), torch.atan2(down, right + 0 * down)[chosen]
    turns = [wave(times * angle) for times in (2, 4) for wave in (torch.cos, torch.sin)]
    terms = torch.stack([torch.ones_like(radius), radius, radius.square(), *turns], 1)
    return terms.to(device), chosen.to(device)


def _misfits(seen: Tensor, through: Tensor, terms: Tensor) -> Tensor:
    """For each scale, the least Σ log m + P/m over θ and σ², by Fisher's scoring: (scales,).

    seen: P, (frequencies,). through: |b|², (scales, frequencies). terms: (frequencies, 7).
    """
    count, size = through.shape[0], terms.shape[1]
    low = terms[:, 1] < math.log(0.08)
    start = (seen * terms[:, 1].mul(2).exp() / through.clamp(min=0.01))[:, low].mean(1).clamp(min=_NONE).log()
    theta = torch.zeros(count, size + 1).to(terms)
    theta[:, 0], theta[:, 1] = start, -2.0
    theta[:, size] = seen.quantile(0.1).clamp(min=_NONE).log()  # log σ²
    ridge = 1e-9 * len(seen) * torch.eye(size + 1).to(terms)
    for _ in range(STEPS):
        signal, noise = _parts(theta, through, terms)
        mean = signal + noise
        slopes = torch.cat([(signal / mean)[..., None] * terms, (noise / mean)[..., None]], -1)
        gradient = torch.einsum("sfk,sf->sk", slopes, seen / mean - 1)
        step = torch.linalg.solve(slopes.mT @ slopes + ridge, gradient)
        theta = theta + step * (3 / step.abs().amax(1, keepdim=True)).clamp(max=1.0)
    signal, noise = _parts(theta, through, terms)
    mean = signal + noise
    return (mean.log() + seen / mean).sum(1)


def _parts(theta: Tensor, through: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """S|b|² and σ², where neither may vanish or grow beyond numbers."""
    signal = (theta[:, :-1] @ terms.T).clamp(-60, 30).exp() * through
    return signal, theta[:, -1:].clamp(-32, 30).exp().expand_as(signal)


def _between(misfits: Tensor, best: int) -> float:
    """The scale of the least misfit, by the parabola through it and its neighbours."""
    if not 0 < best < len(SCALES) - 1:
        return SCALES[best]
    left, middle, right = (float(misfits[best + step]) for step in (-1, 0, 1))
    bend = left - 2 * middle + right
    away = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return float(SCALES[best] * (SCALES[1] / SCALES[0]) ** away)
