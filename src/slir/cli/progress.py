"""Progress bars on the terminal for the library's `progress` callables."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from slir.files.batch import BatchProgress, Report
    from slir.files.jobs import Job

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


class BatchBar:
    """Progress over many files, with the time that is left. Files count by their size on the disk."""

    def __init__(self, jobs: Sequence[Job], bars: Any = None):
        self.bars = bars
        self.weights = [_size(job) for job in jobs]
        self.numbers = {str(job.output): number for number, job in enumerate(jobs)}
        self.parts: dict[int, float] = {}  # of files underway
        self.finished = self.files = 0
        if bars is not None:
            self.task = bars.add_task(f"0 of {len(jobs)} files", total=sum(self.weights))

    @property
    def progress(self) -> BatchProgress | None:
        return None if self.bars is None else self._progress

    def _progress(self, number: int, done: int, total: int, what: str) -> None:
        self.parts[number] = self.weights[number] * done / max(total, 1)
        self._draw()

    def done(self, report: Report) -> None:
        """A file is finished, one way or another."""
        if self.bars is None:
            return
        number = self.numbers[str(report.job.output)]
        self.parts.pop(number, None)
        self.finished += self.weights[number]
        self.files += 1
        self._draw()

    def _draw(self) -> None:
        text = f"{self.files} of {len(self.weights)} files"
        self.bars.update(self.task, completed=self.finished + sum(self.parts.values()), description=text)


@contextlib.contextmanager
def batch_bar(jobs: Sequence[Job], *, quiet: bool = False) -> Iterator[BatchBar]:
    """Give a `BatchBar`, which draws on stderr where somebody sees it."""
    if quiet or not sys.stderr.isatty():
        yield BatchBar(jobs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Lines of results pass by the bar where both are on the terminal; elsewhere stdout is left alone.
    shown = Console(stderr=True)
    with Progress(*columns, console=shown, transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        yield BatchBar(jobs, bars)


def _size(job: Job) -> int:
    try:
        return max(1, job.image.stat().st_size)
    except OSError:
        return 1
