"""Estimated PSFs against true ones: `python benchmarks/blind.py FOLDER [--sigma 0.01] [--first N]`.

FOLDER holds the pictures of Levin et al. (2009): im1.png … im4.png, kernel1.png … kernel8.png and the blurred
im1_kernel1_img.png …, or any others under such names. The side of the kernel is told. Both restorations are
`slir.deblur` with the same sigma; PSNR is that of the best shift within 15 pixels, to an eighth of a pixel, 15 pixels
cut from each side. The error ratio is the squared error with the estimated kernel over that with the true one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import shift
from scipy.signal import fftconvolve

import slir
from slir.psf.blind import estimate_psf

REACH = CUT = 15


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("L")) / 255


def squared_error(restored: np.ndarray, truth: np.ndarray) -> float:
    """Mean squared error at the best shift."""
    restored, inner = np.clip(restored, 0, 1), truth[CUT:-CUT, CUT:-CUT]

    def at(down: float, right: float) -> float:
        moved = shift(restored, (-down, -right), order=3, mode="nearest")[CUT:-CUT, CUT:-CUT]
        return float(((moved - inner) ** 2).mean())

    products = fftconvolve(restored, inner[::-1, ::-1], "valid")  # at all shifts from −CUT to CUT
    squares = fftconvolve(restored**2, np.ones(inner.shape), "valid")
    errors = squares - 2 * products
    down, right = (float(each) - CUT for each in np.unravel_index(errors.argmin(), errors.shape))
    best = at(down, right)
    for step in (0.5, 0.25, 0.125):
        for moved in ((step, 0), (-step, 0), (0, step), (0, -step)):
            error = at(down + moved[0], right + moved[1])
            if error < best:
                best, down, right = error, down + moved[0], right + moved[1]
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sigma", type=float, default=0.01, help="noise that both restorations are told, range 1")
    parser.add_argument("--first", type=int, default=None, help="only so many pictures")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", slir.SlirWarning)
    rows = []
    for path in sorted(asked.folder.glob("im*_kernel*_img.png"))[: asked.first]:
        image, kernel = path.stem.split("_")[:2]
        y, truth, psf = (
            picture(each) for each in (path, path.with_name(f"{image}.png"), path.with_name(f"{kernel}.png"))
        )
        started = time.perf_counter()
        estimate = estimate_psf(y, size=max(psf.shape) | 1, kind="shake", data_range=1.0)
        seconds = time.perf_counter() - started
        errors = [
            squared_error(slir.deblur(y, each, sigma=asked.sigma, data_range=1.0), truth)
            for each in (estimate.psf, psf / psf.sum())
        ]
        psnr = [-10 * np.log10(error) for error in errors]
        rows.append((*psnr, errors[0] / errors[1], seconds))
        figures = f"{psnr[0]:6.2f} dB, true kernel {psnr[1]:6.2f} dB, ratio {rows[-1][2]:5.2f}, {seconds:5.1f} s"
        trusted = "trusted" if estimate.found else "not trusted"
        print(f"{path.stem:24} {figures}, confidence {estimate.confidence:.2f}, {trusted}", flush=True)
    estimated, true, ratio, seconds = np.array(rows).T
    shares = ", ".join(f"below {limit}: {100 * (ratio < limit).mean():.0f} %" for limit in (2, 3))
    print(f"mean {estimated.mean():.2f} dB, true kernels {true.mean():.2f} dB, mean ratio {ratio.mean():.2f}, {shares}")
    print(f"median time of an estimate {np.median(seconds):.1f} s")


if __name__ == "__main__":
    main()
