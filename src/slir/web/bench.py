"""Jobs: they wait in a queue, are worked on, and are kept for a while. Every job ends in a result or in words."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections import deque
from typing import Any

from slir.web import work
from slir.web.crew import Hand, Refused, Stopped, machine_memory
from slir.web.problems import Problem, missing
from slir.web.questions import Question, Questions
from slir.web.runs import Run
from slir.web.settings import Settings
from slir.web.store import Client, Item, Mask, held_in

PATIENCE = 30.0
"""Seconds that a question waits for its turn and its answer."""


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
        self._questions = Questions()
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
            self.check(run.owner)
            run.folder.mkdir(mode=0o700)
            self._runs[run.id] = run
            self._queue.append(run)
            self._change.notify_all()
        self.tidy()

    def check(self, owner: Client) -> None:
        """Raise a problem where there may be no further job of a client's."""
        with self._change:
            own = sum(not other.final for other in self._runs.values() if other.owner == owner)
            if own >= self.settings.per_client:
                detail = f"{own} of your jobs are waiting or running; the limit is {self.settings.per_client}."
                raise _full("You have too many jobs", detail)
            if len(self._queue) >= self.settings.queue:
                raise _full("The server is busy", f"{len(self._queue)} jobs are already waiting.")

    async def ask(self, question: Question) -> dict[str, Any]:
        """The answer of a process."""
        with self._change:
            if len(self._questions) >= self.settings.queue:
                raise _full("The server is busy", f"{len(self._questions)} questions are already waiting.")
            self._questions.add(question)
            self._change.notify_all()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(question.answer), PATIENCE)
        except TimeoutError:
            raise _full("The server is busy", "It is working on something else.") from None
        except Refused as refusal:
            raise Problem.of(refusal.problem, question.names) from None
        except Stopped:
            raise _full("The question was dropped", "A newer one came, or the server is about to end.") from None
        finally:
            with self._change:
                self._questions.remove(question)

    def get(self, id: str, owner: Client) -> Run:
        run = self._runs.get(id)
        if run is None or not owner.owns(run.owner):
            raise missing("job")
        run.used = time.monotonic()
        return run

    def of(self, owner: Client) -> list[Run]:
        """A client's jobs, newest first."""
        return [run for run in reversed(list(self._runs.values())) if run.owner == owner]

    def uses(self, item: Item) -> bool:
        """Whether a job that is not done needs what a client sent."""
        mask = item.path if isinstance(item, Mask) else None
        active = [run for run in list(self._runs.values()) if not run.final]
        return any(run.upload is item or (mask is not None and run.job.inputs.get("mask") == mask) for run in active)

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

    def finished(self) -> list[Run]:
        """Jobs that have results, those first that nobody has looked at for longest."""
        with self._change:
            return sorted((run for run in self._runs.values() if run.state == "done"), key=lambda run: run.used)

    def finished_bytes(self) -> int:
        """Bytes of all results."""
        return sum(held_in(run.folder) for run in self.finished())

    def forget_oldest(self) -> bool:
        """Forget the finished job that nobody has looked at for longest; false where there is none."""
        ended = self.finished()
        if ended:
            self.remove(ended[0])
        return bool(ended)

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
        asked = False  # a job goes before a second question in a row: nobody's questions keep others' jobs waiting
        while True:
            with self._change:
                while not self._closed:
                    question = None if asked and self._queue else self._questions.next(hand)
                    if question is not None or self._queue:
                        break
                    self._change.wait()
                if self._closed:
                    return
                asked = question is not None
                if question is None:
                    run = self._queue.popleft()
                    run.hand = hand
                    run.state, run.begun = "running", time.monotonic()
                    self._changed(run)
            if question is not None:
                self._reply(hand, question)
                continue
            self._wake_waiting()
            self._do(hand, run)

    def _reply(self, hand: Hand, question: Question) -> None:
        answer = question.answer
        if not answer.set_running_or_notify_cancel():
            return  # nobody waits any more
        try:
            how: dict[str, Any] = {"stopped": lambda: self._closed, "seconds": self.settings.seconds}
            answer.set_result(hand.ask(question.skill, *question.arguments, **how))
        except Exception as error:
            answer.set_exception(error)

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
            problem = {"title": "A bug in slir", "detail": type(error).__name__}
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
