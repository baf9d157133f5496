"""Conjugate gradient for the x-update."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from slir.solvers.solution import Solution, Verdict

LOOKS = {"cuda": 4}
"""Steps between two looks at the residual: a GPU that is asked has to finish first."""


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
    scale = max(float(rhs.norm()), 1e-30)
    target = tol * scale if target is None else target
    size = float(residual.norm())
    if size <= target:
        return Solution(x, Verdict.CONVERGED, {"steps": 0, "residual": size / scale})
    precondition = precondition or (lambda r: r)
    steer = precondition(residual)
    direction = steer.clone()
    product = _inner(residual, steer)
    every = LOOKS.get(rhs.device.type, 1)
    verdict = Verdict.STEP_LIMIT
    for step in range(1, max_steps + 1):
        mapped = apply(direction)
        curvature = _inner(direction, mapped)
        length = torch.where(curvature > 0, product / curvature, 0.0)
        x.addcmul_(length, direction)
        residual.addcmul_(length, mapped, value=-1)
        if step % every == 0 or step == max_steps:
            size, bent = torch.stack([residual.norm(), curvature]).tolist()
            if size <= target:
                verdict = Verdict.CONVERGED
                break
            if not bent > 0:
                verdict = Verdict.INDEFINITE
                break
        steer = precondition(residual)
        previous, product = product, _inner(residual, steer)
        direction = torch.addcmul(steer, product / previous, direction)
    return Solution(x, verdict, {"steps": step, "residual": size / scale})


def _inner(a: Tensor, b: Tensor) -> Tensor:
    return torch.dot(a.flatten(), b.flatten())
