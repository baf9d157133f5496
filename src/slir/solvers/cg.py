"""Conjugate gradient for the x-update."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slir.solvers.solution import Solution, Verdict


def cg(
    apply: Callable[[Tensor], Tensor],
    rhs: Tensor,
    *,
    start: Tensor | None = None,
    precondition: Callable[[Tensor], Tensor] | None = None,
    tol: float = 1e-5,
    target: float | None = None,
    max_steps: int = 200,
) -> Solution:
    """Solve Ax = b for a symmetric positive definite A given as a function (Hestenes & Stiefel, 1952).

    Stops when ‖b − Ax‖ ≤ tol ‖b‖, or at `target` where the caller knows what size of residual matters. A direction d
    with dᵀAd ≤ 0 ends the solve with the verdict INDEFINITE: the energy is not convex there, and x is the best point
    before that direction.

    apply: A, on tensors shaped like `rhs`; precondition: an approximation of A⁻¹, itself symmetric positive definite.
    stats: steps, residual (relative).
    """
    x = torch.zeros_like(rhs) if start is None else start.clone()
    residual = rhs.clone() if start is None else rhs - apply(x)
    target = tol * float(rhs.norm()) if target is None else target
    size = float(residual.norm())
    scale = max(float(rhs.norm()), 1e-30)
    if size <= target:
        return Solution(x, Verdict.CONVERGED, {"steps": 0, "residual": size / scale})
    precondition = precondition or (lambda r: r)
    steer = precondition(residual)
    direction = steer.clone()
    product = (residual * steer).sum()
    verdict = Verdict.STEP_LIMIT
    step = 0
    while step < max_steps:
        step += 1
        mapped = apply(direction)
        curvature = (direction * mapped).sum()
        if not bool(curvature > 0):
            verdict = Verdict.INDEFINITE
            break
        length = product / curvature
        x += length * direction
        residual -= length * mapped
        size = float(residual.norm())
        if size <= target:
            verdict = Verdict.CONVERGED
            break
        steer = precondition(residual)
        previous, product = product, (residual * steer).sum()
        direction = steer + (product / previous) * direction
    return Solution(x, verdict, {"steps": step, "residual": size / scale})
