"""Fitting on a cluster: the same model as in one process, to the last bit, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

pytest.importorskip("distributed")

import slir
from slir import crews
from slir.carrying import counted, looked
from slir.cascade import LearntStage
from slir.cells import OneCell
from slir.cli import app
from slir.cluster import connection
from slir.crews import LocalCrew, added, dealt
from slir.crops import draw_crops
from slir.errors import InputError
from slir.families import AnyBlur, Family, Fixed, Noise
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import stages
from slir.learning import Untaught, fit_cascade
from slir.model import Model
from slir.operators import Identity
from slir.plans import Plan, cascade_plan
from slir.views import Estimate

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
FAMILIES = {"denoise": Noise(0.05, 0.1), "deblur": AnyBlur((3, 9), 0.01, 0.03)}


def picture(seed: int) -> np.ndarray:
    """Edges and ramps, 72 pixels a side."""
    rng = np.random.default_rng(seed)
    blocks = np.kron(rng.random((9, 9)), np.ones((8, 8)))
    return (0.7 * blocks + 0.3 * np.linspace(0, 1, 72)).astype(np.float32)


PICTURES = [picture(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two processes of one thread."""
    with connection.connect("local:2", memory="2 GB") as client:
        yield client


def tiny(task: str) -> Plan:
    """Two stages, few cells, few patches; "bank" has the paper's weights in its second stage."""
    plan = cascade_plan(FAMILIES["denoise" if task == "bank" else task], stages=2, cells=4)
    plan = replace(plan, patches=3000, pairs=200)
    if task == "bank":
        return replace(plan, partition="one", stages=(plan.stages[0], replace(plan.stages[1], weights="nw")))
    return plan


def fitted(task: str, **settings: Any) -> Model:
    """Two folds of five crops, which are two shares each."""
    family = FAMILIES["denoise" if task == "bank" else task]
    return fit_cascade(PICTURES, family, plan=tiny(task), crops=10, side=40, folds=2, **settings)


def numbers(thing: Any, name: str = "model") -> Iterator[tuple[str, Any]]:
    """All that a model is made of, by where it is."""
    if is_dataclass(thing):
        thing = {field.name: getattr(thing, field.name) for field in fields(thing)}
    if isinstance(thing, dict | list | tuple):
        for key, part in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from numbers(part, f"{name}.{key}")
    else:
        yield name, thing


def assert_same(found: Model, wanted: Model) -> None:
    """In every coefficient, to the last bit."""
    ours, theirs = dict(numbers(found)), dict(numbers(wanted))
    assert ours.keys() == theirs.keys()
    assert sum(isinstance(value, Tensor) for value in ours.values()) >= 12
    for name, value in ours.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, theirs[name]), name
        else:
            assert value == theirs[name], name


# --- the same model ---


@pytest.mark.parametrize("task", ["denoise", "bank"])
def test_a_cluster_learns_what_one_process_learns(task: str, client: Any) -> None:
    found, wanted = fitted(task, cluster=client), fitted(task)
    assert_same(found, wanted)
    assert found.trust is not None
    assert found.examples is not None


@pytest.mark.parametrize("task", ["denoise", "deblur"])
def test_a_cluster_fits_on_top_of_a_kernel_what_one_process_fits(task: str, client: Any) -> None:
    """But for rounding: one process may use more threads for a crop. Progress counts the crops."""
    torch.manual_seed(0)
    base = Model(stages(KernelNetwork((8, 12, 16), blocks=1).requires_grad_(False), 1 if task == "denoise" else 2))
    told: list[int] = []
    settings: dict[str, Any] = {"task": task, "method": "kernel", "base": base, "draws": 10, "cells": 3}
    found = slir.fit(PICTURES, cluster=client, progress=lambda done, total, what: told.append(done), **settings)
    wanted = slir.fit(PICTURES, **settings)
    ours, theirs = (model.stages[-1].regression for model in (found, wanted))  # type: ignore[attr-defined]
    assert torch.equal(ours.cells.centres, theirs.cells.centres)
    torch.testing.assert_close(ours.maps, theirs.maps, rtol=1e-3, atol=1e-4)
    assert found.provenance["ridge"] == wanted.provenance["ridge"]
    assert told[-1] == 10


def test_a_lost_worker_changes_nothing(client: Any) -> None:
    """It is killed while the second stage is learnt; its crops are taken through the first one again."""
    lost = []

    def kill(done: int, total: int, what: str) -> None:
        if done == 3:
            lost.append(next(iter(client.run(os.getpid).values())))
            os.kill(lost[0], signal.SIGKILL)

    assert_same(fitted("deblur", cluster=client, progress=kill), fitted("deblur"))
    client.wait_for_workers(2, timeout=60)
    assert lost[0] not in client.run(os.getpid).values()


