"""What clients have sent: pictures, kernels and masks, in a private folder that goes with the server.

Names that clients give to files never become paths: files are called by random numbers, and a name is kept to be shown.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slir.files.atomic_output import _lock, _unlock
from slir.web.display import EIGHT_BITS, View
from slir.web.problems import Names, missing
from slir.web.settings import Settings

PREFIX = "slir-serve-"
SPARE = 2**26
"""Bytes of the disk that are left to others."""

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


def new_id() -> str:
    """128 random bits."""
    return secrets.token_hex(16)


def shown_name(name: str) -> str:
    """The last part of a file's name, without what does not print, at most 120 characters."""
    last = re.split(r"[/\\]", name)[-1]
    last = "".join(sign for sign in last if sign.isprintable()).strip()
    stem, dot, suffix = last.rpartition(".")
    return (stem[: 119 - len(suffix)] + dot + suffix)[-120:] if dot else last[:120]


def suffix_of(name: str) -> str:
    """The suffix of a client's name, if it is one that a file here may have; else none."""
    suffix = Path(name).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) else ""


@dataclass(frozen=True)
class Client:
    """Who sends requests. session : a random number in a cookie, by which one's own things are found again.
    address : where the requests come from."""

    session: str
    address: str = field(default="", compare=False)

    def owns(self, other: Client) -> bool:
        """Whether what belongs to the other is this client's."""
        return secrets.compare_digest(self.session, other.session)


@dataclass(eq=False)
class Item:
    """Something that a client has sent. used : when it was last asked for, by the clock that never goes back."""

    id: str
    owner: Client
    path: Path
    used: float = field(default_factory=time.monotonic, kw_only=True)


Kind = TypeVar("Kind", bound=Item)


@dataclass(eq=False)
class Upload(Item):
    """A picture. told : what the client was told of it."""

    name: str
    told: dict[str, Any] = field(default_factory=dict)
    view: View = EIGHT_BITS

    @property
    def view_path(self) -> Path:
        return self.path.with_name(f"{self.id}.view.png")

    @property
    def large_path(self) -> Path:
        return self.path.with_name(f"{self.id}.large.png")

    @property
    def names(self) -> Names:
        return Names({self.path: self.name}, self.path.parents[1])


@dataclass(eq=False)
class Kernel(Item):
    """A blur kernel. made_by : in words, where it came from. blur : the same as `replies.Blur` has it."""

    made_by: str
    blur: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> np.ndarray:
        return np.load(self.path, allow_pickle=False)


@dataclass(eq=False)
class Mask(Item):
    """Which pixels of a picture are missing."""

    share: float
    size: tuple[int, int]


class Store:
    """Everything that clients have sent. Who asks for what another sent is told that there is no such thing."""

    def __init__(self, folder: Path, settings: Settings, in_use: Callable[[Item], bool] = lambda item: False):
        self.folder, self.settings, self.in_use = folder, settings, in_use
        self._items: dict[str, Item] = {}
        self._lock = threading.Lock()
        for part in ("files", "masks", "jobs"):
            (folder / part).mkdir(mode=0o700)

    def get(self, kind: type[Kind], what: str, id: str, owner: Client) -> Kind:
        """An item of the owner's."""
        item = self._items.get(id)
        if not isinstance(item, kind) or not owner.owns(item.owner):
            raise missing(what)
        item.used = time.monotonic()
        return item

    def upload(self, id: str, owner: Client) -> Upload:
        return self.get(Upload, "file", id, owner)

    def kernel(self, id: str, owner: Client) -> Kernel:
        return self.get(Kernel, "psf", id, owner)

    def mask(self, id: str, owner: Client) -> Mask:
        return self.get(Mask, "mask", id, owner)

    def add(self, item: Item) -> None:
        """Take an item in. Of a client who has too many, the oldest of the kind goes that no job needs; where there are
        too many in all, the oldest from the address that holds most: who sends no cookie is a new client each time."""
        with self._lock:
            self._thin(
                [old for old in self._items.values() if type(old) is type(item) and old.owner == item.owner],
                self.settings.files - 1,
            )
            if len(self._items) >= self.settings.items:
                ((most, count),) = Counter(old.owner.address for old in self._items.values()).most_common(1)
                self._thin([old for old in self._items.values() if old.owner.address == most], count - 1)
            self._items[item.id] = item

    def _thin(self, items: list[Item], most: int) -> None:
        """Drop the oldest that no job needs until so many are left."""
        excess = len(items) - most
        for item in sorted(items, key=lambda each: each.used) if excess > 0 else ():
            if excess > 0 and not self.in_use(item):
                self._drop(item)
                excess -= 1

    def drop(self, item: Item) -> None:
        with self._lock:
            self._drop(item)

    def _drop(self, item: Item) -> None:
        self._items.pop(item.id, None)
        for path in [item.path, item.view_path, item.large_path] if isinstance(item, Upload) else [item.path]:
            path.unlink(missing_ok=True)

    def expire(self, now: float) -> None:
        """Drop what nobody has asked for in a long time."""
        with self._lock:
            for item in list(self._items.values()):
                if now - item.used > self.settings.expiry and not self.in_use(item):
                    self._drop(item)

    def lacking(self, more: int) -> int:
        """Bytes that have to go before the disk may take so many more."""
        free = min(self.settings.disk - held_in(self.folder), shutil.disk_usage(self.folder).free - SPARE)
        return max(0, more - free)


def size_of(path: Path) -> int:
    """Bytes of a file; none where it is gone."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def held_in(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(size_of(file) for file in folder.rglob("*"))


@contextmanager
def private_folder(settings: Settings) -> Iterator[Path]:
    """A folder that nobody else can read, removed in the end. Those of servers that were killed are removed first."""
    place = Path(tempfile.gettempdir()) if settings.folder is None else settings.folder
    clear_stale(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # mode 700
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def clear_stale(place: Path) -> None:
    """Remove the folders of this user's servers that no longer live: their locks have fallen."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            ours = folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
        except (OSError, AttributeError):  # gone meanwhile; Windows
            continue
        lock = _lock(folder) if ours else None
        if lock is not None and lock >= 0:
            shutil.rmtree(folder, ignore_errors=True)
            _unlock(lock)
