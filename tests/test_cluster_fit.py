"""Fitting on a cluster gives the same model as one process, also when workers die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("distributed")

import slir
from slir.cli import app
from slir.cluster import connection
from slir.errors import InputError
from slir.kernel.cell_ridge import CellRidgeStage
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import stages
from slir.model import Model
from slir.operators import Identity

pytestmark = pytest.mark.usefixtures("one_thread")


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


def fitted(task: str = "denoise", **settings: Any) -> Model:
    """On top of a small network, from ten crops."""
    torch.manual_seed(0)
    base = Model(stages(KernelNetwork((8, 12, 16), blocks=1).requires_grad_(False), 1 if task == "denoise" else 2))
    return slir.fit(PICTURES, task=task, base=base, crops=10, cells=3, **settings)


def assert_same(found: Model, wanted: Model) -> None:
    """But for rounding: one process may use more threads for a crop."""
    ours, theirs = found.stages[-1], wanted.stages[-1]
    assert isinstance(ours, CellRidgeStage)
    assert isinstance(theirs, CellRidgeStage)
    assert torch.equal(ours.cells.centres, theirs.cells.centres)
    torch.testing.assert_close(ours.maps, theirs.maps, rtol=1e-2, atol=1e-3)
    assert found.provenance["ridge"] == wanted.provenance["ridge"]


# --- the same model ---


@pytest.mark.parametrize("task", ["denoise", "deblur"])
def test_a_cluster_fits_what_one_process_fits(task: str, client: Any) -> None:
    """Progress counts the crops."""
    told: list[int] = []
    found = fitted(task, cluster=client, progress=lambda done, total, what: told.append(done))
    assert_same(found, fitted(task))
    assert told[-1] == 10


def test_a_lost_worker_changes_nothing(client: Any) -> None:
    """A worker is killed while sums are computed; others repeat its share."""
    lost = []

    def kill(done: int, total: int, what: str) -> None:
        if not lost:
            lost.append(next(iter(client.run(os.getpid).values())))
            os.kill(lost[0], signal.SIGKILL)

    assert_same(fitted("deblur", cluster=client, progress=kill), fitted("deblur"))
    client.wait_for_workers(2, timeout=60)
    assert lost[0] not in client.run(os.getpid).values()


def test_the_command_line(tmp_path: Path) -> None:
    for number, pixels in enumerate(PICTURES[:2]):
        Image.fromarray((pixels * 255).astype(np.uint8)).save(tmp_path / f"{number}.png")
    words = ["fit", str(tmp_path), "--task", "denoise", "--crops", "4", "--cells", "2", "--quiet"]
    for name, more in (("alone", []), ("shared", ["--cluster", "local:2"])):
        result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / f"{name}.safetensors"), *more])
        assert result.exit_code == 0, result.output
    assert_same(*(slir.load(tmp_path / f"{name}.safetensors") for name in ("alone", "shared")))


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
