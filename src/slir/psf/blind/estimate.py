"""`slir.psf.blind.estimate_psf`: the blur of a picture, from the picture alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError
from slir.noise import estimate_sigma
from slir.preprocessing.arrays import GREY, Array, DataRange, canvas
from slir.psf.blind import shapes
from slir.psf.blind.choice import cost, spectral_cost
from slir.psf.blind.joint import restore_jointly
from slir.psf.blind.part import PART, telling_part, usable_pixels
from slir.psf.blind.scales import Start, search
from slir.psf.blind.softness import edge_sharpness
from slir.psf.blind.verdict import evenness, similarity
from slir.psf.parts import check_size, trimmed

Kind = Literal["auto", "shake", "motion", "gaussian", "defocus"]

SIZES = (15, 31)
"""Sides of the kernels that are tried where none is given; LARGER ones follow while a kernel fills its frame."""
LARGER = (47, 63)
FILLS = 0.8
"""Share of its frame that a kernel extends over from which on a larger frame is tried."""

Settings = tuple[float, float, float | None]
STARTS: tuple[Settings, ...] = ((2e-3, 60.0, None), (4e-3, 20.0, 0.2), (8e-3, 60.0, 0.3), (5e-4, 15.0, None))
"""Least strength, ridge and contrast of the searches, set on simulated shakes with noise of 1 %."""
QUIET = 0.007
"""Noise level below which the last of the starts is tried before the third."""

LEAST_NOISE = 0.005
"""Least noise level, range 1: no real blur is exactly the same everywhere."""

LEAST_SIDE = 48
LEAST_USABLE = 0.25
FLAT = 3.0
"""Standard deviations of the noise that a picture varies by at least."""
DIM = 0.25
"""Share of the range below which a picture is stretched to the whole of it."""

SHARP, SMALL = 0.45, 0.8
"""Standard deviation in pixels below which a Gaussian, or a kernel of any shape, leaves a picture sharp."""
SHARP_EDGES = 0.53
"""Share of an edge within a single pixel above which nothing has blurred it: no shake of nine pixels left more."""
ALIKE, AS_WELL = 0.93, 0.08
"""Likeness, and loss of likelihood, from which on a kernel of known shape stands for one of any shape."""
TRUSTED = 0.8
"""Confidence from which a PSF is used."""
EVEN = 0.6
"""Likeness of the kernels of a picture's quarters below which the blur varies."""


@dataclass(frozen=True, eq=False)
class PsfEstimate:
    """The blur that a picture shows.

    psf: (K, L) of sum one; a single pixel where the picture is sharp or nothing was found.
    kind: "shake", "motion", "gaussian" or "defocus"; "none" for a single pixel.
    found: whether the PSF can be used. words: the verdict.
    confidence: from 0 to 1: how alike the kernels are that several searches and the parts of the picture lead to.
    tried: what was tried, best first: "made_by" in words, and "cost", which compares kernels of one picture.
    part: rows and columns of the picture that the PSF was estimated on. seconds: how long it took.
    """

    psf: np.ndarray
    kind: str
    found: bool
    words: str
    confidence: float
    tried: list[dict[str, Any]] = field(default_factory=list)
    part: tuple[slice, slice] | None = None
    seconds: float = 0.0

    @property
    def sharp(self) -> bool:
        """Whether there is nothing to undo."""
        return self.found and self.kind == "none"


