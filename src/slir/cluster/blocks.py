"""Blocks of a lazy array: what tasks go by, and what they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slir.cluster.process import settle_in
from slir.compute import pick_device
from slir.errors import InputError
from slir.estimator.tiling import Piece, scale_window
from slir.files.jobs import using_threads
from slir.files.restore_file import cover_missing
from slir.kernel.shipped import default_model
from slir.model import Model
from slir.operators import Mask, Operator
from slir.operators.base import Shape
from slir.preprocessing.amount import ALL, Amount
from slir.preprocessing.arrays import DataRange
from slir.preprocessing.windows import Decision, decide_once, restore_window


@dataclass
class Grid:
    """The blocks of a plane: what they answer for and see, and the former counted in the latter, along each axis."""

    own: tuple[list[slice], list[slice]]
    seen: tuple[list[slice], list[slice]]
    within: tuple[list[slice], list[slice]]

    @classmethod
    def of(cls, pieces: list[Piece]) -> Grid:
        rows = [piece for piece in pieces if piece.own[1].start == 0]
        cols = [piece for piece in pieces if piece.own[0].start == 0]
        along = {
            name: ([getattr(piece, name)[0] for piece in rows], [getattr(piece, name)[1] for piece in cols])
            for name in ("own", "seen", "within")
        }
        return cls(**along)

    @property
    def margin(self) -> tuple[int, int]:
        """How far blocks see beyond their own, down and across."""
        deep = [max(within.start for within in axis) for axis in self.within]
        return deep[0], deep[1]

    def out_chunks(self, scale: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows, cols = (tuple(scale * (own.stop - own.start) for own in axis) for axis in self.own)
        return rows, cols


@dataclass(eq=False)
class Plan:
    """What all tasks of an image go by. known: what is decided about every plane, where that takes no pixels."""

    operator: Operator
    sigma: float | str
    size: Shape
    model: Model | None
    data_range: DataRange
    colour: bool
    device: str
    seed: int
    amount: Amount = ALL
    known: Decision | None = None
    grid: Grid | None = None

    @property
    def lead(self) -> Model:
        """The model that does most of the work, whose reach decides how blocks are cut."""
        return self.model or default_model(self.operator)

    @property
    def frame(self) -> dict[str, Any]:
        device = pick_device(self.device)
        return {"data_range": self.data_range, "channel_axis": -1 if self.colour else None, "device": device}

    def decide(self, pixels: np.ndarray, operator: Operator, *, blind: bool = False) -> Decision:
        told: dict[str, Any] = {"model": self.model, "blind": blind, "amount": self.amount, **self.frame}
        return decide_once(pixels, operator, self.sigma, **told)


def decide(pixels: np.ndarray, missing: np.ndarray | None = None, *, plan: Plan) -> np.ndarray:
    """A task: what is the same for all blocks of a plane."""
    settle_in(plan.device)
    plane, operator, blind = _plane(pixels, plan), plan.operator, False
    if missing is not None:
        holes = missing.reshape(missing.shape[-2:])
        plane, blind = cover_missing(plane, holes), bool(holes.all())
        operator = Mask(np.zeros_like(holes) if blind else holes)
    with using_threads(1):
        return box_object(plan.decide(plane, operator, blind=blind).light(), pixels.ndim)


def box_object(what: Any, dimensions: int) -> np.ndarray:
    box = np.empty((1,) * dimensions, object)
    box[...] = what
    return box


def _plane(pixels: np.ndarray, plan: Plan) -> np.ndarray:
    """(1, ..., [C], h, w) -> (h, w) or (h, w, C)."""
    if not plan.colour:
        return pixels.reshape(pixels.shape[-2:])
    return np.moveaxis(pixels.reshape(pixels.shape[-3:]), 0, -1)


def restore_block(
    pixels: np.ndarray,
    decided: np.ndarray,
    missing: np.ndarray | None = None,
    *,
    plan: Plan,
    block_id: tuple[int, ...],
) -> np.ndarray:
    """A task: what a block answers for, from what it sees."""
    assert plan.grid is not None
    settle_in(plan.device)
    row, col = block_id[-2:]
    within = (plan.grid.within[0][row], plan.grid.within[1][col])
    plane, told = _plane(pixels, plan), plan.known or decided.reshape(-1)[0].with_model(plan.model)
    holes = None if missing is None else missing.reshape(missing.shape[-2:])
    with using_threads(1):
        if holes is None:
            operator = plan.operator.part(plan.grid.seen[0][row], plan.grid.seen[1][col])
            assert operator is not None  # `slir.cluster.arrays._check` has seen to it
            whole = plane if told.treatment.leaves(operator) else _restore(plane, operator, told, plan)
        else:
            whole = _inpaint(plane, holes, within, told, plan)
    scale = 1 if holes is not None else plan.operator.scale
    own = whole[scale_window(within, scale)]
    own = np.moveaxis(own, -1, 0) if plan.colour else own
    return np.ascontiguousarray(own).reshape(*pixels.shape[: -own.ndim], *own.shape)


def _restore(plane: np.ndarray, operator: Operator, told: Decision, plan: Plan) -> np.ndarray:
    generator = torch.Generator().manual_seed(plan.seed)
    return restore_window(plane, operator, told, generator=generator, **plan.frame).pixels


def _inpaint(
    plane: np.ndarray, holes: np.ndarray, within: tuple[slice, slice], told: Decision, plan: Plan
) -> np.ndarray:
    """Missing pixels filled in; without noise the others stay as they are."""
    exact = not any(told.treatment.sigmas)
    if exact and not holes[within].any():
        return plane
    if holes.all():
        sides = "×".join(str(side) for side in holes.shape)
        remedy = "Crop the image around the hole, or rechunk it into larger blocks."
        raise InputError("mask", f"leave known pixels in every block of {sides}", "true in one", remedy)
    restored = _restore(cover_missing(plane, holes), Mask(holes), told, plan)
    spread = holes[..., None] if plan.colour else holes
    return np.where(spread, restored, plane) if exact else restored
