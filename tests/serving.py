"""A server of slir in this process, on a port of its own, for tests of the page and its API."""

import contextlib
import socket
import threading
import time
from io import BytesIO

import httpx
import numpy as np
import uvicorn
from PIL import Image

from slir.web.app import create_app
from slir.web.connections import configured
from slir.web.settings import Settings


class Served:
    """A running server: its address, its application, and clients of it."""

    def __init__(self, settings):
        self.app = create_app(settings)
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        config = configured(self.app, log_level="error", timeout_graceful_shutdown=1)
        self.uvicorn = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.uvicorn.run, args=([self.listener],), daemon=True)

    @property
    def server(self):
        return self.app.state.server

    @property
    def folder(self):
        return self.server.store.folder

    def client(self, **named):
        """A client with cookies of its own."""
        return Client(base_url=self.address, timeout=60, **named)

    def __enter__(self):
        self.thread.start()
        while not self.uvicorn.started:
            assert self.thread.is_alive()
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.uvicorn.should_exit = True
        self.thread.join(timeout=20)
        assert not self.thread.is_alive()
        with contextlib.suppress(OSError):
            self.listener.close()


class Client(httpx.Client):
    """What a page does."""

    def upload(self, data, name="picture.png"):
        answer = self.post("/api/files", params={"name": name}, content=data)
        assert answer.status_code == 201, answer.text
        return answer.json()["file"]

    def submit(self, file, task="denoise", **settings):
        answer = self.post("/api/jobs", json={"file": file, "task": task, "error_map": False, **settings})
        assert answer.status_code == 202, answer.text
        return answer.json()["job"]

    def events(self, job):
        """(kind, data) of a job's events, until it ends."""
        import json

        with self.stream("GET", f"/api/jobs/{job}/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            kind = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    yield kind, json.loads(line[6:])

    def finished(self, job):
        """The job when it has ended."""
        return list(self.events(job))[-1][1]

    def until(self, job, state, seconds=30):
        """The job once it is in a state."""
        end = time.monotonic() + seconds
        while (told := self.get(f"/api/jobs/{job}").json())["state"] != state:
            assert time.monotonic() < end, told
            time.sleep(0.02)
        return told


def scene(side=64, seed=0, colour=False, sigma=12):
    """A noisy picture: uint8."""
    rng = np.random.default_rng(seed)
    rows, cols = np.mgrid[:side, :side]
    turn = rng.uniform(0, np.pi)
    clean = 128 + 90 * np.sign(np.sin((rows * np.cos(turn) + cols * np.sin(turn)) / 5))
    if colour:
        clean = clean[..., None] * np.array([1, 0.9, 0.8])
    return np.clip(clean + rng.normal(0, sigma, clean.shape), 0, 255).round().astype(np.uint8)


def encoded(pixels, form="PNG", **named):
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, form, **named)
    return stream.getvalue()


def decoded(data):
    return np.asarray(Image.open(BytesIO(data)))


@contextlib.contextmanager
def serving(**settings):
    with Served(Settings(**settings)) as served:
        yield served
