"""What all routes share: the settings, what clients have sent, and those who do the work."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from slir.web import display, work
from slir.web.bench import Bench
from slir.web.crew import Hand, Refused
from slir.web.problems import Names, Problem, disk_full
from slir.web.settings import Settings
from slir.web.store import Store

READING_MEMORY = 4 * 2**30
READING_SECONDS = 60.0
HEARTBEAT = 30.0


@dataclass
class Server:
    """A running server. reader : the process that decodes what clients send."""

    settings: Settings
    store: Store
    bench: Bench
    reader: Hand
    turn: asyncio.Lock

    @staticmethod
    def begin(settings: Settings, folder: Path) -> Server:
        reader = Hand(work.serve_reader, READING_MEMORY)
        bench = Bench(settings)
        bench.open()
        reader.start()  # now, so that nobody waits for it later
        return Server(settings, Store(folder, settings, bench.uses), bench, reader, asyncio.Lock())

    async def read(self, skill: str, *arguments: Any, names: Names | None = None) -> Any:
        """Have the reader do something, when its turn comes. What it refuses is a problem."""
        async with self.turn:
            try:
                return await run_in_threadpool(self.reader.ask, skill, *arguments, seconds=READING_SECONDS)
            except Refused as refusal:
                fields = dict(refusal.problem)
        raise Problem.of(fields, names)

    def check_room(self, more: int) -> None:
        """Raise a problem where the disk could not take so many bytes more, even without any results."""
        if self.store.lacking(more) > self.bench.finished_bytes():
            raise disk_full()

    def make_room(self, more: int) -> None:
        """See to it that the disk takes so many bytes more: results that nobody has looked at for longest go.

        Where that would not be enough all stay.
        """
        self.check_room(more)
        while self.store.lacking(more):
            if not self.bench.forget_oldest():
                raise disk_full()

    async def keep_tidy(self) -> None:
        """Forget what is old, every now and then, as long as the server runs."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            self.store.expire(time.monotonic())
            await run_in_threadpool(self.bench.tidy)

    def end(self) -> None:
        self.bench.close()
        self.reader.end()
        self.reader.kill()


def _server(request: Request) -> Server:
    return request.app.state.server


def _session(request: Request) -> str:
    return request.state.session


Here = Annotated[Server, Depends(_server)]
Me = Annotated[str, Depends(_session)]


def picture(path: Path, most: int, *, lasting: bool = False) -> Response:
    """A PNG of ours, no side longer than `most`. lasting : it will not change."""
    try:
        data = display.served(path, most)
    except FileNotFoundError:
        raise Problem(404, "There is no such picture", "It is not there yet, or no longer.") from None
    headers = {"Cache-Control": "private, max-age=3600"} if lasting else {}
    return Response(data, media_type="image/png", headers=headers)
