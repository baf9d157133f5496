"""`slir bench speed`: time, memory and PSNR against the number of pixels, beside other methods in the same run.

Every figure comes from a process of its own (`slir.bench.probe`), so that peak memory is that of one restoration, and
methods take turns, so that what else the machine does falls on all alike. Compare figures of one run: as ratios.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from slir.bench.results import write_whole
from slir.compute import pick_device
from slir.errors import SlirError

SIDES = (256, 396, 512, 1024, 2048, 3464)
"""0.07 to 12 megapixels; 396×396 has as many pixels as 321×481."""

BANKS = (1_000, 10_000, 100_000, 1_000_000)
TASKS = ("denoise", "deblur", "upsample", "inpaint")
PEERS = {
    "denoise": ("BM3D", "NLM", "TV", "EPLL", "network"),
    "deblur": ("EPLL", "HL", "Richardson-Lucy", "network ×24"),
    "upsample": ("EPLL", "bicubic"),
    "inpaint": ("biharmonic",),
}
SMALL = 1024
"""Largest side that peers are given, some of which take minutes for a megapixel."""


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


Report = Callable[[int, int, str], None]


def main(
    *,
    out: Path,
    device: str | None = None,
    peers: bool = False,
    quick: bool = False,
    tasks: Sequence[str] = TASKS,
    progress: Report | bool = False,
) -> list[Measured]:
    """Measure into `out` (speed.json, speed.png) and print. quick: up to a quarter of a megapixel, small banks."""
    chosen = str(pick_device(device))
    sides = [side for side in SIDES if side <= 512] if quick else list(SIDES)
    banks = [bank for bank in BANKS if bank <= 10_000] if quick else list(BANKS)
    wanted = [(task, "slir", side, 0) for task in tasks for side in sides]
    if peers:
        wanted += [(t, peer, side, 0) for t in tasks for peer in PEERS[t] for side in sides if side <= SMALL]
    wanted += [("deblur", "paper, squared", 128, bank) for bank in banks if "deblur" in tasks]
    found: list[Measured] = []
    console = Console()
    ceiling = _probe({"method": "ceiling", "device": chosen})
    for number, (task, method, side, bank) in enumerate(wanted):
        if callable(progress):
            progress(number, len(wanted), f"{task}, {method}, {side}×{side}")
        asked = {"task": task, "method": method, "side": side, "bank": bank, "device": chosen, "out": str(out)}
        try:
            answer = _probe(asked)
        except SlirError as error:  # half an hour of measurements should not go with the one that failed
            if method == "slir":
                raise
            answer = {"skipped": method}
            console.print(f"left out: {error}")
        if "skipped" not in answer:
            found.append(Measured(task, method, side, bank, **answer))
    if callable(progress):
        progress(len(wanted), len(wanted), "done")
    record = {"device": chosen, "ceiling": ceiling, "measured": [asdict(one) for one in found]}
    write_whole(out / "speed.json", json.dumps(record, indent=1).encode())
    for table in tables(found, ceiling):
        console.print(table)
    if plot(found, out / "speed.png"):
        console.print(f"written: {out / 'speed.json'}, {out / 'speed.png'}")
    return found


def _probe(asked: dict) -> dict:
    """What a process of its own measures."""
    command = [sys.executable, "-m", "slir.bench.probe", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SlirError(f"measuring {asked} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def exponent(found: Sequence[Measured]) -> float:
    """p of seconds ∝ pixels^p, by least squares on logarithms, from a quarter of a megapixel on; NaN for one size."""
    own = [(math.log(one.side**2), math.log(one.seconds)) for one in found if one.side >= 512]
    if len({pixels for pixels, _ in own}) < 2:
        return math.nan
    pixels, seconds = np.array(own).T
    return float(np.polyfit(pixels, seconds, 1)[0])


def tables(found: Sequence[Measured], ceiling: dict) -> list[Table]:
    """One table a task: methods and sizes down; time, its ratio to slir's, memory and PSNR across."""
    made = []
    for task in dict.fromkeys(one.task for one in found):
        own = [one for one in found if one.task == task and not one.bank]
        ours = {one.side: one.seconds for one in own if one.method == "slir"}
        caption = "× slir: its time over slir's at the same size. beyond: peak memory less what was held before."
        growth = exponent([one for one in own if one.method == "slir"])
        if math.isfinite(growth):
            caption += f" slir's time grows as pixels^{growth:.2f}."
        table = Table(title=task.capitalize(), caption=caption, caption_justify="left")
        for column in ("method", "pixels", "seconds", "× slir", "PSNR", "peak MB", "beyond", "of the ceiling"):
            table.add_column(column, justify="left" if column == "method" else "right")
        for one in own:
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
        made.append(table)
        banked = [one for one in found if one.task == task and one.bank]
        if banked:
            made.append(_bank_table(banked))
    return made


def _bank_table(found: Sequence[Measured]) -> Table:
    table = Table(title="The paper's squared loss with Nadaraya–Watson weights, one pass over 128×128")
    for column in ("bank", "seconds", "PSNR", "peak MB"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(f"{one.bank:,}", f"{one.seconds:.3g}", f"{one.psnr:.2f}", f"{one.peak / 1e6:.0f}")
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
        megapixels = [one.side**2 / 1e6 for one in own]
        style = "-o" if method == "slir" else ":."
        axes.loglog(megapixels, [one.seconds for one in own], style, label=f"{task}, {method}")
    axes.set(xlabel="megapixels", ylabel="seconds")
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    return True
