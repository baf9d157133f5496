"""(BᵀB + ρI) x = b for a blur with an unknown border: at once on a torus, then what the border hides, step by step.

On a torus blurring is C, and y all of Cx. But y shows only a part of it, so that with U the pixels it does not show

    BᵀB + ρI = CᵀC + ρI − CᵀUUᵀC,    (BᵀB + ρI)⁻¹ = P + PCᵀU K⁻¹ UᵀCP,    P = (CᵀC + ρI)⁻¹,  K = Uᵀ(I − CPCᵀ)U

and K, on the ring of hidden pixels alone, is a filter, ρ/(|c|² + ρ), whose own inverse, cut to the ring, is close to
K⁻¹. A step then takes four transforms in place of six, and a third of the steps are enough.

With w∇ᵀ∇ in place of ρI the formula does not hold, since borders do not meet; but it is close, and makes steps of
conjugate gradient a third to a quarter as many (`smooth_preconditioner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from slir.compute.transforms import irfftn, rfftn
from slir.operators.base import Preconditioner
from slir.operators.convolution import Convolution, roughness, window
from slir.solvers.cg import cg
from slir.solvers.solution import Solution

LONGEST = 0.3
"""Least |∇|² that `smooth_preconditioner` reckons with: longer waves do not fit into the ring."""


def solve_bordered(blur: Convolution, rhs: Tensor, ridge: float, *, target: float, max_steps: int) -> Solution:
    """x with ‖(BᵀB + ρI)x − b‖ ≤ target, for b = `rhs`, (H, W) or (Z, H, W), and ρ = `ridge` > 0.

    What is left in K's system is left in this one, blurred, so one target serves both. stats: steps, the first of them
    on the torus; residual (relative).
    """
    torus = blur.torus(tuple(rhs.shape), rhs)
    inner = window((0,) * rhs.ndim, tuple(rhs.shape))
    inverse = 1 / (torus.power + ridge)  # P
    hidden = 1 - torus.seen

    def apply_filter(v: Tensor, gains: Tensor) -> Tensor:
        return irfftn(rfftn(v, torus.shape) * gains, torus.shape).mul_(hidden)

    kept, lost = ridge * inverse, 1 / (ridge * inverse)
    estimate = rfftn(rhs, torus.shape) * inverse  # of x, its transform
    blurred = irfftn(estimate * torus.spectrum, torus.shape).mul_(hidden)
    found = cg(
        lambda v: apply_filter(v, kept),
        blurred,
        precondition=lambda v: apply_filter(v, lost),
        target=target,
        max_steps=max_steps - 1,
    )
    estimate += rfftn(found.value, torus.shape) * torus.conjugate * inverse
    x = irfftn(estimate, torus.shape)[inner]
    left = found.stats["residual"] * float(blurred.norm()) / max(float(rhs.norm()), 1e-30)
    return replace(found, value=x, stats={"steps": found.stats["steps"] + 1, "residual": left})


def smooth_preconditioner(
    blur: Convolution, like: Tensor, gamma: float, ridge: float, smooth: float, spacing: Sequence[float] = (1.0, 1.0)
) -> Preconditioner:
    """About (γBᵀB + ρI + w∇ᵀ∇)⁻¹ for images like this one, with w = `smooth` > 0: the formula with a filter for K⁻¹."""
    torus = blur.torus(tuple(like.shape), like)
    inner = window((0,) * like.ndim, tuple(like.shape))
    rest = roughness(torus.shape, like, ridge / gamma, smooth / gamma, spacing).clamp_(
        min=(ridge + LONGEST * smooth) / gamma
    )
    whole = torus.power + rest
    hidden = 1 - torus.seen

    def apply(v: Tensor, factors: Tensor) -> Tensor:
        inverse, lost = factors  # all that γ, ρ and w change: a recording is told of others by these alone
        estimate = rfftn(v, torus.shape) * inverse
        blurred = irfftn(estimate * torus.spectrum, torus.shape).mul_(hidden)
        unseen = irfftn(rfftn(blurred, torus.shape) * lost, torus.shape).mul_(hidden)
        estimate += rfftn(unseen, torus.shape) * torus.conjugate * inverse
        return irfftn(estimate, torus.shape)[inner]

    return Preconditioner(apply, torch.stack((1 / (gamma * whole), gamma * whole / rest)))
