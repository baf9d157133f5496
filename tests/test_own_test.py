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
from slir.estimator.loop import restore
from slir.estimator.tiling import restore_tiled
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Linear, Mask, Operator
from slir.trust import own_test, record
from slir.trust.intervals import calibrate_errors
from slir.trust.own_test import PARTS, PICTURES, OwnTest, found_in, learn, log_scores, middle
from slir.trust.record import Trust, learn_own_test

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = (slice(None), slice(None))

PSF = np.outer(np.hanning(7)[1:-1], np.hanning(7)[1:-1])
PSF /= PSF.sum()


@pytest.fixture(scope="module")
def grey() -> torch.Tensor:
    """A picture that no shipped model has seen, 128×144, range 1."""
    return torch.from_numpy(demo_picture()[40:168, 40:184].mean(-1) / 255).float()


def with_test(model: Model, own: OwnTest | None) -> Model:
    assert isinstance(model.trust, Trust)
    return replace(model, trust=replace(model.trust, own=own))


def same(level: float, centre: float, ends: tuple[float, float]) -> OwnTest:
    """A test that counts all parts alike."""
    return OwnTest(level, 0.0, (centre,) * PARTS, (ends,) * PARTS)


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
    found = found_in(grey, ALL, operator, model, sigma, 0.05)
    half = grey.reshape(64, 2, 72, 2).mean((1, 3))
    other = Mask(operator.missing[32:96, 36:108]) if isinstance(operator, Mask) else operator
    y = other.forward(half)
    y = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    again = restore(y, other, model, sigma=sigma, unit=0.05, errors=True)
    assert again.error is not None
    row, col, height, width = other.shown((y.shape[0], y.shape[1]))
    inside = (slice(row, row + height), slice(col, col + width))
    errors, expected = (again.x - half)[inside].double(), again.error[inside].double()
    order = [pixel for pixel in expected.flatten().argsort().tolist() if expected.flatten()[pixel] > 0]
    scores = (errors.abs() / expected).flatten()[order].numpy()
    assert found is not None
    for own, part in zip(found.tolist(), np.array_split(scores, 5)):
        assert own == pytest.approx(math.log(part.mean()), abs=5e-3)  # a pixel may lie on the line between two parts


