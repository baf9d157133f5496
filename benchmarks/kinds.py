"""What slir does to pictures that are no photographs: text, drawings, gratings, micrographs, stars. No data are needed.

    python benchmarks/kinds.py [--kernel FILE ...] [--tasks denoise ...] [--kinds text ...]

The pictures are generated. Printed is PSNR over their range, for the kernel that ships and for each other one that is
given: a kernel's file, or a folder of model files named after the task (denoise, deblur, upsample2, inpaint, …).
Text and drawings are 8-bit, cells and stars 16-bit counts: cells fill 1,000 of them, stars outshine the sky of 300 up
to 60,000, and only the sky and faint stars count.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fit_gain import cells, text
from scipy import ndimage

import slir
from slir.io.models import load, load_kernel
from slir.kernel.shipped import shipped_kernel
from slir.operators import Blur, Downsample

SIDE = 288
SKY, BRIGHTEST = 300, 60_000


@dataclass(frozen=True)
class Picture:
    """truth: counts. span: of the PSNR. counts: pixels that are judged."""

    truth: np.ndarray
    span: float
    judged: np.ndarray


def drawing(seed: int) -> np.ndarray:
    """Discs, rings, bars and triangles in flat greys, with soft edges."""
    rng = np.random.default_rng(seed)
    rows, cols = np.mgrid[:SIDE, :SIDE]
    image = np.full((SIDE, SIDE), rng.uniform(0, 1))
    for _ in range(25):
        down, across = rows - rng.uniform(0, SIDE), cols - rng.uniform(0, SIDE)
        angle, size = rng.uniform(0, np.pi), rng.uniform(4, 60)
        along, beside = (
            down * np.sin(angle) + across * np.cos(angle),
            down * np.cos(angle) - across * np.sin(angle),
        )
        away = np.hypot(down, across)
        shapes = (
            away - size,
            abs(away - size) - size / 12,
            np.maximum(abs(along) - size, abs(beside) - size / 10),
            np.maximum(abs(along) + beside, -beside - size / 3) - size / 3,
        )
        image += (rng.uniform(0, 1) - image) * (0.5 - shapes[rng.integers(4)]).clip(0, 1)
    return (255 * image).round().astype(np.uint8)


def grating(seed: int) -> np.ndarray:
    """Test charts: a zone plate beside bars of falling widths."""
    rng = np.random.default_rng(seed)
    rows, cols = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    angle, fine = rng.uniform(0, np.pi), rng.uniform(0.6, 1.0)
    plate = 0.5 + 0.5 * np.cos(fine * np.pi / 2 * (rows**2 + cols**2) / SIDE)
    along = rows * np.sin(angle) + cols * np.cos(angle)
    bars = 0.5 + 0.5 * np.tanh(4 * np.cos(2 * np.pi * along / (3 + 0.05 * abs(rows))))
    image = np.where(cols < 0, plate, ndimage.gaussian_filter(bars, 0.5))
    return (255 * image).round().astype(np.uint8)


def stars(seed: int) -> np.ndarray:
    """Counts of stars by a power law, on an uneven sky."""
    rng = np.random.default_rng(seed)
    image = SKY * (1 + 0.8 * ndimage.gaussian_filter(rng.standard_normal((SIDE, SIDE)), 8))
    rows, cols = np.mgrid[:SIDE, :SIDE]
    for _ in range(300):
        row, col = rng.uniform(0, SIDE, 2)
        image += min(40 * rng.pareto(0.8), BRIGHTEST) * np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 3.4)
    return image


def picture(kind: str, seed: int) -> Picture:
    if kind == "stars":
        truth = stars(seed)
        return Picture(truth, 1000.0, ndimage.maximum_filter(truth, 15) < 5 * SKY)
    made = {"text": text, "drawings": drawing, "gratings": grating, "cells": cells}[kind](seed)
    everywhere = np.ones(made.shape, bool)
    if kind == "cells":
        return Picture(200 + 1000 * (made / 255), 1000.0, everywhere)
    return Picture(made.astype(float), 255.0, everywhere)


KINDS = ("text", "drawings", "gratings", "cells", "stars")
TASKS = ("denoise", "deblur", "upsample", "inpaint")


def cases(task: str) -> dict[str, tuple[str, Callable[..., Any], Callable[..., Any], float]]:
    """By name: the model's name, the operator, what restores given y, and σ as a share of the span."""
    if task == "denoise":
        return {f"sigma {100 * s:g} %": ("denoise", _same, slir.denoise, s) for s in (0.2, 0.1, 0.03, 0.003, 0.0003)}
    if task == "deblur":
        psfs = {"Gaussian": slir.psf.gaussian(1.5), "motion": slir.psf.motion(11, 30)}
        return {n: ("deblur", partial(_blurred, psf=p), partial(slir.deblur, psf=p), 0.01) for n, p in psfs.items()}
    if task == "upsample":
        return {
            f"×{f}": (f"upsample{f}", partial(_reduced, factor=f), partial(slir.upsample, factor=f), 0.0)
            for f in (2, 3, 4)
        }
    rng = np.random.default_rng(0)
    holes = ndimage.binary_dilation(rng.random((SIDE, SIDE)) < 0.001, iterations=4)
    masks = {"80 %": rng.random((SIDE, SIDE)) < 0.8, "holes": holes}
    return {n: ("inpaint", partial(_hidden, mask=m), partial(slir.inpaint, mask=m), 0.0) for n, m in masks.items()}


