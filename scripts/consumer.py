"""A program that uses slir as people do. `check_wheel.py` type-checks it against the wheel, strictly, and runs it.

Run in an empty folder; it leaves files there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

import slir
from slir.io import Picture, read, write


def noisy(side: int) -> npt.NDArray[np.uint8]:
    """Squares with noise of 20 grey levels."""
    rows, cols = np.mgrid[:side, :side]
    clean = 60 + 120 * ((rows // 12 + cols // 12) % 2)
    grain = np.random.default_rng(0).normal(0, 20, clean.shape)
    image: npt.NDArray[np.uint8] = np.clip(np.rint(clean + grain), 0, 255).astype(np.uint8)
    return image


def spread(image: npt.NDArray[np.uint8]) -> float:
    """The noise within the squares."""
    return float(np.median([image[i : i + 8, j : j + 8].std() for i in range(2, 60, 12) for j in range(2, 60, 12)]))


def main() -> None:
    image = noisy(64)
    restored: npt.NDArray[np.uint8] = slir.denoise(image, sigma=20)
    assert restored.shape == image.shape
    assert restored.dtype == image.dtype
    assert spread(restored) < 0.3 * spread(image), "the noise is still there"

    blur: slir.operators.Operator = slir.operators.Blur(slir.psf.gaussian(1.5, 9))
    assert slir.operators.adjoint_error(blur, (24, 24)) < 1e-4
    found: float = slir.noise.estimate_sigma(image)
    assert 15 < found < 25, found
    try:
        slir.upsample(image, 0)
    except slir.InputError as error:
        argument: str = error.argument
        assert argument == "factor"


def tasks() -> None:
    """Every task, by its array and by its `Result`; tensors give tensors."""
    image = noisy(48)
    psf: npt.NDArray[np.float64] = slir.psf.gaussian(1.0)
    missing = np.zeros((48, 48), bool)
    missing[10:20, 10:20] = True
    arrays: list[npt.NDArray[np.uint8]] = [
        slir.deblur(image, psf, sigma=20),
        slir.upsample(image, 1.5, sigma=20),
        slir.inpaint(image, missing, sigma=20),
        slir.restore(image, slir.operators.Mask(missing) @ slir.operators.Blur(psf), sigma=20.0),
    ]
    assert [array.shape for array in arrays] == [(48, 48), (72, 72), (48, 48), (48, 48)]
    tensor: torch.Tensor = slir.denoise(torch.from_numpy(image), sigma=20)
    assert tensor.dtype == torch.uint8
    result = slir.denoise(image, sigma=20, return_info=True)
    low, high = result.interval(0.9)
    error = result.error_map
    assert error is not None
    assert low.shape == high.shape == error.shape == image.shape
    assert result.calibrated == ""
    weights: npt.NDArray[np.float64] = np.asarray(result.explain(20, 20, k=4).weights)
    assert len(weights) == 4


def own_pictures() -> None:
    """A model that is fitted to pictures, calibrated, saved and loaded."""
    pictures = [noisy(64), noisy(96)]
    model: slir.Model = slir.fit(pictures, task="denoise", sigma=0.08, crops=2, cells=4)
    model.save("own.safetensors")
    again: slir.Model = slir.load("own.safetensors")
    restored: npt.NDArray[np.uint8] = slir.denoise(noisy(64), sigma=20, model=again, data_range=255)
    assert restored.shape == (64, 64)


def files() -> None:
    path = Path("noisy.png")
    write(path, Picture(noisy(64)))
    assert read(path).pixels.shape == (64, 64)


if TYPE_CHECKING:
    slir.denoize  # type: ignore[attr-defined]  # noqa: B018  # a misspelt name is found


if __name__ == "__main__":
    main()
    tasks()
    own_pictures()
    files()
