"""How the planes of one image are restored: decided once, then done to the whole of it or window by window."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError, SlirError, SlirWarning, is_finite
from slir.estimator.loop import Restoration
from slir.estimator.paper_settings import ROUNDING
from slir.kernel.shipped import default_model, shipped_kernel
from slir.model import Model
from slir.noise import estimate_poisson_gaussian, estimate_sigma
from slir.operators import Mask, Operator
from slir.preprocessing import colour
from slir.preprocessing.amount import ALL, Amount
from slir.preprocessing.arrays import Canvas
from slir.preprocessing.local_noise import NoiseFound, find_noise, noise_in_words
from slir.preprocessing.ranges import Groups, black_at_zero, camera_offset, far_away, stretch_range
from slir.preprocessing.stabilise import Evened, Stabiliser
from slir.trust.evidence import BLOCK, NOTHING_SEEN, Evidence
from slir.trust.forward import NOISE_OFF, UNEXPLAINED, ForwardCheck, judge, unexplained_words

POISSON_GAUSSIAN = "poisson-gaussian"

NOT_FINITE = (
    "the restoration gave infinite numbers: the operator or the model holds values far beyond those of the image. "
    "Check the PSF or the linear map that was given, and fit the model anew."
)

BLOCKS = 4
"""Of an image with more pixels than BLOCKS² blocks of this side hold, noise is estimated from so many alone."""

TOLD_BEFORE = ("sigma too small", "sigma too large", "psf", "noise")
"""Faults that are no news once an image is restored."""

One = Callable[[Tensor, Model, Any, int], Restoration]


@dataclass(frozen=True)
class Restored:
    """planes: one a channel, as they came. sigmas, residuals: of each, on the scale where the range is 1. outcomes: of
    each plane."""

    planes: list[Tensor]
    sigmas: list[float]
    residuals: list[float]
    outcomes: list[Restoration]

    @property
    def stages(self) -> list[list[dict[str, Any]]]:
        return [outcome.stats for outcome in self.outcomes]


@dataclass(frozen=True)
class Treatment:
    """What is known about the planes of an image.

    sigmas: noise level of each plane. evened: variance stabilisation of each plane, or none. joint: whether the first
    three planes are colours, which are restored together. grey: whether these hold the same, which is restored once.
    model: what to restore with; None takes what ships. estimated: whether the noise was estimated from the image.
    noise: what was found of noise that is not white and even; the sigmas are then its middle levels. amount: how much
    of it is removed. evidence: what the image shows against the forward model; `sigmas` include what follows from it,
    `noises` do not.
    """

    sigmas: tuple[float, ...]
    evened: tuple[Evened, ...] = ()
    joint: bool = False
    grey: bool = False
    model: Model | None = None
    estimated: bool = False
    noise: NoiseFound | None = None
    amount: Amount = ALL
    evidence: Evidence = NOTHING_SEEN
    noises: tuple[float, ...] = ()

    def examine(self, planes: list[Tensor], operator: Operator, measured: Sequence[float]) -> Treatment:
        """The same in view of what the planes, of these noise levels, show against the operator and σ."""
        evidence = Evidence.of(planes, operator, self.sigmas, measured)
        sigmas = tuple(evidence.sigma(noise, estimated=self.estimated) for noise in self.sigmas)
        return replace(self, evidence=evidence, sigmas=sigmas, noises=self.sigmas)

    @property
    def reason(self) -> str:
        """Why calibrated errors do not hold; empty where they do."""
        return self.evidence.reason if self.noise is None else "the noise is not white"

    def noise_in_words(self, spans: Sequence[float]) -> str:
        """The noise that was estimated from the image; empty where it was specified, where a range has no one level of
        it, and where the levels include the error of the PSF. spans: how many pixel values each range is."""
        if not self.estimated or self.evened or self.evidence.psf is not None:
            return ""
        return noise_in_words(self.sigmas, spans, self.noise)

    def leaves(self, operator: Operator) -> bool:
        """Whether there is nothing to do: no noise, and nothing else between y and x."""
        return operator.is_identity and not self.evened and not any(self.sigmas)

    def model_for(self, operator: Operator, device: torch.device) -> Model:
        """The model that restores an operator's planes, on a device."""
        shipped = shipped_kernel().camera_model if self.noise is not None else default_model(operator)
        return (self.model or shipped).to(device)

    def noise_of(self, number: int, count: int = 1) -> Any:
        """σ of planes as the loop takes it: a number, one a channel, or a function from y to each pixel's level."""
        if self.noise is not None:
            return partial(self.noise.of, number, factor=self.amount.level)
        sigmas = [self.amount.level * sigma for sigma in self.sigmas[number : number + count]]
        return sigmas[0] if count == 1 else sigmas

    def part(self, number: int) -> int:
        """Number of pieces of work before plane `number`: channels that are restored together are one."""
        return max(0, number - 2) if self.joint else number

    def check(
        self, planes: list[Tensor], restored: Restored, operator: Operator, spans: Sequence[float]
    ) -> ForwardCheck | None:
        """Whether y = Bx + ε can be true, for the channels y as they came: the first plane that contradicts it. None
        where the noise was found to be other than white and even, or was stabilised: that has looked at it already."""
        if self.evened or self.noise is not None or not restored.outcomes:
            return None
        checks = [
            judge(plane, operator, outcome.x, noise, span=span, estimated=self.estimated, evidence=self.evidence)
            for plane, outcome, noise, span in zip(planes, restored.outcomes, self.noises or self.sigmas, spans)
        ]
        return next((check for check in checks if not check.right), checks[0])

    def doubts(
        self, restored: Restored, operator: Operator, spans: Sequence[float], check: ForwardCheck | None = None
    ) -> list[str]:
        """In words, what speaks against σ and B and has not been told yet. Without a check, the residual's size alone.

        More noise than σ, and an error of the PSF, are told by `settle`. Less is no mistake: a larger σ smooths more.
        """
        denoising = operator.is_identity
        if check is not None:
            return [text for fault, text in check.faults.items() if fault not in TOLD_BEFORE]
        for sigma, residual, span in zip(self.sigmas, restored.residuals, spans):
            if not denoising and residual**2 > UNEXPLAINED * max(sigma, 4 * ROUNDING) ** 2:
                return [unexplained_words(residual * span, sigma * span, estimated=self.estimated)]
        return []

    def prepare(self, planes: list[Tensor]) -> list[Tensor]:
        """Channels with stabilised variance; as they are where that is not asked for."""
        return [even.forward(plane) for even, plane in zip(self.evened, planes)] if self.evened else list(planes)

    def channels(self, planes: list[Tensor]) -> list[Tensor]:
        """Inverse of `prepare`."""
        return [even.inverse(plane) for even, plane in zip(self.evened, planes)] if self.evened else planes

    def channel_sizes(self, sizes: list[Tensor], planes: list[Tensor]) -> list[Tensor]:
        """Sizes of errors of prepared planes as those of the channels, whose values are `planes`."""
        if not self.evened:
            return sizes
        even = [(even, even.forward(plane), size) for even, plane, size in zip(self.evened, planes, sizes)]
        return [(each.inverse(middle + size) - each.inverse(middle - size)) / 2 for each, middle, size in even]

    def restore(self, planes: list[Tensor], operator: Operator, one: One) -> Restored:
        """All planes, each by `one(plane, model, sigma, number)`."""
        came, planes, outcomes = planes, self.prepare(planes), []
        if self.grey and same(planes[:3]):
            once = one(planes[0], self.model_for(operator, planes[0].device), self.noise_of(0), 0)
            outcomes += [once] * 3
        elif self.joint and (any(self.sigmas[:3]) or not operator.is_identity):
            model = self.model_for(operator, planes[0].device)
            outcomes += one(torch.stack(planes[:3]), model, self.noise_of(0, 3), 0).channels()
        for number, plane in list(enumerate(planes))[len(outcomes) :]:
            if self.sigmas[number] == 0 and operator.is_identity:  # one of several that has no noise
                outcomes.append(Restoration(plane, residual=0.0, error=torch.zeros_like(plane)))
                continue
            outcomes.append(one(plane, self.model_for(operator, plane.device), self.noise_of(number), number))
        if not all(bool(outcome.x.isfinite().all()) for outcome in outcomes):
            raise SlirError(NOT_FINITE)
        restored, residuals = self.channels([each.x for each in outcomes]), [each.residual for each in outcomes]
        sigmas = list(self.sigmas)
        if self.evened:
            sigmas = [even.strength(plane) for even, plane in zip(self.evened, restored)]
            residuals = [residual / even.sigma * own for residual, even, own in zip(residuals, self.evened, sigmas)]
        whole = Restored(restored, sigmas, residuals, outcomes)
        return whole if self.amount.whole else self._blended(came, whole)

    def _blended(self, came: list[Tensor], whole: Restored) -> Restored:
        """What is kept where not all of the noise is to be removed."""
        first = 3 if self.joint else 0
        planes = list(self.amount.blend(torch.stack(came[:3]), torch.stack(whole.planes[:3]))) if first else []
        planes += [self.amount.blend(*pair) for pair in zip(came[first:], whole.planes[first:])]
        share = min(1.0, self.amount.strength)
        outcomes = [
            outcome
            if outcome.error is None
            else replace(outcome, error=((share * outcome.error).square() + ((1 - share) * sigma) ** 2).sqrt())
            for outcome, sigma in zip(whole.outcomes, self.sigmas)
        ]
        return replace(whole, planes=planes, residuals=[share * own for own in whole.residuals], outcomes=outcomes)


