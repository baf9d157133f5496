"""Processes that share the jobs of a batch. One that dies costs the file that it had in hand, and is replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from slir.files.batch import BatchProgress, Policy, Report, Reports, attempt
from slir.files.jobs import Job


def spread(
    jobs: Sequence[Job],
    policy: Policy,
    workers: int,
    progress: BatchProgress | None,
    stopped: Callable[[], bool],
) -> Reports:
    """Reports in the order in which jobs end. Once `stopped`, jobs that were begun end, and none is begun."""
    pool = _Pool(policy, quiet=progress is None)
    due = deque(enumerate(jobs))
    try:
        while (due and not stopped()) or pool.busy:
            while due and not stopped() and len(pool.busy) < workers:
                pool.begin(*due.popleft())
            for number, message in pool.messages():
                if isinstance(message, Report):
                    yield message
                elif progress:
                    progress(number, *message)
    finally:
        pool.close()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    number: int = -1
    job: Job | None = None


@dataclass
class _Pool:
    """Workers that have a job, and those that wait for one."""

    policy: Policy
    quiet: bool
    busy: list[_Worker] = field(default_factory=list)
    idle: list[_Worker] = field(default_factory=list)

    def begin(self, number: int, job: Job) -> None:
        """Give the job to a worker: one that waits, unless it died of something else meanwhile, or a new one."""
        while True:
            worker = self.idle.pop() if self.idle else self._start()
            try:
                worker.connection.send((job, self.policy, self.quiet))
            except OSError:
                worker.connection.close()
                continue
            worker.number, worker.job = number, job
            self.busy.append(worker)
            return

    def _start(self) -> _Worker:
        # Spawned, not forked: a fork of a process whose libraries have threads may hang.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return _Worker(process, ours)

    def messages(self) -> Iterator[tuple[int, Any]]:
        """Wait until a worker has something to say, or is dead; then what each of them says."""
        ready = wait([worker.connection for worker in self.busy])
        for worker in [worker for worker in self.busy if worker.connection in ready]:
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                message = self._report_death(worker)
            if isinstance(message, Report):
                self.busy.remove(worker)
                if worker.process.is_alive():
                    self.idle.append(worker)
            yield worker.number, message

    def _report_death(self, worker: _Worker) -> Report:
        worker.process.join()
        worker.connection.close()
        code = worker.process.exitcode or 0
        how = f"ended with code {code}"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            how += ", which is what the system does when memory runs out" if -code == signal.SIGKILL else ""
        assert worker.job is not None  # only busy workers are listened to
        return Report(worker.job, "failed", f"{worker.job.image}: the process that restored it {how}")

    def close(self) -> None:
        """End all workers, at once where they have work in hand."""
        for worker in self.idle:
            with contextlib.suppress(OSError):  # it may be dead already
                worker.connection.send(None)
        for worker in self.busy:
            worker.process.kill()
        for worker in (*self.idle, *self.busy):
            worker.process.join()
            worker.connection.close()
        self.busy.clear()
        self.idle.clear()


def _serve(connection: Connection) -> None:
    """What a worker does: jobs, until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent sees to the workers
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent is gone: nobody waits for the rest
        while (message := connection.recv()) is not None:
            job, policy, quiet = message
            connection.send(attempt(job, policy, progress=None if quiet else _teller(connection)))


def _teller(connection: Connection) -> Callable[[int, int, str], None]:
    return lambda done, total, what: connection.send((done, total, what))


def _follow_parent() -> None:
    """End with the parent, also where that was killed: what is half done would be done twice by the next run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
