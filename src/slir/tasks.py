"""denoise, deblur, upsample, inpaint: array in, array out, in the manner of scikit-image.

All of them take these keyword arguments:

    model         what to restore with: a `slir.Model` or the path of one (an error says if it was learnt for another
                  task, a warning if for another operator or noise level alone); None takes the one that slir ships,
                  which serves any operator of the task and any noise level
    data_range    the pixel value that stands for white, or (black, white); needed for float images alone
    channel_axis  the axis of the colours, often -1; None for grey images. Three channels that show one picture (of four
                  the first three) are restored as brightness and colour differences, others one by one
    device        "cpu" (the default) or "cuda"
    rng           an int or a generator, for solvers that draw at random; the default is reproducible too
    progress      True for a progress bar, or a function called as progress(done, total, what)
    return_info   return a `Result` with the image and what was measured on the way, in place of the image
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir import colour
from slir.arrays import Array, Canvas, DataRange, canvas
from slir.compute import pick_device, sparing
from slir.defaults import default_model
from slir.errors import InputError, SlirError, SlirWarning
from slir.families import task_of
from slir.model import Model
from slir.noise import estimate_poisson_gaussian, estimate_sigma
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.operators.blur import checked_psf
from slir.operators.convolution import Border
from slir.operators.downsample import Antialias
from slir.recipes import ROUNDING
from slir.restoration import Restoration
from slir.stabilise import Evened, Stabiliser
from slir.tiles import restore_tiled

POISSON_GAUSSIAN = "poisson-gaussian"
Progress = bool | Callable[[int, int, str], None]
Seed = int | np.random.Generator | torch.Generator | None


@dataclass(frozen=True)
class Result:
    """A restored image with what was measured on the way.

    stats: `sigma` (in units of the pixel values, one per channel; and, with "poisson-gaussian", `gain` and `variance`),
    `seconds`, `stages` (per channel, per stage: steps and residuals of the solvers; for colours, brightness comes
    first, then two differences), `residual` (root mean square of y − Bx̂, to be compared with sigma).
    """

    image: Array
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Options:
    """The arguments that all tasks share."""

    model: Model | str | PathLike | None
    data_range: DataRange
    channel_axis: int | None
    device: str | torch.device | None
    rng: Seed
    progress: Progress
    return_info: bool


def denoise(
    image: Array,
    *,
    sigma: float | str = "auto",
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: bool = False,
) -> Any:
    """Remove white noise from an image.

    image: (H, W), or with a channel axis. sigma: the noise's standard deviation in units of the pixel values (25 on an
    8-bit image, 0.1 on a float image of range 1), or "auto" to estimate it per channel. Too small leaves noise, too
    large smooths detail away. "poisson-gaussian" is for noise whose variance grows with brightness, as that of light
    does: how it grows is estimated per channel, and the image is restored where the noise is even
    (`slir.stabilise`). Black has to be 0 for that, or given with data_range.

    >>> restored = slir.denoise(image, sigma=25)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, return_info)
    return _restore(image, lambda shape: Identity(), sigma, options)


def deblur(
    image: Array,
    psf: Array,
    *,
    sigma: float | str = "auto",
    border: Border = "unknown",
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: bool = False,
) -> Any:
    """Undo a known blur. The result has the shape of `image`.

    psf: (K, L), what one bright pixel becomes; it sums to one. sigma: see `denoise`; too small brings ringing, too
    large leaves blur. border: what lies beyond the image: "unknown" for photographs, where the scene goes on;
    "circular" or "reflect" for data that were made so.

    >>> restored = slir.deblur(image, slir.psf.gaussian(1.5), sigma=2)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, return_info)
    return _restore(image, lambda shape: _blur(psf, border, shape), sigma, options)


def upsample(
    image: Array,
    factor: int,
    *,
    antialias: Antialias = "bicubic",
    sigma: float | str = 0,
    phase: int | None = None,
    border: Border = "reflect",
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: bool = False,
) -> Any:
    """Enlarge an image `factor` times along each side, by undoing how it was shrunk.

    antialias: how it was shrunk: "bicubic" or "box" as image software does it, the standard deviation of a Gaussian in
    fine pixels, or a kernel. With a Gaussian or a kernel, coarse pixel (0, 0) sits on fine pixel (0, 0); `phase` says
    otherwise. A filter wider than the true one over-sharpens. sigma: see `denoise`.

    >>> enlarged = slir.upsample(image, 2)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, return_info)
    return _restore(image, lambda shape: Downsample(factor, antialias, phase=phase, border=border), sigma, options)


