"""What the builders share: checks of their arguments, points on pixels, frames."""

from __future__ import annotations

import math

import numpy as np

from slir.errors import InputError, is_finite

Offset = tuple[float, float]

SHORTEST_LENGTH = 1e-6
"""Smallest accepted length. Squares of far smaller ones leave the range of floating-point numbers."""


def check_positive(name: str, value: float, remedy: str) -> None:
    if not (is_finite(value) and value > 0):
        raise InputError(name, "be a positive finite number", value, remedy)
    if value < SHORTEST_LENGTH:
        raise InputError(name, f"be at least {SHORTEST_LENGTH:g}", value, remedy)


def check_aperture(value: float) -> None:
    name, remedy = "numerical_aperture", "It is engraved on the objective, such as 1.4."
    check_positive(name, value, remedy)
    if value >= 2:
        raise InputError(name, "be below 2", value, remedy)


def check_wavelength(value: float) -> None:
    check_nanometres("wavelength", value, "It is in nanometres, such as 520.")


def check_nanometres(name: str, value: float, remedy: str) -> None:
    check_positive(name, value, remedy)
    if not 1 <= value <= 1e6:  # else most likely in micrometres or metres
        raise InputError(name, "be from 1 nanometre to a million", value, remedy)


def check_angle(angle: float) -> None:
    if not is_finite(angle):
        raise InputError("angle", "be a finite number of degrees", angle, "0 is to the right and 90 is up.")


def check_size(size: int | None) -> None:
    if size is not None and not (is_finite(size) and size >= 1 and size % 2 == 1):
        raise InputError("size", "be a positive odd number", size, "Only an odd side has a pixel in its centre.")


def checked_offset(offset: Offset) -> Offset:
    """(down, right) in pixels. Below one pixel each, so that a kernel stays as small as its blur."""
    try:
        down, right = (float(each) for each in offset)
    except (TypeError, ValueError):
        down = right = math.nan
    if not (abs(down) <= 1 and abs(right) <= 1):
        remedy = "They count pixels downwards and to the right; for whole pixels, pad the kernel on one side."
        raise InputError("offset", "be two numbers from -1 to 1", offset, remedy)
    return down, right


def drawn(y: np.ndarray, x: np.ndarray, weight: np.ndarray, radius: int) -> np.ndarray:
    """Points spread over the four pixels next to them in proportion to their nearness; (2·radius + 1)² pixels."""
    kernel = np.zeros((2 * radius + 1, 2 * radius + 1))
    column, row = np.floor(x).astype(int), np.floor(y).astype(int)
    fx, fy = x - column, y - row
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            np.add.at(kernel, (row + dy + radius, column + dx + radius), weight * wy * wx)
    return kernel


def trimmed(kernel: np.ndarray, tiny: float = 1e-12) -> np.ndarray:
    """Without the outer rows, columns and planes that hold nothing; the centre stays the centre."""
    for axis in range(kernel.ndim):
        while kernel.shape[axis] > 1 and kernel.take([0, -1], axis).max() <= tiny:
            kernel = kernel.take(range(1, kernel.shape[axis] - 1), axis)
    return np.ascontiguousarray(kernel / kernel.sum())


def framed(kernel: np.ndarray, size: int) -> np.ndarray:
    """The same about its centre with `size` pixels a side: zeros around it, or its outer parts cut off."""
    kernel = np.pad(kernel, [(max(0, size - side) // 2,) * 2 for side in kernel.shape])
    starts = [(side - size) // 2 for side in kernel.shape]
    return np.ascontiguousarray(kernel[tuple(slice(start, start + size) for start in starts)])
