"""Work that a GPU does again and again, launched as one.

A stage is a hundred small kernels. Launched one by one they keep a GPU waiting for most of the time; recorded as a CUDA
graph and cuda_graph_cached, they follow each other at once.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

LARGEST = 2**20
"""Numbers in the largest input that is recorded: beyond it kernels take longer than their launch."""

MOST = 64
"""Recordings that are kept."""

Outputs = tuple[Tensor, ...]


@dataclass
class _Recording:
    """graph: the launches. inputs, outputs: the memory that it reads and writes. None where recording failed."""

    graph: torch.cuda.CUDAGraph | None = None
    inputs: Outputs = ()
    outputs: Outputs = ()

    def replay(self, tensors: Outputs) -> Outputs:
        assert self.graph is not None
        for own, new in zip(self.inputs, tensors):
            own.copy_(new)
        self.graph.replay()
        return tuple(output.clone() for output in self.outputs)


_kept: OrderedDict[Hashable, _Recording | None] = OrderedDict()
_pool: list[Any] = []


def cuda_graph_cached(
    work: Callable[..., Outputs], *tensors: Tensor, key: Hashable, owner: object | None = None
) -> Outputs:
    """work(*tensors), from a recording where the same was asked for twice before.

    work: launches the same kernels on the same memory whenever its tensors have the same shapes, and waits for none of
    them; it returns tensors. key: whatever else it depends on. owner: whose tensors it reads besides; a recording ends
    with it. Elsewhere than on a GPU, and for large tensors, this is work(*tensors).
    """
    if not _worthwhile(tensors):
        return work(*tensors)
    # A thread has recordings of its own: another would write into the same memory.
    own = (key, id(owner), get_ident(), *((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors))
    if own not in _kept:  # the first time: another size may be next, and all that is made once is made now
        _kept[own] = None
        if owner is not None:
            weakref.finalize(owner, _kept.pop, own, None)
        while len(_kept) > MOST:
            _kept.popitem(last=False)
        return work(*tensors)
    _kept.move_to_end(own)
    found = _kept[own]
    if found is None:
        found = _kept[own] = _record(work, tensors)
    return work(*tensors) if found.graph is None else found.replay(tensors)


def _worthwhile(tensors: Outputs) -> bool:
    return tensors[0].device.type == "cuda" and max(tensor.numel() for tensor in tensors) <= LARGEST


def forget() -> None:
    """Give the memory of all recordings back."""
    _kept.clear()
    _pool.clear()


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage is collected: a graph that ends while another is recorded spoils the recording."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _record(work: Callable[..., Outputs], tensors: Outputs) -> _Recording:
    """A recording of work on copies of the tensors; an empty one where something in it cannot be recorded."""
    inputs = tuple(tensor.clone() for tensor in tensors)
    graph = torch.cuda.CUDAGraph()
    if not _pool:
        # One pool for all: what is temporary in one recording may lie where it lies in another. Outputs are kept.
        _pool.append(torch.cuda.graph_pool_handle())
    try:
        with undisturbed(), torch.cuda.graph(graph, pool=_pool[0], capture_error_mode="thread_local"):
            outputs = work(*inputs)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:
        return _Recording()
    return _Recording(graph, inputs, outputs)
