"""What is minimised: errors of denoising, and of the loop run through random operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from degradations import Bank
from torch import Tensor
from torus import Operators

from slir.estimator.paper_settings import ROUNDING
from slir.estimator.start import SLOPE
from slir.kernel.network import LEAD, PATCH, STRIDE, KernelNetwork
from slir.kernel.stage import ridge, scheduled_level

PATCHES = 0.25
"""Weight of the error of single patches, beside that of their average."""

EARLY = 0.2
"""Weight of the error of all stages but the last, together."""


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 for convolutions where the device computes in it; on other CPUs it is far slower than single."""
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=native)


def size(error: Tensor, blend: Tensor) -> Tensor:
    """Mean absolute error (blend 0), root mean square error (1) of each picture, or between: (N,)."""
    error = error.flatten(1)
    return (1 - blend) * error.abs().mean(1) + blend * (error.square().mean(1) + 1e-10).sqrt()


Spoil = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def denoising(net: KernelNetwork, clean: Tensor, spoil: Spoil, blend: Tensor) -> Tensor:
    """One stage, B the identity. spoil: gives y, the truth and the noise level."""
    y, clean, level = spoil(clean)
    weight = (level.mean((1, 2, 3)) / 0.1).clamp(min=0.02) ** -0.5  # errors grow with noise: each level counts as much
    with half_precision(clean.device):
        trunk = net.trunk(y, y, torch.zeros_like(y), level)
        z = net.estimate(y, trunk)
        part = max(1, len(y) // 4)
        patches = net.corrections(net.features(trunk[:part], y.shape[1]), y.shape[1]).float()
    left, bright = (y - clean)[:part], clean.clamp(min=1)  # errors of points of light count as shares of these
    aim, shade = (
        F.unfold(F.pad(image, (LEAD,) * 4, mode="reflect"), PATCH, stride=STRIDE).reshape(patches.shape)
        for image in (left, bright[:part])
    )
    return (weight * size((z - clean) / bright, blend)).mean() + PATCHES * (
        weight[:part] * size((patches - aim) / shade, blend)
    ).mean()


def restoring(net: KernelNetwork, clean: Tensor, bank: Bank, count: int, blend: Tensor) -> Tensor:
    """The loop unrolled over `count` stages, a different operator for each picture."""
    operators, sigma = bank.draw(len(clean), clean.shape[-1])
    y = operators.forward(clean)
    y = y + sigma * torch.randn_like(y)
    bright = clean.clamp(min=1)  # errors of points of light count as shares of these
    stored = torch.rand((len(y), 1, 1, 1), device=y.device) < 0.5
    y = torch.where(stored & (clean.amax((1, 2, 3), keepdim=True) <= 1), (255 * y).round().clamp(0, 255) / 255, y)
    with half_precision(clean.device):
        found = [z for z, _ in unrolled(net, operators, y, sigma, count)]
    loss = size((found[-1] - clean) / bright, blend).mean()
    return loss + EARLY / (count - 1) * sum(size((z - clean) / bright, blend).mean() for z in found[:-1])


def unrolled(
    net: KernelNetwork, operators: Operators, y: Tensor, sigma: Tensor, count: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The estimate and the trunk's output of each stage, as `slir.kernel.stage` makes them."""
    x = z = operators.start(y, (sigma.clamp(min=ROUNDING) / SLOPE).square())
    for number in range(count):
        share = number / (count - 1)
        if number:
            x = operators.update(y, z, ridge(share, sigma))
        level = scheduled_level(share, sigma).expand_as(x)
        if hasattr(operators, "known"):
            level = torch.where(operators.known > 0, torch.minimum(sigma, level), level)
        trunk = net.trunk(x, z, operators.residual(x, y, ridge(share, sigma)).detach(), level)
        z = net.estimate(x, trunk)
        yield z, trunk
