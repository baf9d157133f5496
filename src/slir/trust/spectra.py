"""Which width of the PSF the spectrum of y speaks for.

A restoration explains y with whatever PSF it is given, so its residual hardly tells a wrong one. But spectra of
pictures are smooth, near a power law, and a blur writes its own into them: dark where the PSF's spectrum has its zeros,
noise alone beyond what it lets through. So, with P the mean periodogram of y over windows, and b the spectrum of the
PSF stretched s times:

    P(ω) ≈ S(ω) |b(sω)|² + σ²,    log S = θ · (1, log ω, log² ω, cos 2φ, sin 2φ, cos 4φ, sin 4φ)

θ and σ² are fitted anew for each s by Whittle's likelihood Σ log m(ω) + P(ω)/m(ω), m being the right-hand side.
The s of the greatest likelihood is what y speaks for. The restoration has no part in it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2

WINDOW, MOST_WINDOWS = 128, 7
"""Side of the windows, halved or doubled where image or PSF ask for it; and how many, at most, down and across."""
LEAST_WINDOW = 64
SCALES = tuple(1.12**step for step in range(-4, 5))
STEPS, FEWER_STEPS = 8, 3
"""Of scoring: at the PSF as given, and at each further scale, which begins where its neighbour ended."""
CHANCE = 0.625
"""What a right spectrum misses of a mean of n periodograms, times n: 1/2 but for their overlap."""
NONE, _SMALL = 1e-14, 1e-3


@dataclass(frozen=True)
class Width:
    """scale: how many times wider than the PSF that was given is the one that y speaks for.
    gain: by how much the logarithm of the likelihood is greater there than at the PSF as given.
    misfit: by how much it is below that of a spectrum like y's own even there, chance not counted; both in units of one
    frequency of a periodogram. Where it is large, y's spectrum is far from smooth: a grating, say, or text."""

    scale: float
    gain: float
    misfit: float


def find_width(y: Tensor, psf: Tensor, sigma: float = 0.0) -> Width | None:
    """The width of `psf` that the image y (h, w) speaks for; None where y is too small to say, or holds nothing.

    sigma: the noise level of y. What y holds below this level at any frequency counts as noise, as in `psf_error`.
    After denoising the noise that is left is not white, and would be taken for a narrower PSF.
    """
    with one_thread():
        return _width(y, psf, sigma)


