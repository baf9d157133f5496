"""Expected errors, intervals and explanations: against known laws, dense sums, and pictures that were held out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import uniform_filter
from scipy.stats import spearmanr

import slir
from slir.errors import InputError, SlirError
from slir.estimator.loop import advance, begin
from slir.estimator.tiling import restore_tiled
from slir.kernel.cell_ridge import CellRidgeStage
from slir.kernel.shipped import demo_picture, shipped_model, training_pictures
from slir.model import Model
from slir.operators import Blur, Identity
from slir.trust.examples import local_weights
from slir.trust.explain import explain
from slir.trust.intervals import LEVELS, calibrate_errors, interpolate
from slir.trust.record import Trust
from slir.trust.spread import box

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    """A picture that no shipped model has seen, 96×112, in [0, 255]."""
    return demo_picture()[64:160, 40:152].astype(np.float32) @ np.float32([0.299, 0.587, 0.114])


@pytest.fixture(scope="module")
def fitted() -> Model:
    """On top of the network that ships, from four of the pictures that ship, calibrated on four others."""
    pictures = [picture[:128, :160] for picture in training_pictures()[:8]]
    names = ["one", "two", "three", "four"]
    model = slir.fit(pictures[:4], task="denoise", sigma=(0.05, 0.1), crops=8, cells=4, names=names)
    return slir.calibrate(pictures[4:], model=model, task="denoise", sigma=(0.05, 0.1), crops=4, side=64)


# The parts.


def test_box_is_a_mean_with_mirrored_borders() -> None:
    image = torch.from_numpy(np.random.default_rng(0).normal(size=(23, 17)))
    assert np.allclose(box(image, 3).numpy(), uniform_filter(image.numpy(), 7, mode="mirror"))
    assert box(image, 0) is image
    assert box(image[:4], 31).shape == (4, 17)  # windows larger than the picture are cut


def test_interpolation_is_numpys() -> None:
    places, heights = torch.tensor([-1.0, 0.5, 2.0]), torch.tensor([3.0, -1.0, 4.0])
    values = torch.linspace(-3, 4, 50)
    assert np.allclose(interpolate(values, places, heights), np.interp(values, places, heights), atol=1e-6)
    assert torch.equal(interpolate(values, places[:1], heights[:1]), torch.full((50,), 3.0))


def test_calibration_holds_whatever_the_law_and_however_wrong_the_expectation() -> None:
    """Expectations are off by a factor that depends on their size, and errors are as skewed as they like."""
    rng = np.random.default_rng(0)

    def sample(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        true = rng.uniform(-2, 2, count)
        errors = np.exp(true) * (rng.exponential(1.0, count) - 0.3)
        return torch.from_numpy(2 * true * 0.7 + 1), torch.from_numpy(errors)

    calibration = calibrate_errors(*sample(100_000))
    told, errors = sample(100_000)
    expected = calibration.error(told.float())
    assert float(errors.square().mean().sqrt() / expected.square().mean().sqrt()) == pytest.approx(1, abs=0.02)
    assert float(errors.abs().mean() / calibration.absolute_error(expected).mean()) == pytest.approx(1, abs=0.02)
    tenths = expected.argsort().tensor_split(10)
    for level in (0.5, 0.75, 0.8, 0.9, 0.93, 0.95):  # two of them lie between those that are kept
        inside = (errors.abs() <= calibration.half_width(expected, level)).double()
        assert float(inside.mean()) == pytest.approx(level, abs=0.01)
        assert all(abs(float(inside[tenth].mean()) - level) < 0.03 for tenth in tenths)


def test_few_pixels_of_which_nothing_is_expected_do_not_decide_the_others() -> None:
    rng = np.random.default_rng(0)
    true = np.exp(rng.uniform(-6, -3, 100_000))
    told = np.where(rng.random(true.shape) < 0.005, 1e-7, true)
    calibration = calibrate_errors(
        torch.from_numpy(2 * np.log(told)), torch.from_numpy(true * rng.standard_normal(true.shape))
    )
    expected = calibration.error(torch.from_numpy(2 * np.log(true)).float()).numpy()
    np.testing.assert_allclose(expected / true, 1, atol=0.3)


def test_the_calibration_depends_on_the_noise_level() -> None:
    """Between nodes it is interpolated in the logarithm of σ; a level per pixel gives each pixel its own."""
    rng = np.random.default_rng(0)
    told = torch.from_numpy(2 * rng.uniform(-6, -3, 40_000)).float()
    white = torch.from_numpy(rng.standard_normal(40_000)).float()
    factors, nodes = (0.5, 2.0, 3.0), (0.01, 0.04, 0.16)
    tables = tuple(calibrate_errors(told, factor * (told / 2).exp() * white) for factor in factors)
    trust = Trust(nodes, tables, (0.01, 0.16), {})
    plane = told[:100].reshape(10, 10)
    raw = (plane / 2).exp()
    for sigma, factor in ((0.001, 0.5), (0.01, 0.5), (0.02, 1.25), (0.04, 2.0), (0.08, 2.5), (0.16, 3.0), (1.0, 3.0)):
        torch.testing.assert_close(trust.error(plane, sigma) / raw, torch.full_like(raw, factor), rtol=0.1, atol=0)
    levels = torch.full((10, 10), 0.01)
    levels[5:] = 0.16
    both = torch.cat([trust.error(plane, 0.01)[:5], trust.error(plane, 0.16)[5:]])
    torch.testing.assert_close(trust.error(plane, levels), both)
    colours = torch.stack([plane, plane])
    each = torch.stack([trust.error(plane, 0.02), trust.error(plane, 0.05)])
    torch.testing.assert_close(trust.error(colours, torch.tensor([0.02, 0.05]).view(2, 1, 1)), each)
    error = trust.error(plane, 0.02)
    torch.testing.assert_close(
        trust.half_width(error, 0.5, 0.02) / error, torch.full_like(error, 0.674), rtol=0.1, atol=0
    )


@pytest.mark.parametrize("level", [0.0, 0.03, 0.995, 1.0, float("nan")])
def test_levels_that_were_not_calibrated(level: float, grey: np.ndarray) -> None:
    result = slir.denoise(grey, sigma=15, data_range=255, return_info=True)
    with pytest.raises(InputError, match=f"level must lie between {LEVELS[0]}"):
        result.interval(level)


# Results.


def test_what_a_result_says_about_its_errors(grey: np.ndarray) -> None:
    noisy = grey + 20 * np.random.default_rng(0).standard_normal(grey.shape).astype(np.float32)
    result = slir.denoise(noisy, sigma=20, data_range=255, return_info=True)
    error, absolute = result.error_map, result.absolute_error_map
    assert error is not None
    assert absolute is not None
    assert result.calibrated == ""
    assert error.shape == grey.shape
    assert error.dtype == np.float32
    assert (absolute < error).all()
    assert (error > 0).all()
    off = np.abs(result.image - grey)
    assert np.sqrt(np.square(error).mean()) == pytest.approx(np.sqrt(np.square(off).mean()), rel=0.3)
    blocks = [np.sqrt(np.square(part).reshape(12, 8, 14, 8).mean((1, 3))).ravel() for part in (error, off)]
    assert spearmanr(*blocks).statistic > 0.5
    shares = []
    for level in (0.5, 0.9):
        low, high = result.interval(level)
        assert (low <= result.image).all()
        assert (result.image <= high).all()
        shares.append(float(((low <= grey) & (grey <= high)).mean()))
    assert shares[0] == pytest.approx(0.5, abs=0.12)  # one picture alone
    assert shares[1] == pytest.approx(0.9, abs=0.07)


def test_stats_alone_leave_the_errors_out(grey: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    y = grey + 20 * np.random.default_rng(0).standard_normal(grey.shape).astype(np.float32)
    told = {"sigma": 20, "data_range": 255}
    full = slir.denoise(y, **told, return_info=True)
    monkeypatch.setattr("slir.estimator.loop.expected_error_map", None)  # not even asked
    brief = slir.denoise(y, **told, return_info="stats")
    np.testing.assert_array_equal(brief.image, full.image)
    assert brief.stats["residual"] == full.stats["residual"]
    assert brief.error_map is None
    assert "return_info=True" in brief.calibrated
    with pytest.raises(SlirError, match="return_info=True"):
        brief.interval(0.9)
    with pytest.raises(InputError, match="return_info must be True, False or"):
        slir.denoise(y, **told, return_info="all")


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # there is no noise in these
def test_errors_come_in_the_images_kind_and_channels() -> None:
    colour = demo_picture()[:64, :80]
    for image, axis in ((colour, -1), (np.moveaxis(colour, -1, 0).astype(np.uint16) * 257, 0)):
        result = slir.denoise(image, sigma=image.max() / 20, channel_axis=axis, return_info=True)
        low, high = result.interval(0.9)
        assert result.error_map.shape == low.shape == image.shape
        assert low.min() >= 0
        assert high.max() <= np.iinfo(image.dtype).max
    tensor = slir.denoise(torch.rand(40, 40), sigma=0.1, data_range=1.0, return_info=True)
    assert isinstance(tensor.error_map, torch.Tensor)
    assert all(isinstance(end, torch.Tensor) for end in tensor.interval(0.8))


def test_noise_that_grows_with_brightness_makes_errors_that_do() -> None:
    ramp = np.linspace(5, 200, 96, dtype=np.float32)[None].repeat(96, 0)
    counts = np.random.default_rng(0).poisson(ramp).astype(np.float32)
    result = slir.denoise(counts, sigma="poisson-gaussian", data_range=255, return_info=True)
    error = result.error_map
    assert error is not None
    assert error[:, -16:].mean() > 2 * error[:, :16].mean()


def test_known_pixels_have_no_error(grey: np.ndarray) -> None:
    missing = np.random.default_rng(0).random(grey.shape) < 0.4
    result = slir.inpaint(grey, missing, data_range=255, return_info=True)
    error = result.error_map
    assert error is not None
    assert (error[~missing] == 0).all()
    assert (error[missing] > 0).all()
    low, high = result.interval(0.9)
    assert np.array_equal(low[~missing], grey[~missing])
    assert np.array_equal(high[~missing], grey[~missing])


def test_outside_of_what_was_calibrated_it_says_so(grey: np.ndarray) -> None:
    result = slir.denoise(grey, sigma=140, data_range=255, return_info=True)
    assert "calibrated for a sigma of" in result.calibrated
    assert result.error_map is not None
    with pytest.raises(SlirError, match="no interval: the model was calibrated for a sigma of"):
        result.interval(0.9)


def test_models_without_calibration_say_so(grey: np.ndarray) -> None:
    bare = replace(shipped_model("denoise"), trust=None, examples=None)
    result = slir.denoise(grey, sigma=15, data_range=255, model=bare, return_info=True)
    assert result.error_map is None
    assert result.absolute_error_map is None
    with pytest.raises(SlirError, match="no interval: this model gives no expected errors"):
        result.interval(0.9)
    with pytest.raises(SlirError, match="carries no examples"):
        result.explain(4, 4)


def test_an_image_that_came_back_as_it_was(grey: np.ndarray) -> None:
    result = slir.denoise(grey, sigma=0, data_range=255, return_info=True)
    assert not result.error_map.any()
    assert result.calibrated == "nothing was restored"
    with pytest.raises(SlirError, match="nothing to explain"):
        result.explain(0, 0)


def test_tiles_expect_the_errors_of_the_whole(grey: np.ndarray) -> None:
    y = torch.from_numpy(
        np.tile(grey, (3, 3)) / 255 + 0.08 * np.random.default_rng(0).standard_normal((288, 336))
    ).float()
    model = shipped_model("denoise")
    whole = restore_tiled(y, Identity(), model, sigma=0.08, errors=True)
    tiled = restore_tiled(y, Identity(), model, sigma=0.08, errors=True, tile=160)
    assert whole.error is not None
    assert tiled.error is not None
    assert float((whole.error / tiled.error).log().abs().max()) < 0.02
    assert restore_tiled(y, Identity(), model, sigma=0.08).error is None


# Explanations.


def banks(weights: str) -> Model:
    pictures = [picture[:96, :96].numpy() for picture in training_pictures()[:3]]
    return slir.paper_model(pictures, Identity(), 0.1, "squared", weights, m=400)


@pytest.mark.parametrize("weights", ["nw", "krr"])
def test_a_banks_weights_make_the_pull(weights: str, grey: np.ndarray) -> None:
    model = banks(weights)
    y = torch.from_numpy(grey / 255)
    found = explain(y, Identity(), model, 0.1, 40, 50, k=400)
    assert found.own
    assert found.reproduces < 1e-5
    bank = model.paper_stages[0].prior.bank
    centred = found.patches - found.patches.mean((1, 2), keepdims=True)
    assert np.abs((found.weights[:, None, None] * centred).sum(0) - found.pull).max() < 1e-5
    for patch, source, (row, col) in zip(found.patches[:8], found.sources, found.positions):
        picture = training_pictures()[int(source[len("images[") : -1])]
        assert np.allclose(picture[row : row + 8, col : col + 8], patch, atol=1e-6)
    assert len(bank) == found.total or weights == "nw"


def test_the_cells_stage_is_a_sum_of_examples(fitted: Model, grey: np.ndarray) -> None:
    y = torch.from_numpy(grey / 255)
    found = explain(y, Identity(), fitted, 0.07, 33, 61)
    assert found.reproduces < 1e-5
    assert not found.own
    assert len(found.weights) == 16
    assert (np.diff(np.abs(found.weights)) <= 0).all()
    assert set(found.sources) <= {"one", "two", "three", "four"}
    # The pull is the stage's: the same patch out of the whole image.
    stage = fitted.stages[-1]
    assert isinstance(stage, CellRidgeStage)
    grid = stage.grid(y.shape)
    state, _ = advance(begin(y, Identity(), fitted, 0.07), fitted.stages[0])
    number = grid.starts[0].index(found.corner[0]) * len(grid.starts[1]) + grid.starts[1].index(found.corner[1])
    target = stage.target(state, grid)[number].view(8, 8).numpy()
    assert np.abs(target - target.mean() - found.pull).max() < 1e-4


def test_the_largest_weights_are_those_of_patches_alike(grey: np.ndarray) -> None:
    noisy = grey + 10 * np.random.default_rng(0).standard_normal(grey.shape).astype(np.float32)
    result = slir.denoise(noisy, sigma=10, data_range=255, return_info=True)
    lively = np.abs(np.gradient(grey)[0])[8:-8, 8:-8]
    row, col = np.unravel_index(lively.argmax(), lively.shape)
    found = result.explain(int(row) + 8, int(col) + 8)
    assert found.reproduces < 1e-5
    shapes = found.patches - found.patches.mean((1, 2), keepdims=True)
    alike = (shapes * found.pull).sum((1, 2)) / np.linalg.norm(shapes, axis=(1, 2)) / np.linalg.norm(found.pull)
    assert np.median(alike) > 0.7
    picture = found.picture()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert len(found.as_json()["patches"]) == 16


def test_local_weights_prefer_what_is_alike() -> None:
    draw = torch.Generator().manual_seed(0)
    patches = torch.randn(500, 16, generator=draw, dtype=torch.float64)
    patches -= patches.mean(1, keepdim=True)
    pull = patches[7] + 0.01 * patches[11]
    alpha = local_weights(pull, patches)
    assert torch.allclose(alpha @ patches, pull, atol=1e-9)
    assert int(alpha.abs().argmax()) == 7
    assert not local_weights(torch.zeros(16, dtype=torch.float64), patches).any()


@pytest.mark.parametrize(("row", "col", "argument"), [(-1, 0, "row"), (0, 112, "col"), (96, 0, "row")])
def test_pixels_that_are_none(row: int, col: int, argument: str, fitted: Model, grey: np.ndarray) -> None:
    result = slir.denoise(grey, sigma=18, data_range=255, model=fitted, return_info=True)
    with pytest.raises(InputError, match=f"{argument} must lie in 0"):
        result.explain(row, col)
    with pytest.raises(InputError, match="k must be at least 1"):
        result.explain(0, 0, 0)


# Learning and files.


def test_a_model_file_keeps_what_is_known(fitted: Model, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(str(path))
    again = slir.load(path)
    assert fitted.trust is not None
    assert again.trust is not None
    assert torch.equal(again.trust.calibrations[0].quantiles, fitted.trust.calibrations[0].quantiles)
    assert again.trust.sigma == fitted.trust.sigma
    assert again.trust.what == fitted.trust.what
    assert again.examples is not None
    assert fitted.examples is not None
    assert torch.equal(again.examples.patches, fitted.examples.patches)
    assert again.examples.sources == ("one", "two", "three", "four")


def test_examples_are_where_they_say(fitted: Model) -> None:
    examples = fitted.examples
    assert examples is not None
    for number in (0, 100, len(examples.patches) - 1):
        picture, row, col = examples.origin[number].tolist()
        own = training_pictures()[picture][:128, :160][row : row + 8, col : col + 8]
        assert torch.equal((own * 255).round().to(torch.uint8), examples.patches[number])


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # two PSFs are not the one that blurred
def test_calibration_for_one_operator(grey: np.ndarray, fitted: Model) -> None:
    fresh = [picture[200:300, 200:300] for picture in training_pictures()[6:10]]
    psf = np.ones((3, 3)) / 9
    model = slir.calibrate(fresh, operator=Blur(psf), sigma=0.01, crops=8, side=64)
    assert model.trust is not None
    assert model.trust.what["pictures"] == 4
    blurred = uniform_filter(grey, 3) + 2.55 * np.random.default_rng(0).standard_normal(grey.shape)
    right = slir.deblur(blurred, psf, sigma=2.55, data_range=255, model=model, return_info=True)
    assert right.calibrated == ""
    near = slir.psf.gaussian(0.9, 3)
    other = slir.deblur(blurred, near, sigma=2.55, data_range=255, model=model, return_info=True)
    assert "another operator" in other.calibrated
    wrong = slir.deblur(blurred, np.ones((1, 9)) / 9, sigma=2.55, data_range=255, model=model, return_info=True)
    assert "does not fit" in wrong.calibrated
    with pytest.raises(InputError, match="images must not be those that the model learnt from"):
        slir.calibrate([p[:128, :160] for p in training_pictures()[:2]], model=fitted, task="denoise", crops=2, side=64)


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")
def test_calibration_of_a_banks_model(grey: np.ndarray) -> None:
    model = banks("nw")
    bare = slir.denoise(grey, sigma=25.5, data_range=255, model=model, return_info=True)
    assert bare.error_map is not None
    assert "not calibrated" in bare.calibrated
    fresh = [picture[200:300, 200:300] for picture in training_pictures()[6:10]]
    model = slir.calibrate(fresh, model=model, operator=Identity(), sigma=0.1, crops=4, side=48)
    result = slir.denoise(grey, sigma=25.5, data_range=255, model=model, return_info=True)
    assert result.calibrated == ""
    low, high = result.interval(0.5)
    assert (low < high).all()


def test_calibration_with_grain_is_wider_where_pictures_are_flat() -> None:
    """Blank pictures are restored next to exactly, unless one reckons with grain that the noise hides."""
    blank = [np.full((64, 64), level) for level in np.linspace(0.2, 0.8, 16)]
    widths = []
    for grain in (0.0, 0.016):
        model = slir.calibrate(blank, operator=Identity(), sigma=0.1, crops=32, side=64, grain=grain)
        assert model.trust is not None
        assert model.trust.what["grain"] == grain
        denoise = partial(slir.denoise, sigma=0.1, data_range=1.0, model=model, return_info=True)
        noisy = [blank[3] + 0.1 * np.random.default_rng(seed).standard_normal((64, 64)) for seed in range(6)]
        bounds = [denoise(y).interval(0.8) for y in noisy]  # by chance a picture may look as if it had none
        widths.append(float(np.mean([(high - low).mean() for low, high in bounds])))
    assert widths[1] > 1.08 * widths[0]


@pytest.mark.parametrize("grain", [-0.01, 0.5, float("nan")])
def test_grain_that_is_none(grain: float, grey: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"grain must lie between 0 and 0\.5"):
        slir.calibrate([grey / 255], operator=Identity(), sigma=0.1, grain=grain)
