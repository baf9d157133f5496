"""How far the PSF that was given is from the true one, as the spectrum of y shows it.

With a transfer function b that is off by an unknown δ, |δ(ω)|² = e² on average, y = (b + δ) x + ε has the spectrum

    P(ω) ≈ S(ω) (|b(ω)|² + e²) + σ²,    log S = θ · (1, log ω, log² ω, cos 2φ, sin 2φ, cos 4φ, sin 4φ)

θ, σ² and e² maximise Whittle's likelihood, as in `slir.trust.spectra`, with a Gaussian prior on θ from photographs. A
wrong PSF has its zeros where y has none, which no smooth S explains, so e² grows. The part e²S of P acts on a
restoration as noise would, and is counted as such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from slir.operators import Blur
from slir.trust import spectra

APART = 10**0.5
ERRORS = (0.0, *(APART**step for step in range(-8, 1)))
"""e² that are tried, each so many times the one before it."""
GAIN, SHARE = 30.0, 0.1
"""Least increase of the log-likelihood by an error that counts, and what is added of the misfit that it leaves."""
SHAPELESS, OVERWHELMING = 0.18, 0.3
"""e², and the noise level that acts as the error does over the standard deviation of y, from which on a restoration
with the PSF is worse than y, however much it is smoothed."""
KEPT = 0.3
"""Share of the light that is then taken to be blurred by it. The rest is taken to be sharp, so that no frequency is
amplified more than 1/(1 − 2·KEPT) times."""
HARM = 1.4
"""Factor of the noise level that acts as the error does: unlike noise, an error is strongest where the picture is."""
STEPS, FEWER_STEPS = 16, 6
"""Of scoring: without an error, and for each further e², which begins where the one before it ended."""
SLOPE, SPREAD = -2.4, 0.5
"""Prior of θ: log S falls with this multiple of log ω; standard deviations of all terms around that."""
OVERLAP = 0.5
"""Independent windows for each window of a periodogram."""


@dataclass(frozen=True)
class PsfError:
    """power: e², the mean square error of the PSF's transfer function, which is 1 at most.
    level: standard deviation of the noise that acts on y as this error does, in y's units. contrast: that of y.
    gain: by how much the logarithm of the likelihood is greater than without an error.
    misfit: by how much it is below that of a spectrum like y's own even so, chance not counted.
    """

    power: float
    level: float
    contrast: float
    gain: float
    misfit: float

    @property
    def significant(self) -> bool:
        return self.gain > GAIN + SHARE * self.misfit

    @property
    def shapeless(self) -> bool:
        """Whether no regularisation by noise is enough."""
        return self.significant and (self.power > SHAPELESS or self.level > OVERWHELMING * self.contrast)

    def words(self, span: float) -> str:
        """What is wrong, what was done and what helps. span: how many pixel values one unit of y is."""
        remedy = "Check its kind, size and angle, or measure it on a bead or a star (slir.psf.from_image)."
        if self.shapeless:
            harm = "A restoration with it would be worse than the image, so the image was deblurred only slightly."
            return f"The PSF cannot be right: it contradicts the spectrum of the image. {harm} {remedy}"
        text = f"The PSF does not fit the image exactly: its error acts like noise of {self.level * span:.3g}."
        return f"{text} The image was smoothed accordingly. {remedy}"


def psf_error(y: Tensor, psf: Tensor, sigma: float = 0.0) -> PsfError | None:
    """The error of `psf` in view of the image y (h, w); None where y is too small to say, or holds nothing.

    sigma: the noise level of y. Noise need not be white: what y holds below this level at any frequency counts as
    noise. After denoising, for example, the noise that is left has little power at high frequencies.
    """
    with spectra.one_thread():
        return _estimated(y, psf, sigma)


def _estimated(y: Tensor, psf: Tensor, sigma: float) -> PsfError | None:
    side = spectra.window_side(y, psf, 1.0)
    if side is None:
        return None
    power = spectra.periodogram(y.double(), side).clamp(min=sigma**2)
    terms, chosen = spectra.frequencies(side, y.device)
    seen, through = power[chosen], spectra.through_psf(psf.to(power), 1.0, side)[chosen]
    if not float(seen.max()) > max(spectra.NONE, sigma**2):
        return None
    windows = max(1.0, OVERLAP * spectra.window_count(y, side))
    centre, precision = _prior(terms)
    theta = spectra.start(seen, through, terms)
    thetas, misfits = [], []
    for error in ERRORS:
        passed, steps = through + error, FEWER_STEPS if error else STEPS
        theta = spectra.fit_spectrum(theta, seen, passed, terms, steps, (centre, precision / windows))
        thetas.append(theta)
        improbable = 0.5 * float((precision * (theta - centre).square()).sum())
        misfits.append(windows * spectra.misfit_of(theta, seen, passed, terms) + improbable)
    best = min(range(len(ERRORS)), key=lambda number: misfits[number])
    scene = (terms @ thetas[best][:-1]).exp()
    exact = windows * float((seen.clamp(min=spectra.NONE).log() + 1).sum()) + len(seen) / 2
    error = ERRORS[best] * APART ** (spectra.between(misfits, best) if best > 1 else 0.0)
    level = HARM * math.sqrt(error * float(scene.mean()))
    return PsfError(error, level, float(y.std()), misfits[0] - misfits[best], max(0.0, misfits[best] - exact))


def _prior(terms: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and precision of θ, and of log σ², of which nothing is known: (8,) each."""
    centre = torch.zeros(terms.shape[1] + 1).to(terms)
    centre[1] = SLOPE
    precision = torch.zeros_like(centre)
    precision[1:-1] = 1 / SPREAD**2
    return centre, precision


@lru_cache(maxsize=8)
def partial_blur(operator: Blur) -> Blur:
    """A blur that leaves all but the share KEPT of the light sharp.

    The sharp light lies on the centroid of the PSF, so that a restoration is not moved.
    """
    psf = operator.psf
    total = psf.sum()
    row, col = (
        min(max(round(float(psf.sum(1 - axis) @ torch.arange(side).to(psf) / total)), 0), side - 1)
        for axis, side in enumerate(psf.shape)
    )
    mixed = KEPT * psf
    mixed[row, col] += 1 - KEPT
    return Blur(mixed, operator.border)
