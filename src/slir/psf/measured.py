"""Kernels that were measured: an image of a bead or a star, an array, a file."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any, Literal

import numpy as np
from scipy import ndimage

from slir.compute import to_numpy
from slir.errors import InputError
from slir.psf.measures import centroid
from slir.psf.parts import check_size, framed, trimmed

_SMALLEST = 9  # pixels a side: a frame of background around an object of a few pixels
_DETECTION = 20.0  # the least peak, in standard deviations of the noise, both after smoothing
_COMPARABLE = 0.25  # of the peak: from here on an object could be the one that is meant
_FAINTEST = 1e-3  # of the peak: what is darker is left out, even where there is no noise


def from_image(
    image: np.ndarray,
    *,
    background: float | Literal["auto"] = "auto",
    size: int | None = None,
    saturation: float | None = None,
) -> np.ndarray:
    """The PSF that an image of one bead or star shows: (H, W) of any unit -> (K, L), its centroid on the centre pixel.
    A stack (Z, H, W) of a bead gives the PSF of a volume.

    The background is subtracted; what is brighter than the noise and holds together with the brightest object is kept,
    and two pixels around it; it is moved by a fraction of a pixel (by a quintic spline) until its centroid lies on the
    centre pixel. Values below zero are dealt with by

        k = max(v − t, 0),   t such that Σ k = Σ v,

    the nearest non-negative kernel that holds as much light: clipping alone would turn noise into light.

    image : grey and linear in the light (raw or TIFF, not a JPEG of a camera), with background on all sides. The bead
        should be smaller than the blur, since its own size is not taken out.
    background : the value of an empty pixel; "auto" takes the mean over the image's frame, outliers left out.
    size : the side, an odd number; by default as large as the object needs.
    saturation : the value from which pixels are clipped. By default 255 or 65535 for these integers, and a plateau of
        equal largest values counts as clipped too.

    Single bright pixels are taken for defects of the camera. Raises InputError for an image that is too small or too
    noisy, for an object that is clipped or cut by an edge, and for several objects of which the second has at least a
    quarter of the peak of the first.

    >>> kernel = slir.psf.from_image(tifffile.imread("bead.tif"))
    """
    values = _plane(image)
    check_size(size)
    frame = np.ones(values.shape, dtype=bool)
    width = max(1, min(values.shape) // 10)
    frame[(slice(width, -width),) * values.ndim] = False
    level, noise = _level_and_noise(values[frame])
    excess = values - (level if background == "auto" else _checked_background(background))
    excess = _without_hot_pixels(excess, noise)
    smooth = ndimage.gaussian_filter(excess, 1.0, mode="nearest")
    rounding = 1e-12 * np.abs(values).max()
    region = _only_object(smooth, max(_level_and_noise(smooth[frame])[1], rounding))
    digit = np.diff(np.unique(values[frame])).min(initial=np.inf)
    _check_saturation(np.asarray(image), excess, region, noise > 2 * digit, saturation)
    region = ndimage.binary_dilation(region, _touching(region), iterations=2)
    light = np.where(region, excess, 0)[ndimage.find_objects(region.astype(int))[0]]
    if not light.sum() > 0:
        raise InputError("background", "be darker than the object", background, "Let it be estimated: 'auto'.")
    kernel = _centred(light)
    if size is None:
        return kernel
    cut = framed(kernel, int(size))
    if cut.sum() < 0.95:
        rule = f"hold the object, which needs {max(kernel.shape)}"
        raise InputError("size", rule, size, "Leave it out, or make it larger.")
    return cut / cut.sum()


def from_array(kernel: np.ndarray, *, centred: bool = False) -> np.ndarray:
    """A kernel of any scale and size as a PSF: (K, L), or (Z, K, L) for volumes -> odd-sized, divided by its sum.

    An even side gains a row, column or plane of zeros before the first, which leaves the centre where `slir.deblur`
    takes it to be. With `centred` the kernel is moved until its centroid lies on its centre pixel.
    """
    values = _plane(kernel, "kernel", smallest=1)
    if values.min() < -1e-6 * abs(values.max()):
        remedy = "Subtract its background, or let slir.psf.from_image do it."
        raise InputError("kernel", "be non-negative", f"as low as {values.min():.3g}", remedy)
    values = np.clip(values, 0, None)
    total = values.sum()
    if not total > 0:
        raise InputError("kernel", "hold some light", "zero everywhere", "Check where it comes from.")
    values = np.pad(values / total, [(1 - side % 2, 0) for side in values.shape])
    return _centred(values) if centred else values / values.sum()


def from_file(path: str | os.PathLike[str], *, centred: bool = False) -> np.ndarray:
    """`from_array` of a kernel in a .npy, .csv, .txt, .png or .tif file."""
    from slir.io.kernels import read_psf

    return from_array(read_psf(path), centred=centred)


def _plane(image: Any, name: str = "image", smallest: int = _SMALLEST) -> np.ndarray:
    """(H, W) or (Z, H, W), float64 of finite numbers."""
    array = to_numpy(image, name)
    coloured = array.ndim == 3 and array.shape[-1] in (1, 3, 4) and smallest > 1
    if array.ndim not in (2, 3) or coloured or array.dtype.kind not in "biuf":
        found = f"{array.dtype} of shape {array.shape}"
        rule = "be a grey image or stack: numbers in one plane or several"
        raise InputError(name, rule, found, "Pass one channel, e.g. image[..., 1].")
    if min(array.shape) < smallest:
        remedy = "Crop less closely around the object."
        raise InputError(name, f"have sides of at least {smallest} pixels", f"of shape {array.shape}", remedy)
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError(name, "be finite", "partly NaN or infinite", "Replace these values by those around them.")
    return array


def _level_and_noise(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of what is left once values beyond three standard deviations are left out.

    The mean, not the median, which on integers is off by up to half a grey level: too much for a sum over pixels.
    """
    while True:
        kept = values[np.abs(values - np.median(values)) <= 3 * values.std()]
        if len(kept) in (0, len(values)):
            return float(values.mean()), float(values.std())
        values = kept