def settle(
    frame: Canvas,
    array: np.ndarray,
    operator: Operator,
    sigma: float | str,
    model: Model | None,
    device: torch.device,
    *,
    amount: Amount = ALL,
    blind: bool = False,
) -> tuple[Canvas, list[Tensor], Treatment]:
    """How to treat an image, or a sample of it: the canvas that it is restored on, its planes there, and the rest.

    sigma: in pixel values. amount: how much of the noise to remove. blind: whether nothing is known of any pixel. A
    model that is given was made for a range, so that nothing is stretched then.
    """
    told = _sigma_number(sigma, frame.spans[0])
    black = sigma == POISSON_GAUSSIAN
    frame = black_at_zero(frame) if black else frame
    seen, shown = _sampled_array(array, frame.channel_axis), operator
    if operator.missing is not None and not blind:
        missing = sample_planes([operator.missing])[0]
        blind = bool(missing.all())
        shown = operator if blind else Mask(missing)

    def fitted(groups: Groups) -> tuple[Canvas, list[Tensor]]:
        """The canvas, and the sample's planes on it."""
        own = frame
        if model is None and not blind:
            own = stretch_range(frame, seen, shown, told, groups, black=black)
        flat = replace(own, channel_axis=None if frame.channel_axis is None else -1)
        return own, flat.planes(seen, device)

    count = len(frame.ranges)
    together: Groups = (tuple(range(count)),)
    own, planes = fitted(together)
    treatment = decide(planes, shown, sigma, own.spans, model)
    colours = treatment.joint
    groups: Groups = ((0, 1, 2),) if colours else ()
    groups += tuple((number,) for number in range(sum(map(len, groups)), count))
    if groups != together and model is None:  # what is restored by itself has a range of its own
        own, planes = fitted(groups)
        treatment = decide(planes, shown, sigma, own.spans, model, colours=colours)
    measured = treatment.sigmas
    if told is not None and told > 0 and operator.shows_picture:
        measured = tuple(estimate_sigma(plane) for plane in planes)
        _check_noise(measured, treatment.sigmas, own.spans)
    noise = [even.stabiliser for even in treatment.evened]
    quiet = [own.gain > 0 and own.variance <= ROUNDING**2 for own in noise]
    for text in camera_offset(own, seen, quiet) if treatment.evened else ():
        warnings.warn(text, SlirWarning, stacklevel=6)
    told_all = blind or treatment.evened or treatment.noise is not None or treatment.leaves(shown)
    if not told_all and (model or default_model(shown)).learnt:
        treatment = treatment.examine(planes, shown, measured)
    texts = list(treatment.evidence.faults(own.spans).values())
    texts += far_away(own, seen, shown) if model is None and not blind else ()
    for text in texts:
        warnings.warn(text, SlirWarning, stacklevel=6)
    return own, own.planes(array, device), replace(treatment, amount=amount)


