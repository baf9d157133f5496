"""A plane restored by windows: what is decided once about all of it, and what is done to each window.

Large files (`slir.files.restore_file`), arrays of Dask and clusters (`slir.cluster`) share these two steps, so that
they give the same pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import retry_on_oom
from slir.estimator.loop import Restoration, restore
from slir.model import Model
from slir.operators import Mask, Operator
from slir.preprocessing.amount import ALL, Amount
from slir.preprocessing.arrays import Canvas, DataRange, canvas, check_filled
from slir.preprocessing.treatment import Restored, Treatment, settle
from slir.result import SILENT, Outlook, Uncertainty


@dataclass(frozen=True, eq=False)
class Decision:
    """What is the same for all windows of a plane.

    operator: B of the whole; for inpainting, whose windows have masks of their own, any mask.
    treatment: noise, colours, and the model. ranges: the pixel values that are restored as 0 and 1, of each channel.
    """

    operator: Operator
    treatment: Treatment
    ranges: tuple[tuple[float, float], ...]

    @property
    def spans(self) -> list[float]:
        """How many pixel values lie between 0 and 1, in each channel."""
        return [high - low for low, high in self.ranges]

    @property
    def noise_in_words(self) -> str:
        """The noise that was estimated; empty where none was."""
        return self.treatment.noise_in_words(self.spans)

    def light(self) -> Decision:
        """The same to be sent around: without the model, and without the sample's mask."""
        operator = Mask(np.zeros((1, 1), bool)) if self.operator.missing is not None else self.operator
        return replace(self, operator=operator, treatment=replace(self.treatment, model=None))

    def with_model(self, model: Model | None) -> Decision:
        """What was sent around, with the model that it was decided for."""
        return replace(self, treatment=replace(self.treatment, model=model))


def decide_once(
    pixels: np.ndarray,
    operator: Operator,
    sigma: float | str,
    *,
    amount: Amount = ALL,
    model: Model | None,
    data_range: DataRange,
    channel_axis: int | None,
    device: torch.device,
    blind: bool = False,
) -> Decision:
    """Decide from `pixels`: a plane, or the windows of it that `sample` names, one below the other.

    A mask is that of these pixels. blind: whether all of them are missing.
    """
    frame, array = canvas(pixels, data_range=data_range, channel_axis=channel_axis)
    if model is not None:
        check_filled(array, data_range)
    frame, _, treatment = settle(frame, array, operator, sigma, model, device, amount=amount, blind=blind)
    return Decision(operator, treatment, frame.ranges)


@dataclass(frozen=True, eq=False)
class RestoredWindow:
    """What a window became, on x's pixels.

    found: (2, C), σ and the residual of each channel, in pixel values. uncertainty: where it was asked for.
    """

    pixels: np.ndarray
    found: np.ndarray
    uncertainty: Uncertainty | None = None


def restore_window(
    pixels: np.ndarray,
    operator: Operator,
    decision: Decision,
    *,
    data_range: DataRange,
    channel_axis: int | None,
    device: torch.device,
    generator: torch.Generator | None = None,
    errors: bool = False,
    level: float | None = None,
) -> RestoredWindow:
    """A window (h, w), or with channels last, seen through its own `operator`. level: of intervals."""
    frame, planes = _planes(pixels, decision, data_range, channel_axis, device)
    restored = _restore_planes(planes, operator, decision, generator, errors=errors)
    found = np.array([restored.sigmas, restored.residuals]) * frame.spans
    image = np.asarray(frame.image(restored.planes))
    if not errors:
        return RestoredWindow(image, found)
    outlook = Outlook.of(restored, decision.treatment, decision.operator, frame)
    return RestoredWindow(image, found, Uncertainty.of(outlook, image, level, SILENT))


def _planes(
    pixels: np.ndarray, decision: Decision, data_range: DataRange, channel_axis: int | None, device: torch.device
) -> tuple[Canvas, list[Tensor]]:
    """A window's canvas, with the ranges of the whole, and its planes."""
    frame, array = canvas(pixels, data_range=data_range, channel_axis=channel_axis)
    frame = replace(frame, ranges=decision.ranges)
    return frame, frame.planes(array, device)


def _restore_planes(
    planes: list[Tensor], operator: Operator, decision: Decision, generator: torch.Generator | None, *, errors: bool
) -> Restored:
    shape = (planes[0].shape[0], planes[0].shape[1])
    operator = decision.treatment.evidence.operator(operator)

    def one(plane: Tensor, model: Model, noise: Any, number: int) -> Restoration:
        asked: dict[str, Any] = {"sigma": noise, "generator": generator, "errors": errors}
        outcome = retry_on_oom(partial(restore, plane, operator, model, **asked), plane.device)
        error = None if outcome.error is None else operator.crop(outcome.error, shape)
        return replace(outcome, x=operator.crop(outcome.x, shape), error=error)

    return decision.treatment.restore(planes, decision.operator, one)
