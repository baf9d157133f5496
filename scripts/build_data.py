"""Rebuild what slir ships, bit for bit, from the freely licensed photographs listed in src/slir/data/PROVENANCE.md.

    python scripts/build_data.py FOLDER            writes src/slir/data/
    python scripts/build_data.py FOLDER --check    says whether the files there are what FOLDER gives

FOLDER holds the photographs as PNG and WebP files. Each is hashed and compared with the list below before it is used,
so a picture that differs by one byte is an error and not another bank.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save

DATA = Path(__file__).resolve().parent.parent / "src" / "slir" / "data"
SIDE = 384
GREY = (0.299, 0.587, 0.114)

# name: the first 16 hex digits of the file's SHA-256
LEARNT_FROM = {
    "abstract-spiral": "ae73619430b57c3a",
    "beacon-street-sunset": "f98b1aab7457dbd0",
    "casa-mila": "e09c3170145dbd34",
    "extreme-desert-hike": "b66dd3e916c47234",
    "high-trestle-trail": "d36a983c5d1255d2",
    "lake-sherburne": "20f49ce9405bb95c",
    "perched-osprey": "b0ebd148c38d2351",
    "piazza-gae-aulenti": "411d73b404b17a9d",
    "seeding": "82e39111f2cc60ba",
    "singaporean-cityscape": "070802ba48836461",
    "sunning-anhinga": "2b1832c5408be410",
    "tea-gardens": "f3c243e113a40e8c",
    "the-spices-of-life": "097b887a861a31a4",
}
DEMO = ("purple-dream", (330, 440), 256)  # name, first row and column, side
DEMO_HASH = "8b48ab3401124239"


def read(folder: Path, name: str) -> np.ndarray:
    """The photograph as uint8 (H, W, 3), checked against its hash."""
    path = folder / (f"{name}.png" if name in LEARNT_FROM else f"{name}.webp")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    expected = LEARNT_FROM.get(name, DEMO_HASH)
    if digest != expected:
        raise SystemExit(f"{path}: its SHA-256 begins {digest}, but {expected} is expected. Get the original file.")
    return np.asarray(Image.open(path).convert("RGB"))


def grey(picture: np.ndarray) -> np.ndarray:
    return np.rint(picture.astype(np.float64) @ np.array(GREY)).astype(np.uint8)


def liveliest(picture: np.ndarray, side: int) -> np.ndarray:
    """The side × side crop with the largest sum of squared differences, searched on a grid of 32 pixels.

    Flat sky teaches little; the crop that changes most holds the edges and textures.
    """
    values = picture.astype(np.int64)
    energy = np.zeros(picture.shape, np.int64)
    energy[:-1] += (values[1:] - values[:-1]) ** 2
    energy[:, :-1] += (values[:, 1:] - values[:, :-1]) ** 2
    sums = np.pad(energy.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    best, where = -1, (0, 0)
    for i in range(0, picture.shape[0] - side + 1, 32):
        for j in range(0, picture.shape[1] - side + 1, 32):
            total = sums[i + side, j + side] - sums[i, j + side] - sums[i + side, j] + sums[i, j]
            if total > best:
                best, where = int(total), (i, j)
    i, j = where
    return np.ascontiguousarray(picture[i : i + side, j : j + side])


def build(folder: Path) -> dict[str, bytes]:
    """File name -> contents of all that is shipped."""
    crops = np.stack([liveliest(grey(read(folder, name)), SIDE) for name in LEARNT_FROM])
    name, (row, column), side = DEMO
    demo = np.ascontiguousarray(read(folder, name)[row : row + side, column : column + side])
    # One entry of metadata each: the format keeps no order among several, and the files are to be the same every time.
    return {
        "pictures.safetensors": save({"pictures": crops}, metadata={"names": ",".join(LEARNT_FROM)}),
        "demo.safetensors": save({"picture": demo}, metadata={"names": name}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    for name, contents in build(arguments.folder).items():
        path = DATA / name
        if arguments.check:
            same = path.exists() and path.read_bytes() == contents
            print(f"{path.name}: {'identical' if same else 'DIFFERENT'}")
            if not same:
                sys.exit(1)
        else:
            path.write_bytes(contents)
            print(f"{path.name}: {len(contents)} bytes")


if __name__ == "__main__":
    main()
