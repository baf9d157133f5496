"""Peak memory of files that do not fit into it: a 16-bit TIFF denoised from disk to disk, one twice as wide, and one
twice as tall.

    python benchmarks/large_file.py FOLDER [--side 10000] [--shape once] [--layout tiles] [--tiles 12]

The files are made in FOLDER: deflated strips, deflated tiles, or one strip that is not compressed. With --tiles each
run ends after so many: memory is the same from the first few on. Fails where a peak is beyond 2 GB, or 5 % above the
first one: as much as it varies from run to run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

BAND = 256
SHAPES = {"once": (1, 1), "wide": (1, 2), "tall": (2, 1)}
LAYOUTS = ("strips", "tiles", "plain")
MOST, VARIES = 2e9, 1.05


class EnoughError(Exception):
    """So many tiles as were asked for are done."""


def make(path: Path, height: int, width: int, layout: str = "strips") -> None:
    """Waves and noise, band by band."""
    import tifffile

    from slir import io
    from slir.io import Head, Picture

    rng = np.random.default_rng(0)
    waves = np.add.outer(np.sin(np.arange(BAND) / 9), np.cos(np.arange(width) / 13)).astype(np.float32)

    def bands() -> Iterator[tuple[int, np.ndarray]]:
        for top in range(0, height, BAND):
            noise = 1_500 * rng.standard_normal(waves.shape, np.float32)
            yield top, (30_000 + 8_000 * waves + noise).clip(0, 65_535).astype(np.uint16)[: height - top]

    part = path.with_suffix(".part.tif")
    if layout == "plain":
        whole = tifffile.memmap(part, shape=(height, width), dtype=np.uint16)
        for top, rows in bands():
            whole[top : top + len(rows)] = rows
        whole.flush()
    elif layout == "tiles":
        tiles = (rows[:, left : left + BAND] for _, rows in bands() for left in range(0, width, BAND))
        with tifffile.TiffWriter(part) as file:
            file.write(tiles, shape=(height, width), dtype=np.uint16, compression="zlib", tile=(BAND, BAND))
    else:
        with io.create(part, Head(size=(height, width), dtype=np.dtype(np.uint16), data_range=65535.0)) as sink:
            for top, rows in bands():
                sink.write(Picture(rows, data_range=65535.0), rows=slice(top, top + len(rows)))
    part.rename(path)


def restore(path: Path, tiles: int | None) -> None:
    """In a process of its own, whose peak is then that of the restoration. One line of JSON on stdout."""
    from slir import io
    from slir.compute import peak_memory
    from slir.files.jobs import Job, run
    from slir.problem import Problem

    start = time.perf_counter()

    def told(done: int, total: int) -> None:
        found = {"done": done, "total": total, "seconds": time.perf_counter() - start, "peak": peak_memory()}
        print(json.dumps(found), flush=True)

    seen = [0]

    def tell(done: int, total: int, what: str) -> None:
        seen[0] = total
        if tiles is not None and done == tiles < total:
            told(done, total)
            raise EnoughError

    output = path.with_name(f"denoised-{path.name}")
    try:
        run(Job(Problem("denoise", sigma=1500.0), path, output), sidecar=False, progress=tell)
    except EnoughError:
        return
    told(seen[0], seen[0])
    with io.open_source(path) as before, io.open_source(output) as after:
        assert (before.size, before.dtype) == (after.size, after.dtype)
        corner = slice(before.size[0] - 500, None), slice(before.size[1] - 500, None)
        rough, smooth = (source.read(0, *corner).pixels.astype(float) for source in (before, after))
        assert np.diff(smooth).std() < np.diff(rough).std() / 2  # to the last tile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=10_000)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="may be given more than once; all by default")
    parser.add_argument("--layout", choices=LAYOUTS, default="strips")
    parser.add_argument("--tiles", type=int, default=None)
    parser.add_argument("--only", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        restore(options.only, options.tiles)
        return 0
    peaks = []
    for down, across in (SHAPES[name] for name in options.shape or SHAPES):
        height, width = down * options.side, across * options.side
        path = options.folder / f"{width}x{height}-{options.layout}.tif"
        if not path.exists():
            make(path, height, width, options.layout)
        command = [sys.executable, __file__, str(options.folder), "--only", str(path)]
        command += [] if options.tiles is None else ["--tiles", str(options.tiles)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
        peaks.append(found["peak"])
        tiles = f"{found['done']} of {found['total']} tiles in {found['seconds']:.0f} s"
        print(f"{width} × {height}, {options.layout}: {tiles}, peak {peaks[-1] / 1e6:.0f} MB", flush=True)
    print(f"the largest peak is {max(peaks) / peaks[0]:.3f} of the first")
    return int(max(peaks) > MOST or max(peaks) > VARIES * peaks[0])


if __name__ == "__main__":
    sys.exit(main())
