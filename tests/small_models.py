"""A small network for tests of what surrounds it."""

from __future__ import annotations

import torch

from slir.kernel.network import KernelNetwork
from slir.kernel.stage import stages
from slir.model import Model


def small_kernel(count: int = 2) -> Model:
    """Stages of a small network that was never trained; its estimates stay near y."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = KernelNetwork((8, 12, 16), blocks=1)
    for weight in network.patches.parameters():
        weight.data *= 0.2
    return Model(stages(network.requires_grad_(False), count))
