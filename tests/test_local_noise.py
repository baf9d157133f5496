"""Noise that is not white and even: the network that tells its level, curves by brightness, and denoising with them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

import slir
from slir.estimator.tiling import restore_tiled
from slir.io.models import load_kernel, write_kernel
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.shipped import demo_picture, shipped_kernel, shipped_model
from slir.operators import Identity
from slir.preprocessing.amount import Amount
from slir.preprocessing.local_noise import BINS, NoiseCurve, NoiseFound, find_noise, noise_curve, noise_in_words

COARSE = 9.0
"""Grey levels of the noise that is added here."""


@pytest.fixture(scope="module")
def network() -> NoiseNetwork:
    torch.manual_seed(0)
    return NoiseNetwork((8, 12, 16)).eval()


def coarse_noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Noise whose neighbours agree, as demosaicking leaves it; standard deviation 1."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    noise = gaussian_filter(noise, (0.9, 0.9, 0.4)[: noise.ndim])
    return noise / noise.std()


@pytest.fixture(scope="module")
def photograph() -> np.ndarray:
    """(256, 256, 3), uint8, with coarse noise."""
    clean = demo_picture()
    return (clean + COARSE * coarse_noise(clean.shape)).round().clip(0, 255).astype(np.uint8)


def psnr(image: np.ndarray, clean: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.square(image.astype(float) - clean).mean()))


# --- the network ---


@pytest.mark.parametrize("channels", [1, 3])
def test_levels_are_homogeneous_and_positive(network: NoiseNetwork, channels: int) -> None:
    y = torch.rand(2, channels, 48, 64, generator=torch.Generator().manual_seed(1))
    level = network(y)
    assert level.shape == (2, channels, 6, 8)
    assert bool((level > 0).all())
    torch.testing.assert_close(network(100 * y), 100 * level, rtol=1e-4, atol=1e-6)


def test_pictures_of_any_size_have_levels_for_all_their_squares(network: NoiseNetwork) -> None:
    assert network.cells(torch.rand(3, 45, 61)).shape == (3, 6, 8)


def test_kernel_files_hold_the_network(network: NoiseNetwork, tmp_path: Path) -> None:
    write_kernel(tmp_path / "kernel.safetensors", replace(shipped_kernel(), noise=network))
    read = load_kernel(tmp_path / "kernel.safetensors").noise
    assert read is not None
    y = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(read(y), network(y), rtol=0.02, atol=1e-3)  # half precision


# --- curves ---


def test_a_curve_is_linear_between_its_nodes() -> None:
    curve = NoiseCurve((0.2, 0.4, 0.8), (0.01, 0.05, 0.02))
    for brightness in (0.0, 0.2, 0.3, 0.5, 0.8, 1.0):
        level = curve.at(torch.full((12, 16), brightness))
        expected = np.interp(brightness, curve.brightness, curve.level)
        torch.testing.assert_close(level, torch.full((12, 16), float(expected)))


def test_the_curve_of_a_flat_picture_has_one_node() -> None:
    curve = noise_curve(torch.full((40, 40), 0.5), torch.full((5, 5), 0.03))
    assert curve.brightness == (0.5,)
    assert torch.equal(curve.at(torch.rand(9, 9)), torch.full((9, 9), curve.level[0]))


def test_curves_follow_brightness_and_leave_texture_out() -> None:
    plane = torch.linspace(0, 1, 160).expand(160, 160)
    true = 0.01 + 0.05 * plane
    cells = true.reshape(20, 8, 20, 8).mean((1, 3))
    cells[::3] += 0.2  # every third row of squares holds texture
    curve = noise_curve(plane, cells)
    assert len(curve.level) == BINS
    torch.testing.assert_close(curve.at(plane), true, rtol=0.3, atol=0.006)


# --- pictures ---


def planes_of(picture: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(picture[..., c].astype(np.float32) / 255) for c in range(3)]


def test_coarse_noise_is_found(photograph: np.ndarray) -> None:
    found = find_noise(planes_of(photograph), [0.01] * 3, colours=True)
    assert found is not None
    assert 255 * np.mean(found.levels) == pytest.approx(COARSE, rel=0.45)


def test_white_noise_is_taken_for_what_it_is() -> None:
    noisy = demo_picture() + 20 * np.random.default_rng(0).standard_normal((256, 256, 3))
    assert find_noise(planes_of(noisy), [20 / 255] * 3, colours=True) is None


@pytest.mark.filterwarnings("ignore::slir.SlirWarning")  # a white level does not fit this noise
def test_coarse_noise_is_removed_with_nothing_told(photograph: np.ndarray) -> None:
    result = slir.denoise(photograph, channel_axis=-1, return_info=True)
    came = psnr(photograph, demo_picture())
    assert psnr(result.image, demo_picture()) > came + 1.5
    assert "noise of about" in result.stats["noise"]
    white = slir.noise.estimate_sigma(planes_of(photograph)[1]) * 255
    assert psnr(result.image, demo_picture()) > psnr(
        slir.denoise(photograph, sigma=white, channel_axis=-1), demo_picture()
    )


def test_words_tell_where_the_noise_is() -> None:
    rising, even = NoiseCurve((0.1, 0.5, 0.9), (0.01, 0.03, 0.05)), NoiseCurve((0.1, 0.9), (0.02, 0.02))
    falling = NoiseCurve(rising.brightness, rising.level[::-1])
    found = NoiseFound((rising,) * 3, 1.0)
    words = "some noise of about 7.6 grey levels, more in the highlights"
    assert noise_in_words(found.levels, [255] * 3, found) == words
    found = NoiseFound((falling,), 3.0)
    words = "some coarse noise of about 2000 pixel values, more in the shadows"
    assert noise_in_words(found.levels, [65535], found) == words
    found = NoiseFound((even,), 3.0)
    assert noise_in_words(found.levels, [255], found) == "some coarse noise of about 5.1 grey levels"


def test_words_tell_how_much_white_noise_there_is() -> None:
    noises = {0: "no noise", 0.5: "faint noise", 2.04: "little noise", 25.2: "strong noise"}
    for sigma, words in noises.items():
        level = f" of about {sigma:.2g} grey levels" if sigma else ""
        assert noise_in_words([sigma / 255] * 2, [255, 255]) == words + level
    noisy = (demo_picture()[..., 0] + 20 * np.random.default_rng(0).standard_normal((256, 256))).clip(0, 255)
    picture = noisy.round().astype(np.uint8)
    assert slir.denoise(picture, return_info="stats").stats["noise"].startswith("strong noise of about ")
    assert "noise" not in slir.denoise(picture, sigma=20, return_info="stats").stats


def test_tiles_with_a_curve_agree_with_the_whole(photograph: np.ndarray) -> None:
    curves = tuple(NoiseCurve((0.1, 0.4, 0.9), (0.02, 0.05, 0.03)) for _ in range(3))
    y, sigma = torch.stack(planes_of(np.tile(photograph, (2, 2, 1)))), partial(NoiseFound(curves, 2.0).of, 0)
    whole, tiled = (restore_tiled(y, Identity(), shipped_model("denoise"), sigma=sigma, tile=t).x for t in (4096, 128))
    assert float((whole - tiled).abs().max()) < 1e-4


# --- how much ---


def test_half_of_the_noise_is_kept_where_half_is_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    before, after = torch.rand(2, 3, 12, 16, generator=generator)
    torch.testing.assert_close(Amount.of(0.5, None).blend(before, after), (before + after) / 2)
    assert torch.equal(Amount.of(0, None).blend(before, after), before)
    assert torch.equal(Amount.of(1.5, 1).blend(before, after), after)


def test_noise_of_colours_is_removed_by_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    before, after = torch.rand(2, 3, 12, 16, generator=generator)
    kept = Amount.of(0, 1).blend(before, after)
    torch.testing.assert_close(kept.mean(0), before.mean(0))
    torch.testing.assert_close(kept - kept.mean(0), after - after.mean(0))


@pytest.mark.parametrize(
    ("strength", "chroma", "named"), [(-1, None, "strength"), (1, float("nan"), "chroma"), (4, 1, "strength")]
)
def test_amounts_are_numbers_in_range(strength: float, chroma: float | None, named: str) -> None:
    with pytest.raises(slir.InputError, match=f"{named} must be a number from 0 to 3"):
        Amount.of(strength, chroma)
