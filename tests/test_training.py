"""The script that learns the kernel: it runs, goes on from its checkpoint, and what it writes restores pictures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

TRAINING = Path(__file__).parent.parent / "training"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three smooth pictures with edges; the first is held out."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for name in "abc":
        waves = rng.standard_normal((264, 280, 3)).cumsum(0).cumsum(1)
        waves = (waves - waves.min()) / np.ptp(waves)
        Image.fromarray((255 * waves).astype(np.uint8)).save(folder / f"{name}.png")
    return folder


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TRAINING / script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def test_training_goes_on_from_its_checkpoint(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "kernel.pt"
    tiny = ["--width", 8, "--crop", 48, "--batch", 2, "--workers", 2, "--out", out, "--pictures", pictures]
    steps: list[int] = []
    for count in (2, 3):
        done = run("train.py", *tiny, "--minutes", 10, "--steps", count)
        assert done.returncode == 0, done.stderr
        state = torch.load(out)
        steps.append(state["step"])
        assert all(bool(weight.isfinite().all()) for weight in state["mean"].values())
    assert steps == [2, 3]
    lines = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == steps
    assert {"grey-25", "colour-25", "loss", "pixels"} <= set(lines[-1])


def test_a_step_is_the_same_however_many_workers_share_it(pictures: Path, tmp_path: Path) -> None:
    weights = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.pt"
        tiny = ["--width", 8, "--crop", 48, "--batch", 2, "--accumulate", 2, "--steps", 2, "--minutes", 10]
        done = run("train.py", *tiny, "--workers", workers, "--out", out, "--pictures", pictures)
        assert done.returncode == 0, done.stderr
        assert torch.load(out)["step"] == 2
        weights.append(torch.load(out)["net"])
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=0, atol=2e-3, msg=name)


@pytest.mark.filterwarnings("ignore::slir.SlirWarning")  # two steps of training explain nothing
def test_the_error_head_makes_a_model_with_calibrated_errors(pictures: Path, tmp_path: Path) -> None:
    import slir

    checkpoint, out = tmp_path / "kernel.pt", tmp_path / "model.safetensors"
    named = tmp_path / "cc0"
    named.symlink_to(pictures, target_is_directory=True)
    tiny = ["--width", 8, "--crop", 48, "--batch", 2, "--steps", 2, "--minutes", 10, "--grey"]
    assert run("train.py", *tiny, "--out", checkpoint, "--pictures", pictures).returncode == 0
    options = ["--task", "deblur", "--minutes", 0.01, "--crops", 3, "--stages", 2]
    done = run("learn_errors.py", *options, "--network", checkpoint, "--out", out, "--pictures", named)
    assert done.returncode == 0, done.stderr
    model = slir.load(str(out), device="cpu")
    blurred = np.asarray(Image.open(pictures / "a.png").convert("L"))[:64, :64]
    result = slir.deblur(blurred, slir.psf.gaussian(1.0), sigma=5, model=model, return_info=True)
    low, high = result.interval(0.9)
    assert result.error_map is not None
    assert bool((low <= result.image).all() and (result.image <= high).all())
