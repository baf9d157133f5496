"""A Dask cluster by its name, and work that flows through it."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from slir.errors import InputError, SlirError

PATIENCE = 30
"""Seconds to wait for a scheduler's answer, and for the first worker."""

LOOPBACK = "127.0.0.1"

AHEAD = 1000
"""Tasks that the scheduler knows of at least, if there are so many. A million at once would only fill its memory."""

QUIET = {
    # Tasks are not in a process's first thread, whose memory alone is kept for them (`slir.cluster.process`): a pool of
    # their own would be given back and asked for again, an eighth of the time.
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
    # Looks at tasks a hundred times a second, which takes some percent.
    "distributed.worker.profile.enabled": False,
    # By itself Dask looks whether it is alive 50 times a second and at its memory 10 times, in every process: a
    # client and two workers at rest took 12 % of a core together, and 3 % so.
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "500ms",
    # The ports for pages cannot be switched off, but nothing has to be on them.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Settings of local clusters, whose tasks are long and whose pages nobody asked for."""

Item = TypeVar("Item")


@contextlib.contextmanager
def connect(where: str, *, device: str | None = None, memory: str | int = "auto") -> Iterator[Any]:
    """Give a `distributed.Client` of the cluster that `where` names.

    where : "local" for processes on this machine, one a core, or as many as memory has room for, or one a GPU;
        "local:N" for N of them; or the address of a scheduler, such as "tcp://10.0.0.1:8786". Local processes listen on
        loopback and talk by TLS, with a key that they alone have: whoever reaches a scheduler runs code on its workers.
    device : where the work will be done, which decides how many processes "local" means.
    memory : bytes that each local process may take before it is ended, or "4 GB"; "auto" shares what there is.
    """
    count = _local_count(where)
    distributed = _package()
    if count is None:
        with _at_address(distributed, where) as client:
            yield client
        return
    import dask

    security = _own_security(distributed)
    # Not a LocalCluster, whose workers have a dashboard or, in some releases, ports for pages on all addresses.
    both = {"host": LOOPBACK, "protocol": "tls://", "security": security}
    both |= {"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
    each = {"nthreads": 1, "memory_limit": memory, "silence_logs": logging.CRITICAL}
    worker = {"cls": distributed.Nanny, "options": both | each}
    with (
        dask.config.set(QUIET),
        distributed.SpecCluster(
            scheduler={"cls": distributed.Scheduler, "options": both | {"port": 0}},
            workers=dict.fromkeys(range(count or _fitting(device)), worker),
            security=security,
            silence_logs=logging.CRITICAL,
        ) as own,
        distributed.Client(own) as client,
    ):
        yield client


def _local_count(where: str) -> int | None:
    """How many local processes are meant, 0 for as many as fit; None for the address of a scheduler."""
    kind, _, count = where.partition(":")
    if kind == "local" and (not count or (count.isdigit() and int(count) > 0)):
        return int(count or 0)
    if kind == "local" or "://" not in where:
        remedy = "Pass local, local:4, or the address that dask scheduler prints, such as tcp://10.0.0.1:8786."
        raise InputError("cluster", "be local, local:N or the address of a scheduler", repr(where), remedy)
    return None


def _package() -> Any:
    try:
        import distributed
    except ImportError as error:
        remedy = "Run pip install 'slir[dask]', on all machines of the cluster."
        raise InputError("cluster", "have the package distributed", "not installed", remedy) from error
    return distributed


def _own_security(distributed: Any) -> Any:
    """A key and a certificate for one cluster, in memory only."""
    try:
        return distributed.Security.temporary()
    except ImportError as error:
        remedy = "Run pip install 'slir[dask]'."
        raise InputError("cluster", "have the package cryptography", "not installed", remedy) from error


@contextlib.contextmanager
def _at_address(distributed: Any, address: str) -> Iterator[Any]:
    client, reason = None, ""
    try:
        client = distributed.Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
    if client is None:
        # A client that found nobody is closed when it is collected: now, since while another one starts
        # distributed would wait for a lock that it holds itself.
        gc.collect()
        remedy = "Start one with: dask scheduler; then dask worker ADDRESS on each machine."
        raise InputError("cluster", "be the address of a scheduler that answers", f"{address} ({reason})", remedy)
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            remedy = f"Start some with: dask worker {address}"
            raise InputError("cluster", "have workers", f"{address}, which has none", remedy) from None
        yield client


def _fitting(device: str | None) -> int:
    """How many processes suit this machine."""
    if device is not None and device.startswith("cuda"):
        import torch

        return max(1, torch.cuda.device_count())
    import psutil

    from slir.files.batch import WORKER_MEMORY

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().available // (2 * WORKER_MEMORY)))


def in_flow(
    client: Any, submit: Callable[[Item], Any], items: Iterable[Item], *, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Item, Any]]:
    """Give (item, future) as soon as submit(item), a future, is done, whichever is first.

    Items are submitted in order, as many ahead as keep all workers busy. Once `stopped`, or when the iteration ends
    early, what is underway is cancelled.
    """
    from distributed import as_completed

    due = iter(items)
    known: dict[Any, tuple[Item, Any]] = {}
    running = as_completed(loop=client.loop)

    def begin(count: int) -> None:
        for item in islice(due, count):
            future = submit(item)
            known[future.key] = (item, future)
            running.add(future)

    begin(max(AHEAD, 4 * sum(client.nthreads().values())))
    try:
        for future in running:
            item, _ = known.pop(future.key)
            begin(1)
            yield item, future
            if stopped():
                return
    finally:
        if known:
            client.cancel([future for _, future in known.values()])


def result(future: Any, what: str) -> Any:
    """What a task gave. Raises what it raised, or, where workers died of it, an error that says so.

    what : what it worked on, for people.
    """
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        reason = "each worker that restored it died, which is what happens when memory runs out"
        remedy = "Give workers more memory (4 GB is plenty), or start fewer of them on a machine."
        raise SlirError(f"{what}: {reason}. {remedy}") from error
    except CancelledError as error:
        raise SlirError(
            f"{what}: the connection to the cluster was lost. Run the same command again: finished work is kept."
        ) from error
