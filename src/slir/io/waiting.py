"""Rows that wait on the disk until they can be written: full rows are long, and memory must not grow with them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO

import numpy as np


class Waiting:
    """Rows of `width` pixels of several channels, taken in by windows and given out by windows.

    They lie in a file without a name in `folder`, which vanishes with the process, however it ends. The file is made
    when it is first needed; space that was given up is used again.
    """

    def __init__(self, folder: Path, width: int, channels: int, dtype: np.dtype):
        self._folder, self._width, self._channels, self._dtype = folder, width, channels, dtype
        self._stream: IO[bytes] | None = None

    def put(self, top: int, left: int, pixels: np.ndarray) -> None:
        """Keep (h, w, C) pixels; `top` and `left` count from the first row that waits."""
        if self._stream is None:
            self._stream = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (closed by close)
        for number, row in enumerate(pixels, start=top):
            self._seek(self._stream, number, left)
            self._stream.write(np.ascontiguousarray(row).data)

    def get(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """(height, width, C) pixels that were put."""
        if width == self._width:
            return self._read(top, left, height * width).reshape(height, width, self._channels)
        pixels = np.empty((height, width, self._channels), self._dtype)
        for number in range(height):
            pixels[number] = self._read(top + number, left, width)
        return pixels

    def drop(self, count: int, kept: int) -> None:
        """Give up the first `count` rows; the `kept` rows below them are then the first."""
        for number in range(kept):
            self.put(number, 0, self.get(count + number, 0, 1, self._width))

    def close(self) -> None:
        """Give up all."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _read(self, row: int, left: int, count: int) -> np.ndarray:
        """(count, C) pixels that follow each other."""
        assert self._stream is not None  # nobody reads what was not put
        size = count * self._channels * self._dtype.itemsize
        self._seek(self._stream, row, left)
        data = self._stream.read(size)
        if len(data) < size:
            raise OSError("pixels that were put aside on the disk are gone")
        return np.frombuffer(data, self._dtype).reshape(count, self._channels)

    def _seek(self, stream: IO[bytes], row: int, left: int) -> None:
        stream.seek((row * self._width + left) * self._channels * self._dtype.itemsize)
