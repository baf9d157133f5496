"""Peak memory of files that do not fit into it: a 16-bit TIFF denoised from disk to disk, and one twice as wide.

    python benchmarks/large_file.py FOLDER [--side 10000] [--tiles 12] [--brief]

Both files are made in FOLDER. A hundred megapixels take half an hour on two cores. With --tiles each run ends after so
many: memory is the same from the first few on. With --brief the first stage of the cascade restores alone, which is
quick enough for a run to the end; that checks the output too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

BAND = 250


def make(path: Path, height: int, width: int) -> None:
    """Waves and noise, deflated, band by band."""
    from slir import io
    from slir.io import Head, Picture

    rng = np.random.default_rng(0)
    waves = np.add.outer(np.sin(np.arange(BAND) / 9), np.cos(np.arange(width) / 13))
    with io.create(path, Head(size=(height, width), dtype=np.dtype(np.uint16), data_range=65535.0)) as sink:
        for top in range(0, height, BAND):
            rows = (30_000 + 8_000 * waves + rng.normal(0, 1_500, waves.shape)).clip(0, 65_535).astype(np.uint16)
            rows = rows[: height - top]
            sink.write(Picture(rows, data_range=65535.0), rows=slice(top, top + len(rows)))


def brief_model(path: Path) -> Path:
    """The first stage of the cascade that ships."""
    from slir.defaults import shipped_model

    model = shipped_model("denoise")
    replace(model, stages=(replace(model.stages[0], level=0.0),)).save(str(path))
    return path


def restore(path: Path, tiles: int | None, brief: bool) -> None:
    """In a process of its own, whose peak is then that of the restoration. One line on stdout."""
    from slir import io
    from slir.jobs import Job, run

    start = time.perf_counter()

    def told(done: int, total: int, ended: bool) -> str:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return f"{done} of {total} tiles in {time.perf_counter() - start:.0f} s, peak {peak:.0f} MB" + ended * ", done"

    seen = [0]

    def tell(done: int, total: int, what: str) -> None:
        seen[0] = total
        if tiles is not None and done == tiles < total:
            print(told(done, total, False), flush=True)
            os._exit(0)  # what was written so far is of no use

    output = path.with_name(f"denoised-{path.name}")
    model = brief_model(path.with_name("brief.safetensors")) if brief else None
    run(Job("denoise", path, output, sigma=1500.0, model=model), sidecar=False, progress=tell)
    print(told(seen[0], seen[0], True))
    with io.open_source(path) as before, io.open_source(output) as after:
        assert (before.size, before.dtype) == (after.size, after.dtype)
        corner = slice(before.size[0] - 500, None), slice(before.size[1] - 500, None)
        rough, smooth = (source.read(0, *corner).pixels.astype(float) for source in (before, after))
        assert np.diff(smooth).std() < np.diff(rough).std() / 2  # to the last tile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=10_000)
    parser.add_argument("--tiles", type=int, default=None)
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--only", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        restore(options.only, options.tiles, options.brief)
        return 0
    for width in (options.side, 2 * options.side):
        path = options.folder / f"{width}x{options.side}.tif"
        if not path.exists():
            make(path, options.side, width)
        command = [sys.executable, __file__, str(options.folder), "--only", str(path)]
        command += [] if options.tiles is None else ["--tiles", str(options.tiles)]
        command += ["--brief"] if options.brief else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"{width} × {options.side}: {done.stdout.strip()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
