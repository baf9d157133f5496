"""A picture's own test: against one done by hand, against the law that made the data, and over tiles."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import slir
from slir.defaults import demo_picture, shipped_model
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Linear, Mask, Operator
from slir.restoration import restore
from slir.tiles import restore_tiled
from slir.trust.own_test import PICTURES, OwnTest, found_in, learn
from slir.trust.record import Trust

pytestmark = pytest.mark.usefixtures("one_thread")

PSF = np.outer(np.hanning(7)[1:-1], np.hanning(7)[1:-1])
PSF /= PSF.sum()


@pytest.fixture(scope="module")
def grey() -> torch.Tensor:
    """A picture that no shipped model has seen, 128×144, range 1."""
    return torch.from_numpy(demo_picture()[40:168, 40:184].mean(-1) / 255).float()


def with_test(model: Model, own: OwnTest | None) -> Model:
    assert isinstance(model.trust, Trust)
    return replace(model, trust=replace(model.trust, own=own))


def holes(shape: tuple[int, int]) -> Mask:
    return Mask(torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5)


CASES = [
    ("denoise", Identity(), 0.1),
    ("deblur", Blur(PSF), 0.01),
    ("upsample2", Downsample(2), 0.0),
    ("inpaint", holes((128, 144)), 0.0),
]


@pytest.mark.parametrize(("name", "operator", "sigma"), CASES, ids=[case[0] for case in CASES])
def test_it_is_a_restoration_of_half_the_size(name: str, operator: Operator, sigma: float, grey: torch.Tensor) -> None:
    model = shipped_model(name)
    found = found_in(grey, operator, model, sigma)
    half = grey.reshape(64, 2, 72, 2).mean((1, 3))
    other = Mask(operator.missing[32:96, 36:108]) if isinstance(operator, Mask) else operator
    y = other.forward(half)
    y = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    again = restore(y, other, model, sigma=sigma, errors=True)
    assert again.error is not None
    row, col, height, width = other.shown((y.shape[0], y.shape[1]))
    inside = (slice(row, row + height), slice(col, col + width))
    errors, expected = (again.x - half)[inside].double(), again.error[inside].double()
    errors = errors * (expected > 0)
    assert found == pytest.approx(0.5 * math.log(errors.square().sum() / expected.square().sum()), abs=1e-5)


def test_large_pictures_are_tested_in_their_middle(grey: torch.Tensor) -> None:
    model = shipped_model("denoise")
    large = torch.zeros(420, 600)
    rows, cols = slice(82, 82 + 256), slice(120, 120 + 360)  # 256 pixels at least, and 0.6 of a side
    large[rows, cols] = grey.repeat(3, 3)[:256, :360]
    elsewhere = large.clone()
    elsewhere[:80] = torch.rand(80, 600, generator=torch.Generator().manual_seed(2))
    assert found_in(elsewhere, Identity(), model, 0.1) == found_in(large, Identity(), model, 0.1)
    large[200, 300] = 1 - large[200, 300]
    assert found_in(elsewhere, Identity(), model, 0.1) != found_in(large, Identity(), model, 0.1)


def test_differences_of_colours_lie_around_zero(grey: torch.Tensor) -> None:
    model = shipped_model("denoise")
    level = found_in(grey, Identity(), model, 0.1)
    assert found_in(grey - 0.5, Identity(), model, 0.1) == pytest.approx(level, abs=1e-3)


def test_where_there_is_none(grey: torch.Tensor) -> None:
    model = shipped_model("denoise")
    assert found_in(grey[:40], Identity(), model, 0.1) is not None
    assert found_in(grey[:30], Identity(), model, 0.1) is None  # too small
    fixed = Linear(scipy.sparse.eye(128 * 144), (128, 144), (128, 144))
    assert found_in(grey, fixed, model, 0.1) is None  # fits one size alone
    few = torch.zeros(128, 144, dtype=torch.bool)
    few[3:9, 5:80] = True
    assert found_in(grey, Mask(few), shipped_model("inpaint"), 0.0) is None  # hardly an error to be seen


def test_the_slope_is_found() -> None:
    draw = np.random.default_rng(0)
    found = draw.normal(0.3, 0.2, 400)
    missed = -0.1 + 0.6 * found + draw.normal(0, 0.05, 400)
    missed[0] = -17  # a blank crop
    own = learn([*found.tolist(), None], [*missed.tolist(), 7.0], [*range(400), 5])
    assert own is not None
    assert own.slope == pytest.approx(0.6, abs=0.07)  # a little more, for the ends are cut off
    assert own.centre == pytest.approx(0.3, abs=0.03)
    assert own.log_factor(own.centre) == 0
    assert own.log_factor(0.4) == pytest.approx(own.slope * (0.4 - own.centre))
    assert own.log_factor(50.0) == own.log_factor(own.ends[1]) < 0.4  # no further than was seen


@pytest.mark.parametrize("each", [1, 12])
def test_chance_teaches_little(each: int) -> None:
    """20 pictures, whose crops are alike, and what is found has nothing to do with what is missed."""
    draw = np.random.default_rng(1)
    slopes = []
    for _ in range(200):
        found, missed = (np.repeat(draw.normal(0, 0.2, 20), each) + draw.normal(0, 0.02, 20 * each) for _ in range(2))
        own = learn(found.tolist(), missed.tolist(), np.repeat(np.arange(20), each).tolist())
        slopes.append(0.0 if own is None else own.slope)
    assert np.mean(slopes) < 0.07  # least squares, its negative values left out, would give 0.09
    assert np.mean([slope == 0 for slope in slopes]) > 0.5


def test_nothing_is_learnt_from_little() -> None:
    rising, each = np.linspace(0, 1, 50).tolist(), list(range(50))
    assert learn(rising, [-own for own in rising], each) is None
    assert learn([0.5] * 50, rising, each) is None
    assert learn(rising, rising, [own % (PICTURES - 1) for own in each]) is None
    assert learn(rising, rising, each) is not None


def test_no_test_changes_much() -> None:
    own = OwnTest(1.0, 0.0, (-26.0, 26.0))
    assert own.log_factor(-20) == -own.log_factor(20) == -math.log(2)


class OneSize(Identity):
    """Of somebody's making: it says nothing of other sizes, and cannot do them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.ones(128, 144)


