"""Reading the benchmark's data folder: bsd68, set12, set5, bsds_train and kernels, laid out as folders of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from slir.errors import FileError

IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"}
KERNELS = {"kernel 1": "kernel1_17x17.npy", "kernel 2": "kernel2_19x19.npy"}


def eight_bits(image: np.ndarray) -> np.ndarray:
    """Rounded to the 256 levels of [0, 1] and clipped."""
    return (np.round(np.clip(image, 0, 1) * 255) / 255).astype(np.float32)


def grey(path: Path) -> np.ndarray:
    """0.299 R + 0.587 G + 0.114 B, rounded to 8 bits; a grey file as it is."""
    pixels = _pixels(path)
    return eight_bits((pixels if pixels.ndim == 2 else pixels @ [0.299, 0.587, 0.114]) / 255)


def colour(path: Path) -> np.ndarray:
    """Red, green and blue, (H, W, 3) in [0, 1]; a grey file three times."""
    pixels = _pixels(path).astype(np.float32) / 255
    return pixels if pixels.ndim == 3 else np.stack([pixels] * 3, axis=-1)


def luma(path: Path) -> np.ndarray:
    """(16 + (65.481 R + 128.553 G + 24.966 B) / 255) / 255."""
    pixels = _pixels(path)
    pixels = pixels if pixels.ndim == 3 else np.stack([pixels] * 3, axis=-1)
    return ((16 + pixels @ [65.481, 128.553, 24.966] / 255) / 255).astype(np.float32)


def load_kernel(data: Path | str, setting: str) -> np.ndarray:
    """The kernel of a deblurring setting, float32."""
    path = Path(data) / "kernels" / KERNELS[setting]
    try:
        return np.load(path).astype(np.float32)
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be read ({error})", "Put the kernel there as an .npy array.") from error


def _pixels(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as image:
            return np.asarray(image if image.mode == "L" else image.convert("RGB"), np.float64)
    except OSError as error:
        raise FileError(path, f"cannot be read ({error})", "Replace the file by an intact copy.") from error


def list_images(data: Path, folder: str) -> tuple[Path, ...]:
    """The sorted image files of one folder of the data; an error that names the remedy where there are none."""
    place = data / folder
    files = place.iterdir() if place.is_dir() else ()
    found = tuple(sorted(path for path in files if path.suffix.lower() in IMAGE_ENDINGS))
    if not found:
        remedy = "Point the data folder at one that holds bsd68, set12, set5, bsds_train and kernels."
        raise FileError(place, "holds no images" if place.is_dir() else "does not exist", remedy)
    return found


def draw(files: tuple[Path, ...], count: int, seed: int) -> list[np.ndarray]:
    """`count` of the files as grey images, drawn without replacement, in the files' order."""
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed))[:count]
    return [grey(files[i]) for i in sorted(order.tolist())]
