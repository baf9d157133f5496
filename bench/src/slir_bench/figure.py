"""The appendix's figure: how much the central patch of an image looks like all others, at the first HQS iterations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from slir.fitting import paper_model
from slir.io import Picture, write
from slir.operators import Blur
from slir.pictures import heatmap, side_by_side
from slir.theory import bank_correlation, correlation_map
from slir_bench.files import load_kernel
from slir_bench.protocols import DEBLUR_SIGMA, train_images
from slir_bench.results import write_whole

SIDE = 101
"""Side of y, as in the paper."""

Report = Callable[[int, int, str], None]


def correlation_figure(
    data: Path, out: Path, *, images: int = 30, m: int = 1000, progress: Report | bool = False
) -> dict[str, float]:
    """Write correlation.png and correlation.csv (one map after the other) to `out`; return what they amount to.

    Kernel 1 and 1 % noise, like the paper; crops of training images that the bank was not cut from. The largest and
    the mean correlation are taken outside a 5×5 window around the centre, where the paper claims less than 6 % at the
    first iteration and less than 1 % after it.
    """
    say = progress if callable(progress) else (lambda done, total, what: None)
    psf = load_kernel(data, "kernel 1").astype(np.float64)
    operator = Blur(psf / psf.sum())
    grey = [torch.from_numpy(image) for image in train_images(data, images + 4)]
    side = min(SIDE + psf.shape[0] - 1, *(min(image.shape) for image in grey))
    crops = [_middle(image, side) for image in grey[4:]]
    model = paper_model([image.numpy() for image in grey[:4]], operator, DEBLUR_SIGMA, m=m)
    say(0, 2, "correlation")
    maps = np.asarray(correlation_map(crops, operator, DEBLUR_SIGMA, model, iterations=3))
    say(1, 2, "correlation")
    found = bank_correlation(crops, operator, DEBLUR_SIGMA, m=m)
    say(2, 2, "correlation")
    out.mkdir(parents=True, exist_ok=True)
    labels = [f"iteration {t + 1}" for t in range(len(maps))]
    enlarged = [heatmap(one, low=0.0, high=0.12).repeat(3, 0).repeat(3, 1) for one in maps]
    write(out / "correlation.png", Picture(side_by_side(enlarged, labels=labels), channel_axis=-1))
    rows = "\n".join(",".join(f"{value:.6f}" for value in row) for one in maps for row in one)
    write_whole(out / "correlation.csv", rows.encode())
    result = {"q": found.q, "q error": found.error, "patches": float(found.patches)}
    centre = maps.shape[1] // 2
    for label, one in zip(labels, maps):
        outside = np.ones(one.shape, bool)
        outside[centre - 2 : centre + 3, centre - 2 : centre + 3] = False
        result[f"{label}: largest outside 5×5"] = float(one[outside].max())
        result[f"{label}: mean outside 5×5"] = float(one[outside].mean())
    return result


def _middle(image: torch.Tensor, side: int) -> torch.Tensor:
    row, col = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    return image[row : row + side, col : col + side].contiguous()
