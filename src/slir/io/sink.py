"""A file that is being written: windows in, and at the end the whole file or nothing."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from slir.io.atomic import whole_file
from slir.io.picture import Head, Meta, Picture
from slir.io.source import bounds

_ALL = slice(None)


class Sink(ABC):
    """Writes a file window by window. A context manager: the file appears, whole, when the block ends well.

    Planes come in order; the windows of a plane tile it, band after band from top to bottom, and from left to right
    within a band. A format writes blocks of `step` full rows: what is held are a band and fewer than `step` rows.
    """

    #: Rows that the format takes at a time.
    step = 1

    def __init__(self, path: Path, head: Head):
        self.path, self.head = path, head
        self._stack = contextlib.ExitStack()
        self._plane = self._top = 0  # the next rows to come
        self._left = 0  # the next columns of the band that is being put together
        self._band: np.ndarray | None = None
        self._waiting: list[np.ndarray] = []  # rows that do not make a block yet
        self._done = 0  # rows of this plane that the format has been given

    def write(self, picture: Picture, *, plane: int = 0, rows: slice = _ALL, cols: slice = _ALL) -> None:
        """Write a window. Its picture has the dtype and the layout of the file; metadata are those of the file."""
        head = self.head
        down, across = bounds("rows", rows, head.size[0]), bounds("cols", cols, head.size[1])
        found = (picture.size, picture.pixels.dtype, picture.layout)
        wanted = ((len(down), len(across)), head.dtype, head.layout)
        if found != wanted:
            raise ValueError(f"a window of {wanted} cannot be filled by a picture of {found}")
        height = len(down) if self._band is None else len(self._band)
        if (plane, down.start, across.start, len(down)) != (self._plane, self._top, self._left, height):
            raise ValueError(
                f"window {plane}, {rows}, {cols} is out of turn: plane {self._plane}, row {self._top} is due"
            )
        planes = picture.interleaved()
        if len(across) < head.size[1]:
            if self._band is None:
                self._band = np.empty((height, head.size[1], head.channels), head.dtype)
            self._band[:, across.start : across.stop] = planes
            self._left = across.stop % head.size[1]
            if self._left:
                return
            planes, self._band = self._band, None
        self._advance(planes)

    def _advance(self, rows: np.ndarray) -> None:
        """Take full rows; hand on as many blocks as they complete."""
        self._top += len(rows)
        self._waiting.append(rows)
        last = self._top == self.head.size[0]
        while self._waiting and (last or sum(map(len, self._waiting)) >= self.step):
            block = self._take(self.step)
            self._put(self._plane, self._done, block)
            self._done += len(block)
        if last:
            self._plane, self._top, self._done = self._plane + 1, 0, 0

    def _take(self, count: int) -> np.ndarray:
        """The first `count` waiting rows, or all where they are fewer."""
        parts = []
        while self._waiting and count:
            rows = self._waiting.pop(0)
            if len(rows) > count:
                self._waiting.insert(0, rows[count:])
            parts.append(rows[:count])
            count -= len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @abstractmethod
    def _start(self, temporary: Path) -> None:
        """Open the temporary file."""

    @abstractmethod
    def _put(self, plane: int, top: int, rows: np.ndarray) -> None:
        """Take (h, W, C) rows from `top` on: `step` of them, fewer at the end of the plane."""

    @abstractmethod
    def _finish(self) -> None:
        """Write what comes last, and close the temporary file."""

    def _abandon(self) -> None:
        """Close the temporary file, if it was opened; it is going to be removed."""
        stream = getattr(self, "_stream", None)
        if stream is not None:
            stream.close()

    def _place(self) -> contextlib.AbstractContextManager[Path]:
        """Where to write: a temporary place that becomes `path` in the end."""
        return whole_file(self.path)

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(self._place())
        with self._stack:
            self._stack.callback(self._abandon)
            self._start(temporary)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._stack:
            if self._plane < self.head.planes:
                raise ValueError(f"{self.path}: row {self._top} of plane {self._plane} was never written")
            self._finish()


class WholeSink(Sink):
    """For formats that are encoded in one go: keeps the picture until it is whole."""

    def __init__(self, path: Path, head: Head, encode: Callable[[BinaryIO, np.ndarray, Meta], None]):
        super().__init__(path, head)
        self._encode = encode
        self.step = head.size[0]

    def _start(self, temporary: Path) -> None:
        self._stream = open(temporary, "wb")  # noqa: SIM115  (closed by _finish or _abandon)

    def _put(self, plane: int, top: int, rows: np.ndarray) -> None:
        self._encode(self._stream, rows, self.head.meta)

    def _finish(self) -> None:
        self._stream.close()
