"""How a server is to behave: where it listens, and how much it lets its clients do."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from slir.errors import InputError

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Settings:
    """Where the server listens, what it computes with, and its limits.

    token : what clients must know. None is for loopback alone; `safe` makes one up for other addresses.
    names : host names, other than those of loopback, under which the server is reached.
    workers : restorations at a time, a process each. device : "cpu" or "cuda".
    bytes, pixels : of one upload, all planes counted; `pixels` holds for results too.
    queue : jobs that wait, of all clients. per_client : jobs of one client that wait or run.
    seconds : a job may take. files : pictures of one client that are kept, and as many kernels and masks.
    items : all of these, of all clients. kept : finished jobs, of all clients.
    disk : bytes of files, of all clients. expiry : seconds after which what nobody looks at is removed.
    memory : bytes that one job may take; None for three quarters of the machine's.
    folder : where the private folder is made; None for the system's place for temporary files.
    """

    host: str = LOOPBACK
    port: int = 8000
    token: str | None = None
    names: tuple[str, ...] = ()
    workers: int = 1
    device: str | None = None
    bytes: int = 200 * 2**20
    pixels: int = 50_000_000
    queue: int = 32
    per_client: int = 16
    seconds: float = 900.0
    files: int = 256
    items: int = 4096
    kept: int = 256
    disk: int = 8 * 2**30
    expiry: float = 6 * 3600.0
    memory: int | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "bytes",
            "pixels",
            "queue",
            "per_client",
            "seconds",
            "files",
            "items",
            "kept",
            "disk",
            "expiry",
        ):
            if not getattr(self, name) > 0:
                raise InputError(name, "be positive", getattr(self, name), "Omit it for the default.")
        if not 0 <= self.port < 2**16:
            raise InputError("port", "be from 0 to 65535", self.port, "0 takes one that is free.")
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isalnum()):
            rule = f"be {SHORTEST_TOKEN} or more letters and digits"
            raise InputError("token", rule, f"{len(self.token)} characters", "Omit it to have one generated.")

    @property
    def is_local(self) -> bool:
        """Whether nobody but users of this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def safe(self) -> Settings:
        """The same with a token where one is needed."""
        return self if self.is_local or self.token else replace(self, token=secrets.token_hex(16))
