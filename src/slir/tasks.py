"""denoise, deblur, upsample, inpaint: array in, array out, in the manner of scikit-image.

An array of Dask gives an array of Dask, of which nothing is restored before it is computed (`slir.cluster.arrays`); its
axes before height and width are planes.

All of them take these keyword arguments:

    model         what to restore with: a `slir.Model` or the path of one (an error says if it was learnt for another
                  task, a warning if for another operator or noise level alone); None takes the one that slir ships,
                  which serves any operator of the task and any noise level
    data_range    the pixel value that stands for white, or (black, white); needed for float images alone, but to be
                  said too where a model is given. Pictures that fill little of it are stretched inside
                  (`slir.preprocessing.ranges`)
    channel_axis  the axis of the colours, often -1; None for grey images. Three channels that show one picture (of four
                  the first three) are restored together, others one by one
    device        "cpu" (the default) or "cuda"
    rng           an int or a generator, for solvers that draw at random; the default is reproducible too
    progress      True for a progress bar, or a function called as progress(done, total, what)
    observe       a function called as observe(image) after each stage with the estimate so far, for those who watch; of
                  large images as their tiles are done. What it raises ends the work
    return_info   return a `Result` with the image and what was measured on the way, in place of the image; "stats"
                  leaves out the errors to expect, which take a tenth of the time
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from operator import mul
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from slir.compute import is_lazy, pick_device, retry_on_oom
from slir.errors import InputError, SlirError, SlirWarning
from slir.estimator.loop import Restoration
from slir.estimator.tiling import restore_tiled
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.operators.blur import checked_psf
from slir.operators.convolution import Border
from slir.operators.downsample import Antialias
from slir.outcome import UNASKED, Outlook, Result
from slir.preprocessing.arrays import (
    Array,
    Canvas,
    DataRange,
    as_numpy,
    canvas,
    check_filled,
    refuse_masked,
)
from slir.preprocessing.treatment import Restored, Treatment, settle
from slir.resampling import Reduction, Resize, enlarged, factor_of

if TYPE_CHECKING:
    from slir.trust.explain import Explanation
    from slir.trust.forward import ForwardCheck

Progress = bool | Callable[[int, int, str], None]
Observe = Callable[[Array], None] | None
Info = bool | Literal["stats"]
Seed = int | np.random.Generator | torch.Generator | None


@dataclass(frozen=True)
class _Options:
    """The arguments that all tasks share."""

    model: Model | str | PathLike | None
    data_range: DataRange
    channel_axis: int | None
    device: str | torch.device | None
    rng: Seed
    progress: Progress
    observe: Observe
    return_info: Info

    def __post_init__(self) -> None:
        if isinstance(self.return_info, str) and self.return_info != "stats":
            remedy = '"stats" leaves out the errors to expect.'
            raise InputError("return_info", 'be True, False or "stats"', repr(self.return_info), remedy)

    @property
    def errors(self) -> bool:
        """Whether errors to expect are asked for."""
        return bool(self.return_info) and self.return_info != "stats"


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
    observe: Observe = None,
    return_info: Info = False,
) -> Any:
    """Remove white noise from an image.

    image: (H, W), or with a channel axis. sigma: the noise's standard deviation in units of the pixel values (25 on an
    8-bit image, 0.1 on a float image of range 1), or "auto" to estimate it per channel. Too small leaves noise, too
    large smooths detail away. "poisson-gaussian" is for noise whose variance grows with brightness, as that of light
    does: how it grows is estimated per channel, and the image is restored where the noise is even
    (`slir.preprocessing.stabilise`). Black has to be 0 for that, or given with data_range.

    >>> restored = slir.denoise(image, sigma=25)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, observe, return_info)
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
    observe: Observe = None,
    return_info: Info = False,
) -> Any:
    """Undo a known blur. The result has the shape of `image`.

    psf: (K, L), what one bright pixel becomes; it sums to one. sigma: see `denoise`; too small brings ringing, too
    large leaves blur. border: what lies beyond the image: "unknown" for photographs, where the scene goes on;
    "circular" or "reflect" for data that were made so.

    >>> restored = slir.deblur(image, slir.psf.gaussian(1.5), sigma=2)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, observe, return_info)
    return _restore(image, lambda shape: blur(psf, border, shape), sigma, options)


def upsample(
    image: Array,
    factor: float | None = None,
    *,
    size: tuple[int, int] | None = None,
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
    observe: Observe = None,
    return_info: Info = False,
) -> Any:
    """Enlarge an image `factor` times along each side, by undoing how it was shrunk.

    factor: 2, 3 and 4 are best. For one that is not whole, such as 1.5, the image is restored at the next whole factor
    and reduced with an antialiasing bicubic filter; errors are then not calibrated. size: (height, width) of the result
    in place of a factor. It keeps the proportions of the image.
    antialias: how it was shrunk: "bicubic" or "box" as image software does it, the standard deviation of a Gaussian in
    fine pixels, or a kernel. With a Gaussian or a kernel, coarse pixel (0, 0) sits on fine pixel (0, 0); `phase` says
    otherwise. A filter wider than the true one over-sharpens. sigma: see `denoise`.

    >>> enlarged = slir.upsample(image, 2)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, observe, return_info)
    shape = _sides(image, channel_axis)
    exact = factor_of(factor, size, shape)
    whole = math.ceil(exact)
    resize = None
    if whole != exact:
        if phase is not None or is_lazy(image):
            what, remedy = ("phase", "Leave it out") if phase is not None else ("image", "Use image.compute()")
            rule = "be left out" if phase is not None else "be in memory"
            raise InputError(what, f"{rule} where the factor is not whole", what, f"{remedy}, or pass {whole}.")
        resize = Resize(Reduction(exact / whole, centred=isinstance(antialias, str)), enlarged(shape, exact), whole)
    return _restore(
        image, lambda shape: Downsample(whole, antialias, phase=phase, border=border), sigma, options, resize=resize
    )


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
    observe: Observe = None,
    return_info: Info = False,
) -> Any:
    """Fill in missing pixels. With sigma = 0 known pixels stay exactly as they are.

    mask: (H, W), true (or non-zero) where a pixel is missing; what `image` holds there is ignored, NaN included.
    sigma: noise in the known pixels, which is then removed too; see `denoise`.

    >>> whole = slir.inpaint(image, np.isnan(image), data_range=1.0)
    """
    options = _Options(model, data_range, channel_axis, device, rng, progress, observe, return_info)
    if is_lazy(image):
        return _lazily(image, lambda shape: Identity(), sigma, options, mask=mask)
    missing = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
    missing = missing.astype(bool)
    operator = Mask(missing)
    blank = blanked(image, missing, channel_axis)
    return _restore(blank, lambda shape: operator, sigma, options, keep=~missing)


