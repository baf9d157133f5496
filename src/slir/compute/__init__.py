"""Memory and devices: the only place that knows how much fits where."""

from slir.compute.chunks import chunks
from slir.compute.devices import pick_device
from slir.compute.memory import (
    columns_in_cache,
    memory_for_tiles,
    peak_memory,
    rows_in_cache,
    rows_per_block,
    rows_that_fit,
    sparing,
)
from slir.compute.recording import replayed
from slir.compute.threads import one_thread, side_by_side

__all__ = [
    "chunks",
    "rows_that_fit",
    "rows_in_cache",
    "columns_in_cache",
    "rows_per_block",
    "memory_for_tiles",
    "peak_memory",
    "sparing",
    "side_by_side",
    "one_thread",
    "replayed",
    "pick_device",
]
