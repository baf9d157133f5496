"""Masks of missing pixels from files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from slir.errors import FileError
from slir.io import images, jpeg
from slir.io.kernels import read_npy


def read_mask(path: str | os.PathLike[str], shape: tuple[int, int] | None = None) -> np.ndarray:
    """A bool array, true where a pixel is missing: where the file's value is not zero.

    In a file with colour, a pixel is missing where any channel is not zero; in one with alpha, only where it is not
    wholly transparent. The file is an image or a .npy array. With `shape`, (H, W), the mask must have it.
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.dtype.kind not in "biuf" or values.ndim != 2:
            raise FileError(path, f"holds {values.dtype} of shape {values.shape}, not a mask", "Save a 2-D bool array.")
        missing = np.isnan(values) | (values != 0) if values.dtype.kind == "f" else values != 0
    else:
        picture = images.read(path)
        values = picture.pixels
        if path.suffix.lower() in jpeg.EXTENSIONS and not np.isin(values, (0, 255)).all():
            reason = "is a JPEG whose black is not all black, so that what is missing cannot be told"
            raise FileError(path, reason, "Save the mask as PNG, with 0 where a pixel is good.")
        missing = values != 0
        if picture.channel_axis is not None:
            missing = missing.any(axis=picture.channel_axis)
        if picture.alpha is not None:
            missing &= picture.alpha != 0
    if shape is not None and missing.shape != tuple(shape):
        reason = f"is a mask of {_times(missing.shape)} pixels for an image of {_times(shape)}"
        turned = missing.shape == tuple(shape)[::-1]
        remedy = "Rotate it as the image is stored." if turned else "Make a mask of the image's size."
        raise FileError(path, reason, remedy)
    if missing.all():
        raise FileError(path, "marks every pixel as missing", "Mark good pixels by 0; is the mask inverted?")
    return missing


def _times(shape: tuple[int, ...]) -> str:
    """ "width × height", as people say it."""
    return " × ".join(str(side) for side in reversed(shape))
