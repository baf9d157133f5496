"""Where the loop begins: what y says of each pixel, or a smooth image that explains y."""

from __future__ import annotations

from torch import Tensor

from slir.estimator.paper_settings import ROUNDING
from slir.operators import Operator
from slir.solvers.system import System

SLOPE = 0.07
"""g: root mean square difference of neighbouring pixels of a natural image whose range is 1."""

CHROMA = 5.0
"""How many times as smooth as their mean the differences of colours are taken to be."""

TOLERANCE = {"cpu": 3e-8, "cuda": 3e-6}
"""Root mean square of the residual at which the solve ends, as a share of the prior's weight. For a small σ it may not
be reached close to a border, where B says next to nothing."""


def observed_pixels(y: Tensor, operator: Operator) -> Tensor:
    """(BᵀB)⁻¹Bᵀy, the mean of what y says of each pixel, where BᵀB is diagonal and no pixel is missing."""
    back = operator.adjoint(y)
    diagonal = operator.diagonal_like(back)
    assert diagonal is not None  # the operator observes pixels
    return back / diagonal


def smooth_start(operator: Operator, y: Tensor, sigma: float) -> Tensor:
    """argmin_x ‖y − Bx‖²/σ² + ‖∇x‖²/g², by conjugate gradient from the operator's guess: (h, w) -> (H, W).

    Where B mixes colours, their differences have a smaller g than their mean: an edge is in all of them.
    """
    guess = operator.guess(y)
    weight = (max(sigma, ROUNDING) / SLOPE) ** 2
    target = TOLERANCE.get(y.device.type, 3e-8) * guess.numel() ** 0.5 * weight
    chroma = CHROMA if operator.x_planes == (3,) and operator.y_planes != (3,) else 1.0
    return System(operator, 1.0, 0.0, weight, chroma).explain(y, guess, target=target).value
