"""What a Dask cluster costs, and what it survives: one large 16-bit Zarr image on processes of this machine.

    python benchmarks/cluster.py [--side 8000] [--workers 2] [--tile N] [--rounds N] [--short] [--kill-worker]
        [--kill-client] [--out FOLDER]

Writes an image of side × side pixels, restores it in one process of one thread, by tiles as large files are; then by
one worker and by --workers of them, each with one thread and 2 GB. Prints, and writes to FOLDER/cluster.json, from
which `benchmarks/scale_plan.py` goes on:

    apart        the largest difference from the one process, where the range is 1
    overhead     of Dask: time of one worker over that of the one process, less 1; start-up told apart
    efficiency   time of one worker over n times that of n workers, and what allows no more: the number of tiles, and
                 the cores, on which n processes without Dask are slower side by side than one of them alone
    task         seconds in a tile, and between tiles: what scheduler, client and network take of a worker's time
    bytes        that the call of a task has, that workers send each other, and that a tile reads and writes

--rounds takes turns at all of these and keeps the best of each: a machine that others use is a tenth slower one minute
than the next.

--short leaves out the one worker, and gives the one process as many threads as there are workers: overhead then is the
time of n workers over that of n threads, less 1, and there is no efficiency.

--kill-worker kills (SIGKILL) one of the workers in the middle; --kill-client kills the run in the middle and begins it
again, and counts the tiles that were done twice. Nothing else should run on the machine meanwhile; `overhead_cpu`, from
processor time, says something even if it does.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from slir import io
from slir.cluster import connection, files, worker
from slir.cluster.folder import SUFFIX, Tile
from slir.compute import peak_memory
from slir.files import jobs, restore_file
from slir.files.jobs import Job
from slir.kernel.shipped import demo_picture
from slir.problem import Problem

NOISE = 10 * 257
MEMORY = "2 GB"


def main() -> None:
    asked = arguments()
    if asked.child:
        child(asked)
        return
    if asked.pace:
        pace()
        return
    folder = Path(asked.out or tempfile.mkdtemp(prefix="slir-cluster-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_image(folder / "in.zarr", asked.side)
    set_tile(asked.tile)
    measured: dict[str, Any] = {"side": asked.side, "workers": asked.workers, "cores": len(os.sched_getaffinity(0))}
    for _ in range(asked.rounds):
        take_turns(measured, folder, asked)
    if not asked.short:
        conclude(measured, asked.workers)
    elif asked.workers > 1:
        many = measured[f"{asked.workers} workers"]["seconds"]
        report(measured, "summary", overhead=many / measured["one process"]["seconds"] - 1)
    if asked.kill_worker:
        report(measured, "a worker killed", **on_workers(folder, asked.workers, kill=True))
    if asked.kill_client:
        report(measured, "the client killed", **client_killed(folder, asked))
    (folder / "cluster.json").write_text(json.dumps(measured, indent=2))
    print(f"written to {folder / 'cluster.json'}")


def take_turns(measured: dict[str, Any], folder: Path, asked: Any) -> None:
    """Measure each once; what was quicker before stays."""

    def keep(what: str, found: dict[str, Any]) -> None:
        before = measured.get(what, found)
        report(measured, what, **found)
        measured[what] = min(found, before, key=lambda each: float(each["seconds"]))

    keep("one process", alone(folder, asked.workers if asked.short else 1))
    if not asked.short:
        keep("one worker", on_workers(folder, 1))
    if asked.workers > 1:
        keep(f"{asked.workers} workers", on_workers(folder, asked.workers))
    if asked.workers > 1 and not asked.short:
        keep("one of one without Dask", {"seconds": paces(1)})
        keep(f"one of {asked.workers} without Dask", {"seconds": paces(asked.workers)})


def arguments() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tile", type=int, default=0, help="side of tiles; 0 for what slir takes")
    parser.add_argument("--rounds", type=int, default=1, help="turns, of which the best count")
    parser.add_argument("--short", action="store_true", help="n workers against n threads alone")
    parser.add_argument("--kill-worker", action="store_true")
    parser.add_argument("--kill-client", action="store_true")
    parser.add_argument("--out", default="", help="folder to work in; else one in the system's place for such")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)  # the client that will be killed
    parser.add_argument("--pace", action="store_true", help=argparse.SUPPRESS)  # a process beside others
    return parser.parse_args()


def write_image(path: Path, side: int) -> None:
    """The demonstration's picture again and again, noisy, in chunks of 1024, band by band."""
    import zarr

    picture = demo_picture().mean(-1) * 257
    rng = np.random.default_rng(0)
    image = zarr.open_array(path, mode="w", shape=(side, side), chunks=(1024, 1024), dtype="uint16")
    for top in range(0, side, 1024):
        rows = np.arange(top, min(side, top + 1024)) % 256
        band = picture[np.ix_(rows, np.arange(side) % 256)]
        image[top : top + 1024] = (band + rng.normal(0, NOISE, band.shape)).clip(0, 65535).round().astype(np.uint16)


