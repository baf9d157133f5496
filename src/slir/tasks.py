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
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, TypeVar, Unpack, overload

from slir.errors import InputError
from slir.preprocessing.amount import Amount
from slir.problem import REQUIRED, Options, Problem, Size, Task, register

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    import torch

    from slir.kernel.degradations import Family
    from slir.model import Model
    from slir.operators import Operator
    from slir.operators.blur import Blur
    from slir.operators.convolution import Border
    from slir.operators.downsample import Antialias
    from slir.preprocessing.arrays import Array, DataRange
    from slir.result import Result

    Seed = int | np.random.Generator | torch.Generator | None
    A = TypeVar("A", np.ndarray, torch.Tensor)

Progress = bool | Callable[[int, int, str], None]
Observe = Callable[[Any], None] | None
Info = bool | Literal["stats"]


class Shared(TypedDict, total=False):
    """The keyword arguments of all tasks but `return_info`, for type checkers."""

    model: Model | str | PathLike | None
    data_range: DataRange
    channel_axis: int | None
    device: str | torch.device | None
    rng: Seed
    progress: Progress
    observe: Observe


@register
class Denoise(Task):
    """y = x + ε."""

    name, done = "denoise", "denoised"
    usual_sigma = "10%"
    grows = True
    options: ClassVar[Options] = {"strength": 1.0, "chroma": None, "axes": None, "voxel_size": None}

    def operator(self, options: Options, size: Size | None) -> Operator:
        from slir.operators import Identity

        return Identity()

    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        from slir.kernel.degradations import Noise, noise_levels

        return Noise(**noise_levels(sigma))

    def amount(self, options: Options) -> Amount:
        return Amount.of(options["strength"], options["chroma"])

    def volumetric(self, options: Options) -> bool:
        return options["axes"] == "ZYX"

    def as_planes(self, options: Options) -> Options:
        return {**options, "axes": "YX"}

    def check(self, options: Options) -> None:
        self.amount(options)
        if options["axes"] not in (None, "YX", "ZYX"):
            remedy = "Move the axes of the image; channels are told by channel_axis."
            raise InputError("axes", "be 'YX' for planes or 'ZYX' for volumes", repr(options["axes"]), remedy)


@overload
def denoise(
    image: A,
    *,
    sigma: float | str = "auto",
    strength: float = 1.0,
    chroma: float | None = None,
    axes: Literal["YX", "ZYX"] | None = None,
    voxel_size: tuple[float, float, float] | None = None,
    return_info: Literal[False] = False,
    **shared: Unpack[Shared],
) -> A: ...
@overload
def denoise(
    image: Array,
    *,
    sigma: float | str = "auto",
    strength: float = 1.0,
    chroma: float | None = None,
    axes: Literal["YX", "ZYX"] | None = None,
    voxel_size: tuple[float, float, float] | None = None,
    return_info: Literal[True, "stats"],
    **shared: Unpack[Shared],
) -> Result: ...
def denoise(
    image: Array,
    *,
    sigma: float | str = "auto",
    strength: float = 1.0,
    chroma: float | None = None,
    axes: Literal["YX", "ZYX"] | None = None,
    voxel_size: tuple[float, float, float] | None = None,
    model: Model | str | PathLike | None = None,
    data_range: DataRange = None,
    channel_axis: int | None = None,
    device: str | torch.device | None = None,
    rng: Seed = None,
    progress: Progress = False,
    observe: Observe = None,
    return_info: Info = False,
) -> Any:
    """Remove noise from an image.

    image: (H, W), or with a channel axis. sigma: the standard deviation of white noise in units of the pixel values (25
    on an 8-bit image, 0.1 on a float image of range 1), or "auto" to find the noise: white noise, or noise as cameras
    and JPEG leave it, whose level depends on brightness. Too small leaves noise, too large smooths detail away.
    strength: how much of the noise is removed, 0 to 3: 1 removes what was found, 0.7 keeps some grain, 1.5 assumes a
    higher level. chroma: the same for differences between colours; as the strength by default.
    "poisson-gaussian" is for noise whose variance grows with brightness, as that of light
    does: how it grows is estimated per channel, and the image is restored where the noise is even
    (`slir.preprocessing.stabilise`). Black has to be 0 for that, or given with data_range.
    axes: "ZYX" denoises a stack (Z, Y, X) as a volume, in planes of all three directions. "auto" is then
    "poisson-gaussian", and "poisson" says that values count photons. voxel_size: (z, y, x) in any unit; the finer the
    pixels of a direction, the more its planes count.

    >>> restored = slir.denoise(image, sigma=25)
    """
    given = {"strength": strength, "chroma": chroma, "axes": axes, "voxel_size": voxel_size}
    problem = Problem("denoise", sigma=sigma, **given)
    return _restore(image, problem, model, data_range, channel_axis, device, rng, progress, observe, return_info)


