"""Kills a batch at 50 random moments and looks at what is left: whole outputs, and a rerun that makes what is missing.

    python benchmarks/kill_batch.py [KILLS]

Each time the real command restores a folder, in a process of its own that is killed (SIGKILL) somewhere between its
start and its end; every fifth time with two workers. Then it runs again with --skip-existing. Prints one line a kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes are forked from this one, which must have no threads

import numpy as np

import slir
from slir import io
from slir.cli import app

IMAGES, SIDE = 12, 24
FILE = 0.15
"""Seconds that a file takes, about: a kill comes within that time after as many files as chance says."""


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    slir.denoise(np.zeros((32, 32), np.uint8), sigma=5)  # loads the model, once for all the processes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        (folder / "in").mkdir()
        for number in range(IMAGES):
            pixels = rng.integers(60, 190, (SIDE, SIDE)).astype(np.uint8)
            io.write(folder / "in" / f"{number:02}.png", io.Picture(pixels))
        for workers in (1, 2):
            os.waitpid(start(folder, f"whole{workers}", workers), 0)
        wanted = outputs(folder / "whole1")
        assert len(wanted) == IMAGES
        assert wanted == outputs(folder / "whole2"), "the number of workers changes the result"
        moments = random.Random(0)
        for number in range(kills):
            workers = 2 if number % 5 == 4 else 1
            left = one(folder, f"out{number}", workers, moments, wanted)
            print(
                f"kill {number + 1:2}: {workers} worker(s), {left:2} of {IMAGES} whole, the rest made again", flush=True
            )
    print(f"{kills} kills: no output was damaged, nothing was missing or made twice in the end")


def one(folder: Path, name: str, workers: int, moments: random.Random, wanted: dict[str, bytes]) -> int:
    """Kill a run, check, run again, check. How many outputs were there in between."""
    process = start(folder, name, workers)
    enough = moments.randrange(IMAGES)
    while len(outputs(folder / name)) < enough:
        time.sleep(0.001)
    time.sleep(moments.uniform(0, FILE))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    time.sleep(0.2 if workers > 1 else 0)  # workers notice within moments that their parent is gone
    out = folder / name
    left = outputs(out)
    assert all(contents == wanted[file] for file, contents in left.items()), "a damaged output"
    stamps = {file: (out / file).stat().st_mtime_ns for file in left}
    os.waitpid(start(folder, name, 1), 0)
    summary = json.loads((folder / f"{name}.log").read_text().splitlines()[-1])["summary"]
    assert (summary["restored"], summary["skipped"], summary["failed"]) == (IMAGES - len(left), len(left), 0), summary
    assert outputs(out) == wanted, "an output is missing or damaged"
    assert {file: (out / file).stat().st_mtime_ns for file in left} == stamps, "an output was made twice"
    assert len(list(out.iterdir())) == 2 * IMAGES, "something is left over"
    return len(left)


def start(folder: Path, name: str, workers: int) -> int:
    """The command in a process of its own, its stdout in a file."""
    process = os.fork()
    if process:
        return process
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    words = ["denoise", str(folder / "in"), "-o", str(folder / name), "--sigma", "5", "--jobs", str(workers)]
    try:
        app([*words, "--skip-existing", "--json"], prog_name="slir")
    finally:
        sys.stdout.flush()
        os._exit(0)


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*.png")} if folder.exists() else {}


if __name__ == "__main__":
    main()