def inpaint(
    image: Array,
    mask: Array,
    *,
    sigma: float | str = 0,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: bool = False,
) -> Any:
    """Fill in missing pixels. With sigma = 0 known pixels stay exactly as they are.

    mask: (H, W), true (or non-zero) where a pixel is missing; what `image` holds there is ignored, NaN included.
    sigma: noise in the known pixels, which is then removed too; see `denoise`.

    >>> whole = slir.inpaint(image, np.isnan(image), data_range=1.0)
    """
    missing = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    missing = missing.astype(bool)
    operator = Mask(missing)
    blank = _blanked(image, missing, channel_axis)
    options = _Options(model, data_range, channel_axis, device, rng, progress, return_info)
    return _restore(blank, lambda shape: operator, sigma, options, keep=~missing)


def _blanked(image: Array, missing: np.ndarray, channel_axis: int | None) -> Array:
    """The image with an inconspicuous value at its missing pixels, so that NaN there offends nobody."""
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    spread = missing
    if channel_axis is not None and array.ndim == 3:
        spread = np.expand_dims(missing, channel_axis)
    try:
        spread = np.broadcast_to(spread, array.shape)
    except ValueError as error:
        rule = "have the image's height and width"
        remedy = f"The image has shape {array.shape}; crop or resize the mask."
        raise InputError("mask", rule, f"of shape {missing.shape}", remedy) from error
    known = array[~spread]
    filled = np.where(spread, known.min() if known.size else 0, array).astype(array.dtype)
    return torch.from_numpy(filled).to(image.device) if isinstance(image, Tensor) else filled


def _blur(psf: Array, border: Border, shape: tuple[int, int]) -> Blur:
    kernel = checked_psf(psf)
    operator = _same_blur(kernel.numpy().tobytes(), (kernel.shape[0], kernel.shape[1]), border)
    tall, wide = operator.psf.shape
    if tall > shape[0] or wide > shape[1]:
        rule = f"be no larger than the image, {shape[0]}×{shape[1]}"
        raise InputError("psf", rule, f"{tall}×{wide}", "Crop the PSF to its support, or pass a larger image.")
    return operator


@lru_cache(maxsize=8)
def _same_blur(psf: bytes, shape: tuple[int, int], border: Border) -> Blur:
    """One operator for all images of a blur, so that what it keeps (spectra, recordings) is made once."""
    return Blur(np.frombuffer(psf).reshape(shape).copy(), border)


