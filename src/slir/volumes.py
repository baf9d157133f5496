"""Volumes restored: stacks of planes (Z, Y, X) that a PSF of three axes has blurred, or that are noisy.

Array in, array out, as in `slir.restoration`. What is lighter than black counts as no light.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import is_lazy, pick_device, retry_on_oom
from slir.errors import InputError, is_finite
from slir.estimator.volume import restore_blocks
from slir.kernel.network import KernelNetwork
from slir.kernel.sections import denoise_sections, section_weights
from slir.kernel.shipped import default_model
from slir.noise import estimate_poisson_gaussian
from slir.operators import VolumeBlur
from slir.preprocessing.arrays import Array, as_numpy, pixel_range
from slir.preprocessing.stabilise import Evened, Stabiliser
from slir.preprocessing.treatment import POISSON_GAUSSIAN
from slir.restoration import MIN_SIDE, Settings, _given_model, _meter, restore_image
from slir.result import Result
from slir.solvers.nonnegative import Variance

if TYPE_CHECKING:
    from slir.estimator.loop import Progress, Restoration
    from slir.problem import Problem

UNKNOWN = "errors to expect are not for volumes: they were calibrated on planes"
"""Why there are no errors."""

SAMPLED = 16
"""Planes of a stack that its noise is told from at most."""

AXES = "zyx"

POISSON = "poisson"
"""In the place of σ: values count photons."""


@dataclass(frozen=True)
class Stack:
    """A user's volume: y with black at 0, in the user's unit, and the way back.

    image: what the user gave. limits: what integers are clipped to.
    """

    y: Tensor
    image: Array
    dtype: np.dtype
    black: float
    limits: tuple[float, float] | None

    @classmethod
    def of(cls, image: Array, data_range: Any, device: torch.device) -> Stack:
        array = as_numpy(image)
        black, limits = 0.0, None
        if data_range is not None:
            black, _ = pixel_range(array, data_range)
        if np.issubdtype(array.dtype, np.integer):
            limits = float(np.iinfo(array.dtype).min), float(np.iinfo(array.dtype).max)
        y = torch.from_numpy((array.astype(np.float64) - black).astype(np.float32)).to(device)
        return cls(y, image, array.dtype, black, limits)

    def back(self, x: Tensor) -> Array:
        """The user's kind of array: dtype, unit, device."""
        values = x.detach().cpu().numpy().astype(np.float64) + self.black
        if self.limits is not None:
            values = np.clip(np.rint(values), *self.limits)
        result = values.astype(self.dtype)
        return torch.from_numpy(result).to(self.image.device) if isinstance(self.image, Tensor) else result


def restore_stack(image: Array, problem: Problem, options: Settings = Settings()) -> Any:  # noqa: B008  (frozen)
    """What `slir.deblur` and `slir.denoise` do with volumes."""
    _check(image, problem, options)
    if options.channel_axis is not None:
        return _channels(image, problem, options)
    psf = problem.options.get("psf")
    if len(image) == 1 or (psf is not None and len(psf) == 1):
        return _planes(image, problem, options)
    started = time.perf_counter()
    device = pick_device(options.device)
    stack = Stack.of(image, options.data_range, device)
    variance = variance_of(stack.y, problem.sigma)
    network = _network(options, device)
    with _meter(options.progress, 1) as report:
        work = _deblurred if psf is not None else _denoised
        restored = retry_on_oom(lambda: work(stack, problem, network, variance, options, report(0)), device)
    result = stack.back(restored.x)
    if not options.return_info:
        return result
    stats = {
        "sigma": variance.mean(stack.y) ** 0.5,
        "gain": variance.gain,
        "variance": variance.offset,
        "residual": restored.residual,
        "seconds": time.perf_counter() - started,
        "stages": restored.stats,
        "forward": None,
    }
    return Result(result, stats, silence=UNKNOWN)


def _deblurred(
    stack: Stack,
    problem: Problem,
    network: KernelNetwork,
    variance: Variance,
    options: Settings,
    progress: Progress | None,
) -> Restoration:
    depth, height, width = stack.y.shape
    operator = problem.operator((height, width))
    assert isinstance(operator, VolumeBlur)  # the PSF has three axes
    observe = options.observe
    look = None if observe is None else lambda x: observe(stack.back(x))
    told: dict[str, Any] = {"progress": progress, "observe": look}
    return restore_blocks(stack.y, operator.of_depth(depth), network, variance, **told)


def _denoised(
    stack: Stack,
    problem: Problem,
    network: KernelNetwork,
    variance: Variance,
    options: Settings,
    progress: Progress | None,
) -> Restoration:
    """Where the noise is even, in planes of all sections, as far as it is to be removed."""
    from slir.estimator.loop import Restoration

    if variance.gain == variance.offset == 0:
        return Restoration(stack.y)
    span = max(float(stack.y.abs().max()), 1e-30)
    even = Evened(Stabiliser(variance.gain / span, variance.offset / span**2))
    y = even.forward(stack.y / span)
    amount = problem.amount
    x = denoise_sections(network, y, y, amount.level * even.sigma, section_weights(_spacing(problem)))
    restored = even.inverse(x) * span
    kept = torch.stack([amount.blend(*pair) for pair in zip(stack.y, restored)])
    if progress:
        progress(1, 1, "restoring")
    if options.observe is not None:
        options.observe(stack.back(kept))
    return Restoration(kept, [{"level": even.sigma * span}], float((stack.y - kept).square().mean().sqrt()))


