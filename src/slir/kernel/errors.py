"""Errors to expect from the network's own head, and their calibration on pictures that were held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slir.bank import degrade
from slir.estimator.loop import advance, begin, finished, per_channel, tells_errors
from slir.families import Family
from slir.kernel.stage import ERROR
from slir.model import AnyStage, Model
from slir.operators import Mask
from slir.recipes import ROUNDING
from slir.trust.intervals import calibrate_errors
from slir.trust.record import Trust
from slir.views import State

LEAST = 1e-7
"""Smallest error that is expected anywhere, range 1."""

PIXELS = 1_000_000
"""Held-out pixels that errors are compared at, equally many from each crop."""

HIDDEN = 1 / 6
"""Most grain that is added, as a share of σ: stronger grain is more than 3 % of y's variance, and shows."""


@dataclass(frozen=True)
class NetworkErrors:
    """log E[(x̂ − x)²] as the last network expects it of its own result; what a calibration corrects."""

    reach: int = 0

    def log_square(self, state: State, stage: AnyStage) -> Tensor:
        """(H, W), or (C, H, W) of channels restored together."""
        assert state.told is not None  # the last stage was asked for it
        return 2 * state.told[ERROR].clamp(min=LEAST).log()


@torch.no_grad()
def calibrate_network(
    images: Sequence[Tensor],
    family: Family,
    model: Model,
    *,
    crops: int,
    side: int,
    grain: Sequence[float] = (0.0,),
    what: dict[str, Any],
    generator: torch.Generator,
    progress: Callable[[int, int, str], None] | None = None,
) -> Trust:
    """Compare the errors that the network expects with the true ones, on crops degraded by draws of a family.

    images: clean, (H, W) or (3, H, W) in [0, 1], not learnt from. Every second crop of a colour picture is restored in
        colour, the others as their brightness. grain: standard deviations of the grain that is added to crops, in turn.
    """
    device = model.stages[0].device
    raw: list[Tensor] = []
    errors: list[Tensor] = []
    sigmas: list[float] = []
    for number in range(crops):
        if progress:
            progress(number, crops, "calibrating")
        turn, which = divmod(number, len(images))
        crop = _crop(images[which], side, generator)
        clean = crop.mean(0) if crop.ndim > 2 and (turn + which) % 2 else crop
        operator, sigma = family.draw(generator, (clean.shape[-2], clean.shape[-1]))
        height, width = operator.for_training((clean.shape[-2], clean.shape[-1]))[1]
        added = min(grain[(turn + which) // 2 % len(grain)], HIDDEN * sigma)
        clean = clean[..., :height, :width]
        clean = clean + added * torch.randn(clean.shape, generator=generator)
        y = degrade(clean, operator, sigma, generator)
        if float(torch.rand(1, generator=generator)) < 0.5:  # half of the world's pictures come in 8 bits
            y = (255 * y).round() / 255
        y, clean = y.to(device), clean.to(device)
        noise = per_channel(sigma if y.ndim == 2 else [sigma] * len(y), y)
        state = begin(y, operator, model, noise)
        for place, stage in enumerate(model.stages):
            state, _ = advance(state, stage, telling=tells_errors(model, place))
        expected = NetworkErrors().log_square(state, model.stages[-1])
        counted = torch.zeros(clean.shape[-2:], dtype=torch.bool, device=device)
        operator.crop(counted, (y.shape[-2], y.shape[-1]))[:] = True
        if isinstance(operator, Mask) and sigma <= ROUNDING:
            counted &= operator.missing.to(device)
        places = counted.expand(clean.shape).flatten().nonzero()[:, 0].cpu()
        places = places[torch.randperm(len(places), generator=generator)[: -(-PIXELS // crops)]].to(device)
        raw.append(expected.flatten()[places].cpu())
        errors.append((finished(state, model).x - clean).flatten()[places].cpu())
        sigmas.append(max(sigma, ROUNDING))
    if progress:
        progress(crops, crops, "calibrating")
    table = calibrate_errors(torch.cat(raw), torch.cat(errors))
    return Trust(NetworkErrors(), table, (min(sigmas), max(sigmas)), (1.0, 1.0), what)


def _crop(image: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A crop at a random place, turned and mirrored at random."""
    height, width = (min(side, length) for length in image.shape[-2:])
    limits = (image.shape[-2] - height + 1, image.shape[-1] - width + 1, 2, 2, 2)
    row, col, down, across, swap = (int(torch.randint(n, (), generator=generator)) for n in limits)
    crop = image[..., row : row + height, col : col + width]
    crop = crop.flip([axis for axis, flipped in ((-2, down), (-1, across)) if flipped])
    return (crop.mT if swap else crop).contiguous()
