"""A `map` on a Dask cluster, by which the sums of a fit are computed.

The scheduler knows the calls, so when a worker is lost, others repeat what it had to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from slir.cluster.connection import connect
from slir.cluster.process import check_release, release, settle_in
from slir.compute import one_thread, pick_device
from slir.errors import InputError, SlirError

T = TypeVar("T")

Device = str | torch.device | None


@contextmanager
def cluster_map(cluster: Any, device: Device = None) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a `map` whose calls are made by the workers of a cluster.

    Its first arguments are shares of the work, one a call; the others are the same for all, and go to each worker once.
    """
    name = None if device is None else str(device)
    with connect(cluster, device=name) if isinstance(cluster, str) else nullcontext(_check_client(cluster)) as client:
        import dask

        def each(function: Callable[..., T], shares: Sequence[Any], *same: Iterator[Any]) -> Iterator[T]:
            one = (next(own) for own in same)
            given = client.submit(tuple, [own.to("cpu") if hasattr(own, "to") else own for own in one], pure=False)
            futures = [client.submit(_call, function, own, given, release(), device, pure=False) for own in shares]
            while futures:
                yield _gather(client, [futures[0]])[0]
                del futures[0]  # the worker need not keep it

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            yield each


def _check_client(client: Any) -> Any:
    from distributed import Client

    if isinstance(client, Client) and not client.asynchronous:
        return client
    rule = "be local, local:N, the address of a scheduler, or a distributed.Client that is not asynchronous"
    raise InputError("cluster", rule, repr(client), "Pass one of these.")


def _gather(client: Any, futures: list[Any]) -> list[Any]:
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        return client.gather(futures)
    except KilledWorker as error:
        reason = "each worker that took some of the crops died, which is what happens when memory runs out"
        raise SlirError(f"fit: {reason}. Give workers more memory, or pass fewer cells.") from error
    except CancelledError as error:
        raise SlirError(
            "fit: the connection to the cluster was lost. Run the fit again when the cluster is back."
        ) from error


# Run by workers, with one thread each.


def _call(function: Callable[..., T], share: Any, given: tuple, release: tuple[str, str], device: Device) -> T:
    from distributed import get_worker

    check_release(release, get_worker().address)
    with _at_work(device) as target:
        return _on(torch.device("cpu"), function(share, *_on(target, given)))


@contextmanager
def _at_work(device: Device) -> Iterator[torch.device]:
    """Give the device to compute on."""
    settle_in(None if device is None else str(device))
    with torch.no_grad(), one_thread():
        yield pick_device(device)


def _on(device: torch.device, thing: Any) -> Any:
    """The same on a device: tensors, what is made of them, and tuples and lists of these."""
    if isinstance(thing, tuple | list):
        return type(thing)(_on(device, part) for part in thing)
    if isinstance(thing, Tensor):
        return thing.to(device)
    # What is on a CPU came there, or was made there; it may hold what it found out about itself.
    return thing.to(device) if hasattr(thing, "to") and device.type != "cpu" else thing
