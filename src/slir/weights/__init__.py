"""Weights α: how much each clean patch of the bank speaks for what is seen at p."""

from slir.weights.base import Fitted, Weights
from slir.weights.kernel_ridge import KernelRidge, Nystrom
from slir.weights.kernels import Kernel
from slir.weights.nadaraya_watson import NadarayaWatson

WEIGHTS: dict[str, type[Weights]] = {"nw": NadarayaWatson, "krr": KernelRidge, "nystrom": Nystrom}
"""By the names under which settings record them."""

__all__ = ["WEIGHTS", "Weights", "Fitted", "Kernel", "NadarayaWatson", "KernelRidge", "Nystrom"]
