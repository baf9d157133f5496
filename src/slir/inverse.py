"""restore: what any linear operator has done to an image, array in, array out.

The tasks (`slir.tasks`) are this for the operators that they are named after.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from slir.compute import is_lazy, pick_device
from slir.errors import InputError, is_finite
from slir.estimator.loop import Restoration
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Mask, Operator, VolumeBlur
from slir.preprocessing.arrays import Array, Canvas, DataRange, as_numpy, pixel_range
from slir.preprocessing.images import Images, restore_images
from slir.preprocessing.treatment import Restored, Treatment
from slir.restoration import Info, Progress, Seed, _generator, _given_model, _meter
from slir.result import UNASKED, Outlook, Result
from slir.tasks import deblur, denoise, inpaint, upsample

UNCALIBRATED = "the errors were not calibrated for this operator"


@overload
def restore(
    image: np.ndarray,
    operator: Operator,
    *,
    sigma: float | np.ndarray | Tensor,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: Literal[False] = False,
) -> np.ndarray: ...
@overload
def restore(
    image: Tensor,
    operator: Operator,
    *,
    sigma: float | np.ndarray | Tensor,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: Literal[False] = False,
) -> Tensor: ...
@overload
def restore(
    image: Array,
    operator: Operator,
    *,
    sigma: float | np.ndarray | Tensor,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: Literal[True, "stats"],
) -> Result: ...
def restore(
    image: Array,
    operator: Operator,
    *,
    sigma: float | np.ndarray | Tensor,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    return_info: Info = False,
) -> Any:
    """Undo what a linear operator has done to an image, y = Bx + ε: x from y.

    image: y, of the shape that `operator` gives: (h, w), (n, h, w) for a stack of n views, or with a channel axis. All
        channels are then seen through the operator, and restored together.
    operator: B, from `slir.operators` or a subclass of `slir.operators.Operator`.
    sigma: the noise's standard deviation in units of the pixel values: a number, or an array that broadcasts to the
        image: one for each channel, each view, or each pixel.
    data_range: black and white of x in pixel values; needed for float images alone.
    channel_axis: the axis of the channels. Where the operator makes one plane of several colours, it is the axis of
        the colours in the result; None is the last one.

    The other arguments are those of `slir.denoise`. Where there is no noise, pixels that y shows by themselves come
    back as they are.

    >>> picture = slir.restore(raw, slir.operators.ColourFilterArray("RGGB"), sigma=3)
    """
    if not isinstance(operator, Operator):
        remedy = "Build one from slir.operators; Linear takes matrices and SciPy's operators."
        raise InputError("operator", "be a slir.operators.Operator", type(operator).__name__, remedy)
    shared: dict[str, Any] = {"model": model, "data_range": data_range, "channel_axis": channel_axis, "device": device}
    shared |= {"rng": rng, "progress": progress, "return_info": return_info}
    task = _task(operator) if np.ndim(sigma) == 0 else None
    if task is not None:
        return task(image, sigma=sigma, **shared)
    if is_lazy(image):
        raise InputError("image", "be in memory for this operator", "an array of Dask", "Pass image.compute().")
    started = time.perf_counter()
    layout = Layout.of(image, operator, channel_axis)
    given = _given_model(model)
    black, white = pixel_range(layout.array, data_range)
    noise = _noise(sigma, layout, operator)
    target = pick_device(device)
    images = Images.of(torch.from_numpy(layout.planes(layout.array)).to(target), operator, noise, given, (black, white))
    with _meter(progress, len(images.groups)) as report:
        told: dict[str, Any] = {"generator": _generator(rng), "report": report}
        outcomes = restore_images([images], errors=return_info is True, **told)[0]
    return _given(images, outcomes, layout, (black, white), return_info, started)


def _task(operator: Operator) -> Callable[..., Any] | None:
    """The task of an operator that has one, which does the same and knows more of it."""
    if isinstance(operator, Identity):
        return denoise
    if isinstance(operator, Blur):
        return partial(deblur, psf=operator.psf, border=operator.border)
    if isinstance(operator, VolumeBlur):
        z, y, x = operator.spacing
        return partial(deblur, psf=operator.psf, voxel_size=(z, y, x))
    if isinstance(operator, Downsample) and operator.factor > 1:
        border = operator.convolution.border
        return partial(upsample, factor=operator.factor, antialias=operator.kernel, phase=operator.phase, border=border)
    if isinstance(operator, Mask) and operator.missing.ndim == 2:
        return partial(inpaint, mask=operator.missing)
    return None


@dataclass(frozen=True)
class Layout:
    """How an image's axes are those of y.

    array: the image. channel_axis: where its channels are, or None. after: where those of the result are.
    """

    array: np.ndarray
    image: Array
    channel_axis: int | None
    after: int | None

    @classmethod
    def of(cls, image: Any, operator: Operator, channel_axis: int | None) -> Layout:
        taken = 2 + len(operator.y_planes)
        shape = tuple(getattr(image, "shape", np.shape(image)))
        made = operator.x_planes and not operator.y_planes  # one plane of several: channels are in the result alone
        inside = None if made and len(shape) == taken else channel_axis
        expected = (taken, taken + 1) if inside is not None else (taken,)
        if len(shape) not in expected:
            count = " or ".join(map(str, expected))
            rule = f"have {count} dimensions for this operator with channel_axis={channel_axis}"
            raise InputError("image", rule, shape, "The operator's y_planes and height and width count.")
        if inside is not None and not (isinstance(inside, int | np.integer) and -len(shape) <= inside < len(shape)):
            rule = f"name one of the image's {len(shape)} axes"
            raise InputError("channel_axis", rule, repr(channel_axis), "It is often -1.")
        array = _without_holes(image, operator, inside)
        after = inside
        if operator.x_planes and after is None:
            after = -1 if channel_axis is None else channel_axis
        return cls(array, image, inside, after)

    def planes(self, array: np.ndarray) -> np.ndarray:
        """An array like the image with the channels first, in double precision."""
        moved = array if self.channel_axis is None else np.moveaxis(array, self.channel_axis, 0)
        return np.array(moved, dtype=np.float64, order="C")


def _without_holes(image: Any, operator: Operator, channel_axis: int | None) -> np.ndarray:
    """The image, zero where y shows nothing, whatever it held there."""
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    if isinstance(image, np.ma.MaskedArray) or not np.issubdtype(array.dtype, np.floating):
        return as_numpy(image)
    if np.isfinite(array).all():
        return as_numpy(array)
    moved = array if channel_axis is None else np.moveaxis(array, channel_axis, 0)
    shown = torch.from_numpy(np.ones(moved.shape))
    x_shape = operator.x_shape((moved.shape[-2], moved.shape[-1]))
    nothing = shown.new_zeros(*operator.batch(shown), *operator.x_planes, *x_shape)
    holes = (operator.residual(shown, nothing) == 0).numpy()
    filled = np.where(holes, 0, moved).astype(array.dtype)
    return as_numpy(filled if channel_axis is None else np.moveaxis(filled, 0, channel_axis))


def _noise(sigma: Any, layout: Layout, operator: Operator) -> float | Tensor:
    """σ in pixel values: a number, or an array of y's shape."""
    rule, remedy = "be a number or an array of at least 0", "It is the noise's standard deviation in pixel values."
    if isinstance(sigma, str):
        raise InputError("sigma", rule, repr(sigma), "slir.noise.estimate_sigma estimates it for a plane.")
    values = sigma.detach().cpu().numpy() if isinstance(sigma, Tensor) else np.asarray(sigma)
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all() or not (values >= 0).all():
        shown = sigma if values.ndim == 0 and not is_finite(sigma) else "negative, not finite, or no number"
        raise InputError("sigma", rule, shown if values.ndim else repr(sigma), remedy)
    if values.ndim == 0:
        return float(values)
    try:
        spread = np.broadcast_to(values, layout.array.shape)
    except ValueError as error:
        rule = f"broadcast to the image's shape {layout.array.shape}"
        raise InputError("sigma", rule, f"of shape {values.shape}", remedy) from error
    return torch.from_numpy(layout.planes(spread))


