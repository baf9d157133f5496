"""ADMM's dual variables, to set beside half-quadratic splitting: the paper remarks that HQS does better.

Both solve  min_{x,z} Σ_p Σ_i αᵢ ℓ(z_p, xⁱ) + γ/2‖y − Bx‖²  subject to z_p = x_p. HQS penalises the difference by
β/2‖x_p − z_p‖² with a growing β; ADMM keeps β and adds scaled dual variables u_p (Boyd et al., 2011, §3.1.1):

    z_p ← argmin_z Σ_i αᵢ ℓ(z, xⁱ) + β/2 ‖z − (x_p + u_p)‖²
    x   ← argmin_x γ/2‖y − Bx‖² + β/2 Σ_p ‖x_p − (z_p − u_p)‖²
    u_p ← u_p + x_p − z_p
"""

from __future__ import annotations

import torch
from torch import Tensor

from slir.model import PatchQuadratic, Stage


class Dual:
    """u (P, k), carried from stage to stage; zero at the start, rescaled when β changes."""

    def __init__(self) -> None:
        self.u: Tensor | None = None
        self.z: Tensor | None = None
        self.beta = 1.0

    def pull(self, stage: Stage, seen: Tensor, patches: Tensor, generator: torch.Generator | None) -> PatchQuadratic:
        """The z-update at x_p + u_p, handed on as a pull towards z_p − u_p."""
        assert stage.beta is not None  # Model checks it
        if self.u is None or self.u.shape != patches.shape:  # another grid has other patches
            self.u = torch.zeros_like(patches)
        else:
            self.u *= self.beta / stage.beta
        self.beta = stage.beta
        pull = stage.pull(seen, patches + self.u, generator)
        self.z = pull.moment / stage.beta
        return PatchQuadratic(pull.strength, pull.moment - stage.beta * self.u, pull.stats)

    def step(self, patches: Tensor) -> None:
        """u ← u + x_p − z_p, with x_p of the new x."""
        assert self.u is not None  # step follows pull
        assert self.z is not None
        self.u += patches - self.z
