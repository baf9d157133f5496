"""The loop for volumes of light: y and B in, x̂ ≥ 0 out; large ones block by block.

    z ← x without its noise, as the learnt kernel sees it in planes XY, XZ and YZ
    x ← argmin_{x ≥ 0} ½ Σ (y − Bx)²/v + ½ w‖x − z‖²,    v = gain · Bx + offset

It differs from `slir.estimator.loop` in three ways, each of which measures better on volumes (docs/experiments.md): no
value is negative, the noise of a voxel follows its brightness, and the network is told of the noise in x alone. The
inverse residual, which it has learnt from the blurs of photographs, misleads it where a microscope sees nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import memory_for_tiles
from slir.estimator.loop import Progress, Restoration
from slir.kernel.network import MULTIPLE, KernelNetwork
from slir.kernel.sections import denoise_sections, section_weights
from slir.kernel.stage import DATA_WEIGHT
from slir.operators import VolumeBlur
from slir.solvers.nonnegative import Variance, multiply
from slir.trust.spread import box

STAGES = 4
"""Stages of the loop."""

START_STEPS = 10
"""Steps before the first stage."""

STEPS, GROWTH, MOST_STEPS = 7.0, 0.2, 60
"""Steps of the x-update between two stages: STEPS · N^GROWTH where the brightest voxel is worth N photons. The less
noise there is, the more of the blur can be undone."""

LEVEL = 4.0
"""Noise level of x that the network is told, in standard deviations of the noise of y."""

LOWEST, HIGHEST = 0.01, 0.4
"""Bounds of that level, as shares of the brightness."""

TIE = 0.2
"""How far z may be off, as a share of the brightness: the prior's weight is λ over its square."""

BRIGHT = 0.999
"""Quantile of x that is its brightness. Brighter voxels are specks."""

DARK = 0.05
"""Least value of the first x, as a share of the mean of y."""

LEAST_LIGHT = 1e-12
"""Least brightness, so that nothing is divided by zero."""

HELD = 128
"""Bytes a voxel of x that the loop holds at most."""

HALO = 24
"""Voxels around a block, beside those that the PSF needs."""

SAMPLE = 96
"""Side of the part of a volume that its brightness is told from."""

LEAST = 16
"""Smallest side of a block without its halo."""

Window = tuple[slice, slice, slice]


