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
from slir.cascade import BankWeights
from slir.crops import draw_crops
from slir.defaults import demo_picture, shipped_model, training_pictures
from slir.errors import InputError, SlirError
from slir.estimator.loop import advance, begin, finished
from slir.estimator.tiling import restore_tiled
from slir.families import AnyMask, Noise
from slir.learning import fit_cascade
from slir.model import Model
from slir.operators import Blur, Identity
from slir.plans import Plan, StagePlan
from slir.trust.calibrate import HIDDEN, SHARES
from slir.trust.evidence import FLAT, around, box, evidence
from slir.trust.examples import local_weights
from slir.trust.expected import ErrorModel, fit_error_model, gather_around
from slir.trust.explain import explain
from slir.trust.intervals import LEVELS, calibrate_errors, interpolate
from slir.views import Estimate, State

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    """A picture that no shipped model has seen, 96×112, in [0, 255]."""
    return demo_picture()[64:160, 40:152].astype(np.float32) @ np.float32([0.299, 0.587, 0.114])


@pytest.fixture(scope="module")
def fitted() -> Model:
    """A small denoiser from four of the pictures that ship."""
    pictures = [picture[:128, :160] for picture in training_pictures()[:4]]
    plan = Plan((StagePlan((Estimate(),)),), cells=4, patches=4000)
    names = ["one", "two", "three", "four"]
    return fit_cascade(pictures, Noise(0.05, 0.1), plan=plan, crops=12, side=64, names=names)


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


def test_the_error_model_finds_the_law_that_made_the_errors() -> None:
    """E e² = exp(1 + 0.8 φ₁ − |φ₂|), with errors of a heavy-tailed law: piecewise linear, so it can be found."""
    draw = torch.Generator().manual_seed(0)
    seen = torch.randn(60_000, 3, generator=draw, dtype=torch.float64)
    truth = 1 + 0.8 * seen[:, 0] - seen[:, 1].abs()
    laplace = torch.distributions.Laplace(0.0, 0.5**0.5).icdf(torch.rand(60_000, generator=draw).double())
    model = fit_error_model("abc", seen, laplace * (truth / 2).exp())
    off = model.log_square_from(seen.float()) - truth
    central = (seen.abs() < 1.5).all(1)
    assert float(off[central].square().mean().sqrt()) < 0.08
    assert float(off[central].mean().abs()) < 0.03


def denoised(y: torch.Tensor, model: Model, sigma: float) -> State:
    """After the last stage, with all that errors are told from."""
    state = begin(y, Identity(), model, sigma)
    for stage in model.stages:
        state = advance(state, stage, telling=True)[0]
    return finished(state, model)


def polygon(model: ErrorModel, number: int, value: float) -> float:
    """g_f(φ) of one pixel, as it is written."""
    low, high = model.ends[number].tolist()
    knots, slopes = model.knots[number].tolist(), model.slopes[number].tolist()
    value = min(max(value, low), high)
    bends = sum(slope * max(0.0, value - knot) for slope, knot in zip(slopes[1:], knots))
    return slopes[0] * (value - knots[0]) + bends


