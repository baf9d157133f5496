"""The noise level that a picture shows at each place, told by a small network: for noise that is not white too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slir.kernel.stage import pad_by_mirror

CELL = 8
"""Side of the squares of pixels for which one level is told."""


CALM = 0.2
"""Quantile of each feature over the picture that the network sees beside its mean: that of flat parts."""


class NoiseNetwork(nn.Module):
    """Root mean square of the noise in squares of 8×8 pixels, for each channel.

    Convolutions on 2×2 blocks that halve the picture twice more; what they find in each square is then judged beside
    what they find in the whole picture, because texture in one place looks like noise, but noise is everywhere. There
    are no biases, so the level is homogeneous: level(c·y) = c·level(y). Grey and colour pictures have their own first
    and last layers.
    """

    def __init__(self, widths: tuple[int, int, int] = (24, 48, 64), length: int = 4) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"widths": list(widths), "length": length}
        fine, middle, coarse = widths

        def layer(inputs: int, outputs: int, side: int = 3) -> list[nn.Module]:
            stride, around = (2, 0) if side == 2 else (1, side // 2)
            return [nn.Conv2d(inputs, outputs, side, stride, around, bias=False), nn.ReLU()]

        def per_colour(make: Callable[[int], nn.Module]) -> nn.ModuleDict:
            return nn.ModuleDict({"grey": make(1), "colour": make(3)})

        self.head = per_colour(lambda c: nn.Conv2d(4 * c, fine, 3, padding=1, bias=False))
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
        self.judge = nn.Sequential(*layer(3 * coarse, 2 * coarse, 1), *layer(2 * coarse, coarse, 1))
        self.tail = per_colour(lambda c: nn.Conv2d(coarse, length * c, 1, bias=False))
        for weight in self.parameters():
            nn.init.kaiming_normal_(weight, nonlinearity="relu")

    def forward(self, y: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H/8, W/8). Both sides are multiples of 8."""
        kind = "grey" if y.shape[1] == 1 else "colour"
        with torch.autocast(y.device.type, enabled=False):  # half precision rounds y by more than faint noise
            first = self.head[kind](F.pixel_unshuffle(y, 2))
        found = self.trunk(first)
        flat = found.float().flatten(2)
        calm = flat.kthvalue(1 + int(CALM * (flat.shape[2] - 1)), dim=2).values
        whole = torch.cat([flat.mean(2), calm], 1)[:, :, None, None].to(found)
        judged = self.judge(torch.cat([found, whole.expand(-1, -1, *found.shape[-2:])], 1))
        return self.tail[kind](judged).unflatten(1, (self.settings["length"], -1)).float().norm(dim=1)

    @torch.no_grad()
    def cells(self, planes: Tensor) -> Tensor:
        """The level in squares of 8×8 pixels, of channels of any size: (C, H, W) -> (C, ⌈H/8⌉, ⌈W/8⌉)."""
        return self(pad_by_mirror(planes))[0]