@dataclass(frozen=True)
class Levels:
    """What all blocks of a volume share, in its unit. bright: a bright value of x. dark: least value of the first x.
    level: of the noise that the network is told. steps: of an x-update."""

    bright: float
    dark: float
    level: float
    steps: int = 0

    @classmethod
    def of(cls, y: Tensor, operator: VolumeBlur, variance: Variance) -> Levels:
        """Told by the noise of all of y, and the brightness of x around its brightest voxel."""
        smooth = torch.stack([box(plane, 2) for plane in y])
        place = np.unravel_index(int(smooth.argmax()), y.shape)
        starts = [max(0, min(int(at) - SAMPLE // 2, side - SAMPLE)) for at, side in zip(place, y.shape)]
        part = y[tuple(slice(start, start + SAMPLE) for start in starts)]
        first = cls(max(float(smooth.max()), LEAST_LIGHT), DARK * max(float(y.mean()), LEAST_LIGHT), 0.0)
        own = operator.of_depth(len(part))
        x = _crop(start_from(part, own, variance, first), own, part)
        bright = max(float(np.quantile(x.cpu().numpy(), BRIGHT)), LEAST_LIGHT)
        level = LEVEL * variance.mean(y) ** 0.5
        photons = first.bright**2 / max(variance.gain * first.bright + variance.offset, LEAST_LIGHT)
        steps = round(min(STEPS * max(photons, 1.0) ** GROWTH, MOST_STEPS))
        return cls(bright, first.dark, min(max(level, LOWEST * bright), HIGHEST * bright), steps)

    @property
    def weight(self) -> float:
        """w, of the prior."""
        return DATA_WEIGHT / (TIE * self.bright) ** 2


def start_from(y: Tensor, operator: VolumeBlur, variance: Variance, levels: Levels) -> Tensor:
    """x⁽⁰⁾: some steps without a prior, from y smoothed and continued outwards."""
    smooth = operator.guess(torch.stack([box(plane, 2) for plane in y]))
    return multiply(operator, y, variance, smooth.clamp(min=levels.dark), START_STEPS, bright=levels.bright)


@torch.no_grad()
def restore_volume(
    y: Tensor,
    operator: VolumeBlur,
    network: KernelNetwork,
    variance: Variance,
    levels: Levels | None = None,
    *,
    progress: Progress | None = None,
    observe: Callable[[Tensor], None] | None = None,
) -> Restoration:
    """Restore a volume y (Z, h, w) whose black is 0, in any unit: x on the voxels that y shows.

    levels: those of the volume that y is a block of; None takes its own. observe: called as observe(z) after each
    stage.
    """
    levels = levels or Levels.of(y, operator, variance)
    weights = section_weights(operator.spacing)
    x = z = start_from(y, operator, variance, levels)
    stats: list[dict[str, Any]] = []
    for number in range(STAGES):
        if progress:
            progress(number, STAGES, "restoring")
        z = denoise_sections(network, x, z, levels.level, weights).clamp_(min=0)
        if observe:
            observe(_crop(z, operator, y))
        last = number == STAGES - 1
        if not last:
            pull: dict[str, Any] = {"z": z, "weight": levels.weight, "ahead": True}
            x = multiply(operator, y, variance, x, levels.steps, bright=levels.bright, **pull)
        stats.append({"level": levels.level, "x_steps": 0 if last else levels.steps})
    if progress:
        progress(STAGES, STAGES, "restoring")
    residual = float((y - operator.forward(z)).square().mean().sqrt())
    return Restoration(_crop(z, operator, y), stats, residual)


def _crop(x: Tensor, operator: VolumeBlur, y: Tensor) -> Tensor:
    return operator.crop(x, (y.shape[-2], y.shape[-1]))


def restore_blocks(
    y: Tensor,
    operator: VolumeBlur,
    network: KernelNetwork,
    variance: Variance,
    *,
    room: float | None = None,
    progress: Progress | None = None,
    observe: Callable[[Tensor], None] | None = None,
) -> Restoration:
    """`restore_volume`, in blocks where the volume is larger than one. room: voxels of x that a block may have; None
    takes what fits into memory. observe: with several blocks called with what is done, after each of them."""
    if not bool((y > 0).any()):  # no light at all
        return Restoration(torch.zeros_like(y), residual=float(y.square().mean().sqrt()))
    room = memory_for_tiles(y.device) / HELD if room is None else room
    blocks = list(cut_volume(tuple(y.shape), operator, room))
    if len(blocks) == 1:
        return restore_volume(y, operator, network, variance, progress=progress, observe=observe)
    levels = Levels.of(y, operator, variance)
    x, stats, squares = y.clone(), [], 0.0
    for number, (own, seen) in enumerate(blocks):
        if progress:
            progress(number, len(blocks), "restoring")
        part = y[seen]
        restored = restore_volume(part, operator.of_depth(len(part)), network, variance, levels)
        within = tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(own, seen))
        x[own] = restored.x[within]
        squares += restored.residual**2 * prod(axis.stop - axis.start for axis in own)
        stats += restored.stats
        if observe:
            observe(x)
    if progress:
        progress(len(blocks), len(blocks), "restoring")
    return Restoration(x, stats, (squares / y.numel()) ** 0.5)


def cut_volume(shape: tuple[int, ...], operator: VolumeBlur, room: float) -> Iterator[tuple[Window, Window]]:
    """The voxels that a block answers for, and those that it sees, of blocks whose x has `room` voxels at most. They
    begin where the patches of the whole begin."""
    reach = [own - 1 for own in operator.convolution.size]
    around = [_multiple(own + HALO) for own in reach]
    counts = [1, 1, 1]

    def side(axis: int) -> int:
        return _multiple(-(-shape[axis] // counts[axis]))

    def held() -> int:
        halos = [min(2, counts[axis] - 1) * around[axis] for axis in range(3)]
        return prod(min(shape[axis], side(axis) + halos[axis]) + reach[axis] for axis in range(3))

    while held() > room and max(map(side, range(3))) > LEAST:
        counts[max(range(3), key=side)] += 1
    axes = []
    for axis, length in enumerate(shape):
        starts = range(0, length, side(axis))
        owns = [slice(start, min(start + side(axis), length)) for start in starts]
        halos = [slice(max(0, own.start - around[axis]), min(length, own.stop + around[axis])) for own in owns]
        axes.append(list(zip(owns, halos)))
    for (own_z, seen_z), (own_y, seen_y), (own_x, seen_x) in itertools.product(*axes):
        yield (own_z, own_y, own_x), (seen_z, seen_y, seen_x)


def _multiple(length: int) -> int:
    """The multiple of the network's coarsest pixel from this length on."""
    return MULTIPLE * -(-length // MULTIPLE)
