"""Rebuild the cascades that slir ships from the freely licensed photographs listed in src/slir/data/PROVENANCE.md.

    python scripts/build_models.py FOLDER [--only deblur] [--device cuda]      writes src/slir/models/

FOLDER holds the photographs as PNG files, checked against the hashes in scripts/build_data.py. Each is learnt from as
it is and at half its size, which sharpens it. On a CPU the same machine gives the same files; a GPU sums in another
order each time, so last bits differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from build_data import LEARNT_FROM, grey, read

from slir.families import AnyBlur, AnyDownsampling, AnyMask, Family, Noise
from slir.fitting import NOISE
from slir.learning import fit_cascade
from slir.plans import cascade_plan

MODELS = Path(__file__).resolve().parent.parent / "src" / "slir" / "models"
TOLERANCES = (2e-4, 5e-4, 1e-3, 2e-3)
"""What low ranks may lose, per pixel and in squared units: the first that makes the file small enough is taken."""

CAUTION = {"denoise": 1.08, "deblur": 1.45}
"""By how much σ is overstated while learning: the photographs are smoother than most (docs/experiments.md)."""

DOUBT = {"deblur": 0.6}
"""By what share σ is misstated either way: a blurry picture seldom comes with a σ that is right."""

GRAIN = tuple(level / 255 for level in (0, 0.5, 1, 1.5, 2, 3))
"""What pictures in use have and these photographs, which were reduced, do not (docs/experiments.md)."""

MOST_GRAIN = {"upsample2": 0.5 / 255, "upsample3": 3 / 255, "upsample4": 3 / 255}
"""As much as makes intervals hold on other pictures; 2 / 255 for the rest. In upsampling grain is most of the error in
flat places."""

LARGEST = 10.0e6
"""Bytes of a file. Together they stay below 40 MB."""

FAMILIES: dict[str, Family] = {
    "denoise": Noise(*NOISE),
    "deblur": AnyBlur(),
    "upsample2": AnyDownsampling(2),
    "upsample3": AnyDownsampling(3),
    "upsample4": AnyDownsampling(4),
    "inpaint": AnyMask(),
}


def halved(picture: np.ndarray) -> np.ndarray:
    """Means of 2×2 pixels."""
    rows, cols = picture.shape[0] // 2, picture.shape[1] // 2
    blocks = picture[: 2 * rows, : 2 * cols].reshape(rows, 2, cols, 2).astype(np.float64)
    return np.rint(blocks.mean((1, 3))).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=MODELS)
    parser.add_argument("--crops", type=int, default=520)
    parser.add_argument("--side", type=int, default=192)
    parser.add_argument("--cells", type=int, default=128)
    options = parser.parse_args()
    whole = [grey(read(options.folder, name)) for name in sorted(LEARNT_FROM)]
    pictures = [*whole, *map(halved, whole)]
    names = [Path(name).stem for name in sorted(LEARNT_FROM)]
    for name in options.only:
        started = time.perf_counter()
        grain = tuple(level for level in GRAIN if level <= MOST_GRAIN.get(name, 2 / 255))
        misstated = {"caution": CAUTION.get(name, 1.0), "doubt": DOUBT.get(name, 0.0), "grain": grain}
        plan = replace(cascade_plan(FAMILIES[name], cells=options.cells), **misstated)

        def tell(done: int, total: int, what: str, name: str = name, started: float = started) -> None:
            print(f"{name}: {what} ({done}/{total}, {time.perf_counter() - started:.0f} s)", flush=True)

        model = fit_cascade(
            pictures,
            FAMILIES[name],
            plan=plan,
            groups=[*range(len(whole)), *range(len(whole))],
            names=[*names, *(f"{name}, halved" for name in names)],
            crops=options.crops,
            side=options.side,
            device=options.device,
            progress=tell,
        )
        path = options.out / f"{name}.safetensors"
        for tolerance in TOLERANCES:
            model.save(str(path), tolerance=tolerance, half=True)
            if path.stat().st_size <= LARGEST:
                break
        size = f"{path.stat().st_size / 1e6:.1f} MB at tolerance {tolerance:g}"
        print(f"{name}: {size}, held out {model.provenance['held_out_psnr']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
