"""Blurs of known shape: the straight motion, the disk and the Gaussian that explain a picture best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.psf.analytic import defocus, gaussian, motion
from slir.psf.blind.choice import cost, spectral_cost
from slir.psf.blind.softness import estimate_softness

RADII = (1.0, 1.3, 1.6, 2.0, 2.5, 3.0, 3.7, 4.5, 5.5, 7.0, 9.0)
LENGTHS = (4.0, 6.0, 8.0, 11.0, 15.0, 20.0, 27.0)
ANGLES = tuple(range(0, 180, 15))
FINER = (0.9, 0.95, 1.0, 1.05, 1.1)
TURNS = (-7.5, -3.75, 0.0, 3.75, 7.5)
FINALISTS = 3
"""Shapes of the best spectra whose edges are looked at as well."""

LEAST_SIGMA = 0.3
"""Standard deviation of a Gaussian that leaves a picture as good as sharp."""


@dataclass(frozen=True)
class Shape:
    """A kernel with its parameters. made_by: in words."""

    kernel: Tensor
    parameters: tuple[float, ...]
    made_by: str


def best_gaussian(y: Tensor, sigma: float) -> Shape:
    """The Gaussian whose width the spectrum shows."""
    width = estimate_softness(y, sigma)
    return Shape(_tensor(gaussian(max(width, LEAST_SIGMA))), (width,), f"gaussian {width:.2f}")


def best_defocus(y: Tensor, usable: Tensor, sigma: float) -> Shape:
    """The disk that explains y best."""
    coarse = _best(y, usable, sigma, _disk, [(radius,) for radius in RADII])
    return _best(y, usable, sigma, _disk, [(coarse.parameters[0] * times,) for times in FINER])


def best_motion(y: Tensor, usable: Tensor, sigma: float) -> Shape:
    """The straight motion that explains y best."""
    coarse = _best(y, usable, sigma, _line, [(length, float(angle)) for length in LENGTHS for angle in ANGLES])
    length, angle = coarse.parameters
    near = [(length * times, angle + turn) for times in FINER for turn in TURNS]
    return _best(y, usable, sigma, _line, near)


def _best(
    y: Tensor, usable: Tensor, sigma: float, make: Callable[..., Shape], grid: Iterable[Sequence[float]]
) -> Shape:
    shapes = [make(*parameters) for parameters in grid]
    fitting = [shape for shape in shapes if max(shape.kernel.shape) <= min(y.shape) // 2] or shapes[:1]
    ranked = sorted(fitting, key=lambda shape: spectral_cost(y, shape.kernel, sigma))
    return min(ranked[:FINALISTS], key=lambda shape: cost(y, usable, shape.kernel, sigma))


def _disk(radius: float) -> Shape:
    return Shape(_tensor(defocus(radius)), (radius,), f"defocus {radius:.2f}")


def _line(length: float, angle: float) -> Shape:
    angle %= 180
    return Shape(_tensor(motion(length, angle)), (length, angle), f"motion {length:.1f},{angle:.0f}")


def _tensor(kernel: np.ndarray) -> Any:
    return torch.from_numpy(kernel).float()
