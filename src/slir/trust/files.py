"""Error maps and intervals as files: TIFFs of all planes, and a picture of the first for people."""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slir import io
from slir.errors import SlirWarning
from slir.files.atomic_output import INTERVALS
from slir.preprocessing.resampling import Reduction
from slir.result import UNTOUCHED, Uncertainty

LARGEST = 2**22
"""Pixels of a picture of what comes by windows: no screen shows more, and it is held in memory."""


@dataclass
class ErrorMaps:
    """Writes the error maps and intervals of a file's planes as they come.

    places: where to, by kind (`slir.files.atomic_output.maps_of`). large: the head of what is restored, for its size,
    colours, type and planes. head: of the output, smaller where a `reduction` is the last step.
    Used as a context: what is written is there in the end, unless no plane had any.
    """

    places: dict[str, Path]
    large: io.Head
    head: io.Head
    reduction: Reduction | None = None
    _opened: ExitStack = field(default_factory=ExitStack)
    _sinks: dict[str, io.Sink | io.ReducedSink] = field(default_factory=dict)
    _bounded: bool = False
    _small: Small | None = None
    _warned: set[tuple[int, str]] = field(default_factory=set)

    def __enter__(self) -> ErrorMaps:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.__exit__(*raised)  # type: ignore[arg-type]
        for kind in INTERVALS:
            if kind in self._sinks and not self._bounded:
                self.places[kind].unlink(missing_ok=True)

    def take(self, plane: int, uncertainty: Uncertainty, window: tuple[slice, slice] | None = None) -> None:
        """One plane's, or of a window of it; these come row by row, as `io.Sink` takes them."""
        error, reason = uncertainty.error, uncertainty.reason
        if self.reduction is not None and not reason:
            reason = "the result was reduced from a larger one"
        self._warn(plane, error is not None, reason)
        if error is None:
            return
        bounds = {"low.tif": uncertainty.low, "high.tif": uncertainty.high}
        self._bounded = self._bounded or uncertainty.low is not None
        for kind, values in {"error.tif": error, **bounds}.items():
            if kind in self.places:
                self._write(kind, np.full_like(error, np.nan) if values is None else values, plane, window)
        if plane > 0 or "error.png" not in self.places:
            return
        if window is None:
            if self.reduction is not None:
                error = self.reduction.array(error, self.head.size, errors=True)
            self._draw(error)
            return
        self._small = self._small or Small(self.large.size)
        self._small.add(error, *window)
        if self._small.whole:
            self._draw(self._small.mean())

    def _write(self, kind: str, values: np.ndarray, plane: int, window: tuple[slice, slice] | None) -> None:
        head, axis = self.head, -1 if self.head.colour else None
        # Beside a large offset 32-bit floats have no digits left for the width of an interval.
        wide = kind in INTERVALS and head.dtype.itemsize > 2 and head.dtype != np.float32
        dtype = np.dtype(np.float64 if wide else np.float32)
        if kind not in self._sinks:
            own = io.Head(head.size, dtype, axis is not None, False, head.axes, head.shape)
            sink: Any = io.create(self.places[kind], own)
            if self.reduction is not None:
                sink = io.ReducedSink(sink, self.reduction, self.large.size, errors=True)
            self._opened.enter_context(sink)
            self._sinks[kind] = sink
        rows, cols = (slice(None), slice(None)) if window is None else window
        self._sinks[kind].write(io.Picture(values.astype(dtype, copy=False), axis), plane=plane, rows=rows, cols=cols)

    def _draw(self, error: np.ndarray) -> None:
        from slir.trust.pictures import error_picture

        shown = error_picture(np.nan_to_num(error))  # NaN where the image has no pixels
        io.write(self.places["error.png"], io.Picture(shown, -1, data_range=255.0))

    def _warn(self, plane: int, there: bool, reason: str) -> None:
        """Once for each plane."""
        if not reason or (plane, reason) in self._warned:
            return
        self._warned.add((plane, reason))
        if reason == UNTOUCHED and self.head.planes > 1:  # a blank frame of a stack is no matter
            return
        if "low.tif" in self.places:
            warnings.warn(f"No interval was made: {reason}.", SlirWarning, stacklevel=3)
        if "error.tif" not in self.places:
            return
        if not there:
            warnings.warn(f"No error map was made: {reason}.", SlirWarning, stacklevel=3)
        else:
            use = "It ranks pixels, but the size of the errors is uncertain."
            warnings.warn(f"The error map is not calibrated: {reason}. {use}", SlirWarning, stacklevel=3)


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
