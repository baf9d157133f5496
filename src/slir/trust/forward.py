"""Whether y = Bx + ε can be true: what the image, and what a restoration leaves over of it, say about B and σ.

Three things are looked at, each where it is sharp:

* the noise that the image itself shows (`slir.noise`), against σ;
* the spectrum of y, for the width of the PSF (`slir.trust.spectra`): the residual hardly feels it;
* the residual y − Bx̂, which should be white and no larger than σ. It is a little smaller, since x̂ follows some of the
  noise, and for the same reason its neighbours correlate negatively if at all.

The limits below were set on training images (docs/experiments.md, "Wrong forward models").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.estimator.paper_settings import ROUNDING
from slir.noise import estimate_sigma
from slir.operators import Operator
from slir.trust.evidence import NOTHING_SEEN, Evidence
from slir.trust.spectra import SCALES, find_width

NOISE_OFF = 1.6
"""By what factor noise that is found and σ may differ. Estimates are within 5 % of the truth, rarely off by 10."""
TEXTURE = 3 / 255
"""Fine texture may read as so much noise, where no blur has smoothed it."""
WIDTH_OFF, WIDTH_GAIN, WIDTH_SHARE = 1.15, 25.0, 0.1
"""A PSF is too wide or too narrow by this factor and more, if the spectrum says so with that much likelihood, and that
share of what no width explains."""
UNEXPLAINED = 1.08**2
"""Mean squared residual over σ² beyond which x̂ does not explain y: told the truth it is 0.7 to 0.96 in deblurring."""
CORRELATED = 0.2
"""Correlation of a residual's neighbouring pixels beyond which it is not noise: told the truth it is below 0.05."""
CLIPPED, CLIPPED_HARM = 0.005, 2.0
"""Share of pixels at one end of the range, and by how much more the residual is next to them, from which on light that
was cut off does harm."""
MOST = 768
"""Side of the middle of a large image whose residual is looked at."""

PSF_FAULTS = {"psf", "psf too wide", "psf too narrow"}
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))
_LEAST = 16


@dataclass(frozen=True)
class ForwardCheck:
    """What the data show about the forward model of a restoration.

    chi2: mean of (y − Bx̂)²/σ², somewhat below 1 where all is right; None where the PSF leaves no pixel to look at.
    correlation: the largest of neighbouring residuals, at most about 0 where all is right; None likewise.
    noise_found: standard deviation of the noise that y shows, in units of the pixel values; None where y is no picture.
    scale_found: how many times as wide as the given PSF is the one that y's spectrum speaks for; None without a blur.
    psf_error: root mean square error of the PSF's transfer function; None where the spectrum of y shows none.
    right: whether nothing speaks against B and σ. It is no proof: errors that y cannot show stay unseen.
    words: else what disagrees, by how much, what would explain it and what to do.
    faults: the same one by one, by their short names: "sigma too small", "sigma too large", "psf too wide",
        "psf too narrow", "psf", "noise", "unexplained", "structure", "clipping".
    """

    chi2: float | None
    correlation: float | None
    noise_found: float | None
    scale_found: float | None
    right: bool
    words: str
    faults: dict[str, str] = field(default_factory=dict)
    psf_error: float | None = None


@torch.no_grad()
def judge(
    y: Tensor,
    operator: Operator,
    x: Tensor,
    sigma: float,
    *,
    span: float = 1.0,
    estimated: bool = False,
    evidence: Evidence = NOTHING_SEEN,
) -> ForwardCheck:
    """Whether y can be Bx plus white noise of standard deviation sigma, for a restoration x of y.

    y: (h, w) with a range of 1. x: all of B's x, or the part that y shows. sigma: where the range is 1.
    span: how many pixel values that range is, for the numbers in words and `noise_found`. estimated: whether sigma was
    estimated from y, so that nobody is advised to do so. evidence: what y showed before it was restored.

    >>> judge(y, Blur(psf), restore(y, Blur(psf), model, sigma=0.01).x, 0.01, span=255).words
    """
    noise = estimate_sigma(y) if operator.shows_picture else 0.0
    width = find_width(y, operator.psf, sigma) if operator.psf is not None else None
    left = _left_over(y, operator, x)
    faults: dict[str, str] = {}
    if sigma > 0 and noise > 0:
        faults |= _noise_fault(noise, sigma, span, TEXTURE if operator.psf is None else 0.0, estimated)
    if width is not None and width.gain > WIDTH_GAIN + WIDTH_SHARE * width.misfit:
        faults |= _width_fault(width.scale)
    if evidence.psf is not None and evidence.psf.shapeless:
        faults = {}
    faults |= evidence.faults([span] * max(1, len(evidence.noises)))
    if left is not None:
        faults |= _residual_faults(left, operator, sigma, span, known=set(faults), estimated=estimated)
    if "structure" in faults:
        faults.pop("sigma too large", None)  # noise that is not white reads too low
    return ForwardCheck(
        chi2=None if left is None else left.power / max(sigma, ROUNDING) ** 2,
        correlation=None if left is None else left.correlation,
        noise_found=noise * span if noise > 0 else None,
        scale_found=None if width is None else width.scale,
        right=not faults,
        words=" ".join(faults.values()),
        faults=faults,
        psf_error=None if evidence.psf is None else evidence.psf.power**0.5,
    )


