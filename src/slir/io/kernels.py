"""Point spread functions and other kernels from files."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from slir.errors import FileError
from slir.io import images

_TABLES = (".csv", ".txt")


def read_psf(path: str | os.PathLike[str]) -> np.ndarray:
    """A (K, L) float64 kernel from a file.

    .npy : taken as it is.
    .csv, .txt : one row a line, numbers apart by commas, semicolons, tabs or spaces; taken as it is.
    .png, .tif, ... : a grey image, divided by its sum, since image files store kernels at any scale.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        kernel = read_npy(path)
    elif suffix in _TABLES:
        kernel = _table(path)
    elif images.is_image_name(path):
        kernel = _image(path)
    else:
        raise FileError(path, "is no kernel that slir can read", "Save it as .npy, .csv, .txt, .png or .tif.")
    if kernel.ndim != 2 or 0 in kernel.shape:
        raise FileError(path, f"holds an array of shape {kernel.shape}, not a kernel", "Save one plane of two axes.")
    if kernel.dtype.kind not in "biuf":
        raise FileError(path, f"holds values of type {kernel.dtype}, not numbers", "Save real numbers.")
    kernel = kernel.astype(np.float64)
    if not np.isfinite(kernel).all():
        raise FileError(path, "holds values that are NaN or infinite", "Replace these values by zero.")
    return kernel


def read_npy(path: Path) -> np.ndarray:
    """An array from a .npy file; never unpickles."""
    try:
        return np.load(io.BytesIO(images.read_bytes(path)), allow_pickle=False)
    except FileError:
        raise
    except Exception as error:  # np.load raises several kinds on damaged files
        reason = " ".join(str(error).split())[:200]
        raise FileError(path, f"cannot be decoded as NumPy ({reason})", "Save it again with numpy.save.") from error


def _table(path: Path) -> np.ndarray:
    remedy = "Write one row a line, with the same count of numbers in each."
    try:
        text = images.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(path, "is not text", remedy) from error
    rows = [
        line.replace(",", " ").replace(";", " ").split()
        for line in (line.split("#")[0].strip() for line in text.splitlines())
        if line
    ]
    if not rows or len({len(row) for row in rows}) != 1:
        raise FileError(path, "has no rows of one length" if rows else "holds no numbers", remedy)
    try:
        return np.array([[float(value) for value in row] for row in rows])
    except ValueError as error:
        raise FileError(path, f"holds something that is not a number ({error})", remedy) from error


def _image(path: Path) -> np.ndarray:
    picture = images.read(path)
    kernel = picture.pixels.astype(np.float64)
    if picture.channel_axis is not None:
        if np.ptp(kernel, axis=-1).any():
            raise FileError(path, "is in colour, but a kernel is grey", "Save it as a grey image.")
        kernel = kernel[..., 0]
    total = kernel.sum()
    if not total > 0:
        raise FileError(path, "is black: its values sum to zero", "Save a kernel whose values sum to more than zero.")
    return kernel / total
