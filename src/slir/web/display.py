"""Arrays as pictures of eight bits for a screen. Before and after are shown by the same rule, so that they compare."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

LARGEST = 2048
"""Longest side of a picture that is kept for display."""


@dataclass(frozen=True)
class View:
    """The pixel values that are shown black and white."""

    black: float
    white: float

    def shown(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 of the same shape; NaN is black."""
        if pixels.dtype == np.uint8 and self == EIGHT_BITS:
            return pixels
        scaled = (pixels.astype(np.float32) - np.float32(self.black)) * np.float32(255 / (self.white - self.black))
        return np.rint(np.nan_to_num(scaled, nan=0.0, posinf=255, neginf=0).clip(0, 255)).astype(np.uint8)


EIGHT_BITS = View(0, 255)


def view_of(pixels: np.ndarray) -> View:
    """Eight bits as they are; else the range in use, but for one pixel in a thousand at either end."""
    if pixels.dtype == np.uint8:
        return EIGHT_BITS
    step = max(1, int((pixels.size / 1e6) ** 0.5))  # a million pixels tell as much as all of them
    values = pixels[::step, ::step].astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return View(0, 1)
    low, high = (float(value) for value in np.quantile(values, (0.001, 0.999)))
    full = 65535.0 if pixels.dtype == np.uint16 else 1.0 if pixels.dtype.kind == "f" else None
    if full is not None and low >= 0 and full / 2 < high <= full:
        return View(0, full)
    return View(low, high) if high > low else View(low - 0.5, low + 0.5)


def reduced(pixels: np.ndarray, most: int) -> np.ndarray:
    """uint8 made smaller by means of blocks until no side is longer than `most`."""
    height, width = pixels.shape[:2]
    if max(height, width) <= most:
        return pixels
    scale = most / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.BOX))


def png(pixels: np.ndarray) -> bytes:
    """uint8 (H, W) or (H, W, 3) -> a PNG file, quickly rather than small."""
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def keep(path: Path, pixels: np.ndarray) -> None:
    """Write a PNG file that is there whole or not at all."""
    part = path.with_suffix(".part")
    try:
        part.write_bytes(png(pixels))
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def served(path: Path, most: int) -> bytes:
    """A PNG that `keep` wrote, no side longer than `most`."""
    data = path.read_bytes()
    with Image.open(io.BytesIO(data)) as picture:  # one of our own making
        if max(picture.size) <= most:
            return data
        return png(reduced(np.asarray(picture), most))
