"""The network of a learnt kernel <-> tensors in half precision, and its settings as JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slir.kernel.network import KernelNetwork

PREFIX = "network."


def pack_network(network: KernelNetwork, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Adds the weights to `tensors`; returns the settings."""
    for name, weight in network.state_dict().items():
        tensors[PREFIX + name] = weight.detach().cpu().half().contiguous()
    return dict(network.settings)


def unpack_network(settings: dict[str, Any], tensors: dict[str, Tensor]) -> KernelNetwork:
    """The network, ready for use: weights in single precision, channels last."""
    weights = {name.removeprefix(PREFIX): value.float() for name, value in tensors.items() if name.startswith(PREFIX)}
    _check_size(settings, weights)
    network = KernelNetwork(**settings)
    known = {name: weight.shape for name, weight in network.state_dict().items()}
    found = {name: weight.shape for name, weight in weights.items()}
    if known != found:
        raise ValueError("its network's weights do not fit its settings")
    network.load_state_dict(weights)
    for weight in network.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return network.requires_grad_(False).eval().to(next(iter(weights.values())).device)


def _check_size(settings: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise ValueError where a network of these settings would be larger than its weights in the file."""
    fine, coarse = weights["down.0.weight"], weights["down.1.weight"]
    widths = [fine.shape[1], fine.shape[0], coarse.shape[0]]
    if settings["widths"] != widths or not 0 <= settings["blocks"] <= len(weights):
        raise ValueError("its network's weights do not fit its settings")
