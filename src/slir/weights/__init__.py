"""Weights α: how much each clean patch of the bank speaks for what is seen at p."""

from dataclasses import fields
from typing import Any

from slir.errors import InputError
from slir.weights.base import Fitted, Weights
from slir.weights.kernel_ridge import KernelRidge, Nystrom
from slir.weights.kernels import Kernel
from slir.weights.nadaraya_watson import NadarayaWatson

WEIGHTS: dict[str, type[Weights]] = {"nw": NadarayaWatson, "krr": KernelRidge, "nystrom": Nystrom}
"""By the names under which settings record them."""


def weights_named(weights: str | Weights, **settings: Any) -> Weights:
    """The weights that a name of WEIGHTS stands for, with those settings that they have; `Weights` pass through."""
    if isinstance(weights, Weights):
        return weights
    if weights not in WEIGHTS:
        rule = f"be one of {', '.join(WEIGHTS)} or slir.weights"
        raise InputError("weights", rule, repr(weights), "Pick one of these.")
    kind = WEIGHTS[weights]
    has = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in settings.items() if name in has})


__all__ = ["WEIGHTS", "weights_named", "Weights", "Fitted", "Kernel", "NadarayaWatson", "KernelRidge", "Nystrom"]
