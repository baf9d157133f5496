"""What photographs need beyond the paper's tables: colour, and a noise level that nobody knows.

    python benchmarks/real_files.py DATA      DATA holds set5 and set12 (docs/benchmark.md)

Colour: Set5 with white noise of 25, restored as brightness and colour differences, and channel by channel.
sigma="auto": Set12 with noise of 15, 25 and 50, as floats, and rounded to 8 bits and clipped; how far the estimate is
off, and what is lost against being told.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import slir


def psnr(found: np.ndarray, clean: np.ndarray) -> float:
    return 10 * float(np.log10(255**2 / np.mean((np.clip(found, 0, 255) - clean) ** 2)))


def pictures(folder: Path, mode: str) -> list[np.ndarray]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".png", ".bmp", ".jpg", ".tif"))
    return [np.asarray(Image.open(path).convert(mode), np.float64) for path in files]


def colour(data: Path) -> None:
    together, apart = [], []
    for seed, clean in enumerate(pictures(data / "set5", "RGB")):
        noisy = clean + np.random.default_rng(seed).normal(0, 25, clean.shape)
        settings = {"sigma": 25, "data_range": 255.0}
        together.append(psnr(slir.denoise(noisy, channel_axis=-1, **settings), clean))
        planes = [slir.denoise(np.ascontiguousarray(noisy[..., c]), **settings) for c in range(3)]
        apart.append(psnr(np.stack(planes, -1), clean))
    print(
        f"Set5 in colour, sigma 25: {np.mean(together):.2f} dB, channel by channel {np.mean(apart):.2f} dB", flush=True
    )


def auto(data: Path) -> None:
    clean = pictures(data / "set12", "L")
    for sigma in (15, 25, 50):
        for rounded in (False, True):
            off, told, guessed = [], [], []
            for seed, image in enumerate(clean):
                noisy = image + np.random.default_rng(seed).normal(0, sigma, image.shape)
                y = noisy.round().clip(0, 255).astype(np.uint8) if rounded else noisy
                settings = {} if rounded else {"data_range": 255.0}
                result = slir.denoise(y, sigma="auto", return_info=True, **settings)
                off.append(result.stats["sigma"] / sigma - 1)
                guessed.append(psnr(result.image.astype(np.float64), image))
                told.append(psnr(slir.denoise(y, sigma=sigma, **settings).astype(np.float64), image))
            kind = "8 bits" if rounded else "floats"
            print(
                f"Set12, sigma {sigma}, {kind}: told {np.mean(told):.2f} dB, auto {np.mean(guessed):.2f} dB; "
                f"estimates {100 * min(off):+.1f} to {100 * max(off):+.1f} %",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    colour(options.data)
    auto(options.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
