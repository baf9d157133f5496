"""How much fits where, and what to do when it did not."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

import torch

from slir.compute import recording
from slir.errors import FullError

CPU_BUDGET = 64 * 2**20
"""Bytes that the temporaries of one chunk may take on the CPU. Larger chunks are not faster: they leave the caches."""

CPU_TILES = 3 * 2**28
"""Bytes that the restoration of one tile, halo and all, may take on the CPU."""

CACHE = 2 * 2**20
"""Bytes that are touched several times in a row on the CPU at a time."""

GPU_SHARE = 0.1
"""Share of the free GPU memory that one chunk may take."""

SHARES = (1.0, 1 / 4, 1 / 16, 1 / 64)
"""Of all these, one after the other, until the work fits."""

NO_ROOM_FOR_CODE = "could not create a primitive"
"""What oneDNN says when it finds no memory for the code that it generates. It may crash if it is asked again."""

_share: ContextVar[float] = ContextVar("share", default=1.0)

T = TypeVar("T")


def retry_on_oom(work: Callable[[], T], device: torch.device) -> T:
    """work(), again with smaller chunks and tiles where memory ran out; `FullError` where the smallest do not fit."""
    reason = ""
    for share in SHARES:
        token = _share.set(share)
        try:
            return work()
        except (torch.cuda.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _is_full(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        finally:
            _share.reset(token)
        if NO_ROOM_FOR_CODE in reason:
            break
        gc.collect()  # the error held what was being computed
        if device.type == "cuda":
            recording.forget()
            torch.cuda.empty_cache()
    raise FullError(str(device), reason)


def _is_full(error: Exception) -> bool:
    """Whether memory ran out. On a CPU torch says so in words alone."""
    known = isinstance(error, torch.cuda.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in ("can't allocate memory", NO_ROOM_FOR_CODE))


def memory_for_tiles(device: torch.device) -> int:
    """Bytes that the restoration of one tile of a large image may take: on a CPU, half of what is free at most."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(_share.get() * free // 2)
    return int(_share.get() * min(CPU_TILES, _free_memory() // 2))


def _free_memory() -> int:
    """Bytes of main memory that are free, as far as the system says; else plenty."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 2**40


def rows_that_fit(bytes_per_row: float, device: torch.device) -> int:
    """How many rows (patches) a chunk may have when each needs `bytes_per_row` of temporaries; at least 1."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        budget = GPU_SHARE * free
    else:
        budget = CPU_BUDGET
    return max(1, int(_share.get() * budget / max(bytes_per_row, 1)))


def rows_in_cache(row_length: int, like: torch.Tensor) -> int:
    """How many rows of `row_length` numbers stay in a CPU's second-level cache between passes; all of them on a GPU."""
    if like.device.type != "cpu":
        return max(1, len(like))
    return max(1, CACHE // max(row_length * like.element_size(), 1))


def rows_per_block(row_length: int, device: torch.device) -> int:
    """How many rows an iteration works on together, each block to its own end.

    On a CPU the block then stays near the cores between the passes of a step, and blocks that converge early stop
    early; a GPU wants larger blocks to fill itself.
    """
    return max(1, (2**21 if device.type == "cpu" else 2**25) // max(row_length, 1))


def columns_in_cache(rows: int, like: torch.Tensor) -> int:
    """How many columns of `rows` numbers stay in the second-level caches of a CPU's cores; no limit on a GPU."""
    if like.device.type != "cpu":
        return 2**62
    return max(64, 2**20 // (max(rows, 1) * like.element_size()))


def peak_memory() -> int | None:
    """The most bytes that this process has held so far; None where the system does not say.

    On Linux not by `getrusage`, which counts the memory of the process that started this one.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