def test_the_command_line(tmp_path: Path) -> None:
    for number, pixels in enumerate(PICTURES[:2]):
        Image.fromarray((pixels * 255).astype(np.uint8)).save(tmp_path / f"{number}.png")
    words = ["fit", str(tmp_path), "--task", "denoise", "--crops", "4", "--cells", "1", "--stages", "1", "--quiet"]
    for name, more in (("alone", []), ("shared", ["--cluster", "local:2"])):
        result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / f"{name}.safetensors"), *more])
        assert result.exit_code == 0, result.output
    assert_same(*(slir.load(tmp_path / f"{name}.safetensors") for name in ("alone", "shared")))


# --- crews ---


def crew(count: int = 24, family: Family = FAMILIES["denoise"]) -> LocalCrew:
    planes = [torch.from_numpy(pixels) for pixels in PICTURES]
    drawn = draw_crops(planes, range(4), family, count, 40, 2, torch.Generator().manual_seed(0))
    return LocalCrew.of(drawn, CPU)


def test_sums_do_not_depend_on_threads() -> None:
    """Three shares a fold, in one thread and in two."""
    stage = LearntStage(Untaught(), (Estimate(),), 1.0, 0.0)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        carried = crew()
        carried.move(looked, stage.views, 1.0)
        found.append(carried.total(counted, stage, OneCell()))
    assert found[0].folds == 2
    assert float(found[0].pairs.sum()) == 24 * 17**2
    for one, two in zip(*(sums.tensors for sums in found)):
        assert torch.equal(one, two)


class Jealous(Identity):
    """Cannot be applied by two threads at once."""

    shareable = False
    busy = threading.Lock()

    def guess(self, y: Tensor) -> Tensor:
        assert self.busy.acquire(blocking=False)
        try:
            return super().guess(y) + torch.linalg.svdvals(torch.rand(200, 200))[-1] * 0
        finally:
            self.busy.release()


def test_operators_that_do_not_bear_threads_have_one() -> None:
    torch.set_num_threads(2)
    crew(family=Fixed(Jealous(), 0.1))


def test_shares_are_of_one_fold_and_keep_the_order() -> None:
    folds = [0, 1, 0, 0, 1, 0, 0, 0]
    assert dealt(folds) == [[[0, 2, 3, 5], [6, 7]], [[1, 4]]]


@pytest.mark.parametrize(
    ("count", "order"),
    [(1, "a"), (3, "(abc)"), (4, "(abcd)"), (6, "((abcd)(ef))"), (17, "(((abcd)(efgh)(ijkl)(mnop))q)")],
)
def test_sums_are_added_in_one_order(count: int, order: str) -> None:
    parts = iter("abcdefghijklmnopq"[:count])
    assert crews.FAN == 4
    assert added(parts, count, lambda few: f"({''.join(few)})") == order
    assert next(parts, None) is None


# --- errors ---


def refused(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        call()
    assert caught.value.argument == "cluster"


@pytest.mark.parametrize("cluster", ["nowhere", "local:0", "local:many", 7])
def test_no_cluster(cluster: Any) -> None:
    refused(lambda: slir.fit(PICTURES, task="denoise", cluster=cluster), "local:N")


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 1)
    refused(lambda: slir.fit(PICTURES, task="denoise", cluster="tcp://127.0.0.1:1"), "scheduler that answers")


def test_the_paper_needs_no_cluster(tmp_path: Path) -> None:
    refused(lambda: slir.fit(PICTURES, operator=Identity(), sigma=0.1, method="paper", cluster="local"), "left out")
    words = ["fit", str(tmp_path), "-o", str(tmp_path / "m.safetensors"), "--task", "denoise", "--method", "paper"]
    result = CliRunner().invoke(app, [*words, "--sigma", "25", "--cluster", "local"])
    assert result.exit_code == 2
    assert "--cluster must be left out with --method paper" in result.output


def test_the_command_line_names_its_option(tmp_path: Path) -> None:
    Image.fromarray((PICTURES[0] * 255).astype(np.uint8)).save(tmp_path / "a.png")
    words = ["fit", str(tmp_path), "-o", str(tmp_path / "m.safetensors"), "--task", "denoise", "--cluster", "nowhere"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "--cluster must be local, local:N or the address of a scheduler" in result.output