_ALONE = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hundreds of small steps: on a busy machine threads would mostly wait for each other, fifty times as long."""
    with _ALONE:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _width(y: Tensor, psf: Tensor, sigma: float) -> Width | None:
    side = window_side(y, psf, SCALES[-1])
    if side is None or max(_extent(psf)) < 2:
        return None
    power = periodogram(y.double(), side).clamp(min=sigma**2)
    terms, chosen = frequencies(side, y.device)
    seen = power[chosen]
    if not float(seen.max()) > max(NONE, sigma**2):
        return None
    misfits = [0.0] * len(SCALES)
    middle = len(SCALES) // 2
    first = theta = start(seen, through_psf(psf.to(power), 1.0, side)[chosen], terms)
    for order in (range(middle, len(SCALES)), range(middle - 1, -1, -1)):  # from the PSF as given outwards, each way
        for number in order:
            through = through_psf(psf.to(power), SCALES[number], side)[chosen]
            theta = fit_spectrum(theta, seen, through, terms, STEPS if number == middle else FEWER_STEPS)
            first = theta if number == middle else first
            misfits[number] = misfit_of(theta, seen, through, terms)
        theta = first
    unit = min(1.0, (WINDOW / side) ** 2)
    best = min(range(len(SCALES)), key=lambda number: misfits[number])
    chance = len(seen) * CHANCE / window_count(y, side)
    misfit = max(0.0, misfits[best] - float((seen.clamp(min=NONE).log() + 1).sum()) - chance)
    scale = SCALES[best] * (SCALES[1] / SCALES[0]) ** between(misfits, best)
    return Width(scale, unit * (misfits[middle] - misfits[best]), unit * misfit)


def window_side(y: Tensor, psf: Tensor, scale: float) -> int | None:
    """The side of the windows of y (h, w), which have to hold what the PSF correlates, stretched up to `scale` times;
    None where y is too small for that."""
    extent, side = max(_extent(psf)), WINDOW
    while side < 2 * scale * extent:
        side *= 2
    while side > min(y.shape):
        side //= 2
    return None if side < max(LEAST_WINDOW, 2 * extent) else side


def window_count(y: Tensor, side: int) -> int:
    """Number of the windows of a periodogram."""
    return len(_starts(y.shape[0], side)) * len(_starts(y.shape[1], side))


def periodogram(y: Tensor, side: int) -> Tensor:
    """Mean of |FFT|² over windows of y that overlap by half, or are spread over a large image, each under Hann's bell:
    (side, side // 2 + 1). White noise of variance σ² gives σ² everywhere."""
    bell = _bell(side, y)
    weight = torch.outer(bell, bell) / bell.square().sum()
    rows, cols = (_starts(length, side) for length in y.shape)
    windows = torch.stack([y[row : row + side, col : col + side] for row in rows for col in cols])
    means = (windows * weight).sum((-2, -1), keepdim=True) / weight.sum()
    spectra = rfft2((windows - means) * weight)
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


def through_psf(psf: Tensor, scale: float, side: int) -> Tensor:
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
    correlation = irfft2(power, s=(side, side)) * torch.outer(overlap, overlap)
    return rfft2(correlation).real.clamp(min=NONE)


@lru_cache(maxsize=4)
def frequencies(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What log S is a sum of: (frequencies, 7); and which frequencies of a periodogram count: each once, and those too
    low to tell from the mean not at all."""
    down, right = torch.fft.fftfreq(side).double()[:, None], torch.fft.rfftfreq(side).double()
    chosen = (torch.hypot(down, right) >= 2.5 / side) & ~((right == 0) & (down < 0))
    radius, angle = torch.hypot(down, right)[chosen].log(), torch.atan2(down, right + 0 * down)[chosen]
    turns = [wave(times * angle) for times in (2, 4) for wave in (torch.cos, torch.sin)]
    terms = torch.stack([torch.ones_like(radius), radius, radius.square(), *turns], 1)
    return terms.to(device), chosen.to(device)


def start(seen: Tensor, through: Tensor, terms: Tensor) -> Tensor:
    """θ, and log σ² behind it, to begin with: a power law through the low frequencies, and the faintest of all."""
    low = terms[:, 1] < math.log(0.08)
    height = (seen * terms[:, 1].mul(2).exp() / through.clamp(min=0.01))[low].mean()
    theta = torch.zeros(terms.shape[1] + 1).to(terms)
    theta[0], theta[1], theta[-1] = height.clamp(min=NONE).log(), -2.0, seen.quantile(0.1).clamp(min=NONE).log()
    return theta


def fit_spectrum(
    theta: Tensor, seen: Tensor, through: Tensor, terms: Tensor, steps: int, prior: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """θ and log σ² of a greater likelihood, by Fisher's scoring.

    seen: P, (frequencies,). through: |b|², (frequencies,). terms: (frequencies, 7). prior: mean and precision of θ and
    log σ², (8,) each.
    """
    centre, precision = prior or (torch.zeros_like(theta), torch.zeros_like(theta))
    ridge = torch.diag(precision + 1e-9 * len(seen))
    for _ in range(steps):
        signal, noise = parts(theta, through, terms)
        mean = signal + noise
        slopes = torch.cat([(signal / mean)[:, None] * terms, (noise / mean)[:, None]], 1)
        gradient = slopes.T @ (seen / mean - 1) - precision * (theta - centre)
        step = torch.linalg.solve(slopes.T @ slopes + ridge, gradient)
        theta = theta + step * (3 / step.abs().amax()).clamp(max=1.0)
    return theta


def misfit_of(theta: Tensor, seen: Tensor, through: Tensor, terms: Tensor) -> float:
    """Σ log m + P/m."""
    signal, noise = parts(theta, through, terms)
    mean = signal + noise
    return float((mean.log() + seen / mean).sum())


def parts(theta: Tensor, through: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """S|b|² and σ², where neither may vanish or grow beyond numbers."""
    return (terms @ theta[:-1]).clamp(-60, 30).exp() * through, theta[-1].clamp(-32, 30).exp()


def between(misfits: list[float], best: int) -> float:
    """The place of the least misfit beside the smallest of a list, by the parabola through it and its neighbours."""
    if not 0 < best < len(misfits) - 1:
        return 0.0
    left, middle, right = misfits[best - 1 : best + 2]
    bend = left - 2 * middle + right
    return 0.5 * (left - right) / bend if bend > 0 else 0.0