def decide(
    planes: list[Tensor],
    operator: Operator,
    sigma: float | str,
    spans: Sequence[float],
    model: Model | None,
    *,
    colours: bool | None = None,
) -> Treatment:
    """How to treat planes with values in [0, 1], or a sample of them. sigma: in units of which a span is the range.
    colours: whether the first three are, where that is known."""
    evened = _stabilise_planes(sigma, planes, operator)
    if evened:
        planes = [even.forward(plane) for even, plane in zip(evened, planes)]
    sigmas = tuple(even.sigma for even in evened) if evened else _sigmas(sigma, planes, spans)
    if model is not None:
        check_model(model, operator, sigmas, spans[0])
    # Models of the paper's kind know one noise level alone.
    used = model or default_model(operator)
    if colours is None:
        several = len(planes) in (3, 4) and used.joint
        colours = several and colour.alike(without_holes(planes[:3], operator), sigmas[:3])
    grey = colours and same(planes[:3])
    found = None
    if sigma == "auto" and model is None and operator.is_identity:
        found = find_noise(planes, sigmas, colours=colours and not grey)
        sigmas = sigmas if found is None else found.levels
    return Treatment(sigmas, evened, colours, grey, model, estimated=isinstance(sigma, str), noise=found)


def same(planes: Sequence[Tensor]) -> bool:
    """Whether all planes hold the same pixels: a grey picture that is stored in three channels."""
    return all(torch.equal(plane, planes[0]) for plane in planes[1:])


