"""The stage of the loop whose kernel is learnt: z_p = x_p − Wφ_p, averaged over patches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.estimator.paper_settings import ROUNDING
from slir.estimator.state import State
from slir.kernel.network import MULTIPLE, PATCH, STRIDE, KernelNetwork
from slir.model import ImageQuadratic
from slir.operators import Blur, Downsample
from slir.operators.convolution import inverse_on_torus, window
from slir.patches import PatchGrid
from slir.trust.spread import box

STAGES = 5
"""Stages of the loop where B is not the identity."""

FIRST_LEVEL = 49 / 255
"""Noise level of the first of several stages, range 1."""

LAST_LEVEL = 1.5 / 255
"""Least noise level of the last of several stages."""

DATA_WEIGHT = 0.23
"""λ: the x-update takes z to be off by level/√λ."""

OUTSHINING, AROUND = 16, 31
"""The network sees no pixel brighter than this many times the mean of a square around it, of this radius: a star that
outshines the rest more than in any picture that was learnt from would spoil the estimate around it."""

APART = 96
"""Least number of zeros between opposite borders of a picture while the residual is inverted on a torus."""

TOLERANCE = {"cpu": 1e-5, "cuda": 5e-5}
"""Root mean square error that the x-update may leave in x, as a share of the noise level of x. Tiles have to agree with
the whole, but a GPU hardly ever needs any."""


@dataclass(frozen=True)
class KernelStage:
    """z ← x − Σ_p R_pᵀWφ_p / Σ_p R_pᵀR_p,      x ← argmin ‖y − Bx‖²/σ² + λ‖x − z‖²/level²

    share: how far the stage is on the way from the first level (0) to the noise's own (1). following: the same of the
    stage after it, to whose level the x-update leads; None for the last stage, which keeps z.
    """

    network: KernelNetwork
    share: float = 1.0
    following: float | None = None
    size: int = PATCH
    stride: int = STRIDE

    @property
    def joint(self) -> bool:
        """Whether it takes the channels of a picture together."""
        return self.network.colour

    def grid(self, shape: tuple[int, int]) -> PatchGrid:
        return PatchGrid(shape, self.size, self.stride)

    def level(self, state: State) -> float | Tensor:
        """The noise level of x that the network is told: a number, one a channel, or one a pixel.

        A pixel that y shows by itself keeps its own noise.
        """
        noise = state.pixel_noise()
        return noise if state.operator.observes_pixels else torch.minimum(noise, torch.as_tensor(self.scheduled(state)))

    def scheduled(self, state: State) -> float | Tensor:
        """The level before single pixels are considered, of the noisiest channel of each image."""
        sigma = torch.as_tensor(state.sigma)
        return (
            scheduled_level(self.share, sigma.amax(-3, keepdim=True))
            if sigma.ndim > 3
            else float(scheduled_level(self.share, sigma.max()))
        )

    def z_update(
        self, state: State, grid: PatchGrid, generator: torch.Generator | None = None, *, errors: bool = False
    ) -> tuple[ImageQuadratic, State]:
        """The average of all patches as a quadratic in x. The state keeps x, and the error to expect if asked for."""
        z, error = self.estimate(state, errors=errors)
        return ImageQuadratic(torch.ones_like(z), z), replace(state, seen=state.x, error=error)

    def estimate(self, state: State, *, errors: bool = False) -> tuple[Tensor, Tensor | None]:
        """z on x's pixels, and the error to expect of it where that is asked for.

        x: (H, W), channels (C, H, W), or several pictures (N, C, H, W).
        """
        shape = state.x.shape
        x, trunk = pad_by_mirror(state.x), self.network.trunk(*self.planes(state))

        def unframed(image: Tensor) -> Tensor:
            return image[..., : shape[-2], : shape[-1]].reshape(shape)

        z = unframed(self.network.estimate(x, trunk))
        return z, unframed(self.network.expected_error(trunk, x.shape[1])) if errors else None

    def correction(self, state: State, row: int, col: int) -> Tensor:
        """Wφ_p of the patch around the 2×2 block that pixel (row, col) is in: (size, size), or (C, size, size)."""
        planes = self.planes(state)
        channels = planes[0].shape[1]
        features = self.network.features(self.network.trunk(*planes), channels)
        corrections = self.network.corrections(features, channels)
        patch = corrections[0, :, row // self.stride, col // self.stride].view(channels, self.size, self.size)
        return patch if state.x.ndim > 2 else patch[0]

    def planes(self, state: State) -> list[Tensor]:
        """What the network sees: x, z, the inverse residual, none of them beyond a limit, and the noise level."""
        level = torch.as_tensor(self.level(state), dtype=state.x.dtype, device=state.x.device)
        limit = OUTSHINING * box(state.x.abs(), AROUND)
        limited = [torch.minimum(state.x, limit), torch.minimum(state.z, limit)]
        limited.append(self.residual(state).clamp(-limit, limit))
        return [pad_by_mirror(plane) for plane in (*limited, level.expand(state.x.shape))]

    @torch.no_grad()
    def residual(self, state: State) -> Tensor:
        """About (BᵀB + qI)⁻¹Bᵀ(y − Bx), q = λσ²/level²: what y still says, brought back to where it belongs. Nothing
        where y shows each pixel by itself, Bᵀ alone for downsampling, as the network was learnt."""
        operator = state.operator
        if operator.diagonal_like(state.x) is not None:
            return torch.zeros_like(state.x)
        back = operator.adjoint(state.y - operator.forward(state.x))
        if isinstance(operator, Downsample):
            return back
        circular = isinstance(operator, Blur) and operator.border == "circular"
        apart = 0 if circular else max(APART, 4 * operator.reach)
        axes = len(operator.spacing)
        padded = F.pad(back, (0, apart) * axes)
        sigma = torch.as_tensor(state.sigma)
        sigma = sigma.mean(-3, keepdim=True) if sigma.ndim > 3 else sigma.mean()
        weight = ridge(self.share, sigma).to(back.device)
        hint = inverse_on_torus(operator.power, padded, 1.0, weight, 0.0, circular=circular, spacing=operator.spacing)
        inner = window((0,) * axes, tuple(back.shape[-axes:]))
        return back if hint is None else hint(padded)[inner]

    def system(self, quadratic: ImageQuadratic, sigma: float) -> tuple[float, Tensor, Tensor]:
        """The x-update's data weight, diagonal and moment."""
        if self.following is None:
            return 0.0, quadratic.diagonal, quadratic.moment
        weight = float(ridge(self.following, sigma))
        return 1.0, weight * quadratic.diagonal, weight * quadratic.moment

    def solve_from(self, state: State, z: Tensor) -> tuple[float, Tensor]:
        """The root mean square error that the x-update may leave in x, and where it starts."""
        return TOLERANCE.get(z.device.type, 1e-5) * float(self.scheduled(state)), z

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> KernelStage:
        """The same stage on a device. moved: what is there already, so that stages share one network."""
        moved = {} if moved is None else moved
        if id(self.network) not in moved:
            import copy

            moved[id(self.network)] = copy.deepcopy(self.network).to(device)
        return replace(self, network=moved[id(self.network)])


