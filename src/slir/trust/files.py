"""Error maps as files: a TIFF of all planes, and a picture of the first for people, whole or window by window."""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slir import io
from slir.errors import SlirWarning
from slir.outcome import UNTOUCHED

LARGEST = 2**22
"""Pixels of a picture of what comes by windows: no screen shows more, and it is held in memory."""


@dataclass
class ErrorMaps:
    """Writes the error maps of a file's planes as they come.

    tiff, picture: where to. head: of the restored file, for its size, colours and planes.
    Used as a context: what is written is there in the end, unless no plane had a map.
    """

    tiff: Path
    picture: Path
    head: io.Head
    _opened: ExitStack = field(default_factory=ExitStack)
    _sink: io.Sink | None = None
    _small: Small | None = None
    _warned: set[tuple[int, str]] = field(default_factory=set)

    def __enter__(self) -> ErrorMaps:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.__exit__(*raised)  # type: ignore[arg-type]

    def take(
        self, plane: int, error: np.ndarray | None, reason: str, window: tuple[slice, slice] | None = None
    ) -> None:
        """One plane's, or of a window of it; these come row by row, as `io.Sink` takes them. reason: why it is not
        calibrated, or why there is none; empty where it is."""
        self._warn(plane, error is not None, reason)
        if error is None:
            return
        axis = -1 if self.head.colour else None
        if self._sink is None:
            head = io.Head(
                self.head.size, np.dtype(np.float32), axis is not None, False, self.head.axes, self.head.shape
            )
            self._sink = self._opened.enter_context(io.create(self.tiff, head))
        rows, cols = (slice(None), slice(None)) if window is None else window
        self._sink.write(io.Picture(error.astype(np.float32, copy=False), axis), plane=plane, rows=rows, cols=cols)
        if plane > 0:
            return
        if window is None:
            self._draw(error)
            return
        self._small = self._small or Small(self.head.size)
        self._small.add(error, *window)
        if self._small.whole:
            self._draw(self._small.mean())

    def _draw(self, error: np.ndarray) -> None:
        from slir.trust.pictures import error_picture

        shown = error_picture(np.nan_to_num(error))  # NaN where the image has no pixels
        io.write(self.picture, io.Picture(shown, -1, data_range=255.0))

    def _warn(self, plane: int, there: bool, reason: str) -> None:
        """Once for each plane."""
        if not reason or (plane, reason) in self._warned:
            return
        self._warned.add((plane, reason))
        if not there:
            warnings.warn(f"No error map was made: {reason}.", SlirWarning, stacklevel=3)
        elif reason != UNTOUCHED or self.head.planes == 1:  # a blank frame of a stack is no matter
            told = f"The error map is not calibrated: {reason}. It tells better from worse pixels, but not how far off"
            warnings.warn(f"{told} they are.", SlirWarning, stacklevel=3)


class Small:
    """A large map made small as its windows come: root mean squares of squares of `step` pixels a side."""

    def __init__(self, size: tuple[int, int]):
        self.step = math.ceil(math.sqrt(size[0] * size[1] / LARGEST))
        self.squares, self.counts = np.zeros((2, *(-(-side // self.step) for side in size)))
        self.left = size[0] * size[1]

    @property
    def whole(self) -> bool:
        return self.left == 0

    def add(self, error: np.ndarray, rows: slice, cols: slice) -> None:
        """A window's: (h, w) or (h, w, C), NaN where there is nothing."""
        squares = np.square(error, dtype=np.float64)
        squares = squares.mean(-1) if squares.ndim == 3 else squares
        places = [np.arange(axis.start, axis.stop) // self.step for axis in (rows, cols)]
        firsts = [np.flatnonzero(np.diff(own, prepend=-1)) for own in places]
        here = np.ix_(*(own[first] for own, first in zip(places, firsts)))
        for total, values in ((self.squares, np.nan_to_num(squares)), (self.counts, np.isfinite(squares))):
            total[here] += np.add.reduceat(np.add.reduceat(values, firsts[0], 0, dtype=np.float64), firsts[1], 1)
        self.left -= squares.size

    def mean(self) -> np.ndarray:
        """NaN where there was nothing."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.squares / self.counts)
