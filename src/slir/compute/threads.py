"""Pieces of work side by side on a CPU's cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Result = TypeVar("Result")

if hasattr(os, "register_at_fork"):
    # A fork copies OpenMP's list of threads, but not the threads: a child that shared its work would wait for ever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def side_by_side(work: Callable[[Piece], Result], pieces: Iterable[Piece], device: torch.device) -> Iterator[Result]:
    """work(piece) for each piece, in order; on a CPU as many at a time as torch has threads, each on one of them.

    For work of many small operations, which cores that share each of them would spend waiting for each other.
    """
    threads, pieces = torch.get_num_threads(), list(pieces)
    if device.type != "cpu" or threads == 1 or len(pieces) == 1:
        yield from map(work, pieces)
        return
    pool = ThreadPoolExecutor(min(threads, len(pieces)), initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(work, pieces)
    finally:
        pool.shutdown(cancel_futures=True)  # where one failed, or Ctrl-C was pressed, the rest is not begun
        torch.set_num_threads(threads)  # threads that begin from here on take the number that was set last


@contextmanager
def one_thread() -> Iterator[None]:
    """What this thread computes is computed by it alone: sums that cores share round otherwise."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
