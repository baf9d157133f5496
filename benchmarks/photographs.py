"""Photographs as cameras make them, nothing told: what `slir.denoise(image)` gains, and what it spoils.

    python benchmarks/photographs.py DATA [--clean FOLDER [FOLDER ...]]

DATA holds cc15 (`*_real.png` beside `*_mean.png`), cbsd68 and set5; tables whose folder is missing are left out.

    cameras   PSNR over all channels as it came, restored with nothing told, and with the best single σ of SIGMAS, which
              only who has the truth can choose
    white     crops with white noise in 8 bits: median and worst error of the σ that is found
    jpeg      luma of Set5, compressed by Pillow with a quality of 10, 20 and 40: gain in PSNR
    clean     pictures of --clean, as they are and as JPEG of quality 95: PSNR of what comes back against what came
"""

from __future__ import annotations

import argparse
import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

import slir

SIGMAS = (3, 4.5, 6, 8, 10, 12, 16)
SIDE = 512
"""Largest side of the middle of clean pictures."""


def psnr(image: np.ndarray, truth: np.ndarray) -> float:
    error = np.mean(np.square(image.astype(np.float64) - truth))
    return float(10 * np.log10(255**2 / max(error, 1e-10)))


def read(path: Path) -> np.ndarray:
    return np.array(Image.open(path).convert("RGB"))


def as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=quality)
    return np.array(Image.open(stream))


def restored(image: np.ndarray, sigma: float | str = "auto") -> np.ndarray:
    result: np.ndarray = slir.denoise(image, sigma=sigma, channel_axis=-1 if image.ndim == 3 else None)
    return result


def cameras(folder: Path) -> None:
    rows = []
    for path in sorted(folder.glob("*_real*")):
        real, mean = read(path), read(path.with_name(path.name.replace("_real", "_mean")))
        single = max(psnr(restored(real, sigma), mean) for sigma in SIGMAS)
        rows.append((psnr(real, mean), psnr(restored(real), mean), single))
        print(f"  {path.stem:<28} {rows[-1][0]:6.2f} {rows[-1][1]:6.2f} {rows[-1][2]:6.2f}", flush=True)
    print("  {:<28} {:6.2f} {:6.2f} {:6.2f}   came, nothing told, best single sigma".format("mean", *np.mean(rows, 0)))


def white(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".png", ".jpg"))[::4]
    for sigma in (5, 10, 15, 25, 50):
        errors = []
        for number, path in enumerate(files):
            clean = read(path)[:256, :256]
            noise = np.random.default_rng(number).normal(0, sigma, clean.shape)
            noisy = np.rint(clean + noise).clip(0, 255).astype(np.uint8)
            stats = slir.denoise(noisy, channel_axis=-1, return_info="stats").stats
            errors.append(abs(np.mean(stats["sigma"]) / sigma - 1))
        print(f"  sigma {sigma:2d}: error {np.median(errors):5.1%}, worst {max(errors):5.1%}", flush=True)


def jpeg(folder: Path) -> None:
    for quality in (10, 20, 40):
        gains = []
        for path in sorted(folder.glob("*.png")):
            luma = np.array(Image.open(path).convert("YCbCr"))[..., 0]
            came = as_jpeg(luma, quality)
            gains.append(psnr(restored(came), luma) - psnr(came, luma))
        print(f"  quality {quality}: {np.mean(gains):+.2f} dB", flush=True)


def clean(folders: list[Path]) -> None:
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".png", ".webp"))
    for name, quality in (("as they are", None), ("JPEG of quality 95", 95)):
        kept = []
        for path in files:
            image = read(path)
            row, col = (max(0, (side - SIDE) // 2) for side in image.shape[:2])
            image = np.ascontiguousarray(image[row : row + SIDE, col : col + SIDE])
            image = image if quality is None else as_jpeg(image, quality)
            kept.append(psnr(restored(image), image))
        finite = np.minimum(kept, 99.0)
        print(f"  {name}: mean {finite.mean():.1f} dB, worst {finite.min():.1f} dB of {len(files)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--clean", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    warnings.simplefilter("ignore", slir.SlirWarning)
    for name, table in (("cc15", cameras), ("cbsd68", white), ("set5", jpeg)):
        if (given.data / name).is_dir():
            print(f"{table.__name__} ({name})")
            table(given.data / name)
    if given.clean:
        print("clean")
        clean(given.clean)


if __name__ == "__main__":
    main()
