"""`slir bench paper`: the paper's tables, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from slir.compute import pick_device
from slir_bench import runner
from slir_bench import tables as rendered
from slir_bench.ours import ours
from slir_bench.peers import PEERS
from slir_bench.results import Results

PAPER = ("deblurring", "upsampling", "composition", "denoising")


def main(
    *,
    data: Path,
    out: Path,
    subset: str = "all",
    device: str | None = None,
    peers: bool = False,
    tables: Sequence[str] | None = None,
    progress: Callable[[int, int, str], None] | bool = False,
) -> Results:
    """Run the paper's tables (or those named) over `data` into `out`, and print them beside the printed figures.

    Results are stored as they come (results.jsonl, results.csv, results.json, pictures/), so that a stopped run goes on
    where it stopped.
    """
    chosen = str(pick_device(device))
    methods = [*ours(chosen), *(PEERS if peers else ())]
    return measure(list(tables or PAPER), methods, data, out, subset, chosen, progress)


def measure(
    names: Sequence[str],
    methods: Sequence[runner.Method | str],
    data: Path,
    out: Path,
    subset: str,
    device: str,
    progress: Callable[[int, int, str], None] | bool,
) -> Results:
    """Run methods over tables, tell how far it is, and print what came out."""

    def report(step: runner.Progress) -> None:
        if callable(progress):
            progress(step.done, step.total, f"{step.case.table}, {step.case.setting}: {step.method}")

    store = runner.run(names, methods, data, out, subset=subset, device=device, pictures=True, progress=report)
    show(store, names)
    return store


def show(store: Results, names: Sequence[str]) -> None:
    """Print the tables that have results."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file has no edge to wrap at
    for table in rendered.render(store, names):
        console.print(table)