def set_tile(side: int) -> None:
    """Every image is cut, and, where `side` says so, into smaller tiles."""
    restore_file.LARGE = 1
    if side:
        restore_file.tile_side = files.tile_side = lambda *about: side  # type: ignore[assignment]


def job(folder: Path, output: str, threads: int = 1) -> Job:
    return Job(Problem("denoise", sigma=float(NOISE)), folder / "in.zarr", folder / output, threads=threads)


def fresh(folder: Path, output: str, threads: int = 1) -> Job:
    shutil.rmtree(folder / output, ignore_errors=True)
    shutil.rmtree(folder / f".{output}{SUFFIX}", ignore_errors=True)
    return job(folder, output, threads)


def alone(folder: Path, threads: int) -> dict[str, Any]:
    """One process, by tiles."""
    start, cpu = time.perf_counter(), time.process_time()
    jobs.run(fresh(folder, "alone.zarr", threads), sidecar=False)
    taken = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    return {"threads": threads, **taken, "peak_memory": peak_memory()}


def on_workers(folder: Path, count: int, *, kill: bool = False) -> dict[str, Any]:
    """The same on so many workers."""
    start = time.perf_counter()
    with connection.connect(f"local:{count}", memory=MEMORY) as client:
        victims = list(client.run(os.getpid).values())
        client.run(warm)  # libraries and models are loaded: on a cluster once a worker, not once an image
        ready = time.perf_counter()
        before, seen = sum(client.run(cpu_seconds).values()), []
        own_cpu = time.process_time()

        def progress(done: int, total: int, what: str) -> None:
            seen.append((done, total, time.perf_counter() - ready))
            if kill and done == max(1, total // 2):
                os.kill(victims[0], signal.SIGKILL)

        durations: list[float] = []
        with Listening(durations):
            files.run(fresh(folder, "workers.zarr"), client, sidecar=False, progress=progress)
        told: dict[str, Any] = {
            "seconds": time.perf_counter() - ready,
            "start_up": ready - start,
            "client_cpu": time.process_time() - own_cpu,
            "tiles": seen[-1][1],
            "tile_seconds": durations,
            "submitted": len(durations),
            "apart": apart(folder / "workers.zarr", folder / "alone.zarr"),
        }
        if not kill:
            told["cpu"] = sum(client.run(cpu_seconds).values()) - before
            told["peak_memory"] = max(client.run(peak_memory).values())
            told["bytes_between_workers"] = sum(client.run(received).values())
        busy = sum(durations)
        told["between_tiles"] = (count * seen[-1][2] - busy) / max(1, len(durations)) if not kill else None
    return told | bytes_of_tiles(folder)


class Listening:
    """Takes down how long workers were at each tile, as tasks say it."""

    def __init__(self, durations: list[float]):
        self.durations = durations

    def __enter__(self) -> None:
        self.own = files.result

        def listening(future: Any, what: str) -> Any:
            found = self.own(future, what)
            self.durations.append(float(found))
            return found

        files.result = listening  # type: ignore[assignment]

    def __exit__(self, *error: object) -> None:
        files.result = self.own  # type: ignore[assignment]


def warm() -> None:
    """On a worker."""
    from slir import denoise

    denoise(np.zeros((64, 64), np.uint16) + np.arange(64, dtype=np.uint16), sigma=10.0)


def cpu_seconds() -> float:
    return time.process_time()


def received(dask_worker: Any) -> int:
    """Bytes that a worker got from others."""
    return sum(int(transfer["total"]) for transfer in dask_worker.transfer_incoming_log)


def bytes_of_tiles(folder: Path) -> dict[str, int]:
    """What a task's call has, and what tiles read and write in all, before compression."""
    pieces = tiles(folder)
    pixel = np.dtype(np.uint16).itemsize
    seen, own = (
        [(rows.stop - rows.start) * (cols.stop - cols.start) * pixel for rows, cols in windows]
        for windows in ([piece.seen for piece in pieces], [piece.own for piece in pieces])
    )
    call = len(pickle.dumps((worker.restore_tile, "0" * 32, 0, 0, None)))
    return {"call_bytes": call, "read_bytes": sum(seen), "written_bytes": sum(own)}


def client_killed(folder: Path, asked: Any) -> dict[str, Any]:
    """The command in a process that is killed when half of the tiles are there; then again."""
    fresh(folder, "killed.zarr")
    words = [sys.executable, __file__, "--child", str(folder), "--workers", str(asked.workers)]
    process = subprocess.Popen([*words, "--tile", str(asked.tile)])
    total, left = len(tiles(folder)), folder / f".killed.zarr{SUFFIX}"
    while process.poll() is None and len(list(left.glob("*.npz"))) < max(1, total // 2):
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(3)  # workers notice that their client is gone
    there = len(list(left.glob("*.npz")))
    start, again = time.perf_counter(), []
    with connection.connect(f"local:{asked.workers}", memory=MEMORY) as client, Listening(again):
        outcome = run_to_be_killed(folder, client)
    return {
        "tiles": total,
        "there": there,
        "done_again": len(again) - (total - there),
        "seconds": time.perf_counter() - start,
        "said": list(outcome.notes),
        "apart": apart(folder / "killed.zarr", folder / "alone.zarr"),
    }


def run_to_be_killed(folder: Path, client: Any) -> Any:
    return files.run(job(folder, "killed.zarr"), client, sidecar=False)


def child(asked: Any) -> None:
    """What is killed."""
    set_tile(asked.tile)
    with connection.connect(f"local:{asked.workers}", memory=MEMORY) as client:
        run_to_be_killed(Path(asked.child), client)


def tiles(folder: Path) -> list[Any]:
    own = job(folder, "killed.zarr")
    with io.open_source(own.image) as source:
        work = jobs.work_of(own, source.head, missing=None)
        return restore_file.pieces_of(source.size, work, worker.lead_model(work, source), files._side(own))


def apart(one: Path, other: Path) -> float:
    """The largest difference, band by band, where the range is 1."""
    with io.open_source(one) as first, io.open_source(other) as second:
        most = 0
        for top in range(0, first.size[0], 1024):
            rows = slice(top, min(first.size[0], top + 1024))
            pair = [source.read(0, rows).pixels.astype(np.int64) for source in (first, second)]
            most = max(most, int(np.abs(pair[0] - pair[1]).max()))
    return most / 65535


def conclude(measured: dict[str, Any], workers: int) -> None:
    """What the figures mean."""
    one, alone_seconds = measured["one worker"], measured["one process"]["seconds"]
    summary: dict[str, Any] = {
        "overhead": one["seconds"] / alone_seconds - 1,
        "overhead_cpu": (one["cpu"] + one["client_cpu"]) / measured["one process"]["cpu"] - 1,
        "tile_seconds_mean": float(np.mean(one["tile_seconds"])),
        "tile_seconds_spread": float(np.std(one["tile_seconds"])),
        "pixels_a_tile": measured["side"] ** 2 / one["tiles"],
        "seconds_a_megapixel": float(np.sum(one["tile_seconds"])) / measured["side"] ** 2 * 1e6,
        "between_tiles": one["between_tiles"],
        "client_seconds_a_tile": one["client_cpu"] / one["tiles"],
        "cpu_seconds_a_tile": one["cpu"] / one["tiles"],
        "scheduler_seconds_a_task": scheduler_cost(),
        "assembly_seconds_a_megapixel": min(assembly_cost() for _ in range(3)),
    }
    if workers > 1:
        many = measured[f"{workers} workers"]
        rounds = -(-one["tiles"] // workers) * workers
        summary["efficiency"] = one["seconds"] / (workers * many["seconds"])
        summary["efficiency_that_tiles_allow"] = one["tiles"] / rounds
        free, full = (measured[f"one of {count} without Dask"]["seconds"] for count in ("one", workers))
        summary["efficiency_that_cores_allow"] = free / full
    report(measured, "summary", **summary)


def paces(count: int) -> float:
    """Seconds that each of so many processes takes for the same work when all are at it, without Dask."""
    words = [sys.executable, __file__, "--pace"]
    started = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return float(np.mean([float(process.communicate()[0]) for process in started]))


def pace() -> None:
    """One thread restores the same again and again for a while; prints the seconds that once takes."""
    import torch

    from slir import denoise

    torch.set_num_threads(1)
    picture = np.tile(demo_picture().mean(-1), (2, 2))
    noisy = picture + np.random.default_rng(0).normal(0, 10, picture.shape)
    denoise(noisy[:64, :64].astype(np.float32), sigma=10.0, data_range=255)
    print("ready", flush=True)
    sys.stdin.readline()
    start, times = time.perf_counter(), 0
    while time.perf_counter() - start < 20:
        denoise(noisy.astype(np.float32), sigma=10.0, data_range=255)
        times += 1
    print((time.perf_counter() - start) / times, flush=True)


def scheduler_cost(tasks: int = 2000) -> float:
    """Seconds that scheduler, client and worker together take for a task that does nothing."""
    with connection.connect("local:1", memory=MEMORY) as client:
        list(connection.in_flow(client, lambda item: client.submit(abs, item, pure=False), range(50)))
        start = time.perf_counter()
        for _, future in connection.in_flow(client, lambda item: client.submit(abs, item, pure=False), range(tasks)):
            future.result()
        return (time.perf_counter() - start) / tasks


def assembly_cost(side: int = 1024, count: int = 4) -> float:
    """Seconds in which the client puts a megapixel of tiles into a Zarr image, coarser levels and all."""
    pixels = np.random.default_rng(0).normal(30000, NOISE, (side, side)).astype(np.uint16)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "tile.npz"
        Tile(pixels, {}).save(place)
        start = time.process_time()
        with io.create(Path(name) / "out.zarr", io.Head((side, count * side), pixels.dtype)) as sink:
            for number in range(count):
                window = slice(number * side, (number + 1) * side)
                sink.write(io.Picture(Tile.load(place).pixels), cols=window)
        return (time.process_time() - start) / (count * side**2 / 1e6)


def report(measured: dict[str, Any], what: str, **found: Any) -> None:
    measured[what] = found
    shown = {name: value for name, value in found.items() if not isinstance(value, list) or name == "said"}
    words = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in shown.items())
    print(f"{what}: {', '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
