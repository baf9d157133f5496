"""Masks of missing pixels from files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from slir.errors import FileError
from slir.io import images, jpeg
from slir.io.kernels import read_npy
from slir.io.picture import Picture

Missing = Callable[[slice, slice], np.ndarray]
_ALL = slice(None)


def read_mask(path: str | os.PathLike[str], shape: tuple[int, int] | None = None) -> np.ndarray:
    """A bool array, true where a pixel is missing: where the file's value is not zero.

    In a file with colour, a pixel is missing where any channel is not zero; in one with alpha, only where it is not
    wholly transparent. The file is an image or a .npy array. With `shape`, (H, W), the mask must have it.
    """
    with open_mask(path, shape) as missing:
        found = missing(_ALL, _ALL)
    if found.all():
        raise FileError(path, "marks every pixel as missing", "Mark good pixels by 0; is the mask inverted?")
    return found


@contextlib.contextmanager
def open_mask(path: str | os.PathLike[str], shape: tuple[int, int] | None = None) -> Iterator[Missing]:
    """The same by windows: give a function of rows and columns, while the file is open."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.dtype.kind not in "biuf" or values.ndim != 2:
            raise FileError(path, f"holds {values.dtype} of shape {values.shape}, not a mask", "Save a 2-D bool array.")
        _check_size(path, values.shape, shape)
        yield lambda rows, cols: values[rows, cols] != 0  # NaN is not zero either
        return
    with images.open_source(path) as source:
        if source.planes > 1:
            raise FileError(path, f"holds {source.planes} pages, not one mask", "Save the one as a file of its own.")
        _check_size(path, source.size, shape)
        yield lambda rows, cols: _missing(path, source.read(0, rows, cols))


def _missing(path: Path, picture: Picture) -> np.ndarray:
    values = picture.pixels
    if path.suffix.lower() in jpeg.EXTENSIONS and not np.isin(values, (0, 255)).all():
        reason = "is a JPEG whose black pixels are not exactly 0, so missing pixels cannot be identified"
        raise FileError(path, reason, "Save the mask as PNG, with 0 where a pixel is good.")
    missing = values != 0
    if picture.channel_axis is not None:
        missing = missing.any(axis=picture.channel_axis)
    return missing if picture.alpha is None else missing & (picture.alpha != 0)


def _check_size(path: Path, found: tuple[int, ...], shape: tuple[int, int] | None) -> None:
    if shape is None or found == tuple(shape):
        return
    reason = f"has {_times(found)} pixels, but the image has {_times(shape)}"
    turned = found == tuple(shape)[::-1]
    raise FileError(path, reason, "Rotate it as the image is stored." if turned else "Make a mask of the image's size.")


def _times(shape: tuple[int, ...]) -> str:
    """ "width × height", as people say it."""
    return " × ".join(str(side) for side in reversed(shape))
