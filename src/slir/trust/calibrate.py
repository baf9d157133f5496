"""Calibration of the errors to expect, on clean pictures that the model has not learnt from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.bank import degrade, image_hash
from slir.compute import pick_device
from slir.errors import InputError
from slir.estimator.loop import advance, begin, final_state, gives_errors, per_plane, raw_error
from slir.estimator.paper_settings import ROUNDING
from slir.fitting import family_for
from slir.kernel.degradations import Family
from slir.kernel.shipped import default_model
from slir.model import Model
from slir.preprocessing.arrays import clean_picture, grey_plane
from slir.preprocessing.treatment import check_model
from slir.trust.intervals import calibrate_errors, log_square
from slir.trust.record import Trust

Progress = Callable[[int, int, str], None]

CROPS = 96, 400
"""Least and largest number of crops by default."""

CROPS_EACH = 32
"""Least number of crops of similar noise that are calibrated together: errors differ from picture to picture."""

PIXELS = 1_000_000
"""Held-out pixels at which errors are compared, equally many from each crop."""

GRAIN = 0.01
"""Standard deviation of the strongest grain that photographs are taken to have, range 1: 2.5 of 255."""

SHARES = (0.3, 0.6, 1.0)
"""Grain of one crop after the other, as a share of the strongest."""

HIDDEN = 1 / 6
"""Most grain that y shows, as a share of σ: more would be over 3 % of its variance. A blur hides stronger grain."""

MIN_SIDE = 32
"""Smallest side of a picture, and of a crop."""


@torch.no_grad()
def calibrate(
    images: Sequence[np.ndarray | Tensor],
    *,
    model: Model | None = None,
    task: str | None = None,
    operator: Any = None,
    sigma: float | tuple[float, float] | None = None,
    factor: int = 2,
    crops: int | None = None,
    side: int = 256,
    grain: float = GRAIN,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Model:
    """Calibrate the errors and intervals of a model on pictures of one's own; returns the model with them.

    images: clean pictures like those to be restored, which the model has not learnt from; grey or colour, integer or
        float in [0, 1]. A dozen is a start: intervals hold on average over pictures like these.
    model: None takes the one that slir ships.
    task, operator, sigma, factor: what to calibrate for, as for `slir.fit`. Intervals are most exact for one operator
        and one sigma; for a whole task they hold on average over its operators.
    crops, side: number and size of the crops that are degraded, restored and compared with the truth. None takes 96, or
        one of each image where there are more, up to 400: errors differ most from picture to picture. Small crops are
        mostly border, where errors are larger.
    grain: standard deviation, range 1, of the strongest grain that pictures to be restored have and these may lack:
        compressing and reducing remove it, and noise hides it, so that intervals would be too narrow in flat places.
        No more is added than a sixth of sigma in the degraded crop. 0 adds none.

    >>> model = slir.calibrate(pictures, operator=slir.operators.Blur(psf), sigma=0.01)
    >>> low, high = slir.deblur(image, psf, sigma=2.55, model=model, return_info=True).interval(0.9)
    """
    family = family_for(task, operator, sigma, factor)
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    crops = max(CROPS[0], min(CROPS[1], len(planes))) if crops is None else crops
    _check(planes, crops, side, grain)
    example, noise = family.draw(torch.Generator().manual_seed(seed), (side, side))
    if model is None:
        model = default_model(example)
    else:
        check_model(model, example, (noise,), 1.0)
    hashes = [image_hash(plane) for plane in planes]
    known = set(model.made_for.get("images", ())) & set(hashes)
    if known:
        remedy = "Pass pictures that the model has not seen: of those that it knows, errors are too small."
        raise InputError("images", "not be those that the model learnt from", f"{len(known)} are", remedy)
    what = {"pictures": len(planes), "images": hashes, "grain": grain}
    trust = calibrate_model(
        [clean_picture(image) for image in images] if model.joint else planes,
        family,
        model.to(pick_device(device)),
        crops=crops,
        side=side,
        grain=[share * grain for share in SHARES],
        what=what,
        generator=torch.Generator().manual_seed(seed),
        progress=progress,
    )
    return replace(model, trust=trust)


def _check(planes: Sequence[Tensor], crops: int, side: int, grain: float) -> None:
    if not planes:
        raise InputError("images", "hold at least one picture", "empty", "Pass clean pictures.")
    for number, plane in enumerate(planes):
        if min(plane.shape) < MIN_SIDE:
            shape = f"{plane.shape[0]}×{plane.shape[1]}"
            raise InputError(f"images[{number}]", f"have at least {MIN_SIDE} pixels a side", shape, "Pass larger ones.")
    if side < MIN_SIDE:
        raise InputError("side", f"be at least {MIN_SIDE}", side, "256 is the default.")
    if crops < 1:
        raise InputError("crops", "be at least 1", crops, "96 is the default.")
    if not 0 <= grain < 0.5:
        remedy = "It is a standard deviation where the range is 1: 0.01 is 2.55 of 255."
        raise InputError("grain", "lie between 0 and 0.5", grain, remedy)


@torch.no_grad()
def calibrate_model(
    images: Sequence[Tensor],
    family: Family,
    model: Model,
    *,
    crops: int,
    side: int,
    grain: Sequence[float],
    what: dict[str, Any],
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Trust:
    """Compare the errors that a model expects with the true ones, on crops degraded by draws of a family.

    images: clean, (H, W) or (3, H, W) in [0, 1], not learnt from. Every second crop of a colour picture is restored in
        colour, the others as their brightness. grain: standard deviations of the grain that is added to crops, in turn.
    """
    raw: list[Tensor] = []
    errors: list[Tensor] = []
    sigmas: list[float] = []
    for number in range(crops):
        if progress:
            progress(number, crops, "calibrating")
        turn, which = divmod(number, len(images))
        crop = _crop(images[which], side, generator)
        clean = crop.mean(0) if crop.ndim > 2 and (turn + which) % 2 else crop
        clean, expected, error, counted, sigma = _restore_crop(
            clean, family, model, grain[(turn + which) // 2 % len(grain)], generator
        )
        places = counted.expand(clean.shape).flatten().nonzero()[:, 0].cpu()
        places = places[torch.randperm(len(places), generator=generator)[: -(-PIXELS // crops)]].to(error.device)
        raw.append(log_square(expected).flatten()[places].cpu())
        errors.append(error.flatten()[places].cpu())
        sigmas.append(max(sigma, ROUNDING))
    if progress:
        progress(crops, crops, "calibrating")
    nodes: list[float] = []
    tables = []
    for part in _similar_noise(sigmas):
        nodes.append(math.exp(sum(math.log(sigmas[number]) for number in part) / len(part)))
        tables.append(calibrate_errors(*(torch.cat([values[number] for number in part]) for values in (raw, errors))))
    what = {"family": family.describe(), "crops": crops, **what}
    return Trust(tuple(nodes), tuple(tables), (min(sigmas), max(sigmas)), what)


def _similar_noise(sigmas: Sequence[float]) -> list[list[int]]:
    """Numbers of the crops in parts of increasing noise, those without noise by themselves."""
    order = sorted(range(len(sigmas)), key=lambda number: sigmas[number])
    clean = sum(sigma <= ROUNDING for sigma in sigmas)
    clean = clean if 2 * clean >= CROPS_EACH else 0
    noisy = order[clean:]
    count = max(1, len(noisy) // CROPS_EACH) if noisy and sigmas[noisy[0]] < sigmas[noisy[-1]] else 1
    parts = [order[:clean], *(noisy[len(noisy) * k // count : len(noisy) * (k + 1) // count] for k in range(count))]
    return [part for part in parts if part]


def _restore_crop(
    clean: Tensor, family: Family, model: Model, grain: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """A crop with its grain, the error that the model expects, the true one, the pixels that count, and σ."""
    operator, sigma = family.draw(generator, (clean.shape[-2], clean.shape[-1]))
    height, width = operator.for_training((clean.shape[-2], clean.shape[-1]))[1]
    clean = clean[..., :height, :width]
    grains = grain * torch.randn(clean.shape, generator=generator)
    shown = float(operator.forward(grains).std()) if grain else 0.0
    clean = clean + grains * min(1.0, HIDDEN * sigma / max(shown, 1e-12))
    y = degrade(clean, operator, sigma, generator)
    if float(torch.rand(1, generator=generator)) < 0.5:  # half of the world's pictures come in 8 bits
        y = (255 * y).round() / 255
    device = model.stages[0].device
    y, clean = y.to(device), clean.to(device)
    state = begin(y, operator, model, per_plane(sigma, y, operator))
    for number, stage in enumerate(model.stages):
        state, _ = advance(state, stage, errors=gives_errors(model, number))
    counted = torch.zeros(clean.shape[-2:], dtype=torch.bool, device=device)
    operator.crop(counted, (y.shape[-2], y.shape[-1]))[:] = True
    if operator.missing is not None and sigma <= ROUNDING:
        counted &= operator.missing.to(device)
    return clean, raw_error(state, model), final_state(state, model).x - clean, counted, sigma


def _crop(image: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A crop at a random place, turned and mirrored at random."""
    height, width = (min(side, length) for length in image.shape[-2:])
    limits = (image.shape[-2] - height + 1, image.shape[-1] - width + 1, 2, 2, 2)
    row, col, down, across, swap = (int(torch.randint(n, (), generator=generator)) for n in limits)
    crop = image[..., row : row + height, col : col + width]
    crop = crop.flip([axis for axis, flipped in ((-2, down), (-1, across)) if flipped])
    return (crop.mT if swap else crop).contiguous()
