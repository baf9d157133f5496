"""Memory and devices: the only place that knows how much fits where."""

from slir.compute.chunks import chunks, memory_for_tiles, rows_in_cache, rows_per_block, rows_that_fit
from slir.compute.devices import pick_device

__all__ = ["chunks", "rows_that_fit", "rows_in_cache", "rows_per_block", "memory_for_tiles", "pick_device"]
