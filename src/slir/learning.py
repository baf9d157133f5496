"""Fitting a cascade: clean images and a family of degradations in, a model out.

Training crops are degraded, then carried through the stages as they are learnt. Stage t is fitted on the pairs (what is
seen at a patch after stage t − 1, what is missing there), and each crop is carried on by a stage that was fitted
without its fold of images. So what a stage sees in training is what it will see in use, and the error that is measured
on the way is that of images that its maps were not fitted on. (Cells, λ, τ and levels, a few numbers, are chosen on
all.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import slir
from slir.arrays import grey_plane
from slir.bank import degrade, image_hash
from slir.cascade import BankWeights, CellMaps, LearntStage, Regression, cell_features
from slir.cells import Cells, MixtureCells, OneCell, direction_cells, tree_cells
from slir.compute import pick_device
from slir.errors import InputError
from slir.families import Family
from slir.mixture import Mixture, fit_mixture
from slir.model import Model
from slir.patches import PatchGrid
from slir.plans import Plan, StagePlan, cascade_plan
from slir.restoration import advance, begin_learnt, solve
from slir.trust.examples import draw_examples
from slir.trust.record import learn_trust
from slir.views import State, look
from slir.weights import Weights, weights_named
from slir.weights.cell_ridge import Sums, fit_cell_ridge

Progress = Callable[[int, int, str], None]

LEAST = 32
"""Smallest side of a picture to learn from: less shows hardly a patch with what surrounds it."""

LEVELS = (0.0, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0)
"""How far the last z is trusted, in units of its error: the x-update that ends the cascade takes the best of these."""


@dataclass
class Case:
    """A training crop on its way through the stages. clean and the state count in the case's unit."""

    clean: Tensor
    state: State
    fold: int
    inside: tuple[slice, slice]
    """The pixels that y shows: errors count there alone."""
    picture: int = 0
    """Which one it was cut from; those of one group count as one."""

    def error(self, image: Tensor) -> Tensor:
        return (image - self.clean)[self.inside]

    def psnr(self, image: Tensor) -> float:
        """Of an image in units, the range being 1."""
        inside = (image * self.state.unit).clamp(0, 1) - self.clean * self.state.unit
        return -10 * float(inside[self.inside].square().mean().log10())


