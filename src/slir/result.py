"""What a task gives back when it is asked for more than the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import SlirError
from slir.preprocessing.arrays import Array, Canvas

if TYPE_CHECKING:
    from slir.operators import Operator
    from slir.preprocessing.treatment import Restored, Treatment
    from slir.trust.explain import Explanation
    from slir.trust.record import Trust


@dataclass(frozen=True)
class Outlook:
    """The errors to expect, plane by plane.

    errors: root mean square, range 1. trust: the calibration; None for a bank's spread alone. reason: why there are no
    intervals; empty where there are.
    """

    errors: list[Tensor]
    trust: Trust | None
    reason: str
    treatment: Treatment
    frame: Canvas

    @classmethod
    def of(cls, restored: Restored, treatment: Treatment, operator: Operator, frame: Canvas) -> Outlook | None:
        """Of what was restored; None where the model says nothing about it."""
        errors = [outcome.error for outcome in restored.outcomes]
        present = [treatment.evidence.error(error, c) for c, error in enumerate(errors) if error is not None]
        if len(present) < len(errors):
            return None
        trust = treatment.model_for(operator, torch.device("cpu")).trust
        reason = "this model was not calibrated; slir.calibrate does that"
        if trust is not None:
            # Of several planes those without noise were not denoised, and their errors are none.
            denoising = operator.is_identity
            reasons = (trust.reason(operator, sigma) for sigma in treatment.sigmas if sigma > 0 or not denoising)
            reason = next((words for words in (treatment.reason, *reasons) if words), "")
        if treatment.leaves(operator):
            reason = UNTOUCHED
        elif frame.resize is not None:
            reason = frame.resize.reason
        return cls(present, trust, reason, treatment, frame)

    def map(self, image: Array) -> Array:
        """The root mean square error to expect, in the channels and units of `image`, which is what came out."""
        return self.sizes(lambda error, sigma: error, image)

    def sizes(self, of_plane: Callable[[Tensor, float], Tensor], image: Array) -> Array:
        """`of_plane` of each plane's error and noise level, in the image's channels and units."""
        sigmas = self.treatment.sigmas
        if len(sigmas) != len(self.errors):  # the operator makes one plane of several
            sigmas = (max(sigmas),) * len(self.errors)
        sizes = [of_plane(error, sigma) for error, sigma in zip(self.errors, sigmas)]
        evened = self.treatment.evened
        planes = self.frame.planes(_plain(image), sizes[0].device) if evened else []
        return self.frame.sizes(self.treatment.channel_sizes(sizes, planes))

    def interval(self, image: Array, level: float) -> tuple[Array, Array]:
        """Between which values the true pixels of `image`, which is what came out, lie with this probability.

        Raises SlirError where the errors are not calibrated.
        """
        if self.trust is None or self.reason:
            raise SlirError(f"There is no interval: {self.reason}. error_map still ranks pixels.")
        trust = self.trust
        half = self.sizes(lambda error, sigma: trust.half_width(error, level, sigma), image)
        # Beside a large offset 32-bit floats have no digits left for the width.
        wide = self.frame.dtype.itemsize > 2 and self.frame.dtype != np.float32
        middle: Array
        if isinstance(image, Tensor):
            middle = image.double() if wide else image.float()
        else:
            middle = image.astype(np.float64 if wide else np.float32)
        low, high = middle - half, middle + half
        if np.issubdtype(self.frame.dtype, np.integer):  # then the truth is between black and white too
            black, white = self.frame.limits
            return low.clip(black, white), high.clip(black, white)
        return low, high


UNTOUCHED = "nothing was restored"
"""Why an image that came back as it was has no calibrated errors."""

SILENT = "this model gives no expected errors"
UNASKED = 'errors were not asked for: pass return_info=True, not "stats"'


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What files say of the errors of an image or of a window of it, in pixel values.

    error: root mean square error to expect; None where the model says nothing. low, high: the bounds of an interval;
    None where none was asked for or is to be had. reason: why there is no error, or why it is not calibrated.
    """

    error: np.ndarray | None = None
    reason: str = ""
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @classmethod
    def of(cls, outlook: Outlook | None, image: np.ndarray, level: float | None, silence: str) -> Uncertainty:
        """level: of the interval, between 0 and 1; None for none. silence: why there is no outlook."""
        if outlook is None:
            return cls(reason=silence)
        error = np.asarray(outlook.map(image))
        if level is None or outlook.trust is None or outlook.reason:
            return cls(error, outlook.reason)
        low, high = outlook.interval(image, level)
        return cls(error, outlook.reason, np.asarray(low), np.asarray(high))

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Uncertainty:
        """The same with all that there is changed in one way: cut, say."""
        changed = (None if own is None else change(own) for own in (self.error, self.low, self.high))
        error, low, high = changed
        return Uncertainty(error, self.reason, low, high)


@dataclass(frozen=True)
class Result:
    """A restored image with what was measured on the way.

    stats: `sigma` (in units of the pixel values, one per channel; and, with "poisson-gaussian", `gain` and `variance`),
    `seconds`, `stages` (per channel, per stage: steps and residuals of the solvers), `residual` (root mean square of
    y − Bx̂, to be compared with sigma), `forward` (whether y = Bx + ε can be true), `range` (the pixel values that were
    restored as 0 and 1, in which explanations count; one pair per channel). silence: why there is no outlook on errors,
    where there is none.
    """

    image: Array
    stats: dict[str, Any] = field(default_factory=dict)
    outlook: Outlook | None = field(default=None, repr=False)
    ask: Callable[[int, int, int], Explanation] | None = field(default=None, repr=False)
    silence: str = field(default=SILENT, repr=False)

    @property
    def calibrated(self) -> str:
        """Empty where errors and intervals are calibrated; otherwise the reason in words why they are not."""
        return self.silence if self.outlook is None else self.outlook.reason

    @property
    def error_map(self) -> Array | None:
        """The root mean square error to expect at each pixel, in units of the pixel values; None where the model says
        nothing about it. Where `calibrated` holds a reason, it tells better from worse pixels, but not how far off."""
        return None if self.outlook is None else self.outlook.map(self.image)

    @property
    def absolute_error_map(self) -> Array | None:
        """The same, of the absolute error."""
        if self.outlook is None or self.outlook.trust is None:
            return None
        return self.outlook.sizes(self.outlook.trust.absolute_error, self.image)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Between which values the true pixels lie, with this probability: (low, high), floats in units of the pixel
        values.

        They were calibrated on pictures that the model was not fitted on, and hold on average over pictures like those
        (docs/trust.md says what that means). Outside of what was calibrated there is an error instead.
        """
        if self.outlook is None:
            raise SlirError(f"There is no interval: {self.calibrated}.")
        return self.outlook.interval(self.image, level)

    def explain(self, row: int, col: int, k: int = 16) -> Explanation:
        """What the pixel at (row, col) was made from: the k examples with the largest weights, and the patch that they
        and all others add up to."""
        if self.ask is None:
            raise SlirError("There is nothing to explain: the image came back as it was.")
        return self.ask(row, col, k)


def _plain(image: Array) -> np.ndarray:
    return image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else image