def _restore(
    image: Array,
    make: Callable[[tuple[int, int]], Operator],
    sigma: float | str,
    options: _Options,
    *,
    keep: np.ndarray | None = None,
) -> Any:
    """What all tasks do: planes out of the user's array, one restoration each, the user's array again.

    keep: (H, W), pixels that come back as they were, to the last bit, where there is no noise.
    """
    started = time.perf_counter()
    frame, array = canvas(image, data_range=options.data_range, channel_axis=options.channel_axis)
    device = pick_device(options.device)
    planes = frame.planes(array, device)
    shape = (planes[0].shape[0], planes[0].shape[1])
    operator = make(shape)
    x_shape = operator.x_shape(shape)
    operator.y_shape(x_shape)
    if min(shape) < MIN_SIDE:
        raise InputError("image", f"have at least {MIN_SIDE} pixels a side", f"{shape[0]}×{shape[1]}", "Pad it first.")
    evened = _evened(sigma, planes, operator)
    if evened:
        planes = [even.forward(plane) for even, plane in zip(evened, planes)]
    sigmas = [even.sigma for even in evened] if evened else _sigmas(sigma, planes, frame)
    generator = _generator(options.rng)
    given = _given_model(options.model)
    if given is not None:
        _check_model(given, operator, sigmas, frame)
    turned = _is_colour(planes, sigmas, given or default_model(operator, sigmas[0]))
    if turned:
        planes[:3], along = colour.to_axes(planes[:3], sigmas[:3])
    noises = [*along, *sigmas[3:]] if turned else sigmas
    restored, stages, residuals = [], [], []
    with _meter(options.progress, len(planes)) as report:
        for number, (plane, noise) in enumerate(zip(planes, noises)):
            model = (given or default_model(operator, noise)).to(device)
            model = colour.brief(model) if turned and number in (1, 2) else model
            work = partial(_restore_plane, plane, operator, model, noise, generator, report(number))
            outcome = sparing(work, device)
            if not bool(outcome.x.isfinite().all()):
                raise SlirError(NOT_FINITE)
            residuals.append(outcome.residual * frame.span)
            restored.append(outcome.x)
            stages.append(outcome.stats)
    if turned:
        restored[:3] = colour.from_axes(restored[:3])
        residuals[:3] = colour.spread_over_channels(residuals[:3])
    if evened:
        restored = [even.inverse(plane) for even, plane in zip(evened, restored)]
        strengths = [even.strength(plane) for even, plane in zip(evened, restored)]
        residuals = [residual / noise * own for residual, noise, own in zip(residuals, sigmas, strengths)]
        sigmas = strengths
    result = frame.image(restored)
    if keep is not None and not any(sigmas):
        result = _kept(result, array, keep, options.channel_axis)
    if not options.return_info:
        return result
    units = [noise * frame.span for noise in sigmas]
    stats = {
        "sigma": units[0] if options.channel_axis is None else units,
        "residual": residuals[0] if options.channel_axis is None else residuals,
        "seconds": time.perf_counter() - started,
        "stages": stages,
    }
    if evened:
        stats["gain"] = [even.stabiliser.gain * frame.span for even in evened]
        stats["variance"] = [even.stabiliser.variance * frame.span**2 for even in evened]
    return Result(result, stats)


def _evened(sigma: float | str, planes: list[Tensor], operator: Operator) -> list[Evened]:
    """How to even out the noise of each plane, where that is asked for."""
    if sigma != POISSON_GAUSSIAN:
        return []
    if not isinstance(operator, Identity):
        remedy = "Denoise first with sigma='poisson-gaussian', then restore with what noise is left."
        raise InputError("sigma", "be 'auto' or a number for this task", repr(sigma), remedy)
    found = [estimate_poisson_gaussian(plane) for plane in planes]
    return [Evened(Stabiliser(gain, max(variance, ROUNDING**2))) for gain, variance in found]


def _is_colour(planes: list[Tensor], sigmas: list[float], model: Model) -> bool:
    """Whether to restore brightness and colour differences. Models of the paper's kind know one noise level alone."""
    return len(planes) in (3, 4) and model.learnt and colour.alike(planes[:3], sigmas[:3])


def _restore_plane(
    plane: Tensor,
    operator: Operator,
    model: Model,
    sigma: float,
    generator: torch.Generator,
    progress: Callable[[int, int, str], None] | None,
) -> Restoration:
    """One plane, on the device where it is."""
    return restore_tiled(plane, operator, model, sigma=sigma, generator=generator, progress=progress)


NOT_FINITE = (
    "the restoration ran into infinite numbers: the operator or the model holds values far beyond the image's. "
    "Check the PSF or the linear map that was given, and fit the model anew."
)
MIN_SIDE = 16
"""Smallest side of an image that is restored: below it there is hardly a patch to see."""


def _sigmas(sigma: float | str, planes: list[Tensor], frame: Canvas) -> list[float]:
    """σ of each plane on the scale where the range is 1."""
    if isinstance(sigma, str):
        if sigma != "auto":
            rule = f"be 'auto', '{POISSON_GAUSSIAN}' or a number"
            raise InputError("sigma", rule, repr(sigma), "It counts in units of the pixel values.")
        return [estimate_sigma(plane) for plane in planes]
    if not isinstance(sigma, int | float | np.number) or not (np.isfinite(sigma) and sigma >= 0):
        raise InputError("sigma", "be 'auto' or a number of at least 0", sigma, "It is the noise's standard deviation.")
    value = float(sigma)
    if value > frame.span:
        remedy = f"It counts in units of the pixel values, whose range is {frame.span:g} here."
        raise InputError("sigma", "be at most the data range", sigma, remedy)
    return [value / frame.span] * len(planes)