def scheduled_level(share: float, sigma: float | Tensor) -> Tensor:
    """The noise level of x at a stage, falling geometrically from the first to the noise's own."""
    last = torch.as_tensor(sigma).clamp(min=LAST_LEVEL)
    return FIRST_LEVEL ** (1 - share) * last**share


def ridge(share: float, sigma: float | Tensor) -> Tensor:
    """λσ²/level², the weight of z in the x-update before a stage."""
    return DATA_WEIGHT * (torch.as_tensor(sigma).clamp(min=ROUNDING) / scheduled_level(share, sigma)) ** 2


def pad_by_mirror(image: Tensor) -> Tensor:
    """(N, C, H', W'), mirrored until both sides are multiples of 8, channels last. C is 3 where there are so many
    channels, else 1."""
    channels = 3 if image.ndim > 2 and image.shape[-3] == 3 else 1
    plane = batch = image.reshape(-1, channels, *image.shape[-2:])
    rows, cols = (-length % MULTIPLE for length in plane.shape[-2:])
    if rows or cols:
        mode = "reflect" if rows < plane.shape[-2] and cols < plane.shape[-1] else "replicate"
        batch = F.pad(batch, (0, cols, 0, rows), mode=mode)
    return batch.contiguous(memory_format=torch.channels_last)


def stages(network: KernelNetwork, count: int) -> tuple[KernelStage, ...]:
    """The stages that one network serves: one where B is the identity, several elsewhere."""
    shares = [t / (count - 1) for t in range(count)] if count > 1 else [1.0]
    return tuple(KernelStage(network, own, after) for own, after in zip(shares, [*shares[1:], None]))
