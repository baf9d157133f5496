"""A progress bar on the terminal for the library's `progress` callable."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Literal

Progress = Callable[[int, int, str], None]


@contextlib.contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Progress | Literal[False]]:
    """Give `progress(done, total, what)`, which draws on stderr; or False, where nobody would see it.

    A new `what` starts a new line, so that one bar can show several steps after each other.
    """
    if quiet or not sys.stderr.isatty():
        yield False
        return
    # Imported here: rich takes longer to load than `slir --help` may last.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def report(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