def test_a_test_that_fails_says_nothing(grey: torch.Tensor) -> None:
    wide = Blur(np.ones((71, 71)) / 71**2)  # wider than half of the picture
    assert found_in(grey, wide, shipped_model("deblur"), 0.01) is None
    assert found_in(grey, OneSize(), shipped_model("denoise"), 0.1) is None
    corner = torch.zeros(128, 144, dtype=torch.bool)
    corner[32:96, 36:108] = True  # all that the test would see
    assert found_in(grey, Mask(corner), shipped_model("inpaint"), 0.0) is None
    model = with_test(shipped_model("deblur"), OwnTest(0.5, 0.0, (-1.0, 1.0)))
    y = wide.forward(grey)
    assert restore_tiled(y, wide, model, sigma=0.01, errors=True).error is not None


def test_beyond_what_was_calibrated_there_is_none(grey: torch.Tensor) -> None:
    own = OwnTest(0.5, -3.0, (-4.0, 4.0))
    maps = [
        restore_tiled(grey, Identity(), with_test(shipped_model("denoise"), test), sigma=0.9, errors=True).error
        for test in (own, None)
    ]
    assert maps[0] is not None
    assert torch.equal(maps[0], maps[1])


@pytest.mark.parametrize(("name", "operator", "sigma"), CASES[:3], ids=[case[0] for case in CASES[:3]])
def test_the_whole_map_is_scaled_by_it(name: str, operator: Operator, sigma: float, grey: torch.Tensor) -> None:
    y = operator.forward(grey)
    y = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    own = OwnTest(0.5, -0.9, (-2.0, 2.0))
    bare = restore_tiled(y, operator, with_test(shipped_model(name), None), sigma=sigma, errors=True)
    model = with_test(shipped_model(name), own)
    whole = restore_tiled(y, operator, model, sigma=sigma, errors=True)
    tiles = restore_tiled(y, operator, model, sigma=sigma, errors=True, tile=64)
    assert bare.error is not None
    assert whole.error is not None
    assert tiles.error is not None
    found = found_in(whole.x, operator, model, sigma)
    assert found is not None
    assert torch.allclose(whole.error, bare.error * math.exp(0.5 * (found + 0.9)), rtol=1e-5)
    assert torch.allclose(tiles.error, whole.error, rtol=0.02)


def test_files_keep_it_and_may_lack_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    own = OwnTest(0.5, -0.1, (-0.5, 0.25))
    with_test(shipped_model("upsample4"), own).save(str(path))
    again = slir.load(path)
    assert isinstance(again.trust, Trust)
    assert again.trust.own == own
    with safe_open(path, "pt") as file:
        header = dict(file.metadata())
    tensors = load_file(path)
    settings = json.loads(header["model"])
    del settings["trust"]["own"]  # as earlier releases wrote it
    save_file(tensors, path, metadata=header | {"model": json.dumps(settings)})
    older = slir.load(path)
    assert isinstance(older.trust, Trust)
    assert older.trust.own is None


def test_pictures_of_two_kinds_are_told_apart(grey: torch.Tensor) -> None:
    """Photographs, and stripes of which the model has seen few: one table is too wide for the one or the other."""
    rows, cols = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    stripes = [
        0.5 + 0.3 * torch.sign(torch.sin(rows * math.cos(a) + cols * math.sin(a))) for a in torch.arange(0, 3, 0.25)
    ]
    photographs = [grey[row : row + 64, col : col + 64] for row in (0, 64) for col in (0, 40, 80)]
    pictures = [own for pair in zip(stripes, photographs * 2) for own in pair]
    model = slir.calibrate(pictures, operator=Identity(), sigma=0.1, crops=48, side=64)
    assert isinstance(model.trust, Trust)
    assert model.trust.own is not None
    truth = grey[32:96, 30:94]
    y = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(5))
    result = slir.denoise(y.numpy(), sigma=0.1, data_range=1.0, model=model, return_info=True)
    low, high = result.interval(0.8)
    assert 0.65 < ((low <= truth.numpy()) & (truth.numpy() <= high)).mean() < 0.95
