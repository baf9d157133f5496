"""Where to compute: devices, and arrays that are computed elsewhere."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from slir.errors import InputError


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, checked to be there; None is the CPU, so that results never depend on the machine."""
    try:
        chosen = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise InputError("device", "be 'cpu', 'cuda' or 'cuda:N'", repr(device), "Pick one of these.") from error
    if chosen.type not in ("cpu", "cuda"):
        raise InputError("device", "be 'cpu', 'cuda' or 'cuda:N'", repr(device), "Pick one of these.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        remedy = "Install a CUDA build of torch, or pass device='cpu'."
        raise InputError("device", "be a device that this machine has", repr(str(device)), remedy)
    return chosen


def is_lazy(image: Any) -> bool:
    """Whether an array is one of Dask. Dask is not imported to find that out."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(image, dask.Array)


def to_numpy(array: Any, argument: str) -> np.ndarray:
    """Any array as NumPy; tensors come off their device. Raises InputError where values would be lost on the way."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        remedy = "Fill them in: slir.inpaint(image.filled(0), image.mask, ...)."
        raise InputError(argument, "hold no masked pixels", f"masked at {np.ma.count_masked(array)} pixels", remedy)
    if not isinstance(array, torch.Tensor):
        return np.asarray(array)
    try:
        return array.detach().cpu().numpy()
    except (TypeError, NotImplementedError, RuntimeError) as error:
        kind = f"{array.dtype} on {array.device}, {array.layout}"
        rule, remedy = "be a dense tensor of a type that NumPy has too", "Convert it: image.to_dense().float()."
        raise InputError(argument, rule, kind, remedy) from error
