"""Problems and tasks. A fifth task is one description, one command, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from skimage import data
from torch import Tensor
from typer.testing import CliRunner

from slir import io, problem
from slir.cli import running
from slir.errors import InputError
from slir.estimator.paper_settings import ROUNDING
from slir.estimator.tiling import restore_tiled
from slir.files import batch, jobs, provenance
from slir.fitting import family_for
from slir.io import Picture
from slir.kernel.degradations import AnyBlur, AnyDownsampling, AnyMask, Family, Fixed, Noise, noise_levels
from slir.kernel.shipped import default_model
from slir.operators import Blur, Downsample, Identity, Mask, Operator, adjoint_error
from slir.operators.base import Shape
from slir.problem import NAN, Options, Problem, Size, Task, parse_sigma, register, task_named, tasks
from slir.restoration import Settings, restore_image

PSF = np.full((3, 5), 1 / 15)
NAMES = ["denoise", "deblur", "upsample", "inpaint"]


# --- the four ------------------------------------------------------------------------------------------------------


def test_each_task_makes_its_operator() -> None:
    hole = np.eye(8, dtype=bool)
    cases: dict[str, tuple[dict[str, Any], type[Operator]]] = {
        "denoise": ({}, Identity),
        "deblur": ({"psf": PSF}, Blur),
        "upsample": ({"factor": 3, "antialias": "box"}, Downsample),
        "inpaint": ({"mask": hole}, Mask),
    }
    assert list(tasks()) == list(cases) == NAMES
    for name, (settings, kind) in cases.items():
        operator = Problem(name, **settings).operator((8, 8))
        assert type(operator) is kind
        assert operator.task == name
        assert task_named(name).done in ("denoised", "deblurred", "upsampled", "inpainted")


def test_settings_are_checked_and_completed() -> None:
    assert Problem("deblur", psf=PSF).options["border"] == "unknown"
    assert [Problem.of(name, psf=PSF, mask=NAN, factor=2).sigma for name in NAMES] == ["auto", "auto", 0, 0]
    for wrong, message in (
        (lambda: Problem("sharpen"), "task must be one of denoise, deblur, upsample, inpaint"),
        (lambda: Problem("deblur"), "psf must be given to deblur"),
        (lambda: Problem("inpaint"), "mask must be given to inpaint"),
        (lambda: Problem("upsample"), "factor must be given, or size in its place"),
        (lambda: Problem("upsample", factor=0.5), "factor must be a number of at least 1"),
        (lambda: Problem("upsample", factor=1.5, phase=0), "phase must be left out"),
        (lambda: Problem("upsample", factor=2, sigma="poisson-gaussian"), "sigma must be auto"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
    with pytest.raises(TypeError, match="denoise takes no psf"):
        Problem("denoise", psf=PSF)


def test_scales_that_are_not_whole_or_follow_from_the_size() -> None:
    asked = Problem("upsample", size=(15, 30), antialias=0.8)
    assert not asked.centred
    found = asked.at_size((10, 20))
    assert (found.scale, found.factor, found.options["size"]) == (1.5, 2, None)
    assert found.at_whole_scale().scale == 2
    assert found.replace(antialias="box").centred
    assert Problem("denoise").at_size((3, 4)).at_whole_scale().scale == 1


def test_each_task_has_degradations_to_learn_from() -> None:
    assert family_for("denoise", None, None) == Noise(2 / 255, 80 / 255)
    assert family_for("deblur", None, (0.01, 0.2)) == AnyBlur(low=0.01, high=0.2)
    assert family_for("upsample", None, 0.0, 3) == AnyDownsampling(3, share_clean=1.0)
    assert family_for("inpaint", None, 0.0001) == AnyMask(low=ROUNDING, high=ROUNDING)


def test_sigma_is_a_number_a_share_or_a_name() -> None:
    assert parse_sigma(" 10 %") == ("percent", 10.0)
    assert parse_sigma("25") == parse_sigma(25) == ("value", 25.0)
    assert parse_sigma("Auto") == ("name", "auto")
    for wrong in ("-1", "nan", "ten"):
        with pytest.raises(InputError, match="sigma must be"):
            parse_sigma(wrong)


# --- a fifth -------------------------------------------------------------------------------------------------------


class Weave(Operator):
    """y = x · pattern: every second pixel is seen as `dim` times what it is, as through two kinds of filters."""

    reach = 0
    task = "unweave"

    def __init__(self, dim: float, odd: int = 0):
        self.dim, self.odd = dim, odd

    def y_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        return y_shape

    def forward(self, x: Tensor) -> Tensor:
        rows, cols = (torch.arange(side, device=x.device) for side in x.shape[-2:])
        seen = (rows[:, None] + cols + self.odd) % 2 == 0
        return torch.where(seen, x, self.dim * x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.forward(y)

    def part(self, rows: slice, cols: slice) -> Operator:
        return Weave(self.dim, (self.odd + rows.start + cols.start) % 2)

    def describe(self) -> dict[str, Any]:
        return {"kind": "weave", "dim": self.dim, "odd": self.odd}


class Unweave(Task):
    """Undo a pattern of two kinds of filters."""

    name, done = "unweave", "unwoven"
    options = {"dim": 0.5}  # noqa: RUF012

    def operator(self, options: Options, size: Size | None) -> Operator:
        return Weave(options["dim"])

    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        return Fixed(Weave(0.5), tuple(noise_levels(sigma or (0.01, 0.02)).values()))  # type: ignore[arg-type]


@pytest.fixture
def fifth(monkeypatch: pytest.MonkeyPatch) -> type[Task]:
    monkeypatch.setattr(problem, "_TASKS", dict(tasks()))
    return register(Unweave)


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return data.camera()[100:164, 200:272]


def through(picture: np.ndarray, sigma: float) -> np.ndarray:
    y = Weave(0.5).forward(torch.from_numpy(picture).double()).numpy()
    return (y + np.random.default_rng(0).normal(0, sigma, y.shape)).astype(np.float32)


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean(np.square(np.asarray(found, float) - truth))))


@pytest.mark.usefixtures("fifth", "one_thread")
def test_a_fifth_task_restores_arrays_and_tiles(picture: np.ndarray) -> None:
    assert adjoint_error(Weave(0.3), (5, 6)) < 1e-12
    y = through(picture, 4)
    found = restore_image(y, Problem("unweave", sigma=4.0), Settings(data_range=255.0))
    inverse = Weave(2.0).forward(torch.from_numpy(y)).numpy()
    assert psnr(found, picture) > psnr(inverse, picture) + 2
    plane = torch.from_numpy(y) / 255
    lead = default_model(Weave(0.5))
    whole = restore_tiled(plane, Weave(0.5), lead, sigma=4 / 255)
    tiles = restore_tiled(plane, Weave(0.5), lead, sigma=4 / 255, tile=64)
    assert float((whole.x - tiles.x).abs().max()) < 2e-4


@pytest.mark.usefixtures("fifth", "one_thread")
def test_a_fifth_task_restores_files_and_repeats_them(tmp_path: Path, picture: np.ndarray) -> None:
    io.write(tmp_path / "in.tif", Picture(through(picture, 4), data_range=255.0))
    job = jobs.Job(Problem("unweave", sigma=4.0, dim=0.5), tmp_path / "in.tif", tmp_path / "out.tif", data_range=255.0)
    batch.check_shared(job)
    (planned,) = batch.plan([job])
    assert planned.status == "restored"
    jobs.run(job)
    again = provenance.load(tmp_path / "out.tif.json").job(tmp_path / "again.tif")
    assert again.problem.options == {"dim": 0.5}
    jobs.run(again)
    assert (tmp_path / "again.tif").read_bytes() == (tmp_path / "out.tif").read_bytes()
    assert psnr(io.read(tmp_path / "out.tif").pixels, picture) > 27


@pytest.mark.usefixtures("fifth")
def test_a_fifth_task_is_learnt_from_its_degradations() -> None:
    family = family_for("unweave", None, 0.02)
    assert family.kind == "unweave"
    assert family.draw(torch.Generator().manual_seed(0), (64, 64))[1] == pytest.approx(0.02)


@pytest.mark.usefixtures("fifth", "one_thread")
def test_a_fifth_task_is_one_more_command(tmp_path: Path, picture: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "COMMANDS", [])

    @running.command
    def unweave(dim: float = 0.5, sigma: str = "auto", *, run: running.Run) -> None:
        """Undo a pattern."""
        run.restore("unweave", sigma, dim=dim)

    app = typer.Typer()
    app.command()(running.COMMANDS[0])
    io.write(tmp_path / "in.tif", Picture(through(picture, 4), data_range=255.0))
    words = [str(tmp_path / "in.tif"), "-o", str(tmp_path / "out.tif"), "--sigma", "4", "--data-range", "255"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(f"unwoven {tmp_path / 'in.tif'}")
    assert psnr(io.read(tmp_path / "out.tif").pixels, picture) > 27