@register
class Deblur(Task):
    """y = psf * x + ε."""

    name, done = "deblur", "deblurred"
    usual_sigma = "1%"
    options: ClassVar[Options] = {"psf": REQUIRED, "border": "unknown", "voxel_size": None}
    particular = "psf"

    def volumetric(self, options: Options) -> bool:
        return _is_volume(options["psf"])

    def as_planes(self, options: Options) -> Options:
        return {**options, "psf": options["psf"][0], "voxel_size": None}

    def check(self, options: Options) -> None:
        if self.volumetric(options) and options["border"] != "unknown":
            remedy = "Leave it out: what lies beyond a volume is unknown."
            raise InputError("border", "be 'unknown' for a PSF of three axes", repr(options["border"]), remedy)

    def operator(self, options: Options, size: Size | None) -> Operator:
        from slir.operators.blur import checked_psf

        if self.volumetric(options):  # of one plane; the loop takes as many as there are
            from slir.operators import VolumeBlur

            return VolumeBlur(options["psf"], 1, options["voxel_size"] or (1, 1, 1))
        kernel = checked_psf(options["psf"])
        tall, wide = kernel.shape
        if size is not None and (tall > size[0] or wide > size[1]):
            rule = f"be no larger than the image, {size[0]}×{size[1]}"
            raise InputError("psf", rule, f"{tall}×{wide}", "Crop the PSF to its support, or pass a larger image.")
        return _same_blur(kernel.numpy().tobytes(), (tall, wide), options["border"])

    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        from slir.kernel.degradations import AnyBlur, noise_levels

        return AnyBlur(**noise_levels(sigma))


def _is_volume(psf: Any) -> bool:
    """Whether a PSF has three axes."""
    return len(getattr(psf, "shape", ())) == 3


@lru_cache(maxsize=8)
def _same_blur(psf: bytes, shape: Size, border: Border) -> Blur:
    """One operator for all images of a blur, so that what it keeps (spectra, recordings) is made once."""
    import numpy as np

    from slir.operators.blur import Blur

    return Blur(np.frombuffer(psf).reshape(shape).copy(), border)


