"""Conjugate gradient for the x-update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from slir import fused
from slir.solvers.solution import Solution, Verdict

LOOK = 4
"""Steps between two looks at the residual on a GPU, which has to finish before it can answer."""

Apply = Callable[[Tensor], Tensor]


def cg(
    apply: Apply,
    rhs: Tensor,
    *,
    start: Tensor | None = None,
    residual: Tensor | None = None,
    precondition: Apply | None = None,
    tol: float = 1e-5,
    target: float | None = None,
    max_steps: int = 200,
) -> Solution:
    """Solve Ax = b for a symmetric positive definite A given as a function (Hestenes & Stiefel, 1952).

    Stops when ‖b − Ax‖ ≤ tol ‖b‖, or at `target` where the caller knows what size of residual matters. A direction d
    with dᵀAd ≤ 0 ends the solve with the verdict INDEFINITE: the energy is not convex there, and x is the best point
    before that direction.

    apply: A, on tensors shaped like `rhs`; precondition: an approximation of A⁻¹, itself symmetric positive definite.
    residual: b − A·start, where the caller knows it better than the difference of two large numbers tells.
    stats: steps, residual (relative).
    """
    walk = Walk(apply, precondition or (lambda r: r), torch.zeros_like(rhs), rhs.clone())
    return walk.solve(rhs, start, residual, tol=tol, target=target, max_steps=max_steps)


class Walk:
    """Conjugate gradient on its way: x and its residual, which it changes in place, and the direction it goes next."""

    def __init__(self, apply: Apply, precondition: Apply, x: Tensor, residual: Tensor):
        self.apply, self.precondition = apply, precondition
        self.x, self.residual = x, residual
        self.direction = torch.zeros_like(x)
        self.product, self.curvature, self.nowhere = (x.new_zeros(()) for _ in range(3))
        self.steps = _fused_steps(x)

    def solve(
        self,
        rhs: Tensor,
        start: Tensor | None,
        residual: Tensor | None = None,
        *,
        tol: float,
        target: float | None,
        max_steps: int,
    ) -> Solution:
        """From the start, or zero, until the residual is small enough. The value is x itself, not a copy."""
        if start is not None:
            self.x.copy_(start)
            self.residual.copy_(rhs - self.apply(self.x) if residual is None else residual)
        scale = max(float(rhs.norm()), 1e-30)
        target = tol * scale if target is None else target
        size = float(self.residual.norm())
        if size <= target:
            return Solution(self.x, Verdict.CONVERGED, {"steps": 0, "residual": size / scale})
        steer = self.precondition(self.residual)
        self.direction.copy_(steer)
        self.product.copy_(_inner(self.residual, steer))
        if self.steps is not None:
            self.steps.fresh.copy_(self.product)
        step = 0
        while step < max_steps:
            step += self.advance(step, max_steps)
            size, bent = self.measured()
            if size <= target:
                return Solution(self.x, Verdict.CONVERGED, {"steps": step, "residual": size / scale})
            if not bent > 0:
                return Solution(self.x, Verdict.INDEFINITE, {"steps": step, "residual": size / scale})
        return Solution(self.x, Verdict.STEP_LIMIT, {"steps": step, "residual": size / scale})

    def measured(self) -> list[float]:
        """The residual's norm, and how the energy curved along the last direction."""
        return torch.stack([self.residual.norm(), self.curvature]).tolist()

    def advance(self, step: int, max_steps: int) -> int:
        """As far as the next look at the residual; how many steps that was."""
        count = 1 if self.x.device.type == "cpu" else min(LOOK, max_steps - step)
        for own in range(step, step + count):
            if own:
                self.turn()
            self.move()
        return count

    def move(self) -> None:
        """To the lowest point along the direction; nowhere where it does not curve upwards."""
        mapped = self.apply(self.direction)
        if self.steps is not None:
            self.steps.move(self.x, self.residual, self.direction, mapped, self.product, self.curvature)
            return
        torch.dot(self.direction.flatten(), mapped.flatten(), out=self.curvature)
        length = torch.where(self.curvature > 0, self.product / self.curvature, self.nowhere)
        self.x.addcmul_(length, self.direction)
        self.residual.addcmul_(length, mapped, value=-1)

    def turn(self) -> None:
        """Into the next direction, conjugate to those before."""
        steer = self.precondition(self.residual)
        if self.steps is not None:
            self.steps.turn(self.residual, self.direction, steer, self.product)
            return
        product = _inner(self.residual, steer)
        torch.addcmul(steer, product / self.product, self.direction, out=self.direction)
        self.product.copy_(product)


def _fused_steps(x: Tensor) -> Any:
    """`slir.fused.steps` where they run; None elsewhere."""
    if x.ndim != 2 or not x.is_contiguous() or not fused.usable(x):
        return None
    from slir.fused.steps import Steps

    return Steps(x)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    return torch.dot(a.flatten(), b.flatten())
