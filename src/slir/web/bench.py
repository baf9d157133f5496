"""Jobs: they wait in a queue, are worked on, and are kept for a while. Every job ends in a result or in words."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slir.jobs import Job
from slir.staging import sidecar_of
from slir.web import work
from slir.web.crew import Hand, Refused, Stopped, machine_memory
from slir.web.problems import Names, Problem, missing
from slir.web.settings import Settings
from slir.web.store import Upload

FINAL = ("done", "failed", "cancelled")
_ENDINGS = {"denoise": "denoised", "deblur": "deblurred", "upsample": "enlarged", "inpaint": "repaired"}


@dataclass(eq=False)
class Run:
    """One job of a client's, and what has become of it.

    asked : the settings as the client gave them. stage, stages : how many are finished, of how many.
    preview : the newest stage that there is a picture of; 0 where there is none.
    version : counts changes, so that those who listen know whether they have heard.
    """

    id: str
    owner: str
    upload: Upload
    job: Job
    folder: Path
    asked: dict[str, Any]
    trusted: bool = True
    state: str = "queued"
    stage: int = 0
    stages: int = 0
    preview: int = 0
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    stop: bool = False
    created: float = field(default_factory=time.time)
    begun: float | None = None
    ended: float | None = None
    used: float = field(default_factory=time.monotonic)
    version: int = 0
    listeners: set[asyncio.Event] = field(default_factory=set)

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def view_path(self) -> Path:
        return self.folder / "view.png"

    @property
    def large_path(self) -> Path:
        return self.folder / "large.png"

    @property
    def sidecar(self) -> Path:
        return sidecar_of(self.job.output)

    @property
    def result_name(self) -> str:
        """ "night.png" -> "night-denoised.png"."""
        name = Path(self.upload.name)
        return f"{name.stem}-{_ENDINGS[self.job.task]}{name.suffix}"

    @property
    def names(self) -> Names:
        called = {self.job.image: self.upload.name, self.job.output: self.result_name}
        return Names(called | ({self.job.mask: "mask.png"} if isinstance(self.job.mask, Path) else {}))

    @property
    def seconds(self) -> float | None:
        if self.begun is None:
            return None
        return round((time.monotonic() if self.ended is None else self.ended) - self.begun, 3)

    def told(self, position: int) -> dict[str, Any]:
        """The job as clients see it."""
        optional = {"result": self.result, "problem": self.problem}
        return {
            "job": self.id,
            "file": self.upload.id,
            "name": self.upload.name,
            "task": self.job.task,
            "state": self.state,
            "position": position,
            "stage": self.stage,
            "stages": self.stages,
            "message": self._message(position),
            "seconds": self.seconds,
            "created": self.created,
            "settings": self.asked,
        } | {name: value for name, value in optional.items() if value is not None}

    def _message(self, position: int) -> str:
        if self.state == "queued":
            return f"waiting, {position - 1} before it" if position > 1 else "waiting"
        if self.state == "running":
            stage = min(self.stage + 1, self.stages)
            return f"stage {stage} of {self.stages}" if self.stages else "beginning"
        return {"done": "done", "cancelled": "cancelled"}.get(self.state, (self.problem or {}).get("title", "failed"))


class Bench:
    """The queue, those who work on it, and what they have made.

    Methods may be called from any thread. Listeners are woken in the loop that `open` was called from.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        memory = settings.memory
        if memory is None and (machine := machine_memory()) is not None:
            memory = machine * 3 // 4
        self._hands = [Hand(work.serve_restorer, memory) for _ in range(settings.workers)]
        self._runs: dict[str, Run] = {}
        self._queue: deque[Run] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, args=(hand,), daemon=True) for hand in self._hands]
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Start to work."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop at once, whatever is being worked on."""
        with self._change:
            self._closed = True
            for run in self._runs.values():
                run.stop = True
            self._change.notify_all()
        for hand in self._hands:
            hand.end()
        for thread in self._threads:
            thread.join(timeout=5)
        for hand in self._hands:
            hand.kill()

    # --- what clients ask for ---

    def submit(self, run: Run) -> None:
        """Put a job into the queue. Raises a problem where it, or the client, has too many."""
        with self._change:
            own = sum(not other.final for other in self._runs.values() if other.owner == run.owner)
            if own >= self.settings.per_client:
                detail = f"{own} jobs of yours wait or run; a client may have {self.settings.per_client}."
                raise _full("You have too many jobs", detail)
            if len(self._queue) >= self.settings.queue:
                raise _full("The server is busy", f"{len(self._queue)} jobs wait already.")
            run.folder.mkdir(mode=0o700)
            self._runs[run.id] = run
            self._queue.append(run)
            self._change.notify()
        self.tidy()

    def get(self, id: str, owner: str) -> Run:
        run = self._runs.get(id)
        if run is None or not secrets.compare_digest(run.owner, owner):
            raise missing("job")
        run.used = time.monotonic()
        return run

    def of(self, owner: str) -> list[Run]:
        """A client's jobs, newest first."""
        return [run for run in reversed(list(self._runs.values())) if run.owner == owner]

    def uses(self, upload: Upload) -> bool:
        """Whether a job that is not done needs a picture."""
        return any(run.upload is upload and not run.final for run in list(self._runs.values()))

    def position(self, run: Run) -> int:
        """1 for the next in the queue; 0 for a job that does not wait."""
        with self._change:
            return self._queue.index(run) + 1 if run in self._queue else 0

    def told(self, run: Run) -> dict[str, Any]:
        return run.told(self.position(run))

    def cancel(self, run: Run) -> None:
        """Stop a job: at once where it waits, within two seconds where it runs."""
        with self._change:
            run.stop = True
            if run in self._queue:
                self._queue.remove(run)
                self._end(run, "cancelled")
        self._wake_waiting()

    def remove(self, run: Run) -> None:
        """Stop a job, and forget it."""
        self.cancel(run)
        with self._change:
            self._runs.pop(run.id, None)
            if run.final:  # else whoever works on it removes the folder
                shutil.rmtree(run.folder, ignore_errors=True)

    def tidy(self) -> None:
        """Forget finished jobs that nobody has looked at for long, and the oldest where there are too many."""
        now = time.monotonic()
        with self._change:
            ended = sorted((run for run in self._runs.values() if run.final), key=lambda run: run.used)
        for number, run in enumerate(ended):
            if number < len(ended) - self.settings.kept or now - run.used > self.settings.expiry:
                self.remove(run)

    async def wait(self, run: Run, version: int, seconds: float) -> None:
        """Until the job has changed since `version`, or so many seconds."""
        bell = asyncio.Event()
        run.listeners.add(bell)
        try:
            if run.version == version:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(bell.wait(), seconds)
        finally:
            run.listeners.discard(bell)

    # --- the work ---

    def _work(self, hand: Hand) -> None:
        """What a thread does: hand jobs to its process, one after the other."""
        with contextlib.suppress(Refused, Stopped):
            hand.ask("warm", self.settings.device, seconds=300, stopped=lambda: self._closed)
        while True:
            with self._change:
                while not self._queue and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                run = self._queue.popleft()
                run.state, run.begun = "running", time.monotonic()
                self._changed(run)
            self._wake_waiting()
            self._do(hand, run)

    def _do(self, hand: Hand, run: Run) -> None:
        state, problem, result = "failed", None, None
        try:
            result = hand.ask(
                "restore",
                run.job,
                run.folder,
                run.upload.view,
                run.trusted,
                tell=lambda message: self._hear(run, message),
                stopped=lambda: run.stop or self._closed,
                seconds=self.settings.seconds,
            )
            state = "done"
        except Stopped:
            state = "cancelled"
        except Refused as refusal:
            fields = {name: run.names.told(value) for name, value in refusal.problem.items() if isinstance(value, str)}
            problem = {name: value for name, value in fields.items() if value}
        except Exception as error:  # a bug of ours must not end the thread: nobody would work any more
            problem = {"title": "A bug in slir", "detail": f"{type(error).__name__}: {error}"}
        with self._change:
            run.result, run.problem = result, problem
            self._end(run, state)
            if run.id not in self._runs:
                shutil.rmtree(run.folder, ignore_errors=True)

    def _hear(self, run: Run, message: tuple[Any, ...]) -> None:
        kind, *values = message
        if kind == "progress":
            run.stage, run.stages = values
        elif kind == "preview":
            (run.preview,) = values
        self._changed(run)

    def _end(self, run: Run, state: str) -> None:
        run.state, run.ended = state, time.monotonic()
        run.begun = run.ended if run.begun is None else run.begun
        run.used = run.ended
        if state != "done":
            shutil.rmtree(run.folder, ignore_errors=True)
        else:
            run.stage = run.stages
            for path in run.folder.glob("preview-*.png"):  # the result is there
                if path != work.preview_of(run.folder, run.preview):
                    path.unlink(missing_ok=True)
        self._changed(run)

    def _wake_waiting(self) -> None:
        """Those who wait have moved up."""
        for run in list(self._queue):
            self._changed(run)

    def _changed(self, run: Run) -> None:
        run.version += 1
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_ring, run)


def _ring(run: Run) -> None:
    for bell in list(run.listeners):
        bell.set()


def _full(title: str, detail: str) -> Problem:
    return Problem(429, title, detail, remedy="Wait until one of them is done.", headers={"Retry-After": "5"})
