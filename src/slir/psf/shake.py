"""The random motion of a hand-held camera."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.signal import lfilter

from slir.errors import InputError
from slir.psf.parts import Offset, check_positive, check_size, checked_offset, drawn, framed, trimmed

_INSTANTS = 4096  # of the exposure during which a camera shakes: a fraction of a pixel apart up to 100 pixels


def camera_shake(
    extent: float,
    rng: np.random.Generator | int = 0,
    size: int | None = None,
    *,
    softness: float = 0.0,
    centre: Literal["box", "light"] = "box",
    offset: Offset = (0.0, 0.0),
) -> np.ndarray:
    """A hand held the camera: a random path that spans `extent` pixels, brighter where the hand went slowly.

    The velocity v is a random walk with inertia, thrown off course by a jerk now and then; at each instant t of the
    exposure light falls at x(t) in proportion to a dwell w(t), itself a random walk:

        v(t+1) = ρ v(t) + e(t) + jerks,   x(t+1) = x(t) + v(t),   psf = Σₜ w(t) δ(x(t))

    extent : the longer side of the box around the path.
    rng : NumPy's generator, or a seed. The same path comes out at every extent.
    size : the side, an odd number; by default as large as the path needs.
    softness : standard deviation in pixels of a Gaussian blur on top, for what a lens adds.
    centre : what lies on the centre pixel: the middle of the box, which keeps the kernel small, or the centroid of the
        light, which keeps a restored image where the blurred one is.
    offset : how far from there, in pixels (down, right).
    """
    check_positive("extent", extent, "It is how many pixels the path spans, such as 20.")
    check_size(size)
    down, right = checked_offset(offset)
    if not (math.isfinite(softness) and softness >= 0):
        remedy = "It is the standard deviation in pixels of a Gaussian, such as 0.4."
        raise InputError("softness", "be a finite number of at least 0", softness, remedy)
    if centre not in ("box", "light"):
        raise InputError("centre", "be 'box' or 'light'", repr(centre), "It names what is on the centre pixel.")
    rng = np.random.default_rng(rng)
    memory = math.exp(rng.uniform(math.log(0.06), math.log(0.4)))  # from a zigzag to hardly a bend
    path = _wander(rng, 2, memory, jerks=rng.poisson(1.0)).cumsum(axis=1)
    dwell = np.exp(0.8 * _wander(rng, 1, 0.06)[0])
    low, high = path.min(axis=1, keepdims=True), path.max(axis=1, keepdims=True)
    path = (path - (low + high) / 2) * (extent / (high - low).max())
    if centre == "light":
        path = path - path @ dwell[:, None] / dwell.sum()
    y, x = path + np.array([[down], [right]])
    reach = extent / 2 if centre == "box" else float(np.abs(path).max())
    kernel = drawn(y, x, dwell, math.ceil(reach + max(abs(down), abs(right))) + 1 + math.ceil(4 * softness))
    if softness > 0:
        kernel = gaussian_filter(kernel, softness, mode="constant")
    kernel = trimmed(np.where(kernel < 1e-3 * kernel.max(), 0, kernel))  # no long faint tails around the path
    if size is None:
        return kernel
    if size < max(kernel.shape):
        raise InputError("size", f"hold the path, which needs {max(kernel.shape)}", size, "Make extent smaller.")
    return framed(kernel, int(size))


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
