"""`slir bench cascade`: the learnt cascades beside the paper's configurations and other methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slir.bench.ours import operator_of, ours, restored
from slir.bench.paper import measure
from slir.bench.peers import PEERS
from slir.bench.protocols import Case, Group
from slir.bench.results import Results, fingerprint
from slir.compute import pick_device
from slir.defaults import default_model, shipped_hash
from slir.fitting import family_for
from slir.io.models import load
from slir.learning import fit_cascade
from slir.model import Model

TABLES = ("deblurring", "upsampling", "denoising", "inpainting", "robustness")
SHIPPED = "slir"
LEARNT = "slir, benchmark's training images"
FITTED = "slir, and for this operator"
FEW = "slir, from 4 images for this operator"


@dataclass
class Cascade:
    """A cascade as a method of the benchmark.

    images: how many training images it is fitted on; 0 takes what slir ships. one_operator: fitted to the group's own
    operator and noise rather than to the task's family. own: settings of `fit_cascade`. cache: a folder for fits.
    revision: raised when the outcome changes for the same settings.
    """

    name: str
    kinds: frozenset[str]
    images: int = 0
    one_operator: bool = False
    own: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    cache: Path | None = None
    revision: int = 3
    model: Model | None = field(default=None, repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        own = {"images": self.images, "one_operator": self.one_operator, "revision": self.revision, **self.own}
        return own if self.images else {**own, "shipped": shipped_hash()}

    def handles(self, case: Case) -> bool:
        """What is fitted stays out of the robustness table, which is about what a user is given."""
        return case.kind in self.kinds and not (self.images and case.table == "robustness")

    def prepare(self, group: Group) -> None:
        case = group.cases[0]
        if not self.images:
            self.model = default_model(operator_of(case)).to(self.device)
            return
        family = (
            family_for(None, operator_of(case), case.sigma)
            if self.one_operator
            else family_for(case.kind, None, None, case.factor)
        )
        path = None
        if self.cache is not None:
            mark = fingerprint({**self.settings, "family": family.describe()})
            path = self.cache / f"cascade-{mark}.safetensors"
            if path.exists():
                self.model = load(path, device=self.device)
                return
        self.model = fit_cascade(group.train_images(self.images), family, device=self.device, **self.own)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.model.save(str(path))

    def restore(self, case: Case) -> np.ndarray:
        assert self.model is not None  # prepare comes first
        return restored(case, self.model, self.device)


def cascades(device: str, cache: Path | None, *, fitted: bool = True) -> list[Cascade]:
    """What slir ships; and, fitted, the same learnt from the benchmark's images, specialised, and from few images."""
    every = frozenset({"deblur", "upsample", "denoise", "inpaint"})
    large = {"crops": 520, "side": 192, "cells": 200}
    shared: dict[str, Any] = {"device": device, "cache": cache}
    shipped = Cascade(SHIPPED, every, **shared)
    if not fitted:
        return [shipped]
    return [
        shipped,
        Cascade(LEARNT, every, images=200, own=large, **shared),
        Cascade(FITTED, frozenset({"deblur", "upsample"}), images=200, one_operator=True, own=large, **shared),
        Cascade(FEW, frozenset({"deblur"}), images=4, one_operator=True, own={"cells": 32}, **shared),
    ]


def main(
    *,
    data: Path,
    out: Path,
    subset: str = "subset9",
    device: str | None = None,
    fitted: bool = False,
    peers: bool = False,
    previous: bool = False,
    tables: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | bool = False,
) -> Results:
    """Run the cascades over `data` into `out` and print them beside the printed figures.

    fitted: cascades fitted here too, which takes hours on a CPU. peers: other methods on the same y too. previous: the
    paper's configurations too, which were slir's default before.
    """
    chosen = str(pick_device(device))
    methods: list = [*cascades(chosen, out / "fits", fitted=fitted)]
    methods += [*ours(chosen)] if previous else []
    methods += [*PEERS] if peers else []

    return measure(list(tables or TABLES), methods, data, out, subset, chosen, progress)
