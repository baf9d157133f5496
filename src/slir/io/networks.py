"""The networks of a learnt kernel <-> tensors in half precision, and their settings as JSON."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor

from slir.kernel.network import KernelNetwork
from slir.kernel.noise_level import NoiseNetwork

Network = TypeVar("Network", KernelNetwork, NoiseNetwork)
PREFIXES: dict[type, str] = {KernelNetwork: "network.", NoiseNetwork: "noise."}


def pack_network(network: KernelNetwork | NoiseNetwork, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Adds the weights to `tensors`; returns the settings."""
    for name, weight in network.state_dict().items():
        tensors[PREFIXES[type(network)] + name] = weight.detach().cpu().half().contiguous()
    return dict(network.settings)


CAMERA = "camera."


def pack_camera(camera: KernelNetwork, network: KernelNetwork, tensors: dict[str, Tensor]) -> list[str]:
    """Adds the weights in which the network for noise of cameras differs from the other; returns their names."""
    own, shared = camera.state_dict(), network.state_dict()
    names = [name for name, weight in own.items() if not torch.equal(weight, shared[name].to(weight))]
    for name in names:
        tensors[CAMERA + name] = own[name].detach().cpu().half().contiguous()
    return names


def unpack_camera(names: list[str], network: KernelNetwork, tensors: dict[str, Tensor]) -> KernelNetwork:
    """The network for noise of cameras: a copy of the other one with its own fine layers."""
    camera = deepcopy(network)
    parameters = dict(camera.named_parameters())
    for name in names:
        weight = tensors[CAMERA + name].float()
        if weight.shape != parameters[name].shape:
            raise ValueError("its network for noise of cameras does not fit the other one")
        parameters[name].data.copy_(weight)
    return camera


def unpack_network(kind: type[Network], settings: dict[str, Any], tensors: dict[str, Tensor]) -> Network:
    """The network, ready for use: weights in single precision, channels last."""
    prefix = PREFIXES[kind]
    weights = {name.removeprefix(prefix): value.float() for name, value in tensors.items() if name.startswith(prefix)}
    _check_size(kind, settings, weights)
    network = kind(**settings)
    known = {name: weight.shape for name, weight in network.state_dict().items()}
    found = {name: weight.shape for name, weight in weights.items()}
    if known != found:
        raise ValueError("its network's weights do not fit its settings")
    network.load_state_dict(weights)
    for weight in network.parameters():
        if weight.ndim == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    return network.requires_grad_(False).eval().to(next(iter(weights.values())).device)


def _check_size(kind: type, settings: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise ValueError where a network of these settings would be larger than its weights in the file."""
    if kind is NoiseNetwork:
        first, last = weights["head.grey.weight"], weights["tail.grey.weight"]
        right = settings == {"widths": [first.shape[0], settings["widths"][1], last.shape[1]], "length": last.shape[0]}
        right = right and 0 < settings["widths"][1] <= sum(weight.numel() for weight in weights.values())
    else:
        fine, coarse = weights["down.0.weight"], weights["down.1.weight"]
        right = settings["widths"] == [fine.shape[1], fine.shape[0], coarse.shape[0]]
        right = right and 0 <= settings["blocks"] <= len(weights)
    if not right:
        raise ValueError("its network's weights do not fit its settings")
