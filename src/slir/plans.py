"""Plans of cascades by task: how many stages, what each looks at, and how it is followed by the data.

docs/experiments.md has the figures behind each choice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from slir.errors import InputError
from slir.families import Family
from slir.views import Before, Data, Estimate, InverseResidual, Similar, View
from slir.weights import Weights

PARTITIONS = ("mixture", "directions", "tree", "one")
"""Cells by the likelihood of a Gaussian mixture, by k-means on directions, by a tree of tests; or none at all."""


@dataclass(frozen=True)
class StagePlan:
    """views: what is seen at a patch. trust: the level of the x-update that follows, as a share of z's error; a large
    one follows the data. weights: "cells", or the paper's on a bank: "nw", "krr", "nystrom" or `slir.weights`.
    partition: kind of cells, one of PARTITIONS; None takes the plan's."""

    views: tuple[View, ...]
    trust: float = 1.0
    weights: str | Weights = "cells"
    partition: str | None = None

    def __post_init__(self) -> None:
        if self.partition is not None:
            _check_partition(self.partition)


@dataclass(frozen=True)
class Plan:
    """stages: in order. cells: how many. partition: which kind, one of PARTITIONS. size, stride: of the patches.

    patches: clean patches that the cells are found from. pairs: that a stage with a bank keeps.
    caution: by how much σ is overstated while it learns. Pictures in use often have more texture than those that were
        learnt from; with more caution less of it is taken for noise.
    doubt: by what share σ is misstated either way while it learns. What never saw a wrong σ trusts it too far.
    grain: standard deviations, range 1, of grain that pictures in use have and those that are learnt from lack. Nobody
        can tell it from noise; it counts in the errors to expect alone.
    """

    stages: tuple[StagePlan, ...]
    cells: int = 100
    partition: str = "mixture"
    size: int = 8
    stride: int = 2
    patches: int = 100_000
    pairs: int = 8_000
    caution: float = 1.0
    doubt: float = 0.0
    grain: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_partition(self.partition)
        if not self.stages:
            raise InputError("stages", "hold at least one stage", "empty", "slir.plans.cascade_plan makes some.")
        before: set[str] = set()
        for number, stage in enumerate(self.stages):
            if not stage.views or not isinstance(stage.views[0], Estimate):
                raise InputError("views", "begin with Estimate", stage.views, "A stage starts from z itself.")
            for view in stage.views:
                if isinstance(view, Before) and view.name not in before:
                    rule = f"look back, in stage {number}, at what a stage before it saw"
                    raise InputError(
                        "views", rule, view.name, f"Known there: {', '.join(sorted(before)) or 'nothing'}."
                    )
            before |= {"z", *(view.name for view in stage.views if isinstance(view, Similar))}
        if not self.caution > 0:
            raise InputError("caution", "be positive", self.caution, "1 takes σ as it is.")
        if not 0 <= self.doubt < 1:
            raise InputError("doubt", "lie between 0 and 1", self.doubt, "0 states σ as it is.")
        if self.cells < 1:
            raise InputError("cells", "be at least 1", self.cells, "100 is a start.")

    def describe(self) -> dict[str, Any]:
        own = {name: value for name, value in asdict(self).items() if name != "stages"}
        return {**own, "grain": list(self.grain), "stages": len(self.stages)}


def _check_partition(partition: str) -> None:
    if partition not in PARTITIONS:
        rule = f"be one of {', '.join(PARTITIONS)}"
        raise InputError("partition", rule, repr(partition), "Pick one of these.")


def cascade_plan(family: Family, *, stages: int | None = None, cells: int | None = None) -> Plan:
    """The plan for a family's task. stages, cells: where fewer or more are wanted."""
    if stages is not None and stages < 1:
        raise InputError("stages", "be at least 1", stages, "None takes what suits the task.")
    plan = _PLANS.get(family.kind, _deblurring)(stages)
    return plan if cells is None else Plan(**{**vars(plan), "cells": cells})


GROUPS = Similar(size=6, count=48, stride=4)
FINE = Similar(size=4, count=24, stride=4, like=6)
"""Groups of 6×6 patches, and of the 4×4 in their middles."""

COARSE = replace(GROUPS, scale=2)


def _settled(stage: StagePlan) -> StagePlan:
    """A later stage, which looks at the groups that one before it found."""
    views = (replace(view, rematch=False) if isinstance(view, Similar) else view for view in stage.views)
    return replace(stage, views=tuple(views))


def _denoising(stages: int | None) -> Plan:
    """x stays y throughout: with B = I the data have nothing to say that y does not show."""
    count = stages or 3
    follow = 30.0
    first = StagePlan((Estimate(window=12),), follow)
    second = StagePlan((Estimate(), Data(), GROUPS, FINE, COARSE), follow)
    later = _settled(replace(second, views=(*second.views, Before(), Before(name=GROUPS.name))))
    return Plan((first, second, *[later] * max(0, count - 2))[:count])


def _deblurring(stages: int | None) -> Plan:
    """The data lead at first, the prior in the end, as in EPLL's schedule."""
    count = stages or 5
    made = []
    for t in range(count):
        views: tuple[View, ...] = (Estimate(), InverseResidual(), GROUPS)
        if t > 0:
            views = (Estimate(), Data(), InverseResidual(), GROUPS, FINE, Before())
        stage = StagePlan(views, 2.0 * 0.25 ** (t / max(1, count - 2)))
        made.append(stage if t < 2 else _settled(stage))
    return Plan(tuple(made))


def _upsampling(stages: int | None) -> Plan:
    """z is of the samples' making, so what is missing depends on where a patch lies between them."""
    count = stages or 3
    first = StagePlan((Estimate(window=12), GROUPS))
    later = StagePlan((Estimate(), Data(), GROUPS, FINE, Before()))
    return Plan((first, later, *[_settled(later)] * max(0, count - 2))[:count])


def _inpainting(stages: int | None) -> Plan:
    """Known pixels hold from the first stage on; each stage fills in from what the one before made of the rest."""
    first = StagePlan((Estimate(window=12), GROUPS))
    later = StagePlan((Estimate(), Data(), GROUPS, FINE, Before()))
    rest = (later if t % 2 else _settled(later) for t in range(1, stages or 6))
    return Plan((first, *rest))


_PLANS = {"denoise": _denoising, "deblur": _deblurring, "upsample": _upsampling, "inpaint": _inpainting}
