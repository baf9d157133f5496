"""Work that is launched as one: what is kept, for how long, and that it gives what the work itself gives."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from slir.compute import cuda_graph_cached, recording


class Owner:
    """Something whose tensors the work reads."""


def doubled(x: Tensor) -> tuple[Tensor]:
    return (2 * x,)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """Recordings as if there were a GPU: what is cuda_graph_cached computes anew from the recording's own memory."""
    made: list[Tensor] = []

    def record(work, tensors):
        inputs = tuple(tensor.clone() for tensor in tensors)
        outputs = work(*inputs)

        def replay() -> None:
            for output, new in zip(outputs, work(*inputs)):
                output.copy_(new)

        made.append(inputs[0])
        return recording._Recording(SimpleNamespace(replay=replay), inputs, outputs)

    monkeypatch.setattr(recording, "_record", record)
    monkeypatch.setattr(recording, "_worthwhile", lambda tensors: True)
    recording.forget()
    yield made
    recording.forget()


def test_elsewhere_than_on_a_gpu_the_work_is_done_as_it_is() -> None:
    recording.forget()  # what tests before this one recorded where there is a GPU
    for _ in range(3):
        assert cuda_graph_cached(doubled, torch.ones(3), key="doubled")[0].tolist() == [2, 2, 2]
    assert not recording._kept


def test_the_second_time_is_recorded_and_the_third_replayed(recorded: list[Tensor]) -> None:
    results = [cuda_graph_cached(doubled, torch.full((3,), float(value)), key="doubled")[0] for value in range(5)]
    assert len(recorded) == 1
    assert [float(result[0]) for result in results] == [0, 2, 4, 6, 8]  # none was written over by a later one


@pytest.mark.parametrize(
    ("tensor", "key"), [(torch.ones(4), "a"), (torch.ones(3, dtype=torch.float64), "a"), (torch.ones(3), "b")]
)
def test_another_shape_type_or_key_is_another_recording(recorded: list[Tensor], tensor: Tensor, key: str) -> None:
    for _ in range(3):
        cuda_graph_cached(doubled, torch.ones(3), key="a")
        result = cuda_graph_cached(doubled, tensor, key=key)[0]
    assert len(recorded) == 2
    assert torch.equal(result, 2 * tensor)


def test_a_recording_ends_with_its_owner(recorded: list[Tensor]) -> None:
    owner = Owner()
    for _ in range(2):
        cuda_graph_cached(doubled, torch.ones(3), key="a", owner=owner)
    assert len(recording._kept) == 1
    del owner
    gc.collect()
    assert not recording._kept


def test_threads_do_not_share_recordings(recorded: list[Tensor]) -> None:
    def work() -> None:
        for _ in range(3):
            cuda_graph_cached(doubled, torch.ones(3), key="a")

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    # a thread that ended may have left its number to the next
    assert len(recorded) == len({key[2] for key in recording._kept})


def test_only_so_many_are_kept(recorded: list[Tensor]) -> None:
    for size in range(1, recording.MOST + 10):
        cuda_graph_cached(doubled, torch.ones(size), key="a")
    assert len(recording._kept) == recording.MOST


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_replays_what_it_recorded() -> None:
    recording.forget()
    matrix = torch.randn(64, 64, device="cuda")

    def work(x: Tensor) -> tuple[Tensor, Tensor]:
        return (matrix @ x).relu(), x.sum(0)

    for seed in range(5):
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(seed)).cuda()
        for found, wanted in zip(cuda_graph_cached(work, x, key="product"), work(x)):
            torch.testing.assert_close(found, wanted)
    assert all(kept is not None and kept.graph is not None for kept in recording._kept.values())
    recording.forget()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_that_waits_for_the_gpu_is_done_without_a_recording() -> None:
    recording.forget()
    for _ in range(4):
        assert (
            cuda_graph_cached(lambda x: (x * float(x.sum()),), torch.ones(3, device="cuda"), key="waits")[0].tolist()
            == [3] * 3
        )
    assert all(kept is not None and kept.graph is None for kept in recording._kept.values())
    assert torch.ones(2, device="cuda").sum().item() == 2  # the device is well
    recording.forget()