def without_holes(planes: list[Tensor], operator: Operator) -> list[Tensor]:
    """Planes with their holes filled in, as these would be edges that all of them share."""
    if operator.missing is None or operator.missing.shape != planes[0].shape:
        return planes
    return [operator.guess(plane) for plane in planes]


def _check_noise(measured: Sequence[float], sigmas: Sequence[float], spans: Sequence[float]) -> None:
    """Warn where the image is far noisier than was told. Less noise is no mistake: a larger σ smooths more."""
    for found, told, span in zip(measured, sigmas, spans):
        if found > NOISE_OFF * max(told, ROUNDING):
            advice = f"The image is noisier than sigma: about {found * span:.3g}, not {told * span:.3g}."
            warnings.warn(f"{advice} sigma='auto' estimates it.", SlirWarning, stacklevel=7)
            return


def check_model(model: Model, operator: Operator, sigmas: tuple[float, ...], span: float) -> None:
    """A model is learnt for a kind of operator: another is an error. One learnt for a single operator or noise level
    warns of another."""
    learnt = model.made_for.get("family", model.made_for)
    its, ours = learnt.get("operator", {}), operator.describe()
    task, asked_for = learnt.get("kind"), operator.task
    if its.get("kind", ours["kind"]) != ours["kind"] or (task not in (None, asked_for) and asked_for != "other"):
        remedy = "Fit one with slir.fit(images, task=...) or slir.fit(images, operator=...), or pass none."
        raise InputError(
            "model", f"be learnt for the operator {ours['kind']!r}", f"for {its.get('kind', task)!r}", remedy
        )
    if learnt.get("factor", operator.scale) != operator.scale:
        remedy = f"Fit one with slir.fit(images, task='upsample', factor={operator.scale})."
        raise InputError("model", f"be learnt for the factor {operator.scale}", f"for {learnt['factor']}", remedy)
    if operator.missing is None and its and its != ours:
        advice = "The model was learnt for another PSF, filter or border than the one given. Fit a model for this one."
        warnings.warn(advice, SlirWarning, stacklevel=8)
    own, asked = learnt.get("sigma"), max(sigmas)
    if isinstance(own, int | float) and abs(own - asked) > 0.25 * max(own, asked, 2e-3):
        told = f"The model was learnt for sigma {own * span:.3g} and assumes it"
        warnings.warn(f"{told}, but sigma is {asked * span:.3g}. Fit a model for this one.", SlirWarning, stacklevel=8)


