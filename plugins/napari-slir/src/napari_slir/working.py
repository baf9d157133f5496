"""Work in another thread, which says how far it is and can be stopped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from napari.qt.threading import FunctionWorker
from qtpy.QtCore import QObject, Signal

from slir.errors import SlirError, SlirWarning


@dataclass(frozen=True)
class Outcome:
    """value: what the work returned. refused: or why it did not, with the remedy. doubts: slir's warnings."""

    value: Any = None
    refused: str = ""
    doubts: tuple[str, ...] = ()


class Stopped(Exception):
    """Raised inside of the work once somebody asked it to quit."""


class Bell(QObject):
    """rung: (done, total). A QRunnable, as napari's workers are, has no signals itself."""

    rung = Signal(int, int)


class Work(FunctionWorker):
    """function(*args, report=report), with report(done, total) to be called often; returns an Outcome.

    `quit` ends the work at the next such call, and then nothing is returned.
    """

    def __init__(self, function: Callable[..., Any], *args: Any, **options: Any):
        super().__init__(partial(_outcome, function, report=self._report), *args, **options)
        self.bell = Bell()

    def _report(self, done: int, total: int) -> None:
        if self.abort_requested:
            raise Stopped
        self.bell.rung.emit(done, total)


def _outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Outcome:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SlirWarning)
            value = function(*args, **options)
    except Stopped:
        return Outcome()
    except SlirError as error:
        return Outcome(refused=str(error))
    for own in caught:
        if not issubclass(own.category, SlirWarning):  # somebody else's, for whoever listens
            warnings.warn_explicit(own.message, own.category, own.filename, own.lineno)
    doubts = (str(own.message) for own in caught if issubclass(own.category, SlirWarning))
    return Outcome(value, doubts=tuple(dict.fromkeys(doubts)))
