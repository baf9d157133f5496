"""Noise that grows with brightness made even: the generalised Anscombe transform and its exact unbiased inverse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError

_TABLE_COUNTS = 64.0
_TABLE_NODES = 513
_MAX_TABLE_SPREAD = 50.0


@dataclass(frozen=True)
class Stabiliser:
    """For pixels y = a·Poisson(x/a) + N(0, b), whose variance is a·x + b: a transform after which it is about 1.

    With u = y + 3a/8, the transform (Starck et al., 1998) less its value at u = 0, so that it has a limit for a → 0, is

        f(y) = (2/a) (√(a·u + b) − √b) = 2u / (√(a·u + b) + √b)

    It is y/√b for a = 0 (white noise) and Anscombe's 2√(y/a + 3/8) for b = 0. At low counts x/a no transform evens the
    noise fully: its standard deviation is within 3 % of 1 from 5 counts on, within 5 % from 3 on, and at 0 counts
    anything from 0 (where b is 0) to 1.1.

    gain: a ≥ 0. variance: b ≥ 0. One of them is positive; `slir.noise.estimate_poisson_gaussian` finds them.
    """

    gain: float
    variance: float

    def __post_init__(self) -> None:
        for name, value in (("gain", self.gain), ("variance", self.variance)):
            if not (math.isfinite(value) and value >= 0):
                raise InputError(name, "be a number of at least 0", value, "The noise's variance is gain·x + variance.")
        if self.gain == 0 and self.variance == 0:
            raise InputError("gain", "be positive where variance is 0", 0, "Without noise there is nothing to do.")

    def forward(self, x: Tensor) -> Tensor:
        """f, pixel by pixel: (...) -> (...). Pixels darker than where f ends, at a·u = −b, are taken to be there."""
        a, b = self.gain, self.variance
        shifted = x + 0.375 * a
        if a > 0:
            shifted = shifted.clamp(min=-b / a)
        roots = (a * shifted + b).clamp(min=0).sqrt() + math.sqrt(b)
        return 2 * shifted / roots.clamp(min=torch.finfo(x.dtype).tiny)

    def inverse(self, z: Tensor) -> Tensor:
        """The x for which E f(y) = z: (...) -> (...).

        This is what a denoised z asks for, as a denoiser estimates E f(y). Since f is concave, f⁻¹(z) would be darker
        than x, by a/4 where counts are high. So with the algebra for high counts (Mäkitalo and Foi, 2013),

            x = z·√b + a·z²/4 − a/8 + a·c(z)

        and c a table for low ones. Where z is less than E f at x = 0, c stays as it is there, and x is negative: cut
        off at 0, the noise that a denoiser leaves in the dark would become light.
        """
        a, b = self.gain, self.variance
        if a == 0:
            return z * math.sqrt(b)
        z = z.clamp(min=-2 * math.sqrt(b) / a)
        return z * (math.sqrt(b) + a * z / 4) + a * (self._correction(z) - 0.125)

    def _correction(self, z: Tensor) -> Tensor:
        """c by linear interpolation: (...) -> (...)."""
        if self._spread > _MAX_TABLE_SPREAD:
            return torch.zeros_like(z)
        nodes, values = (torch.from_numpy(table).to(z) for table in self._table)
        right = torch.searchsorted(nodes, z.contiguous()).clamp(1, len(nodes) - 1)
        part = ((z - nodes[right - 1]) / (nodes[right] - nodes[right - 1])).clamp(0, 1)
        return torch.lerp(values[right - 1], values[right], part)

    @property
    def _spread(self) -> float:
        """The standard deviation of the Gaussian noise, in counts. Where it is large, all noise is next to Gaussian and
        c next to nothing: less than 1/(8·spread²)."""
        return math.sqrt(self.variance) / self.gain

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """z = E f(y) and c(z), at counts from 0 to where c is next to nothing: (513,), (513,).

        In counts (a = 1, b = spread²), E f(y) = Σ_k Poisson(k; x) ∫ f(k + spread·n) φ(n) dn, by the trapezoidal rule.
        """
        from scipy.stats import poisson  # which takes long to load

        spread = self._spread
        counts = np.linspace(0, math.sqrt(_TABLE_COUNTS), _TABLE_NODES) ** 2
        photons = np.arange(int(_TABLE_COUNTS + 12 * math.sqrt(_TABLE_COUNTS)))
        normal = np.linspace(-8, 8, 4001) if spread > 0 else np.zeros(1)
        density = np.exp(-(normal**2) / 2)
        in_counts = Stabiliser(1.0, spread**2)
        seen = in_counts.forward(torch.from_numpy(photons[:, None] + spread * normal)).numpy()
        z = poisson.pmf(photons, counts[:, None]) @ (seen @ (density / density.sum()))
        return z, counts - (z * spread + z**2 / 4 - 0.125)


@dataclass(frozen=True)
class Evened:
    """A plane with values in [0, 1] <-> the same with even noise, black at 0 and white at 1 again."""

    stabiliser: Stabiliser

    @cached_property
    def _ends(self) -> tuple[float, float]:
        black, white = self.stabiliser.forward(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist()
        return black, white

    @property
    def sigma(self) -> float:
        """Standard deviation of the even noise."""
        black, white = self._ends
        return 1 / (white - black)

    def forward(self, plane: Tensor) -> Tensor:
        return (self.stabiliser.forward(plane) - self._ends[0]) * self.sigma

    def inverse(self, plane: Tensor) -> Tensor:
        return self.stabiliser.inverse(plane / self.sigma + self._ends[0])

    def strength(self, plane: Tensor) -> float:
        """Root mean square of the noise as it was, √(a·x + b), for a plane without it."""
        a, b = self.stabiliser.gain, self.stabiliser.variance
        return float((a * plane.clamp(min=0) + b).mean().sqrt())