@overload
def deblur(
    image: A,
    psf: Array,
    *,
    sigma: float | str = "auto",
    border: Border = "unknown",
    voxel_size: tuple[float, float, float] | None = None,
    return_info: Literal[False] = False,
    **shared: Unpack[Shared],
) -> A: ...
@overload
def deblur(
    image: Array,
    psf: Array,
    *,
    sigma: float | str = "auto",
    border: Border = "unknown",
    voxel_size: tuple[float, float, float] | None = None,
    return_info: Literal[True, "stats"],
    **shared: Unpack[Shared],
) -> Result: ...
def deblur(
    image: Array,
    psf: Array,
    *,
    sigma: float | str = "auto",
    border: Border = "unknown",
    voxel_size: tuple[float, float, float] | None = None,
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

    A PSF of three axes (D, K, L) deblurs volumes (Z, Y, X) of light, whose values are nowhere below black (0, or that
    of data_range). sigma is then a number for white noise, "poisson" where values count photons, or "auto", which
    estimates how the noise grows with brightness. voxel_size: (z, y, x) in any unit, where voxels are longer along one
    axis.

    >>> restored = slir.deblur(image, slir.psf.gaussian(1.5), sigma=2)
    >>> restored = slir.deblur(stack, slir.psf.widefield(1.4, 520, (200, 65, 65)), voxel_size=(200, 65, 65))
    """
    problem = Problem("deblur", sigma=sigma, psf=psf, border=border, voxel_size=voxel_size)
    return _restore(image, problem, model, data_range, channel_axis, device, rng, progress, observe, return_info)


@register
class Upsample(Task):
    """y = every f-th pixel of a filtered x, + ε. size: (height, width) of the result, in place of the factor."""

    name, done = "upsample", "upsampled"
    sigma = 0
    options: ClassVar[Options] = {
        "factor": None, "size": None, "antialias": "bicubic", "phase": None, "border": "reflect"
    }  # fmt: skip
    particular = "antialias"

    def operator(self, options: Options, size: Size | None) -> Operator:
        from slir.operators import Downsample

        factor = math.ceil(self.scale(options))
        return Downsample(factor, options["antialias"], phase=options["phase"], border=options["border"])

    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        from slir.kernel.degradations import AnyDownsampling, noise_levels

        return AnyDownsampling(options["factor"], **noise_levels(sigma, clean=True))

    def scale(self, options: Options) -> float:
        return options["factor"] or 1  # while it is not known, as the size of y is not

    def at_size(self, options: Options, size: Size) -> Options:
        from slir.preprocessing.resampling import factor_of

        return {**options, "factor": factor_of(options["factor"], options["size"], size), "size": None}

    def at_whole_scale(self, options: Options) -> Options:
        return {**options, "factor": math.ceil(options["factor"])}

    def check(self, options: Options) -> None:
        from slir.preprocessing.resampling import check_one, checked_factor

        factor, size, phase = options["factor"], options["size"], options["phase"]
        check_one(factor, size)
        if factor is not None and checked_factor(factor) != int(factor) and phase is not None:
            rule = "be left out where the factor is not whole"
            raise InputError("phase", rule, phase, f"Leave it out, or pass a factor of {math.ceil(factor)}.")


@overload
def upsample(
    image: A,
    factor: float | None = None,
    *,
    size: tuple[int, int] | None = None,
    antialias: Antialias = "bicubic",
    sigma: float | str = 0,
    phase: int | None = None,
    border: Border = "reflect",
    return_info: Literal[False] = False,
    **shared: Unpack[Shared],
) -> A: ...
@overload
def upsample(
    image: Array,
    factor: float | None = None,
    *,
    size: tuple[int, int] | None = None,
    antialias: Antialias = "bicubic",
    sigma: float | str = 0,
    phase: int | None = None,
    border: Border = "reflect",
    return_info: Literal[True, "stats"],
    **shared: Unpack[Shared],
) -> Result: ...
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
    given = {"factor": factor, "size": size, "antialias": antialias, "phase": phase, "border": border}
    problem = Problem("upsample", sigma=sigma, **given)
    return _restore(image, problem, model, data_range, channel_axis, device, rng, progress, observe, return_info)


@register
class Inpaint(Task):
    """y = known · x + ε."""

    name, done = "inpaint", "inpainted"
    sigma = 0
    masked = True
    particular = "mask"

    def operator(self, options: Options, size: Size | None) -> Operator:
        import numpy as np

        from slir.operators import Mask

        return Mask(np.zeros((1, 1), bool) if options["mask"] is None else options["mask"])

    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        from slir.kernel.degradations import AnyMask, noise_levels

        return AnyMask(**noise_levels(sigma, clean=True))


@overload
def inpaint(
    image: A, mask: Array, *, sigma: float | str = 0, return_info: Literal[False] = False, **shared: Unpack[Shared]
) -> A: ...
@overload
def inpaint(
    image: Array, mask: Array, *, sigma: float | str = 0, return_info: Literal[True, "stats"], **shared: Unpack[Shared]
) -> Result: ...
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
    problem = Problem("inpaint", sigma=sigma, mask=mask)
    return _restore(image, problem, model, data_range, channel_axis, device, rng, progress, observe, return_info)


def _restore(image: Array, problem: Problem, *settings: Any) -> Any:
    from slir.restoration import Settings, restore_image  # torch takes its time

    if problem.volumetric:
        from slir.volumes import restore_stack

        return restore_stack(image, problem, Settings(*settings))
    return restore_image(image, problem, Settings(*settings))


__all__ = ["denoise", "deblur", "upsample", "inpaint"]
