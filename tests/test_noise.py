"""The noise of pictures, read off them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import skimage.data
import skimage.restoration
import torch

from slir.errors import InputError
from slir.noise import estimate_poisson_gaussian, estimate_sigma

CROPS = {
    "camera": (slice(100, 356), slice(100, 356)),
    "coins": (slice(20, 276), slice(60, 316)),
    "brick": (slice(0, 256), slice(0, 256)),
    "grass": (slice(0, 256), slice(0, 256)),
    "gravel": (slice(128, 384), slice(128, 384)),
    "moon": (slice(128, 384), slice(128, 384)),
}


def noisy(name: str, sigma: float, seed: int) -> torch.Tensor:
    clean = getattr(skimage.data, name)()[CROPS[name]] / 255
    return torch.from_numpy(clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)).float()


def in_8_bits(image: torch.Tensor) -> torch.Tensor:
    return (255 * image).round().clamp(0, 255) / 255


TEXTURES = ("grass", "gravel")  # they have no flat part at all, and their grain passes for noise of about 3 of 255


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("level", [5, 15, 25, 50])
def test_white_noise_on_pictures(name: str, level: int) -> None:
    for seed in range(2):
        image = noisy(name, level / 255, seed)
        rounded = np.hypot(level, 12**-0.5) / 255  # rounding adds noise of its own, of variance 1/12
        for given, truth in ((image, level / 255), (in_8_bits(image), rounded)):
            found = estimate_sigma(given)
            if name in TEXTURES and level == 5:  # too much, but less so than a wavelet's median says
                assert 0.9 * truth < found < 1.4 * truth
                assert found < skimage.restoration.estimate_sigma(given.numpy())
            else:
                assert found == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("level", [15, 50])
def test_clipped_parts_are_not_read(level: int) -> None:
    """Most of the picture is black or white, where half of the noise is cut off."""
    bands = np.repeat([0.0, 0.4, 1.0, 0.6, 0.0, 1.0, 0.0, 1.0], 32)[:, None].repeat(256, 1)
    image = torch.from_numpy(bands + np.random.default_rng(0).normal(0, level / 255, bands.shape)).float()
    assert estimate_sigma(in_8_bits(image)) == pytest.approx(level / 255, rel=0.05)


@pytest.mark.parametrize("padding", [0.0, 0.3])
def test_padding_is_not_read(padding: float) -> None:
    image = torch.full((400, 500), padding)
    image[72:328, 122:378] = in_8_bits(noisy("camera", 10 / 255, 0))
    assert estimate_sigma(image) == pytest.approx(10 / 255, rel=0.05)


@pytest.mark.parametrize("shape", [(8, 8), (9, 40), (33, 64), (200, 151)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_alone(shape: tuple[int, int], dtype: torch.dtype) -> None:
    found = []
    for seed in range(8):
        noise = np.random.default_rng(seed).normal(0.5, 0.1, shape)
        found.append(estimate_sigma(torch.from_numpy(noise).to(dtype)))
    assert np.mean(found) == pytest.approx(0.1, rel=0.1)


def test_clean_pictures_have_next_to_none() -> None:
    rows, cols = np.mgrid[:128, :160]
    smooth = 0.5 + 0.3 * np.sin(rows / 17) * np.cos(cols / 23)
    edges = 0.2 + 0.6 * ((rows // 40 + cols // 40) % 2)
    discs = 0.1 * sum(np.hypot(rows - 64, cols - 80) < radius for radius in (20, 33, 47, 61))
    for clean in (smooth, edges, discs, np.full((64, 64), 0.5)):
        assert estimate_sigma(torch.from_numpy(clean).float()) < 0.2 / 255


@pytest.mark.parametrize("name", CROPS)
def test_photographs_as_they_are_have_little(name: str) -> None:
    assert estimate_sigma(noisy(name, 0, 0)) < (5 if name in TEXTURES else 1.5) / 255


def test_scale_and_offset() -> None:
    image = noisy("camera", 0.1, 0).double()
    assert estimate_sigma(3 * image + 2) == pytest.approx(3 * estimate_sigma(image), rel=1e-6)


def test_images_smaller_than_a_patch_have_none() -> None:
    assert estimate_sigma(torch.rand(7, 20)) == 0


def test_large_images_are_sampled() -> None:
    noise = 0.5 + 0.1 * torch.randn(1100, 4000, generator=torch.Generator().manual_seed(0))
    assert estimate_sigma(noise) == pytest.approx(0.1, rel=0.01)
    assert estimate_sigma(noise) == estimate_sigma(noise)


def with_poisson_noise(clean: np.ndarray, gain: float, variance: float) -> torch.Tensor:
    rng = np.random.default_rng(0)
    signal = gain * rng.poisson(clean / gain) if gain else clean
    return torch.from_numpy(signal + np.sqrt(variance) * rng.standard_normal(clean.shape)).float()


LINES = [(1 / 30, 0), (1 / 30, 1.5e-3), (1 / 100, 4e-4), (1 / 300, 1e-3), (0, 3.5e-3)]


@pytest.mark.parametrize("name", ["camera", "coins", "brick", "moon"])
@pytest.mark.parametrize(("gain", "variance"), LINES)
@pytest.mark.parametrize("finish", [lambda image: image, in_8_bits], ids=["float", "8-bit"])
def test_noise_that_grows_with_brightness(name: str, gain: float, variance: float, finish: Callable) -> None:
    """What counts is σ at the brightnesses that the picture has. The worst are the coins: all that is bright there has
    texture, which passes for noise that grows."""
    clean = getattr(skimage.data, name)()[CROPS[name]] / 255
    a, b = estimate_poisson_gaussian(finish(with_poisson_noise(clean, gain, variance)))
    assert a >= 0
    assert b >= 0
    x = np.quantile(clean, [0.1, 0.5, 0.9]).clip(0.05)
    np.testing.assert_allclose(np.sqrt(a * x + b), np.sqrt(gain * x + variance), rtol=0.13)


@pytest.mark.parametrize(("gain", "variance"), LINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gain_and_variance_themselves(gain: float, variance: float, dtype: torch.dtype) -> None:
    ramp = np.linspace(0.02, 1, 512)[None].repeat(400, 0)
    a, b = estimate_poisson_gaussian(with_poisson_noise(ramp, gain, variance).to(dtype))
    assert a == pytest.approx(gain, rel=0.05, abs=2e-4)
    assert b == pytest.approx(variance, rel=0.1, abs=0.01 * gain)


def test_images_that_tell_of_one_brightness_or_none() -> None:
    assert estimate_poisson_gaussian(torch.full((64, 64), 0.5)) == (0, 0)
    assert estimate_poisson_gaussian(torch.rand(7, 20)) == (0, 0)
    small = 0.5 + 0.1 * torch.randn(10, 10, generator=torch.Generator().manual_seed(0))
    assert estimate_poisson_gaussian(small) == (0, estimate_sigma(small) ** 2)


def test_a_hot_pixel_on_a_blank_frame_is_no_noise() -> None:
    blank = torch.full((128, 128), 0.1)
    blank[40, 40] = 0.9
    assert estimate_sigma(blank) == 0
    framed = torch.full((400, 400), 0.1)  # but a picture in a wide frame of one colour has noise of its own
    framed[100:220, 100:220] += 0.05 * torch.randn(120, 120, generator=torch.Generator().manual_seed(0))
    assert estimate_sigma(framed) == pytest.approx(0.05, rel=0.05)


def test_few_photons_are_not_taken_for_padding() -> None:
    """Rows of zeros are what the dark looks like then."""
    rng = np.random.default_rng(0)
    light = 0.1 * (0.2 + 8 * skimage.data.camera()[100:228, 100:228] / 255)
    light[:, :64] = 0.02
    gains = [estimate_poisson_gaussian(torch.from_numpy(rng.poisson(light) / 20.0))[0] * 20 for _ in range(5)]
    assert np.median(gains) > 0.5


def test_images_of_any_dtype_and_axis() -> None:
    rng = np.random.default_rng(0)
    image = (120 + rng.normal(0, [5, 10, 20], (96, 80, 3))).round().clip(0, 255).astype(np.uint8)
    found = estimate_sigma(image, channel_axis=-1)
    np.testing.assert_allclose(found, [5, 10, 20], rtol=0.06)
    assert estimate_sigma(np.moveaxis(image, -1, 0), channel_axis=0) == found
    assert estimate_sigma(torch.from_numpy(image), channel_axis=2) == found
    assert estimate_sigma(image[..., 1]) == found[1]
    assert estimate_sigma(10.0 * image[..., 1].astype(np.float32)) == pytest.approx(10 * found[1])


@pytest.mark.parametrize(
    ("image", "settings", "named"),
    [
        (np.zeros((8, 8, 3)), {}, "image must have 2 dimensions with channel_axis=None"),
        (np.zeros((8, 8)), {"channel_axis": -1}, "image must have 3 dimensions"),
        (np.zeros((8, 8, 3)), {"channel_axis": 3}, "channel_axis must name one"),
        (np.full((8, 8), np.nan), {}, "image must hold finite real numbers"),
        (np.zeros((8, 8), complex), {}, "image must hold finite real numbers"),
    ],
)
def test_what_has_no_noise_level_is_refused(image: np.ndarray, settings: dict[str, int], named: str) -> None:
    with pytest.raises(InputError, match=named):
        estimate_sigma(image, **settings)