def _sides(image: Any, channel_axis: int | None) -> tuple[int, int]:
    """(height, width) of an image that has these axes; whether it has is found out later."""
    shape = list(image.shape if is_lazy(image) else as_numpy(image).shape)
    if channel_axis is not None and -len(shape) <= channel_axis < len(shape):
        del shape[channel_axis]
    return (shape[-2], shape[-1]) if len(shape) > 1 else (1, 1)


def blanked(image: Array, missing: np.ndarray, channel_axis: int | None) -> Array:
    """The image with an inconspicuous value at its missing pixels, so that NaN there offends nobody."""
    refuse_masked(image)
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


def blur(psf: Array, border: Border, shape: tuple[int, int]) -> Blur:
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
    resize: Resize | None = None,
) -> Any:
    """What all tasks do: planes out of the user's array, one restoration each, the user's array again.

    keep: (H, W), pixels that come back as they were, to the last bit, where there is no noise. resize: what is done to
    the finished image.
    """
    if is_lazy(image):
        return _lazily(image, make, sigma, options)
    started = time.perf_counter()
    check: ForwardCheck | None = None
    frame, array = canvas(image, data_range=options.data_range, channel_axis=options.channel_axis)
    if options.model is not None:
        check_filled(array, options.data_range)
    device = pick_device(options.device)
    operator, frame, planes, treatment = _settled(frame, array, make, sigma, options.model, device)
    frame = replace(frame, resize=resize)
    if treatment.leaves(operator):  # as it came: 32-bit integers have more digits than the engine's planes
        zeros = [0.0] * len(planes)
        restored = Restored(
            planes, zeros, zeros, [Restoration(plane, error=torch.zeros_like(plane)) for plane in planes]
        )
        result: Array = array.copy() if frame.tensor is None else frame.tensor.clone()
    else:
        generator = _generator(options.rng)
        used = treatment.evidence.operator(operator)
        look = None if options.observe is None else _looks(options.observe, treatment, planes, used, frame)
        with _meter(options.progress, treatment.part(len(planes))) as report:

            def one(plane: Tensor, model: Model, noise: Any, number: int) -> Restoration:
                seen: dict[str, Any] = {"progress": report(treatment.part(number)), "errors": options.errors}
                seen["observe"] = look and partial(look, number)
                work = partial(restore_tiled, plane, used, model, sigma=noise, generator=generator, **seen)
                return retry_on_oom(work, device)

            restored = treatment.restore(planes, operator, one)
        check = treatment.check(planes, restored, operator, frame.spans)
        for text in treatment.doubts(restored, operator, frame.spans, check):
            warnings.warn(text, SlirWarning, stacklevel=3)
        result = frame.image(restored.planes)
    if keep is not None and not any(restored.sigmas):
        result = _kept(result, array, keep, options.channel_axis)
    if not options.return_info:
        return result
    grey = options.channel_axis is None
    sigmas, residuals = (list(map(mul, own, frame.spans)) for own in (restored.sigmas, restored.residuals))
    stats = {
        "sigma": sigmas[0] if grey else sigmas,
        "residual": residuals[0] if grey else residuals,
        "seconds": time.perf_counter() - started,
        "stages": restored.stages,
        "forward": None if check is None else asdict(check),
        "range": frame.ranges[0] if grey else list(frame.ranges),
    }
    if treatment.evened:
        known = [(even.stabiliser, span) for even, span in zip(treatment.evened, frame.spans)]
        stats["gain"] = [own.gain * span for own, span in known]
        stats["variance"] = [own.variance * span**2 for own, span in known]
    ask: Callable[[int, int, int], Any] | None = None
    if not treatment.leaves(operator):
        ask = partial(_explained, array, frame, treatment, operator)
        if resize is not None:
            ask = resize.asked(ask, operator.x_shape(frame.size))
    if not options.errors:
        return Result(result, stats, ask=ask, silence=UNASKED)
    return Result(result, stats, Outlook.of(restored, treatment, operator, frame), ask)


