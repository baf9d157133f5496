"""Fifty clients of `slir serve` at once, each with pictures of its own: nobody is left without an answer.

    python benchmarks/web_load.py [--clients 50] [--seconds 120]

Each client sends a small picture, asks for a restoration, waits for it, downloads it and sends the next. Every job must
end in a result or in a clear refusal (429 with Retry-After), every result must show the picture of the client that
asked for it, and the memory of the server with all its processes must stop growing. Prints what happened; fails where
it may not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

SIDE = 64
SETTLED = 1.15
"""The most by which the peak of the last third may exceed that of the second."""


@dataclass
class Tally:
    """What happened to all clients."""

    ends: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    asked = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", "--port", str(port), "--folder", folder, "--quiet", "--queue", "32"]
        server = subprocess.Popen([sys.executable, "-c", "from slir.cli import main; main()", *words])
        try:
            asyncio.run(load(f"http://127.0.0.1:{port}", server.pid, asked.clients, asked.seconds, tally))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)
        left = list(Path(folder).iterdir())
    report(tally, asked.clients, asked.seconds)
    assert not left, f"left behind: {left}"


async def load(address: str, pid: int, clients: int, seconds: float, tally: Tally) -> None:
    async with httpx.AsyncClient(base_url=address) as first:
        for _ in range(300):
            try:
                await first.get("/api/info")
                break
            except httpx.ConnectError:
                await asyncio.sleep(0.1)
    end = time.monotonic() + seconds
    watch = asyncio.create_task(watch_memory(pid, tally))
    await asyncio.gather(*(client(address, number, end, tally) for number in range(clients)))
    watch.cancel()


async def client(address: str, number: int, end: float, tally: Tally) -> None:
    """One client: pictures of its own, one after the other."""
    rng = np.random.default_rng(number)
    async with httpx.AsyncClient(base_url=address, timeout=120) as http:
        while time.monotonic() < end:
            clean = picture(rng)
            noisy = np.clip(clean + rng.normal(0, 15, clean.shape), 0, 255).round().astype(np.uint8)
            try:
                await one(http, clean, noisy, tally)
            except Exception as error:
                tally.faults.append(f"client {number}: {type(error).__name__}: {error}")


async def one(http: httpx.AsyncClient, clean: np.ndarray, noisy: np.ndarray, tally: Tally) -> None:
    """One picture, from upload to download."""
    began = time.monotonic()
    stream = BytesIO()
    Image.fromarray(noisy).save(stream, "PNG")
    sent = await http.post("/api/files", params={"name": "own.png"}, content=stream.getvalue())
    if await refused(sent, tally, "upload"):
        return
    file = sent.json()["file"]
    asked = await http.post("/api/jobs", json={"file": file, "task": "denoise", "sigma": 15})
    if await refused(asked, tally, "job"):
        return
    job = asked.json()["job"]
    async with http.stream("GET", f"/api/jobs/{job}/events") as events:
        async for _ in events.aiter_lines():
            pass
    told = (await http.get(f"/api/jobs/{job}")).json()
    tally.ends[told["state"]] += 1
    assert told["state"] == "done", told
    result = np.asarray(Image.open(BytesIO((await http.get(f"/api/jobs/{job}/result")).content)))
    correlation = np.corrcoef(result.ravel(), clean.ravel())[0, 1]
    assert correlation > 0.9, f"a picture that is not ours: correlation {correlation:.2f}"
    tally.waits.append(time.monotonic() - began)
    await http.delete(f"/api/files/{file}")


async def refused(answer: httpx.Response, tally: Tally, what: str) -> bool:
    """Whether the server was too busy, and said so as it should."""
    if answer.status_code == 429:
        assert answer.json()["title"]
        assert answer.json()["remedy"]
        tally.ends[f"{what} refused for now"] += 1
        await asyncio.sleep(float(answer.headers["Retry-After"]) * np.random.default_rng().uniform(0.2, 1))
        return True
    assert answer.status_code in (201, 202), f"{answer.status_code} {answer.text}"
    return False


def picture(rng: np.random.Generator) -> np.ndarray:
    """Stripes of a random direction, width and phase, which hardly correlate with anybody else's."""
    rows, cols = np.mgrid[:SIDE, :SIDE]
    turn, width, phase = rng.uniform(0, np.pi), rng.uniform(2, 6), rng.uniform(0, 2 * np.pi)
    return 128 + 80 * np.sign(np.sin((rows * np.cos(turn) + cols * np.sin(turn)) / width + phase))


async def watch_memory(pid: int, tally: Tally) -> None:
    began = time.monotonic()
    while True:
        tally.memory.append((time.monotonic() - began, sum(map(resident, family(pid)))))
        await asyncio.sleep(1)


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for process in found:
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def report(tally: Tally, clients: int, seconds: float) -> None:
    print(f"{clients} clients, {seconds:g} s: " + ", ".join(f"{count} {what}" for what, count in tally.ends.items()))
    waits = np.array(tally.waits or [np.nan])
    print(f"from upload to download: median {np.median(waits):.2f} s, longest {waits.max():.2f} s")
    third = max(at for at, _ in tally.memory) / 3
    thirds = [
        max(held for at, held in tally.memory if number * third <= at <= (number + 1) * third) for number in (0, 1, 2)
    ]
    print("memory, peak of each third: " + ", ".join(f"{held / 2**20:.0f} MB" for held in thirds))
    for fault in tally.faults[:10]:
        print("FAULT", fault)
    assert not tally.faults, f"{len(tally.faults)} faults"
    assert tally.ends["done"], "nothing was done"
    assert thirds[2] <= SETTLED * thirds[1], "the memory grows"


if __name__ == "__main__":
    main()
