"""Crews: whoever carries training crops through the stages, in one process or in many (`slir.cluster.fitting`).

All that is learnt from the crops are answers about each, and sums over them. A crew carries the crops, answers, and
adds up; what is learnt from that, and every random draw, is in one place (`slir.learning`). A crop is worked on by one
thread, and sums are added in an order that the crops alone decide, so that results are the same to the last bit,
whoever does the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import torch

from slir.compute import chunks, one_thread, side_by_side
from slir.crops import Case, Crop, begun
from slir.weights.cell_ridge import Sums

SHARE = 4
"""Crops that stay together. They are of one fold."""

FAN = 4
"""Sums that are added up together."""

T = TypeVar("T")


class Crew(ABC):
    """Cases, and whoever carries them.

    steps, questions: functions of a case that change nothing. Their arguments are the same for all cases; `each`, one a
    case, and `folds`, one a fold, come before them.
    size: how many cases. folds: how many of these are left out in turn.
    """

    size: int
    folds: int

    @abstractmethod
    def move(self, step: Callable[..., Case], *args: Any, folds: Sequence[Any] | None = None) -> None:
        """Every case becomes step(case, *args)."""

    @abstractmethod
    def ask(self, question: Callable[..., T], *args: Any, each: Sequence[Any] | None = None) -> list[T]:
        """question(case, *args) of every case, in the order in which they were drawn."""

    @abstractmethod
    def total(self, count: Callable[..., Sums], *args: Any) -> Sums:
        """count(cases, *args) of shares of the cases of one fold, added up: the sums of all folds."""


class LocalCrew(Crew):
    """One process: as many cases at a time as torch has threads."""

    def __init__(self, cases: Sequence[Case], device: torch.device):
        self.cases, self.device = list(cases), device
        self.size, self.folds = len(cases), max(case.fold for case in cases) + 1
        # Operators of somebody else's making may not bear two threads.
        self._together = all(case.state.operator.shareable for case in self.cases)

    @classmethod
    def of(cls, crops: Sequence[Crop], device: torch.device) -> LocalCrew:
        """From crops that were drawn."""
        together = all(crop.operator.shareable for crop in crops)
        return cls(list(_spread(lambda crop: begun(crop, device), crops, device, together=together)), device)

    def move(self, step: Callable[..., Case], *args: Any, folds: Sequence[Any] | None = None) -> None:
        def move(number: int) -> None:
            case = self.cases[number]
            own = () if folds is None else (folds[case.fold],)
            self.cases[number] = step(case, *own, *args)  # at once: what it was is not kept until all have moved

        for _ in self._each(move, range(len(self.cases))):
            pass

    def ask(self, question: Callable[..., T], *args: Any, each: Sequence[Any] | None = None) -> list[T]:
        def answer(number: int) -> T:
            own = () if each is None else (each[number],)
            return question(self.cases[number], *own, *args)

        return list(self._each(answer, range(len(self.cases))))

    def total(self, count: Callable[..., Sums], *args: Any) -> Sums:
        def counted(share: list[int]) -> Sums:
            return count([self.cases[number] for number in share], *args)

        folds = dealt([case.fold for case in self.cases])
        shares = [share for fold in folds for share in fold]
        # A few at a time: sums are large.
        parts = (part for few in chunks(len(shares), FAN) for part in self._each(counted, shares[few]))
        return Sums.side_by_side([added(parts, len(fold), _sum) for fold in folds])

    def _each(self, work: Callable[[Any], T], pieces: Sequence[Any]) -> Iterator[T]:
        return _spread(work, pieces, self.device, together=self._together)


def _spread(work: Callable[[Any], T], pieces: Sequence[Any], device: torch.device, *, together: bool) -> Iterator[T]:
    """work(piece) for each piece, by one thread each, which knows of the context in which it was asked for."""
    context = copy_context()

    def alone(piece: Any) -> T:
        with torch.no_grad(), one_thread():
            return work(piece)

    def informed(piece: Any) -> T:
        return context.copy().run(alone, piece)

    return side_by_side(informed, pieces, device) if together else map(informed, pieces)


def dealt(folds: Sequence[int]) -> list[list[list[int]]]:
    """The numbers of the cases of each fold, in shares: from the fold of each case."""
    own: list[list[int]] = [[] for _ in range(max(folds) + 1)]
    for number, fold in enumerate(folds):
        own[fold].append(number)
    return [[cases[first : first + SHARE] for first in range(0, len(cases), SHARE)] for cases in own]


def added(parts: Iterator[T], count: int, add: Callable[[Iterator[T]], T]) -> T:
    """The sum of `count` parts, FAN at a time: in the same order whoever adds, and few are held at a time."""
    if count == 1:
        return next(parts)
    few = 1
    while few * FAN < count:
        few *= FAN
    return add(added(parts, min(few, count - first), add) for first in range(0, count, few))


def _sum(parts: Iterator[Sums]) -> Sums:
    total = next(parts)
    for part in parts:
        total += part
    return total
