"""Processes that do the work. One that dies costs what it had in hand, and is replaced."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from slir.web.confined import write_nothing
from slir.web.problems import Problem

GRACE = 2.0
"""Seconds that a process has to stop by itself before it is killed."""

TICK = 0.05
STOP = "stop"
PIECE = 2**20
"""Bytes of data that are sent at a time."""

LONGEST = 2**26
"""Bytes of one answer."""


class Stopped(Exception):
    """The work was stopped because somebody asked for it."""


class Refused(Exception):
    """The work cannot be done: the fields of a `Problem`."""

    def __init__(self, problem: dict[str, Any]):
        super().__init__(problem.get("title", ""))
        self.problem = problem


def never() -> bool:
    return False


def ignore(told: Any) -> None:
    pass


@dataclass
class Hand:
    """A process of our own, started when it is first needed; asked from one thread at a time.

    serve : what it runs: serve(connection, memory). Requests are (name, arguments); answers ["told", anything] while
        it works, then ["done", value] or ["refused", fields of a problem]. Requests are pickled. Answers never are:
        what decodes clients' files might be made to answer anything. They are JSON, or bytes after ["data", null].
    memory : bytes that it may take; None for no limit. remedy : what to do where it takes too long.
    """

    serve: Callable[[Connection, int | None], None]
    memory: int | None = None
    remedy: str = "Crop the picture, or start the server with a larger --seconds."
    process: BaseProcess | None = None
    connection: Connection | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self._busy = threading.Lock()

    def ask(
        self,
        name: str,
        *arguments: Any,
        tell: Callable[[Any], None] = ignore,
        stopped: Callable[[], bool] = never,
        seconds: float = 60.0,
    ) -> Any:
        """What the process answers. Raises Refused, Stopped, or Refused where it died or took too long.

        tell : takes what it tells while it works; bytes as bytes.
        """
        with self._busy:
            connection = self._sent((name, arguments))
            end, grace = time.monotonic() + seconds, float("inf")
            while True:
                try:
                    message = _heard(connection) if connection.poll(TICK) else None
                except (EOFError, OSError, ValueError):
                    raise self._died(stopped()) from None
                if message is not None:
                    kind, value = message
                    if kind == "done":
                        return value
                    if kind == "refused":
                        raise Refused(value)
                    if kind == "stopped":
                        raise Stopped
                    try:
                        tell(value)
                    except BaseException:
                        self.kill()  # or its other answers would be taken for those to the next request
                        raise
                now = time.monotonic()
                if stopped() and grace == float("inf"):
                    grace = now + GRACE
                    with contextlib.suppress(OSError):
                        connection.send(STOP)
                if now > grace:
                    self.kill()
                    raise Stopped
                if now > end:
                    self.kill()
                    detail = f"It took longer than the limit of {seconds:.3g} seconds."
                    raise Refused({"title": "The work took too long", "detail": detail, "remedy": self.remedy})

    def _sent(self, request: Any) -> Connection:
        """The connection, after a process that lives has the request."""
        while True:
            connection = self.start()
            try:
                connection.send(request)
                return connection
            except OSError:  # it died while nobody looked
                self.kill()

    def start(self) -> Connection:
        """Start the process, unless it runs."""
        if self.ended:
            raise Stopped
        if self.process is not None and self.process.is_alive() and self.connection is not None:
            return self.connection
        # Spawned, not forked: the server has threads, of which a fork would keep the locks.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=self.serve, args=(theirs, self.memory), daemon=True)
        self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return self.connection

    def _died(self, expected: bool) -> Exception:
        process = self.process
        assert process is not None  # it was asked for something
        process.join(GRACE)
        process.kill()  # where it lives, it answered nonsense
        process.join()
        code = process.exitcode or 0
        self.kill()
        if expected or self.ended:
            return Stopped()
        how = f"It ended with code {code}."
        if code < 0:
            how = f"It was killed by {signal.Signals(-code).name}"
            how += ", which is what the system does when memory runs out." if -code == signal.SIGKILL else "."
        remedy = "Try a smaller picture. The server continues with a new process."
        return Refused({"title": "The worker process died", "detail": how, "remedy": remedy})

    def end(self) -> None:
        """Let whoever waits for an answer have none, and start no other process. May be called from any thread."""
        self.ended = True
        if (process := self.process) is not None:
            process.kill()

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.connection is not None:
            self.connection.close()
        self.process = self.connection = None


def serve(
    connection: Connection, memory: int | None, skills: dict[str, Callable[..., Any]], *, writes: bool = True
) -> None:
    """What a process of the crew does: what it is asked, until the server is gone.

    writes : whether it may write to files.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the server sees to the others
    _limit(memory)
    if not writes:
        write_nothing()
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = connection.recv()
            if request == STOP:  # for what is done already
                continue
            name, arguments = request
            _send(connection, *_answer(skills[name], arguments, connection))


def _send(connection: Connection, kind: str, value: Any) -> None:
    if isinstance(value, bytes):
        for at in range(0, len(value), PIECE):
            connection.send_bytes(b'["data", null]')
            connection.send_bytes(value[at : at + PIECE])
    else:
        connection.send_bytes(json.dumps((kind, value)).encode())


def _heard(connection: Connection) -> tuple[str, Any]:
    """An answer. Raises ValueError where it is none."""
    kind, value = json.loads(connection.recv_bytes(LONGEST))
    if kind == "data":
        return "told", connection.recv_bytes(PIECE)
    if not isinstance(kind, str) or (kind == "refused" and not isinstance(value, dict)):
        raise ValueError("no answer")
    return kind, value


def _answer(skill: Callable[..., Any], arguments: tuple[Any, ...], connection: Connection) -> tuple[str, Any]:
    from slir.web.problems import disk_full, is_full, told

    def tell(message: Any = None) -> None:
        """Tell the server something; stop where it asked for that."""
        if connection.poll():
            connection.recv()
            raise Stopped
        if message is not None:
            _send(connection, "told", message)

    try:
        return "done", skill(tell, *arguments)
    except Stopped:
        return "stopped", None
    except Problem as problem:
        return "refused", problem.body
    except Exception as error:
        from slir.errors import SlirError

        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "alloc" in str(error):
            remedy = "Crop the picture, or close other programs."
            return "refused", {
                "title": "There is not enough memory",
                "detail": "The work needs more memory than is free.",
                "remedy": remedy,
            }
        if is_full(error):
            return "refused", disk_full().body
        if isinstance(error, SlirError):
            return "refused", told(error)
        detail = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return "refused", {"title": "A bug in slir", "detail": detail, "remedy": "Please report it."}


def _limit(memory: int | None) -> None:
    """Let a full memory be this process's trouble: it fails first, and is the first that the system kills."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as place:
        place.write("500")
    if memory is None:
        return
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    except (ImportError, ValueError, OSError):  # Windows, or a lower limit already
        pass


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def machine_memory() -> int | None:
    """Bytes of memory of this machine, where it says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
