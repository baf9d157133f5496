"""Least squares of values that are nowhere negative, by multiplications: light, as microscopes count it.

    minimise over x ≥ 0    ½ Σ (y − Bx)²/v + ½ w‖x − z‖²

    x ← x · (Bᵀ(y/v) + wz)₊ / (Bᵀ(Bx/v) + wx)

For a variance v that stays the same no step increases this sum (Daube-Witherspoon and Muehllehner, 1986, for w = 0).
The variance of counted photons is Bx itself, v = Bx. Then, without the prior, the step is that of Richardson and Lucy:
x ← x · Bᵀ(y/Bx)/Bᵀ1. Of steps from points ahead of x, by a share n/(n + 3) of step n (Nesterov, 1983), a third are
enough. Nothing depends on sums over the volume, so that blocks take the steps of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from slir.operators.base import Operator

DARKEST = 1e-6
"""Least value where a step starts, as a share of a bright one: zero would stay zero."""

UNSEEN = 1e-4
"""What is added to both sides of the fraction, as a share of what light makes of the denominator. Both are rounding
where B sees next to nothing; steps are shorter for it, but end at the same x."""

READOUT = 0.01
"""Least variance of counted photons, in squares of the gain: a voxel without light is not known without error."""


@dataclass(frozen=True)
class Variance:
    """Variance of the noise: gain · Bx + offset. gain: of one photon, 0 for noise that is the same everywhere."""

    gain: float
    offset: float

    def of(self, blurred: Tensor) -> Tensor:
        return self.gain * blurred + max(self.offset, READOUT * self.gain**2)

    def mean(self, y: Tensor) -> float:
        """Over what y shows."""
        return self.gain * max(float(y.mean()), 0.0) + self.offset


def multiply(
    operator: Operator,
    y: Tensor,
    variance: Variance,
    x: Tensor,
    steps: int,
    *,
    bright: float,
    z: Tensor | None = None,
    weight: float = 0.0,
    ahead: bool = False,
) -> Tensor:
    """x after so many steps from this x, which is at least zero.

    operator: B, of values that are nowhere negative. bright: a bright value of x, by which rounding is judged.
    z, weight: of the prior; None for none. ahead: step from points ahead of x. Without a prior few steps smooth, and
    more of them amplify noise.
    """
    least, unseen = DARKEST * bright, UNSEEN * bright / (variance.gain * bright + variance.offset)
    point = x = x.clamp(min=least)
    for number in range(steps):
        new = point * _factor(operator, y, variance, point, z, weight, unseen)
        share = number / (number + 3) if ahead else 0.0
        point = new if share == 0 else (new + share * (new - x)).clamp_(min=least)
        x = new
    return x


def _factor(
    operator: Operator, y: Tensor, variance: Variance, x: Tensor, z: Tensor | None, weight: float, unseen: float
) -> Tensor:
    """By which a step multiplies x."""
    blurred = operator.forward(x).clamp_(min=0)
    inverse = variance.of(blurred).reciprocal_()
    wanted = operator.adjoint(y * inverse)
    have = operator.adjoint(blurred.mul_(inverse)).add_(x, alpha=weight)
    if z is not None:
        wanted = wanted.add_(z, alpha=weight)
    return wanted.add_(unseen).clamp_(min=0).div_(have.clamp_(min=0).add_(unseen))
