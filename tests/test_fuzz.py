"""What fuzzing has found stays mended; a fixed set of damaged files is refused quickly. `make fuzz` looks for more."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fuzzing

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
DEADLINE = 5
"""Seconds of a machine that is busy otherwise."""


class Late(BaseException):
    """Nothing that a reader catches."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("crash", sorted(path.name for path in fuzzing.CRASHES.iterdir()))
def test_what_was_found_stays_mended(tmp_path: Path, crash: str) -> None:
    with deadline(DEADLINE):
        fuzzing.run(crash.partition("-")[0], (fuzzing.CRASHES / crash).read_bytes(), tmp_path)


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_damaged_files_are_used_or_refused(tmp_path: Path, name: str) -> None:
    rng, room = random.Random(7), tmp_path / "room"
    room.mkdir()
    for seed in fuzzing.seeds(name, tmp_path):
        assert fuzzing.run(name, seed, room) is None, "seeds are good files"
    refused, count = 0, 30 if name == "zarr" else 100  # which is slow
    for _ in range(count):
        data = fuzzing.damaged(name, rng, tmp_path)
        with deadline(DEADLINE):
            refused += fuzzing.run(name, data, room) is not None
    assert 0.1 * count <= refused < count, "damage is neither all that is seen nor nothing"
