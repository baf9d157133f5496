"""`slir bench speed`: time, memory and PSNR against the number of pixels, beside other methods in the same run.

Every figure comes from a process of its own (`slir_bench.probe`), so that peak memory is that of one restoration.
Methods take turns on one picture after the other, so that what else the machine does falls on all alike. Pictures come
in the order of what they cost, and each figure is written as soon as it is known. Compare figures of one run: as
ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console

from slir.compute import pick_device
from slir.errors import SlirError
from slir_bench.speed_tables import Measured, Record, Row, plot

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

COST = {
    "denoise": 10, "deblur": 20, "upsample": 15, "inpaint": 60, "BM3D": 30, "EPLL": 150, "network": 15,
    "network ×24": 370, "biharmonic": 500, "HL": 5, "NLM": 5, "Richardson-Lucy": 5, "TV": 1, "bicubic": 1,
}  # fmt: skip
"""Seconds a megapixel on two cores, roughly: of slir by task, of peers by name. They order the rows, no more."""

PER_BANK = 5e-5
"""Seconds that an entry of the bank costs, as roughly."""

Report = Callable[[int, int, str], None]


def main(
    *,
    out: Path,
    device: str | None = None,
    peers: bool = False,
    quick: bool = False,
    tasks: Sequence[str] = TASKS,
    resume: bool = False,
    progress: Report | bool = False,
) -> list[Measured]:
    """Measure into `out` (speed.json, speed.txt, speed.png) and print each figure as it comes, then the tables.

    quick: up to a quarter of a megapixel, small banks. resume: go on where an earlier run into `out` was stopped, on
    the same machine; its figures are kept. Returns all figures of the record.
    """
    chosen = str(pick_device(device))
    wanted = rows(tasks, peers=peers, quick=quick)
    console = Console()
    machine = _machine(chosen)
    record = Record.resumed(out, machine) if resume else None
    if record is None:
        record = Record(out, machine, _probe({"method": "ceiling", "device": chosen}))
    done = {one.row for one in record.measured}
    for number, row in enumerate(wanted):
        if callable(progress):
            progress(number, len(wanted), "measuring")
        if row in done:
            continue
        one = _measured(row, chosen, out, console)
        if one is not None:
            record.add(one)
            console.print(str(one), markup=False, highlight=False, soft_wrap=True)
    if callable(progress):
        progress(len(wanted), len(wanted), "measuring")
    for table in record.tables():
        console.print(table)
    if plot(record.measured, out / "speed.png"):
        console.print(f"written: {out / 'speed.json'}, {out / 'speed.txt'}, {out / 'speed.png'}")
    return record.measured


def rows(tasks: Sequence[str] = TASKS, *, peers: bool = False, quick: bool = False) -> list[Row]:
    """What to measure: all methods on one picture, slir first, then those on the next; cheap pictures come first."""
    sides = [side for side in SIDES if side <= 512] if quick else list(SIDES)
    banks = [bank for bank in BANKS if bank <= 10_000] if quick else list(BANKS)
    wanted: list[Row] = []
    for task in tasks:
        for side in sides:
            others = PEERS[task] if peers and side <= SMALL else ()
            wanted += [(task, method, side, 0) for method in ("slir", *others)]
    if "deblur" in tasks:
        wanted += [("deblur", "paper, squared", 128, bank) for bank in banks]
        wanted += [] if quick else [("deblur", "paper, Euclidean", 396, 10_000)]

    def picture(row: Row) -> tuple[str, int, int]:
        return row[0], row[2], row[3]

    groups = [list(group) for _, group in groupby(wanted, picture)]
    groups.sort(key=lambda group: sum(map(_cost, group)))
    return [row for group in groups for row in group]


def _cost(row: Row) -> float:
    task, method, side, bank = row
    passes = 100 if method == "paper, Euclidean" else 1
    return PER_BANK * bank * passes if bank else COST[task if method == "slir" else method] * side**2 / 1e6


def _measured(row: Row, device: str, out: Path, console: Console) -> Measured | None:
    """One figure; None where a package is missing or a peer fails, which costs no more than its own figure."""
    task, method, side, bank = row
    asked = {"task": task, "method": method, "side": side, "bank": bank, "device": device, "out": str(out)}
    try:
        answer = _probe(asked)
    except SlirError as error:
        if method == "slir":
            raise
        console.print(f"left out: {error}", markup=False)
        return None
    if "skipped" in answer:
        console.print(f"left out: {task}, {method}, whose package is not installed", markup=False, highlight=False)
        return None
    return Measured(task, method, side, bank, **answer)


def _machine(device: str) -> dict[str, str | int]:
    """What figures that are compared must have in common."""
    import torch

    from slir import __version__

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
    return {"device": device, "name": name, "threads": torch.get_num_threads(), "slir": __version__}


def _probe(asked: dict) -> dict:
    """What a process of its own measures."""
    command = [sys.executable, "-m", "slir_bench.probe", json.dumps(asked)]
    seen = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=seen)
    if done.returncode:
        raise SlirError(f"measuring {asked} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])
