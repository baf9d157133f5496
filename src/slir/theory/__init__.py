"""The constants of the paper's theory, measured: q, c_{B,σ}, λ, the generalisation bound, convexity of the energy."""

from slir.theory.bounds import bound, constraint_ratio, lam, theorem_lam
from slir.theory.correlation import (
    Correlation,
    bank_correlation,
    central_correlation,
    correlation_map,
    iterates,
    patch_correlation,
)
from slir.theory.curvature import Curvature, smallest_curvature

__all__ = [
    "Correlation",
    "patch_correlation",
    "bank_correlation",
    "central_correlation",
    "correlation_map",
    "iterates",
    "constraint_ratio",
    "lam",
    "theorem_lam",
    "bound",
    "Curvature",
    "smallest_curvature",
]
