"""A crew on a Dask cluster: workers hold shares of the training crops, and answer and add up what they hold.

What a worker holds is a function of the crops that were drawn and of the stages learnt so far, step by step, and the
scheduler knows the steps. So when a worker is lost, others take its crops from the start through the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain, count
from typing import Any, TypeVar

import torch
from torch import Tensor

from slir.cluster.connection import connect
from slir.cluster.process import check_release, release, settle_in
from slir.compute import one_thread, pick_device
from slir.crews import Crew, added, dealt
from slir.crops import Case, Crop, begun
from slir.errors import InputError, SlirError
from slir.weights.cell_ridge import Sums

T = TypeVar("T")

Device = str | torch.device | None


@contextmanager
def cluster_crews(cluster: Any, device: Device = None) -> Iterator[Callable[[list[Crop]], ClusterCrew]]:
    """Give what puts crops into the hands of a crew on the cluster. Of two crews the first is served first.

    cluster : what `slir.cluster.connection.connect` takes, or a `distributed.Client`.
    device : of the workers.
    """
    name = None if device is None else str(device)
    with connect(cluster, device=name) if isinstance(cluster, str) else nullcontext(_checked(cluster)) as client:
        import dask

        ranks = count()
        # Crops and maps travel within their tasks, or nobody could make them again.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            yield lambda crops: ClusterCrew(client, crops, device, rank=next(ranks))


@contextmanager
def cluster_map(cluster: Any, device: Device = None) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a `map` whose calls are made by the workers of a cluster.

    Its first arguments are shares of the work, one a call; the others are the same for all, and go to each worker once.
    """
    name = None if device is None else str(device)
    with connect(cluster, device=name) if isinstance(cluster, str) else nullcontext(_checked(cluster)) as client:
        import dask

        def each(function: Callable[..., T], shares: Sequence[Any], *same: Iterator[Any]) -> Iterator[T]:
            one = (next(own) for own in same)
            given = client.submit(tuple, [own.to("cpu") if hasattr(own, "to") else own for own in one], pure=False)
            futures = [client.submit(_called, function, own, given, release(), device, pure=False) for own in shares]
            while futures:
                yield _gathered(client, [futures[0]])[0]
                del futures[0]  # the worker need not keep it

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            yield each


def _checked(client: Any) -> Any:
    from distributed import Client

    if isinstance(client, Client) and not client.asynchronous:
        return client
    rule = "be local, local:N, the address of a scheduler, or a distributed.Client that is not asynchronous"
    raise InputError("cluster", rule, repr(client), "Pass one of these.")


class ClusterCrew(Crew):
    """Shares are futures; so are the arguments of steps and questions, which go to each worker once."""

    def __init__(self, client: Any, crops: Sequence[Crop], device: Device, *, rank: int = 0):
        self.client, self.device, self.rank = client, device, rank
        self._dealt = dealt([crop.fold for crop in crops])
        self.size, self.folds = len(crops), len(self._dealt)
        self._fold = [fold for fold, shares in enumerate(self._dealt) for _ in shares]  # of each share
        self._numbers = list(chain.from_iterable(self._dealt))  # of the cases in each share
        self._shares = [
            self._submit(_begun, [crops[number] for number in share], release(), device) for share in self._numbers
        ]

    def move(self, step: Callable[..., Case], *args: Any, folds: Sequence[Any] | None = None) -> None:
        given = self._submit(tuple, args)
        own = [self._submit(tuple, (part,)) for part in folds] if folds is not None else None
        self._shares = [
            self._submit(_moved, step, share, () if own is None else own[fold], given, self.device)
            for share, fold in zip(self._shares, self._fold)
        ]

    def ask(self, question: Callable[..., T], *args: Any, each: Sequence[Any] | None = None) -> list[T]:
        given = self._submit(tuple, args)
        asked = []
        for share, numbers in zip(self._shares, self._numbers):
            own = [() if each is None else (each[number],) for number in numbers]
            asked.append(self._submit(_answered, question, share, own, given, self.device))
        answers = chain.from_iterable(self._gather(asked))
        by_number = dict(zip(chain.from_iterable(self._numbers), answers))
        return [by_number[number] for number in range(self.size)]

    def total(self, count: Callable[..., Sums], *args: Any) -> Sums:
        given = self._submit(tuple, args)
        parts = (self._submit(_counted, count, share, given, self.device) for share in self._shares)
        sums = [added(parts, len(fold), lambda few: self._submit(_summed, *few)) for fold in self._dealt]
        return Sums.side_by_side(self._gather(sums))

    def _submit(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.client.submit(function, *args, pure=False, priority=-self.rank)

    def _gather(self, futures: list[Any]) -> list[Any]:
        return _gathered(self.client, futures)


def _gathered(client: Any, futures: list[Any]) -> list[Any]:
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        return client.gather(futures)
    except KilledWorker as error:
        reason = "each worker that took some of the crops died, which is what happens when memory runs out"
        raise SlirError(f"fit: {reason}. Give workers more memory, or pass fewer cells.") from error
    except CancelledError as error:
        raise SlirError("fit: the cluster went away. Run the same again once it is there.") from error


# What workers do. A crop is worked on by one thread, as in a crew of one process.


def _called(function: Callable[..., T], share: Any, given: tuple, release: tuple[str, str], device: Device) -> T:
    from distributed import get_worker

    check_release(release, get_worker().address)
    with _at_work(device) as target:
        return _on(torch.device("cpu"), function(share, *_on(target, given)))


def _begun(crops: Sequence[Crop], release: tuple[str, str], device: Device) -> list[Case]:
    from distributed import get_worker

    check_release(release, get_worker().address)
    with _at_work(device) as target:
        return [begun(crop, target) for crop in crops]


def _moved(step: Callable[..., Case], cases: Sequence[Case], own: tuple, args: tuple, device: Device) -> list[Case]:
    with _at_work(device) as target:
        own, args = _on(target, own), _on(target, args)
        return [step(case, *own, *args) for case in cases]


def _answered(
    question: Callable[..., T], cases: Sequence[Case], each: Sequence[tuple], args: tuple, device: Device
) -> list[T]:
    with _at_work(device) as target:
        args = _on(target, args)
        return [_on(torch.device("cpu"), question(case, *own, *args)) for case, own in zip(cases, each)]


def _counted(count: Callable[..., Sums], cases: Sequence[Case], args: tuple, device: Device) -> Sums:
    with _at_work(device) as target:
        return _on(torch.device("cpu"), count(cases, *_on(target, args)))


def _summed(*parts: Sums) -> Sums:
    first, second, *rest = parts
    total = first + second  # apart from both: they may be wanted again
    for part in rest:
        total += part
    return total


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