def variance_of(y: Tensor, sigma: float | str) -> Variance:
    """The noise of a stack. sigma: of white noise; "poisson": the values count photons; "auto" and "poisson-gaussian"
    estimate how its variance grows with brightness."""
    if sigma == POISSON:
        return Variance(1.0, 0.0)
    if sigma in ("auto", POISSON_GAUSSIAN):
        step = -(-len(y) // SAMPLED)
        gain, offset = estimate_poisson_gaussian(torch.cat(list(y[::step])))
        return Variance(gain, offset)
    if isinstance(sigma, str) or not (is_finite(sigma) and sigma >= 0):
        rule = f"be 'auto', {POISSON!r}, {POISSON_GAUSSIAN!r} or a number of at least 0"
        raise InputError("sigma", rule, repr(sigma), f"Pass {POISSON!r} where values count photons.")
    return Variance(0.0, float(sigma) ** 2)


def _check(image: Array, problem: Problem, options: Settings) -> None:
    """Raise InputError for what volumes cannot be, in words that name the axis."""
    if is_lazy(image):
        raise InputError("image", "be in memory for volumes", "a Dask array", "Pass image.compute().")
    shape = tuple(np.shape(image))
    expected = 3 if options.channel_axis is None else 4
    if len(shape) != expected:
        rule = f"have the axes (Z, Y, X){' and channels' if expected == 4 else ''} for volumes"
        remedy = "Pass a PSF of two axes for single planes, or channel_axis for stacks of several channels."
        raise InputError("image", rule, f"of shape {shape}", remedy)
    _spacing(problem)
    if options.channel_axis is not None:
        return
    if min(shape[1:]) < MIN_SIDE:
        axis = AXES[1 + int(np.argmin(shape[1:]))]
        remedy = "The order is (Z, Y, X): move the planes first, or pad the volume."
        raise InputError("image", f"have at least {MIN_SIDE} voxels along {axis}", f"of shape {shape}", remedy)
    psf = problem.options.get("psf")
    if psf is None:
        return
    for axis, own, side in zip(AXES, np.shape(psf), shape):
        if own > side:
            remedy = "Crop the PSF to its support along this axis, or check the order of axes, (Z, Y, X)."
            rule = f"be no larger than the volume along {axis}, {side}"
            raise InputError("psf", rule, own, remedy)


def _spacing(problem: Problem) -> tuple[float, float, float]:
    """Distances of voxels (z, y, x); of voxels of unknown size the same."""
    size: Sequence[float] | None = problem.options.get("voxel_size")
    if size is None:
        return 1.0, 1.0, 1.0
    if np.shape(size) != (3,) or not all(is_finite(step) and step > 0 for step in size):
        raise InputError("voxel_size", "be three positive numbers, (z, y, x)", size, "Pass (200, 65, 65), for example.")
    return float(size[0]), float(size[1]), float(size[2])


def _network(options: Settings, device: torch.device) -> KernelNetwork:
    """The learnt kernel of a model."""
    from slir.operators import Identity

    model = (_given_model(options.model) or default_model(Identity())).to(device)
    network = getattr(model.stages[0], "network", None)
    if network is None:
        remedy = "Leave it out: the learnt kernel restores volumes."
        raise InputError("model", "begin with a learnt kernel for volumes", "the paper's stages", remedy)
    return network


def _channels(image: Array, problem: Problem, options: Settings) -> Any:
    """Each channel by itself."""
    from dataclasses import replace

    axis = options.channel_axis
    if not (isinstance(axis, int | np.integer) and -4 <= axis < 4):
        raise InputError("channel_axis", "name one of the volume's 4 axes", repr(axis), "It is often 0 or -1.")
    if options.return_info:
        remedy = "Pass one channel at a time."
        raise InputError("return_info", "be left out for volumes of several channels", options.return_info, remedy)
    own = replace(options, channel_axis=None)
    if isinstance(image, Tensor):
        return torch.stack([restore_stack(one, problem, own) for one in image.unbind(int(axis))], int(axis))
    parts = [restore_stack(one, problem, own) for one in np.moveaxis(np.asarray(image), axis, 0)]
    return np.stack(parts, int(axis))


def _planes(image: Array, problem: Problem, options: Settings) -> Any:
    """Planes that have nothing to do with each other, each as a picture."""
    own = problem.as_planes()
    results = [restore_image(plane, own, options) for plane in image]
    if not options.return_info:
        return torch.stack(results) if isinstance(image, Tensor) else np.stack(results)
    pictures = [result.image for result in results]
    whole = torch.stack(pictures) if isinstance(image, Tensor) else np.stack(pictures)
    return Result(whole, {"planes": [result.stats for result in results]}, silence=UNKNOWN)
