"""What a model knows about its own errors: learnt from restorations of pictures that it was not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slir.model import AnyStage, Model
from slir.operators import Mask, Operator
from slir.recipes import ROUNDING
from slir.trust import own_test
from slir.trust.evidence import weights_spread
from slir.trust.expected import ErrorModel, fit_error_model, gather, gather_around
from slir.trust.intervals import Calibration, calibrate_errors
from slir.trust.own_test import Correction, OwnTest
from slir.views import State

if TYPE_CHECKING:
    from slir.crews import Crew
    from slir.crops import Case
    from slir.kernel.errors import NetworkErrors

PIXELS = 200_000
"""Held-out pixels to learn from, equally many from each crop."""

ROOM = 1.1
"""By what factor σ, and the error of a linear estimate, may lie beyond those that were calibrated."""


@dataclass(frozen=True)
class Trust:
    """errors: what is expected. calibration: how that compares with the truth.

    sigma, unit: the least and the largest that were calibrated, range 1. what: whatever else it holds for, as JSON:
    the family of degradations, and the pictures. own: what a picture's own test says, where that was learnt.
    """

    errors: ErrorModel | NetworkErrors
    calibration: Calibration
    sigma: tuple[float, float]
    unit: tuple[float, float]
    what: dict[str, Any]
    own: OwnTest | None = None

    def reason(self, operator: Operator, sigma: float, unit: float) -> str:
        """Why it says nothing about such a restoration, in words; empty where it does."""
        own, ours = self.what.get("family", {}).get("operator"), operator.describe()
        if own and ours["kind"] != "mask" and own != ours:
            return "the model was calibrated for another operator than this one"
        asked = max(sigma, ROUNDING)
        if not self.sigma[0] / ROOM <= asked <= self.sigma[1] * ROOM:
            low, high = self.sigma
            return f"the model was calibrated for a sigma of {low:.3g} to {high:.3g} of the range, not {asked:.3g}"
        if not self.unit[0] / ROOM <= unit <= self.unit[1] * ROOM:
            size = "easier" if unit < self.unit[0] else "harder"
            return f"this operator is {size} to undo than any that the model was calibrated for"
        return ""


def expected_error_map(state: State, model: Model, *, exact: bool = False) -> Tensor | None:
    """ê, the root mean square error to expect at each pixel of x̂, in units: (H, W).

    exact: whether pixels that B shows came without noise. A bank's weights have a spread also without calibration;
    other models without one say nothing.
    """
    stage = model.stages[-1]
    if isinstance(model.trust, Trust):
        error = model.trust.calibration.error(model.trust.errors.log_square(state, stage))
    elif model.learnt:
        return None
    else:
        error = weights_spread(state, stage).sqrt()  # type: ignore[arg-type]
    if exact and isinstance(state.operator, Mask):
        error = error * state.operator.missing.to(error)
    return error


def tested(x: Tensor, error: Tensor, operator: Operator, model: Model, sigma: float, unit: float) -> Tensor:
    """ê after the picture's own test; what was before it is not kept. x: x̂ on the pixels that y shows, range 1."""
    part = own_test.middle((x.shape[0], x.shape[1]))
    found = what_test_says(x, error, part, operator, model, sigma, unit)
    return error if found is None else found.apply(error)


def what_test_says(
    x: Tensor,
    error: Tensor,
    part: tuple[slice, slice],
    operator: Operator,
    model: Model,
    sigma: float,
    unit: float,
) -> Correction | None:
    """By what a picture's errors are to be multiplied, from the part of it that is its middle (`own_test.middle`).

    x: x̂ of the picture, or of a window that holds that part, range 1. error: ê there. operator: of the picture; a mask
    is that of x. None where nothing was learnt of it, or it cannot be tested.
    """
    trust = model.trust
    if not isinstance(trust, Trust) or trust.own is None or trust.reason(operator, sigma, unit):
        return None
    found = own_test.found_in(x, part, operator, model, sigma, unit) if own_test.pays(part, operator) else None
    return None if found is None else trust.own.correction(error[part], found)


