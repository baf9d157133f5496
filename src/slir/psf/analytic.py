"""The usual blurs, each from a formula."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import j1

from slir.psf.parts import (
    Offset,
    check_angle,
    check_aperture,
    check_nanometres,
    check_positive,
    check_size,
    check_wavelength,
    checked_offset,
    drawn,
    trimmed,
)

_SAMPLES = 128  # a pixel, along the line that is integrated numerically
_FIRST_ZERO, _THIRD_ZERO = 3.8317059702075125, 10.173468135062722  # of the Bessel function J₁


def gaussian(
    sigma: float,
    size: int | None = None,
    *,
    sigma_across: float | None = None,
    angle: float = 0.0,
    offset: Offset = (0.0, 0.0),
) -> np.ndarray:
    """Out of focus or through turbulent air, roughly: exp(−½ ‖r‖² / σ²).

    It is sampled at the pixel centres, as `scipy.ndimage.gaussian_filter` does it. `size` is the side, an odd
    number; by default it reaches four standard deviations each way.

    sigma : the standard deviation in pixels.
    sigma_across : with it the Gaussian is elongated, `sigma` along the direction `angle` and this across it.
    angle : degrees from "to the right", counter-clockwise as the picture is seen: 90 is up.
    offset : of the maximum from the centre pixel, in pixels (down, right).
    """
    check_positive("sigma", sigma, "It is the standard deviation in pixels, such as 1.6.")
    check_angle(angle)
    check_size(size)
    down, right = checked_offset(offset)
    if sigma_across is None:
        half = math.ceil(4 * sigma + max(abs(down), abs(right))) if size is None else int(size) // 2
        at = np.arange(-half, half + 1)
        kernel = np.outer(_bell(((at - down) / sigma) ** 2), _bell(((at - right) / sigma) ** 2))
        return kernel / kernel.sum()
    check_positive(
        "sigma_across", sigma_across, "It is the standard deviation across the angle in pixels, such as 0.8."
    )
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    spread = math.hypot(sigma * sin, sigma_across * cos), math.hypot(sigma * cos, sigma_across * sin)  # rows, columns
    tall, wide = (
        math.ceil(4 * each + abs(away) - 1e-9) if size is None else int(size) // 2
        for each, away in zip(spread, (down, right))
    )
    row, column = np.arange(-tall, tall + 1)[:, None] - down, np.arange(-wide, wide + 1)[None, :] - right
    along, across = column * cos - row * sin, column * sin + row * cos  # rows count downwards
    kernel = _bell((along / sigma) ** 2 + (across / sigma_across) ** 2)
    return kernel / kernel.sum()


def motion(length: float, angle: float, *, offset: Offset = (0.0, 0.0)) -> np.ndarray:
    """The camera moved along a straight line of `length` pixels, evenly.

    angle : degrees from "to the right", counter-clockwise as the picture is seen: 90 is up. A motion and its reverse
        are the same.
    offset : of the line's middle from the centre pixel, in pixels (down, right).

    The line is spread over the pixels next to it in proportion to their nearness (bilinearly), so that lengths and
    angles between whole pixels count. A line of length 1 is thus a little wider than a pixel.
    """
    check_positive("length", length, "It is the length of the path in pixels, such as 15.")
    check_angle(angle)
    down, right = checked_offset(offset)
    count = max(1, math.ceil(length * _SAMPLES))
    along = ((np.arange(count) + 0.5) / count - 0.5) * length  # midpoints of equal pieces
    turn = math.radians(angle)
    x, y = along * math.cos(turn) + right, down - along * math.sin(turn)  # rows count downwards
    kernel = drawn(y, x, np.ones(count), math.ceil(length / 2 + max(abs(down), abs(right))) + 1)
    if down == right == 0:
        kernel = (kernel + kernel[::-1, ::-1]) / 2  # exactly symmetric, whatever rounding did
    return trimmed(kernel / kernel.sum())


def defocus(radius: float, *, offset: Offset = (0.0, 0.0)) -> np.ndarray:
    """The lens was out of focus: a disk of `radius` pixels, every pixel weighted by how much of it the disk covers.

    offset : of the disk's middle from the centre pixel, in pixels (down, right).
    """
    check_positive(
        "radius", radius, "It is the radius in pixels of the disk that a point of light becomes, such as 3.5."
    )
    down, right = checked_offset(offset)
    radius = max(radius, 2 / _SAMPLES)  # a smaller disk would fall between the samples
    half = max(0, math.ceil(radius + max(abs(down), abs(right)) - 0.5))
    kernel = (_covered(radius, half, down, right) + _covered(radius, half, right, down).T) / 2
    if down == right == 0:
        kernel = (kernel + kernel[::-1, ::-1]) / 2
    return trimmed(kernel / kernel.sum())


def airy(radius: float, size: int | None = None, *, offset: Offset = (0.0, 0.0)) -> np.ndarray:
    """A perfect lens whose round aperture diffracts: (2 J₁(r)/r)², its first dark ring `radius` pixels from the centre.

    Every pixel holds the mean of the pattern over its area. `size` is the side, an odd number; by default it reaches
    the third dark ring, inside of which lie 94 % of the light.

    offset : of the pattern's middle from the centre pixel, in pixels (down, right).
    """
    check_positive("radius", radius, "It is the radius in pixels of the first dark ring, such as 2.4.")
    check_size(size)
    down, right = checked_offset(offset)
    reach = radius * _THIRD_ZERO / _FIRST_ZERO + max(abs(down), abs(right))
    half = max(0, math.ceil(reach - 0.5)) if size is None else int(size) // 2
    if half == 0:
        return np.ones((1, 1))
    # Gauss's rule in every pixel. It turns exact once it has a point or so for each radian that the pattern, whose
    # highest frequency is 2 in r, turns through in half a pixel.
    count = min(4 + math.ceil(1.2 * _FIRST_ZERO / radius), _SAMPLES)
    nodes, shares = np.polynomial.legendre.leggauss(count)
    at = np.arange(-half, half + 1)[:, None] + nodes / 2  # (side, count)
    r = np.hypot((at - down)[:, :, None, None], at - right) * (_FIRST_ZERO / radius)
    amplitude = np.divide(2 * j1(r), r, out=np.ones_like(r), where=r > 0)
    kernel = np.einsum("iajb,a,b->ij", amplitude**2, shares, shares)
    if down == right == 0:
        kernel = (kernel + kernel.T) / 2
        kernel = (kernel + kernel[::-1, ::-1]) / 2
    return kernel / kernel.sum()


def airy_from_aperture(
    numerical_aperture: float,
    wavelength: float,
    pixel_size: float,
    size: int | None = None,
    *,
    offset: Offset = (0.0, 0.0),
) -> np.ndarray:
    """A widefield microscope in focus, or any perfect lens: `airy` with its first dark ring at 0.61 λ / NA.

    numerical_aperture : NA = n sin θ, as it is engraved on the objective; of a camera lens 1 / (2 × f-number).
    wavelength : λ of the light in air, in nanometres; of fluorescence, that of the emission.
    pixel_size : what one pixel shows of the object, in nanometres: the camera's pixel over the magnification.
    size, offset : as in `airy`, in pixels.

    >>> kernel = slir.psf.airy_from_aperture(1.4, wavelength=520, pixel_size=65)  # first dark ring at 3.49 pixels
    """
    check_aperture(numerical_aperture)
    check_wavelength(wavelength)
    check_nanometres(
        "pixel_size", pixel_size, "It is in nanometres, such as 65: the camera's pixel over the magnification."
    )
    radius = _FIRST_ZERO / (2 * math.pi) * wavelength / (numerical_aperture * pixel_size)
    return airy(radius, size, offset=offset)


def _bell(square: np.ndarray) -> np.ndarray:
    """exp(−½ square), scaled so that its largest value is 1: no pixel is too far away to count at all."""
    return np.exp(-0.5 * (square - square.min()))


def _covered(radius: float, half: int, across: float, along: float) -> np.ndarray:
    """How much of each pixel a disk about (across, along) covers, (2·half + 1)².

    Along the second axis by midpoints, across it exactly: the disk spans −h … h at x, a pixel row j − ½ … j + ½.
    """
    side = 2 * half + 1
    x = (np.arange(side * _SAMPLES) + 0.5) / _SAMPLES - half - 0.5 - along
    h = np.sqrt(np.clip(radius**2 - x**2, 0, None))[None, :]
    row = (np.arange(side) - half)[:, None] - across
    covered = np.clip(np.minimum(h, row + 0.5) - np.maximum(-h, row - 0.5), 0, None)  # (side, side · samples)
    return covered.reshape(side, side, _SAMPLES).mean(axis=2)
