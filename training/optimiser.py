"""Muon (Jordan et al. 2024): momentum whose update of each matrix is made orthogonal."""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonalised(gradients: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrices with equal singular values, approximately, by Newton and Schulz's iteration of order five.

    gradients: (N, rows, columns).
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradients.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return (x if wide else x.mT).to(gradients.dtype)


class Muon(torch.optim.Optimizer):
    """Updates of the same root mean square as Adam's, 0.2·lr, so that both take one learning rate.

    Matrices of one shape are made orthogonal together. lr: a tensor, so that a CUDA graph can hold the step.
    """

    def __init__(self, parameters: list[Tensor], lr: Tensor, momentum: float = 0.95) -> None:
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for p in parameters:
            by_shape.setdefault(p.shape, []).append(p)
        super().__init__([{"params": group} for group in by_shape.values()], {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            own = group["params"]
            gradients = [p.grad for p in own]
            for p in own:
                if "momentum" not in self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            means = [self.state[p]["momentum"] for p in own]
            torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
            ahead = torch.stack(torch._foreach_lerp(gradients, means, group["momentum"]))
            matrices = ahead.reshape(len(own), ahead.shape[1], -1)
            updates = orthogonalised(matrices) * (0.2 * max(matrices.shape[1:]) ** 0.5)
            torch._foreach_sub_(own, list((group["lr"] * updates).view_as(ahead)))