def _checked_background(background: Any) -> float:
    try:
        level = float(background)
    except (TypeError, ValueError):
        level = math.nan
    if not math.isfinite(level):
        remedy = "Pass the value of an empty pixel."
        raise InputError("background", "be 'auto' or a finite number", repr(background), remedy)
    return level


def _without_hot_pixels(excess: np.ndarray, noise: float) -> np.ndarray:
    """Bright pixels whose neighbours hold less than a tenth of their light are defects: medians replace them."""
    around = ndimage.uniform_filter(excess, 3, mode="nearest") * 3**excess.ndim - excess
    places = np.nonzero((excess > 10 * noise) & (around < 0.1 * excess))
    padded = np.pad(excess, 1, mode="edge")
    steps = itertools.product(range(3), repeat=excess.ndim)
    blocks = [padded[tuple(place + own for place, own in zip(places, step))] for step in steps]  # 9 × (count,)
    mended = excess.copy()
    mended[places] = np.median(blocks, axis=0)
    return mended


def _touching(values: np.ndarray) -> np.ndarray:
    """A pixel touches its 8 neighbours, a voxel its 26."""
    return np.ones((3,) * values.ndim, dtype=bool)


def _only_object(smooth: np.ndarray, noise: float) -> np.ndarray:
    """Where the one bright object is: bool. InputError unless there is one, by itself and off the edges.

    smooth : the image above its background, smoothed; noise : what is left of the noise in it.
    """
    at = np.unravel_index(smooth.argmax(), smooth.shape)
    peak = float(smooth[at])
    if not peak > _DETECTION * noise:
        found = f"{peak / noise:.1f} times above it" if peak > noise else "no brighter than its frame"
        remedy = "Expose longer or average several images; single bright pixels do not count."
        raise InputError("image", f"show an object {_DETECTION:g} times above the noise", found, remedy)
    objects, _ = ndimage.label(smooth > max(0.05 * peak, 5 * noise), _touching(smooth))
    rivals = (objects > 0) & (objects != objects[at]) & (smooth >= _COMPARABLE * peak)
    if rivals.any():
        count = 1 + len(np.unique(objects[rivals]))
        raise InputError("image", "show one bead or star", f"showing {count}", "Crop it around one of them.")
    regions, _ = ndimage.label(smooth > max(_FAINTEST * peak, 3 * noise), _touching(smooth))
    region = regions == regions[at]
    if any(region.take([0, -1], axis).any() for axis in range(region.ndim)):
        remedy = "Leave more background on all sides of the object."
        raise InputError("image", "be dark along its edges", "bright at an edge that the object reaches", remedy)
    return region


def _check_saturation(
    image: np.ndarray, excess: np.ndarray, region: np.ndarray, fine: bool, saturation: float | None
) -> None:
    """Raise InputError for an object that is clipped.

    image, excess, region : of one shape; the values as they came and above the background, and where the object is.
    fine : whether values are told apart more finely than the noise is wide. Then many equal ones are no chance.
    """
    if saturation is None and image.dtype in (np.uint8, np.uint16):
        saturation = float(np.iinfo(image.dtype).max)
    top, light = image[region].max(), excess[region]
    equal, bright = np.count_nonzero(image[region] == top), np.count_nonzero(light > 0.5 * light.max())
    if (saturation is not None and top >= saturation) or (fine and equal >= max(3, 0.1 * bright)):
        found = f"clipped at {top:g} in {equal} pixel{'s' if equal > 1 else ''}"
        raise InputError("image", "not be saturated", found, "Expose shorter, or choose a fainter object.")


def _centred(values: np.ndarray) -> np.ndarray:
    """Values with nothing around them, moved so that their centroid lies on the centre pixel."""
    margin = 6  # pixels over which the spline's answer to an edge dies away
    kernel = _non_negative(values)
    place = np.array(centroid(kernel)) + np.array(values.shape) // 2  # in pixels of `values`
    for _ in range(30):
        nearest = np.rint(place).astype(int)
        half = np.maximum(nearest, np.array(values.shape) - 1 - nearest) + 1
        canvas = np.zeros(2 * (half + margin) + 1)
        first = half + margin - nearest
        canvas[tuple(slice(start, start + side) for start, side in zip(first, values.shape))] = values
        moved = ndimage.shift(canvas, nearest - place, order=5, mode="constant")
        kernel = _non_negative(moved[(slice(margin, -margin),) * values.ndim])
        drift = np.array(centroid(kernel))  # what clipping did
        place = place + drift
        if np.abs(drift).max() < 1e-7:
            break
    return trimmed(kernel / kernel.sum())


def _non_negative(values: np.ndarray) -> np.ndarray:
    """max(v − t, 0) with t such that the sum stays: the projection onto non-negative arrays of that sum."""
    falling = np.sort(values, axis=None)[::-1]
    surplus = (np.cumsum(falling) - values.sum()) / np.arange(1, values.size + 1)
    t = surplus[np.nonzero(falling > surplus)[0][-1]]
    return np.maximum(values - max(t, 0.0), 0)  # t ≥ 0 but for rounding
