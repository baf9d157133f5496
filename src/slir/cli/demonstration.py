"""The demonstration: degrade an embedded picture that slir has never learnt from, restore it, measure, save."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import slir
from slir.io import Picture, write
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Downsample
from slir.operators.base import Operator
from slir.pictures import side_by_side
from slir.preprocessing.arrays import grey_plane

Report = Callable[[int, int, str], None]
NOISE = 2.55  # one percent of the range


@dataclass(frozen=True)
class Row:
    """What one task did: PSNR of the degraded and of the restored picture in dB, seconds, the files written."""

    task: str
    psnr_before: float
    psnr_after: float
    seconds: float
    files: tuple[Path, ...]


def run(out_dir: str | Path, progress: Report | bool = False) -> list[Row]:
    """Blur, shrink, spoil and hole the embedded picture; restore each; write before, after and side by side.

    Deblurring writes before.png, after.png and side-by-side.png; the other tasks put their name in front.
    """
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    clean = demo_picture()
    grey = np.rint(grey_plane(clean).numpy() * 255).astype(np.uint8)
    psf = slir.psf.motion(9, 30)
    missing = rng.random(grey.shape) < 0.5
    holed = np.where(missing, 0, grey).astype(np.uint8)
    blurred = _noisy(_through(Blur(psf), clean), NOISE, rng)
    sharp = Blur(psf).crop(torch.from_numpy(np.moveaxis(clean, -1, 0)), blurred.shape[:2])
    small = _noisy(_through(Downsample(2, "bicubic"), grey), 0, rng)
    noisy = _noisy(grey.astype(np.float64), 25, rng)
    jobs: list[tuple[str, np.ndarray, np.ndarray, np.ndarray, Callable[..., np.ndarray]]] = [
        (
            "deblur",
            np.moveaxis(sharp.numpy(), 0, -1),
            blurred,
            blurred,
            lambda y, p: slir.deblur(y, psf, sigma=NOISE, channel_axis=-1, progress=p),
        ),
        ("denoise", grey, noisy, noisy, lambda y, p: slir.denoise(y, sigma=25, progress=p)),
        ("upsample", grey, small, small.repeat(2, 0).repeat(2, 1), lambda y, p: slir.upsample(y, 2, progress=p)),
        ("inpaint", grey, holed, holed, lambda y, p: slir.inpaint(y, missing, progress=p)),
    ]
    rows = []
    for number, (task, truth, y, shown, restore) in enumerate(jobs):
        started = time.perf_counter()
        restored = restore(y, _nested_progress(progress, number, len(jobs), task))
        seconds = time.perf_counter() - started
        prefix = "" if task == "deblur" else f"{task}-"
        pictures = {"before": shown, "after": restored, "side-by-side": _comparison(shown, restored, truth)}
        files = []
        for name, pixels in pictures.items():
            path = out / f"{prefix}{name}.png"
            write(path, Picture(pixels, channel_axis=-1 if pixels.ndim == 3 else None))
            files.append(path)
        rows.append(Row(task, psnr(shown, truth), psnr(restored, truth), seconds, tuple(files)))
    return rows


def psnr(image: np.ndarray, truth: np.ndarray) -> float:
    """10 log₁₀(255² / MSE) of 8-bit images."""
    error = float(np.mean((image.astype(np.float64) - truth.astype(np.float64)) ** 2))
    return float(10 * np.log10(255**2 / max(error, 1e-12)))


def _through(operator: Operator, image: np.ndarray) -> np.ndarray:
    """Bx, channel by channel."""
    planes = torch.from_numpy(np.moveaxis(np.atleast_3d(image), -1, 0).astype(np.float64))
    return np.moveaxis(operator.forward(planes).numpy(), 0, -1).squeeze()


def _noisy(image: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Noise added, rounded and clipped to 8 bits, as a camera would."""
    return np.clip(np.rint(image + sigma * rng.standard_normal(image.shape)), 0, 255).astype(np.uint8)


def _comparison(before: np.ndarray, after: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return side_by_side([before, after, truth], labels=["before", "after", "truth"])


def _nested_progress(progress: Report | bool, number: int, total: int, task: str) -> Report | bool:
    """Progress of one task as a share of all."""
    if not callable(progress):
        return False
    return lambda done, of, what: progress(number * of + done, total * of, task)
