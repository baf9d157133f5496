"""What pictures are degraded by while the kernel is learnt."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.families import AnyBlur, AnyDownsampling, AnyMask
from slir.operators import Blur, Operator

LARGEST_SIGMA = 75 / 255

FAMILIES = (
    (0.45, AnyBlur(low=0.001, high=0.1)),
    (0.20, AnyDownsampling(2)),
    (0.06, AnyDownsampling(3)),
    (0.04, AnyDownsampling(4)),
    (0.25, AnyMask()),
)
"""Operators to restore through, and how often each kind is drawn."""


def noise(clean: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """White noise of up to 75 grey levels, and its standard deviation at each pixel.

    The level varies over a quarter of the crops, and from channel to channel in a quarter of the colour crops.
    """
    count, channels, h, w = clean.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    level = LARGEST_SIGMA * uniform(count, 1, 1, 1).expand(count, channels, h, w)
    varied = LARGEST_SIGMA * F.interpolate(uniform(count, 1, 3, 3), size=(h, w), mode="bilinear", align_corners=True)
    level = torch.where(uniform(count, 1, 1, 1) < 0.25, varied, level)
    if channels > 1:
        uneven = uniform(count, 1, 1, 1) < 0.25
        level = level * torch.where(uneven, 0.25 + 0.75 * uniform(count, channels, 1, 1), torch.ones(()))
    return level * torch.randn(clean.shape, generator=generator), level


def operator(generator: torch.Generator, shape: tuple[int, int]) -> tuple[Operator, float]:
    """An operator for pictures of this shape and a noise level. Blurs are circular, so that a data step is one FFT."""
    shares = torch.tensor([share for share, _ in FAMILIES])
    family = FAMILIES[int(torch.multinomial(shares, 1, generator=generator))][1]
    drawn, sigma = family.draw(generator, shape)
    return (Blur(drawn.psf, border="circular") if isinstance(drawn, Blur) else drawn), sigma
