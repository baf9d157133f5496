"""What the command line prints. Results go to stdout; notes, warnings and errors to stderr."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import typer

from slir.cli.options import spelt

if TYPE_CHECKING:
    from pathlib import Path

    from slir.files.batch import Planned, Report
    from slir.files.jobs import Job, Outcome
    from slir.files.paths import Passed

SCREENFUL, FEW = 20, 4
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def plain(text: str) -> str:
    """The text with control characters as JSON writes them, and bytes of file names that are no UTF-8 likewise.

    Names of files, and what files say of themselves, may hold sequences that a terminal obeys.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def done(text: str, *, quiet: bool = False) -> None:
    """A line that says what was done."""
    if not quiet:
        typer.echo(plain(text))


def note(text: str, *, quiet: bool = False) -> None:
    """Something that is worth knowing and no cause for worry."""
    if not quiet:
        typer.echo(plain(f"note: {text}"), err=True)


def warn(text: str) -> None:
    """Something that was done as asked, but that may not be what was meant."""
    typer.secho(plain("warning: " + " ".join(text.split())), fg=typer.colors.YELLOW, err=True)


def error(text: str) -> None:
    """Why the command stopped, in one line."""
    typer.secho(plain("error: " + " ".join(text.split())), fg=typer.colors.RED, err=True)


def warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of `warnings.showwarning`: the words alone."""
    text = plain("warning: " + " ".join(str(message).split()))
    typer.secho(text, fg=typer.colors.YELLOW, err=file in (None, sys.stderr))


def seconds(value: float) -> str:
    """ "0.8 s", "12 s", "3 min 05 s", "2 h 05 min"."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60:02d} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    )


def memory(value: float) -> str:
    """ "12 kB", "640 MB", "1.3 GB"."""
    if value < 1e6:
        return f"{value / 1e3:.0f} kB"
    return f"{value / 1e6:.0f} MB" if value < 1e9 else f"{value / 1e9:.1f} GB"


def as_json(record: dict[str, Any]) -> str:
    """One line. What JSON has no number for is null."""

    def finite(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {key: finite(each) for key, each in value.items()}
        return [finite(each) for each in value] if isinstance(value, list | tuple) else value

    return plain(json.dumps(finite(record), ensure_ascii=False))


def passed_over(files: Sequence[Passed], *, quiet: bool = False) -> None:
    """Which files of folders are no images, by their reasons."""
    reasons: dict[str, list[Path]] = {}
    for each in files:
        reasons.setdefault(each.reason, []).append(each.path)
    parts = [f"{_file_names(paths)} ({reason})" for reason, paths in reasons.items()]
    if parts:
        note(f"passed over {len(files)} file{'s' if len(files) > 1 else ''}: {'; '.join(parts)}", quiet=quiet)


def _file_names(paths: Sequence[Path]) -> str:
    """A few files by their names, more of them by their suffixes."""
    if len(paths) <= FEW:
        return ", ".join(map(str, paths))
    kinds = Counter(path.suffix.lower() or "without a suffix" for path in paths)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


@dataclass
class Screen:
    """Tells of each file as soon as it is done, and sums up.

    many : whether a line stands among others. passed : files that were passed over.
    """

    quiet: bool
    json: bool
    many: bool
    expected: int = 1
    passed: Sequence[Passed] = ()
    counts: dict[str, int] = field(default_factory=lambda: {"restored": 0, "skipped": 0, "failed": 0})
    failures: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)

    @property
    def failed(self) -> int:
        return self.counts["failed"]

    @property
    def left(self) -> int:
        """Files that were not begun."""
        return self.expected - sum(self.counts.values())

    def report(self, report: Report) -> None:
        if report.status == "failed":
            self.failure(spelt(report.reason, report.argument), _record(report), report.details)
            return
        self.counts[report.status] += 1
        if self.json:
            typer.echo(as_json(_record(report)))
        elif report.status == "skipped":
            done(f"skipped {report.job.image} ({report.job.output} {report.reason})", quiet=self.quiet)
        else:
            assert report.outcome is not None  # it was restored
            self._report_restored(report.job, report.outcome)

    def failure(self, reason: str, record: dict[str, Any], details: str = "") -> None:
        """A file that failed. record : which one, for machines. details : a traceback, where it is a bug."""
        self.counts["failed"] += 1
        self.failures.append(reason)
        if self.json:
            typer.echo(as_json({**record, "status": "failed", "reason": reason}))
        else:
            error(reason)
        if details:
            typer.echo(plain(details), err=True)

    def _report_restored(self, job: Job, outcome: Outcome) -> None:
        for text in outcome.notes:
            note(f"{job.image}: {text}", quiet=self.quiet)
        for text in outcome.warnings:
            warn(f"{job.image}: {text}" if self.many else text)
        shown = f"{pixels(outcome)}, {_noise(job, outcome)}, {seconds(outcome.seconds)}"
        places = ", ".join((str(job.output), *outcome.error_maps, *outcome.intervals))
        done(f"{job.problem.task.done} {job.image} ({shown}) -> {places}", quiet=self.quiet)

    def summary(self) -> None:
        taken = time.perf_counter() - self.start
        if self.json:
            told = {"not_begun": self.left, "seconds": round(taken, 3), **_passed_record(self.passed)}
            typer.echo(as_json({"summary": {**self.counts, **told}}))
            return
        left = f", {self.left} not begun" if self.left else ""
        counts = ", ".join(f"{number} {status}" for status, number in self.counts.items())
        done(f"{counts}{left} in {seconds(taken)}", quiet=self.quiet)
        for reason in self.failures if self.expected > SCREENFUL else ():
            done(f"  failed: {reason}", quiet=self.quiet)  # again: where it stood is out of sight


