"""The closed-form stage on top of a learnt kernel: clean pictures and a family of degradations in, a model out.

The network was learnt once, by gradient descent. The stage on top (`slir.kernel.cell_ridge`) has a closed form, solved
from sums over the patches of the pictures (`slir.kernel.ridge`). Sums of several pictures, or machines, add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import slir
from slir.bank import image_hash
from slir.compute import pick_device
from slir.errors import InputError
from slir.estimator.loop import advance, begin
from slir.estimator.state import State
from slir.kernel.cell_ridge import SIZE, STRIDE, CellRidgeStage, Cells, cell_features, features, k_means
from slir.kernel.degradations import Family
from slir.kernel.ridge import Sums, fit_cell_ridge
from slir.kernel.shipped import shipped_kernel
from slir.kernel.stage import KernelStage
from slir.model import Model
from slir.patches import PatchGrid
from slir.preprocessing.arrays import grey_plane
from slir.trust.examples import draw_examples

SIDE = 192
"""Side of the crops that pictures are cut into."""

CROPS, CELLS = 80, 512
"""Degraded crops that are learnt from, and cells, by default."""

SHARE = 4
"""Crops of one fold whose sums are made together."""

PILOT = 12
"""Crops that the cells are found from and the strength of the ridge is judged on: some of each fold, also where there
are three pictures."""

SAMPLES = 50_000
"""Patches that the cells are found from."""

FOLDS = 4
"""Groups of crops; the strength of the ridge is chosen by leaving out each of them."""

MIN_SIDE = 32
"""Least side of a picture."""


@dataclass(frozen=True)
class Crop:
    """A clean crop (H, W) in [0, 1], the fold that it belongs to, and the seed of its degradation."""

    clean: Tensor
    fold: int
    seed: int


@torch.no_grad()
def fit_on_top(
    images: Sequence[np.ndarray | Tensor],
    family: Family,
    base: Model | str | PathLike | None = None,
    *,
    crops: int = CROPS,
    cells: int = CELLS,
    names: Sequence[str] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    cluster: Any = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Model:
    """Fit the closed-form stage on top of a learnt kernel to pictures of one kind.

    images: clean pictures, grey or colour, integer or float in [0, 1]. family: what they are to be degraded by.
    base: a model with a learnt kernel, or the path of one; None takes the network that ships. A closed-form stage that
        it has already is replaced.
    crops: number of degraded crops to learn from; a few hundred change little. cells: kinds of patches, each with a map
        of its own; more of them need more pictures. names: of the pictures, for explanations.
    cluster: who restores the crops and adds up: None is this process; else as for `slir.fit`.

    What is learnt from a crop are sums over its patches, and the crop's seed decides its degradation. So the sums of
    two sets of crops add up to the sums of all (`sums_of`), wherever they are made.
    """
    kernel = learnt_kernel(base, family.kind)
    for name, value in (("crops", crops), ("cells", cells)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(name, "be at least 1, a whole number", value, "Leave it out for the default.")
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    if not planes:
        raise InputError("images", "hold at least one picture", "empty", "Four pictures of a kind are a good start.")
    for number, plane in enumerate(planes):
        if min(plane.shape) < MIN_SIDE:
            found = f"{plane.shape[0]}×{plane.shape[1]}"
            raise InputError(
                f"images[{number}]", f"have at least {MIN_SIDE} pixels a side", found, "Pass a larger one."
            )
    called = [f"images[{i}]" for i in range(len(planes))] if names is None else list(names)
    if len(called) != len(planes):
        raise InputError("names", f"hold one name for each of the {len(planes)} images", len(called), "See images.")
    generator = torch.Generator().manual_seed(seed)
    target = pick_device(device)
    moved = kernel.to(target)
    parts = cut(planes, crops, generator)
    pilot = [(crop.fold, *restore_crop(crop, family, moved)) for crop in parts[:PILOT]]
    seen = torch.cat([cell_features(pairs_of(state, clean)[1]) for _, state, clean in pilot])
    partition = k_means(seen[:: -(-len(seen) // SAMPLES)], cells, generator=generator)

    def error(fold: int, maps: Tensor) -> float:
        """Mean square error of the pilot crops of a fold, restored by maps that were fitted without it."""
        stage = CellRidgeStage(partition, maps.float())
        squares = [(advance(state, stage)[0].z - clean).square().mean() for own, state, clean in pilot if own == fold]
        return float(torch.stack(squares).mean())

    with _each(cluster, device) as each:
        sums = sums_of(parts, family, moved, partition, progress, each).to(target)
    solved = fit_cell_ridge(sums, error)
    top = CellRidgeStage(partition, solved.maps.half().float())  # as a file holds them
    nothing = torch.zeros_like(top.maps)
    before = [error(fold, nothing) for fold in sorted({fold for fold, _, _ in pilot})]
    examples = draw_examples(
        planes, called, lambda clean: partition.assign(cell_features(clean.to(target))).cpu(),
        size=top.size, generator=generator,
    )  # fmt: skip
    provenance: dict[str, Any] = {
        "method": "kernel",
        "slir": slir.__version__,
        "family": family.describe(),
        "images": [image_hash(plane) for plane in planes],
        "crops": crops,
        "seed": seed,
        "cells": len(partition),
        "ridge": {"lam": solved.lam, "tau": solved.tau},
        "held_out_error": {"before": (sum(before) / len(before)) ** 0.5, "after": solved.error**0.5},
        "base": kernel.provenance,
    }
    return Model((*moved.stages, top), provenance, examples=examples)


def learnt_kernel(base: Model | str | PathLike | None, task: str) -> Model:
    """The stages of a learnt kernel, from a model or a model file; of the network that ships where there is none."""
    if base is None:
        return shipped_kernel().model(task)
    if isinstance(base, str | PathLike):
        from slir.io.models import load

        base = load(Path(base), device="cpu")
    kernel = tuple(stage for stage in base.stages if isinstance(stage, KernelStage))
    if not kernel:
        remedy = "Leave it out for the one that ships, or choose another method."
        raise InputError("base", "be a model with a learnt kernel", repr(base), remedy)
    return Model(kernel, base.provenance.get("base", base.provenance))


def cut(planes: Sequence[Tensor], count: int, generator: torch.Generator) -> list[Crop]:
    """Crops at random places, turned and mirrored, from each picture in turn.

    Crops of one fold share no pixel with those of another: a picture belongs to one fold, or where there are too few
    pictures, each of its quarters.
    """
    crops = []
    for number in range(count):
        which, turn = number % len(planes), int(torch.randint(8, (), generator=generator))
        part, fold = planes[which], which % FOLDS
        if len(planes) < FOLDS and min(part.shape) >= 2 * MIN_SIDE:
            fold = number // len(planes) % 4
            rows, cols = (side // 2 for side in part.shape)
            part = part[rows * (fold // 2) :][:rows, cols * (fold % 2) :][:, :cols]
        sides = [min(SIDE, side) for side in part.shape]
        row, col = (int(torch.randint(n - side + 1, (), generator=generator)) for n, side in zip(part.shape, sides))
        crop = part[row : row + sides[0], col : col + sides[1]]
        crop = crop.flip([axis for axis, bit in ((0, 1), (1, 2)) if turn & bit])
        seed = int(torch.randint(2**62, (), generator=generator))
        crops.append(Crop((crop.T if turn & 4 else crop).contiguous(), fold, seed))
    return crops


def sums_of(
    crops: Sequence[Crop],
    family: Family,
    kernel: Model,
    cells: Cells,
    progress: Callable[[int, int, str], None] | None = None,
    each: Callable[..., Iterable[Sums]] = map,
) -> Sums:
    """What the ridge regressions need to know of the crops; sums of two sets of crops add up to those of all.

    each: maps shares of the crops to their sums, in order: here, or on a cluster.
    """
    shares = [own[k : k + SHARE] for own in _by_fold(crops) for k in range(0, len(own), SHARE)]
    total: Sums | None = None
    done = 0
    for share, part in zip(shares, each(sums_of_share, shares, repeat(family), repeat(kernel), repeat(cells))):
        seen, wanted = part.cross.shape[-2:]
        total = total or Sums(FOLDS, len(cells), seen, wanted, part.cross.device)
        for own, more in zip(total.tensors, part.tensors):
            own[share[0].fold] += more[0]
        done += len(share)
        if progress:
            progress(done, len(crops), "fitting")
    assert total is not None  # there is at least one crop
    return total


def _by_fold(crops: Sequence[Crop]) -> list[list[Crop]]:
    return [[crop for crop in crops if crop.fold == fold] for fold in sorted({crop.fold for crop in crops})]


def sums_of_share(crops: Sequence[Crop], family: Family, kernel: Model, cells: Cells) -> Sums:
    """The sums of crops of one fold."""
    sums: Sums | None = None
    for crop in crops:
        seen, patches, wanted = pairs_of(*restore_crop(crop, family, kernel))
        sums = sums or Sums(1, len(cells), seen.shape[1], wanted.shape[1], seen.device)
        sums.add(0, cells.assign(cell_features(patches)), seen, wanted)
    assert sums is not None  # a share has at least one crop
    return sums


@contextmanager
def _each(cluster: Any, device: str | torch.device | None) -> Iterator[Callable[..., Iterable[Sums]]]:
    """Give what maps shares to sums: here, one after the other, or on a cluster."""
    if cluster is None:
        yield map
        return
    from slir.cluster.fitting import cluster_map

    with cluster_map(cluster, device) as each:
        yield each


@torch.no_grad()
def restore_crop(crop: Crop, family: Family, kernel: Model) -> tuple[State, Tensor]:
    """The crop degraded and carried through the stages, and the part of it that the operator takes."""
    generator = torch.Generator().manual_seed(crop.seed)
    operator, sigma = family.draw(generator, (crop.clean.shape[0], crop.clean.shape[1]))
    height, width = operator.for_training((crop.clean.shape[0], crop.clean.shape[1]))[1]
    clean = crop.clean[:height, :width]
    y = operator.forward(clean)
    y = (y + sigma * torch.randn(y.shape, generator=generator)).to(kernel.stages[0].device)
    state = begin(y, operator, kernel, sigma)
    for stage in kernel.stages:
        state, _ = advance(state, stage)
    return state, clean.to(y.device)


def pairs_of(state: State, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f_p (P, d), z_p (P, k) and x_p − z_p (P, k) of all patches."""
    grid = PatchGrid((state.z.shape[0], state.z.shape[1]), SIZE, STRIDE)
    seen, patches = features(state, grid)
    return seen, patches, grid.extract(clean) - patches
