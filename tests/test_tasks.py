"""The four tasks as a user calls them: what comes out is of the kind that went in, better, or a clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve
from skimage import data

import slir
from slir.errors import InputError
from slir.kernel.shipped import default_model, demo_picture, training_pictures
from slir.model import Model
from slir.operators import Blur, Compose, Downsample, Identity, Mask

PICTURES = [data.camera()[100:260, 150:330], data.coins()[60:200, 60:220]]
TRUTH = data.camera()[20:84, 200:264]  # no row of it is in PICTURES
PSF = slir.psf.gaussian(1.2)


def psnr(image: np.ndarray, truth: np.ndarray, white: float = 255.0) -> float:
    error = np.mean((np.asarray(image, np.float64) - np.asarray(truth, np.float64)) ** 2)
    return float(10 * np.log10(white**2 / max(error, 1e-12)))


def noisy(image: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    noise = sigma * np.random.default_rng(seed).standard_normal(image.shape)
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def denoiser() -> Model:
    return slir.paper_model(PICTURES, Identity(), 25 / 255, "squared", "krr", 500)


# What comes out is of the kind that went in


def test_every_dtype_and_range_gives_the_same_picture(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    expected = slir.denoise(y, sigma=25, model=denoiser).astype(np.float64) / 255
    assert psnr(expected, TRUTH / 255, 1.0) > psnr(y, TRUTH) + 4
    wide = slir.denoise(y.astype(np.uint16) * 257, sigma=25 * 257, model=denoiser)
    assert wide.dtype == np.uint16
    np.testing.assert_allclose(wide / 65535, expected, rtol=0, atol=0.003)
    twelve = slir.denoise((y.astype(np.uint16) * 16), sigma=25 * 16, data_range=4080, model=denoiser)
    np.testing.assert_allclose(twelve / 4080, expected, rtol=0, atol=0.003)
    for dtype in (np.float32, np.float64):
        unit = slir.denoise((y / 255).astype(dtype), sigma=25 / 255, data_range=1.0, model=denoiser)
        assert unit.dtype == dtype
        np.testing.assert_allclose(unit, expected, rtol=0, atol=0.003)
    shifted = slir.denoise(y / 255 * 2 - 1, sigma=50 / 255, data_range=(-1.0, 1.0), model=denoiser)
    np.testing.assert_allclose((shifted + 1) / 2, expected, rtol=0, atol=0.003)


def test_torch_in_torch_out(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    out = slir.denoise(torch.from_numpy(y), sigma=25, model=denoiser)
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.uint8
    np.testing.assert_array_equal(out.numpy(), slir.denoise(y, sigma=25, model=denoiser))


def test_channels_are_restored_one_by_one(denoiser: Model) -> None:
    planes = [noisy(TRUTH, 25, seed) for seed in range(3)]
    alone = [slir.denoise(plane, sigma=25, model=denoiser) for plane in planes]
    for axis in (-1, 0, 1):
        together = slir.denoise(np.stack(planes, axis), sigma=25, channel_axis=axis, model=denoiser)
        np.testing.assert_array_equal(together, np.stack(alone, axis))


def test_the_input_is_left_as_it_was(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    kept = y.copy()
    slir.denoise(y, sigma=25, model=denoiser)
    np.testing.assert_array_equal(y, kept)


def test_shapes_out() -> None:
    small = {"loss": "squared", "m": 300}
    y = TRUTH[:40, :50]
    for psf in (np.full((4, 7), 1 / 28), slir.psf.motion(7, 20)):
        model = slir.paper_model(PICTURES, Blur(psf), 0.01, **small)
        assert slir.deblur(y, psf, sigma=2.5, model=model).shape == y.shape
    for factor in (2, 3):
        model = slir.paper_model(PICTURES, Downsample(factor), 0.0, **small)
        assert slir.upsample(y, factor, model=model).shape == (40 * factor, 50 * factor)


# Better than before, with the model that ships


def test_defaults_restore() -> None:
    y = noisy(TRUTH, 25)
    assert psnr(slir.denoise(y, sigma=25), TRUTH) > psnr(y, TRUTH) + 5
    operator = Downsample(2, 0.8)
    x = torch.from_numpy(TRUTH.astype(np.float64))
    small = np.clip(np.rint(operator.forward(x).numpy()), 0, 255).astype(np.uint8)
    bicubic = operator.guess(torch.from_numpy(small.astype(np.float64))).numpy()
    assert psnr(slir.upsample(small, 2, antialias=0.8), TRUTH) > psnr(bicubic, TRUTH) + 0.5


def test_default_deblurring() -> None:
    blur = Blur(PSF)
    sharp = data.camera()[120:194, 180:254]
    y = blur.forward(torch.from_numpy(sharp.astype(np.float64)))
    truth = blur.crop(torch.from_numpy(sharp), (y.shape[0], y.shape[1])).numpy()
    y = noisy(y.numpy(), 1.0)
    restored = slir.deblur(y, PSF, sigma=1.0)
    assert psnr(restored, truth) > psnr(y, truth) + 2


def test_inpainting_keeps_what_is_known_and_fills_what_is_not() -> None:
    missing = np.random.default_rng(0).random(TRUTH.shape) < 0.5
    holed = np.where(missing, np.nan, TRUTH / 255)
    whole = slir.inpaint(holed, missing, data_range=1.0)
    np.testing.assert_allclose(whole[~missing], TRUTH[~missing] / 255, rtol=0, atol=1e-6)
    guess = Mask(missing).guess(torch.from_numpy(np.nan_to_num(holed))).numpy()
    assert psnr(whole, TRUTH / 255, 1.0) > psnr(guess, TRUTH / 255, 1.0)
    colour = np.stack([np.where(missing, 0, TRUTH).astype(np.uint8)] * 3, -1)
    found = slir.inpaint(colour, missing, channel_axis=-1)
    assert (found[~missing] == colour[~missing]).all()
    assert psnr(found[..., 1], TRUTH) > psnr(colour[..., 1], TRUTH) + 10


def test_default_models_are_kept_and_told_apart() -> None:
    first = default_model(Identity())
    assert default_model(Identity()) is first
    assert default_model(Blur(PSF)) is not first
    assert default_model(Blur(PSF)) is default_model(Compose(Mask(TRUTH > 100), Blur(PSF, "circular")))
    operators = (Downsample(1), Downsample(3), Downsample(7), Mask(TRUTH > 100))
    names = [operator.calibration for operator in operators]
    assert names == ["deblur", "upsample3", "upsample7", "inpaint"]
    networks = {
        id(default_model(operator).stages[0].network) for operator in (Blur(PSF), Mask(TRUTH > 100), Downsample(5))
    }  # type: ignore[attr-defined]
    assert len(networks) == 1


def test_what_ships_is_whole_and_the_demo_is_not_learnt_from() -> None:
    pictures = training_pictures()
    assert len(pictures) == 13
    assert all(tuple(picture.shape) == (384, 384) for picture in pictures)
    assert all(float(picture.std()) > 0.05 for picture in pictures)
    demo = demo_picture()
    assert demo.shape == (256, 256, 3)
    provenance = (Path(slir.__file__).parent / "data" / "PROVENANCE.md").read_text("utf-8")
    assert provenance.count("| learnt from |") == 13
    assert "purple-dream.webp | 1200×800 | demo |" in provenance


# What is said on the way


def test_info_and_progress(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    steps: list[tuple[int, int, str]] = []
    result = slir.denoise(y, sigma=25, model=denoiser, return_info=True, progress=lambda *step: steps.append(step))
    np.testing.assert_array_equal(result.image, slir.denoise(y, sigma=25, model=denoiser))
    assert result.stats["sigma"] == 25
    assert result.stats["seconds"] > 0
    assert 10 < result.stats["residual"] < 30
    assert len(result.stats["stages"][0]) == 1
    assert steps[0][:2] == (0, 1)
    assert steps[-1][:2] == (1, 1)
    colour = slir.denoise(np.stack([y, y], -1), sigma=25, channel_axis=-1, model=denoiser, return_info=True)
    assert colour.stats["sigma"] == [25, 25]


def test_nothing_is_printed(denoiser: Model, capsys: pytest.CaptureFixture[str]) -> None:
    slir.denoise(noisy(TRUTH, 25), sigma=25, model=denoiser)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_sigma_is_estimated(denoiser: Model) -> None:
    result = slir.denoise(noisy(TRUTH, 25), model=denoiser, return_info=True)
    assert result.stats["sigma"] == pytest.approx(25, rel=0.2)


def test_a_model_may_be_given_by_its_path(denoiser: Model, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    denoiser.save(str(path))
    y = noisy(TRUTH, 25)
    for given in (path, str(path), slir.load(path)):
        np.testing.assert_array_equal(slir.denoise(y, sigma=25, model=given), slir.denoise(y, sigma=25, model=denoiser))


def test_seeds_of_every_kind(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    expected = slir.denoise(y, sigma=25, model=denoiser)
    for rng in (0, np.int64(3), np.random.default_rng(0), torch.Generator()):
        np.testing.assert_array_equal(slir.denoise(y, sigma=25, model=denoiser, rng=rng), expected)


# Bad input


GREY = TRUTH
FLOAT = TRUTH / 255
BAD = {
    "float without range": (lambda: slir.denoise(FLOAT), ("data_range", "float", "data_range=1.0")),
    "range": (lambda: slir.denoise(FLOAT, data_range=-1.0), ("data_range", "-1.0")),
    "outside range": (lambda: slir.denoise(GREY, data_range=100), ("image", "data_range", "100")),
    "range of words": (lambda: slir.denoise(GREY, data_range="1"), ("data_range", "black < white", "1")),  # type: ignore[arg-type]
    "bool": (lambda: slir.denoise(GREY > 100), ("image", "integers or floats", "bool", "astype")),
    "path": (lambda: slir.denoise("photo.png", sigma=5), ("image", "an array", "'photo.png'", "slir.io.read")),
    "sigma none": (lambda: slir.denoise(GREY, sigma=None), ("sigma", "number", "None")),
    "sigma list": (lambda: slir.denoise(GREY, sigma=[5, 5]), ("sigma", "number", "[5, 5]")),
    "psf larger": (lambda: slir.deblur(GREY, np.full((65, 3), 1 / 195)), ("psf", "64×64", "65×3", "Crop")),
    "too few patches": (
        lambda: slir.fit([GREY[:20, :20]], operator=Identity(), sigma=0.1, method="paper"),
        ("m must", "169", "10000", "larger images"),
    ),
    "words": (lambda: slir.denoise(np.array([["a"]])), ("image", "integers or floats")),
    "empty": (lambda: slir.denoise(np.zeros((0, 5), np.uint8)), ("image", "at least one pixel", "(0, 5)")),
    "tiny": (lambda: slir.denoise(GREY[:9, :40], sigma=5), ("image", "16 pixels", "9×40", "Pad")),
    "colour as grey": (lambda: slir.denoise(np.zeros((32, 32, 3), np.uint8)), ("image", "2 dim", "channel_axis=-1")),
    "grey as colour": (lambda: slir.denoise(GREY, channel_axis=-1), ("image", "3 dim")),
    "axis": (lambda: slir.denoise(np.zeros((32, 32, 3), np.uint8), channel_axis=4), ("channel_axis", "4")),
    "nan": (lambda: slir.denoise(np.full((32, 32), np.nan), data_range=1.0), ("image", "finite", "1024", "inpaint")),
    "axis word": (lambda: slir.denoise(np.zeros((32, 32, 3), np.uint8), channel_axis="x"), ("channel_axis", "'x'")),
    "masked": (lambda: slir.denoise(np.ma.masked_less(GREY, 20), sigma=5), ("image", "masked", "inpaint")),
    "masked, to fill in": (
        lambda: slir.inpaint(np.ma.masked_less(GREY, 20), np.eye(*GREY.shape, dtype=bool)),
        ("image", "masked", "inpaint"),
    ),
    "masked mask": (
        lambda: slir.inpaint(GREY, np.ma.masked_less(np.eye(*GREY.shape), 0.5)),
        ("mask", "masked", "filled"),
    ),
    "masked psf": (lambda: slir.deblur(GREY, np.ma.masked_less(PSF, 0.1)), ("psf", "masked")),
    "meta tensor": (lambda: slir.denoise(torch.ones(32, 32, device="meta"), data_range=1), ("image", "dense", "meta")),
    "sparse tensor": (lambda: slir.denoise(torch.ones(32, 32).to_sparse(), data_range=1), ("image", "sparse", "dense")),
    "range vast": (lambda: slir.denoise(GREY, sigma=5, data_range=10**400), ("data_range", "positive")),
    "seed vast": (lambda: slir.denoise(GREY, sigma=5, rng=10**40), ("rng", "64 bits")),
    "fit crops word": (lambda: slir.fit(PICTURES, task="denoise", crops="x"), ("crops", "whole", "x")),  # type: ignore[arg-type]
    "bfloat16": (lambda: slir.denoise(torch.ones(32, 32, dtype=torch.bfloat16)), ("image", "bfloat16", "float()")),
    "sigma vast": (lambda: slir.denoise(GREY, sigma=10**400), ("sigma", "at least 0")),
    "device kind": (lambda: slir.denoise(GREY, sigma=5, device="meta"), ("device", "'meta'")),
    "psf word": (lambda: slir.psf.gaussian("wide"), ("sigma", "positive", "wide")),
    "psf side": (lambda: slir.psf.gaussian(1.0, "wide"), ("size", "odd", "wide")),
    "sigma": (lambda: slir.denoise(GREY, sigma=-1), ("sigma", "at least 0", "-1")),
    "sigma nan": (lambda: slir.denoise(GREY, sigma=float("nan")), ("sigma", "nan")),
    "sigma word": (lambda: slir.denoise(GREY, sigma="lots"), ("sigma", "'auto'", "'lots'")),
    "sigma units": (lambda: slir.denoise(FLOAT, sigma=25, data_range=1.0), ("sigma", "data range", "25")),
    "psf sum": (lambda: slir.deblur(GREY, np.ones((3, 3))), ("psf", "sum to one", "9", "psf / psf.sum()")),
    "psf size": (lambda: slir.deblur(GREY, np.full((65, 3), 1 / 195), border="circular"), ("psf", "65×3")),
    "border": (lambda: slir.deblur(GREY, PSF, border="zero"), ("border", "'zero'")),
    "factor": (lambda: slir.upsample(GREY, 0.5), ("factor", "0.5", "at least 1")),
    "antialias": (lambda: slir.upsample(GREY, 2, antialias="best"), ("antialias", "'best'")),
    "mask shape": (lambda: slir.inpaint(GREY, np.zeros((9, 9), bool)), ("mask", "(9, 9)", "(64, 64)")),
    "mask all": (lambda: slir.inpaint(GREY, np.ones_like(GREY)), ("mask", "everywhere", "inverted")),
    "model": (lambda: slir.denoise(GREY, sigma=5, model=3), ("model", "int", "slir.load")),
    "device": (lambda: slir.denoise(GREY, sigma=5, device="abacus"), ("device", "'abacus'")),
    "rng": (lambda: slir.denoise(GREY, sigma=5, rng="dice"), ("rng", "str")),
    "fit method": (lambda: slir.fit(PICTURES, operator=Identity(), sigma=0.1, method="magic"), ("method", "'magic'")),
    "fit sigma": (lambda: slir.fit(PICTURES, operator=Identity(), sigma=25), ("sigma", "25", "25/255")),
    "fit task": (lambda: slir.fit(PICTURES, task="dehaze"), ("task", "'dehaze'", "denoise")),
    "fit neither": (lambda: slir.fit(PICTURES), ("task or operator", "neither")),
    "fit both": (lambda: slir.fit(PICTURES, task="denoise", operator=Identity()), ("task or operator", "both")),
    "fit paper": (lambda: slir.fit(PICTURES, task="denoise", method="paper"), ("operator and sigma", "method 'paper'")),
    "fit small": (lambda: slir.fit([GREY[:20, :20]], task="denoise"), ("images[0]", "32 pixels", "20×20")),
    "fit crops": (lambda: slir.fit(PICTURES, task="denoise", crops=0), ("crops", "at least 1", "0")),
    "fit nothing": (lambda: slir.fit([], operator=Identity(), sigma=0.1), ("images", "at least one")),
    "fit picture": (lambda: slir.fit([GREY * 3.0], operator=Identity(), sigma=0.1), ("images[0]", "[0, 1]")),
    "fit loss": (lambda: slir.paper_model(PICTURES, Identity(), 0.1, loss="huge"), ("loss", "'huge'")),
    "fit weights": (lambda: slir.paper_model(PICTURES, Identity(), 0.1, weights="gold"), ("weights", "'gold'")),
    "fit view": (lambda: slir.paper_model(PICTURES, Identity(), 0.1, view="nice"), ("view", "'nice'")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_value_and_remedy(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_lambda_of_the_theorem() -> None:
    model = slir.paper_model(PICTURES, Identity(), 0.1, "squared", "krr", 200, lam="theorem")
    assert 0.05 < model.stages[0].prior.weights.lam < 1


def test_demo_writes_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration on a small part of its picture: every file is there and every task gains."""
    from slir.cli import demonstration
    from slir.io import read

    monkeypatch.setattr(demonstration, "demo_picture", lambda: demo_picture()[60:140, 60:140].copy())
    rows = demonstration.run(tmp_path / "out")
    assert [row.task for row in rows] == ["deblur", "denoise", "upsample", "inpaint"]
    for row in rows:
        assert row.psnr_after > row.psnr_before + 1
        assert all(read(path).pixels.size for path in row.files)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"before.png", "after.png", "side-by-side.png", "inpaint-after.png"} <= names


