"""What pictures that fill little of their range lose, and what stretching them (`slir.preprocessing.ranges`) wins.

No data are needed.

    python benchmarks/dim_pictures.py

A picture that nothing was learnt from, as counts of 100 to 900 in a uint16, with `data_range` unsaid: PSNR over these
800 counts of what comes, of what is restored without stretching and with it, and with `data_range` told. Then a sky of
200 to 300 counts beside stars of up to 60,000: the sky alone, and the stars' pixels, over 100 counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch

import slir
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Downsample

Restore = Callable[..., np.ndarray]


def psnr(image: np.ndarray, truth: np.ndarray, white: float) -> float:
    return float(-10 * np.log10(np.mean(np.square((image - truth) / white))))


def unstretched(restore: Restore, *given: Any, **told: Any) -> np.ndarray:
    """The same as if pictures were taken for what their range says they are."""
    as_it_is = mock.Mock(side_effect=lambda frame, *rest, **more: frame)
    with mock.patch("slir.preprocessing.treatment.stretch_range", as_it_is):
        return restore(*given, **told)


def main() -> None:
    warnings.simplefilter("ignore", slir.SlirWarning)
    rng = np.random.default_rng(0)
    picture = demo_picture().mean(-1) / 255
    truth, limits = 100 + 800 * picture, (100.0, 900.0)
    psf, missing = slir.psf.gaussian(1.5), rng.random(picture.shape) < 0.6

    def counts(image: np.ndarray, sigma: float = 0.0) -> np.ndarray:
        return np.rint(image + sigma * rng.standard_normal(image.shape)).clip(0, 65535).astype(np.uint16)

    blurred = Blur(psf, "reflect").forward(torch.from_numpy(truth)).numpy()
    small = Downsample(2).forward(torch.from_numpy(truth)).numpy()
    tasks: dict[str, tuple[Restore, tuple, dict[str, Any], np.ndarray]] = {
        "denoise, sigma 20": (slir.denoise, (counts(truth, 20),), {"sigma": 20}, truth),
        "denoise, sigma 5": (slir.denoise, (counts(truth, 5),), {"sigma": 5}, truth),
        "deblur, sigma 4": (slir.deblur, (counts(blurred, 4), psf), {"sigma": 4, "border": "reflect"}, truth),
        "upsample x2": (slir.upsample, (counts(small), 2), {}, truth),
        "inpaint 60 %": (slir.inpaint, (counts(np.where(missing, 100, truth)), missing), {}, truth),
        "photons": (slir.denoise, (counts(rng.poisson(truth), 3),), {"sigma": "poisson-gaussian"}, truth),
    }
    print(f"{'':<20} {'came':>7} {'as it was':>10} {'stretched':>10} {'told':>7}")
    for name, (restore, given, told, wanted) in tasks.items():
        came = f"{psnr(given[0], wanted, 800):7.2f}" if given[0].shape == wanted.shape else f"{'':>7}"
        black = {"data_range": (0.0, 1000.0) if name == "photons" else limits}
        images = unstretched(restore, *given, **told), restore(*given, **told), restore(*given, **told, **black)
        before, now, said = (psnr(image, wanted, 800) for image in images)
        print(f"{name:<20} {came} {before:10.2f} {now:10.2f} {said:7.2f}", flush=True)
    rows, cols = np.mgrid[: picture.shape[0], : picture.shape[1]]
    sky = 200 + 100 * picture
    for row, col in rng.integers(5, min(sky.shape) - 5, (40, 2)):
        sky = sky + rng.uniform(500, 60_000) * np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 4.5)
    seen, dark = counts(sky, 10), sky < 320
    both = unstretched(slir.denoise, seen, sigma=10), slir.denoise(seen, sigma=10)
    for name, part in (("sky beside stars", dark), ("the stars' pixels", ~dark)):
        came, before, now = (psnr(image[part], sky[part], 100) for image in (seen, *both))
        print(f"{name:<20} {came:7.2f} {before:10.2f} {now:10.2f}")


if __name__ == "__main__":
    main()