def test_the_second_look_sees_what_the_first_expects_around_a_pixel(fitted: Model, grey: np.ndarray) -> None:
    """Against sums pixel by pixel, with SciPy's means."""
    assert fitted.trust is not None
    first, second = fitted.trust.errors, fitted.trust.errors.again
    assert second is not None
    assert second.again is None
    noisy = grey / 255 + 0.08 * np.random.default_rng(0).normal(size=grey.shape)
    state = denoised(torch.from_numpy(noisy).float(), fitted, 0.08)
    maps = [make() for _, make in evidence(state, fitted.stages[-1])]

    def looked(model: ErrorModel, maps: list[torch.Tensor], row: int, col: int) -> float:
        return model.bias + sum(polygon(model, number, float(own[row, col])) for number, own in enumerate(maps))

    expected = replace(first, again=None).log_square(state, fitted.stages[-1])
    whole = expected.double().numpy()
    means = [uniform_filter(whole, 2 * radius + 1, mode="mirror") for radius in (0, 1, 3, 15, 31)]
    swings = uniform_filter((whole - uniform_filter(whole, 15, mode="mirror")) ** 2, 31, mode="mirror")
    seen = [torch.from_numpy(image) for image in (*means, np.log(swings + FLAT))]
    assert second.names == (*first.names, *(f"expected {radius}" for radius in (0, 1, 3, 15, 31)), "uneven")
    found = first.log_square(state, fitted.stages[-1])
    places = [(0, 0), (5, 70), (50, 50), (95, 111), (40, 3)]
    for row, col in places:
        assert float(expected[row, col]) == pytest.approx(looked(first, maps, row, col), abs=1e-3)
        assert float(found[row, col]) == pytest.approx(looked(second, [*maps, *seen], row, col), abs=2e-3)
    pixels = torch.tensor([row * grey.shape[1] + col for row, col in places])
    names, around = gather_around(state, fitted.stages[-1], [first, first], pixels)
    assert names == second.names[len(first.names) :]
    assert around.shape == (2, len(places), len(names))
    wanted = torch.stack([image.flatten()[pixels] for image in seen], 1)
    torch.testing.assert_close(around[0].double(), wanted.double(), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(around[0], around[1])


def test_a_second_look_tells_places_apart_that_the_first_cannot() -> None:
    """Errors whose size is that of the neighbourhood's expectations, which no single piece of evidence shows."""
    draw = torch.Generator().manual_seed(0)
    seen = torch.randn(300, 300, 2, generator=draw, dtype=torch.float64)
    own = seen.sum(2)
    truth = 0.3 * own + 4 * box(own, 3)
    errors = (truth / 2).exp() * torch.randn(300, 300, generator=draw, dtype=torch.float64)
    once = fit_error_model("ab", seen.flatten(0, 1), errors.flatten())
    first = once.log_square_from(seen.flatten(0, 1).float()).view(300, 300)
    names, columns = zip(*((name, make().flatten()) for name, make in around(first)))
    wider = torch.cat([seen.flatten(0, 1).float(), torch.stack(columns, 1)], 1)
    twice = fit_error_model(("a", "b", *names), wider, errors.flatten())

    def off(expected: torch.Tensor) -> float:
        return float((expected.double() - truth.flatten()).std())

    assert off(twice.log_square_from(wider)) < 0.9 * off(first.flatten())


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
    with pytest.raises(SlirError, match="no interval: this model says nothing about its errors"):
        result.interval(0.9)
    with pytest.raises(SlirError, match="carries no examples"):
        result.explain(4, 4)


def test_an_image_that_came_back_as_it_was(grey: np.ndarray) -> None:
    result = slir.denoise(grey, sigma=0, data_range=255, return_info=True)
    assert not result.error_map.any()
    assert result.calibrated == "nothing was restored"
    with pytest.raises(SlirError, match="nothing to explain"):
        result.explain(0, 0)


@pytest.mark.parametrize("looks", [1, 2])
def test_tiles_expect_the_errors_of_the_whole(looks: int, grey: np.ndarray) -> None:
    y = torch.from_numpy(
        np.tile(grey, (3, 3)) / 255 + 0.08 * np.random.default_rng(0).standard_normal((288, 336))
    ).float()
    model = shipped_model("denoise")
    if looks == 2:
        pictures = [picture[:160, :160] for picture in training_pictures()[:8]]
        model = slir.calibrate(
            pictures, model=replace(model, provenance={}), task="denoise", sigma=0.08, crops=8, side=64
        )
        assert model.trust is not None
        assert model.trust.errors.again is not None
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
    from slir.estimator.loop import advance, begin

    stage = fitted.stages[-1]
    state = begin(y, Identity(), fitted, 0.07)
    patches = stage.grid(y.shape).extract(state.z)
    seen, _ = stage.features([state.z], state.z, stage.grid(y.shape))
    pull = stage.pull(seen, patches).moment * state.unit
    number = stage.grid(y.shape).starts[0].index(found.corner[0]) * len(stage.grid(y.shape).starts[1])
    number += stage.grid(y.shape).starts[1].index(found.corner[1])
    own = pull[number].view(8, 8).numpy()
    assert np.abs(found.pull + found.mean - own).max() < 1e-5
    assert np.allclose(found.restored, advance(state, stage)[0].x[29:37, 57:65] * state.unit, atol=0.2)


def test_pairs_of_a_learnt_stage_make_its_pull(grey: np.ndarray) -> None:
    pictures = [picture[:96, :96] for picture in training_pictures()[:4]]
    plan = Plan((StagePlan((Estimate(),), weights="nw"),), cells=2, patches=2000, pairs=300)
    model = fit_cascade(pictures, Noise(0.05, 0.1), plan=plan, crops=8, side=48)
    assert isinstance(model.stages[0].regression, BankWeights)
    found = explain(torch.from_numpy(grey / 255), Identity(), model, 0.07, 20, 20)
    assert found.own
    assert found.reproduces < 1e-5


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
    fitted.save(str(path), half=True, tolerance=1e-3)
    again = slir.load(path)
    assert fitted.trust is not None
    assert again.trust is not None
    assert again.trust.errors.names == fitted.trust.errors.names
    assert torch.equal(again.trust.errors.slopes, fitted.trust.errors.slopes)
    second, kept = fitted.trust.errors.again, again.trust.errors.again
    assert second is not None
    assert kept is not None
    assert (kept.names, kept.bias, kept.again) == (second.names, second.bias, None)
    assert all(torch.equal(getattr(kept, name), getattr(second, name)) for name in ("ends", "knots", "slopes"))
    assert torch.equal(again.trust.calibration.quantiles, fitted.trust.calibration.quantiles)
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


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # nor is this image blurred
def test_calibration_for_one_operator(grey: np.ndarray, fitted: Model) -> None:
    fresh = [picture[200:300, 200:300] for picture in training_pictures()[6:10]]
    psf = np.ones((3, 3)) / 9
    model = slir.calibrate(fresh, operator=Blur(psf), sigma=0.01, crops=8, side=64)
    assert model.trust is not None
    assert model.trust.what["pictures"] == 4
    right = slir.deblur(grey, psf, sigma=2.55, data_range=255, model=model, return_info=True)
    assert right.calibrated == ""
    other = slir.deblur(grey, np.ones((1, 5)) / 5, sigma=2.55, data_range=255, model=model, return_info=True)
    assert "another operator" in other.calibrated
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


def test_grain_widens_what_is_expected() -> None:
    pictures = [picture[:96, :96] for picture in training_pictures()[:4]]
    expected = []
    for grain in ((), (0.05,)):
        plan = Plan((StagePlan((Estimate(),)),), cells=1, patches=1000, grain=grain)
        model = fit_cascade(pictures, Noise(0.05, 0.05), plan=plan, crops=8, side=48)
        assert model.trust is not None
        expected.append(float(model.trust.calibration.expected.mean()))
    assert expected[1] > expected[0] + 0.1


def test_grain_is_given_out_evenly_and_hides_below_the_noise() -> None:
    """Of even planes and of odd ones some get each, also where each plane gives one crop; no more than a share of σ."""
    planes = [torch.rand(48, 48, generator=torch.Generator().manual_seed(own)) for own in range(12)]
    levels = tuple(0.01 * share for share in SHARES)
    draw = partial(
        draw_crops, planes, groups=list(range(12)), side=48, folds=1, generator=torch.Generator().manual_seed(0)
    )
    plan = Plan((StagePlan((Estimate(),)),), grain=levels)
    crops = draw(family=Noise(0.3, 0.3), crops=12, plan=plan, hidden=HIDDEN)
    for parity in (0, 1):
        assert {crop.grain for crop in crops if crop.picture % 2 == parity} == set(levels)
    faint = draw(family=Noise(0.03, 0.03), crops=12, plan=plan, hidden=HIDDEN)
    assert max(crop.grain for crop in faint) == pytest.approx(0.03 * HIDDEN)
    assert {crop.grain for crop in draw(family=Noise(0.03, 0.03), crops=12, plan=plan)} == set(levels)


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


def test_masks_count_what_is_missing_alone() -> None:
    pictures = [picture[:96, :96] for picture in training_pictures()[:4]]
    plan = Plan((StagePlan((Estimate(),)),), cells=1, patches=1000)
    model = fit_cascade(pictures, AnyMask(share_clean=1.0), plan=plan, crops=8, side=48)
    assert model.trust is not None
    assert "known 3" in model.trust.errors.names
    assert float(model.trust.calibration.expected.min()) > -6  # known pixels would pull it to nothing