def _given(
    images: Images,
    outcomes: list[Restoration],
    layout: Layout,
    whole: tuple[float, float],
    return_info: Info,
    started: float,
) -> Any:
    """The result as the user's kind of array, or a `Result` with what was measured."""
    array = layout.array
    limits = min(whole[0], float(array.min())), max(whole[1], float(array.max()))
    planes = images.planes([outcome.x for outcome in outcomes])
    tensor = layout.image if isinstance(layout.image, Tensor) else None
    frame = Canvas((images.range,) * len(planes), limits, array.dtype, array.shape, layout.after, tensor)
    picture = frame.image(planes)
    if not return_info:
        return picture
    span = images.range[1] - images.range[0]
    sigmas = [float(sigma) for sigma in images.sigmas]
    residuals = [float(value) for outcome in outcomes for value in np.ravel(outcome.residual)]
    single = layout.channel_axis is None
    stats = {
        "sigma": sigmas[0] * span if single else [sigma * span for sigma in sigmas],
        "residual": residuals[0] * span if single else [residual * span for residual in residuals],
        "seconds": time.perf_counter() - started,
        "stages": [outcome.stats for outcome in outcomes],
        "forward": None,
        "range": images.range,
    }
    if return_info == "stats":
        return Result(picture, stats, silence=UNASKED)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) < len(outcomes):
        return Result(picture, stats)
    each = [Restoration(plane, error=error) for plane, error in zip(planes, images.planes(errors))]
    restored = Restored(planes, sigmas, residuals, each)
    treatment = Treatment(tuple(sigmas), model=images.model)
    outlook = Outlook.of(restored, treatment, images.operator, frame)
    own = images.model.provenance.get("operator") == images.operator.describe()
    if outlook is not None and not outlook.reason and not own:
        outlook = replace(outlook, reason=UNCALIBRATED)
    return Result(picture, stats, outlook)


__all__ = ["restore"]