def _lazily(
    image: Any, make: Callable[[tuple[int, int]], Operator], sigma: float | str, options: _Options, *, mask: Any = None
) -> Any:
    """The same for an array of Dask, which stays one."""
    from slir.cluster.arrays import restore_lazily

    for name in ("return_info", "observe", "progress"):
        if getattr(options, name):
            remedy = "Leave it out: nothing is done yet. Dask shows progress, dask.diagnostics.ProgressBar for one."
            raise InputError(name, "not be asked for with a Dask array", getattr(options, name), remedy)
    if not (options.rng is None or isinstance(options.rng, int | np.integer)):
        raise InputError("rng", "be an int with a Dask array", type(options.rng).__name__, "Pass a seed such as 0.")
    settings: dict[str, Any] = {"model": _given_model(options.model), "seed": int(options.rng or 0), "mask": mask}
    shared: dict[str, Any] = {
        "data_range": options.data_range,
        "channel_axis": options.channel_axis,
        "device": options.device,
    }
    return restore_lazily(image, make, sigma, **settings, **shared)


def _settled(
    frame: Canvas,
    array: np.ndarray,
    make: Callable[[tuple[int, int]], Operator],
    sigma: float | str,
    model: Model | str | PathLike | None,
    device: torch.device,
) -> tuple[Operator, Canvas, list[Tensor], Treatment]:
    """B for an image of this size, the canvas that it is restored on, its planes there, and how to restore them."""
    shape = frame.size
    operator = make(shape)
    x_shape = operator.x_shape(shape)
    operator.y_shape(x_shape)
    if min(shape) < MIN_SIDE:
        raise InputError("image", f"have at least {MIN_SIDE} pixels a side", f"{shape[0]}×{shape[1]}", "Pad it first.")
    return operator, *settle(frame, array, operator, sigma, _given_model(model), device)


def explain_pixel(
    image: Array,
    make: Callable[[tuple[int, int]], Operator],
    sigma: float | str,
    at: tuple[int, int],
    *,
    k: int = 16,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
) -> Explanation:
    """What `Result.explain` says of the pixel `at` (row, col), without restoring the rest of the image.

    make: (height, width) -> B. sigma, model, data_range, channel_axis: as for every task.
    """
    frame, array = canvas(image, data_range=data_range, channel_axis=channel_axis)
    operator, frame, _, treatment = _settled(frame, array, make, sigma, model, torch.device("cpu"))
    if treatment.leaves(operator):
        raise SlirError("There is nothing to explain: without noise or blur the image comes back as it is.")
    return _explained(array, frame, treatment, operator, *at, k)


def _explained(
    array: np.ndarray, frame: Canvas, treatment: Treatment, operator: Operator, row: int, col: int, k: int
) -> Explanation:
    """What a pixel was made from; of colours restored together, their mean."""
    from slir.trust.explain import explain

    device = torch.device("cpu")
    planes, sigmas = treatment.prepared(frame.planes(array, device)), treatment.sigmas
    y, noise = (torch.stack(planes[:3]), sigmas[:3]) if treatment.joint else (planes[0], sigmas[0])
    used = treatment.evidence.operator(operator)
    return explain(y, used, treatment.model_for(operator, device), noise, row, col, k)


MIN_SIDE = 16
"""Smallest side of an image that is restored: below it there is hardly a patch to see."""


def _looks(
    observe: Callable[[Array], None], treatment: Treatment, planes: list[Tensor], operator: Operator, frame: Canvas
) -> Callable[[int, Tensor], None]:
    """What turns the estimate of one plane into the user's kind of image. Planes whose turn is yet to come show the
    operator's guess."""
    shape = (planes[0].shape[0], planes[0].shape[1])
    shown = [operator.crop(operator.guess(plane), shape) for plane in treatment.prepared(planes)]

    def look(number: int, x: Tensor) -> None:
        shown[number : number + (len(x) if x.ndim > 2 else 1)] = x if x.ndim > 2 else [x]
        observe(frame.image(treatment.channels(shown)))

    return look


def _given_model(model: Model | str | PathLike | None) -> Model | None:
    if model is None or isinstance(model, Model):
        return model
    if isinstance(model, str | PathLike):
        from slir.io.models import load

        return load(Path(model))
    raise InputError("model", "be a slir.Model or the path of one", type(model).__name__, "slir.load reads one.")


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
