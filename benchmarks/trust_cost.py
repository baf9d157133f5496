"""What errors to expect cost: time and memory of a restoration with them over those of one without. Needs no data.

    python benchmarks/trust_cost.py [--side 256 512] [--rounds 7] [--task denoise]

With and without take turns in one process; the median of the ratios counts, since a shared machine has good and bad
seconds. Memory is the peak of a process of its own for each, in images of float32, with one thread: the median of
three, as what an allocator keeps differs by some megabytes from run to run. Of small pictures it says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch

from slir.compute import peak_memory
from slir.estimator.tiling import restore_tiled
from slir.kernel.shipped import default_model
from slir_bench.probe import case, operator_for

TASKS = ("denoise", "deblur", "upsample", "inpaint")


class Work:
    """A restoration that can be had with errors to expect and without."""

    def __init__(self, task: str, side: int) -> None:
        own = case(task, side)
        self.operator, self.sigma = operator_for(own), own.sigma
        self.model = default_model(self.operator)
        self.y = torch.from_numpy(own.y).float()

    def seconds(self, errors: bool) -> float:
        began = time.perf_counter()
        found = restore_tiled(self.y, self.operator, self.model, sigma=self.sigma, errors=errors)
        assert (found.error is not None) == errors
        return time.perf_counter() - began


def memory(task: str, side: int, errors: bool) -> int:
    """Bytes, in a process of its own."""
    command = [sys.executable, __file__, "--alone", json.dumps([task, side, errors])]
    calm = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    runs = (subprocess.run(command, check=True, capture_output=True, env=calm) for _ in range(3))
    return int(statistics.median(int(run.stdout) for run in runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=TASKS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        task, side, errors = json.loads(options.alone)
        Work(task, side).seconds(errors)
        print(peak_memory())
        return
    print(f"{'':<10} {'side':>5} {'without':>9} {'with':>9} {'longer':>8} {'range':>12} {'more memory':>16}")
    for task in options.task:
        for side in options.side:
            work = Work(task, side)
            work.seconds(True)  # imports, plans of FFTs
            pairs = [(work.seconds(False), work.seconds(True)) for _ in range(options.rounds)]
            ratios = sorted(100 * (own / bare - 1) for bare, own in pairs)
            bare, own = (statistics.median(column) for column in zip(*pairs))
            more = (memory(task, side, True) - memory(task, side, False)) / (4 * side**2)
            times = f"{bare:7.2f} s {own:7.2f} s {statistics.median(ratios):+6.0f} %"
            spread = f"{ratios[0]:+.0f} to {ratios[-1]:+.0f}"
            print(f"{task:<10} {side:>5} {times} {spread:>12} {more:+9.1f} images", flush=True)


if __name__ == "__main__":
    main()
