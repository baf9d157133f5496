"""Training: its operators are those of slir, its scripts go on from their checkpoints, and what they write restores."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import slir
from slir.estimator.loop import restore
from slir.io.models import load_kernel
from slir.kernel.learnt import CALIBRATED
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Downsample, Mask, Operator

TRAINING = Path(__file__).parent.parent / "training"
sys.path.insert(0, str(TRAINING))

import camera  # noqa: E402
import degradations  # noqa: E402
import losses  # noqa: E402
import torus  # noqa: E402
from optimiser import orthogonalised  # noqa: E402
from pictures import Pool  # noqa: E402

TINY = ["--widths", 8, 12, 16, "--crop", 48, "--batch", 2, "--loop-batch", 2, "--operators", 0.001]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three smooth pictures with edges; the first is held out."""
    folder = tmp_path_factory.mktemp("pictures") / "cc0"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "abc":
        waves = rng.standard_normal((264, 280, 3)).cumsum(0).cumsum(1)
        waves = (waves - waves.min()) / np.ptp(waves)
        Image.fromarray((255 * waves).astype(np.uint8)).save(folder / f"{name}.png")
    return folder


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TRAINING / script), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)


# --- operators on a torus ---


def on_torus(kind: str, side: int = 24) -> tuple[torus.Operators, list[Operator]]:
    """Two operators of a kind for square pictures, as a batch and one by one."""
    generator = torch.Generator().manual_seed(0)
    if kind == "mask":
        missing = torch.rand(2, side, side, generator=generator) < 0.6
        return torus.Masks(1 - missing[:, None].float()), [Mask(own) for own in missing]
    kernels = torch.rand(2, 5, 3, generator=generator)
    kernels /= kernels.sum((1, 2), keepdim=True)
    if kind == "blur":
        singly: list[Operator] = [Blur(kernel, "circular") for kernel in kernels]
        fields = [degradations.centred(kernel, side, own.convolution.centre) for kernel, own in zip(kernels, singly)]  # type: ignore[attr-defined]
        return torus.Blurs(torch.fft.rfft2(torch.stack(fields)[:, None])), singly
    downs = [Downsample(2, kernel.double().numpy(), border="circular") for kernel in kernels]
    fields = []
    for kernel, down in zip(kernels, downs):
        row, col = down.convolution.centre
        fields.append(degradations.centred(kernel, side, (row + down.phase, col + down.phase)))
    return torus.Downsamplings(torch.fft.fft2(torch.stack(fields)[:, None]), 2), list(downs)


@pytest.mark.parametrize("kind", ["blur", "down2", "mask"])
def test_operators_on_a_torus_are_those_of_slir(kind: str) -> None:
    batch, singly = on_torus(kind)
    x = torch.rand(2, 1, 24, 24, generator=torch.Generator().manual_seed(1))
    y = batch.forward(x)
    for number, operator in enumerate(singly):
        torch.testing.assert_close(y[number, 0], operator.forward(x[number, 0]), rtol=0, atol=1e-6)
        back = operator.adjoint(y[number, 0].contiguous())
        torch.testing.assert_close(batch.adjoint(y)[number, 0], back, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["blur", "down2", "mask"])
