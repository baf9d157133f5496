"""Point spread functions of the usual blurs.

All are float64, odd-sized, centred, non-negative and sum to one; all but `camera_shake` are symmetric about their
centre.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.signal import lfilter
from scipy.special import j1

from slir.errors import InputError

_SAMPLES = 128  # a pixel, along the line that is integrated numerically
_INSTANTS = 4096  # of the exposure during which a camera shakes: a fraction of a pixel apart up to 100 pixels
_FIRST_ZERO, _THIRD_ZERO = 3.8317059702075125, 10.173468135062722  # of the Bessel function J₁


def gaussian(
    sigma: float, size: int | None = None, *, sigma_across: float | None = None, angle: float = 0.0
) -> np.ndarray:
    """Out of focus or through turbulent air, roughly: a Gaussian of standard deviation `sigma` pixels.

    It is sampled at the pixel centres, as `scipy.ndimage.gaussian_filter` does it. `size` is the side, an odd
    number; by default it reaches four standard deviations each way.

    sigma_across : with it the Gaussian is elongated, `sigma` along the direction `angle` and this across it.
    angle : degrees from "to the right", counter-clockwise as the picture is seen: 90 is up.
    """
    _check("sigma", sigma, "It is the standard deviation in pixels, such as 1.6.")
    _check_angle(angle)
    _check_size(size)
    if sigma_across is None:
        side = 2 * math.ceil(4 * sigma) + 1 if size is None else int(size)
        at = np.arange(side) - side // 2
        line = np.exp(-0.5 * (at / sigma) ** 2)
        kernel = np.outer(line, line)
        return kernel / kernel.sum()
    _check("sigma_across", sigma_across, "It is the standard deviation across the angle in pixels, such as 0.8.")
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    spread = math.hypot(sigma * sin, sigma_across * cos), math.hypot(sigma * cos, sigma_across * sin)  # rows, columns
    tall, wide = (math.ceil(4 * each - 1e-9) if size is None else int(size) // 2 for each in spread)
    row, column = np.arange(-tall, tall + 1)[:, None], np.arange(-wide, wide + 1)[None, :]
    along, across = column * cos - row * sin, column * sin + row * cos  # rows count downwards
    kernel = np.exp(-0.5 * ((along / sigma) ** 2 + (across / sigma_across) ** 2))
    return kernel / kernel.sum()


def motion(length: float, angle: float) -> np.ndarray:
    """The camera moved along a straight line of `length` pixels, evenly.

    angle : degrees from "to the right", counter-clockwise as the picture is seen: 90 is up. A motion and its reverse
        are the same.

    The line is spread over the pixels next to it in proportion to their nearness (bilinearly), so that lengths and
    angles between whole pixels count. A line of length 1 is thus a little wider than a pixel.
    """
    _check("length", length, "It is the length of the path in pixels, such as 15.")
    _check_angle(angle)
    count = max(1, math.ceil(length * _SAMPLES))
    along = ((np.arange(count) + 0.5) / count - 0.5) * length  # midpoints of equal pieces
    turn = math.radians(angle)
    x, y = along * math.cos(turn), -along * math.sin(turn)  # rows count downwards
    kernel = _drawn(y, x, np.ones(count), math.ceil(length / 2) + 1)
    kernel = (kernel + kernel[::-1, ::-1]) / 2  # exactly symmetric, whatever rounding did
    return _trimmed(kernel / kernel.sum())


def defocus(radius: float) -> np.ndarray:
    """The lens was out of focus: a disk of `radius` pixels, every pixel weighted by how much of it the disk covers."""
    _check("radius", radius, "It is the radius in pixels of the disk that a point of light becomes, such as 3.5.")
    half = max(0, math.ceil(radius - 0.5))
    side = 2 * half + 1
    # Along x by midpoints, along y exactly: the disk spans −h … h above x, a pixel row j − ½ … j + ½.
    x = (np.arange(side * _SAMPLES) + 0.5) / _SAMPLES - half - 0.5
    h = np.sqrt(np.clip(radius**2 - x**2, 0, None))[None, :]
    row = (np.arange(side) - half)[:, None]
    covered = np.clip(np.minimum(h, row + 0.5) - np.maximum(-h, row - 0.5), 0, None)  # (side, side · samples)
    kernel = covered.reshape(side, side, _SAMPLES).mean(axis=2)
    kernel = (kernel + kernel.T) / 2
    kernel = (kernel + kernel[::-1, ::-1]) / 2
    return _trimmed(kernel / kernel.sum())


def airy(radius: float, size: int | None = None) -> np.ndarray:
    """A perfect lens whose round aperture diffracts: (2 J₁(r)/r)², its first dark ring `radius` pixels from the centre.

    Every pixel holds the mean of the pattern over its area. `size` is the side, an odd number; by default it reaches
    the third dark ring, inside of which lie 94 % of the light.
    """
    _check("radius", radius, "It is the radius in pixels of the first dark ring, such as 2.4.")
    _check_size(size)
    reach = radius * _THIRD_ZERO / _FIRST_ZERO
    side = 2 * max(0, math.ceil(reach - 0.5)) + 1 if size is None else int(size)
    # The pattern varies over the radius: a dozen samples for each. An even number a pixel has none at r = 0.
    samples = 2 * min(math.ceil(max(2, 6 / radius)), _SAMPLES // 2)
    at = (np.arange(side * samples) + 0.5) / samples - side / 2
    r = np.hypot(at[:, None], at[None, :]) * (_FIRST_ZERO / radius)
    kernel = ((2 * j1(r) / r) ** 2).reshape(side, samples, side, samples).mean(axis=(1, 3))
    kernel = (kernel + kernel.T) / 2
    kernel = (kernel + kernel[::-1, ::-1]) / 2
    return kernel / kernel.sum()


def camera_shake(
    extent: float, rng: np.random.Generator | int = 0, size: int | None = None, *, softness: float = 0.0
) -> np.ndarray:
    """A hand held the camera: a random path that spans `extent` pixels, brighter where the hand went slowly.

    The velocity v is a random walk with inertia, thrown off course by a jerk now and then; at each instant t of the
    exposure light falls at x(t) in proportion to a dwell w(t), itself a random walk:

        v(t+1) = ρ v(t) + e(t) + jerks,   x(t+1) = x(t) + v(t),   psf = Σₜ w(t) δ(x(t))

    extent : the longer side of the box around the path, whose centre is the kernel's.
    rng : NumPy's generator, or a seed. The same path comes out at every extent.
    size : the side, an odd number; by default as large as the path needs.
    softness : standard deviation in pixels of a Gaussian blur on top, for what a lens adds.
    """
    _check("extent", extent, "It is how many pixels the path spans, such as 20.")
    _check_size(size)
    if not (math.isfinite(softness) and softness >= 0):
        remedy = "It is the standard deviation in pixels of a Gaussian, such as 0.4."
        raise InputError("softness", "be a finite number of at least 0", softness, remedy)
    rng = np.random.default_rng(rng)
    memory = math.exp(rng.uniform(math.log(0.06), math.log(0.4)))  # from a zigzag to hardly a bend
    path = _wander(rng, 2, memory, jerks=rng.poisson(1.0)).cumsum(axis=1)
    dwell = np.exp(0.8 * _wander(rng, 1, 0.06)[0])
    low, high = path.min(axis=1, keepdims=True), path.max(axis=1, keepdims=True)
    y, x = (path - (low + high) / 2) * (extent / (high - low).max())
    kernel = _drawn(y, x, dwell, math.ceil(extent / 2) + 1 + math.ceil(4 * softness))
    if softness > 0:
        kernel = gaussian_filter(kernel, softness, mode="constant")
    kernel = _trimmed(np.where(kernel < 1e-3 * kernel.max(), 0, kernel))  # no long faint tails around the path
    if size is None:
        return kernel
    if size < max(kernel.shape):
        raise InputError("size", f"hold the path, which needs {max(kernel.shape)}", size, "Make extent smaller.")
    return np.pad(kernel, [(int(size - side) // 2,) * 2 for side in kernel.shape])


def _wander(rng: np.random.Generator, count: int, memory: float, jerks: int = 0) -> np.ndarray:
    """Random walks with inertia over the exposure, (count, instants), of mean 0 and variance 1 at each instant.

    memory : after what share of the exposure a walk has forgotten where it came from.
    jerks : how often all of them jump at once, to go on from there.
    """
    keep = math.exp(-1 / (memory * _INSTANTS))
    steps = rng.standard_normal((count, _INSTANTS))
    steps[:, 1:] *= math.sqrt(1 - keep**2)  # what keeps the variance that the first instant has
    for at in rng.integers(1, _INSTANTS, jerks):
        steps[:, at] += 1.5 * rng.standard_normal(count)
    return lfilter([1.0], [1.0, -keep], steps, axis=1)


def _drawn(y: np.ndarray, x: np.ndarray, weight: np.ndarray, radius: int) -> np.ndarray:
    """Points spread over the four pixels next to them in proportion to their nearness; (2·radius + 1)² pixels."""
    kernel = np.zeros((2 * radius + 1, 2 * radius + 1))
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = x - column, y - row
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            np.add.at(kernel, (row + dy + radius, column + dx + radius), weight * wy * wx)
    return kernel


def _check(name: str, value: float, remedy: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(name, "be a positive finite number", value, remedy)


def _check_angle(angle: float) -> None:
    if not math.isfinite(angle):
        raise InputError("angle", "be a finite number of degrees", angle, "0 is to the right and 90 is up.")


def _check_size(size: int | None) -> None:
    if size is not None and (int(size) != size or size < 1 or size % 2 == 0):
        raise InputError("size", "be a positive odd number", size, "Only an odd side has a pixel in its centre.")


def _trimmed(kernel: np.ndarray, tiny: float = 1e-12) -> np.ndarray:
    """Without the outer rows and columns that hold nothing; the centre stays the centre."""
    while kernel.shape[0] > 1 and kernel[[0, -1]].max() <= tiny:
        kernel = kernel[1:-1]
    while kernel.shape[1] > 1 and kernel[:, [0, -1]].max() <= tiny:
        kernel = kernel[:, 1:-1]
    return np.ascontiguousarray(kernel / kernel.sum())
