"""slir.restore beyond the four tasks, on colour pictures of one's own: demosaicking, and a blur that varies.

    python benchmarks/any_operator.py DIR [--every 8] [--sigma 0 10] [--only demosaicking|blur] [--device cuda]

Demosaicking: Bayer (RGGB), noise of σ grey levels (drawn with the picture's number as seed), neither clipped nor
rounded; PSNR over all pixels and colours. Beside it: Malvar, He and Cutler's interpolation of the same mosaic, and that
of the mosaic denoised by slir, its four phases as separate pictures.
Varying blur: 7×7 different camera shakes of 15×15 pixels over the grey picture, σ = 0.01; restored with all of them,
with the middle one alone, and for comparison a picture that was blurred with the middle one alone; PSNR where y shows
x, and the time as a multiple of that of one PSF.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

import slir
from slir.errors import SlirWarning
from slir.operators import Blur, ColourFilterArray, VaryingBlur

GRID, SIDE, SHAKE_SIGMA = 7, 15, 0.01

CROSS = np.array([[0, 0, -1, 0, 0], [0, 0, 2, 0, 0], [-1, 2, 4, 2, -1], [0, 0, 2, 0, 0], [0, 0, -1, 0, 0]]) / 8
ROW = np.array([[0, 0, 1, 0, 0], [0, -2, 0, -2, 0], [-2, 8, 10, 8, -2], [0, -2, 0, -2, 0], [0, 0, 1, 0, 0]]) / 16
SQUARE = np.array([[0, 0, -3, 0, 0], [0, 4, 0, 4, 0], [-3, 0, 12, 0, -3], [0, 4, 0, 4, 0], [0, 0, -3, 0, 0]]) / 16


def malvar(mosaic: np.ndarray) -> np.ndarray:
    """The gradient-corrected linear interpolation of Malvar, He and Cutler (2004) of an RGGB mosaic: (3, H, W)."""
    rows, cols = np.mgrid[: mosaic.shape[0], : mosaic.shape[1]] % 2
    red, blue, green = (rows == 0) & (cols == 0), (rows == 1) & (cols == 1), rows != cols
    across, down, cross, square = (
        ndimage.convolve(mosaic, kernel, mode="mirror") for kernel in (ROW, ROW.T, CROSS, SQUARE)
    )
    top = green & (rows == 0)  # a green pixel with red neighbours in its row
    return np.stack(
        [
            np.select([red, top, green], [mosaic, across, down], square),
            np.where(green, mosaic, cross),
            np.select([blue, top, green], [mosaic, down, across], square),
        ]
    )


def denoised_phases(mosaic: np.ndarray, sigma: float) -> np.ndarray:
    """The mosaic with each of its four phases denoised as a picture."""
    result = mosaic.copy()
    for row in range(2):
        for col in range(2):
            phase = np.ascontiguousarray(mosaic[row::2, col::2])
            result[row::2, col::2] = slir.denoise(phase, sigma=sigma, data_range=1.0)
    return result


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((found.clip(0, 1) - truth) ** 2)))


def noise(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).numpy()


def pictures(folder: Path, every: int) -> Iterator[tuple[int, np.ndarray]]:
    """(H, W, 3) in [0, 1], and the picture's number."""
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in (".png", ".jpg", ".tif", ".bmp"))
    for number, file in list(enumerate(files))[::every]:
        yield number, np.asarray(Image.open(file).convert("RGB")) / 255.0


def demosaicking(folder: Path, every: int, levels: list[float], device: str | None) -> None:
    operator = ColourFilterArray("RGGB")
    for level in levels:
        figures = []
        for number, x in pictures(folder, every):
            mosaic = operator(np.moveaxis(x, -1, 0))
            mosaic = mosaic + level / 255 * noise(mosaic.shape, number)
            found = slir.restore(mosaic, operator, sigma=level / 255, data_range=1.0, device=device)
            clean = denoised_phases(mosaic, level / 255) if level else mosaic
            peers = [np.moveaxis(malvar(own), 0, -1) for own in (mosaic, clean)]
            figures.append([psnr(own, x) for own in (found, *peers)])
        ours, plain, after = np.mean(figures, 0)
        print(
            f"demosaicking, σ = {level:g}, {len(figures)} pictures: slir {ours:.2f} dB, Malvar–He–Cutler {plain:.2f},"
        )
        print(f"    after denoising the four phases {after:.2f}", flush=True)


def varying_blur(folder: Path, every: int, device: str | None) -> None:
    rng = np.random.default_rng(0)
    psfs = np.stack([[slir.psf.camera_shake(SIDE - 4, rng=rng, size=SIDE) for _ in range(GRID)] for _ in range(GRID)])
    middle = psfs[GRID // 2, GRID // 2]
    figures = []
    for number, x in pictures(folder, every):
        grey = x @ (0.299, 0.587, 0.114)
        shape = (grey.shape[0] - SIDE + 1, grey.shape[1] - SIDE + 1)
        several, one = VaryingBlur(psfs, shape), Blur(middle)
        added = SHAKE_SIGMA * noise(shape, number)
        inner = grey[SIDE // 2 : -(SIDE // 2), SIDE // 2 : -(SIDE // 2)]
        own, seconds = [], []
        for data, told in ((several, several), (several, one), (one, one)):
            begun = time.perf_counter()
            found = slir.restore(data(grey) + added, told, sigma=SHAKE_SIGMA, data_range=1.0, device=device)
            seconds.append(time.perf_counter() - begun)
            own.append(psnr(found, inner))
        figures.append([*own, seconds[0] / seconds[2]])
    whole, alone, same, times = np.mean(figures, 0)
    print(f"{GRID}×{GRID} shakes, {len(figures)} pictures: all told {whole:.2f} dB, the middle one alone {alone:.2f};")
    print(
        f"    blurred with the middle one alone {same:.2f}; time with all: {times:.1f} times that with one", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--every", type=int, default=1, help="each so many-th picture")
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.0, 10.0], help="in grey levels")
    parser.add_argument("--only", choices=("demosaicking", "blur"))
    parser.add_argument("--device")
    given = parser.parse_args()
    warnings.simplefilter("ignore", SlirWarning)  # the middle PSF alone is wrong, and is told so
    if given.only != "blur":
        demosaicking(given.folder, given.every, given.sigma, given.device)
    if given.only != "demosaicking":
        varying_blur(given.folder, given.every, given.device)


if __name__ == "__main__":
    main()
