"""What a restoration with a wrong PSF is worth, with and without the estimate of the PSF's error.

    python benchmarks/wrong_psfs.py PICTURES [--count 30] [--first 300] [--side 176]

PICTURES is a folder of photographs. Crops of them are blurred by random PSFs (shakes, Gaussians, disks, straight
motions), get noise of 0.2 to 3 grey levels and are rounded to 8 bits. Each is deblurred with sigma="auto": with its own
PSF, with one that is 8 to 20 % too wide or too narrow, with a noisy one, and with guesses of each kind. Figures are
PSNR after the best shift of up to six pixels, 24 pixels cut from each side, minus that of the blurred crop.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image
from scipy.signal import fftconvolve
from wrong_models import stretched

import slir
from slir import psf as psfs
from slir.preprocessing.treatment import Treatment

WORSE = 0.2


def crop(paths: list[Path], rng: np.random.Generator, side: int) -> np.ndarray:
    """The liveliest of six random squares of a random picture, reduced to 400 to 900 pixels."""
    image = Image.open(paths[rng.integers(len(paths))]).convert("L")
    times = max(1.0, min(image.size) / rng.uniform(400, 900))
    small = image.resize((int(image.width / times), int(image.height / times)), Image.Resampling.BOX)
    pixels = np.asarray(small, np.float64)
    corners = [[int(rng.integers(0, length - side + 1)) for length in pixels.shape] for _ in range(6)]
    return max((pixels[row : row + side, col : col + side] for row, col in corners), key=np.std)


def random_psf(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "gaussian":
        return psfs.gaussian(rng.uniform(0.8, 3))
    if kind == "defocus":
        return psfs.defocus(rng.uniform(1.5, 5))
    if kind == "motion":
        return psfs.motion(rng.uniform(5, 20), rng.uniform(0, 180))
    return psfs.camera_shake(rng.uniform(6, 24), rng, softness=0.3, centre="light")


def wrong(psf: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """PSFs to deblur with, by what is wrong with them."""
    noisy = (psf + 0.04 * psf.max() * rng.standard_normal(psf.shape)).clip(0)
    nearly = stretched(psf, 1 + rng.choice([-1, 1]) * rng.uniform(0.08, 0.2))
    guesses = {kind: random_psf(kind, rng) for kind in ("shake", "gaussian", "defocus", "motion")}
    return {"true": psf, "width 8 to 20 % off": nearly, "noisy": noisy / noisy.sum(), **guesses}


def psnr(image: np.ndarray, truth: np.ndarray, shift: int = 6, margin: int = 24) -> float:
    inner = image[margin:-margin, margin:-margin]
    tall, wide = inner.shape
    places = [(row, col) for row in range(-shift, shift + 1) for col in range(-shift, shift + 1)]
    moved = (truth[margin + row : margin + row + tall, margin + col : margin + col + wide] for row, col in places)
    return float(10 * np.log10(255**2 / min(np.square(inner - other).mean() for other in moved)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--first", type=int, default=300, help="first seed")
    parser.add_argument("--side", type=int, default=176)
    options = parser.parse_args()
    warnings.simplefilter("ignore", slir.SlirWarning)
    paths = sorted(path for path in options.pictures.rglob("*") if path.suffix in (".webp", ".png", ".jpg"))
    gains: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in range(options.first, options.first + options.count):
        rng = np.random.default_rng(seed)
        psf = random_psf(rng.choice(["shake", "shake", "gaussian", "defocus", "motion"]), rng)
        tall, wide = psf.shape
        clean = crop(paths, rng, options.side + max(psf.shape) - 1)
        blurred = fftconvolve(clean, psf, mode="valid")[: options.side, : options.side]
        noise = np.exp(rng.uniform(np.log(0.2), np.log(3))) * rng.standard_normal(blurred.shape)
        y = (blurred + noise).round().clip(0, 255).astype(np.uint8)
        truth = clean[(tall - 1) // 2 :, (wide - 1) // 2 :][: options.side, : options.side]
        came = psnr(y.astype(np.float64), truth)
        for name, other in wrong(psf, rng).items():
            now = psnr(slir.deblur(y, other).astype(np.float64), truth) - came
            with patch.object(Treatment, "examined", lambda treatment, *_: treatment):
                without = psnr(slir.deblur(y, other).astype(np.float64), truth) - came
            gains[name].append((without, now))
    print(f"{'PSF':22}{'n':>4}   without the estimate: mean  least  worse       with it: mean  least  worse")
    for name, pairs in gains.items():
        cells = []
        for column in zip(*pairs):
            worse = sum(gain < -WORSE for gain in column)
            cells.append(f"{np.mean(column):8.2f} {min(column):6.2f} {worse:6}")
        print(f"{name:22}{len(pairs):4}{cells[0]:>45}{cells[1]:>35}", flush=True)


if __name__ == "__main__":
    main()