def test_large_pictures_are_tested_in_their_middle(grey: torch.Tensor) -> None:
    """And errors elsewhere are corrected by what they are, not by where they stand among all."""
    model = with_test(shipped_model("denoise"), OwnTest(0.5, 0.5, (-0.6,) * PARTS, ((-2.0, 2.0),) * PARTS))
    large = torch.zeros(420, 600)
    rows, cols = slice(84, 84 + 252), slice(120, 120 + 360)
    assert middle((420, 600)) == (rows, cols)
    assert middle((256, 5000)) == (slice(32, 32 + 192), slice(1988, 1988 + 1024))
    assert middle((100, 301)) == (slice(12, 12 + 75), slice(54, 54 + 192))
    large[rows, cols] = grey.repeat(3, 3)[:252, :360]
    error = 0.01 + 0.02 * torch.rand(large.shape, generator=torch.Generator().manual_seed(1))

    def after(x: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        return record.tested(x, expected.clone(), Identity(), model, 0.1, 0.1)

    there = after(large, error)
    assert not torch.equal(there, error)
    elsewhere, lower = large.clone(), error.clone()
    elsewhere[:80] = torch.rand(80, 600, generator=torch.Generator().manual_seed(2))
    lower[:80] = 0.005
    moved = after(elsewhere, lower)
    assert torch.equal(moved[80:], there[80:])
    assert moved[0, 0] / 0.005 == pytest.approx(
        float((there / error)[error.argmin() // 600, error.argmin() % 600]), 0.01
    )
    large[200, 300] = 1 - large[200, 300]
    assert not torch.equal(there, after(large, error))


@pytest.mark.parametrize(
    ("side", "factor", "worth"),
    [(236, 1, False), (240, 1, True), (236, 2, False), (240, 2, True), (300, 3, False), (400, 3, True)],
)
def test_small_pictures_take_none(side: int, factor: int, worth: bool) -> None:
    assert own_test.pays(middle((side, side)), Downsample(factor) if factor > 1 else Identity()) == worth


def test_differences_of_colours_lie_around_zero(grey: torch.Tensor) -> None:
    model = shipped_model("denoise")
    found, lower = (found_in(own, ALL, Identity(), model, 0.1, 0.05) for own in (grey, grey - 0.5))
    assert found is not None
    assert lower is not None
    assert torch.allclose(lower, found, atol=2e-3)


def test_where_there_is_none(grey: torch.Tensor) -> None:
    model = shipped_model("denoise")
    assert found_in(grey[:40], ALL, Identity(), model, 0.1, 0.05) is not None
    assert found_in(grey[:30], ALL, Identity(), model, 0.1, 0.05) is None  # too small
    fixed = Linear(scipy.sparse.eye(128 * 144), (128, 144), (128, 144))
    assert found_in(grey, ALL, fixed, model, 0.1, 0.05) is None  # fits one size alone
    few = torch.zeros(128, 144, dtype=torch.bool)
    few[3:9, 5:80] = True
    assert found_in(grey, ALL, Mask(few), shipped_model("inpaint"), 0.0, 0.05) is None  # hardly an error to be seen


def drawn(draw: np.random.Generator, count: int, level: float, form: float) -> tuple[np.ndarray, np.ndarray]:
    """ρᵢ of crops, and what they tell of: (count, PARTS) each."""
    parts = np.linspace(-0.2, 0.2, PARTS)
    found = 0.3 + parts + draw.normal(0, 0.2, (count, 1)) + draw.normal(0, 0.1, (count, PARTS))
    away = found - 0.3 - parts
    mean = away.mean(1, keepdims=True)
    return found, parts - 0.1 + level * mean + form * (away - mean) + draw.normal(0, 0.05, found.shape)


def rows(values: np.ndarray) -> list[torch.Tensor]:
    return list(torch.from_numpy(values))


def test_the_slopes_are_found() -> None:
    found, missed = drawn(np.random.default_rng(0), 400, 0.7, 0.4)
    missed[0] = -17  # a blank crop
    nothing = torch.full((PARTS,), math.nan)
    own = learn([*rows(found), None, torch.zeros(PARTS)], [*rows(missed), nothing, nothing], [*range(400), 5, 6])
    assert own is not None
    assert own.level == pytest.approx(0.7, abs=0.07)  # the ends are cut off
    assert own.form == pytest.approx(0.4, abs=0.07)
    assert own.centre == pytest.approx(found.mean(0).tolist(), abs=0.01)
    centre = torch.tensor(own.centre)
    assert own.log_factors(centre).abs().max() == 0
    assert torch.allclose(own.log_factors(centre + 0.1), torch.full((PARTS,), 0.1 * own.level))
    tilt = torch.linspace(-0.1, 0.1, PARTS)
    assert torch.allclose(own.log_factors(centre + tilt), own.form * tilt, atol=1e-6)
    assert torch.equal(own.log_factors(centre + 50), own.log_factors(torch.tensor(own.ends)[:, 1]))  # no further
    assert own.log_factors(centre + 50).max() < 0.5


@pytest.mark.parametrize("each", [1, 12])
def test_chance_teaches_little(each: int) -> None:
    """20 pictures, whose crops are alike, and what is found has nothing to do with what is missed."""
    draw = np.random.default_rng(1)
    slopes = []
    for _ in range(200):
        found, missed = (
            np.repeat(draw.normal(0, 0.2, (20, 1)) + draw.normal(0, 0.1, (20, PARTS)), each, 0)
            + draw.normal(0, 0.02, (20 * each, PARTS))
            for _ in range(2)
        )
        own = learn(rows(found), rows(missed), np.repeat(np.arange(20), each).tolist())
        slopes.append((0.0, 0.0) if own is None else (own.level, own.form))
    level, form = np.transpose(slopes)
    assert level.mean() < 0.07  # least squares, its negative values left out, would give 0.09
    assert form.mean() < 0.04
    assert (level == 0).mean() > 0.5
    assert (form == 0).mean() > 0.5


def test_nothing_is_learnt_from_little() -> None:
    each = list(range(50))
    rising = [torch.full((PARTS,), own / 49, dtype=torch.float64) for own in each]
    assert learn(rising, [-own for own in rising], each) is None
    assert learn([rising[25]] * 50, rising, each) is None
    assert learn(rising, rising, [own % (PICTURES - 1) for own in each]) is None
    assert learn(rising, rising, each) is not None


def test_no_test_changes_much() -> None:
    own = OwnTest(1.0, 1.0, (0.0,) * PARTS, ((-26.0, 26.0),) * PARTS)
    assert own.log_factors(torch.full((PARTS,), 20.0)).tolist() == pytest.approx([math.log(2)] * PARTS)
    assert own.log_factors(torch.full((PARTS,), -20.0)).tolist() == pytest.approx([-math.log(2)] * PARTS)


def test_grain_that_no_test_sees_teaches_nothing() -> None:
    """Crops of 40 pictures as they are, whose errors the test tells, and with grain, which drowns them."""
    draw = np.random.default_rng(3)
    level = np.repeat(draw.normal(0, 0.3, 40), 2)
    grains = [0.0, 2 / 255] * 40
    hoped = [torch.linspace(1, 2, 500)] * 80
    sizes = [own if grain == 0 else 2.0 for own, grain in zip(np.exp(level), grains)]
    errors = [size * one * torch.from_numpy(draw.normal(0, 1, 500)) for size, one in zip(sizes, hoped)]
    found = [torch.full((PARTS,), own, dtype=torch.float64) for own in level]
    pictures = np.repeat(np.arange(40), 2).tolist()
    own = learn_own_test(found, errors, hoped, pictures, grains)
    assert own is not None
    assert own.level == pytest.approx(1, abs=0.08)
    both = learn_own_test(found, errors, hoped, pictures, [0.0] * 80)
    assert both is not None
    assert both.level < 0.6
    assert learn_own_test(found, errors, hoped, pictures, [1 / 255] * 80) is not None  # where all have some, it is all


def test_each_part_is_corrected_by_its_own() -> None:
    draw = torch.Generator().manual_seed(4)
    error = torch.rand((400, 500), generator=draw).square() * 8
    error[:3] = 0  # known beforehand
    own = OwnTest(0.5, 1.0, (0.0,) * PARTS, ((-1.0, 1.0),) * PARTS)
    found = torch.tensor([0.4, 0.1, 0.0, -0.2, -0.1])
    factors = own.log_factors(found)
    correction = own.correction(error, found)
    assert correction is not None
    corrected = correction.apply(error.clone())
    assert (corrected[:3] == 0).all()
    gained = (corrected[3:] / error[3:]).log().flatten()[error[3:].flatten().argsort()]
    for number, factor in enumerate(factors.tolist()):  # in the middle of each part its own
        middle = round((number + 0.5) / PARTS * len(gained))
        assert float(gained[middle]) == pytest.approx(factor, abs=0.01)
    assert float(gained[0]) == pytest.approx(float(factors[0]), abs=1e-6)
    assert float(gained[-1]) == pytest.approx(float(factors[-1]), abs=1e-6)
    assert torch.equal(correction.apply(error.T).T, corrected)  # not one piece of memory
    assert own.correction(torch.zeros(8, 8), found) is None


def test_flat_parts_may_err_otherwise_than_lively_ones() -> None:
    """Pictures whose flat and lively parts miss what is expected each by a factor of its own, which the test shows."""
    draw = np.random.default_rng(6)
    truth = draw.normal(0, 0.3, (60, 2))
    parts = np.repeat(truth, [2, 3], axis=1)  # of five, two are flat
    own = learn(rows(parts + draw.normal(0, 0.02, parts.shape)), rows(parts), list(range(60)))
    assert own is not None
    sizes, errors, shifted = [], [], []
    for factors in parts:
        expected = torch.from_numpy(np.sort(draw.uniform(0.1, 10, 2000)))
        scale = torch.from_numpy(np.repeat(np.exp(factors), 400))
        sizes.append(expected)
        errors.append(scale * expected * torch.from_numpy(draw.normal(0, 1, 2000)))
        found = log_scores(errors[-1], expected) - math.log(math.sqrt(2 / math.pi))
        correction = own.correction(expected, found)
        assert correction is not None
        shifted.append(correction.apply(expected.clone()).log() - expected.log())
    expected, off = torch.cat(sizes), torch.cat(errors)
    scatter = []
    for shift in (None, torch.cat(shifted)):
        table = calibrate_errors(2 * expected.log(), off, shift)
        error = table.error(2 * expected.log()) * (1 if shift is None else shift.exp())
        inside = (off.abs() <= table.half_width(error, 0.8)).view(60, PARTS, -1).double().mean(2)
        assert float(inside.mean()) == pytest.approx(0.8, abs=0.01)
        scatter.append(float(inside.std(0).mean()))
    assert scatter[1] < 0.6 * scatter[0]


class OneSize(Identity):
    """Of somebody's making: it says nothing of other sizes, and cannot do them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.ones(128, 144)


def test_a_test_that_fails_says_nothing(grey: torch.Tensor) -> None:
    wide = Blur(np.ones((71, 71)) / 71**2)  # wider than half of the picture
    assert found_in(grey, ALL, wide, shipped_model("deblur"), 0.01, 0.05) is None
    assert found_in(grey, ALL, OneSize(), shipped_model("denoise"), 0.1, 0.05) is None
    corner = torch.zeros(128, 144, dtype=torch.bool)
    corner[32:96, 36:108] = True  # all that the test would see
    assert found_in(grey, ALL, Mask(corner), shipped_model("inpaint"), 0.0, 0.05) is None
    model = with_test(shipped_model("deblur"), same(0.5, 0.0, (-1.0, 1.0)))
    y = wide.forward(grey)
    assert restore_tiled(y, wide, model, sigma=0.01, errors=True).error is not None


def test_beyond_what_was_calibrated_there_is_none(grey: torch.Tensor) -> None:
    own = same(0.5, -3.0, (-4.0, 4.0))
    maps = [
        restore_tiled(grey, Identity(), with_test(shipped_model("denoise"), test), sigma=0.9, errors=True).error
        for test in (own, None)
    ]
    assert maps[0] is not None
    assert torch.equal(maps[0], maps[1])


@pytest.mark.parametrize(("name", "operator", "sigma"), CASES[:3], ids=[case[0] for case in CASES[:3]])
def test_the_whole_map_is_scaled_by_it(
    name: str, operator: Operator, sigma: float, grey: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_test, "pays", lambda part, operator: True)
    y = operator.forward(grey)
    y = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    own = same(0.5, -0.9, (-2.0, 2.0))
    bare = restore_tiled(y, operator, with_test(shipped_model(name), None), sigma=sigma, errors=True)
    model = with_test(shipped_model(name), own)
    whole = restore_tiled(y, operator, model, sigma=sigma, errors=True)
    tiles = restore_tiled(y, operator, model, sigma=sigma, errors=True, tile=64)
    assert bare.error is not None
    assert whole.error is not None
    assert tiles.error is not None
    found = found_in(whole.x, middle((whole.x.shape[0], whole.x.shape[1])), operator, model, sigma, whole.unit)
    assert found is not None
    assert torch.allclose(whole.error, bare.error * math.exp(0.5 * (float(found.mean()) + 0.9)), rtol=1e-5)
    assert torch.allclose(tiles.error, whole.error, rtol=0.02)


def test_files_keep_it_and_may_lack_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    own = OwnTest(0.5, 0.25, (-0.1, 0.0, 0.0, 0.1, 0.2), ((-0.5, 0.25),) * PARTS)
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


def test_photographs_are_told_from_stripes(grey: torch.Tensor) -> None:
    """Half of what is calibrated with are stripes, whose errors are twice as large: photographs' stay as they are."""
    rows, cols = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    stripes = [
        0.5 + 0.3 * torch.sign(torch.sin(rows * math.cos(a) + cols * math.sin(a))) for a in torch.arange(0, 3, 0.25)
    ]
    photographs = [grey[row : row + 64, col : col + 64] for row in (0, 64) for col in (0, 40, 80)]
    pictures = [own for pair in zip(stripes, photographs * 2) for own in pair]
    model = slir.calibrate(pictures, operator=Identity(), sigma=0.1, crops=48, side=64)
    for seed, truth in enumerate((grey[32:96, 30:94], grey[20:84, 70:134])):
        y = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed))
        result = slir.denoise(y.numpy(), sigma=0.1, data_range=1.0, model=model, return_info=True)
        low, high = result.interval(0.8)
        assert 0.65 < ((low <= truth.numpy()) & (truth.numpy() <= high)).mean() < 0.95
