"""The network of features φ, which decides what "similar" means: a bias-free U-Net on 2×2 blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES = 64  # numbers in φ_p
PATCH = 8
STRIDE = 2
FINE_LAYERS = ("head", "encoder.0", "encoder.1", "down", "up", "decoder", "tail", "patches")
"""Layers that a network for noise of cameras has of its own; it shares the coarse ones, more than half of all."""
LEAD = (PATCH - STRIDE) // 2  # pixels by which a patch begins before its 2×2 block
MULTIPLE = 8  # the coarsest scale has one pixel for each 8×8 of the picture


class ResidualBlock(nn.Module):
    """x + b(relu(a(x))), two 3×3 convolutions without bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.b = nn.Conv2d(width, width, 3, padding=1, bias=False)
        nn.init.orthogonal_(self.a.weight)
        nn.init.orthogonal_(self.b.weight, gain=0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(F.relu_(self.a(x)))


class ErrorHead(nn.Module):
    """‖b(relu(a(trunk)))‖, the length of a few numbers for each pixel: positive, and homogeneous as the rest.

    The absolute value of a single number would be close to zero wherever that changes its sign.
    """

    def __init__(self, width: int, channels: int, hidden: int = 32, length: int = 4) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.b = nn.Conv2d(hidden, length * 4 * channels, 3, padding=1, bias=False)
        self.length = length

    def forward(self, trunk: Tensor) -> Tensor:
        parts = F.pixel_shuffle(self.b(F.relu(self.a(trunk))), 2)
        return parts.unflatten(1, (self.length, -1)).float().norm(dim=1)


class KernelNetwork(nn.Module):
    """Features φ_p at every second pixel, the linear map W that turns them into patches, and the error to expect.

    Grey and colour pictures share the trunk; each has a first layer, last features and a W of its own. Without biases
    the network is homogeneous: φ(c·x, c·σ) = c·φ(x, σ), so pictures need no particular unit.
    """

    def __init__(self, widths: Sequence[int] = (64, 96, 192), blocks: int = 2, colour: bool = True) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"widths": list(widths), "blocks": blocks, "colour": colour}

        def stack(channels: int) -> nn.Sequential:
            return nn.Sequential(*[ResidualBlock(channels) for _ in range(blocks)])

        def per_colour(make: Any) -> nn.ModuleDict:
            return nn.ModuleDict({"grey": make(1), "colour": make(3)} if colour else {"grey": make(1)})

        # data step, estimate before, inverse residual and noise level, each in 2×2 blocks
        self.head = per_colour(lambda c: nn.Conv2d(4 * 4 * c, widths[0], 3, padding=1, bias=False))
        self.encoder = nn.ModuleList([stack(w) for w in widths])
        self.down = nn.ModuleList([nn.Conv2d(widths[i], widths[i + 1], 2, stride=2, bias=False) for i in range(2)])
        self.middle = stack(widths[2])
        up = [nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2, bias=False) for i in range(2)]
        self.up = nn.ModuleList(up)
        self.decoder = nn.ModuleList([stack(widths[i]) for i in range(2)])
        self.tail = per_colour(lambda c: nn.Conv2d(widths[0], FEATURES, 3, padding=1, bias=False))
        self.patches = per_colour(lambda c: nn.Conv2d(FEATURES, c * PATCH**2, 1, bias=False))
        for weight in self.patches.parameters():
            nn.init.normal_(weight, std=0.02)
        self.error = per_colour(lambda c: ErrorHead(widths[0], c))

    @property
    def reach(self) -> int:
        """Distance in pixels up to which a pixel sees others: the sum over the layers, most of it at the coarsest."""
        blocks = 2 * self.settings["blocks"]
        return 2 * (2 + 2 * blocks) + 4 * 2 * blocks + 8 * 2 * blocks + LEAD + PATCH

    @property
    def colour(self) -> bool:
        """Whether it sees three channels together."""
        return bool(self.settings["colour"])

    def trunk(self, x: Tensor, before: Tensor, residual: Tensor, level: Tensor) -> Tensor:
        """What all outputs are made of, (B, width, H/2, W/2).

        x, before, residual, level: the data step, the estimate before it, the inverse residual and the noise level.
            Each is (B, C, H, W) with C = 1 or 3; H and W are multiples of 8.
        """
        planes = torch.cat([x, before, residual, level.expand_as(x)], 1)
        with torch.autocast(x.device.type, enabled=False):  # half precision rounds x by more than faint noise
            first = self.head[_kind(x.shape[1])](F.pixel_unshuffle(planes, 2))
        fine = self.encoder[0](first)
        middle = self.encoder[1](self.down[0](fine))
        coarse = self.middle(self.encoder[2](self.down[1](middle)))
        middle = self.decoder[1](middle + self.up[1](coarse))
        return self.decoder[0](fine + self.up[0](middle))

    def features(self, trunk: Tensor, channels: int) -> Tensor:
        """φ: (B, 64, H/2, W/2)."""
        return F.relu(self.tail[_kind(channels)](trunk))

    def corrections(self, features: Tensor, channels: int) -> Tensor:
        """Wφ_p, what is subtracted from each patch: (B, C·64, H/2, W/2)."""
        return self.patches[_kind(channels)](features)

    def estimate(self, x: Tensor, trunk: Tensor) -> Tensor:
        """x − Σ_p R_pᵀWφ_p / Σ_p R_pᵀR_p."""
        features = self.features(trunk, x.shape[1])
        matrix = self.patches[_kind(x.shape[1])].get_parameter("weight")
        total = F.pixel_shuffle(F.conv2d(features, aggregation(matrix), padding=2), 2)
        return x - total.to(x.dtype) / overlaps(features.shape[-2], features.shape[-1], x)

    def expected_error(self, trunk: Tensor, channels: int) -> Tensor:
        """Root mean square error to expect of the estimate at each pixel: (B, C, H, W)."""
        return self.error[_kind(channels)](trunk)

    def forward(self, x: Tensor, *planes: Tensor) -> Tensor:
        """The estimate, from the planes that `trunk` takes."""
        return self.estimate(x, self.trunk(x, *planes))


def _kind(channels: int) -> str:
    return "grey" if channels == 1 else "colour"


def aggregation(matrix: Tensor) -> Tensor:
    """W and the sum over patches as one 5×5 convolution of φ: (C·64, 64, 1, 1) -> (4C, 64, 5, 5).

    The patch of block p covers the blocks p − 2 … p + 2 in part: its 8 pixels begin 3 before the block. The 4C outputs
    are the pixels of a 2×2 block, for `pixel_shuffle`.
    """
    patches = matrix.view(-1, PATCH, PATCH, FEATURES)
    blocks = F.pad(patches, (0, 0, 1, 1, 1, 1)).view(-1, 5, 2, 5, 2, FEATURES).flip(1, 3)
    return blocks.permute(0, 2, 4, 5, 1, 3).reshape(-1, FEATURES, 5, 5)


def overlaps(rows: int, columns: int, like: Tensor) -> Tensor:
    """Σ_p R_pᵀR_p, in how many patches each pixel lies: (1, 1, 2·rows, 2·columns)."""
    one = like.new_ones(1, 1, PATCH, PATCH)
    return F.conv_transpose2d(like.new_ones(1, 1, rows, columns), one, stride=STRIDE, padding=LEAD)
