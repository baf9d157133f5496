"""A file that is being written: windows in, and at the end the whole file or nothing."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from slir.errors import FileError
from slir.io.atomic import whole_file
from slir.io.picture import Head, Meta, Picture, check_growth
from slir.io.source import Source, bounds
from slir.io.waiting import Waiting

_ALL = slice(None)


class Sink(ABC):
    """Writes a file window by window. A context manager: the file appears, whole, when the block ends well.

    Planes come in order; the windows of a plane tile it, band after band from top to bottom, and from left to right
    within a band. A format is given blocks of `block` pixels in the same order. Windows that make no block yet wait on
    the disk, beside the file: of a plane, memory holds one block.
    """

    #: (rows, columns) that the format takes at a time; fewer at the right and at the bottom of a plane.
    block: tuple[int, int]
    #: Opens a file of the format, as is done with the new file before it takes its place; None leaves that out.
    reopen: Callable[[Path], Source] | None = None

    def __init__(self, path: Path, head: Head):
        self.path, self.head = path, head
        self.block = (1, head.size[1])
        self._stack = contextlib.ExitStack()
        self._plane = 0  # the next one to come
        self._done = 0  # rows of it that the format has been given
        self._held = 0  # rows below them that wait
        self._left = 0  # the next columns of the band below these
        self._height = 0  # rows of that band

    def write(self, picture: Picture, *, plane: int = 0, rows: slice = _ALL, cols: slice = _ALL) -> None:
        """Write a window. Its picture has the dtype and the layout of the file; metadata are those of the file."""
        head = self.head
        down, across = bounds("rows", rows, head.size[0]), bounds("cols", cols, head.size[1])
        found = (picture.size, picture.pixels.dtype, picture.layout)
        wanted = ((len(down), len(across)), head.dtype, head.layout)
        if found != wanted:
            raise ValueError(f"a window of {wanted} cannot be filled by a picture of {found}")
        top, height = self._done + self._held, self._height if self._left else len(down)
        if (plane, down.start, across.start, len(down)) != (self._plane, top, self._left, height):
            raise ValueError(f"window {plane}, {rows}, {cols} is out of turn: plane {self._plane}, row {top} is due")
        pixels = picture.interleaved()
        if len(across) == head.size[1] and not self._held:  # then all but the last rows need not wait
            given = self._hand_on(height, lambda top, left, h, w: pixels[top : top + h, left : left + w])
            pixels, height = pixels[given:], height - given
        if height:
            self._wait(pixels, across)

    def _wait(self, pixels: np.ndarray, across: range) -> None:
        """Put a window aside; hand on the blocks that its band completes, once it is the last one of the band."""
        self._waiting.put(self._held, across.start, pixels)
        self._height, self._left = len(pixels), across.stop % self.head.size[1]
        if self._left:
            return
        self._held += self._height
        given = self._hand_on(self._held, self._waiting.get)
        self._held -= given
        self._waiting.drop(given, self._held)

    def _hand_on(self, rows: int, get: Callable[[int, int, int, int], np.ndarray]) -> int:
        """Give the format the blocks that the next `rows` rows complete; the number of rows that these take.

        get : (top, left, height, width) -> pixels, counted from the first of the rows.
        """
        (height, width), (down, across) = self.head.size, self.block
        last = self._done + rows == height
        given = rows if last else rows - rows % down
        for top in range(0, given, down):
            for left in range(0, width, across):
                pixels = get(top, left, min(down, given - top), min(across, width - left))
                self._put(self._plane, self._done + top, left, pixels)
        self._plane, self._done = (self._plane + 1, 0) if last else (self._plane, self._done + given)
        return given

    @abstractmethod
    def _start(self, temporary: Path) -> None:
        """Open the temporary file."""

    @abstractmethod
    def _put(self, plane: int, top: int, left: int, pixels: np.ndarray) -> None:
        """Take (h, w, C) pixels of a block."""

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

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the leading axes, in the order in which the file has them."""
        return self.head.shape

    def _check(self, temporary: Path) -> None:
        """Raise FileError unless the new file says that it holds what was written. No pixel is read."""
        if self.reopen is None:
            return
        remedy = "Choose another format, and report this as a bug in slir."
        try:
            with self.reopen(temporary) as source:
                found = _words(source.head, source.shape)
        except FileError as error:
            reason = f"was not written, since the new file cannot be read ({error.parts[1]})"
            raise FileError(self.path, reason, "Check the disk." if _of_disk(error) else remedy) from error
        wanted = _words(self.head, self.shape)
        if found != wanted:
            reason = f"was not written, since the new file would hold {found} instead of {wanted}"
            raise FileError(self.path, reason, remedy)

    def __enter__(self) -> Self:
        temporary = self._temporary = self._stack.enter_context(self._place())
        with self._stack:
            self._stack.callback(self._abandon)
            self._waiting = Waiting(temporary.parent, self.head.size[1], self.head.channels, self.head.dtype)
            self._stack.callback(self._waiting.close)
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
                raise ValueError(f"{self.path}: row {self._done + self._held} of plane {self._plane} was never written")
            self._finish()
            self._check(self._temporary)


def _of_disk(error: BaseException | None) -> bool:
    """Whether an error of the system is behind this one."""
    while error is not None and not (isinstance(error, OSError) and error.errno):
        error = error.__cause__
    return error is not None


def _words(head: Head, shape: tuple[int, ...]) -> str:
    """What must not be lost, in words. Some formats drop axes of length one; WebP drops an alpha that hides nothing."""
    long = " × ".join(str(side) for side in shape if side > 1)
    planes = f"{long} planes" if long else "one plane"
    return f"{planes} of {head.size[1]} × {head.size[0]} {'RGB' if head.colour else 'grey'} pixels of type {head.dtype}"


class WholeSink(Sink):
    """For formats that are encoded in one go: keeps the picture until it is whole."""

    def __init__(self, path: Path, head: Head, encode: Callable[[BinaryIO, np.ndarray, Meta], None]):
        super().__init__(path, head)
        self._encode = encode
        self.block = head.size

    def _start(self, temporary: Path) -> None:
        self._stream = open(temporary, "wb")  # noqa: SIM115  (closed by _finish or _abandon)

    def _put(self, plane: int, top: int, left: int, pixels: np.ndarray) -> None:
        self._encode(self._stream, pixels, self.head.meta)

    def _finish(self) -> None:
        self._stream.close()

    def _check(self, temporary: Path) -> None:
        try:
            check_growth(self.head, temporary.stat().st_size)
        except ValueError:  # slir itself does not decode so much at once, but others do
            return
        super()._check(temporary)
