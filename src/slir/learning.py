"""Fitting a cascade: clean images and a family of degradations in, a model out.

Training crops are degraded, then carried through the stages as they are learnt. Stage t is fitted on the pairs (what is
seen at a patch after stage t − 1, what is missing there), and each crop is carried on by a stage that was fitted
without its fold of images. So what a stage sees in training is what it will see in use, and the error that is measured
on the way is that of images that its maps were not fitted on. (Cells, λ, τ and levels, a few numbers, are chosen on
all.)

The crops are in the hands of a crew (`slir.crews`), in this process or on a cluster. Here is what is made of their
answers, and every random draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import slir
from slir import carrying
from slir.bank import image_hash
from slir.carrying import Untaught
from slir.cascade import BankWeights, CellMaps, LearntStage, Regression
from slir.cells import Cells
from slir.compute import pick_device
from slir.crews import Crew, LocalCrew
from slir.crops import Crop, check_pictures, draw_crops
from slir.errors import InputError
from slir.families import Family
from slir.model import Model
from slir.partition import Partition
from slir.plans import Plan, StagePlan, cascade_plan
from slir.preprocessing.arrays import grey_plane
from slir.trust.examples import draw_examples
from slir.trust.record import learn_trust
from slir.weights import Weights, weights_named
from slir.weights.cell_ridge import fit_cell_ridge

Progress = Callable[[int, int, str], None]

LEVELS = (0.0, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0)
"""How far the last z is trusted, in units of its error: the x-update that ends the cascade takes the best of these."""


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
    cluster: Any = None,
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
    cluster: who carries the crops: None is this process; else "local", "local:N" or the address of a Dask scheduler, or
        a `distributed.Client`. The model is the same.

    Beside the crops that are learnt from, others are carried along, told the truth about σ. In the end they say which
    errors to expect (`slir.trust`).
    """
    target = pick_device(device if cluster is None else None)  # what workers leave to do is little
    plan = cascade_plan(family, stages=stages, cells=cells) if plan is None else plan
    generator = torch.Generator().manual_seed(seed)
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    check_pictures(planes, crops, side, folds)
    report = _Report(progress, len(plan.stages) + 2)
    report()
    kin = _kin(groups, len(planes))
    called = _called(names, len(planes))
    draw = partial(draw_crops, planes, kin, family, side=side, folds=folds, generator=generator)
    with _crews(cluster, device) as crew_of:
        cases = crew_of(draw(crops=crops, plan=replace(plan, grain=())))
        witnesses = crew_of(draw(crops=-(-3 * crops // 5), plan=Plan(plan.stages, grain=plan.grain)))
        report()
        partition = Partition(cases, plan, generator, target)
        scores = [_mean(cases.ask(carrying.psnr_of_start))]
        made: list[LearntStage] = []
        without: list[tuple[Regression, ...]] = []  # what was fitted without each fold, by stages
        for number, own in enumerate(plan.stages):
            report()
            last = number + 1 == len(plan.stages)
            stage, parts, ends = fit_stage(cases, own, plan, partition, generator, last=last)
            best = max(ends, key=lambda level: ends[level])
            if made and ends[best] < scores[-1]:
                break  # it does not help images that it was not fitted on, and what comes after would start from there
            made.append(stage)
            without.append(tuple(parts))
            scores.append(ends[best])
            final = replace(stage, level=best)
            witnesses.move(carrying.carried, folds=[replace(stage, regression=part) for part in parts])
        report.finish()
        made[-1] = final
        if final.level == 0:
            witnesses.move(carrying.ended_by_patches)
        what = {"family": family.describe(), "pictures": len(set(kin)), "crops": witnesses.size}
        folds_of = [[replace(stage, regression=part) for part in parts] for stage, parts in zip(made, without)]
        trust = learn_trust(witnesses, [Model(stages) for stages in zip(*folds_of)], what, seed=seed)
        unit = float(np.median(cases.ask(carrying.unit_of)))
    examples = draw_examples(planes, called, partition.of, size=plan.size, unit=unit, generator=generator)
    provenance = {
        "method": "cascade",
        "slir": slir.__version__,
        "family": family.describe(),
        "images": [image_hash(plane) for plane in planes],
        "crops": crops,
        "side": side,
        "folds": cases.folds,
        "seed": seed,
        "plan": plan.describe(),
        "held_out_psnr": [round(score, 3) for score in scores],
    }
    return Model(tuple(made), provenance, trust=trust, examples=examples)


def _crews(cluster: Any, device: str | torch.device | None) -> AbstractContextManager[Callable[[list[Crop]], Crew]]:
    """What puts crops into the hands of a crew, as long as these are there."""
    if cluster is None:
        return nullcontext(partial(LocalCrew.of, device=pick_device(device)))
    from slir.cluster.fitting import cluster_crews

    return cluster_crews(cluster, device)


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


def fit_stage(
    cases: Crew,
    own: StagePlan,
    plan: Plan,
    partition: Partition,
    generator: torch.Generator,
    *,
    last: bool,
) -> tuple[LearntStage, list[Regression], dict[float, float]]:
    """Fit a stage on all cases, and carry each of them through it as fitted without its fold.

    The stage, what its regression is without each fold, and the PSNR of the cases by the level of the x-update: of none
    at all, and of the stage's own.
    """
    x_error, _ = _rms(cases)
    covariance = _error_covariance(cases, plan.size).to(partition.clean.device)
    stage = LearntStage(Untaught(), own.views, x_error, 0.0, plan.size, plan.stride)
    cases.move(carrying.looked, own.views, x_error)
    if own.weights == "cells":
        whole, parts = _fit_cells(cases, stage, partition.at(own.partition or plan.partition, covariance))
    else:
        whole, parts = _fit_bank(cases, stage, weights_named(own.weights), plan.pairs, generator)
    cases.move(carrying.wished, stage, folds=parts)
    _, z_error = _rms(cases)
    levels = [trust * z_error for trust in (LEVELS if last else (own.trust,))]
    cases.move(carrying.tried, stage, levels)
    of_patches, *scores = map(_mean, zip(*cases.ask(carrying.psnrs)))
    best = max(range(len(levels)), key=lambda number: scores[number])
    cases.move(carrying.settled, best)
    ends = {0.0: of_patches, levels[best]: scores[best]}
    return replace(stage, regression=whole, level=levels[best]), parts, ends


def _fit_cells(cases: Crew, stage: LearntStage, cells: Cells) -> tuple[Regression, list[Regression]]:
    """Ridge per cell: from all folds, and from all but each."""
    ridge = fit_cell_ridge(cases.total(carrying.counted, stage, cells))
    return CellMaps(cells, ridge.maps, ridge.moment), [CellMaps(cells, maps, ridge.moment) for maps in ridge.held_out]


def _fit_bank(
    cases: Crew, stage: LearntStage, weights: Weights, pairs: int, generator: torch.Generator
) -> tuple[Regression, list[Regression]]:
    """The paper's weights on a bank of pairs drawn from the cases: from all folds, and from all but each."""
    counts = cases.ask(carrying.pair_count, stage)
    each = -(-pairs // len(counts))
    some = [torch.randperm(count, generator=generator)[:each] for count in counts]
    drawn = cases.ask(carrying.some_pairs, stage, each=some)

    def bank(left_out: int | None) -> Regression:
        kept = [(seen, wanted) for fold, seen, wanted in drawn if fold != left_out or cases.folds == 1]
        return BankWeights(weights, torch.cat([seen for seen, _ in kept]), torch.cat([wanted for _, wanted in kept]))

    return bank(None), [bank(fold) for fold in range(cases.folds)]


def _error_covariance(cases: Crew, size: int) -> Tensor:
    """E (d, d): of the error of z's patches, as cells see them."""
    outers, counts = zip(*cases.ask(carrying.error_outer, size))
    return (sum(outers) / sum(counts)).float()


def _rms(cases: Crew) -> list[float]:
    """Root mean square errors of x and z."""
    return [float(torch.stack(squares).mean().sqrt()) for squares in zip(*cases.ask(carrying.square_errors))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


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
