"""The constants of the paper's theory, measured: q, c_{B,σ}, λ, the generalisation bound, convexity of the energy."""

from slir.theory.banks import prior_correlation
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
from slir.theory.curves import Curves, heldout_curves
from slir.theory.rates import Gain, Rate, bound_rate, fit_rate
from slir.theory.reports import Report
from slir.theory.study import report

__all__ = [
    "report",
    "Report",
    "heldout_curves",
    "Curves",
    "fit_rate",
    "bound_rate",
    "Rate",
    "Gain",
    "Correlation",
    "patch_correlation",
    "bank_correlation",
    "prior_correlation",
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
