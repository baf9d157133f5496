"""Point spread functions of volumes: axes (z, y, x), along which voxels may have different sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import j0

from slir.errors import InputError, is_finite
from slir.psf.parts import check_aperture, check_nanometres, check_positive, check_wavelength

_AXES = ("z", "y", "x")
_DEEP = 2.0  # axial resolutions 2nλ/NA² that a PSF reaches each way by default
_RINGS = 1.62  # λ/NA: radius of the third dark ring of the pattern in focus
_IN_PIXEL = 3  # Gauss nodes along the side of a pixel
_LARGEST = 2**26  # voxels


def gaussian_volume(
    sigma: float | Sequence[float],
    *,
    voxel_size: float | Sequence[float] = 1.0,
    size: int | Sequence[int] | None = None,
) -> np.ndarray:
    """A Gaussian with a width for each axis: (Z, Y, X), sampled at the voxel centres.

    sigma : the standard deviation, one number or (z, y, x), in the unit of `voxel_size`.
    voxel_size : one number or (z, y, x), in any unit; 1 counts sigma in voxels.
    size : the side or (Z, Y, X), odd numbers; by default four standard deviations each way.

    >>> kernel = slir.psf.gaussian_volume((300, 110, 110), voxel_size=(200, 65, 65))
    """
    widths = _three("sigma", sigma, "It is the standard deviation, one number or (z, y, x).")
    voxels = _three("voxel_size", voxel_size, "It is the side of a voxel, one number or (z, y, x).")
    steps = [width / voxel for width, voxel in zip(widths, voxels)]
    sides = _sides(size, [2 * math.ceil(4 * step) + 1 for step in steps])
    lines = [np.exp(-0.5 * ((np.arange(side) - side // 2) / step) ** 2) for side, step in zip(sides, steps)]
    kernel = lines[0][:, None, None] * lines[1][:, None] * lines[2]
    return kernel / kernel.sum()


def widefield(
    numerical_aperture: float,
    wavelength: float,
    voxel_size: float | Sequence[float],
    *,
    refractive_index: float = 1.515,
    sample_index: float | None = None,
    depth: float = 0.0,
    size: int | Sequence[int] | None = None,
) -> np.ndarray:
    """A widefield fluorescence microscope by scalar diffraction: (Z, Y, X), the objective below the first plane.

        h(r, z) = |∫₀¹ J₀(k NA r ρ) exp(ik W(ρ, z)) ρ dρ|²,    k = 2π/λ
        W(ρ, z) = d √(nₛ² − NA²ρ²) + (z − d n/nₛ) √(n² − NA²ρ²)

    For d = 0 it is the model of Born and Wolf with the phase of a large aperture. For d > 0 it is that of Gibson and
    Lanni (1992) with the cover glass that the objective is made for: spherical aberration of a point at depth d in a
    sample of another index. Each voxel holds the mean over its area, at the middle of its plane.

    numerical_aperture : NA, as it is engraved on the objective. Smaller than `refractive_index`.
    wavelength : λ of the emission in air, in nanometres.
    voxel_size : one number or (z, y, x), in nanometres. z is the step of the stage.
    refractive_index : n of the immersion: oil 1.515, glycerol 1.47, water 1.33, air 1.
    sample_index : nₛ of the mounting medium; None takes that of the immersion.
    depth : d of the point below the cover glass, in nanometres.
    size : the side or (Z, Y, X), odd numbers. A widefield PSF has the same light in each plane and no end; by default
        it has two axial resolutions 2nλ/NA² each way and the cone of light there.

    >>> kernel = slir.psf.widefield(1.4, wavelength=520, voxel_size=(200, 65, 65))
    """
    check_aperture(numerical_aperture)
    check_wavelength(wavelength)
    remedy = "It is in nanometres, such as (200, 65, 65) for z, y and x."
    voxels = _three("voxel_size", voxel_size, remedy)
    for axis, value in zip(_AXES, voxels):
        check_nanometres(f"voxel_size along {axis}", value, remedy)
    sample = refractive_index if sample_index is None else sample_index
    for name, value in (("refractive_index", refractive_index), ("sample_index", sample)):
        if not (is_finite(value) and 1 <= value <= 4):
            raise InputError(name, "be from 1 to 4", value, "It is 1.515 for oil and 1.33 for water.")
    if not numerical_aperture < refractive_index:
        remedy = "The aperture is the index times the sine of an angle. Pass the immersion's index, 1.515 for oil."
        raise InputError("refractive_index", "be larger than the numerical aperture", refractive_index, remedy)
    if not (is_finite(depth) and 0 <= depth <= 1e6):
        raise InputError("depth", "be from 0 to a million nanometres", depth, "It is the distance to the cover glass.")
    sides = _sides(size, _default_sides(numerical_aperture, wavelength, refractive_index, voxels))
    heights = (np.arange(sides[0]) - sides[0] // 2) * voxels[0]
    rows, columns = ((np.arange(side) - side // 2)[:, None] * voxel for side, voxel in zip(sides[1:], voxels[1:]))
    nodes, shares = np.polynomial.legendre.leggauss(_IN_PIXEL)
    rows, columns = rows + nodes / 2 * voxels[1], columns + nodes / 2 * voxels[2]  # (side, nodes)
    radius = np.hypot(rows[:, :, None, None], columns)
    line = np.linspace(0, float(radius.max()), _samples(float(radius.max()), wavelength, numerical_aperture))
    profiles = _profiles(line, heights, numerical_aperture, wavelength, refractive_index, sample, depth)
    weights = shares / 2
    planes = [np.einsum("iajb,a,b->ij", np.interp(radius, line, own), weights, weights) for own in profiles]
    kernel = np.stack(planes)
    kernel = (kernel + kernel[:, ::-1, ::-1]) / 2
    return kernel / kernel.sum()


def _profiles(
    line: np.ndarray, heights: np.ndarray, aperture: float, wavelength: float, index: float, sample: float, depth: float
) -> np.ndarray:
    """h along a radius, for each plane: (Z, samples)."""
    k = 2 * math.pi / wavelength
    reach = abs(heights).max() + depth
    turns = k * (aperture * line[-1] + reach * index) / math.pi  # about the oscillations along ρ
    nodes, shares = np.polynomial.legendre.leggauss(int(min(4096, 256 + 2 * turns)))
    rho = (nodes + 1) / 2
    square = (aperture * rho) ** 2
    inside, outside = np.emath.sqrt(sample**2 - square), np.emath.sqrt(index**2 - square)
    wave = j0(k * aperture * line[:, None] * rho) * (rho * shares)  # (samples, nodes)
    phases = depth * inside[:, None] + (heights - depth * index / sample) * outside[:, None]  # (nodes, Z)
    return np.abs(wave @ np.exp(1j * k * phases)).T ** 2


def _samples(radius: float, wavelength: float, aperture: float) -> int:
    """Along the radius: 32 for each period of the finest detail, λ/2NA."""
    return 64 + math.ceil(64 * radius * aperture / wavelength)


def _default_sides(aperture: float, wavelength: float, index: float, voxels: Sequence[float]) -> list[int]:
    deep = _DEEP * 2 * index * wavelength / aperture**2
    cone = deep * aperture / math.sqrt(index**2 - aperture**2) + _RINGS * wavelength / aperture
    return [2 * math.ceil(reach / voxel) + 1 for reach, voxel in zip((deep, cone, cone), voxels)]


def _three(name: str, value: float | Sequence[float], remedy: str) -> list[float]:
    """(z, y, x), positive."""
    values = _repeated(name, value, remedy)
    for axis, own in zip(_AXES, values):
        check_positive(f"{name} along {axis}", own, remedy)
    return [float(own) for own in values]


def _sides(size: int | Sequence[int] | None, default: Sequence[int]) -> list[int]:
    remedy = "Only an odd side has a voxel in its centre."
    values = list(default) if size is None else _repeated("size", size, "It is the side, one number or (Z, Y, X).")
    for axis, side in zip(_AXES, values):
        if not (is_finite(side) and side >= 1 and side % 2 == 1):
            raise InputError("size", f"be a positive odd number along {axis}", side, remedy)
    sides = [int(side) for side in values]
    if math.prod(sides) > _LARGEST:
        found = "×".join(map(str, sides))
        raise InputError("size", f"make at most {_LARGEST} voxels", found, "Pass a smaller (Z, Y, X).")
    return sides


def _repeated(name: str, value: Any, remedy: str) -> list[Any]:
    if np.ndim(value) == 0:
        return [value] * 3
    values = list(value)
    if len(values) != 3 or any(np.ndim(own) for own in values):
        raise InputError(name, "be one number or three, (z, y, x)", value, remedy)
    return values