def _residual_faults(
    left: _LeftOver, operator: Operator, sigma: float, span: float, *, known: set[str], estimated: bool
) -> dict[str, str]:
    """What the residual alone tells, beyond the faults that are known and that it follows from."""
    faults = _clipping_fault(left, max(sigma, ROUNDING)) if operator.psf is not None else {}
    # Without noise the prior still weighs as if there were that of rounding, and leaves over as much, along edges.
    level = max(sigma, 4 * ROUNDING)
    much = left.power > UNEXPLAINED * level**2 and not operator.is_identity
    if much and not known & {"sigma too small", *PSF_FAULTS}:
        faults["unexplained"] = unexplained_words(left.power**0.5 * span, sigma * span, estimated=estimated)
    coloured = left.power > level**2 / 2 and left.correlation > CORRELATED
    if coloured and not known & {"noise", *PSF_FAULTS}:
        faults |= _structure_fault(left.correlation)
    return faults


def _noise_fault(found: float, told: float, span: float, texture: float, estimated: bool) -> dict[str, str]:
    numbers = f"about {found * span:.3g}, not {told * span:.3g}"
    if found > NOISE_OFF * (max(told, ROUNDING) ** 2 + texture**2) ** 0.5:
        advice = f"Part of the noise is then taken for detail. {_noise_advice(found * span, estimated)}"
        return {"sigma too small": f"The image is noisier than sigma: {numbers}. {advice}"}
    if told > max(NOISE_OFF * found, 2 * ROUNDING):
        advice = f"Detail is then lost with the noise. {_noise_advice(found * span, estimated)}"
        return {"sigma too large": f"The image is less noisy than sigma: {numbers}. {advice}"}
    return {}


def _width_fault(scale: float) -> dict[str, str]:
    if 1 / WIDTH_OFF < scale < WIDTH_OFF:
        return {}
    name, harm = ("wide", "rings along edges") if scale < 1 else ("narrow", "blur that stays")
    how = "about"
    if not SCALES[0] * 1.01 < scale < SCALES[-1] * 0.99:
        how = "at most" if scale < 1 else "at least"
    found = f"the spectrum of the image supports {how} {scale:.2f} times its width, or another shape"
    remedy = "Check its pixel size and units, or measure it on a bead or a star (slir.psf.from_image)."
    text = f"The PSF looks too {name}: {found}. Expect {harm}. {remedy}"
    return {f"psf too {name}": text}


def _noise_advice(found: float, estimated: bool) -> str:
    return f"Pass sigma={found:.3g} instead." if estimated else "sigma='auto' estimates it."


def unexplained_words(left: float, told: float, *, estimated: bool) -> str:
    """In words, that a residual is larger than noise, both in pixel values. estimated: whether sigma was estimated."""
    text = f"The result does not explain the image: the residual is {left:.3g}, but noise of {told:.3g} was expected."
    operator = "the operator is not the true one (a wrong PSF, filter or border)"
    if estimated:
        remedy = "Check the operator, or pass a larger sigma, which smooths more."
        return f"{text} The image shows no more noise than that, so {operator}, or pixels are clipped. {remedy}"
    remedy = "sigma='auto' estimates the noise."
    return f"{text} Either sigma is too small, or {operator}, or pixels are clipped. {remedy}"


def _structure_fault(correlation: float) -> dict[str, str]:
    text = (
        f"The residual is not white noise: its neighbouring pixels correlate by {correlation:.2f}. Possible causes are "
        "noise that was filtered or compressed, stripes, and a blur or border other than the one given. Restore raw "
        "data, or do not rely on fine detail in the result."
    )
    return {"structure": text}


