"""Pictures that fill little of their range: restored as well as those that fill it, and as exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from skimage import data

import slir
from slir.operators import Blur, Compose, Downsample, Identity, Mask, Operator
from slir.preprocessing import treatment
from slir.preprocessing.arrays import canvas
from slir.preprocessing.ranges import black_at_zero, stretched

TRUTH = data.camera()[20:84, 200:264] / 255.0
SHARES = ((0.0, 1.0), (0.3, 0.02), (0.9, 0.002))
"""Where pictures lie in the range: from where, and how much of it they fill."""


def noise(sigma: float, shape: tuple[int, ...] = TRUTH.shape) -> np.ndarray:
    return sigma * np.random.default_rng(0).standard_normal(shape)


def of(image: Any, data_range: Any = None, channel_axis: int | None = None) -> Any:
    return canvas(image, data_range=data_range, channel_axis=channel_axis)


def fitted(image: np.ndarray, operator: Operator | None = None, sigma: float | None = None, **told: Any) -> Any:
    """(low, high) of the canvas that an image is restored on."""
    black = told.pop("black", False)
    frame, array = of(image, **told)
    seen = array if frame.channel_axis is None else np.moveaxis(array, frame.channel_axis, -1)
    frame = black_at_zero(frame) if black else frame
    together = (tuple(range(len(frame.ranges))),)
    found = stretched(frame, seen, operator or Identity(), sigma, together, black=black)
    assert found.limits == frame.limits
    assert len(found.ranges) == len(frame.ranges)
    assert len(set(found.ranges)) == 1
    return found.ranges[0]


@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_a_picture_is_restored_alike_wherever_it_lies_in_the_range(task: str) -> None:
    """Without stretching, one that fills 2 % of the range loses 4 dB and more, and the noise of 8 bits hides 0.2 %."""
    missing = np.random.default_rng(1).random(TRUTH.shape) < 0.5
    psf = slir.psf.gaussian(1.2)
    degrade, restore = {
        "denoise": (lambda x: x + noise(0.05), lambda y, share: slir.denoise(y, sigma=0.05 * share, data_range=1.0)),
        "deblur": (
            lambda x: Blur(psf, "reflect").forward(torch.from_numpy(x)).numpy() + noise(0.01),
            lambda y, share: slir.deblur(y, psf, sigma=0.01 * share, border="reflect", data_range=1.0),
        ),
        "upsample": (
            lambda x: Downsample(2).forward(torch.from_numpy(x)).numpy(),
            lambda y, share: slir.upsample(y, 2, data_range=1.0),
        ),
        "inpaint": (
            lambda x: np.where(missing, 0.7, x),
            lambda y, share: slir.inpaint(y, missing, data_range=1.0),
        ),
    }[task]
    y = degrade(TRUTH)
    results = [(restore(low + share * y, share) - low) / share for low, share in SHARES]
    # Stretched by what they fill, not to the last digit by what was meant: half a grey level on average.
    for result in results[1:]:
        assert np.abs(result - results[0]).mean() < 0.002
        ratio = np.mean((result - TRUTH) ** 2) / np.mean((results[0] - TRUTH) ** 2)
        assert 0.97 < ratio < 1.03


def test_counts_of_a_camera() -> None:
    """16 bits that hold 100 to 900 counts, and the same as 32 bits: no data_range has to be said."""
    counts = np.rint(100 + 800 * TRUTH + noise(20)).astype(np.uint16)
    wanted = slir.denoise(counts, sigma=20, data_range=(100, 900))
    error = np.mean((wanted - (100 + 800 * TRUTH)) ** 2)
    for dtype in (np.uint16, np.int16, np.uint32, np.int32, np.int64):
        found = slir.denoise(counts.astype(dtype), sigma=20, return_info=True)
        assert found.image.dtype == dtype
        assert np.mean((found.image - (100 + 800 * TRUTH)) ** 2) == pytest.approx(error, rel=0.03)
        assert found.stats["sigma"] == pytest.approx(20)
        assert not found.calibrated
        low, high = found.interval(0.9)
        assert ((low <= 100 + 800 * TRUTH) & (high >= 100 + 800 * TRUTH)).mean() > 0.8
        assert found.error_map.mean() == pytest.approx(np.sqrt(error), rel=0.5)
    auto = slir.denoise(counts, return_info=True)
    assert auto.stats["sigma"] == pytest.approx(20, rel=0.15)
    as_tensor = slir.denoise(torch.from_numpy(counts.astype(np.int32)), sigma=20)
    np.testing.assert_array_equal(as_tensor.numpy(), slir.denoise(counts.astype(np.int32), sigma=20))


def test_photons_keep_their_black() -> None:
    """Poisson noise is told by distances from black, so that nothing is shifted."""
    rng = np.random.default_rng(0)
    light = 30 + 300 * TRUTH
    counts = (rng.poisson(light) + rng.normal(0, 3, light.shape)).clip(0).round().astype(np.uint16)
    found = slir.denoise(counts, sigma="poisson-gaussian")
    wanted = slir.denoise(counts, sigma="poisson-gaussian", data_range=400)
    errors = [np.mean((image - light) ** 2) for image in (found, wanted, counts)]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)
    assert errors[0] < 0.4 * errors[2]
    low, high = fitted(counts, black=True)
    assert low == 0
    assert 300 < high < 500


def test_faint_noise_beside_stars() -> None:
    """A sky of 200 to 300 counts with stars up to 60,000: its noise of 10 is far below 8 bits of the range."""
    rows, cols = np.mgrid[:64, :64]
    sky = 200 + 100 * TRUTH
    for row, col in ((10, 12), (40, 50), (55, 20), (20, 44)):
        sky = sky + 60_000 * np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 2)
    counts = np.rint(sky + noise(10)).astype(np.uint16)
    found = slir.denoise(counts, sigma=10)
    dark = sky < 320
    assert np.mean((found - sky)[dark] ** 2) < 0.4 * np.mean((counts - sky)[dark] ** 2)


def test_what_is_left_as_it_is() -> None:
    wide, dim = (TRUTH * 60_000).astype(np.uint16), (TRUTH * 600).astype(np.uint16)
    assert fitted(wide) == (0, 65535)
    assert fitted((TRUTH * 40).astype(np.uint8)) == (0, 255)  # integers have no more to tell
    linear = Compose(Mask(np.zeros(TRUTH.shape, bool)), Identity())
    assert fitted(dim, linear) == (0, 65535)  # who knows what constants become
    low, high = fitted(dim)
    assert 500 < high - low < 650


def test_pictures_of_one_value_keep_it() -> None:
    """Whatever their type, and whatever is done to them."""
    psf = slir.psf.gaussian(1.5)
    missing = np.random.default_rng(0).random((40, 40)) < 0.5
    tasks = {
        "denoise": lambda image: slir.denoise(image, sigma=10),
        "deblur": lambda image: slir.deblur(image, psf, sigma=2),
        "upsample": lambda image: slir.upsample(image, 2),
        "inpaint": lambda image: slir.inpaint(image, missing),
        "photons": lambda image: slir.denoise(image, sigma="poisson-gaussian"),
    }
    for dtype in (np.uint16, np.int32, np.int64):
        for name, task in tasks.items():
            made = task(np.full((40, 40), 777, dtype)).astype(int)
            assert np.abs(made - 777).max() <= 4, (name, dtype)
    few = np.zeros((64, 64), np.int32)
    few[::20, ::20] = np.arange(16).reshape(4, 4)
    found = slir.upsample(few, 2)
    assert -8 < found.min() < found.max() < 24
    blank = slir.upsample(np.full((40, 40), 777, np.uint16), 2, return_info=True)
    low, high = blank.interval(0.9)
    assert (high - low).max() < 0.05 * 777


def test_signed_counts_have_their_black_at_zero() -> None:
    light = 20 + 300 * TRUTH
    rng = np.random.default_rng(0)
    counts = np.rint(rng.poisson(light) + rng.normal(0, 3, light.shape))
    errors = {}
    for dtype in (np.uint16, np.int16, np.int32, np.int64):
        found = slir.denoise(counts.clip(0).astype(dtype), sigma="poisson-gaussian", return_info=True)
        errors[dtype] = np.mean((found.image - light) ** 2)
        assert found.stats["gain"][0] == pytest.approx(1, rel=0.4)
        assert found.stats["range"][0] == 0
    assert max(errors.values()) < 1.05 * min(errors.values())
    assert errors[np.uint16] < 0.4 * np.mean((counts - light) ** 2)


def test_ranges_come_as_any_kind_of_number() -> None:
    y = TRUTH + noise(0.05)
    wanted = slir.denoise(y, sigma=0.05, data_range=1.0)
    for white in (1, np.float32(1), np.array(1.0), torch.tensor(1.0), (0, 1), [0.0, 1.0], np.array([0.0, 1.0])):
        np.testing.assert_array_equal(slir.denoise(y, sigma=0.05, data_range=white), wanted)
    for bad in ("1", (0, 1, 2), ("0", "1"), {}, np.nan):
        with pytest.raises(slir.InputError, match="data_range must be positive"):
            slir.denoise(y, sigma=0.05, data_range=bad)


def test_planes_of_a_stack_have_ranges_of_their_own() -> None:
    """As they have where they come one by one."""
    missing = np.random.default_rng(1).random(TRUTH.shape) < 0.5
    other = data.coins()[40:104, 60:124] / 255
    stack = np.stack([100 + 800 * TRUTH, 100 + 60_000 * other, 100 + 300 * other.T, np.full(TRUTH.shape, 50.0)])
    stack = stack.astype(np.uint16)
    found = slir.inpaint(stack, missing, channel_axis=0, return_info=True)
    for plane, image in zip(stack, found.image):
        np.testing.assert_array_equal(image, slir.inpaint(plane, missing))
    assert [round(high - low) for low, high in found.stats["range"][1:]] == [65535, pytest.approx(280, rel=0.2), 255]
    grainy = np.rint(stack[[0, 2, 3]] + noise(20, (3, *TRUTH.shape)) * np.array([1, 1, 0])[:, None, None])
    grainy = grainy.clip(0).astype(np.uint16)
    denoised = slir.denoise(grainy, channel_axis=0, return_info=True)
    assert (denoised.image[2] == 50).all()
    assert denoised.stats["sigma"][2] == 0
    assert not denoised.calibrated  # a blank frame takes nothing away from the others
    assert (denoised.error_map[2] == 0).all()
    for plane, image in zip(grainy, denoised.image):
        np.testing.assert_array_equal(image, slir.denoise(plane))


def test_intervals_beside_a_large_offset() -> None:
    truth = 10**9 + np.rint(400 * TRUTH).astype(np.int64)
    found = slir.denoise((truth + np.rint(noise(8))).astype(np.int64), sigma=8, return_info=True)
    low, high = found.interval(0.9)
    assert low.dtype == np.float64
    assert 0.8 < ((low <= truth) & (truth <= high)).mean() < 0.98


def test_a_large_image_is_looked_at_as_its_windows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory, files and lazy arrays agree."""
    monkeypatch.setattr(treatment, "BLOCK", 16)
    seen: list[np.ndarray] = []
    by = treatment.stretched

    def looked(frame: Any, array: np.ndarray, *rest: Any, **told: Any) -> Any:
        seen.append(array)
        return by(frame, array, *rest, **told)

    monkeypatch.setattr(
        treatment,
        "stretched",
        lambda frame, array, *rest, **told: seen.append(array) or by(frame, array, *rest, **told),
    )
    dim = np.rint(100 + 800 * np.tile(TRUTH, (2, 2))).astype(np.uint16)
    slir.upsample(dim, 2)
    windows = treatment.sample(dim.shape)
    assert len(windows) == 16
    np.testing.assert_array_equal(seen[0], np.concatenate([dim[window] for window in windows]))


