"""A file that is written finer than it is to be: windows in, made smaller on their way to a sink."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from slir.io.picture import Picture
from slir.io.sink import Sink
from slir.io.source import bounds
from slir.io.waiting import Waiting
from slir.preprocessing.resampling import Limits, Reduction, Size, round_to_type

_ALL = slice(None)
SIDE = 2048
"""Columns of the result that are made at a time."""
ROWS = 256
"""Rows of the result that are made at a time."""


class ReducedSink:
    """Takes windows of planes of `size`, in the order of `Sink`, and writes them smaller into `sink`.

    A context manager, as the sink is. Full rows wait on the disk until all is there that new rows are made of.
    limits: what integers are clipped to. errors: whether the pixels are sizes of errors.
    """

    def __init__(self, sink: Sink, reduction: Reduction, size: Size, *, limits: Limits = None, errors: bool = False):
        self.sink, self.reduction, self.size, self.limits, self.errors = sink, reduction, size, limits, errors
        self._stack = contextlib.ExitStack()
        self._first, self._held, self._made = 0, 0, 0  # the first row that waits, how many, and new ones that were made

    def __enter__(self) -> Self:
        self._stack.enter_context(self.sink)
        head = self.sink.head
        self._waiting = Waiting(self.sink.path.parent, self.size[1], head.channels, head.dtype)
        self._stack.callback(self._waiting.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, picture: Picture, *, plane: int = 0, rows: slice = _ALL, cols: slice = _ALL) -> None:
        """Write a window, as `Sink.write` does."""
        down, across = bounds("rows", rows, self.size[0]), bounds("cols", cols, self.size[1])
        pixels = picture.interleaved()
        at_once = len(across) == self.size[1] and not self._held  # then only the last rows have to wait
        if at_once:
            whole, self._first = pixels, down.start
            self._make(plane, down.stop, lambda top, left, h, w: whole[top : top + h, left : left + w])
            pixels = pixels[self._first - down.start :]
        if len(pixels):
            self._waiting.put(max(0, down.start - self._first), across.start, pixels)
        if across.stop < self.size[1]:
            return
        first = self._first
        if not at_once:
            self._make(plane, down.stop, self._waiting.get)
        self._held = down.stop - self._first
        self._waiting.drop(self._first - first, self._held)
        if down.stop == self.size[0]:
            self._first, self._held, self._made = 0, 0, 0

    def _make(self, plane: int, there: int, get: Callable[[int, int, int, int], np.ndarray]) -> None:
        """Write the new rows that old ones up to `there` suffice for. get: windows, rows counted from `_first`."""
        (height, width), (tall, wide) = self.size, self.sink.head.size
        start = self._first
        while self._made < tall:
            new = range(self._made, min(tall, self._made + ROWS))
            while len(new) and self.reduction.source_range(new, height).stop > there:
                new = new[:-1]
            if not len(new):
                break
            old = self.reduction.source_range(new, height)
            for left in range(0, wide, SIDE):
                columns = range(left, min(wide, left + SIDE))
                seen = self.reduction.source_range(columns, width)
                pixels = get(old.start - start, seen.start, len(old), len(seen))
                self._put(plane, pixels, (new, old, height), (columns, seen, width))
            self._made = new.stop
        rest = range(self._made, tall)
        self._first = self.reduction.source_range(rest, height).start if len(rest) else there

    def _put(
        self, plane: int, pixels: np.ndarray, rows: tuple[range, range, int], cols: tuple[range, range, int]
    ) -> None:
        made = (self.reduction.errors if self.errors else self.reduction.window)(pixels, rows, cols)
        own = round_to_type(made, pixels, self.limits)
        head, channels = self.sink.head, 3 if self.sink.head.colour else 1
        colours = own[..., :channels] if head.colour else own[..., 0]
        alpha = own[..., -1] if head.has_alpha else None
        window = {"rows": slice(rows[0].start, rows[0].stop), "cols": slice(cols[0].start, cols[0].stop)}
        self.sink.write(Picture(colours, -1 if head.colour else None, alpha), plane=plane, **window)