@torch.no_grad()
def fit_cascade(
    images: Sequence[np.ndarray | Tensor],
    family: Family,
    *,
    plan: Plan | None = None,
    stages: int | None = None,
    cells: int | None = None,
    groups: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    crops: int = 64,
    side: int = 160,
    folds: int = 4,
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Model:
    """Learn a cascade that undoes what `family` does.

    images: clean pictures, grey or colour, integer or float in [0, 1].
    plan: stages, views and cells; None takes the one for the family's task (`slir.plans.cascade_plan`), with so many
        `stages` and `cells` where they are given.
    groups: one number an image; cross-fitting keeps images of one number together. By default each is its own group.
    names: of the images, by which they are called where a result is explained; by default images[0] and so on.
    crops, side: how many training crops of what size are cut from the images, each turned or mirrored at random.
    folds: groups of images that cross-fitting leaves out in turn.

    Beside the crops that are learnt from, others are carried along, told the truth about σ. In the end they say which
    errors to expect (`slir.trust`).
    """
    target = pick_device(device)
    plan = cascade_plan(family, stages=stages, cells=cells) if plan is None else plan
    generator = torch.Generator().manual_seed(seed)
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    check_pictures(planes, crops, side, folds)
    report = _Report(progress, len(plan.stages) + 2)
    report()
    kin = _kin(groups, len(planes))
    called = _called(names, len(planes))
    cases = draw_cases(planes, kin, family, crops, side, folds, generator, target, replace(plan, grain=()))
    witnesses = draw_cases(
        planes, kin, family, -(-3 * crops // 5), side, folds, generator, target, Plan(plan.stages, grain=plan.grain)
    )
    folds = max(case.fold for case in cases) + 1
    report()
    partition = _Partition(cases, plan, generator)
    scores = [_mean_psnr(cases, [case.state.x for case in cases])]
    made: list[LearntStage] = []
    for number, own in enumerate(plan.stages):
        report()
        stage, parts = _fit_stage(cases, own, plan, partition, folds, generator, last=number + 1 == len(plan.stages))
        ends = {
            level: _mean_psnr(cases, images)
            for level, images in (
                (0.0, [case.state.z for case in cases]),
                (stage.level, [case.state.x for case in cases]),
            )
        }
        best = max(ends, key=lambda level: ends[level])
        if made and ends[best] < scores[-1]:
            break  # it does not help images that it was not fitted on, and what comes after it would start from there
        made.append(stage)
        scores.append(ends[best])
        final = replace(stage, level=best)
        apart = [replace(stage, regression=part) for part in parts]
        for case in witnesses:
            case.state = advance(case.state, apart[case.fold])[0]
    report.finish()
    made[-1] = final
    if final.level == 0:
        for case in witnesses:
            case.state = replace(case.state, x=case.state.z)
    what = {"family": family.describe(), "pictures": len(set(kin)), "crops": len(witnesses)}
    trust = learn_trust(witnesses, final, what, seed=seed)
    unit = float(np.median([case.state.unit for case in cases]))
    examples = draw_examples(planes, called, partition.of, size=plan.size, unit=unit, generator=generator)
    provenance = {
        "method": "cascade",
        "slir": slir.__version__,
        "family": family.describe(),
        "images": [image_hash(plane) for plane in planes],
        "crops": crops,
        "side": side,
        "folds": folds,
        "seed": seed,
        "plan": plan.describe(),
        "held_out_psnr": [round(score, 3) for score in scores],
    }
    return Model(tuple(made), provenance, trust=trust, examples=examples)


def _kin(groups: Sequence[int] | None, count: int) -> list[int]:
    """A number for each image, the same for those of one group, counted from 0."""
    own = list(range(count)) if groups is None else list(groups)
    if len(own) != count:
        raise InputError("groups", f"hold one number for each of the {count} images", len(own), "See images.")
    order = {name: number for number, name in enumerate(dict.fromkeys(own))}
    return [order[name] for name in own]


def _called(names: Sequence[str] | None, count: int) -> list[str]:
    own = [f"images[{number}]" for number in range(count)] if names is None else list(names)
    if len(own) != count:
        raise InputError("names", f"hold one name for each of the {count} images", len(own), "See images.")
    return own


def check_pictures(planes: list[Tensor], crops: int, side: int, folds: int) -> None:
    if not planes:
        raise InputError("images", "hold at least one picture", "empty", "Pass clean pictures to learn from.")
    for number, plane in enumerate(planes):
        if min(plane.shape) < LEAST:
            shape = f"{plane.shape[0]}×{plane.shape[1]}"
            raise InputError(
                f"images[{number}]", f"have at least {LEAST} pixels a side", shape, "Learn from larger ones."
            )
    if side < LEAST:
        raise InputError("side", f"be at least {LEAST}", side, "160 is a start.")
    if folds < 1:
        raise InputError("folds", "be at least 1", folds, "4 is a start.")
    if crops < folds:
        raise InputError("crops", f"be at least the number of folds, {folds}", crops, "64 is a start.")


def draw_cases(
    planes: Sequence[Tensor],
    groups: Sequence[int],
    family: Family,
    crops: int,
    side: int,
    folds: int,
    generator: torch.Generator,
    device: torch.device,
    plan: Plan | None = None,
) -> list[Case]:
    """Crops of the planes, degraded: equally many from each plane, at places and in orientations drawn at random.

    plan: how σ is misstated to what is learnt, and which grain is added; None states σ as it is and adds none.
    """
    caution, doubt, grain = (plan.caution, plan.doubt, plan.grain) if plan else (1.0, 0.0, ())
    cases = []
    for number in range(crops):
        source = number % len(planes)
        crop = _random_crop(planes[source], side, generator)
        operator, sigma = family.draw(generator, (crop.shape[0], crop.shape[1]))
        shape = operator.for_training((crop.shape[0], crop.shape[1]))[1]
        clean = crop[: shape[0], : shape[1]]
        if grain:
            own = grain[number // len(planes) % len(grain)]
            clean = clean + own * torch.randn(clean.shape, generator=generator)
        y = degrade(clean, operator, sigma, generator)
        if float(torch.rand(1, generator=generator)) < 0.5:  # half of the world's pictures come in 8 bits
            y = (y * 255).round() / 255
        row, col, height, width = operator.shown((y.shape[0], y.shape[1]))
        told = caution * sigma
        if doubt:
            told *= 1 + doubt * (2 * float(torch.rand(1, generator=generator)) - 1)
        state = begin_learnt(y.to(device), operator, told)
        fold = groups[source] % folds if len(set(groups)) > 1 else number % folds
        inside = (slice(row, row + height), slice(col, col + width))
        cases.append(Case(clean.to(device) / state.unit, state, fold, inside, groups[source]))
    return cases


def _random_crop(plane: Tensor, side: int, generator: torch.Generator) -> Tensor:
    height, width = min(side, plane.shape[0]), min(side, plane.shape[1])
    limits = (plane.shape[0] - height + 1, plane.shape[1] - width + 1, 2, 2, 2)
    row, col, upside, sideways, turned = (int(torch.randint(n, (1,), generator=generator)) for n in limits)
    crop = plane[row : row + height, col : col + width]
    crop = crop.flip(0) if upside else crop
    crop = crop.flip(1) if sideways else crop
    return (crop.T if turned else crop).contiguous()


class _Partition:
    """Cells for every stage: found once on clean patches, in each case's unit, then widened by each stage's error."""

    def __init__(self, cases: list[Case], plan: Plan, generator: torch.Generator):
        each = -(-plan.patches // len(cases))
        self.clean = torch.cat([_some_patches(case.clean, plan.size, each, generator) for case in cases])
        self.plan, self.generator = plan, generator

    @cached_property
    def mixture(self) -> Mixture:
        features = cell_features(self.clean).T.contiguous()
        count = min(self.plan.cells, max(1, features.shape[1] // (8 * self.plan.size**2)))
        return fit_mixture(features, count, rounds=25, generator=self.generator)[0]

    def of(self, patches: Tensor) -> Tensor:
        """Which of the mixture's components clean patches (P, k), in units, belong to; one where none is used."""
        if "mixture" not in self.__dict__:
            return torch.zeros(len(patches), dtype=torch.int64)
        patches = patches.to(self.clean.device)
        error = torch.zeros(patches.shape[1] - 1, patches.shape[1] - 1).to(patches)
        return MixtureCells(self.mixture, error).assign(cell_features(patches)).cpu()

    def at(self, kind: str, error: Tensor) -> Cells:
        """error: the covariance (d, d) of the current estimate's error, in units."""
        cells = self.plan.cells
        if kind == "one" or cells == 1:
            return OneCell()
        if kind == "mixture":
            return MixtureCells(self.mixture, error)
        root = torch.linalg.cholesky(error.double() + 1e-9 * error.trace() * torch.eye(len(error)).to(error.double()))
        noise = torch.randn(len(self.clean), len(error), generator=self.generator).to(self.clean)
        seen = cell_features(self.clean) + noise @ root.T.to(noise)
        if kind == "tree":
            return tree_cells(seen, max(1, round(np.log2(cells))), generator=self.generator)
        return direction_cells(seen, max(1, cells // 4), generator=self.generator)


def _some_patches(image: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    """(count, size²), drawn with replacement."""
    windows = image.unfold(0, size, 1).unfold(1, size, 1)
    top = torch.randint(windows.shape[0], (count,), generator=generator).to(image.device)
    left = torch.randint(windows.shape[1], (count,), generator=generator).to(image.device)
    return windows[top, left].reshape(count, -1)


def _fit_stage(
    cases: list[Case],
    own: StagePlan,
    plan: Plan,
    partition: _Partition,
    folds: int,
    generator: torch.Generator,
    *,
    last: bool,
) -> tuple[LearntStage, list[Regression]]:
    """Fit a stage on all cases, and carry each of them through it as fitted without its fold.

    The stage, and what its regression is without each fold.
    """
    x_error = _rms([case.error(case.state.x) for case in cases])
    covariance = _error_covariance(cases, plan.size)
    stage = LearntStage(_Untaught(), own.views, x_error, 0.0, plan.size, plan.stride)
    # Views are costly and are looked at twice: once to learn from, once to go on from.
    views = []
    for case in cases:
        images, case.state = look(case.state, own.views, x_error)
        views.append(images)
    if own.weights == "cells":
        whole, parts = _fit_cells(cases, views, stage, partition.at(own.partition or plan.partition, covariance), folds)
    else:
        whole, parts = _fit_bank(cases, views, stage, weights_named(own.weights), folds, plan.pairs, generator)
    wishes = []
    for case, images in zip(cases, views):
        grid = stage.grid((case.clean.shape[0], case.clean.shape[1]))
        wishes.append(replace(stage, regression=parts[case.fold]).wish(images, case.state.z, grid))
        case.state = replace(case.state, z=solve(case.state, wishes[-1], stage)[1])
    z_error = _rms([case.error(case.state.z) for case in cases])
    trusts = LEVELS if last else (own.trust,)
    best: tuple[float, float, list[Tensor]] | None = None
    for trust in trusts:
        tried = replace(stage, level=trust * z_error)
        moved = [solve(case.state, wish, tried)[0].value for case, wish in zip(cases, wishes)]
        score = _mean_psnr(cases, moved)
        if best is None or score > best[0]:
            best = (score, tried.level, moved)
    assert best is not None  # there is at least one level
    for case, x in zip(cases, best[2]):
        case.state = replace(case.state, x=x)
    return replace(stage, regression=whole, level=best[1]), parts


class _Untaught(Regression):
    """Knows nothing, changes nothing."""

    device = torch.device("cpu")

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        return torch.zeros_like(patches)

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> _Untaught:
        return self


def _fit_cells(
    cases: list[Case], views: list[list[Tensor]], stage: LearntStage, cells: Cells, folds: int
) -> tuple[Regression, list[Regression]]:
    """Ridge per cell: from all folds, and from all but each."""
    sums: Sums | None = None
    for case, images in zip(cases, views):
        seen, patches, wanted = _pairs(case, images, stage)
        if sums is None:
            sums = Sums(folds, cells.count, seen.shape[1], wanted.shape[1], seen.device)
        sums.add(case.fold, cells.assign(cell_features(patches)), seen, wanted)
    assert sums is not None  # there is at least one case
    ridge = fit_cell_ridge(sums)
    return CellMaps(cells, ridge.maps, ridge.moment), [CellMaps(cells, maps, ridge.moment) for maps in ridge.held_out]


def _fit_bank(
    cases: list[Case],
    views: list[list[Tensor]],
    stage: LearntStage,
    weights: Weights,
    folds: int,
    pairs: int,
    generator: torch.Generator,
) -> tuple[Regression, list[Regression]]:
    """The paper's weights on a bank of pairs drawn from the cases: from all folds, and from all but each."""
    each = -(-pairs // len(cases))
    drawn: list[tuple[int, Tensor, Tensor]] = []
    for case, images in zip(cases, views):
        seen, _, wanted = _pairs(case, images, stage)
        some = torch.randperm(len(seen), generator=generator)[:each].to(seen.device)
        drawn.append((case.fold, seen[some], wanted[some]))

    def bank(left_out: int | None) -> Regression:
        kept = [(seen, wanted) for fold, seen, wanted in drawn if fold != left_out or folds == 1]
        return BankWeights(weights, torch.cat([seen for seen, _ in kept]), torch.cat([wanted for _, wanted in kept]))

    return bank(None), [bank(fold) for fold in range(folds)]


def _pairs(case: Case, images: list[Tensor], stage: LearntStage) -> tuple[Tensor, Tensor, Tensor]:
    """Of the patches that y shows: what is seen (P, d), z_p (P, k) and what is wanted, x_p − z_p (P, k)."""
    grid = stage.grid((case.clean.shape[0], case.clean.shape[1]))
    rows, cols = case.inside
    shown = torch.tensor(
        [
            rows.start <= row <= rows.stop - stage.size and cols.start <= col <= cols.stop - stage.size
            for row in grid.starts[0]
            for col in grid.starts[1]
        ],
        device=case.clean.device,
    )
    seen, patches = stage.features(images, case.state.z, grid)
    return seen[shown], patches[shown], (grid.extract(case.clean) - patches)[shown]


def _error_covariance(cases: list[Case], size: int) -> Tensor:
    """E (d, d): of the error of z's patches, as cells see them. Every fifth patch is plenty for 63² numbers."""
    total: Tensor | None = None
    count = 0
    for case in cases:
        error = case.error(case.state.z)
        grid = PatchGrid((error.shape[0], error.shape[1]), size, min(5, size))
        features = cell_features(grid.extract(error.contiguous())).double()
        outer = features.T @ features
        total = outer if total is None else total + outer
        count += len(features)
    assert total is not None  # there is at least one case
    return (total / count).float()


def _rms(errors: list[Tensor]) -> float:
    return float(torch.stack([error.square().mean() for error in errors]).mean().sqrt())


def _mean_psnr(cases: list[Case], images: list[Tensor]) -> float:
    return sum(case.psnr(image) for case, image in zip(cases, images)) / len(cases)


class _Report:
    """Progress in equal steps, for whoever asked."""

    def __init__(self, progress: Progress | None, total: int):
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self) -> None:
        if self.progress:
            self.progress(min(self.done, self.total), self.total, "learning")
        self.done += 1

    def finish(self) -> None:
        self.done = self.total
        self()
