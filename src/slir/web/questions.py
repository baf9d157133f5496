"""Questions: short work that a client waits for, done by the processes that restore, between two jobs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from slir.web.crew import Hand, Stopped
from slir.web.problems import Names
from slir.web.store import Client


@dataclass(frozen=True, eq=False)
class Question:
    """A short piece of work that its client waits for.

    skill, arguments : what a process is asked. names : of the files, for its messages. hand : the process that has to
    answer; None for any. answer : the reply, when it comes.
    """

    owner: Client
    skill: str
    arguments: tuple[Any, ...]
    names: Names
    hand: Hand | None = None
    answer: Future[dict[str, Any]] = field(default_factory=Future)


class Questions:
    """The questions that wait. Of a client's questions of one skill, the newest alone waits.

    Callers hold the lock of the queue of jobs.
    """

    def __init__(self) -> None:
        self._waiting: list[Question] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, question: Question) -> None:
        self._drop(lambda other: (other.owner, other.skill) == (question.owner, question.skill))
        self._waiting.append(question)

    def remove(self, question: Question) -> None:
        """Forget a question that nobody waits for any more."""
        self._drop(lambda other: other is question)

    def next(self, hand: Hand) -> Question | None:
        """Take the oldest question that this process may answer."""
        found = next((question for question in self._waiting if question.hand is None or question.hand is hand), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def _drop(self, which: Callable[[Question], bool]) -> None:
        """Whoever waits for the answer of a dropped question is told that there is none."""
        dropped = [question for question in self._waiting if which(question)]
        self._waiting = [question for question in self._waiting if question not in dropped]
        for question in dropped:
            if question.answer.set_running_or_notify_cancel():
                question.answer.set_exception(Stopped())