@pytest.mark.filterwarnings("ignore:The result does not explain", "ignore:The residual is not white")
def test_pixels_far_beyond_the_others_are_told() -> None:
    """Once, to the caller, and only where Fourier transforms carry them everywhere."""
    counts = np.rint(100 + 800 * TRUTH).astype(np.int32)
    counts[30, 30] = 2**24
    stack = np.stack([counts, counts.T])
    for image, axis in ((counts, None), (stack, 0)):
        with pytest.warns(slir.SlirWarning, match=r"up to 1.67772e\+07, lie far away .*slir.inpaint") as told:
            slir.upsample(image, 2, channel_axis=axis)
        own = [each for each in told if "far away" in str(each.message)]
        assert len(own) == 1
        assert own[0].filename == __file__
    hot = np.zeros(TRUTH.shape, bool)
    hot[30, 30] = True
    filled = slir.inpaint(counts, hot)
    assert filled.max() < 1000
    low, high = fitted(counts)
    assert high - low < 900


def test_alpha_does_not_keep_colours_from_being_stretched() -> None:
    colours = np.rint(200 + 500.0 * data.astronaut()[:64, 100:164] / 255 + noise(10, (64, 64, 3)))
    opaque = np.concatenate([colours, np.full((64, 64, 1), 65535)], -1).astype(np.uint16)
    found = slir.denoise(opaque, sigma=10, channel_axis=-1, return_info=True)
    ranges = found.stats["range"]
    assert len(set(ranges[:3])) == 1
    assert ranges[0][1] - ranges[0][0] < 700
    alone = slir.denoise(opaque[..., :3], sigma=10, channel_axis=-1)
    np.testing.assert_array_equal(found.image[..., :3], alone)


