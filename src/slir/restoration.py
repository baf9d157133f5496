"""An array restored: planes out of it, one restoration each, an array of the same kind again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import mul
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from slir.compute import is_lazy, pick_device, retry_on_oom, to_numpy
from slir.errors import InputError, SlirError, SlirWarning
from slir.estimator.loop import Restoration
from slir.estimator.tiling import restore_tiled
from slir.model import Model
from slir.operators import Operator
from slir.preprocessing.arrays import (
    Array,
    Canvas,
    DataRange,
    canvas,
    check_filled,
)
from slir.preprocessing.resampling import Reduction, Resize, enlarged_size
from slir.preprocessing.treatment import Restored, Treatment, settle
from slir.result import UNASKED, Outlook, Result

if TYPE_CHECKING:
    from slir.problem import Problem
    from slir.trust.explain import Explanation
    from slir.trust.forward import ForwardCheck

Progress = bool | Callable[[int, int, str], None]
Observe = Callable[[Array], None] | None
Info = bool | Literal["stats"]
Seed = int | np.random.Generator | torch.Generator | None


@dataclass(frozen=True)
class Settings:
    """The arguments that all tasks share (`slir.tasks`)."""

    model: Model | str | PathLike | None = None
    data_range: DataRange = None
    channel_axis: int | None = None
    device: str | torch.device | None = None
    rng: Seed = None
    progress: Progress = False
    observe: Observe = None
    return_info: Info = False

    def __post_init__(self) -> None:
        if isinstance(self.return_info, str) and self.return_info != "stats":
            remedy = '"stats" leaves out the errors to expect.'
            raise InputError("return_info", 'be True, False or "stats"', repr(self.return_info), remedy)

    @property
    def errors(self) -> bool:
        """Whether errors to expect are asked for."""
        return bool(self.return_info) and self.return_info != "stats"


def _sides(image: Any, channel_axis: int | None) -> tuple[int, int]:
    """(height, width) of an image that has these axes; whether it has is found out later."""
    shape = list(np.shape(image))
    if isinstance(channel_axis, int) and -len(shape) <= channel_axis < len(shape):
        del shape[channel_axis]
    return (shape[-2], shape[-1]) if len(shape) > 1 else (1, 1)


def blank_missing(image: Array, missing: np.ndarray, channel_axis: int | None) -> Array:
    """The image with an inconspicuous value at its missing pixels, so that NaN there offends nobody."""
    array = to_numpy(image, "image")
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


def restore_image(image: Array, problem: Problem, options: Settings = Settings()) -> Any:  # noqa: B008  (frozen)
    """What all tasks do. Pixels that a mask does not name come back as they were where there is no noise."""
    lazy = is_lazy(image)
    problem = problem.at_size(_sides(image, options.channel_axis))
    if lazy and problem.scale != problem.factor:
        rule, remedy = "be in memory where the factor is not whole", f"Use image.compute(), or pass {problem.factor}."
        raise InputError("image", rule, "a Dask array", remedy)
    if lazy:
        return _lazily(image, problem, options)
    keep: np.ndarray | None = None
    if problem.mask is not None:
        problem = problem.replace(mask=to_numpy(problem.mask, "mask").astype(bool))
        image, keep = blank_missing(image, problem.mask, options.channel_axis), ~problem.mask
    started = time.perf_counter()
    check: ForwardCheck | None = None
    frame, array = canvas(image, data_range=options.data_range, channel_axis=options.channel_axis)
    if options.model is not None:
        check_filled(array, options.data_range)
    device = pick_device(options.device)
    resize = _resize(problem, frame.size)
    operator, frame, planes, treatment = _prepare(frame, array, problem, options.model, device)
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
            warnings.warn(text, SlirWarning, stacklevel=4)
        result = frame.image(restored.planes)
    if keep is not None and not any(restored.sigmas):
        result = _keep_known(result, array, keep, options.channel_axis)
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
    if noise := treatment.noise_in_words(frame.spans):
        stats["noise"] = noise
    if treatment.evened:
        known = [(even.stabiliser, span) for even, span in zip(treatment.evened, frame.spans)]
        stats["gain"] = [own.gain * span for own, span in known]
        stats["variance"] = [own.variance * span**2 for own, span in known]
    ask: Callable[[int, int, int], Any] | None = None
    if not treatment.leaves(operator):
        ask = partial(_explain, array, frame, treatment, operator)
        if resize is not None:
            ask = resize.explain_result(ask, operator.x_shape(frame.size))
    if not options.errors:
        return Result(result, stats, ask=ask, silence=UNASKED)
    return Result(result, stats, Outlook.of(restored, treatment, operator, frame), ask)


def _resize(problem: Problem, size: tuple[int, int]) -> Resize | None:
    """What is done to the finished image where its scale is not whole."""
    if problem.scale == problem.factor:
        return None
    reduction = Reduction(problem.scale / problem.factor, centred=problem.centred)
    return Resize(reduction, enlarged_size(size, problem.scale), problem.factor)


def _lazily(image: Any, problem: Problem, options: Settings) -> Any:
    """The same for an array of Dask, which stays one."""
    from slir.cluster.arrays import restore_lazily

    for name in ("return_info", "observe", "progress"):
        if getattr(options, name):
            remedy = "Leave it out: nothing is done yet. Dask shows progress, dask.diagnostics.ProgressBar for one."
            raise InputError(name, "not be asked for with a Dask array", getattr(options, name), remedy)
    if not (options.rng is None or isinstance(options.rng, int | np.integer)):
        raise InputError("rng", "be an int with a Dask array", type(options.rng).__name__, "Pass a seed such as 0.")
    settings: dict[str, Any] = {"model": _given_model(options.model), "seed": int(options.rng or 0)}
    settings["amount"] = problem.amount
    shared: dict[str, Any] = {
        "data_range": options.data_range,
        "channel_axis": options.channel_axis,
        "device": options.device,
    }
    make = None if problem.task.masked else problem.operator
    return restore_lazily(image, make, problem.sigma, mask=problem.mask, **settings, **shared)


def _prepare(
    frame: Canvas,
    array: np.ndarray,
    problem: Problem,
    model: Model | str | PathLike | None,
    device: torch.device,
) -> tuple[Operator, Canvas, list[Tensor], Treatment]:
    """B for an image of this size, the canvas that it is restored on, its planes there, and how to restore them."""
    shape = frame.size
    operator = problem.operator(shape)
    x_shape = operator.x_shape(shape)
    operator.y_shape(x_shape)
    if min(shape) < MIN_SIDE:
        raise InputError("image", f"have at least {MIN_SIDE} pixels a side", f"{shape[0]}×{shape[1]}", "Pad it first.")
    settled = settle(frame, array, operator, problem.sigma, _given_model(model), device, amount=problem.amount)
    return operator, *settled


def explain_pixel(
    image: Array,
    problem: Problem,
    at: tuple[int, int],
    *,
    k: int = 16,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
) -> Explanation:
    """What `Result.explain` says of the pixel `at` (row, col), without restoring the rest of the image.

    model, data_range, channel_axis: as for every task.
    """
    if problem.task.masked:
        image = blank_missing(image, problem.mask, channel_axis)
    frame, array = canvas(image, data_range=data_range, channel_axis=channel_axis)
    operator, frame, _, treatment = _prepare(frame, array, problem, model, torch.device("cpu"))
    if treatment.leaves(operator):
        raise SlirError("There is nothing to explain: without noise or blur the image comes back as it is.")
    return _explain(array, frame, treatment, operator, *at, k)


def _explain(
    array: np.ndarray, frame: Canvas, treatment: Treatment, operator: Operator, row: int, col: int, k: int
) -> Explanation:
    """What a pixel was made from; of colours restored together, their mean."""
    from slir.trust.explain import explain

    device = torch.device("cpu")
    planes, sigmas = treatment.prepare(frame.planes(array, device)), treatment.sigmas
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
    shown = [operator.crop(operator.guess(plane), shape) for plane in treatment.prepare(planes)]

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


def _keep_known(result: Array, array: np.ndarray, keep: np.ndarray, channel_axis: int | None) -> Array:
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
        try:
            return torch.Generator().manual_seed(0 if rng is None else int(rng))
        except (ValueError, RuntimeError, OverflowError) as error:
            raise InputError("rng", "fit into 64 bits", rng, "Pass a seed such as 0.") from error
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
