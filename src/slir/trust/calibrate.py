"""Calibration for what one has: pictures of one's own, the operator and the noise at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.bank import image_hash
from slir.compute import pick_device
from slir.crews import LocalCrew
from slir.crops import Case, begun, check_pictures, draw_crops
from slir.defaults import default_model
from slir.errors import InputError
from slir.estimator.loop import advance, begin, finished
from slir.families import Family
from slir.fitting import family_for
from slir.kernel.errors import calibrate_network
from slir.kernel.stage import KernelStage
from slir.model import Model
from slir.operators import Operator
from slir.plans import Plan, cascade_plan
from slir.preprocessing.arrays import clean_picture, grey_plane
from slir.preprocessing.treatment import check_model
from slir.trust.record import learn_trust

Progress = Callable[[int, int, str], None]

FEWEST, MOST = 96, 400
"""Crops, unless told otherwise. They are held in memory, 3 MB each."""

GRAIN = 0.01
"""Standard deviation of the strongest grain that photographs are taken to have, range 1: 2.5 of 255."""

SHARES = (0.0, 0.3, 0.0, 0.6, 0.0, 1.0)
"""Of it, in turn. With more, pictures as they are would be covered too well in flat places (docs/experiments.md)."""

HIDDEN = 1 / 6
"""Of σ: stronger grain is more than 3 % of y's variance, and shows."""


@torch.no_grad()
def calibrate(
    images: Sequence[np.ndarray | Tensor],
    *,
    model: Model | None = None,
    task: str | None = None,
    operator: Operator | None = None,
    sigma: float | tuple[float, float] | None = None,
    factor: int = 2,
    crops: int | None = None,
    side: int = 256,
    grain: float = GRAIN,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Model:
    """The same model, with errors and intervals calibrated on these images.

    images: clean pictures like those to be restored, which the model has not learnt from; grey or colour, integer or
        float in [0, 1]. A dozen is a start: intervals hold on average over pictures like these.
    model: None takes the one that slir ships.
    task, operator, sigma, factor: what to calibrate for, as for `slir.fit`. For one operator and one sigma intervals
        are the most exact; for a whole task they hold on average over its operators.
    crops, side: how many crops of what size are degraded, restored and compared with the truth. None takes 96, or one
        of each image where there are more, up to 400: errors differ most from picture to picture. Small crops are
        mostly border, where errors are larger.
    grain: standard deviation, range 1, of the strongest grain that pictures to be restored have and these may lack:
        compressing and reducing take it away, and noise hides it, so that intervals would be too narrow in flat places.
        Every second crop gets some, at most a sixth of sigma. 0 adds none: then intervals hold for pictures that are
        as smooth as these.

    >>> model = slir.calibrate(pictures, operator=slir.operators.Blur(psf), sigma=0.01)
    >>> low, high = slir.deblur(image, psf, sigma=2.55, model=model, return_info=True).interval(0.9)
    """
    target = pick_device(device)
    family = family_for(task, operator, sigma, factor)
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    if not 0 <= grain < 0.5:
        remedy = "It is a standard deviation where the range is 1: 0.01 is 2.55 of 255."
        raise InputError("grain", "lie between 0 and 0.5", grain, remedy)
    crops = max(FEWEST, min(MOST, len(planes))) if crops is None else crops
    check_pictures(planes, crops, side, 1)
    generator = torch.Generator().manual_seed(seed)
    if model is None:
        example, noise = family.draw(generator, (side, side))
        model = default_model(example)
    else:  # drawn apart, so that the crops are the same for any model
        example, noise = family.draw(torch.Generator().manual_seed(seed), (side, side))
        check_model(model, example, (noise,), 1.0)
    model = model.to(target)
    hashes = [image_hash(plane) for plane in planes]
    known = set(model.made_for.get("images", ())) & set(hashes)
    if known:
        remedy = "Pass pictures that the model has not seen: of those that it knows, errors are too small."
        raise InputError("images", "not be those that the model learnt from", f"{len(known)} are", remedy)
    what = {"family": family.describe(), "pictures": len(planes), "crops": crops, "images": hashes, "grain": grain}
    if isinstance(model.stages[0], KernelStage):
        pictures = [clean_picture(image) for image in images]
        grains = [share * grain for share in SHARES]
        settings: dict[str, Any] = {"crops": crops, "side": side, "grain": grains, "generator": generator}
        trust = calibrate_network(pictures, family, model, what=what, progress=progress, **settings)
        return replace(model, trust=trust).to("cpu")
    plan = replace(cascade_plan(family), grain=tuple(share * grain for share in SHARES) if grain else ())
    cases = _cases(planes, family, model, plan, crops, side, generator, target)
    for number, case in enumerate(cases):
        if progress:
            progress(number, len(cases), "calibrating")
        for stage in model.stages:
            case = replace(case, state=advance(case.state, stage, telling=stage is model.stages[-1])[0])
        cases[number] = replace(case, state=replace(finished(case.state, model), matched={}))  # groups are large
    if progress:
        progress(len(cases), len(cases), "calibrating")
    return replace(model, trust=learn_trust(LocalCrew(cases, target), [model], what, seed=seed)).to("cpu")


def _cases(
    planes: list[Tensor],
    family: Family,
    model: Model,
    plan: Plan,
    crops: int,
    side: int,
    generator: torch.Generator,
    device: torch.device,
) -> list[Case]:
    """Crops, degraded, at the start of the model's loop."""
    drawn = draw_crops(planes, list(range(len(planes))), family, crops, side, 1, generator, plan, HIDDEN)
    cases = [begun(crop, device) for crop in drawn]
    if model.learnt:
        return cases
    started = []
    for case in cases:  # the paper's stages count in the range, and start elsewhere
        unit, operator = case.state.unit, case.state.operator
        sigma = case.state.sigma * unit
        state = begin(case.state.y * unit, operator, model, sigma)
        started.append(replace(case, clean=case.clean * unit, state=state))
    return started
