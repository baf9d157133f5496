"""`slir bench speed`: the cases it measures on, what it makes of figures, and a probe end to end."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from slir.errors import InputError, SlirError
from slir_bench import probe, speed, speed_tables
from slir_bench.protocols import psnr
from slir_bench.speed_tables import Measured

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
    found = Measured("deblur", "paper, squared", 112, 200, **probe.main(asked))
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
    assert speed_tables.exponent(power) == pytest.approx(1.2)
    assert math.isnan(speed_tables.exponent(power[:2]))


def test_figures_are_shown_as_ratios() -> None:
    from rich.console import Console

    found = [some(512, 2.0), some(1024, 8.0), some(512, 7.0, "BM3D"), some(128, 3.0, "paper, squared", 10_000)]
    console = Console(width=160, record=True, file=io.StringIO())
    for table in speed_tables.tables(found, {"operations": 5e9}):
        console.print(table)
    text = console.export_text()
    assert "3.5" in text  # BM3D over slir
    assert "pixels^1.00" in text
    assert "10%" in text  # 1e9 operations in 2 s, of 5e9 a second
    assert "10,000" in text


def test_the_summary_has_growth_and_a_common_size() -> None:
    from rich.console import Console

    found = [some(side, 3e-6 * side ** (2 * 1.1)) for side in (256, 512, 1024, 3464)]
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(speed_tables.tables(found, {"operations": 5e9})[-1])
    (line,) = (line for line in console.export_text().splitlines() if "denoise" in line)
    assert "pixels^1.10" in line
    assert f"{found[1].seconds:.3g}" in line
    assert "3464×3464" in line
    assert speed_tables.growth(found) == {"denoise": pytest.approx(1.1)}


def test_rows_are_ordered_by_cost_and_methods_take_turns() -> None:
    alone = speed.rows()
    for task in speed.TASKS:
        assert [row[2] for row in alone if row[:2] == (task, "slir")] == list(speed.SIDES)
    assert alone[0] == ("deblur", "paper, squared", 128, 1_000)
    assert alone[-1] == ("inpaint", "slir", 3464, 0)
    assert {row[3] for row in alone} == {0, *speed.BANKS}
    assert {row[2] for row in speed.rows(quick=True)} == {128, 256, 396, 512}
    beside = speed.rows(peers=True)
    assert len(beside) == len(set(beside))
    assert set(alone) < set(beside)
    at = beside.index(("denoise", "slir", 512, 0))
    assert [row[1] for row in beside[at : at + 6]] == ["slir", *speed.PEERS["denoise"]]


class Machine:
    """Answers as a probe does, and stops after so many."""

    def __init__(self, stop: int = 10**6):
        self.asked: list[dict] = []
        self.stop = stop

    def __call__(self, question: dict) -> dict:
        if len(self.asked) == self.stop:
            raise KeyboardInterrupt
        self.asked.append(question)
        if question["method"] == "ceiling":
            return {"operations": 1e11, "bytes": 1e10}
        if question["method"] == "BM3D":
            return {"skipped": "BM3D"}
        if question["method"] == "TV":
            raise SlirError("measuring failed")
        return {"seconds": question["side"] / 256, "psnr": 30.0, "peak": 10**9, "start": 10**8}


def test_main_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(speed, "_probe", Machine())
    told: list[tuple[int, int, str]] = []
    found = speed.main(
        out=tmp_path, device="cpu", peers=True, quick=True, tasks=("denoise",), progress=lambda *step: told.append(step)
    )
    # What is not installed, and what fails, is left out.
    assert {one.method for one in found} == {"slir", "NLM", "EPLL", "network"}
    assert {one.side for one in found} == {256, 396, 512}
    kept = json.loads((tmp_path / "speed.json").read_text())
    assert len(kept["measured"]) == len(found)
    assert "512×512" in (tmp_path / "speed.txt").read_text()
    assert told[-1][0] == told[-1][1]
    printed = capsys.readouterr().out
    assert "denoise, slir, 512×512: 2 s, 30.00 dB, 1000 MB" in printed
    assert "BM3D, whose package is not installed" in printed


def test_a_run_that_is_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict = {"out": tmp_path, "device": "cpu", "tasks": ("deblur",), "quick": True}
    first, second, third = Machine(stop=4), Machine(), Machine()
    monkeypatch.setattr(speed, "_probe", first)
    with pytest.raises(KeyboardInterrupt):
        speed.main(**settings)
    kept = json.loads((tmp_path / "speed.json").read_text())["measured"]
    assert len(kept) == 3  # and the ceiling
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["speed.json", "speed.txt"]
    monkeypatch.setattr(speed, "_probe", second)
    found = speed.main(**settings, resume=True)
    assert [one.row for one in found] == speed.rows(("deblur",), quick=True)
    assert len(second.asked) == len(found) - 3
    monkeypatch.setattr(speed, "_probe", third)
    assert speed.main(**settings, resume=True) == found
    assert not third.asked
    assert len(speed.main(**settings)) == len(third.asked) - 1  # without, all is measured anew


def test_figures_of_another_machine_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_probe", Machine())
    settings: dict = {"out": tmp_path, "device": "cpu", "tasks": ("upsample",), "quick": True, "resume": True}
    speed.main(**settings)  # nothing to go on with is no mistake
    path = tmp_path / "speed.json"
    kept = json.loads(path.read_text())
    kept["machine"]["threads"] += 1
    path.write_text(json.dumps(kept))
    with pytest.raises(InputError, match="same machine"):
        speed.main(**settings)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(InputError, match="can be read"):
        speed.main(**settings)


def test_a_probe_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="KeyError"):
        speed._probe(
            {"task": "denoise", "method": "no such", "side": 96, "bank": 0, "device": "cpu", "out": str(tmp_path)}
        )
