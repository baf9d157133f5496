"""The planes of one image through the engine: what adapters share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from slir.compute import retry_on_oom
from slir.errors import InputError
from slir.estimator.loop import Restoration, restore
from slir.estimator.tiling import restore_tiled
from slir.kernel.shipped import default_model
from slir.model import Model
from slir.operators import Operator
from slir.preprocessing import colour
from slir.preprocessing.treatment import Treatment, check_model, same, without_holes
from slir.restoration import MIN_SIDE


def restore_planes(
    planes: Sequence[Tensor], operator: Operator, *, sigma: float, model: Model | None = None, beyond: bool = False
) -> list[Tensor]:
    """The planes y of an image, all seen through one operator, where the range is 1: (h, w) -> x in float32.

    sigma: of the noise in each of them. model: None takes what ships. Three planes that show one picture are restored
    together, as the tasks do.
    beyond: give x on all of its pixels, also on those that y does not show (a blur with an unknown border).
    """
    planes = [plane.detach().float() for plane in planes]
    shape = (planes[0].shape[0], planes[0].shape[1])
    x_shape = operator.x_shape(shape)
    if min(x_shape) < MIN_SIDE:
        found = f"{x_shape[0]}×{x_shape[1]}"
        raise InputError("image", f"have at least {MIN_SIDE} pixels a side", found, "Pad it first.")
    sigmas = (sigma,) * len(planes)
    if model is not None:
        check_model(model, operator, sigmas, 1.0)
    used = model or default_model(operator)
    colours = len(planes) in (3, 4) and used.joint and min(shape) >= MIN_SIDE
    colours = colours and colour.alike(without_holes(planes[:3], operator), sigmas[:3])
    treatment = Treatment(sigmas, joint=colours, grey=colours and same(planes[:3]), model=model)
    if treatment.leaves(operator):
        return planes
    work = restore if beyond and operator.shown(shape) != (0, 0, *x_shape) else restore_tiled

    def one(plane: Tensor, own: Model, noise: Any, number: int) -> Restoration:
        # A generator of its own: solvers that draw at random give the same each time.
        generator = torch.Generator().manual_seed(0)
        return retry_on_oom(lambda: work(plane, operator, own, sigma=noise, generator=generator), plane.device)

    return treatment.restore(planes, operator, one).planes