# What may not have been meant


@pytest.mark.filterwarnings("ignore:The result does not explain")  # nor can it
@pytest.mark.filterwarnings("ignore:The PSF looks")  # nothing was blurred
def test_a_model_for_something_else_is_told(denoiser: Model) -> None:
    y = noisy(TRUTH, 25)
    with pytest.warns(slir.SlirWarning, match=r"learnt for sigma 25 .* but sigma is 60"):
        slir.denoise(y, sigma=60, model=denoiser)
    with pytest.raises(InputError, match="model must be learnt for the operator 'blur', but it is for 'identity'"):
        slir.deblur(y, PSF, sigma=25, model=denoiser)
    deblurrer = slir.paper_model(PICTURES, Blur(PSF), 0.01, "squared", m=300)
    with pytest.warns(slir.SlirWarning, match="another PSF"):
        slir.deblur(noisy(TRUTH, 2.55), slir.psf.gaussian(2.0), sigma=2.55, model=deblurrer)


@pytest.mark.parametrize(("truth", "told"), [(25.0, 10.0), (8.0, 2.0)])
def test_more_noise_than_sigma_says_is_told(truth: float, told: float) -> None:
    with pytest.warns(slir.SlirWarning, match=rf"is noisier than sigma: about .*, not {told:g}\."):
        slir.denoise(noisy(TRUTH, truth), sigma=told)