def sample(shape: tuple[int, int]) -> list[tuple[slice, slice]]:
    """Windows of an image of this shape that its noise is told from: all of it, or of a large one blocks at even
    distances, all of one size."""
    if shape[0] * shape[1] <= (BLOCK * BLOCKS) ** 2:
        return [(slice(0, shape[0]), slice(0, shape[1]))]
    axes = []
    for length in shape:
        side = min(BLOCK, length)
        count = min(BLOCKS, length // side)
        first = [(length - side) * part // max(1, count - 1) for part in range(count)]
        axes.append([slice(start, start + side) for start in first])
    return [(rows, cols) for rows in axes[0] for cols in axes[1]]


def sample_planes(planes: list[Tensor]) -> list[Tensor]:
    """The sample of planes that are in memory, its windows one below the other."""
    windows = sample((planes[0].shape[0], planes[0].shape[1]))
    return planes if len(windows) == 1 else [torch.cat([plane[window] for window in windows]) for plane in planes]


def _sampled_array(array: np.ndarray, channel_axis: int | None) -> np.ndarray:
    """The same of an array, its channels last."""
    moved = array if channel_axis is None else np.moveaxis(array, channel_axis, -1)
    windows = sample((moved.shape[0], moved.shape[1]))
    return moved if len(windows) == 1 else np.concatenate([moved[window] for window in windows])


def _stabilise_planes(sigma: float | str, planes: list[Tensor], operator: Operator) -> tuple[Evened, ...]:
    """How to even out the noise of each plane, where that is asked for."""
    if sigma != POISSON_GAUSSIAN:
        return ()
    if not operator.is_identity:
        remedy = f"Denoise first with sigma={POISSON_GAUSSIAN!r}, then restore with a third of the sigma found there."
        raise InputError("sigma", "be 'auto' or a number, except to denoise", repr(sigma), remedy)
    found = [estimate_poisson_gaussian(plane) for plane in planes]
    return tuple(Evened(Stabiliser(gain, max(variance, ROUNDING**2))) for gain, variance in found)


def _sigmas(sigma: float | str, planes: list[Tensor], spans: Sequence[float]) -> tuple[float, ...]:
    """σ of each plane on the scale where the range is 1."""
    told = _sigma_number(sigma, max(spans))
    if told is None:
        return tuple(estimate_sigma(plane) for plane in planes)
    return tuple(told / span for span in spans)


def _sigma_number(sigma: float | str, span: float) -> float | None:
    """σ in pixel values where it is a number, after the checks that users need."""
    if isinstance(sigma, str):
        if sigma not in ("auto", POISSON_GAUSSIAN):
            rule = f"be 'auto', '{POISSON_GAUSSIAN}' or a number"
            raise InputError("sigma", rule, repr(sigma), "It counts in units of the pixel values.")
        return None
    if not (isinstance(sigma, int | float | np.number) and is_finite(sigma) and sigma >= 0):
        raise InputError("sigma", "be 'auto' or a number of at least 0", sigma, "It is the noise's standard deviation.")
    value = float(sigma)
    if value > span:
        remedy = f"It counts in units of the pixel values, whose range is {span:g} here."
        raise InputError("sigma", "be at most the data range", sigma, remedy)
    return value
