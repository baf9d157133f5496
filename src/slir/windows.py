"""A plane restored by windows: what is decided once about all of it, and what is done to each window.

Files that are larger than memory (`slir.streams`), arrays of Dask and clusters (`slir.cluster`) share these two steps,
so that they give the same pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.arrays import DataRange, canvas, check_filled
from slir.cascade import expected_error, least_noise
from slir.compute import sparing
from slir.model import Model
from slir.operators import Mask, Operator
from slir.restoration import Restoration, restore
from slir.treatment import Treatment, settle


@dataclass(frozen=True, eq=False)
class Decision:
    """What is the same for all windows of a plane.

    operator: B of the whole; for inpainting, whose windows have masks of their own, any mask.
    treatment: noise, colours, and the model. units: of the loop, one for each plane that is restored; None for models
    that have none. ranges: the pixel values that are restored as 0 and 1, of each channel.
    """

    operator: Operator
    treatment: Treatment
    units: tuple[float | None, ...]
    ranges: tuple[tuple[float, float], ...]

    @property
    def spans(self) -> list[float]:
        """How many pixel values lie between 0 and 1, in each channel."""
        return [high - low for low, high in self.ranges]

    def light(self) -> Decision:
        """The same to be sent around: without the model, and without the sample's mask."""
        operator = Mask(np.zeros((1, 1), bool)) if isinstance(self.operator, Mask) else self.operator
        return replace(self, operator=operator, treatment=replace(self.treatment, model=None))

    def with_model(self, model: Model | None) -> Decision:
        """What was sent around, with the model that it was decided for."""
        return replace(self, treatment=replace(self.treatment, model=model))


def decide_once(
    pixels: np.ndarray,
    operator: Operator,
    sigma: float | str,
    size: tuple[int, int],
    *,
    model: Model | None,
    data_range: DataRange,
    channel_axis: int | None,
    device: torch.device,
    blind: bool = False,
) -> Decision:
    """Decide from `pixels`: a plane of this size, or the windows of it that `slir.treatment.sample` names, one below
    the other. A mask is that of these pixels. blind: whether all of them are missing."""
    frame, array = canvas(pixels, data_range=data_range, channel_axis=channel_axis)
    if model is not None:
        check_filled(array, data_range)
    frame, _, treatment = settle(frame, array, operator, sigma, model, device, blind=blind)
    shape = operator.missing.shape if isinstance(operator, Mask) else operator.x_shape(size)
    units: list[float | None] = []
    for noise in treatment.noises():
        learnt = treatment.model_for(operator, device).learnt
        units.append(expected_error(operator, least_noise(noise), (shape[0], shape[1])) if learnt else None)
    return Decision(operator, treatment, tuple(units), frame.ranges)


def restore_window(
    pixels: np.ndarray,
    operator: Operator,
    decision: Decision,
    *,
    data_range: DataRange,
    channel_axis: int | None,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """A window (h, w), or with channels last, seen through its own `operator`: on x's pixels; and (2, C): σ and the
    residual of each channel, in pixel values."""
    frame, array = canvas(pixels, data_range=data_range, channel_axis=channel_axis)
    frame = replace(frame, ranges=decision.ranges)
    shape = (pixels.shape[0], pixels.shape[1])

    def one(plane: Tensor, model: Model, noise: float, number: int) -> Restoration:
        asked: dict[str, Any] = {"sigma": noise, "unit": decision.units[number], "generator": generator}
        outcome = sparing(partial(restore, plane, operator, model, **asked), device)
        return replace(outcome, x=operator.crop(outcome.x, shape))

    restored = decision.treatment.restore(frame.planes(array, device), decision.operator, one)
    found = np.array([restored.sigmas, restored.residuals]) * frame.spans
    return np.asarray(frame.image(restored.planes)), found