@pytest.mark.parametrize("sigma", [25.0, 30.0, 60.0])
def test_as_much_noise_as_sigma_says_or_less_is_fine(sigma: float) -> None:
    slir.denoise(noisy(TRUTH, 25), sigma=sigma)  # a larger sigma is how one smooths more


def test_an_image_that_is_not_explained_is_told() -> None:
    """Told of less noise than there is, though not so little that one could tell from the image alone."""
    y = noisy(fftconvolve(TRUTH.astype(np.float64), PSF, mode="valid"), 6)
    slir.deblur(y, PSF, sigma=6)
    with pytest.warns(
        slir.SlirWarning, match="does not explain the image: the residual is .*, but noise of 4 was expected"
    ):
        slir.deblur(y, PSF, sigma=4)


def test_what_is_missing_is_not_left_over() -> None:
    missing = np.random.default_rng(0).random(TRUTH.shape) < 0.5
    stats = slir.inpaint(noisy(TRUTH, 10), missing, sigma=10, return_info=True).stats
    assert 5 < stats["residual"] < 10.8


def test_noise_below_a_cameras_black_is_no_mistake() -> None:
    clean = 100 + TRUTH.astype(np.float64)
    image = (clean + np.random.default_rng(0).normal(0, 10, clean.shape)).round().clip(0).astype(np.uint16)
    image[3, 4] = 400  # a hot pixel
    limits = (120.0, 375.0)
    assert image.min() < limits[0]
    restored = slir.denoise(image, sigma=10, data_range=limits)
    assert restored.dtype == np.uint16
    assert restored.min() >= image.min()
    assert np.mean((restored - clean) ** 2) < np.mean((image - clean) ** 2) / 2
    with pytest.raises(InputError, match="image must lie within data_range, 100 to 200, or near it, but it is"):
        slir.denoise(image, sigma=10, data_range=(100.0, 200.0))


