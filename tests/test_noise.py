"""σ of white noise, read off pictures that have it."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
import skimage.restoration
import torch

from slir.noise import estimate_sigma

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


TEXTURES = ("grass", "gravel")  # they have no flat part at all, and their grain passes for noise of about 4 of 255


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("level", [5, 15, 25, 50])
def test_white_noise_on_pictures(name: str, level: int) -> None:
    for seed in range(2):
        image = noisy(name, level / 255, seed)
        found = estimate_sigma(image)
        if name in TEXTURES and level == 5:  # too much, but less so than a wavelet's median says
            assert 0.85 * level / 255 < found < 1.6 * level / 255
            assert found < skimage.restoration.estimate_sigma(image.numpy())
        else:
            assert found == pytest.approx(level / 255, rel=0.15)


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
    for clean in (smooth, edges, np.full((64, 64), 0.5)):
        assert estimate_sigma(torch.from_numpy(clean).float()) < 0.2 / 255


def test_scale_and_offset() -> None:
    image = noisy("camera", 0.1, 0).double()
    assert estimate_sigma(3 * image + 2) == pytest.approx(3 * estimate_sigma(image), rel=1e-6)


def test_images_smaller_than_a_patch_have_none() -> None:
    assert estimate_sigma(torch.rand(7, 20)) == 0
