"""Many clients of `slir serve` at once, of which some are slow, lie, or leave, while its processes are killed."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

from serving import Client, decoded, encoded, scene, serving
from test_malformed import handmade

SIDE = 48


class Siege:
    """What clients do and what they hear. said : how often which answer was given. wrong : what must not be."""

    def __init__(self, served, seed):
        self.served, self.seed = served, seed
        self.end = threading.Event()
        self.said, self.wrong = Counter(), []
        self.damaged = [data for _, data in handmade() if len(data) < 100_000]

    def heard(self, what, answer):
        self.said[what, answer.status_code] += 1
        if answer.status_code >= 500:
            self.wrong.append(f"{what}: {answer.status_code} {answer.text[:300]}")
        return answer

    def client(self, number):
        """One client after the other, until the end, from an address of its own."""
        rng = random.Random(self.seed * 1000 + number)
        address = f"127.0.1.{number + 1}"
        deeds = (self.restore, self.restore, self.lie, self.forget_cookies, self.be_slow, self.leave)
        while not self.end.is_set():
            with Client(
                base_url=self.served.address, timeout=120, transport=httpx.HTTPTransport(local_address=address)
            ) as own:
                deed = rng.choice(deeds)
                try:
                    deed(own, address, rng)
                except (httpx.TransportError, OSError) as error:  # the server may hang up on liars
                    self.said[deed.__name__, type(error).__name__] += 1
                except Exception as error:
                    self.wrong.append(f"{deed.__name__}: {type(error).__name__}: {error}")
            time.sleep(rng.uniform(0, 0.1))

    def restore(self, own, address, rng):
        """Without noise to remove every pixel comes back: a result of somebody else would be seen."""
        pixels = scene(SIDE, seed=rng.randrange(10**6))
        sent = self.heard("upload", own.post("/api/files", params={"name": "a.png"}, content=encoded(pixels)))
        if sent.status_code != 201:
            return
        asked = {"file": sent.json()["file"], "task": "denoise", "sigma": 0, "error_map": False}
        begun = self.heard("job", own.post("/api/jobs", json=asked))
        if begun.status_code != 202:
            return
        job = begun.json()["job"]
        told = self.final(own, job)
        self.said["ended", told["state"]] += 1
        if told["state"] == "failed" and "died" not in told["problem"]["title"]:
            self.wrong.append(f"failed: {told['problem']}")
        if told["state"] == "done":
            result = self.heard("result", own.get(f"/api/jobs/{job}/result"))
            if result.status_code == 200 and not np.array_equal(decoded(result.content), pixels):
                self.wrong.append("a result that is not that of its picture")
        self.heard("remove", own.delete(f"/api/jobs/{job}"))

    def final(self, own, job):
        late = time.monotonic() + 120
        while (told := own.get(f"/api/jobs/{job}").json())["state"] in ("queued", "running"):
            assert time.monotonic() < late, told
            time.sleep(0.1)
        return told

    def lie(self, own, address, rng):
        data = rng.choice(self.damaged)
        name = rng.choice(("a.png", "a.tif", "a.fits", "a.jpg", "a.webp", "a.bmp", "a.avif"))
        self.heard("lie", own.post("/api/files", params={"name": name}, content=data))

    def forget_cookies(self, own, address, rng):
        for _ in range(5):
            own.cookies.clear()
            self.heard("kernel", own.post("/api/psf", json={"kind": "gaussian", "width": rng.uniform(1, 9)}))

    def be_slow(self, own, address, rng):
        """Half a header, half a body, or a body that is announced and never comes."""
        lines = (
            "GET /api/info HTTP/1.1\r\nHost: localhost\r\nX: ",
            "POST /api/files?name=a.png HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\nhalf",
            "POST /api/files?name=a.png HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n",
            "POST /api/psf HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n",
        )
        with socket.create_connection(("127.0.0.1", self.served.port), 10, (address, 0)) as line:
            line.sendall(rng.choice(lines).encode())
            self.end.wait(rng.uniform(0, 2))

    def leave(self, own, address, rng):
        """A job is begun, looked at, and left, with its picture removed or not."""
        sent = self.heard("upload", own.post("/api/files", params={"name": "a.png"}, content=encoded(scene(200))))
        if sent.status_code == 201:
            file = sent.json()["file"]
            begun = self.heard("job", own.post("/api/jobs", json={"file": file, "task": "denoise", "sigma": 12}))
            if begun.status_code == 202:
                with own.stream("GET", f"/api/jobs/{begun.json()['job']}/events") as told:
                    next(told.iter_lines())
                self.heard("cancel", own.post(f"/api/jobs/{begun.json()['job']}/cancel"))
            self.heard("forget", own.delete(f"/api/files/{file}"))

    def kill(self, pause):
        """A process of the server's every now and then."""
        rng = random.Random(self.seed)
        while not self.end.wait(rng.uniform(0, 2 * pause)):
            hands = [*self.served.server.bench._hands, *self.served.server.readers.hands]
            process = rng.choice(hands).process
            if process is not None and process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                    self.said["killed", ""] += 1


def siege(folder: Path, *, clients: int, seconds: float, pause: float = 2.0, seed: int = 0) -> Siege:
    """So many clients for so long. Afterwards the server has to work as before."""
    with serving(folder=folder, queue=8, per_client=2, files=4, items=200) as served:
        attack = Siege(served, seed)
        with served.client() as own:
            first = own.finished(own.submit(own.upload(encoded(scene(SIDE))), sigma=0))
            assert first["state"] == "done"
            assert own.post("/api/psf", json={"kind": "gaussian", "width": 9}).status_code == 201  # imports its parts
        before = _memory()
        jobs = [threading.Thread(target=attack.client, args=(number,)) for number in range(clients)]
        jobs.append(threading.Thread(target=attack.kill, args=(pause,)))
        for each in jobs:
            each.start()
        attack.end.wait(seconds)
        attack.end.set()
        for each in jobs:
            each.join(150)
        attack.wrong += [f"{each.name} did not end" for each in jobs if each.is_alive()]
        attack.said["more memory, MB", ""] = (_memory() - before) >> 20
        attack.said["items", ""] = len(served.server.store._items)
        with served.client() as own:
            file = own.upload(encoded(scene(SIDE)))
            told = own.finished(own.submit(file, sigma=0))
            if told["state"] != "done":
                attack.wrong.append(f"afterwards: {told}")
    attack.wrong += [f"left behind: {path}" for path in folder.iterdir()]
    return attack


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
