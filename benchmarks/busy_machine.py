"""How much slower a restoration is beside other work, over the share of the machine that is left. Needs no data.

    python benchmarks/busy_machine.py [--side 256] [--loops 1] [--threads 2 1] [--task denoise] [--rounds 5]

The same restoration alone and beside processes that compute without end, in turns, in one process; the median of the
ratios counts, since a shared machine has good and bad seconds. Processor seconds say how long threads spun.
No "times share" may be above 2. With GOMP_SPINCOUNT=300000, libgomp's own default, in the environment it shows what
threads that spin while they wait cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from slir.estimator.tiling import restore_tiled
from slir.kernel.shipped import default_model
from slir_bench.probe import case, operator_for

TASKS = ("denoise", "deblur", "upsample", "inpaint")
BAR = 2.0


class Work:
    """A restoration on a number of threads."""

    def __init__(self, task: str, side: int, threads: int) -> None:
        import torch  # here, so that slir says first how threads wait

        torch.set_num_threads(threads)
        own = case(task, side)
        self.operator, self.sigma = operator_for(own), own.sigma
        self.model = default_model(self.operator)
        self.y = torch.from_numpy(own.y).float()

    def seconds(self) -> tuple[float, float]:
        """By the clock, and of the processors."""
        began, used = time.perf_counter(), time.process_time()
        restore_tiled(self.y, self.operator, self.model, sigma=self.sigma)
        return time.perf_counter() - began, time.process_time() - used


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that compute without end."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        time.sleep(0.5)  # they start
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--loops", type=int, default=1, help="fewer than the machine has cores")
    parser.add_argument("--threads", type=int, nargs="+", default=[cores()])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=TASKS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not 0 < options.loops < cores():
        parser.error(f"--loops must be at least 1 and fewer than the {cores()} cores, but it is {options.loops}.")
    left = 1 - options.loops / cores()
    print(f"{'':<9} threads     alone    beside  CPU alone, beside  slower        range  times share")
    worst = 0.0
    for task in options.task:
        for threads in options.threads:
            work, pairs = Work(task, options.side, threads), []
            work.seconds()  # imports, plans of FFTs
            for _ in range(options.rounds):
                alone = work.seconds()
                with busy(options.loops):
                    pairs.append((alone, work.seconds()))
            ratios = sorted(beside[0] / alone[0] for alone, beside in pairs)
            slower, spread = statistics.median(ratios), f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
            alone, beside = ([statistics.median(column) for column in zip(*times)] for times in zip(*pairs))
            times = f"{alone[0]:7.2f} s {beside[0]:7.2f} s {alone[1]:8.2f} s {beside[1]:6.2f} s"
            print(f"{task:<9} {threads:>7} {times} {slower:>7.2f} {spread:>12} {slower * left:>12.2f}", flush=True)
            worst = max(worst, slower * left)
    sys.exit(0 if worst <= BAR else 1)


if __name__ == "__main__":
    main()