@pytest.mark.filterwarnings("ignore:The image is noisier", "ignore:The result does not explain")
def test_a_sample_in_which_all_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the range then, so it stays; and holes are filled in all the same."""
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(treatment, "BLOCK", 16)
    picture = np.rint(1000 + 50_000.0 * data.camera()[:96, 200:296] / 255).astype(np.uint16)
    missing = np.zeros(picture.shape, bool)
    for window in treatment.sample(picture.shape):
        missing[window] = True
    assert 0.3 < missing.mean() < 0.9
    found = slir.inpaint(picture, missing, return_info=True)
    assert found.stats["range"] == (0, 65535)
    lazy = slir.inpaint(da.from_array(picture, chunks=picture.shape), da.from_array(missing, chunks=picture.shape))
    assert np.abs(lazy.compute(scheduler="sync").astype(float) - found.image)[missing].mean() < 1000
    assert np.abs(found.image - picture.astype(float))[missing].mean() < 6000


def test_how_far_a_picture_is_stretched() -> None:
    few = (TRUTH * 90).astype(np.uint16)
    low, high = fitted(few)
    assert high - low == pytest.approx(255)  # rounding leaves the noise of 8 bits
    two = np.where(TRUTH > 0.5, 1000, 0).astype(np.uint16)
    assert fitted(two) == (0, 1000)  # drawn, not rounded
    low, high = fitted(few * 16)  # twelve bits, shifted up
    assert high - low == pytest.approx(255 * 16)
    low, high = fitted(TRUTH * 1e-3, sigma=1e-3, data_range=1.0)
    assert high - low == pytest.approx(4e-3)  # noise has to have room too
    missing = np.zeros(TRUTH.shape, bool)
    missing[:20] = True
    marked = np.where(missing, 1.0, 0.5 + 1e-3 * TRUTH)
    low, high = fitted(marked, Mask(missing), data_range=1.0)
    assert 0.49 < low < high < 0.51
    assert fitted(marked, data_range=1.0) == (0, 1)
    colours = np.stack([TRUTH * 300, TRUTH * 200, TRUTH * 100]).astype(np.uint16)
    low, high = fitted(colours, channel_axis=0)
    assert 255 <= high - low < 310
    dead = (TRUTH * 600).astype(np.uint16)
    dead[5, 5] = 65535  # one hot pixel does not count
    low, high = fitted(dead)
    assert high < 700


def test_a_given_model_is_given_the_range_that_was_said() -> None:
    """It was made for one."""
    dim = (TRUTH * 6000 + noise(300)).clip(0).astype(np.uint16)
    model = slir.paper_model([data.coins()[:100, :100]], Identity(), 300 / 65535, "squared", "krr", 300)
    found = slir.denoise(dim, sigma=300, model=model, data_range=65535)
    frame, _ = of(dim)
    plane = torch.from_numpy(dim / 65535).float()
    expected = frame.image([slir.restore(plane, Identity(), model, sigma=300 / 65535).x])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("colour", [False, True])
def test_lazy_arrays_are_stretched_as_others_are(colour: bool) -> None:
    da = pytest.importorskip("dask.array")
    picture = data.astronaut()[:120, :120] if colour else data.camera()[:120, :120]
    dim = np.rint(picture * 3.0 + noise(10, picture.shape)).clip(0).astype(np.uint16)
    axis = -1 if colour else None
    expected = slir.denoise(dim, sigma=10, channel_axis=axis)
    lazy = slir.denoise(da.from_array(dim, chunks=dim.shape), sigma=10, channel_axis=axis)
    found = lazy.compute(scheduler="sync")
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert psnr_gain(found, dim, picture * 3.0) > 1


def psnr_gain(found: np.ndarray, before: np.ndarray, truth: np.ndarray) -> float:
    return float(10 * np.log10(np.mean((before - truth) ** 2) / np.mean((found - truth) ** 2)))


def test_pictures_to_learn_from_say_their_white() -> None:
    """Integers of more than 16 bits hardly ever fill their type."""
    with pytest.raises(slir.InputError, match=r"images\[0\] must .*16 bits.*int64"):
        slir.paper_model([(TRUTH * 255).astype(np.int64)], Identity(), 0.1, "squared", "krr", 100)