def _given_model(model: Model | str | PathLike | None) -> Model | None:
    if model is None or isinstance(model, Model):
        return model
    if isinstance(model, str | PathLike):
        from slir.io.models import load

        return load(Path(model))
    raise InputError("model", "be a slir.Model or the path of one", type(model).__name__, "slir.load reads one.")


def _check_model(model: Model, operator: Operator, sigmas: list[float], frame: Canvas) -> None:
    """A model is learnt for a kind of operator: another is an error. One learnt for a single operator or noise level
    warns of another."""
    learnt = model.made_for.get("family", model.made_for)
    its, ours = learnt.get("operator", {}), operator.describe()
    task, asked_for = learnt.get("kind"), task_of(operator)
    if its.get("kind", ours["kind"]) != ours["kind"] or (task not in (None, asked_for) and asked_for != "other"):
        remedy = "Fit one with slir.fit(images, task=...) or slir.fit(images, operator=...), or pass none."
        raise InputError(
            "model", f"be learnt for the operator {ours['kind']!r}", f"for {its.get('kind', task)!r}", remedy
        )
    if learnt.get("factor", operator.scale) != operator.scale:
        remedy = f"Fit one with slir.fit(images, task='upsample', factor={operator.scale})."
        raise InputError("model", f"be learnt for the factor {operator.scale}", f"for {learnt['factor']}", remedy)
    if ours["kind"] != "mask" and its and its != ours:
        advice = "The model was learnt for another PSF, filter or border than the one given; fit one for this."
        warnings.warn(advice, SlirWarning, stacklevel=4)
    own, asked = learnt.get("sigma"), max(sigmas)
    if isinstance(own, int | float) and abs(own - asked) > 0.25 * max(own, asked, 2e-3):
        told = f"The model was learnt for sigma {own * frame.span:.3g} and restores as if it were so"
        warnings.warn(f"{told}, but sigma is {asked * frame.span:.3g}; fit one for this.", SlirWarning, stacklevel=4)


def _kept(result: Array, array: np.ndarray, keep: np.ndarray, channel_axis: int | None) -> Array:
    """The result with the pixels of `keep` taken from the input."""
    spread = keep if channel_axis is None else np.expand_dims(keep, channel_axis)
    if isinstance(result, Tensor):
        return torch.where(
            torch.from_numpy(spread).to(result.device), torch.from_numpy(array).to(result.device), result
        )
    return np.where(spread, array, result)


def _generator(rng: Seed) -> torch.Generator:
    """A torch generator on the CPU from whatever the caller passed."""
    if isinstance(rng, torch.Generator):
        return rng
    if isinstance(rng, np.random.Generator):
        return torch.Generator().manual_seed(int(rng.integers(2**63 - 1)))
    if rng is None or isinstance(rng, int | np.integer):
        return torch.Generator().manual_seed(0 if rng is None else int(rng))
    raise InputError("rng", "be an int or a generator", type(rng).__name__, "Pass a seed such as 0.")


class _meter:
    """Progress over all channels: a tqdm bar, the caller's function, or nothing."""

    def __init__(self, progress: Progress, planes: int):
        self.progress, self.planes = progress, planes
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], Callable[[int, int, str], None] | None]:
        return self._for_plane

    def _for_plane(self, plane: int) -> Callable[[int, int, str], None] | None:
        if self.progress is False or self.progress is None:
            return None

        def report(done: int, total: int, what: str) -> None:
            done, total = plane * total + done, self.planes * total
            if callable(self.progress):
                self.progress(done, total, what)
                return
            if self.bar is None:
                from tqdm.auto import tqdm

                self.bar = tqdm(total=total, unit="stage")
            self.bar.update(done - self.bar.n)

        return report

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()


__all__ = ["denoise", "deblur", "upsample", "inpaint", "Result"]