@dataclass
class Plan:
    """Tells what would be done with each file, and sums up."""

    quiet: bool
    json: bool
    workers: int
    passed: Sequence[Passed] = ()
    counts: dict[str, int] = field(default_factory=lambda: {"restored": 0, "skipped": 0, "failed": 0})
    total: float = 0.0
    most: int = 0

    @property
    def failed(self) -> int:
        return self.counts["failed"]

    def report(self, planned: Planned) -> None:
        job, guess = planned.job, planned.estimate
        self.counts[planned.status] += 1
        if guess is not None:
            self.total += guess.seconds
            self.most = max(self.most, guess.memory)
        if self.json:
            record: dict[str, Any] = {"image": str(job.image), "output": str(job.output), "would_be": planned.status}
            if planned.head is not None and guess is not None:
                height, width = planned.head.size
                record |= {"width": width, "height": height, "planes": planned.head.planes, **asdict(guess)}
            typer.echo(as_json(record | ({"reason": planned.reason} if planned.reason else {})))
        elif planned.status == "failed":
            error(spelt(planned.reason, planned.argument))
        elif planned.status == "skipped":
            done(f"would skip {job.image} ({job.output} {planned.reason})", quiet=self.quiet)
        else:
            assert planned.head is not None
            assert guess is not None
            shown = f"{pixels(planned.head)}, about {seconds(guess.seconds)}, {memory(guess.memory)}"
            places = ", ".join(map(str, job.outputs))
            done(f"would {job.problem.task.name} {job.image} ({shown}) -> {places}", quiet=self.quiet)

    def summary(self) -> None:
        held = self.most * self.workers
        taken = self.total / self.workers
        if self.json:
            counts = {f"would_be_{status}": number for status, number in self.counts.items()}
            guess = {"seconds": round(taken, 3), "memory": held, "jobs": self.workers}
            typer.echo(as_json({"summary": {**counts, **guess, **_passed_record(self.passed)}}))
            return
        words = zip(self.counts.values(), ("to restore", "to skip", "that would fail"))
        counts_line = ", ".join(f"{number} {word}" for number, word in words)
        at_once = "" if self.workers == 1 else f" with {self.workers} files at a time"
        guess_line = f"estimated {seconds(taken)} and {memory(held)}{at_once}; nothing was written"
        done(f"{counts_line}: {guess_line}", quiet=self.quiet)


def pixels(what: Any) -> str:
    """ "512 × 512 RGB uint8", of an outcome or a head."""
    height, width = what.size
    planes = f"{what.planes} planes of " if what.planes > 1 else ""
    return f"{planes}{width} × {height} {what.layout} {what.dtype}"


def _noise(job: Job, outcome: Outcome) -> str:
    """ "sigma 12", "some noise of about 12 grey levels", "sigma 12.3 (estimated)". Colour images may have one σ a
    channel."""
    from slir.problem import parse_sigma

    kind, value = parse_sigma(job.problem.sigma)
    if kind != "name":
        return f"sigma {value:.3g}" + ("%" if kind == "percent" else "")
    if outcome.noise:
        return outcome.noise
    if outcome.sigma is None:
        return "sigma estimated"
    found = outcome.sigma if isinstance(outcome.sigma, tuple) else (outcome.sigma,)
    return f"sigma {' '.join(f'{number:.3g}' for number in found)} (estimated)"


def _passed_record(files: Sequence[Passed]) -> dict[str, Any]:
    found = [{"path": str(each.path), "reason": each.reason} for each in files]
    return {"passed_over": found} if found else {}


def _record(report: Report) -> dict[str, Any]:
    job = report.job
    record: dict[str, Any] = {"image": str(job.image), "output": str(job.output), "status": report.status}
    if report.outcome is not None:
        own = asdict(report.outcome)
        height, width = own.pop("size")
        record |= {"task": job.problem.task.name, "width": width, "height": height, **own}
    if report.reason:
        record["reason"] = report.reason
    return record
