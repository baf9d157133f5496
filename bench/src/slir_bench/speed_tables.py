"""What `slir bench speed` measured, kept in a file row by row, and shown: tables, a summary, a plot."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from slir.errors import InputError
from slir_bench.results import write_whole

QUARTER = 512
"""Side from which on the growth of time is fitted: below a quarter of a megapixel, starting counts."""

Row = tuple[str, str, int, int]
"""(task, method, side, bank)."""


@dataclass(frozen=True)
class Measured:
    """One restoration. seconds: of the restoration alone. peak: bytes that its process held at most, Python and torch
    included; start: that it held before. operations, bytes: what the work needs at least, where that is known."""

    task: str
    method: str
    side: int
    bank: int
    seconds: float
    psnr: float
    peak: int
    start: int
    operations: float = 0.0
    traffic: float = 0.0

    @property
    def row(self) -> Row:
        return self.task, self.method, self.side, self.bank

    def __str__(self) -> str:
        size = f"{self.side}×{self.side}" + (f", bank of {self.bank:,}" if self.bank else "")
        quality = f"{self.psnr:.2f} dB, " if math.isfinite(self.psnr) else ""
        return f"{self.task}, {self.method}, {size}: {self.seconds:.3g} s, {quality}{self.peak / 1e6:.0f} MB"


@dataclass
class Record:
    """What was measured so far. machine: what must be the same for figures to be compared. ceiling: what the machine
    does at best. `add` brings the files up to date, each whole: speed.json, and speed.txt with the tables."""

    folder: Path
    machine: dict[str, Any]
    ceiling: dict[str, float]
    measured: list[Measured] = field(default_factory=list)

    @classmethod
    def resumed(cls, folder: Path, machine: dict[str, Any]) -> Record | None:
        """The one that an earlier run left in `folder`; None where there is none. It must be of the same machine."""
        path = folder / "speed.json"
        if not path.exists():
            return None
        remedy = "Measure anew, without --resume, or into another folder."
        try:
            kept = json.loads(path.read_text("utf-8"))
            found, ceiling = kept["machine"], dict(kept["ceiling"])
            measured = [Measured(**one) for one in kept["measured"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            rule = "find figures that can be read"
            raise InputError("--resume", rule, f"{path} ({type(error).__name__})", remedy) from error
        if found != machine:
            raise InputError("--resume", f"go on where figures are of the same machine, {machine}", found, remedy)
        return cls(folder, machine, ceiling, measured)

    def add(self, one: Measured) -> None:
        self.measured.append(one)
        kept = {
            "machine": self.machine,
            "ceiling": self.ceiling,
            "growth": {name: power for name, power in growth(self.measured).items() if math.isfinite(power)},
            "measured": [asdict(each) for each in self.measured],
        }
        write_whole(self.folder / "speed.json", json.dumps(kept, indent=1).encode())
        text = Console(file=io.StringIO(), width=120, record=True)
        for table in self.tables():
            text.print(table)
        write_whole(self.folder / "speed.txt", text.export_text().encode())

    def tables(self) -> list[Table]:
        return tables(self.measured, self.ceiling)


def exponent(found: Sequence[Measured]) -> float:
    """p of seconds ∝ pixels^p, by least squares on logarithms, from a quarter of a megapixel on; NaN for one size."""
    own = [(math.log(one.side**2), math.log(one.seconds)) for one in found if one.side >= QUARTER]
    if len({pixels for pixels, _ in own}) < 2:
        return math.nan
    pixels, seconds = np.array(own).T
    return float(np.polyfit(pixels, seconds, 1)[0])


def growth(found: Sequence[Measured]) -> dict[str, float]:
    """The exponent of slir's time, task by task."""
    ours = [one for one in found if one.method == "slir"]
    return {task: exponent([one for one in ours if one.task == task]) for task in _tasks(ours)}


