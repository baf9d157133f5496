"""What all routes share: the settings, what clients have sent, and those who do the work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from slir.web import display
from slir.web.bench import Bench
from slir.web.crew import Refused, ignore
from slir.web.display import View
from slir.web.problems import Names, Problem, disk_full
from slir.web.readers import Readers
from slir.web.settings import Settings
from slir.web.store import Client, Store, new_id, size_of

HEARTBEAT = 30.0
LARGEST_SIDE = 16384
"""Longest side of a picture for display, which is what a browser can draw."""


@dataclass
class Server:
    """A running server."""

    settings: Settings
    store: Store
    bench: Bench
    readers: Readers

    @staticmethod
    def begin(settings: Settings, folder: Path) -> Server:
        bench = Bench(settings)
        bench.open()
        readers = Readers()
        readers.start()
        return Server(settings, Store(folder, settings, bench.uses), bench, readers)

    async def read(
        self, me: Client, skill: str, *arguments: Any, names: Names, tell: Callable[[Any], Any] = ignore
    ) -> Any:
        """Have a reader do something with files of a client's. What it refuses is a problem."""
        size = sum(size_of(path) for path in names.called)
        try:
            return await self.readers.ask(me.address, skill, *arguments, size=size, tell=tell)
        except Refused as refusal:
            fields = dict(refusal.problem)
        raise Problem.of(fields, names)

    async def shown(self, me: Client, path: Path, view: View, most: int, plane: int, *, names: Names) -> Response:
        """A plane of a stack as a PNG. It is made anew each time, so that a long stack does not fill the disk."""
        made = self.store.folder / "files" / f"{new_id()}.plane.png"
        try:
            await self.drawn(me, made, "show", path, view, min(most, LARGEST_SIDE), plane, names=names)
            return await run_in_threadpool(picture, made, most, lasting=True)
        finally:
            made.unlink(missing_ok=True)

    async def drawn(self, me: Client, path: Path, skill: str, *arguments: Any, names: Names) -> Any:
        """The answer of a reader that makes a picture, which is kept at `path`, whole or not at all."""
        part = path.with_suffix(f".{new_id()}.part")
        try:
            with open(part, "xb") as file:
                answer = await self.read(me, skill, *arguments, names=names, tell=file.write)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return answer

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

    def keep(self, path: Path, data: bytes) -> None:
        """Write a file, whole or not at all, after making room for it."""
        self.make_room(len(data))
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    async def keep_tidy(self) -> None:
        """Forget what is old, every now and then, as long as the server runs."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            self.store.expire(time.monotonic())
            await run_in_threadpool(self.bench.tidy)

    def end(self) -> None:
        self.bench.close()
        self.readers.end()


def _server(request: Request) -> Server:
    return request.app.state.server


def _client(request: Request) -> Client:
    return Client(request.state.session, request.client.host if request.client else "")


Here = Annotated[Server, Depends(_server)]
Me = Annotated[Client, Depends(_client)]


def picture(path: Path, most: int, *, lasting: bool = False) -> Response:
    """A PNG of ours, no side longer than `most`. lasting : it will not change."""
    try:
        data = display.served(path, most)
    except FileNotFoundError:
        raise Problem(404, "There is no such picture", "It does not exist yet, or no longer.") from None
    headers = {"Cache-Control": "private, max-age=3600"} if lasting else {}
    return Response(data, media_type="image/png", headers=headers)
