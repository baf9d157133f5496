"""Memory and devices: the only place that knows how much fits where."""

from slir.compute.chunks import chunks
from slir.compute.devices import pick_device
from slir.compute.memory import memory_for_tiles, rows_in_cache, rows_per_block, rows_that_fit, sparing
from slir.compute.recording import replayed

__all__ = [
    "chunks",
    "rows_that_fit",
    "rows_in_cache",
    "rows_per_block",
    "memory_for_tiles",
    "sparing",
    "replayed",
    "pick_device",
]