@pytest.mark.filterwarnings("ignore:The image is noisier")
def test_a_range_that_cannot_be_is_told(denoiser: Model) -> None:
    with pytest.warns(slir.SlirWarning, match="far outside data_range"):
        slir.denoise(TRUTH.astype(np.float64), sigma=25 / 255, data_range=1.0, model=denoiser)


def test_values_that_are_lost_in_the_range_of_their_type_are_told(denoiser: Model) -> None:
    """Where a model is given. Others have them stretched."""
    y = noisy(TRUTH, 25)
    for image in (y.astype(np.int32), y.astype(np.uint32) + 1000, torch.from_numpy(y).long()):
        with (
            pytest.warns(slir.SlirWarning, match=r"fill \S+ of the range of u?int\d\d, .* Pass data_range"),
            pytest.warns(slir.SlirWarning, match="was learnt for sigma"),
        ):
            slir.denoise(image, sigma=0, model=denoiser)
        slir.denoise(image, sigma=25)
    restored = slir.denoise(y.astype(np.int32), sigma=25, data_range=255, model=denoiser)
    np.testing.assert_array_equal(restored, slir.denoise(y, sigma=25, model=denoiser))
    slir.denoise(y.astype(np.uint32) << 24, sigma=25 * 2**24, model=denoiser)  # the whole range, so nothing to tell
    slir.denoise(y.astype(np.int16), sigma=0)


def test_known_pixels_come_back_to_the_last_bit() -> None:
    missing = np.random.default_rng(0).random(TRUTH.shape) < 0.3
    model = slir.paper_model(PICTURES, Mask(missing), 0.0, "squared", m=300)
    image = TRUTH.astype(np.float64) / 255 + 1e-12
    whole = slir.inpaint(image, missing, data_range=1.0, model=model)
    np.testing.assert_array_equal(whole[~missing], image[~missing])
    tensor = slir.inpaint(torch.from_numpy(image), missing, data_range=1.0, model=model)
    assert torch.equal(tensor, torch.from_numpy(whole))


def test_a_model_shows_itself_in_one_line(denoiser: Model) -> None:
    assert repr(denoiser) == "Model(1 × (squared, krr), bank of 500, for identity and sigma 0.09803921568627451)"
