"""Many files restored, one after the other or several at a time, whatever happens to one of them.

    for report in run(jobs, policy=Policy(skip_existing=True), workers=4):
        print(report.job.image, report.status, report.reason)

An output is there whole or not at all, whenever the run ends and however; run again with `skip_existing`, it makes
exactly what is missing.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slir.errors import FileError, SlirError
from slir.files.atomic_output import clear_stale, sidecar_of
from slir.files.jobs import Job, Outcome, Progress
from slir.files.jobs import run as restore
from slir.io import Head

if TYPE_CHECKING:
    from slir.files.cost import Estimate

Status = Literal["restored", "skipped", "failed"]
OnError = Literal["continue", "stop"]
BatchProgress = Callable[[int, int, int, str], None]
Reports = Generator["Report", None, None]

WORKER_MEMORY = 2**30
"""Bytes that a worker is reckoned to need when it is up to us how many there are."""


@dataclass(frozen=True)
class Policy:
    """What to do about outputs that exist, and whether to write sidecars.

    skip_existing : leave alone an output that its sidecar says is the one asked for: from the same content, with the
        same settings, unchanged since. One without a sidecar is taken to be. Any other is a failure, or with `force`
        done again.
    force : replace outputs that exist.
    sidecar : write OUT.json beside each output.
    """

    force: bool = False
    skip_existing: bool = False
    sidecar: bool = True


@dataclass(frozen=True)
class Report:
    """What became of one job. reason : why it was skipped or failed. argument : which of the job's was at fault, where
    one was. details : the traceback of a bug in slir."""

    job: Job
    status: Status
    reason: str = ""
    outcome: Outcome | None = None
    argument: str = ""
    details: str = ""


def run(
    jobs: Sequence[Job],
    *,
    policy: Policy = Policy(),  # noqa: B008  (frozen)
    on_error: OnError = "continue",
    workers: int = 1,
    progress: BatchProgress | None = None,
    cluster: Any = None,
) -> Iterator[Report]:
    """Do the jobs; give a report of each as soon as it is done. Folders of outputs are made as needed.

    on_error : "continue" with the other files after one failed, or "stop": none is begun any more.
    workers : how many processes share the work; 1 works in this one. Each uses as many threads as its jobs say; jobs
        that do not say get one each, so that results do not depend on the number of workers.
    progress : called as progress(number of the job, done, total, what).
    cluster : a `distributed.Client`, whose workers then share the work; they see the same disks.

    Closing the iterator, or Ctrl-C, stops the work at once and leaves nothing half-written.
    """
    folders = {Path(os.path.realpath(job.output)).parent for job in jobs}
    clear_stale(folders)
    if len(jobs) > 1:
        jobs = [_alone(job) for job in jobs]
    stopped = False
    if cluster is not None:
        from slir.cluster import batch as on_cluster

        reports = on_cluster.spread(cluster, jobs, policy, lambda: stopped)
    elif workers <= 1:
        reports = _in_this_process(jobs, policy, progress)
    else:
        from slir.files.workers import spread

        reports = spread(jobs, policy, min(workers, len(jobs)), progress, lambda: stopped)
    try:
        for report in reports:
            stopped = stopped or (report.status == "failed" and on_error == "stop")
            yield report
            if stopped and workers <= 1 and cluster is None:
                return
    finally:
        reports.close()
        clear_stale(folders)  # what workers left that were stopped


def check_shared(job: Job) -> None:
    """Raise what would fail for every file of a batch, rather than for one: the model, the device, the operator."""
    from slir.files.jobs import check_errors, load_model

    load_model(job)
    check_errors(job)
    if job.device is not None:
        from slir.compute import pick_device

        pick_device(job.device)
    job.problem.operator()


def _in_this_process(jobs: Sequence[Job], policy: Policy, progress: BatchProgress | None) -> Reports:
    for number, job in enumerate(jobs):
        yield attempt(job, policy, progress=_of_job(progress, number))


def attempt(job: Job, policy: Policy, *, progress: Progress | None = None) -> Report:
    """One job, whose failure is a report too."""
    try:
        job.output.parent.mkdir(parents=True, exist_ok=True)
        reason = settled(job, policy)
        if reason is not None:
            return Report(job, "skipped", reason)
        return Report(job, "restored", outcome=restore(job, sidecar=policy.sidecar, progress=progress))
    except SlirError as error:
        return Report(job, "failed", _reason(job, error), argument=getattr(error, "argument", ""))
    except OSError as error:
        return Report(job, "failed", f"{job.output}: cannot be written ({error.strerror or error})")
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's own, of a GPU
            return Report(job, "failed", f"{job.image}: the memory is full. Use fewer workers, or crop the image.")
        reason = f"{job.image}: a bug in slir ({type(error).__name__}: {_line(error)})"
        return Report(job, "failed", reason, details=traceback.format_exc())


def settled(job: Job, policy: Policy) -> str | None:
    """Why there is nothing to do; None where there is. FileError for an output that is in the way."""
    there = [path for path in job.outputs if path.exists()]
    if not there or (policy.skip_existing and job.output not in there):
        return None
    if not policy.skip_existing:
        if policy.force:
            return None
        remedy = "Pass --force to replace it, --skip-existing to keep it, or choose another name."
        raise FileError(there[0], "exists already", remedy)
    beside = sidecar_of(job.output)
    if not beside.exists() and len(there) == len(job.outputs):
        return "exists already"
    lost = "has no error map beside it" if job.error_map else "has no interval beside it"
    other = _other(job, beside) if beside.exists() else lost
    if other is None:
        return "is done already"
    if policy.force:
        return None
    raise FileError(job.output, other, "Pass --force to make it again.")


def _other(job: Job, beside: Path) -> str | None:
    """Why an output with a sidecar is not the one that the job would make; None where it is."""
    from slir.files import provenance

    try:
        return provenance.load(beside).differs(job)
    except FileError as error:
        return f"has a sidecar that cannot be read ({error})"


@dataclass(frozen=True)
class Planned:
    """What `run` would do with a job: restore it, with an estimate; skip it, or fail, with the reason."""

    job: Job
    status: Status
    reason: str = ""
    head: Head | None = None
    estimate: Estimate | None = None
    argument: str = ""


def plan(jobs: Sequence[Job], *, policy: Policy = Policy()) -> Iterator[Planned]:  # noqa: B008  (frozen)
    """Say what `run` would do with each job. Nothing is written; small pictures are restored to time it."""
    from slir.files.cost import Pace, calibrate, estimate

    paces: dict[tuple[bool, int], Pace] = {}  # of files in colour, and of others, by factor: no more differs in a batch
    if len(jobs) > 1:
        jobs = [_alone(job) for job in jobs]
    for job in jobs:
        try:
            reason = settled(job, policy)
            if reason is not None:
                yield Planned(job, "skipped", reason)
                continue
            head = replace(job, output=_within_what_exists(job.output)).check()
            own = job.at_size(head)
            kind = (head.colour, own.problem.factor)
            if kind not in paces:
                paces[kind] = calibrate(own, colour=head.colour)
            yield Planned(job, "restored", head=head, estimate=estimate(own, head, paces[kind]))
        except SlirError as error:
            yield Planned(job, "failed", _reason(job, error), argument=getattr(error, "argument", ""))


def _within_what_exists(output: Path) -> Path:
    """The name in the nearest folder that is there already: where rights are checked for folders yet to be made."""
    folder = next((parent for parent in output.parents if parent.exists()), output.parent)
    return folder / output.name


def _alone(job: Job) -> Job:
    """The job as one of many: on one thread, unless it says how many."""
    return job if job.threads is not None else replace(job, threads=1)


def workers_for(jobs: Sequence[Job]) -> int:
    """How many processes suit the machine: one a core, as far as memory goes; one where a GPU does the work."""
    if len(jobs) < 2 or any((job.device or "cpu") != "cpu" for job in jobs):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, len(jobs), _free_memory() // WORKER_MEMORY))


def _free_memory() -> int:
    """Bytes that programs can have, files that the system keeps at hand not counted; plenty where it does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 2**40


def _of_job(progress: BatchProgress | None, number: int) -> Progress | None:
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(number, done, total, what)


def _reason(job: Job, error: SlirError) -> str:
    """One line that names a file: the one that is at fault, where the error says it, else the image."""
    return _line(error) if isinstance(error, FileError) else f"{job.image}: {_line(error)}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
