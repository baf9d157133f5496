"""How long a person waits for `slir serve`: from the click to the first picture, and to the last.

    python benchmarks/web_latency.py [--side 512] [--times 5]

Denoises an own noisy picture of `side`² pixels several times over HTTP, as the page does: the first estimate counts
when its PNG has arrived, the result when the job says that it is done. Prints medians, and beside them, measured in
the same run, the seconds that `slir.denoise` takes for the same picture.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import time
from io import BytesIO

import httpx
import numpy as np
from PIL import Image

import slir
from slir_bench.probe import case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    noisy = (case("denoise", asked.side).y * 255).round().clip(0, 255).astype(np.uint8)
    stream = BytesIO()
    Image.fromarray(noisy).save(stream, "PNG")
    words = ["serve", "--port", str(port), "--quiet"]
    server = subprocess.Popen([sys.executable, "-c", "from slir.cli import main; main()", *words])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
            _wait_for(http)
            waits = [_clicked(http, stream.getvalue()) for _ in range(asked.times)]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)
    slir.denoise(noisy[:96, :96])  # imports, thread pools
    alone = [_alone(noisy) for _ in range(asked.times)]
    for name, times in zip(("first picture", "result"), zip(*waits)):
        print(f"{name}: {statistics.median(times):.2f} s  ({', '.join(f'{one:.2f}' for one in times)})")
    print(f"the restoration alone: {statistics.median(alone):.2f} s  ({', '.join(f'{one:.2f}' for one in alone)})")


def _wait_for(http: httpx.Client) -> None:
    for _ in range(300):
        try:
            http.get("/api/info")
            return
        except httpx.ConnectError:
            time.sleep(0.1)


def _clicked(http: httpx.Client, picture: bytes) -> tuple[float, float]:
    """Seconds from the click to the first estimate's picture, and to the end of the job."""
    file = http.post("/api/files", params={"name": "noisy.png"}, content=picture).json()["file"]
    first = 0.0
    began = time.perf_counter()
    job = http.post("/api/jobs", json={"file": file, "task": "denoise"}).json()["job"]
    with http.stream("GET", f"/api/jobs/{job}/events") as events:
        for line in events.iter_lines():
            if not first and line.startswith("data:") and "stage" in (told := json.loads(line[5:])) and "url" in told:
                http.get(told["url"]).raise_for_status()
                first = time.perf_counter() - began
    last = time.perf_counter() - began
    assert http.get(f"/api/jobs/{job}").json()["state"] == "done"
    http.delete(f"/api/files/{file}")
    return first, last


def _alone(picture: np.ndarray) -> float:
    """Seconds of the same restoration in this process."""
    began = time.perf_counter()
    slir.denoise(picture)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
