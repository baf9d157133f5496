"""`slir bench speed`: the cases it measures on, what it makes of figures, and a probe end to end."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from slir.bench import probe, speed
from slir.bench.protocols import psnr
from slir.bench.speed import Measured

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("task", speed.TASKS)
def test_cases_are_what_their_operators_make_of_the_picture(task: str) -> None:
    own = probe.case(task, 200)
    operator = probe.operator_for(own)
    y = operator.forward(torch.from_numpy(own.clean).double()).numpy()
    assert own.y.shape == y.shape
    inner = (slice(4, -4), slice(4, -4))  # borders are the protocol's
    assert float(np.std((own.y - y)[inner])) == pytest.approx(own.sigma, rel=0.05, abs=2e-3)
    little = probe._little(own)
    assert little.y.shape == (96, 96)
    probe.operator_for(little).x_shape((96, 96))


def test_the_picture_has_any_size() -> None:
    assert probe.picture(100).shape == (100, 100)
    large = probe.picture(1000)
    assert large.shape == (1000, 1000)
    assert np.array_equal(large[:100, :100], probe.picture(100))
    assert float(large.std()) > 0.1


def test_a_probe_measures(tmp_path: Path) -> None:
    asked = {"task": "denoise", "method": "slir", "side": 128, "bank": 0, "device": "cpu", "out": str(tmp_path)}
    found = Measured("denoise", "slir", 128, 0, **probe.main(asked))
    assert found.seconds > 0
    assert found.psnr > psnr(probe.case("denoise", 128), probe.case("denoise", 128).y) + 5
    assert found.peak >= found.start > 50e6
    # Cells, maps and groups of 61² patches cost about a gigaflop a megapixel and stage.
    assert 1e8 < found.operations < 1e11
    assert 1e6 < found.traffic < 1e10


def test_the_papers_method_with_a_bank(tmp_path: Path) -> None:
    asked = {
        "task": "deblur",
        "method": "paper, squared",
        "side": 96,
        "bank": 200,
        "device": "cpu",
        "out": str(tmp_path),
    }
    found = Measured("deblur", "paper", 112, 200, **probe.main(asked))
    assert math.isfinite(found.psnr)
    assert found.operations == 0


def test_ceilings_are_positive() -> None:
    found = probe.ceiling("cpu")
    assert found["operations"] > 1e8
    assert found["bytes"] > 1e7


def some(side: int, seconds: float, method: str = "slir", bank: int = 0) -> Measured:
    return Measured("denoise", method, side, bank, seconds, 30.0, 500_000_000, 300_000_000, 1e9, 1e9)


def test_the_exponent_is_that_of_a_power() -> None:
    power = [some(side, 1e-6 * side ** (2 * 1.2)) for side in (256, 512, 1024, 2048)]
    power[0] = some(256, 100.0)  # below a quarter of a megapixel start-up counts, so it does not
    assert speed.exponent(power) == pytest.approx(1.2)
    assert math.isnan(speed.exponent(power[:2]))


def test_figures_are_shown_as_ratios() -> None:
    from rich.console import Console

    found = [some(512, 2.0), some(1024, 8.0), some(512, 7.0, "BM3D"), some(128, 3.0, "paper", 10_000)]
    console = Console(width=160, record=True, file=io.StringIO())
    for table in speed.tables(found, {"operations": 5e9}):
        console.print(table)
    text = console.export_text()
    assert "3.5" in text  # BM3D over slir
    assert "pixels^1.00" in text
    assert "10%" in text  # 1e9 operations in 2 s, of 5e9 a second
    assert "10,000" in text


def test_main_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    asked = []

    def answer(question: dict) -> dict:
        asked.append(question)
        if question["method"] == "ceiling":
            return {"operations": 1e11, "bytes": 1e10}
        if question["method"] == "BM3D":
            return {"skipped": "BM3D"}
        return {"seconds": 1.0, "psnr": 30.0, "peak": 10**9, "start": 10**8}

    monkeypatch.setattr(speed, "_probe", answer)
    told: list[tuple[int, int, str]] = []
    found = speed.main(
        out=tmp_path, device="cpu", peers=True, quick=True, tasks=("denoise",), progress=lambda *step: told.append(step)
    )
    assert {one.method for one in found} == {
        "slir",
        "NLM",
        "TV",
        "EPLL",
        "network",
    }  # what is not installed is left out
    assert {one.side for one in found} == {256, 396, 512}
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert len(kept["measured"]) == len(found)
    assert told[-1][0] == told[-1][1]
    assert "slir" in capsys.readouterr().out


def test_a_probe_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="KeyError"):
        speed._probe(
            {"task": "denoise", "method": "no such", "side": 96, "bank": 0, "device": "cpu", "out": str(tmp_path)}
        )
