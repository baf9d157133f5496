"""Point spread functions and other kernels from files, and to them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

from slir.errors import FileError
from slir.io import images
from slir.io.atomic import check_folder, whole_file
from slir.io.picture import Picture

_TABLES = (".csv", ".txt")
_WRITTEN = (".npy", *_TABLES, ".tif", ".tiff", ".png")


def read_psf(path: str | os.PathLike[str]) -> np.ndarray:
    """A (K, L) float64 kernel from a file, divided by its sum: files store kernels at any scale. Of volumes (D, K, L).

    .npy : an array of two axes, or of three for volumes.
    .csv, .txt : one row a line, numbers apart by commas, semicolons, tabs or spaces.
    .png, .tif, ... : a grey image, or a grey stack for volumes.
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
        raise FileError(path, "is not a kernel that slir can read", "Save it as .npy, .csv, .txt, .png or .tif.")
    if kernel.ndim not in (2, 3) or 0 in kernel.shape:
        remedy = "Save one plane of two axes, or a stack of three."
        raise FileError(path, f"holds an array of shape {kernel.shape}, not a kernel", remedy)
    if kernel.dtype.kind not in "biuf":
        raise FileError(path, f"holds values of type {kernel.dtype}, not numbers", "Save real numbers.")
    kernel = kernel.astype(np.float64)
    if not np.isfinite(kernel).all():
        raise FileError(path, "holds values that are NaN or infinite", "Replace these values by zero.")
    total = kernel.sum()
    if not total > 0:
        reason = f"holds values that sum to {total:g}"
        raise FileError(path, reason, "Save a kernel whose values sum to more than zero.")
    return kernel if abs(total - 1) < 1e-12 else kernel / total


def write_psf(path: str | os.PathLike[str], kernel: np.ndarray) -> None:
    """Write a (K, L) kernel in the format that the name's suffix says: whole, or, on any failure, not at all. One of
    three axes goes into .npy and .tif files alone.

    .npy, .csv, .txt : float64, every digit.
    .tif : float32.
    .png : 16 bits, the largest value as 65535. The scale is lost, which `read_psf` mends by dividing by the sum, and
        so is all below 1/131070 of the peak. A compact kernel comes back to 3e-5 of its peak; one with wide and faint
        wings loses these, and with them up to a percent of its light.
    """
    path = Path(path)
    check_psf_output(path)
    suffix = path.suffix.lower()
    kernel = np.asarray(kernel, dtype=np.float64)
    if kernel.ndim not in (2, 3) or not kernel.size or not np.isfinite(kernel).all():
        raise FileError(path, "cannot hold this array, which is not a kernel", "Pass finite numbers on two axes.")
    if kernel.ndim == 3 and suffix not in (".npy", ".tif", ".tiff"):
        raise FileError(
            path, "cannot hold a kernel of three axes", f"Write {path.stem}.tif or {path.stem}.npy instead."
        )
    if suffix in (".tif", ".tiff") and kernel.ndim == 3:
        import tifffile

        with whole_file(path) as temporary:
            tifffile.imwrite(temporary, kernel.astype(np.float32), imagej=True, metadata={"axes": "ZYX"})
    elif suffix in (".tif", ".tiff"):
        images.write(path, Picture(kernel.astype(np.float32)))
    elif suffix == ".png":
        if kernel.min() < 0 or kernel.max() <= 0:
            raise FileError(path, "cannot hold a kernel below zero or without light", f"Write {path.stem}.tif instead.")
        images.write(path, Picture(np.rint(kernel / kernel.max() * 65535).astype(np.uint16)))
    else:
        with whole_file(path) as temporary, open(temporary, "wb") as stream:
            if suffix == ".npy":
                np.save(stream, kernel)
            else:
                np.savetxt(stream, kernel, fmt="%.17g", delimiter=",")


def check_psf_output(path: str | os.PathLike[str]) -> None:
    """Raise FileError if `write_psf(path, ...)` could not succeed, before the work that leads to it."""
    path = Path(path)
    check_folder(path)
    if path.suffix.lower() not in _WRITTEN:
        reason = f"has the suffix {path.suffix!r}, which holds no kernels" if path.suffix else "has no suffix"
        raise FileError(path, reason, f"Choose a name that ends in {', '.join(_WRITTEN[:-1])} or {_WRITTEN[-1]}.")


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
    with images.open_source(path) as source:
        if source.planes > 1 and not source.colour:
            return np.stack([source.read(plane).pixels for plane in range(source.planes)]).astype(np.float64)
    picture = images.read(path)
    kernel = picture.pixels.astype(np.float64)
    if picture.channel_axis is not None:
        if np.ptp(kernel, axis=-1).any():
            raise FileError(path, "is in colour, but a kernel is grey", "Save it as a grey image.")
        kernel = kernel[..., 0]
    return kernel
