"""Kernels for GPUs that hold nothing of size P × m: products, exponentials and sums of a tile at a time.

Each computes what plain PyTorch does elsewhere in the package, and is tested against it:

    nw_moments     Σᵢαᵢxⁱ with Nadaraya–Watson weights             `slir.weights.nadaraya_watson`
    nw_euclidean   the z-update of the Euclidean loss with them    `slir.solvers.weiszfeld`
    Steps          what conjugate gradient does between products   `slir.solvers.cg`

Triton comes with a CUDA build of PyTorch; without it, or on a CPU, plain PyTorch does the work.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


@cache
def _importable() -> bool:
    return find_spec("triton") is not None


def usable(like: torch.Tensor) -> bool:
    """Whether the kernels run on this tensor's device. They work in single precision."""
    return like.device.type == "cuda" and like.dtype == torch.float32 and _importable()