def estimate_psf(
    image: Array,
    *,
    size: int | None = None,
    sigma: float | str = "auto",
    kind: Kind = "auto",
    data_range: DataRange = None,
    channel_axis: int | None = None,
) -> PsfEstimate:
    """Estimate the PSF of a picture that a shaken camera or a soft lens blurred, evenly over the picture.

    size: side of the PSF in pixels, an odd number, where it is known; None chooses it. sigma: standard deviation of the
    noise in pixel values, or "auto". kind: "shake" for a kernel of any shape, "motion" for a straight line, "gaussian"
    or "defocus" for a lens; "auto" takes what explains the picture best. data_range, channel_axis: as for `deblur`.
    Of colours the brightness counts.

    Pixels at the upper end of the range are left out. Of a large picture the part with the most detail is used.

    >>> estimate = slir.psf.blind.estimate_psf(image)
    >>> sharp = slir.deblur(image, estimate.psf) if estimate.found else image
    """
    started = time.perf_counter()
    check_size(size)
    if kind not in get_args(Kind):
        raise InputError("kind", f"be one of {', '.join(get_args(Kind))}", repr(kind), "auto fits most pictures.")
    frame, array = canvas(image, data_range=data_range, channel_axis=channel_axis)
    if size is not None and size > min(frame.size) // 2:
        rule = f"be at most half of the image's smaller side, {min(frame.size)}"
        raise InputError("size", rule, size, "Leave it out, or pass a larger image.")
    channels = frame.planes(array, torch.device("cpu"))
    y = _brightness(channels)
    usable = usable_pixels(y, channels)
    part = telling_part(y, usable, max(PART, 8 * (size or 0)))
    y, usable = y[part].contiguous(), usable[part].contiguous()
    noise = float(sigma) / frame.spans[0] if not isinstance(sigma, str) else _noise(y, sigma)
    reason = _hopeless(y, usable, noise)
    estimate = _nothing(reason) if reason else _estimated(*_stretched(y, usable, noise), size, kind)
    return replace(estimate, part=part, seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class _Candidate:
    kind: str
    kernel: Tensor
    cost: float
    made_by: str


def _estimated(y: Tensor, usable: Tensor, noise: float, size: int | None, kind: Kind) -> PsfEstimate:
    """The best of the candidates, and whether it can be trusted."""
    if kind == "auto" and edge_sharpness(y, noise) > SHARP_EDGES:
        return _sharp([])
    searched = sorted(_searched(y, usable, noise, size), key=lambda own: own.cost)
    known = list(_known(y, usable, noise, kind))
    tried = sorted(searched + known, key=lambda own: own.cost)
    record = [{"made_by": own.made_by, "cost": own.cost} for own in tried]
    best = searched[0]
    lens = known if kind != "auto" else [own for own in known if _stands_for(own, best, y, noise)]
    if lens:
        chosen = min(lens, key=lambda own: spectral_cost(y, own.kernel, noise))
        if chosen.kind == "gaussian" and _spread(chosen.kernel) < SHARP:
            return _sharp(record)
        return _judged(chosen, chosen.kernel, similarity(chosen.kernel, best.kernel), 1.0, record)
    if kind == "auto" and _spread(best.kernel) < SMALL:
        return _sharp(record)
    agreement = median(similarity(best.kernel, own.kernel) for own in searched[1:])
    joint = restore_jointly(y, usable, best.kernel, noise)
    return _judged(best, joint.kernel, agreement, evenness(y, usable, joint, noise), record)


def _sharp(tried: list[dict[str, Any]]) -> PsfEstimate:
    words = "The picture is sharp: it shows no blur that is worth undoing."
    return PsfEstimate(np.ones((1, 1)), "none", True, words, 1.0, tried)


def _stands_for(known: _Candidate, best: _Candidate, y: Tensor, noise: float) -> bool:
    """Whether a kernel of known shape looks like the best of any shape, and explains the spectrum as well."""
    alike = similarity(known.kernel, best.kernel) > ALIKE
    return alike and spectral_cost(y, known.kernel, noise) < spectral_cost(y, best.kernel, noise) + AS_WELL


def _spread(kernel: Tensor) -> float:
    """Largest standard deviation of the light along any direction, in pixels."""
    rows, cols = (torch.arange(side, dtype=kernel.dtype) for side in kernel.shape)
    places = torch.stack([rows[:, None].expand(kernel.shape), cols[None].expand(kernel.shape)]).reshape(2, -1)
    light = (kernel / kernel.sum()).flatten()
    away = places - (places * light).sum(1, keepdim=True)
    return float(torch.linalg.eigvalsh((away * light) @ away.T)[-1].clamp(min=0)) ** 0.5


def _judged(
    best: _Candidate, kernel: Tensor, agreement: float, even: float, tried: list[dict[str, Any]]
) -> PsfEstimate:
    """The verdict on a kernel in words."""
    psf = trimmed(kernel.double().numpy(), 1e-9)
    confidence = max(0.0, min(agreement, even))
    tall, wide = psf.shape
    found = f"{best.made_by}, {wide} × {tall} pixels"
    if even < EVEN and even <= agreement:
        words = (
            "The blur is not the same everywhere: the parts of the picture show different kernels (likeness "
            f"{even:.2f}). Estimate it on a crop of what matters."
        )
    elif confidence < TRUSTED:
        words = (
            f"No kernel is certain: searches end in different ones (likeness {agreement:.2f}). "
            "Try a crop with strong edges, or pass size."
        )
    else:
        return PsfEstimate(psf, best.kind, True, f"Blur found: {found}.", confidence, tried)
    return PsfEstimate(psf, best.kind, False, words, confidence, tried)


def _known(y: Tensor, usable: Tensor, noise: float, kind: Kind) -> Iterator[_Candidate]:
    """Kernels of the known shapes that are asked for, each with its cost."""
    found: list[tuple[str, shapes.Shape]] = []
    if kind in ("auto", "gaussian"):
        found.append(("gaussian", shapes.best_gaussian(y, noise)))
    if kind in ("auto", "defocus"):
        found.append(("defocus", shapes.best_defocus(y, usable, noise)))
    if kind == "motion":
        found.append(("motion", shapes.best_motion(y, usable, noise)))
    for name, shape in found:
        yield _Candidate(name, shape.kernel, cost(y, usable, shape.kernel, noise), shape.made_by)


def _searched(y: Tensor, usable: Tensor, noise: float, size: int | None) -> Iterator[_Candidate]:
    """Kernels of any shape from several starts. Without a size larger ones follow while the best fills its frame."""

    def one(side: int, settings: Settings) -> _Candidate:
        strength, ridge, contrast = settings
        kernel = search(y, usable, Start(side, strength, ridge, contrast))
        return _Candidate("shake", kernel, cost(y, usable, kernel, noise), f"shake {side}, {strength:g}, {ridge:g}")

    if size is not None:
        yield from (one(size, settings) for settings in STARTS)
        return
    most = min(y.shape) // 4
    starts = (*STARTS[:2], STARTS[3 if noise < QUIET else 2])
    found = [one(side, settings) for side in SIZES if side <= max(most, SIZES[0]) for settings in starts]
    for side in LARGER:
        best = min(found, key=lambda own: own.cost).kernel
        if max(trimmed(best.double().numpy()).shape) < FILLS * best.shape[0] or side > most:
            break
        found += [one(side, settings) for settings in starts]
    yield from found


def _hopeless(y: Tensor, usable: Tensor, noise: float) -> str:
    """Why a picture cannot tell its blur; empty where it may."""
    if min(y.shape) < LEAST_SIDE:
        return f"The picture is too small to tell its blur: it needs {LEAST_SIDE} pixels a side."
    if float(y.std()) < FLAT * max(noise, 1 / 510):
        return "The picture shows hardly anything but noise: there is no edge to tell the blur."
    if float(usable.float().mean()) < LEAST_USABLE:
        return "Most of the picture is clipped, and clipped pixels do not tell the blur."
    return ""


def _nothing(words: str) -> PsfEstimate:
    return PsfEstimate(np.ones((1, 1)), "none", False, words, 0.0)


def _brightness(channels: list[Tensor]) -> Tensor:
    if len(channels) < 3:
        return channels[0]
    return sum((weight * plane for weight, plane in zip(GREY, channels)), torch.zeros_like(channels[0]))


def _noise(y: Tensor, sigma: str) -> float:
    if sigma != "auto":
        raise InputError("sigma", "be a number or 'auto'", repr(sigma), "Pass the noise in pixel values.")
    return estimate_sigma(y)


def _stretched(y: Tensor, usable: Tensor, noise: float) -> tuple[Tensor, Tensor, float]:
    """A dim picture on the whole range, and its noise, which is no less than `LEAST_NOISE` there."""
    low, high = float(y.min()), float(y.max())
    span = high - low if high - low < DIM else 1.0
    return ((y - low) / span if span < 1 else y), usable, max(noise / span, LEAST_NOISE)
