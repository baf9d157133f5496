"""How strong the noise is, from the image alone: σ of white noise, or how its variance grows with brightness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from slir.compute import to_numpy
from slir.descriptors import dct_basis_on
from slir.errors import InputError

SIZE = 8
_LOW, _HIGH = 9, 11
"""Of a DCT coefficient's frequency u + v: below the first the picture is looked for, from the second on the noise."""
_MAX_PATCHES = 2**17
_MIN_PATCHES, _MIN_SHARE = 500, 0.01
_PASSES = 5
_END_SHARE = 1e-3
_MAD = 0.674489750196  # median of |n| for n ~ N(0, 1)


@overload
def estimate_sigma(image: np.ndarray | Tensor, *, channel_axis: None = None) -> float: ...
@overload
def estimate_sigma(image: np.ndarray | Tensor, *, channel_axis: int) -> list[float]: ...
def estimate_sigma(image: np.ndarray | Tensor, *, channel_axis: int | None = None) -> float | list[float]:
    """The standard deviation of white Gaussian noise, in units of the pixel values.

    image: (H, W), or with a channel axis. channel_axis: the axis of the channels, each of which gets an estimate of its
        own; None for one plane.

    >>> sigma = slir.noise.estimate_sigma(image)
    """
    if isinstance(image, Tensor) and channel_axis is None and image.ndim == 2 and image.is_floating_point():
        return _estimate_sigma(image)
    array = to_numpy(image, "image")
    expected = 2 if channel_axis is None else 3
    if array.ndim != expected:
        remedy = "Pass channel_axis=-1 for a colour image (H, W, C), or one plane at a time."
        raise InputError("image", f"have {expected} dimensions with channel_axis={channel_axis}", array.shape, remedy)
    if array.dtype.kind not in "buif" or not np.isfinite(array).all():
        found = array.dtype if array.dtype.kind not in "buif" else "NaN or infinite at some pixels"
        raise InputError("image", "hold finite real numbers", found, "Replace such pixels, or leave them out.")
    if channel_axis is None:
        return _estimate_sigma(torch.from_numpy(array.astype(np.float64)))
    if not (isinstance(channel_axis, int | np.integer) and -3 <= channel_axis <= 2):
        raise InputError("channel_axis", "name one of the image's 3 axes", repr(channel_axis), "It is often -1.")
    planes = np.moveaxis(array.astype(np.float64), channel_axis, 0)
    return [_estimate_sigma(plane) for plane in torch.from_numpy(np.ascontiguousarray(planes))]


def _estimate_sigma(image: Tensor) -> float:
    """σ of one plane (H, W).

    Noise is spread evenly over all DCT coefficients of a patch, pictures live in the low ones. So: take the patches
    whose low frequencies hold no more than noise does, and read the median absolute value of their highest ones (after
    Ponomarenko et al., 2007, and Liu et al., 2013). Choosing patches by other coefficients than those that are read
    keeps the choice from biasing the reading. What noise does is known once σ is, hence a few passes.

    Noise that was clipped at black or white reads too low, so patches within 2σ of such an end are left out. Noise that
    is not the same everywhere is read where there is least of it; see `estimate_poisson_gaussian`.
    """
    patches = _Patches.of(image, padded=True)
    if patches is None:
        return 0.0
    if len(patches.mean) < min(_MIN_PATCHES, patches.constant / 20):
        return 0.0  # all but a few pixels are of one colour
    least = max(_MIN_PATCHES, int(_MIN_SHARE * len(patches.mean)))
    variance = 0.0
    for _ in range(_PASSES):
        chosen = patches.flattest(patches.unclipped(2 * math.sqrt(variance), least), variance, least)
        variance = patches.variance(chosen)
    if patches.constant >= least and float(patches.busy[chosen].median()) > 10 * variance:
        return 0.0  # much of the picture is of one colour, and what varies is drawn: noise would be white
    return math.sqrt(variance)


_BINS, _MIN_IN_BIN, _MIN_SHARE_IN_BIN = 32, 50, 0.02
_OUTLYING = 0.1


