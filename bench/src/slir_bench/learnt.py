"""`slir bench learnt`: the learnt kernel beside the paper's configurations and other methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slir.compute import pick_device
from slir.kernel.shipped import default_model, shipped_hash
from slir.model import Model
from slir_bench.ours import operator_of, ours, restored
from slir_bench.paper import measure
from slir_bench.peers import PEERS
from slir_bench.protocols import Case, Group
from slir_bench.results import Results

TABLES = ("deblurring", "upsampling", "denoising", "colour", "inpainting", "robustness")
SHIPPED = "slir"
KINDS = frozenset({"deblur", "upsample", "denoise", "inpaint"})


@dataclass
class Learnt:
    """The model that ships, as a method of the benchmark."""

    name: str = SHIPPED
    device: str = "cpu"
    model: Model | None = field(default=None, repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        return {"shipped": shipped_hash()}

    def handles(self, case: Case) -> bool:
        return case.kind in KINDS

    def prepare(self, group: Group) -> None:
        self.model = default_model(operator_of(group.cases[0])).to(self.device)

    def restore(self, case: Case) -> np.ndarray:
        assert self.model is not None  # prepare comes first
        return restored(case, self.model, self.device)


def main(
    *,
    data: Path,
    out: Path,
    subset: str = "subset9",
    device: str | None = None,
    peers: bool = False,
    paper: bool = False,
    tables: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | bool = False,
) -> Results:
    """Run the model that ships over `data` into `out` and print it beside the printed figures.

    peers: other methods on the same y too. paper: the paper's configurations too.
    """
    chosen = str(pick_device(device))
    methods: list = [Learnt(device=chosen), *(ours(chosen) if paper else ()), *(PEERS if peers else ())]
    return measure(list(tables or TABLES), methods, data, out, subset, chosen, progress)
