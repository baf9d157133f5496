"""Lets deepinv, which imports torchvision, be tested beside a PyTorch without CUDA.

On Linux, the torchvision of PyPI is built for a PyTorch with CUDA. Beside one without, its compiled operators do not
load, and it fails when it says what shapes they have. Nothing here uses them, so their names are enough.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import torch

_kept: list[torch.library.Library] = []  # names vanish with the library that defined them


def name_missing_operators() -> None:
    """Where PyTorch is from its index without CUDA and torchvision is not."""
    try:
        built_for_cuda = "+" not in version("torchvision")
    except PackageNotFoundError:
        return
    if built_for_cuda and torch.__version__.endswith("+cpu"):
        _kept.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            _kept[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