def _same(truth: np.ndarray) -> np.ndarray:
    return truth


def _blurred(truth: np.ndarray, psf: np.ndarray) -> np.ndarray:
    return Blur(psf, "reflect").forward(torch.from_numpy(truth)).numpy()


def _reduced(truth: np.ndarray, factor: int) -> np.ndarray:
    return Downsample(factor).forward(torch.from_numpy(truth)).numpy()


def _hidden(truth: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, 0, truth)


def main() -> None:
    warnings.simplefilter("ignore", slir.SlirWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", type=Path, nargs="*", default=[], help="other kernels, or folders of models")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=2, help="pictures of each kind")
    options = parser.parse_args()
    made = [shipped_kernel().model, *map(models_of, options.kernel)]
    print(f"{'kind':<10} {'task':<20} {'ships':>7} " + " ".join(f"{p.name[:12]:>12}" for p in options.kernel))
    for task in options.tasks:
        for kind in options.kinds:
            for name, (model, degrade, restore, sigma) in cases(task).items():
                scores = [_score(kind, degrade, restore, sigma, each(model), options.seeds) for each in made]
                cells_ = " ".join(f"{s:12.2f}" for s in scores[1:])
                print(f"{kind:<10} {f'{task}, {name}':<20} {scores[0]:7.2f} {cells_}", flush=True)


def models_of(path: Path) -> Callable[[str], Any]:
    if path.is_dir():
        return lambda task: load(path / f"{task}.safetensors", device="cpu")
    return load_kernel(path).model


def _score(kind: str, degrade: Any, restore: Any, sigma: float, model: Any, seeds: int) -> float:
    """Mean PSNR, with the model in the place of the one that ships."""
    from unittest import mock

    found = []
    for seed in range(seeds):
        p = picture(kind, seed)
        y = degrade(p.truth) + sigma * p.span * np.random.default_rng(seed).standard_normal(degrade(p.truth).shape)
        limit, dtype = (255, np.uint8) if p.span == 255 else (65535, np.uint16)
        y = np.rint(y).clip(0, limit).astype(dtype)
        with mock.patch("slir.preprocessing.treatment.default_model", return_value=model):
            restored = restore(y, sigma=sigma * p.span).astype(float)
        square = np.square((restored - p.truth) / p.span)[p.judged].mean()
        found.append(-10 * np.log10(max(square, 1e-12)))
    return float(np.mean(found))


if __name__ == "__main__":
    main()
