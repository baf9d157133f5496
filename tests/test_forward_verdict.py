"""Whether a forward model can be true: what judge says of right and wrong ones, and how it is told to users."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve
from torch import Tensor

import slir
from slir.estimator.loop import Restoration, restore
from slir.estimator.start import smooth_start
from slir.kernel.shipped import default_model
from slir.model import Model
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, Operator
from slir.preprocessing.treatment import decide
from slir.trust.forward import ForwardCheck, judge
from slir.trust.spectra import SCALES, find_width, periodogram

SIGMA = 0.01


@cache
def picture(side: int = 220, seed: int = 0) -> np.ndarray:
    """Disks in front of each other, small ones oftener: edges at all scales, as photographs have them."""
    rng = np.random.default_rng(seed)
    down, right = np.ogrid[:side, :side]
    image = np.full((side, side), 0.5)
    for _ in range(500):
        radius = 2.5 / rng.uniform(0.03, 1)
        row, col = rng.uniform(0, side, 2)
        image[np.hypot(down - row, right - col) < radius] = rng.uniform(0.1, 0.9)
    image.flags.writeable = False
    return image


def blurred(image: np.ndarray, psf: np.ndarray, sigma: float = SIGMA, seed: int = 1) -> Tensor:
    y = fftconvolve(image, psf, mode="valid")
    noisy = y + sigma * np.random.default_rng(seed).standard_normal(y.shape)
    return torch.from_numpy((noisy * 255).round().clip(0, 255) / 255).float()


def wiener(y: Tensor, operator: Blur, sigma: Any) -> Tensor:
    """A cheap restoration: with B and σ right it leaves over about what a good one does."""
    if y.ndim > 2:  # channels, each with its own σ
        return torch.stack([smooth_start(operator, plane, own) for plane, own in zip(y, sigma)])
    return smooth_start(operator, y, sigma)


PSFS = {"shake": slir.psf.camera_shake(14, 3), "defocus": slir.psf.defocus(3.0), "motion": slir.psf.motion(9, 30)}
WIDER = {"shake": slir.psf.camera_shake(18.2, 3), "defocus": slir.psf.defocus(3.9), "motion": slir.psf.motion(11.7, 30)}
NARROWER = {
    "shake": slir.psf.camera_shake(9.8, 3),
    "defocus": slir.psf.defocus(2.1),
    "motion": slir.psf.motion(6.3, 30),
}


# The width of a PSF


def test_white_noise_has_a_flat_periodogram() -> None:
    noise = 0.3 * torch.randn(300, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    power = periodogram(noise, 64)
    assert power.shape == (64, 33)
    assert float(power[2:-2, 2:-2].mean()) == pytest.approx(0.09, rel=0.02)
    assert float(power[20:40, :10].mean()) == pytest.approx(float(power[5:20, 20:].mean()), rel=0.06)


@pytest.mark.parametrize("kind", PSFS)
def test_the_width_that_an_image_speaks_for(kind: str) -> None:
    y = blurred(picture(), PSFS[kind])
    for psf, wanted in ((PSFS[kind], 1.0), (WIDER[kind], 1 / 1.3), (NARROWER[kind], 1 / 0.7)):
        width = find_width(y, torch.from_numpy(psf))
        assert width is not None
        assert width.scale == pytest.approx(wanted, rel=0.07)
        assert (width.gain > 50) == (wanted != 1)


def test_the_level_and_the_noise_do_not_change_the_width() -> None:
    """Nothing but the shape of the spectrum is looked at."""
    y = blurred(picture(), PSFS["shake"])
    psf = torch.from_numpy(WIDER["shake"])
    first, second = find_width(y, psf), find_width(3 * y.double() + 7, psf)
    assert first is not None
    assert second is not None
    assert second.scale == pytest.approx(first.scale, rel=1e-3)
    assert second.gain == pytest.approx(first.gain, rel=1e-2)


@pytest.mark.parametrize("side", [16, 40, 63])
def test_small_images_say_nothing_about_a_width(side: int) -> None:
    assert find_width(torch.rand(side, side), torch.from_numpy(PSFS["motion"])) is None


def test_neither_do_images_without_anything_in_them() -> None:
    psf = torch.from_numpy(PSFS["motion"])
    assert find_width(torch.full((128, 128), 0.5), psf) is None
    noise = find_width(0.5 + 0.01 * torch.randn(200, 200, generator=torch.Generator().manual_seed(2)), psf)
    assert noise is not None
    assert noise.gain < 10
    assert find_width(torch.rand(128, 128), torch.ones(1, 1)) is None  # a point is as wide at any scale


def test_an_image_that_was_not_blurred_at_all() -> None:
    noisy = torch.from_numpy(picture() + SIGMA * np.random.default_rng(0).standard_normal((220, 220))).float()
    width = find_width(noisy, torch.from_numpy(PSFS["defocus"]))
    assert width is not None
    assert width.scale < SCALES[1]
    assert width.gain > 100


@pytest.mark.parametrize("kind", ["gaussian", "motion"])
def test_a_denoised_image_does_not_speak_for_a_narrower_psf(kind: str) -> None:
    """Photons: denoised first, then compared with the PSF at a third of the noise, as the message recommends."""
    psf = slir.psf.gaussian(1.5) if kind == "gaussian" else PSFS[kind]
    light = 60 * fftconvolve(picture(), psf, mode="valid").clip(0)
    photons = np.random.default_rng(0).poisson(light).astype(np.float32)
    denoised = slir.denoise(photons, sigma="poisson-gaussian", data_range=80.0, return_info="stats")
    y, sigma = torch.from_numpy(denoised.image) / 80, denoised.stats["sigma"] / 3 / 80
    blind, width = find_width(y, torch.from_numpy(psf)), find_width(y, torch.from_numpy(psf), sigma)
    assert blind is not None
    assert width is not None
    assert blind.gain > 25  # which tells why a noise level is needed
    assert width.gain < 25
    assert judge(y, Blur(psf), wiener(y, Blur(psf), sigma), sigma).faults.keys() <= {"sigma too large"}


def test_threads_stay_as_they_were() -> None:
    before = torch.get_num_threads()
    find_width(blurred(picture(128), PSFS["motion"]), torch.from_numpy(PSFS["motion"]))
    assert torch.get_num_threads() == before


# The verdict


@pytest.mark.parametrize("kind", PSFS)
def test_told_the_truth_nothing_is_suspected(kind: str) -> None:
    operator = Blur(PSFS[kind])
    y = blurred(picture(), PSFS[kind])
    check = judge(y, operator, wiener(y, operator, SIGMA), SIGMA, span=255)
    assert check.right
    assert check.words == ""
    assert check.faults == {}
    assert check.noise_found == pytest.approx(255 * SIGMA, rel=0.12)
    assert check.scale_found == pytest.approx(1, rel=0.05)
    assert check.chi2 is not None
    assert 0.6 < check.chi2 < 1.1
    assert check.correlation is not None
    assert check.correlation < 0.1


@pytest.mark.parametrize("kind", PSFS)
@pytest.mark.parametrize(
    ("share", "psfs", "fault"),
    [
        (0.5, PSFS, "sigma too small"),
        (2.0, PSFS, "sigma too large"),
        (1.0, WIDER, "psf too wide"),
        (1.0, NARROWER, "psf too narrow"),
    ],
)
def test_what_is_wrong_is_named(kind: str, share: float, psfs: dict[str, np.ndarray], fault: str) -> None:
    y, operator = blurred(picture(), PSFS[kind]), Blur(psfs[kind])
    check = judge(y, operator, wiener(y, operator, share * SIGMA), share * SIGMA, span=255)
    assert not check.right
    assert fault in check.faults
    assert check.words.startswith(next(iter(check.faults.values())))


def test_numbers_in_words_count_in_pixel_values() -> None:
    y, operator = blurred(picture(), PSFS["shake"]), Blur(PSFS["shake"])
    words = judge(y, operator, wiener(y, operator, SIGMA / 2), SIGMA / 2, span=1000).words
    assert re.search(r"noisier than sigma: about (9|10)\b", words)
    assert "not 5." in words
    assert "sigma='auto'" in words


@pytest.mark.parametrize("share", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", [15, 50])
def test_noise_alone(level: int, share: float) -> None:
    sigma = level / 255
    clean = picture()
    y = torch.from_numpy(clean + sigma * np.random.default_rng(3).standard_normal(clean.shape)).float()
    check = judge(y, Identity(), torch.from_numpy(gaussian_filter(clean, 0.5)).float(), share * sigma, span=255)
    assert check.scale_found is None
    assert list(check.faults) == {0.5: ["sigma too small"], 1.0: [], 2.0: ["sigma too large"]}[share]


def test_noise_that_is_not_white_is_structure() -> None:
    clean = picture()
    noise = gaussian_filter(np.random.default_rng(4).standard_normal(clean.shape), 0.8)
    y = torch.from_numpy(clean + 0.1 * noise / noise.std()).float()
    check = judge(y, Identity(), torch.tensor(clean, dtype=torch.float32), 0.1)
    assert list(check.faults) == ["structure"]
    assert check.correlation is not None
    assert check.correlation > 0.5
    assert f"correlate by {check.correlation:.2f}" in check.words


def test_light_that_was_cut_off() -> None:
    operator = Blur(PSFS["defocus"])
    bright = picture() ** 3 * 4
    y = blurred(bright, PSFS["defocus"])
    assert 0.05 < float((y == 1).double().mean()) < 0.5
    x = torch.from_numpy(np.minimum(bright, 1.0)).float()  # what can be restored at best where white is white
    check = judge(y, operator, x, SIGMA, span=255)
    assert "clipping" in check.faults
    assert "% of the pixels are clipped" in check.words


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("border", ["unknown", "reflect", "circular"])
def test_x_may_be_whole_or_what_y_shows(border: str, full: bool) -> None:
    operator = Blur(PSFS["shake"], border=border)  # type: ignore[arg-type]
    x = torch.tensor(picture(), dtype=torch.float32)
    y = operator.forward(x)
    y = y + SIGMA * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    check = judge(y, operator, x if full else operator.crop(x, (y.shape[0], y.shape[1])), SIGMA)
    assert check.chi2 == pytest.approx(1, abs=0.03)
    assert check.right


@pytest.mark.parametrize(
    "operator",
    [
        Identity(),
        Blur(PSFS["motion"]),
        Downsample(2),
        Mask(torch.arange(900 * 800).reshape(900, 800) % 3 == 0),
        Compose(Mask(torch.arange(900 * 800).reshape(900, 800) % 3 == 0), Blur(PSFS["motion"], border="reflect")),
    ],
    ids=lambda operator: operator.describe()["kind"],
)
def test_of_large_images_the_middle(operator: Operator) -> None:
    x = torch.from_numpy(np.tile(picture(100), (18, 18))).float()
    shape = operator.x_shape((900, 800))
    x = x[: shape[0], : shape[1]]
    y = operator.forward(x)
    y = y + 0.05 * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    check = judge(y, operator, operator.crop(x, (900, 800)), 0.05)
    assert check.chi2 == pytest.approx(1, abs=0.02)
    assert check.correlation == pytest.approx(0, abs=0.02)


def test_a_linear_map_of_ones_own() -> None:
    matrix = np.diag(np.linspace(0.5, 1, 24 * 24))
    operator = Linear(matrix, (24, 24), (24, 24))
    x = torch.tensor(picture(24), dtype=torch.float32)
    y = operator.forward(x) + 0.02 * torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
    assert judge(y, operator, x, 0.02).right
    told = judge(y, operator, x, 0.005)
    assert list(told.faults) == ["unexplained"]
    assert not told.right
    assert told.noise_found is None
    assert told.scale_found is None


def test_a_psf_that_leaves_no_pixel_to_look_at() -> None:
    operator = Blur(np.full((31, 31), 1 / 961))
    check = judge(torch.rand(40, 40), operator, torch.rand(40, 40), 0.1)
    assert check.chi2 is None
    assert check.correlation is None


def test_a_restoration_by_the_model_that_ships() -> None:
    psf = PSFS["shake"]
    y = blurred(picture(140), psf)
    told: dict[str, ForwardCheck] = {}
    for name, kernel in (("right", psf), ("wide", WIDER["shake"])):
        operator = Blur(kernel)
        x = restore(y, operator, default_model(operator), sigma=SIGMA).x
        told[name] = judge(y, operator, x, SIGMA, span=255)
    assert told["right"].right
    assert list(told["wide"].faults) == ["psf too wide"]


# What users are told


@pytest.mark.parametrize("channels", [1, 3])
def test_a_treatment_doubts_a_psf_in_pixel_values(channels: int) -> None:
    clean = [torch.tensor(shade * picture(), dtype=torch.float32) for shade in (1.0, 0.9, 0.8)[:channels]]
    right, wrong = Blur(PSFS["motion"]), Blur(WIDER["motion"])
    noise = torch.randn(channels, *right.y_shape((220, 220)), generator=torch.Generator().manual_seed(0))
    planes = [right.forward(plane) + SIGMA * own for plane, own in zip(clean, noise)]

    def one(y: Tensor, model: Model, sigma: Any, number: int) -> Restoration:
        x = wiener(y, operator, sigma)
        return Restoration(
            operator.crop(x, (y.shape[-2], y.shape[-1])), residual=[SIGMA] * channels if channels > 1 else SIGMA
        )

    for operator in (right, wrong):
        treatment = decide(planes, operator, 255 * SIGMA, [255.0] * channels, None)
        assert treatment.joint == (channels == 3)
        restored = treatment.restore(planes, operator, one)
        check = treatment.check(planes, restored, operator, [255.0] * channels)
        assert check is not None
        assert check.noise_found == pytest.approx(255 * SIGMA, rel=0.1)
        texts = treatment.doubts(restored, operator, [255.0] * channels, check)
        assert check.right == (operator is right)
        assert len(texts) == (operator is wrong)
        assert all("PSF looks too wide" in text for text in texts)


def test_a_larger_sigma_is_no_mistake_in_denoising_but_known() -> None:
    clean = torch.tensor(picture(), dtype=torch.float32)
    y = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    treatment = decide([y], Identity(), 0.3, [1.0], None)
    restored = treatment.restore([y], Identity(), lambda *_: Restoration(clean, residual=0.1))
    check = treatment.check([y], restored, Identity(), [1.0])
    assert check is not None
    assert list(check.faults) == ["sigma too large"]
    assert treatment.doubts(restored, Identity(), [1.0], check) == []
