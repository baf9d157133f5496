"""Connections: how many there may be, and how long they may wait without asking for anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256
"""Connections of all clients."""

MOST_OF_ONE = 64
"""Connections of one address. A browser opens six."""

SECONDS = 10.0
"""Longest time from the first byte of a request, or from a connection's begin, to the end of its header."""


class Connection(H11Protocol):
    """A connection whose header must come in time, and that makes way for others while it asks for nothing.

    Where there are too many, of one address or in all, the one goes that has waited for longest: so connections which
    are opened and left keep nobody out, not even from the same address.
    """

    _since = 0.0
    _deadline: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_way()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if not self.waits:
            self._forget_deadline()
        elif self._deadline is None:
            self._since = self.loop.time()
            self._deadline = self.loop.call_later(SECONDS, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self.waits:
            self.transport.abort()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_way(self) -> None:
        """Close a connection where there are too many. If all but this one are at work it is this one."""
        known = [own for own in self.connections if isinstance(own, Connection)]
        held = Counter(own.address for own in known)
        crowded = held[self.address] > MOST_OF_ONE
        if not crowded and len(known) < (self.limit_concurrency or MOST):
            return
        idle = [own for own in known if own.waits and own is not self and (own.address == self.address or not crowded)]
        last = min(idle, key=lambda own: (-held[own.address], own._since), default=self)
        self.connections.discard(last)
        last.transport.abort()


def configured(app: Any, **named: Any) -> uvicorn.Config:
    """How uvicorn is to serve the application. named : what differs."""
    usual: dict[str, Any] = {
        "http": Connection,
        "ws": "none",
        "log_level": "warning",
        "access_log": False,  # addresses may hold the token
        "limit_concurrency": MOST,
        "timeout_keep_alive": 15,
        "timeout_graceful_shutdown": 2,  # those who follow a job would never leave
        "server_header": False,
    }
    return uvicorn.Config(app, **usual | named)
