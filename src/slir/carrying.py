"""What is done to a training crop while a stage is learnt, and what it is asked: functions of one case, or of a share.

None of them changes what it is given, so a case that was lost can be made again from its crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from slir.cascade import LearntStage, Regression, cell_features
from slir.cells import Cells
from slir.crops import Case
from slir.estimator.loop import advance, x_update
from slir.operators.base import Shape
from slir.patches import PatchGrid
from slir.views import View, look
from slir.weights.cell_ridge import Sums


class Untaught(Regression):
    """Knows nothing, changes nothing."""

    device = torch.device("cpu")

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        return torch.zeros_like(patches)

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> Untaught:
        return self


# Steps, in the order in which a stage takes them


def looked(case: Case, views: tuple[View, ...], error: float) -> Case:
    """With the images of the views, which are costly and looked at twice: to learn from, and to go on from."""
    images, state = look(case.state, views, error)
    return replace(case, state=state, views=tuple(images))


def wished(case: Case, regression: Regression, stage: LearntStage) -> Case:
    """With what the patches want, and the z in which they agree."""
    own = replace(stage, regression=regression)
    quadratic = own.quadratic(list(case.views), case.state.z, stage.grid(case.shape))
    return replace(
        case, state=replace(case.state, z=x_update(case.state, quadratic, stage)[1]), views=(), quadratic=quadratic
    )


def tried(case: Case, stage: LearntStage, levels: Sequence[float]) -> Case:
    """With the x that the x-update makes of it at each level."""
    assert case.quadratic is not None
    moved = (x_update(case.state, case.quadratic, replace(stage, level=level))[0].value for level in levels)
    return replace(case, moved=tuple(moved), quadratic=None)


def settled(case: Case, number: int) -> Case:
    """With the x of one level, at the end of the stage."""
    return replace(case, state=replace(case.state, x=case.moved[number]), moved=())


def carried(case: Case, stage: LearntStage) -> Case:
    """All of it for a case that nothing is learnt from."""
    return replace(case, state=advance(case.state, stage, telling=True)[0])  # any stage may be the last


def ended_by_patches(case: Case) -> Case:
    """With z for its x, where the last stage asks the data nothing."""
    return replace(case, state=replace(case.state, x=case.state.z))


# Questions


def shape_of(case: Case) -> Shape:
    return case.shape


def unit_of(case: Case) -> float:
    return case.state.unit


def clean_patches(case: Case, places: tuple[Tensor, Tensor], size: int) -> Tensor:
    """Those of the clean crop that begin at these rows and columns: (P, size²)."""
    windows = case.clean.unfold(0, size, 1).unfold(1, size, 1)
    rows, cols = (place.to(case.clean.device) for place in places)
    return windows[rows, cols].reshape(len(rows), -1)


def square_errors(case: Case) -> tuple[Tensor, Tensor]:
    """Mean square errors of x and of z."""
    return case.error(case.state.x).square().mean(), case.error(case.state.z).square().mean()


def psnr_of_start(case: Case) -> float:
    return case.psnr(case.state.x)


def psnrs(case: Case) -> list[float]:
    """Of z, and of x at each level that was tried."""
    return [case.psnr(image) for image in (case.state.z, *case.moved)]


def error_outer(case: Case, size: int) -> tuple[Tensor, int]:
    """The sum of e eᵀ (d, d) over errors e of z's patches, as cells see them, and of how many. Every fifth patch is
    plenty for 63² numbers."""
    error = case.error(case.state.z)
    grid = PatchGrid((error.shape[0], error.shape[1]), size, min(5, size))
    features = cell_features(grid.extract(error.contiguous())).double()
    return features.T @ features, len(features)


def pair_count(case: Case, stage: LearntStage) -> int:
    """How many pairs it has to learn from."""
    return int(_shown(case, stage).sum())


def some_pairs(case: Case, some: Tensor, stage: LearntStage) -> tuple[int, Tensor, Tensor]:
    """Its fold, and some pairs of what is seen and what is wanted."""
    seen, _, wanted = pairs(case, stage)
    some = some.to(seen.device)
    return case.fold, seen[some], wanted[some]


def pairs(case: Case, stage: LearntStage) -> tuple[Tensor, Tensor, Tensor]:
    """Of the patches that y shows: what is seen (P, d), z_p (P, k) and what is wanted, x_p − z_p (P, k)."""
    grid, shown = stage.grid(case.shape), _shown(case, stage)
    seen, patches = stage.features(case.views, case.state.z, grid)
    return seen[shown], patches[shown], (grid.extract(case.clean) - patches)[shown]


def _shown(case: Case, stage: LearntStage) -> Tensor:
    """Which patches lie in what y shows: (P,)."""
    grid = stage.grid(case.shape)
    fits = [
        [span.start <= start <= span.stop - stage.size for start in starts]
        for span, starts in zip(case.inside, grid.starts)
    ]
    rows, cols = (torch.tensor(fit, device=case.clean.device) for fit in fits)
    return (rows[:, None] & cols).flatten()


def counted(cases: Sequence[Case], stage: LearntStage, cells: Cells) -> Sums:
    """What ridge regressions have to know of a share's pairs: its sums, as of one fold."""
    sums: Sums | None = None
    for case in cases:
        seen, patches, wanted = pairs(case, stage)
        if sums is None:
            sums = Sums(1, cells.count, seen.shape[1], wanted.shape[1], seen.device)
        sums.add(0, cells.assign(cell_features(patches)), seen, wanted)
    assert sums is not None  # there is at least one case
    return sums
