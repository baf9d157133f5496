"""What `slir.fit` gains on pictures of one kind: fitted to four, judged on four others.

    python benchmarks/fit_gain.py [--kinds text cells sky] [--sigmas 25 50] [--crops 80]

Pictures are generated, so that nothing was learnt from them: pages of text, fluorescent cells, fields of stars. Printed
are the seconds that the fit took and the mean PSNR of what slir restores by default, of the kernel that ships, and of
the kernel with the closed-form stage on top.
"""

from __future__ import annotations

import argparse
import string
import time

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

SIDE = 288


def text(seed: int) -> np.ndarray:
    """A page of random words in several sizes, dark on bright."""
    rng = np.random.default_rng(seed)
    page = Image.new("L", (SIDE, SIDE), int(rng.integers(215, 250)))
    draw = ImageDraw.Draw(page)
    top = 4
    while top < SIDE:
        size = int(rng.choice([10, 11, 12, 14, 18]))
        words = ("".join(rng.choice(list(string.ascii_lowercase), rng.integers(2, 10))) for _ in range(20))
        ink = int(rng.integers(10, 60))
        draw.text((4, top), " ".join(words).capitalize(), fill=ink, font=ImageFont.load_default(size))
        top += int(size * 1.35)
    return np.asarray(page)


def cells(seed: int) -> np.ndarray:
    """Overlapping ellipses with a rim, texture and a few bright points, on a dark ground."""
    rng = np.random.default_rng(seed)
    image = np.full((SIDE, SIDE), 0.08)
    rows, cols = np.mgrid[:SIDE, :SIDE]
    for _ in range(70):
        row, col = rng.uniform(0, SIDE, 2)
        tall, wide = rng.uniform(6, 16, 2)
        angle, bright = rng.uniform(0, np.pi), rng.uniform(0.2, 0.7)
        along = (rows - row) * np.cos(angle) + (cols - col) * np.sin(angle)
        across = (cols - col) * np.cos(angle) - (rows - row) * np.sin(angle)
        radius = np.hypot(along / tall, across / wide)
        grain = 1 + 0.75 * ndimage.gaussian_filter(rng.standard_normal((SIDE, SIDE)), 1.2)
        body = 0.8 * grain / (1 + np.exp(8 * (radius - 1)))
        image = np.maximum(image, bright * (body + 0.35 * np.exp(-(((radius - 0.95) / 0.08) ** 2))))
        for _ in range(rng.integers(0, 5)):
            away = (rows - rng.normal(row, tall / 3)) ** 2 + (cols - rng.normal(col, wide / 3)) ** 2
            image += 0.4 * bright * np.exp(-away / (2 * rng.uniform(0.8, 1.6) ** 2))
    return (255 * image.clip(0, 1)).round().astype(np.uint8)


def sky(seed: int) -> np.ndarray:
    """Stars whose brightness follows a power law, on a faint uneven ground."""
    rng = np.random.default_rng(seed)
    image = 0.05 + 0.6 * ndimage.gaussian_filter(rng.standard_normal((SIDE, SIDE)), 30)
    rows, cols = np.mgrid[:SIDE, :SIDE]
    for _ in range(220):
        row, col = rng.uniform(0, SIDE, 2)
        image += min(0.03 * rng.pareto(1.2), 1.5) * np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 3.4)
    return (255 * image.clip(0, 1)).round().astype(np.uint8)


KINDS = {"text": text, "cells": cells, "sky": sky}


def psnr(image: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(np.square(image.clip(0, 1) - truth).mean()))


def main() -> None:
    import slir

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--sigmas", nargs="+", type=float, default=[25.0, 50.0])
    parser.add_argument("--crops", type=int, default=80)
    options = parser.parse_args()
    print(f"{'kind':6s} {'sigma':>5s} {'fit s':>6s} {'default':>8s} {'fitted':>8s} {'gain':>6s}")
    for name in options.kinds:
        make = KINDS[name]
        for sigma in options.sigmas:
            began = time.perf_counter()
            pictures = [make(seed) for seed in range(4)]
            settings = {"task": "denoise", "sigma": sigma / 255, "crops": options.crops}
            fitted = slir.fit(pictures, **settings)
            seconds = time.perf_counter() - began
            scores: list[list[float]] = [[], []]
            for seed in range(10, 14):
                truth = make(seed) / 255
                noisy = truth + sigma / 255 * np.random.default_rng(seed).standard_normal(truth.shape)
                for own, model in zip(scores, (None, fitted)):
                    restored = slir.denoise(noisy, sigma=sigma / 255, data_range=1.0, model=model)
                    own.append(psnr(restored, truth))
            default, best = (float(np.mean(own)) for own in scores)
            gain = best - default
            print(f"{name:6s} {sigma:5.0f} {seconds:6.1f} {default:8.2f} {best:8.2f} {gain:+6.2f}", flush=True)


if __name__ == "__main__":
    main()
