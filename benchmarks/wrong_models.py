"""How often a wrong forward model is told, and a right one suspected (`slir.trust.forward`).

    python benchmarks/wrong_models.py DATA [--device cuda]      DATA holds bsd68 and kernels (docs/benchmark.md)

Deblurring as in the paper's protocol (kernels 1 and 2, σ = 0.01, 8 bits) and denoising at 15, 25 and 50, each told the
truth, half of σ and twice σ; deblurring also told the kernel 30 % wider and 30 % narrower. A case counts as detected
when the verdict is "not right"; "named" counts those where it also names this very fault. --training takes images of
bsds_train and random kernels of its own instead: limits were set there, never on the test images.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.signal import fftconvolve
from torch import Tensor

from slir import psf as psfs
from slir.estimator.loop import restore
from slir.kernel.shipped import default_model
from slir.operators import Blur, Identity, Operator
from slir.trust.forward import ForwardCheck, judge
from slir_bench.files import KERNELS, grey, list_images, load_kernel

SIGMA, LEVELS = 0.01, (15, 25, 50)
TOLD = {"the truth": (1.0, 1.0), "half of sigma": (0.5, 1.0), "twice sigma": (2.0, 1.0)}
TOLD_BLUR = {**TOLD, "30 % too wide": (1.0, 1.3), "30 % too narrow": (1.0, 0.7)}
NAMES = {
    "half of sigma": "sigma too small",
    "twice sigma": "sigma too large",
    "30 % too wide": "psf too wide",
    "30 % too narrow": "psf too narrow",
}


def stretched(psf: np.ndarray, scale: float) -> np.ndarray:
    """The PSF `scale` times as wide about its centre: every tap a square of that side, shared out by area."""

    def shares(size: int) -> np.ndarray:
        half = int(np.ceil(scale * size / 2 - 0.5))
        pixels, taps = np.arange(-half, half + 1)[:, None], (np.arange(size) - (size - 1) / 2) * scale
        overlap = np.minimum(pixels + 0.5, taps + scale / 2) - np.maximum(pixels - 0.5, taps - scale / 2)
        return overlap.clip(0)

    wider = shares(psf.shape[0]) @ psf @ shares(psf.shape[1]).T
    return wider / wider.sum()


def noise(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).numpy()


def kernels(data: Path, seed: int, training: bool) -> Iterator[tuple[str, np.ndarray]]:
    if training:
        yield "a shake", psfs.camera_shake(10 + seed % 9, seed, softness=0.3)
    else:
        for name in KERNELS:
            yield name, np.asarray(load_kernel(data, name), np.float64)


def cases(data: Path, training: bool, every: int) -> Iterator[tuple[str, str, Tensor, Operator, float]]:
    """Task, what is told, y, the operator and σ that are told."""
    for seed, path in list(enumerate(list_images(data, "bsds_train" if training else "bsd68")))[::every]:
        clean = grey(path)
        for name, psf in kernels(data, seed, training):
            blurred = fftconvolve(clean.astype(np.float64), psf, mode="valid").astype(np.float32)
            y = torch.from_numpy(((blurred + SIGMA * noise(blurred.shape, seed)) * 255).round().clip(0, 255) / 255)
            for told, (share, scale) in TOLD_BLUR.items():
                kernel = psf if scale == 1 else stretched(psf, scale)
                yield f"deblurring, {name}", told, y.float(), Blur(kernel), share * SIGMA
        for level in LEVELS:
            y = torch.from_numpy(clean + np.float32(level / 255) * noise(clean.shape, seed)).float()
            for told, (share, _) in TOLD.items():
                yield f"denoising, {level}", told, y, Identity(), share * level / 255


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="every n-th image alone")
    parser.add_argument("--training", action="store_true", help="training images and other kernels")
    parser.add_argument("--list", action="store_true", help="also each case that was not judged rightly")
    options = parser.parse_args()
    device = torch.device(options.device)
    checks: dict[tuple[str, str], list[ForwardCheck]] = defaultdict(list)
    restoring = judging = 0.0
    for task, told, y, operator, sigma in cases(options.data, options.training, options.every):
        started = time.perf_counter()
        x = restore(y.to(device), operator, default_model(operator).to(device), sigma=sigma).x
        middle = time.perf_counter()
        check = judge(y.to(device), operator, x, sigma, span=255)
        restoring, judging = restoring + middle - started, judging + time.perf_counter() - middle
        checks[task, told].append(check)
        if options.list and check.right != (told == "the truth"):
            print(task, told, f"number {len(checks[task, told])}:", check)
    print(f"{'task':24}{'told':18}{'detected':>10}{'named':>8}{'n':>6}")
    for (task, told), found in checks.items():
        detected = sum(not check.right for check in found) / len(found)
        named = sum(NAMES.get(told) in check.faults for check in found) / len(found)
        print(f"{task:24}{told:18}{detected:10.1%}{named:8.1%}{len(found):6}")
    print(f"judging took {judging / restoring:.1%} of the time of restoring", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
