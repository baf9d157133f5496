"""The processes that decode what clients send: some, so that a file which keeps one busy keeps nobody else waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from slir.web import work
from slir.web.crew import Hand, ignore

READERS = 3
MEMORY = 4 * 2**30
SECONDS = 20.0
"""Longest time of a read, however small the file is; a small one may hold many pixels."""

PACE = 2**22
"""Bytes of a file that are read in a second at least."""

_REMEDY = "Crop the picture, or use the command line."


class Readers:
    """Processes that read, started when they are needed. One address has at most all but one of them at a time.

    Methods are called in one event loop.
    """

    def __init__(self, count: int = READERS):
        self.hands = [Hand(work.serve_reader, MEMORY, remedy=_REMEDY) for _ in range(count)]
        self._idle = self.hands[::-1]  # the last goes first
        self._share = max(1, count - 1)
        self._busy: Counter[str] = Counter()
        self._bell = asyncio.Event()

    def start(self) -> None:
        """Start one now, so that nobody waits for it later."""
        self.hands[0].start()

    async def ask(
        self, address: str, skill: str, *arguments: Any, size: int, tell: Callable[[Any], Any] = ignore
    ) -> Any:
        """What a process answers when its turn comes; `Refused` where it takes too long.

        size : bytes of the files. tell : takes what it tells, in another thread.
        """
        while not self._idle or self._busy[address] >= self._share:
            await self._bell.wait()
        hand = self._idle.pop()
        self._busy[address] += 1
        try:
            return await run_in_threadpool(hand.ask, skill, *arguments, seconds=SECONDS + size / PACE, tell=tell)
        finally:
            self._idle.append(hand)
            self._busy[address] -= 1
            self._busy += Counter()  # forgets those who have none
            bell, self._bell = self._bell, asyncio.Event()
            bell.set()

    def end(self) -> None:
        for hand in self.hands:
            hand.end()
            hand.kill()
