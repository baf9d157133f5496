"""Memory and devices: the only place that knows how much fits where."""

from slir.compute.chunks import chunks
from slir.compute.devices import is_lazy, pick_device, to_numpy
from slir.compute.memory import (
    columns_in_cache,
    memory_for_tiles,
    peak_memory,
    retry_on_oom,
    rows_in_cache,
    rows_per_block,
    rows_that_fit,
)
from slir.compute.recording import cuda_graph_cached
from slir.compute.threads import one_thread, side_by_side

__all__ = [
    "chunks",
    "rows_that_fit",
    "rows_in_cache",
    "columns_in_cache",
    "rows_per_block",
    "memory_for_tiles",
    "peak_memory",
    "retry_on_oom",
    "side_by_side",
    "one_thread",
    "cuda_graph_cached",
    "pick_device",
    "is_lazy",
    "to_numpy",
]
