"""Muon (Jordan et al. 2024): momentum whose update of each matrix is made orthogonal."""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonalised(gradient: Tensor, steps: int = 5) -> Tensor:
    """The nearest matrix with equal singular values, approximately, by Newton and Schulz's iteration of order five."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient.bfloat16()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    return (x if wide else x.T).to(gradient.dtype)


class Muon(torch.optim.Optimizer):
    """Updates of the same root mean square as Adam's, 0.2·lr, so that both take one learning rate."""

    def __init__(self, parameters: list[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p.grad)
                mean = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                ahead = p.grad.lerp(mean, group["momentum"])
                matrix = ahead.reshape(len(p), -1)
                update = orthogonalised(matrix) * (0.2 * max(matrix.shape) ** 0.5)
                p.add_(update.view_as(p), alpha=-group["lr"])
