"""Cutting work over patches into chunks, so that nothing of size m × P is ever held."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

CPU_BUDGET = 64 * 2**20
"""Bytes that the temporaries of one chunk may take on the CPU. Larger chunks are not faster: they leave the caches."""

CACHE = 2 * 2**20
"""Bytes that are touched several times in a row on the CPU at a time."""

GPU_SHARE = 0.1
"""Share of the free GPU memory that one chunk may take."""


CPU_TILES = 2**29
"""Bytes that the restoration of one tile may take on the CPU."""


def memory_for_tiles(device: torch.device) -> int:
    """Bytes that the restoration of one tile of a large image may take: on a CPU, half of what is free at most."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free // 2)
    return min(CPU_TILES, _free_memory() // 2)


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
    return max(1, int(budget / max(bytes_per_row, 1)))


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


def chunks(total: int, rows: int) -> Iterator[slice]:
    """0 … total in slices of at most `rows`, as even as they can be."""
    pieces = max(1, -(-total // rows))
    for piece in range(pieces):
        yield slice(total * piece // pieces, total * (piece + 1) // pieces)
