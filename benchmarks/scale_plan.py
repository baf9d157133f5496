"""What an archive costs on a cluster, from what `benchmarks/cluster.py` measured, and where more workers stop helping.

    python benchmarks/scale_plan.py FOLDER/cluster.json [--petabytes 1] [--by tile|file] [--image-gigabytes 2] ...

Tasks are drawn from the measured times of tiles. A central scheduler hands them out one at a time, each at a serial
cost; of tiles, the client that puts them together costs more. Tasks read and write through a shared store of limited
bandwidth; workers are lost at a rate, and with each the task that it had in hand. `--by tile` submits every tile as a
task, as `slir --cluster` does for one large file; `--by file` submits every file, as it does for many. Prices and
bandwidths are assumptions: give your own.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WORKERS = (1, 2, 10, 100, 1_000, 10_000, 100_000)


@dataclass(frozen=True)
class Cluster:
    """Measured: seconds of each tile; pixels that it answers for; serial: seconds of scheduler or client for a
    task; between: other seconds that a worker waits between tasks; read, written: bytes of a tile.
    Assumed: bandwidth of the store, bytes a second; lost: workers lost an hour, each; price of a core-hour."""

    seconds: np.ndarray
    pixels: float
    serial: float
    between: float
    read: float
    written: float
    bandwidth: float
    lost: float
    price: float

    def task(self, tiles: float) -> float:
        """Seconds that a worker is at a task of so many tiles."""
        return tiles * float(self.seconds.mean()) + self.between


def main() -> None:
    asked = arguments()
    cluster = measured(json.loads(Path(asked.measured).read_text()), asked)
    total = asked.petabytes * 1e15 / 2  # pixels of 16 bits
    tiles = total / cluster.pixels
    each = 1.0 if asked.by == "tile" else asked.image_gigabytes * 1e9 / 2 / cluster.pixels
    hours = tiles / each * cluster.task(each) / 3600
    print(f"{asked.petabytes:g} PB = {total:.3g} pixels = {tiles:.3g} tiles of {cluster.pixels / 1e6:.2f} megapixels")
    print(f"core-hours {hours:.3g}, price {hours * cluster.price:.3g} at {cluster.price:g} a core-hour")
    moved = tiles * (cluster.read + cluster.written)
    days = moved / cluster.bandwidth / 86400
    print(f"through the store {moved / 1e15:.3g} PB; at {cluster.bandwidth / 1e9:g} GB/s {days:.3g} days")
    task = "a tile" if asked.by == "tile" else f"a file of {each:.0f} tiles"
    print(f"a task is {task}; shared parts are always busy from so many workers on: {ceilings(cluster, each)}")
    print("\nworkers   efficiency   days        what holds it up")
    for count in WORKERS:
        rate, why = simulated(cluster, count, each, np.random.default_rng(0))
        days = tiles / rate / 86400
        ideal = count * each / cluster.task(each)
        print(f"{count:>7,}   {rate / ideal:>8.1%}   {days:>9,.4g}   {why}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("measured")
    parser.add_argument("--petabytes", type=float, default=1.0)
    parser.add_argument("--image-gigabytes", type=float, default=2.0)
    parser.add_argument("--by", choices=("tile", "file"), default="file")
    parser.add_argument("--bandwidth", type=float, default=20e9, help="bytes a second of the shared store (assumed)")
    parser.add_argument("--lost", type=float, default=0.01, help="workers lost an hour, each (assumed)")
    parser.add_argument("--price", type=float, default=0.04, help="of a core-hour (assumed)")
    parser.add_argument("--tile", type=int, default=0, help="side of tiles; 0 for those that were measured")
    parser.add_argument("--halo", type=int, default=112, help="with --tile: how far they see; 112 to denoise")
    parser.add_argument("--faster", type=float, default=1.0, help="times as fast as what was measured")
    return parser.parse_args()


def measured(found: dict, asked: argparse.Namespace) -> Cluster:
    one, summary = found["one worker"], found["summary"]
    pixels, seen = summary["pixels_a_tile"], one["read_bytes"] / one["tiles"] / 2
    seconds = np.array(one["tile_seconds"]) / asked.faster
    if asked.tile:  # work grows with what a tile sees
        larger = (asked.tile + 2 * asked.halo) ** 2
        seconds, pixels, seen = seconds * larger / seen, asked.tile**2, larger
    assembly = summary["assembly_seconds_a_megapixel"] * pixels / 1e6
    return Cluster(
        seconds=seconds,
        pixels=pixels,
        serial=max(summary["scheduler_seconds_a_task"], assembly if asked.by == "tile" else 0.0),
        between=max(0.0, summary["between_tiles"]),
        read=2 * seen,
        written=(2 if asked.by == "tile" else 1) * 2 * pixels,  # tiles once by themselves, once in the output
        bandwidth=asked.bandwidth,
        lost=asked.lost,
        price=asked.price,
    )


def ceilings(cluster: Cluster, each: float) -> str:
    """Beyond how many workers a shared part is always busy."""
    scheduler = cluster.task(each) / cluster.serial
    store = cluster.task(each) * cluster.bandwidth / (each * (cluster.read + cluster.written))
    return f"scheduler or client {scheduler:,.0f}, store {store:,.0f}"


def simulated(cluster: Cluster, count: int, each: float, rng: np.random.Generator) -> tuple[float, str]:
    """(tiles a second, what holds it up) of so many workers in the steady state.

    Discrete events: a worker that is free asks the scheduler, which serves one at a time; reads and writes then queue
    for the store; a task that its worker does not survive is begun again. Of more than 1,000 workers, 1,000 are
    simulated, with as small a share of scheduler and store.
    """
    share = max(1.0, count / 1000)
    workers = round(count / share)
    serial, bandwidth = cluster.serial * share, cluster.bandwidth / share
    moved, mean = each * (cluster.read + cluster.written), cluster.task(each)
    slowest = max(mean, workers * serial, workers * moved / bandwidth)
    rounds = max(20, 400 // workers)
    begin, end = 2 * slowest, (2 + rounds) * slowest
    free = [(float(at), worker) for worker, at in enumerate(rng.uniform(0, mean, workers))]
    heapq.heapify(free)
    scheduler = store = 0.0
    done = 0
    lost = {"scheduler or client": 0.0, "the store": 0.0, "workers that are lost": 0.0}
    while free[0][0] < end:
        now, worker = heapq.heappop(free)
        scheduler = max(now, scheduler) + serial
        start = max(scheduler, store)
        store = start + moved / bandwidth
        lost["scheduler or client"] += scheduler - now
        lost["the store"] += start - scheduler
        work = mean if each > 30 else mean + each * float(rng.choice(cluster.seconds) - cluster.seconds.mean())
        if rng.random() < -math.expm1(-cluster.lost * work / 3600):  # on average, half of it was in vain
            lost["workers that are lost"] += work / 2
            heapq.heappush(free, (start + work / 2, worker))
            continue
        stop = start + max(work, moved / bandwidth)
        done += begin < stop <= end
        heapq.heappush(free, (stop, worker))
    why = max(lost, key=lambda name: lost[name])
    rate = done / (end - begin) * share * each
    return rate, why if lost[why] > 0.01 * end * workers else "nothing"


if __name__ == "__main__":
    main()