def _clipping_fault(left: _LeftOver, level: float) -> dict[str, str]:
    if left.beside_clipped < CLIPPED_HARM * max(left.power_elsewhere, level**2):
        return {}
    times = (left.beside_clipped / left.power_elsewhere) ** 0.5
    text = (
        f"{100 * left.clipped:.2g} % of the pixels are clipped. Next to them the residual is {times:.2g} times as "
        "large as elsewhere, because the operator does not model clipping. Expose less, and do not trust pixels within "
        "a PSF of clipped ones."
    )
    return {"clipping": text}


@dataclass(frozen=True)
class _LeftOver:
    """Of y − Bx̂, where y shows something. power: mean square. correlation: the largest of neighbours.
    clipped: share of y at an end of the range, where that end is shared by many. beside_clipped, power_elsewhere: mean
    square next to such pixels, and farther away; 0 where there are none."""

    power: float
    correlation: float
    clipped: float
    beside_clipped: float
    power_elsewhere: float


def _left_over(y: Tensor, operator: Operator, x: Tensor) -> _LeftOver | None:
    """None where too little of y is explained by what is known of x alone."""
    y, operator, x, trim = _middle(y, operator, x)
    x_shape = operator.x_shape((y.shape[0], y.shape[1]))
    if tuple(x.shape) != tuple(x_shape):  # x is cut to what y shows: pixels of y that look beyond do not count
        top, left, height, width = operator.shown((y.shape[0], y.shape[1]))
        margins = (left, x_shape[1] - width - left, top, x_shape[0] - height - top)
        x = F.pad(x[None, None], margins, mode="replicate")[0, 0]
        trim = max(trim, -(-max(margins) // operator.scale))
    inner = (slice(trim, y.shape[0] - trim), slice(trim, y.shape[1] - trim))
    if min(y.shape) - 2 * trim < _LEAST:
        return None
    misfit = operator.residual(y, x)[inner].double()
    shown = operator.residual(torch.ones_like(y), torch.zeros_like(x))[inner].double()  # 0 where y shows nothing
    power = float(misfit.square().sum() / shown.sum())
    correlations = [_lagged_product(misfit, *lag) / _lagged_product(shown, *lag).clamp(min=1) for lag in _NEIGHBOURS]
    largest = float(torch.stack(correlations).max()) / max(power, 1e-30)
    return _LeftOver(power, largest, *_around_clipped(y[inner], misfit.square()))


def _middle(y: Tensor, operator: Operator, x: Tensor) -> tuple[Tensor, Operator, Tensor, int]:
    """Of an image that is large the middle, if B can be cut so; and how many pixels of y at its edge do not count."""
    if max(y.shape) <= MOST or tuple(x.shape) != tuple(operator.scale * side for side in y.shape):
        return y, operator, x, 0
    starts = [max(0, (side - MOST) // 2) for side in y.shape]
    rows, cols = (slice(start, min(start + MOST, side)) for start, side in zip(starts, y.shape))
    part = operator.part(rows, cols)
    if part is None:
        return y, operator, x, 0
    fine = tuple(slice(operator.scale * axis.start, operator.scale * axis.stop) for axis in (rows, cols))
    return y[rows, cols], part, x[fine], -(-operator.reach // operator.scale)


def _lagged_product(image: Tensor, down: int, right: int) -> Tensor:
    """Σ of products of the pixels that lie so far apart."""
    height, width = image.shape
    ahead = image[down:, max(0, right) : width + min(0, right)]
    return (ahead * image[: height - down, max(0, -right) : width - max(0, right)]).sum()


def _around_clipped(y: Tensor, squares: Tensor) -> tuple[float, float, float]:
    clipped = torch.zeros_like(y, dtype=torch.bool)
    for end in (y.min(), y.max()):
        there = y == end
        if float(there.double().mean()) > CLIPPED:
            clipped |= there
    near = F.max_pool2d(clipped[None, None].to(y), 5, stride=1, padding=2)[0, 0] > 0
    beside = near & ~clipped
    if int(beside.sum()) < _LEAST**2 or int((~near).sum()) < _LEAST**2:
        return 0.0, 0.0, 0.0
    return float(clipped.double().mean()), float(squares[beside].mean()), float(squares[~near].mean())