def estimate_poisson_gaussian(image: Tensor) -> tuple[float, float]:
    """(a, b) of noise with variance a·x + b at brightness x, for one plane (H, W) where black is 0; a, b ≥ 0.

    a is the gain (what one photon, say, adds to a pixel), b the variance of what noise there is in the dark. Patches
    are binned by their mean, the variance in a bin is read as in `estimate_sigma`, and the line is fitted to these
    readings by their relative errors, in a way that forgives the bins where all patches have texture.

    The line is sure where the picture has flat parts; a and b on their own only if these differ in brightness.
    """
    patches = _Patches.of(image)
    if patches is None:
        return 0.0, 0.0
    darkest, brightest = float(patches.mean.min()), float(patches.mean.max())
    edges = torch.linspace(darkest, brightest, _BINS + 1).to(patches.mean)[1:-1]
    bin_of = torch.bucketize(patches.mean, edges)
    gain, offset = 0.0, 0.0
    for _ in range(_PASSES):
        # What tells b lies close to black, and is often clipped there: 1.5σ of distance is a compromise.
        distance = 1.5 * (gain * patches.mean.clamp(min=0) + offset).sqrt()
        unclipped = patches.unclipped(distance, len(patches.mean) // 10)
        readings = []
        for index in range(_BINS):
            members = unclipped[bin_of[unclipped] == index]
            if len(members) < _MIN_IN_BIN:
                continue
            expected = gain * max(0.0, float(patches.mean[members].mean())) + offset
            chosen = patches.flattest(members, expected, max(_MIN_IN_BIN, int(_MIN_SHARE_IN_BIN * len(members))))
            read, busy = patches.variance(chosen), float(patches.busy[chosen].mean())
            # Noise is white: so far as low frequencies hold more than the highest ones, they hold texture. And texture
            # does not average away, so that many patches earn less trust than they would by noise alone.
            trust = math.sqrt(len(chosen)) * read / max(read, busy, 1e-30)
            readings.append((float(patches.mean[chosen].mean()), read, trust))
        if len(readings) < 2:
            return 0.0, _estimate_sigma(image) ** 2
        gain, offset = _line(*np.array(readings).T)
    return gain, offset


def _line(brightness: np.ndarray, variance: np.ndarray, trust: np.ndarray) -> tuple[float, float]:
    """(a, b) ≥ 0 that minimise Σ trust · huber((variance − v) / v), v = a·brightness + b, by reweighting: all (bins,).

    Errors count relative to v because a variance that is read from n numbers is off by √(2/n) of itself.
    """
    brightness = brightness.clip(min=0)
    floor = 1e-6 * variance.max() + 1e-30
    fitted = np.full_like(variance, np.median(variance).clip(min=floor))
    terms = np.stack([brightness, np.ones_like(brightness)], 1)  # (bins, 2)
    for _ in range(20):
        outlying = np.abs(variance - fitted) / fitted / _OUTLYING
        weight = np.sqrt(trust / outlying.clip(min=1)) / fitted
        (gain, offset), _ = nnls(terms * weight[:, None], variance * weight)
        fitted = (gain * brightness + offset).clip(min=floor)
    return float(gain), float(offset)


@dataclass(frozen=True)
class _Patches:
    """What is seen at P patches of an image, the flattest first.

    mean: (P,). busy: (P,), the mean square of the low DCT coefficients but the DC. fine: (P, 10), the highest ones.
    room: (P,), from the mean to the nearer end at which the image was clipped. constant: how many more patches are
    constant; these are padding, or saturated, and know nothing about the noise.
    """

    mean: Tensor
    busy: Tensor
    fine: Tensor
    room: Tensor
    constant: int

    @classmethod
    def of(cls, image: Tensor, *, padded: bool = False) -> _Patches | None:
        """None where no patch varies. Patches overlap by three quarters, in large images by less, which bounds P.
        padded: leave out those that reach into padding or a hole."""
        if min(image.shape) < SIZE:
            return None
        step = max(2 if min(image.shape) >= 64 else 1, math.ceil(math.sqrt(image.numel() / _MAX_PATCHES)))
        patches = image.unfold(0, SIZE, step).unfold(1, SIZE, step).reshape(-1, SIZE**2)
        constant = patches.amax(1) == patches.amin(1)
        patches = patches[~constant]
        if not len(patches):
            return None
        if padded:
            whole = ~_half_empty(patches)
            patches = patches[whole] if int(whole.sum()) >= _MIN_PATCHES else patches
        basis = dct_basis_on(SIZE, image.dtype, image.device)
        steps = torch.arange(SIZE, device=image.device)
        frequency = (steps[:, None] + steps).reshape(-1)
        mean = patches.mean(1)
        busy = (patches @ basis[(frequency > 0) & (frequency < _LOW)].T).square().mean(1)
        fine = patches @ basis[frequency >= _HIGH].T
        room = torch.full_like(mean, math.inf)
        for end in (image.min(), image.max()):
            if int((image == end).sum()) > max(1, _END_SHARE * image.numel()):
                room = torch.minimum(room, (mean - end).abs())
        order = busy.argsort(stable=True)
        return cls(mean[order], busy[order], fine[order], room[order], int(constant.sum()))

    def unclipped(self, distance: Tensor | float, least: int) -> Tensor:
        """The patches with this much room, or the `least` with the most of it: indices, the flattest first."""
        most_room = self.room.topk(min(max(1, least), len(self.room))).values[-1]
        return (self.room >= torch.as_tensor(distance).to(self.room).clamp(max=most_room)).nonzero()[:, 0]

    def flattest(self, among: Tensor, variance: float, least: int) -> Tensor:
        """Those whose low frequencies hold no more than noise of this variance does, but no fewer than `least`."""
        return among[: max(least, int((self.busy[among] <= variance).sum()))]

    def variance(self, chosen: Tensor) -> float:
        """Of the noise in these patches, by the median, which edges in a few of them hardly move."""
        return (float(self.fine[chosen].abs().median()) / _MAD) ** 2


def _half_empty(patches: Tensor) -> Tensor:
    """Whether a side of a patch is of one value, as where it reaches into padding or a hole: (P, 64) -> (P,)."""
    squares = patches.view(-1, SIZE, SIZE)
    sides = torch.stack([squares[:, 0], squares[:, -1], squares[:, :, 0], squares[:, :, -1]])
    return (sides.amax(2) == sides.amin(2)).any(0)