def learn_trust(crew: Crew, models: Sequence[Model], what: dict[str, Any], *, seed: int = 0) -> Trust:
    """From finished restorations of pictures, which a crew has in hands, each by the model of its fold, which was not
    fitted on them.

    Expectations are learnt from one half of the crops and calibrated on the other; then the other way round, so that
    both halves count in the table. What is kept expects by all of them. Then each crop takes its own test, and the
    table is made again with what that says.
    """
    stage = models[0].stages[-1]
    generator = torch.Generator().manual_seed(seed)
    counts, pictures, grains, sigmas, units = zip(*crew.ask(_facts))
    each = -(-PIXELS // len(counts))
    some = [torch.randperm(count, generator=generator)[:each] for count in counts]
    order = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
    names: tuple[str, ...] = ()
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for number, (names, seen, errors) in enumerate(crew.ask(_evidence_at, stage, each=some)):  # noqa: B007
        # Crops of one picture may be alike, so a picture belongs to one half whole, if there are two.
        half = (order[pictures[number]] if len(order) > 1 else number) % 2
        parts.append((seen, errors, torch.full((len(errors),), half)))
    seen, errors, halves = (torch.cat(column) for column in zip(*parts))
    # Learnt from all, and from all but each half.
    everyone = torch.ones_like(halves, dtype=torch.bool)
    taken = [everyone, *(halves != own for own in (0, 1))]
    firsts = [fit_error_model(names, seen[own], errors[own]) for own in taken]
    told = crew.ask(_expected_around, stage, firsts, each=some)
    around = [torch.cat(parts) for parts in zip(*(found for _, found in told))]
    wider = [torch.cat([seen, found], 1) for found in around]
    more = (*names, *told[0][0])
    seconds = [fit_error_model(more, own[rows], errors[rows]) for own, rows in zip(wider, taken)]
    expected = torch.empty_like(errors)
    for own in (0, 1):
        expected[halves == own] = seconds[1 + own].log_square_from(wider[1 + own][halves == own])
    table = calibrate_errors(expected, errors)
    span = (min(sigmas), max(sigmas)), (min(units), max(units))
    trust = Trust(replace(firsts[0], again=seconds[0]), table, *span, what)
    crew.move(_own_test, folds=[replace(model, trust=trust) for model in models])
    sizes = [len(part[1]) for part in parts]
    hoped = table.error(expected).split(sizes)
    found = crew.ask(_own)
    test = learn_own_test(found, errors.split(sizes), hoped, pictures, grains)
    if test is None:
        return trust
    corrections = (None if own is None else test.correction(one, own) for one, own in zip(hoped, found))
    corrected = [one if own is None else own.apply(one.clone()) for one, own in zip(hoped, corrections)]
    shift = torch.cat(corrected).log() - torch.cat(hoped).log()
    return replace(trust, calibration=calibrate_errors(expected, errors, shift), own=test)


def learn_own_test(
    found: Sequence[Tensor | None],
    errors: Sequence[Tensor],
    hoped: Sequence[Tensor],
    pictures: Sequence[int],
    grains: Sequence[float],
) -> OwnTest | None:
    """From ρᵢ of crops, the errors and what was expected of these at some of their pixels, their pictures and grain.

    Crops with added grain are left out: little of it is in x̂, so their tests do not see it, and they would teach that
    tests say little. Of pictures as they are, tests say more.
    """
    usable = [own if grain == min(grains) else None for own, grain in zip(found, grains)]
    return own_test.learn(usable, [own_test.log_scores(*pair) for pair in zip(errors, hoped)], pictures)


def _facts(case: Case) -> tuple[int, int, float, float, float]:
    """How many pixels there are to learn from, the picture, its grain, σ and the unit."""
    state = case.state
    return int(_open(case).sum()), case.picture, case.grain, state.sigma * state.unit, state.unit


def _evidence_at(case: Case, some: Tensor, stage: AnyStage) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """What is evident at some of the pixels, by names, and their errors."""
    pixels = _pixels(case, some)
    names, seen = gather(case.state, stage, pixels)
    return names, seen.cpu(), (case.state.x - case.clean).flatten()[pixels].cpu()


def _pixels(case: Case, some: Tensor) -> Tensor:
    """Those of the open pixels that were drawn, counted row by row."""
    return _open(case).flatten().nonzero()[:, 0][some].to(case.clean.device)


def _expected_around(
    case: Case, some: Tensor, stage: AnyStage, firsts: Sequence[ErrorModel]
) -> tuple[tuple[str, ...], Tensor]:
    """What models that look once expect around some of the pixels, by names: (models, n, A)."""
    names, found = gather_around(case.state, stage, firsts, _pixels(case, some))
    return names, found.cpu()


def _own_test(case: Case, model: Model) -> Case:
    """With ρᵢ of what was restored: of all of it, since a crop stands for the middle of a larger picture."""
    state = case.state
    noise = state.sigma * state.unit
    x = state.x[case.inside] * state.unit
    everything, model = (slice(None), slice(None)), model.to(x.device)
    sigma = 0.0 if noise <= 1.01 * ROUNDING else noise
    own = own_test.found_in(x, everything, state.operator, model, sigma, state.unit)
    return replace(case, own=own)


def _own(case: Case) -> Tensor | None:
    return case.own


def _open(case: Case) -> Tensor:
    """Which pixels y shows and nobody knows beforehand: (H, W)."""
    found = torch.zeros(case.clean.shape, dtype=torch.bool)
    found[case.inside] = True
    operator = case.state.operator
    if isinstance(operator, Mask) and case.state.sigma * case.state.unit <= 1.01 * ROUNDING:
        found &= operator.missing.cpu()
    return found