def test_updates_on_a_torus_have_no_gradient(kind: str) -> None:
    batch, _ = on_torus(kind)
    x, z = (torch.rand(2, 1, 24, 24, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    y, ridge = batch.forward(x), torch.tensor([0.1, 0.01]).view(2, 1, 1, 1)
    x = batch.update(y, z, ridge)
    gradient = batch.adjoint(batch.forward(x) - y) + ridge * (x - z)
    assert float(gradient.abs().max()) < 1e-5
    start = batch.start(y, ridge)
    around = start.roll(1, -1) + start.roll(-1, -1) + start.roll(1, -2) + start.roll(-1, -2)
    gradient = batch.adjoint(batch.forward(start) - y) + ridge * (4 * start - around)
    assert float(gradient.abs().max()) < 2e-4  # the spectrum of ∇ᵀ∇ is kept from zero


def test_noise_has_the_level_that_it_says() -> None:
    torch.manual_seed(0)
    added, level = degradations.noise(torch.zeros(64, 3, 64, 64))
    assert added.shape == level.shape
    assert float((added.square().mean((1, 2, 3)) / level.square().mean((1, 2, 3)) - 1).abs().max()) < 0.25
    assert float(level.max()) <= degradations.LARGEST_SIGMA


def colour_picture(side: int = 96) -> torch.Tensor:
    """Smooth colours with edges: (1, 3, side, side) in [0, 1]."""
    rows = torch.linspace(0, 3, side)
    waves = torch.stack([0.5 + 0.3 * torch.sin(rows[:, None] * (1 + c) + rows * (2 - c)) for c in range(3)])
    waves[:, side // 3 : side // 2, side // 4 : side // 2] = torch.tensor([0.8, 0.2, 0.3])[:, None, None]
    return waves[None]


@pytest.mark.parametrize(("quality", "subsampled"), [(20, False), (75, True), (92, False)])
def test_jpeg_of_training_loses_what_jpeg_loses(quality: int, subsampled: bool) -> None:
    clean = torch.from_numpy(demo_picture()[:96, :96]).permute(2, 0, 1)[None] / 255
    ours = camera.jpeg_at_corner(clean, torch.full((1, 1, 1, 1), float(quality)), torch.full((1, 1, 1, 1), subsampled))
    stored = io.BytesIO()
    pixels = (255 * clean[0]).round().byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(stored, "JPEG", quality=quality, subsampling=2 if subsampled else 0)
    theirs = torch.from_numpy(np.array(Image.open(stored))).permute(2, 0, 1)[None] / 255
    lost, expected, between = (
        float(difference.square().mean().sqrt()) for difference in (ours - clean, theirs - clean, ours - theirs)
    )
    assert lost == pytest.approx(expected, rel=0.1)
    assert between < 0.6 * expected


def test_demosaicking_keeps_plain_colours() -> None:
    plain = torch.tensor([0.2, 0.5, 0.9]).view(1, 3, 1, 1).expand(-1, -1, 16, 16)
    torch.testing.assert_close(camera.demosaic(plain, torch.zeros(1, 1, 1, 1)), plain)


def test_inverse_of_matrices() -> None:
    matrices = torch.eye(3) + 0.2 * torch.randn(4, 3, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(camera.inverse(matrices), torch.linalg.inv(matrices))


def test_noise_of_cameras_is_coarse_and_leaves_the_truth_alone() -> None:
    torch.manual_seed(1)
    y, truth = camera.camera(colour_picture().expand(24, -1, -1, -1))
    assert float(y.min()) >= 0
    assert float(y.max()) <= 1
    noise = y - truth
    beside = (noise[..., 1:] * noise[..., :-1]).mean() / noise.square().mean()
    assert float(beside) > 0.15  # white noise has 0
    assert 1 / 255 < float(noise.square().mean().sqrt()) < 30 / 255
    assert float(noise.mean().abs()) < 2 / 255


def test_pictures_of_many_kinds_stay_in_range_but_for_points_of_light() -> None:
    torch.manual_seed(0)
    letters = (torch.rand(4, 32, 32) < 0.1).float()
    clean = degradations.varied(torch.rand(64, 3, 32, 32), letters)
    assert clean.shape == (64, 3, 32, 32)
    assert bool((clean >= 0).all())
    assert 0 < int((clean.amax((1, 2, 3)) > 1).sum()) < 16


def test_the_loop_of_training_is_the_loop_of_slir() -> None:
    """With a blur whose border is circular, but for the pixels near it: slir's start does not smooth across it."""
    from slir.kernel.network import KernelNetwork
    from slir.kernel.stage import stages
    from slir.model import Model

    torch.manual_seed(0)
    net = KernelNetwork((8, 12, 16), blocks=1).requires_grad_(False)
    for weight in net.patches.parameters():
        weight *= 0.2
    batch, singly = on_torus("blur", 64)
    clean = torch.rand(2, 1, 64, 64)
    y = batch.forward(clean) + 0.02 * torch.randn(2, 1, 64, 64)
    *_, (estimate, _) = losses.unrolled(net, batch, y, torch.full((2, 1, 1, 1), 0.02), 3)
    for number, operator in enumerate(singly):
        found = restore(y[number, 0], operator, Model(stages(net, 3)), sigma=0.02).x
        torch.testing.assert_close(estimate[number, 0, 16:-16, 16:-16], found[16:-16, 16:-16], rtol=0, atol=1e-3)


def test_orthogonalised_matrices_have_equal_singular_values() -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(3, 12, 20)))
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.3


def test_crops_are_pieces_of_the_pictures(pictures: Path) -> None:
    path = pictures / "b.png"
    pool = Pool([path], torch.device("cpu"))
    crops = pool.crops(8, 32, False, torch.Generator().manual_seed(0))
    assert crops.shape == (8, 3, 32, 32)
    whole = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).float() / 255
    turned = [crop for one in crops for k in range(4) for crop in (one.rot90(k, (1, 2)), one.rot90(k, (1, 2)).flip(2))]
    windows = whole.unfold(1, 32, 1).unfold(2, 32, 1).permute(1, 2, 0, 3, 4)
    corners = windows[..., 0, 0]
    assert any(
        bool((windows[row, col] == crop).all())
        for crop in turned
        for row, col in (corners == crop[:, 0, 0]).all(-1).nonzero().tolist()
    )


# --- scripts ---


def test_training_goes_on_from_its_checkpoint(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "kernel.pt"
    steps: list[int] = []
    for count in (2, 3):
        done = run("train.py", *TINY, "--out", out, "--pictures", pictures, "--minutes", 10, "--steps", count)
        assert done.returncode == 0, done.stderr
        state = torch.load(out)
        steps.append(state["step"])
        assert all(bool(weight.isfinite().all()) for weight in state["mean"].values())
    assert steps == [2, 3]
    lines = [json.loads(line) for line in out.with_suffix(".jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == steps
    assert {"grey-25", "colour-25", "blur", "down2", "mask", "loss-noise", "pixels"} <= set(lines[-1])


@pytest.mark.filterwarnings("ignore::slir.SlirWarning")  # two steps of training explain nothing
def test_the_error_head_makes_a_kernel_with_calibrated_errors(pictures: Path, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "kernel.pt", tmp_path / "kernel.safetensors"
    tiny = [*TINY, "--steps", 2, "--minutes", 10, "--denoising"]
    assert run("train.py", *tiny, "--out", checkpoint, "--pictures", pictures).returncode == 0
    options = ["--minutes", 0.01, "--crops", 2, "--side", 64, "--crop", 48, "--operators", 0.001]
    done = run("learn_errors.py", *options, "--network", checkpoint, "--out", out, "--pictures", pictures)
    assert done.returncode == 0, done.stderr
    kernel = load_kernel(out)
    assert set(kernel.trust) == set(CALIBRATED)
    assert kernel.examples is not None
    assert kernel.provenance["steps"] == 2
    again = [*tiny, "--start", out, "--out", tmp_path / "again.pt", "--pictures", pictures]
    assert run("train.py", *again).returncode == 0
    psf = slir.psf.gaussian(1.0)
    clean = np.asarray(Image.open(pictures / "a.png").convert("L"))[:64, :64].astype(np.float64)
    blurred = Blur(psf, "reflect")(clean) + 5 * np.random.default_rng(0).standard_normal(clean.shape)
    settings = {"sigma": 5, "model": kernel.model("deblur"), "data_range": 255, "return_info": True}
    result = slir.deblur(blurred, psf, **settings)
    low, high = result.interval(0.9)
    assert result.error_map is not None
    assert bool((low <= result.image).all() and (result.image <= high).all())
