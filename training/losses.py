"""What is minimised: mean absolute errors of denoising, and of the loop run through random operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import degradations
import torch
import torch.nn.functional as F
from torch import Tensor

from slir.cascade import least_noise, smooth_start
from slir.kernel.network import LEAD, PATCH, STRIDE, KernelNetwork, overlaps
from slir.kernel.stage import KernelStage, ridge, stages
from slir.solvers.system import System
from slir.views import State

PATCHES = 0.25
"""Weight of the error of single patches, beside that of their average."""

EARLY = 0.2
"""Weight of the error of all stages but the last, together."""

COUNTS = (4, 5, 6)
"""Numbers of stages that are drawn."""


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 for convolutions where the device computes in it; on other CPUs it is far slower than single."""
    native = device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=native)


def denoising(net: KernelNetwork, clean: Tensor, generator: torch.Generator, device: torch.device) -> Tensor:
    """One stage, B the identity. Crops and noise are drawn on the CPU, so that all devices learn from the same."""
    noise, level = (drawn.to(device) for drawn in degradations.noise(clean, generator))
    clean = clean.to(device)
    y = (clean + noise).contiguous(memory_format=torch.channels_last)
    with half_precision(device):
        trunk = net.trunk(y, y, torch.zeros_like(y), level.expand_as(y))
        patches = net.corrections(net.features(trunk, y.shape[1]), y.shape[1])
    patches = patches.float()
    aim = F.unfold(F.pad(noise, (LEAD,) * 4, mode="reflect"), PATCH, stride=STRIDE).reshape(patches.shape)
    return (average(patches) - noise).abs().mean() + PATCHES * (patches - aim).abs().mean()


def restoring(net: KernelNetwork, clean: Tensor, generator: torch.Generator, device: torch.device) -> Tensor:
    """The loop unrolled, one operator for all pictures of the batch."""
    operator, sigma = degradations.operator(generator, (clean.shape[-2], clean.shape[-1]))
    height, width = operator.for_training((clean.shape[-2], clean.shape[-1]))[1]
    clean = clean[..., :height, :width].to(device)
    y = operator.forward(clean)
    y = y + sigma * torch.randn(y.shape, generator=generator).to(device)
    count = COUNTS[int(torch.randint(len(COUNTS), (), generator=generator))]
    with torch.no_grad():
        x = smooth_start(operator, y, least_noise(sigma), share=1e-5)
    state = State(y, operator, x, x, sigma)
    loss = clean.new_zeros(())
    for stage in stages(net, count):
        with half_precision(device):
            z, _ = stage.estimate(state)
        weight = 1.0 if stage.following is None else EARLY / (count - 1)
        loss = loss + weight * (z - clean).abs().mean()
        if stage.following is not None:
            state = replace(state, x=_XUpdate.apply(z, state, stage), z=z)
    return loss


class _XUpdate(torch.autograd.Function):
    """x = (BᵀB + ρI)⁻¹(Bᵀy + ρz), whose derivative by z is ρ(BᵀB + ρI)⁻¹: symmetric, so one more solve."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, state: State, stage: KernelStage) -> Tensor:
        assert stage.following is not None
        ctx.weight = ridge(stage.following, state.sigma)
        ctx.system = System(state.operator, 1.0, ctx.weight)
        target = 1e-3 * ctx.weight * z.numel() ** 0.5
        return ctx.system.explain(state.y, z, moment=ctx.weight * z, target=target).value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.system.solve(ctx.weight * gradients[0].contiguous(), tol=1e-2).value, None, None


def average(patches: Tensor) -> Tensor:
    """Patches averaged where they overlap: (B, C·64, H/2, W/2) -> (B, C, H, W)."""
    rows, columns = patches.shape[-2:]
    height, width = STRIDE * rows, STRIDE * columns
    folded = F.fold(patches.flatten(2), (height + 2 * LEAD, width + 2 * LEAD), PATCH, stride=STRIDE)
    return folded[..., LEAD : LEAD + height, LEAD : LEAD + width] / overlaps(rows, columns, patches)
