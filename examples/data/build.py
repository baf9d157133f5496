"""Cut the pictures of the gallery out of the freely licensed photographs that README.md beside this file lists.

python examples/data/build.py            writes them here; scikit-image has to be installed
python examples/data/build.py --check    says whether the pictures here are the ones that would be written
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

HERE = Path(__file__).resolve().parent
SCIKIT_IMAGE = {  # name here: name there, first row and column, height and width
    "rocket": ("rocket", (107, 170), (320, 400)),
    "cat": ("chelsea", (0, 25), (300, 400)),
    "astronaut": ("astronaut", (0, 136), (240, 240)),
    "coffee": ("coffee", (0, 170), (300, 300)),
    "galaxies": ("hubble_deep_field", (400, 560), (320, 320)),
}


def pictures() -> dict[str, np.ndarray]:
    """Name -> (H, W, 3) uint8; the galaxies, which stand for one filter of a telescope, (H, W)."""
    cut = {name: _crop(getattr(skimage.data, spec[0])(), *spec[1:]) for name, spec in SCIKIT_IMAGE.items()}
    return cut | {"galaxies": np.rint(cut["galaxies"].mean(axis=-1)).astype(np.uint8)}


def _crop(picture: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    (row, column), (height, width) = corner, size
    return picture[row : row + height, column : column + width]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for name, pixels in pictures().items():
        path = HERE / f"{name}.png"
        if not arguments.check:
            Image.fromarray(pixels).save(path, optimize=True)
        same = path.exists() and np.array_equal(np.asarray(Image.open(path)), pixels)
        print(f"{path.name}: {'as it should be' if same else 'DIFFERENT'}")
        if not same:
            sys.exit(1)


if __name__ == "__main__":
    main()
