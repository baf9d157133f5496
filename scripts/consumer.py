"""A program that uses slir as people do. `check_wheel.py` type-checks it against the wheel, strictly, and runs it.

Run in an empty folder; it leaves noisy.png there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

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
    try:
        slir.upsample(image, 0)
    except slir.InputError as error:
        argument: str = error.argument
        assert argument == "factor"


def files() -> None:
    path = Path("noisy.png")
    write(path, Picture(noisy(64)))
    assert read(path).pixels.shape == (64, 64)


if TYPE_CHECKING:
    slir.denoize  # type: ignore[attr-defined]  # noqa: B018  # a misspelt name is found


if __name__ == "__main__":
    main()
    files()
