"""The noise level that a picture shows at each place, told by a small network: for noise that is not white too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slir.kernel.stage import mirrored

CELL = 8
"""Side of the squares of pixels for which one level is told."""


class NoiseNetwork(nn.Module):
    """Root mean square of the noise in squares of 8×8 pixels, for each channel.

    The network is a stack of convolutions on 2×2 blocks that halves the picture twice more. It has no biases, so the
    level is homogeneous: level(c·y) = c·level(y). Grey and colour pictures have their own first and last layers.
    """

    def __init__(self, widths: tuple[int, int, int] = (24, 48, 64), length: int = 4) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"widths": list(widths), "length": length}

        def layer(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
            side, around = (3, 1) if stride == 1 else (2, 0)
            return [nn.Conv2d(inputs, outputs, side, stride, around, bias=False), nn.ReLU()]

        fine, middle, coarse = widths
        self.head = nn.ModuleDict(
            {kind: nn.Conv2d(4 * c, fine, 3, padding=1, bias=False) for kind, c in (("grey", 1), ("colour", 3))}
        )
        self.trunk = nn.Sequential(
            nn.ReLU(),
            *layer(fine, fine),
            *layer(fine, middle, 2),
            *layer(middle, middle),
            *layer(middle, coarse, 2),
            *layer(coarse, coarse),
            *layer(coarse, coarse),
            *layer(coarse, coarse),
        )
        self.tail = nn.ModuleDict(
            {kind: nn.Conv2d(coarse, length * c, 1, bias=False) for kind, c in (("grey", 1), ("colour", 3))}
        )
        for weight in self.parameters():
            nn.init.kaiming_normal_(weight, nonlinearity="relu")

    def forward(self, y: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H/8, W/8). Both sides are multiples of 8."""
        kind = "grey" if y.shape[1] == 1 else "colour"
        with torch.autocast(y.device.type, enabled=False):  # half precision rounds y by more than faint noise
            first = self.head[kind](F.pixel_unshuffle(y, 2))
        parts = self.tail[kind](self.trunk(first))
        return parts.unflatten(1, (self.settings["length"], -1)).float().norm(dim=1)


@dataclass(frozen=True)
class LocalNoise:
    """The noise level of each pixel, told by the network from the picture itself.

    strength: factor on what the network tells.
    """

    network: NoiseNetwork
    strength: float = 1.0

    @torch.no_grad()
    def cells(self, y: Tensor) -> Tensor:
        """The level of each square of 8×8 pixels: (H, W) or (C, H, W) -> (C, ⌈H/8⌉, ⌈W/8⌉)."""
        return self.strength * self.network(mirrored(y))[0]

    def __call__(self, y: Tensor) -> Tensor:
        """The level of each pixel: (H, W) or (C, H, W) -> the same."""
        cells = self.cells(y)
        level = F.interpolate(cells[None], scale_factor=CELL, mode="bilinear", align_corners=False)[0]
        return level[:, : y.shape[-2], : y.shape[-1]].reshape(y.shape).to(y)
