"""The paper's four tables as rich tables: what the paper prints, marked so, beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from rich.table import Table

from slir_bench import printed
from slir_bench.protocols import COMPOSITION
from slir_bench.results import Result, Results

PRINTED = "italic dim"
CAPTION = "Mean PSNR in dB. Columns headed “printed” are copied from the paper, not measured."
FULL = {
    "deblurring": 68,
    "upsampling": 5,
    "denoising": 12,
    "colour": 68,
    "composition": 4,
    "inpainting": 12,
    "robustness": 68,
}
"""How many images a setting has; a mean over fewer shows its count."""


def render(results: Results, tables: Iterable[str] = tuple(FULL)) -> list[Table]:
    """A rich table for each of `tables` that has results."""
    found = results.newest()
    made = []
    for name in tables:
        rows = [r for r in found if r.table == name]
        if rows:
            made.append(_composition(rows) if name == "composition" else _plain(name, rows))
    return made


def _plain(name: str, rows: list[Result]) -> Table:
    """Settings down, methods across; for upsampling the images go down, as in the paper."""
    by_image = name == "upsampling"
    paper = {"deblurring": printed.DEBLURRING, "upsampling": printed.UPSAMPLING, "denoising": printed.DENOISING}.get(
        name, {}
    )
    methods = list(dict.fromkeys(r.method for r in rows))
    columns = list(next(iter(paper.values()))) if paper else []
    table = Table(title=name.capitalize(), caption=CAPTION if columns else "Mean PSNR in dB.", caption_justify="left")
    table.add_column("image" if by_image else "setting")
    for column in columns:
        table.add_column(f"{column}\nprinted", justify="right", style=PRINTED)
    for method in methods:
        table.add_column(f"{method}\nmeasured", justify="right")

    labels = list(dict.fromkeys(r.image if by_image else r.setting for r in rows))
    for label in labels:
        mine = [r for r in rows if label == (r.image if by_image else r.setting)]
        table.add_row(label, *_copied(paper, label, columns), *_measured(mine, methods, 1 if by_image else FULL[name]))
    if by_image:
        table.add_section()
        table.add_row("mean", *_copied(paper, "mean", columns), *_measured(rows, methods, FULL[name]))
    seconds = [f"{np.mean([r.seconds for r in rows if r.method == method]):.3g}" for method in methods]
    table.add_section()
    table.add_row("seconds an image", *[""] * len(columns), *seconds)
    return table


def _composition(rows: list[Result]) -> Table:
    """Test images down, training sets across, one block a method; each cell is measured (printed)."""
    banks = [*COMPOSITION, "hybrid"]
    caption = "PSNR in dB, measured and in brackets as the paper prints it, for files that it does not name."
    table = Table(title="Composition of the training set", caption=caption, caption_justify="left")
    table.add_column("method")
    table.add_column("test image")
    for bank in banks:
        table.add_column(f"{bank}\nmeasured [{PRINTED}](printed)[/]", justify="right")
    for method in dict.fromkeys(r.method for r in rows):
        mine = [r for r in rows if r.method == method]
        for label in (*COMPOSITION, "mean"):
            cells = []
            for bank in banks:
                values = [r.psnr for r in mine if r.setting == bank and label in (r.image, "mean")]
                value = f"{np.mean(values):.2f}" if values else "–"
                cells.append(f"{value} [{PRINTED}]({printed.COMPOSITION[label][bank]:.2f})[/]")
            table.add_row(method, label, *cells)
        table.add_section()
    return table


def _copied(paper: dict[str, dict[str, float]], label: str, columns: list[str]) -> list[str]:
    row = paper.get(label, {})
    return [f"{row[column]:.2f}" if column in row else "–" for column in columns]


def _measured(rows: list[Result], methods: list[str], full: int) -> list[str]:
    """The mean of each method, with the count of images where it is not the full set."""
    cells = []
    for method in methods:
        values = [r.psnr for r in rows if r.method == method]
        count = f" ({len(values)})" if values and len(values) != full else ""
        cells.append(f"{np.mean(values):.2f}{count}" if values else "–")
    return cells