def tables(found: Sequence[Measured], ceiling: dict) -> list[Table]:
    """Methods and sizes down, a table a task; then one of slir alone."""
    made = []
    for task in _tasks(found):
        own = [one for one in found if one.task == task and not one.bank]
        if own:
            made.append(_task_table(task, own, ceiling))
        banked = [one for one in found if one.task == task and one.bank]
        if banked:
            made.append(_bank_table(banked))
    ours = [one for one in found if one.method == "slir"]
    return [*made, _summary(ours)] if ours else made


def _task_table(task: str, found: Sequence[Measured], ceiling: dict) -> Table:
    ours = {one.side: one.seconds for one in found if one.method == "slir"}
    caption = "× slir: its time over slir's at the same size. beyond: peak memory less what was held before."
    table = Table(title=task.capitalize(), caption=caption, caption_justify="left")
    for column in ("method", "pixels", "seconds", "× slir", "PSNR", "peak MB", "beyond", "of the ceiling"):
        table.add_column(column, justify="left" if column == "method" else "right")
    order = list(dict.fromkeys(["slir", *(one.method for one in found)]))
    for one in sorted(found, key=lambda one: (order.index(one.method), one.side)):
        share = one.operations / one.seconds / ceiling["operations"] if one.operations else 0
        table.add_row(
            one.method,
            f"{one.side}×{one.side}",
            f"{one.seconds:.3g}",
            f"{one.seconds / ours[one.side]:.3g}" if one.side in ours else "",
            f"{one.psnr:.2f}" if math.isfinite(one.psnr) else "",
            f"{one.peak / 1e6:.0f}",
            f"{(one.peak - one.start) / 1e6:.0f}",
            f"{share:.0%}" if share else "",
        )
    return table


def _bank_table(found: Sequence[Measured]) -> Table:
    table = Table(title="The paper's losses with Nadaraya–Watson weights")
    for column in ("loss", "pixels", "bank", "seconds", "PSNR", "peak MB"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for one in sorted(found, key=lambda one: (one.method, one.bank)):
        size = f"{one.side}×{one.side}"
        table.add_row(
            one.method.split(", ")[1],
            size,
            f"{one.bank:,}",
            f"{one.seconds:.3g}",
            f"{one.psnr:.2f}",
            f"{one.peak / 1e6:.0f}",
        )
    return table


def _summary(ours: Sequence[Measured]) -> Table:
    """slir task by task: the time of a common size, the largest size, and how time grows between the two."""
    caption = "grows as: p of seconds ∝ pixels^p, fitted from a quarter of a megapixel to the largest size."
    table = Table(title="slir", caption=caption, caption_justify="left")
    for column in ("task", "seconds to 512×512", "largest", "seconds", "peak MB", "grows as"):
        table.add_column(column, justify="left" if column == "task" else "right")
    powers = growth(ours)
    for task in _tasks(ours):
        own = {one.side: one for one in ours if one.task == task}
        largest = own[max(own)]
        table.add_row(
            task,
            f"{own[QUARTER].seconds:.3g}" if QUARTER in own else "",
            f"{largest.side}×{largest.side}",
            f"{largest.seconds:.3g}",
            f"{largest.peak / 1e6:.0f}",
            f"pixels^{powers[task]:.2f}" if math.isfinite(powers[task]) else "",
        )
    return table


def plot(found: Sequence[Measured], path: Path) -> bool:
    """Seconds against megapixels, a line a task, peers dotted; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    for task, method in dict.fromkeys((one.task, one.method) for one in found if not one.bank):
        own = [one for one in found if (one.task, one.method, one.bank) == (task, method, 0)]
        own.sort(key=lambda one: one.side)
        style = "-o" if method == "slir" else ":."
        megapixels = [one.side**2 / 1e6 for one in own]
        axes.loglog(megapixels, [one.seconds for one in own], style, label=f"{task}, {method}")
    axes.set(xlabel="megapixels", ylabel="seconds")
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize="small")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120)
    write_whole(path, picture.getvalue())
    return True


def _tasks(found: Sequence[Measured]) -> list[str]:
    return list(dict.fromkeys(one.task for one in found))
