"""The learnt kernel in volumes: the network removes the noise of planes XY, XZ and YZ, and their mean is taken."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slir.compute import memory_for_tiles
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import AROUND, OUTSHINING, pad_by_mirror
from slir.trust.spread import box

HELD = 190
"""Numbers a voxel that the network holds of the planes that it takes together."""

Axes = tuple[int, int, int]
SECTIONS: tuple[Axes, ...] = ((0, 1, 2), (1, 0, 2), (2, 0, 1))
"""The axis that is cut across, and those of the sections: XY, XZ, YZ."""


def section_weights(spacing: Sequence[float]) -> list[float]:
    """How much each of the sections counts: the finer its pixels lie, the more they tell of each other. Sum one."""
    weights = [min(spacing) ** 2 / (spacing[rows] * spacing[cols]) for _, rows, cols in SECTIONS]
    return [weight / sum(weights) for weight in weights]


@torch.no_grad()
def denoise_sections(
    network: KernelNetwork, x: Tensor, before: Tensor, level: float, weights: Sequence[float]
) -> Tensor:
    """x without noise of this level: (Z, H, W) -> (Z, H, W).

    before: the estimate that x was made from. weights: of the sections, `SECTIONS`; those of 0 are left out. An axis of
    one plane has sections across it alone.
    """
    total, weight = torch.zeros_like(x), 0.0
    for axes, own in zip(SECTIONS, weights):
        if own == 0 or min(x.shape[axes[1]], x.shape[axes[2]]) == 1:
            continue
        planes, earlier = (volume.permute(axes).contiguous() for volume in (x, before))
        back = tuple(axes.index(axis) for axis in range(3))
        total.add_(denoise_planes(network, planes, earlier, level).permute(back), alpha=own)
        weight += own
    return total.div_(weight)


def denoise_planes(network: KernelNetwork, x: Tensor, before: Tensor, level: float) -> Tensor:
    """Each plane of (N, H, W), as many together as fit into memory."""
    out = torch.empty_like(x)
    count = max(1, int(memory_for_tiles(x.device) / (4 * HELD * x.shape[1] * x.shape[2])))
    for start in range(0, len(x), count):
        planes = slice(start, start + count)
        limit = OUTSHINING * box(x[planes].abs(), AROUND)
        seen, padded = [torch.minimum(volume[planes], limit) for volume in (x, before)], x[planes, None]
        own, first, second = (pad_by_mirror(plane) for plane in (padded, *(plane[:, None] for plane in seen)))
        told = torch.full_like(own, level)
        estimate = network.estimate(own, network.trunk(first, second, torch.zeros_like(own), told))
        out[planes] = estimate[:, 0, : x.shape[1], : x.shape[2]]
    return out
