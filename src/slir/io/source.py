"""An open file: what it holds, and its pixels by windows."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from slir.errors import FileError, InputError, SlirError
from slir.io.picture import Head, Meta, Picture, check_growth, from_interleaved

_ALL = slice(None)


class Source(ABC):
    """An open file of one or more planes of one size, decoded as little as possible. A context manager.

    path : where it is.
    form : name of its format, as "TIFF".
    head : what the file says of its pixels. Its fields are attributes here too: `planes`, `axes`, `shape`, `size`,
        `colour`, `has_alpha`, `layout`, `dtype`, `data_range`, `meta`, `notes`, `large`.
    """

    path: Path
    form: str
    head: Head

    def read(self, plane: int = 0, rows: slice = _ALL, cols: slice = _ALL) -> Picture:
        """A window of one plane, with the metadata of the file. The slices have step 1.

        Raises FileError, with the reason and the remedy, where the pixels of the window are damaged.
        """
        if not 0 <= plane < self.planes:
            raise InputError("plane", f"be from 0 to {self.planes - 1}", plane, "Count planes from 0.")
        window = (bounds("rows", rows, self.size[0]), bounds("cols", cols, self.size[1]))
        with reasons(self.path, self.form):
            planes = self._read(plane, *window)
        return from_interleaved(planes, meta=self.meta, notes=self.notes, data_range=self.data_range)

    @abstractmethod
    def _read(self, plane: int, rows: range, cols: range) -> np.ndarray:
        """(h, w, C) pixels of a window, alpha last."""

    def close(self) -> None:  # noqa: B027  (most formats hold nothing open)
        """Let go of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def planes(self) -> int:
        return self.head.planes

    @property
    def axes(self) -> str:
        return self.head.axes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.head.shape

    @property
    def size(self) -> tuple[int, int]:
        return self.head.size

    @property
    def colour(self) -> bool:
        return self.head.colour

    @property
    def has_alpha(self) -> bool:
        return self.head.has_alpha

    @property
    def layout(self) -> str:
        return self.head.layout

    @property
    def dtype(self) -> np.dtype:
        return self.head.dtype

    @property
    def data_range(self) -> float | None:
        return self.head.data_range

    @property
    def meta(self) -> Meta:
        return self.head.meta

    @property
    def notes(self) -> tuple[str, ...]:
        return self.head.notes

    @property
    def large(self) -> bool:
        return self.head.large


class WholeSource(Source):
    """For formats that are decoded in one go, at the first window that is asked for.

    begin : the bytes of a file -> what it says of its pixels, and what decodes them to (H, W, C).
    """

    def __init__(self, path: Path, form: str, begin: Callable[[bytes], tuple[Head, Callable[[], np.ndarray]]]):
        self.path, self.form = path, form
        data = read_bytes(path)
        with reasons(path, form):
            self.head, self._decode = begin(data)
            check_growth(self.head, len(data))
        self._pixels: np.ndarray | None = None

    def _read(self, plane: int, rows: range, cols: range) -> np.ndarray:
        if self._pixels is None:
            pixels = self._decode()
            if (pixels.shape, pixels.dtype) != ((*self.size, self.head.channels), self.dtype):
                raise ValueError(f"has a header that declares {self.layout} {self.dtype}, but other pixels")
            self._pixels = pixels
        return self._pixels[rows.start : rows.stop, cols.start : cols.stop]


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The contents of a file, or their first bytes. Raises FileError where there are none."""
    try:
        if path.is_dir():
            raise FileError(path, "is a folder, not a file", "Name one file in it.")
        if path.exists() and not path.is_file():
            raise FileError(path, "is not a regular file", "Save the image to a file first.")
        with open(path, "rb") as stream:
            data = stream.read(most)
    except FileNotFoundError as error:
        raise FileError(path, "does not exist", "Check the name and the folder.") from error
    except PermissionError as error:
        raise FileError(path, "may not be read (permission denied)", "Change its rights.") from error
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be read ({error})", "Check the disk, or copy the file again.") from error
    except MemoryError as error:
        raise FileError(path, "does not fit into memory", "Use a machine with more.") from error
    if not data:
        raise FileError(path, "is empty", "Copy or download it again.")
    return data


def bounds(argument: str, window: slice, length: int) -> range:
    """The places that a slice means on an axis; never none."""
    places = range(length)[window]
    if places.step != 1 or not places:
        raise InputError(argument, f"be a slice of step 1 within {length}", window, "Pass slice(start, stop).")
    return places


@contextlib.contextmanager
def reasons(path: Path, form: str, *, others: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn what a decoder raises on a damaged file, which may be anything, into a FileError with reason and remedy.

    others : exceptions that have another cause, and pass.
    """
    passed: tuple[type[Exception], ...] = (SlirError, *others)
    try:
        yield
    except passed:
        raise
    except MemoryError as error:
        raise FileError(path, "does not fit into memory", "Crop it, or use a machine with more.") from error
    except Exception as error:
        reason = re.sub(r" <_io\S* object at \w+>", "", " ".join(str(error).split())) or type(error).__name__
        if not reason.startswith(("is ", "has ", "holds ", "ends ", "declares ", "would ", "its ", "only ")):
            reason = f"cannot be decoded as {form} ({reason[:200]})"
        raise FileError(path, reason, _remedy(reason)) from error


def _remedy(reason: str) -> str:
    """What to do about a file that does not decode, by the words of the reason."""
    again = "Copy, download or export it again."
    for words, remedy in (
        (("truncated", "damaged"), again),
        (("pages",), "Save each page as a file of its own."),
        (("animation",), "Save one frame as a file of its own."),
        (("imagecodecs",), "Run pip install 'slir[codecs]', or save the file with deflate (zip) compression."),
        (("is compressed by",), "Save it uncompressed or with deflate (zip) compression."),
        (("the most is", "decompression bomb", "exceeds limit"), "Crop or tile the image."),
        (("colours", "channels", "bits a sample", "of type", "axes"), "Convert it to grey or RGB, with 8 or 16 bits."),
    ):
        if any(word in reason for word in words):
            return remedy
    return again
