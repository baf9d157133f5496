"""Images of other libraries through the engine: what adapters share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from slir.model import Model
from slir.operators import Operator
from slir.preprocessing.images import Images, restore_images


@torch.no_grad()
def restore_batch(
    batch: Sequence[Tensor],
    operator: Operator,
    sigmas: Sequence[float | Tensor],
    *,
    model: Model | None = None,
    beyond: bool = False,
) -> list[Tensor]:
    """Images y (C, ..., h, w) of any brightness, seen through one operator: x of each, in float32 and y's unit.

    sigmas: of the noise in each image, a number or an array of its shape. model: None takes what ships.
    beyond: give x on all of its pixels, also on those that y does not show (a blur with an unknown border).
    """
    images = [Images.of(y.detach(), operator, sigma, model) for y, sigma in zip(batch, sigmas)]
    outcomes = restore_images(images, beyond=beyond)
    return [torch.stack(own.values([one.x for one in parts])).float() for own, parts in zip(images, outcomes)]
