"""Colours restored together: when, and what it is worth."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
import torch

import slir
from slir import psf
from slir.preprocessing import colour

pytestmark = pytest.mark.usefixtures("one_thread")


def picture(name: str = "astronaut", side: int = 96) -> np.ndarray:
    whole = getattr(skimage.data, name)()
    return whole[20 : 20 + side, 180 : 180 + side]


def planes(image: np.ndarray) -> list[torch.Tensor]:
    return [torch.from_numpy(image[..., c] / 255).float() for c in range(image.shape[-1])]


def noisy(image: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    return image + sigma * np.random.default_rng(seed).standard_normal(image.shape)


def psnr(found: np.ndarray, clean: np.ndarray) -> float:
    return -10 * np.log10(np.mean((np.clip(found, 0, 255) - clean) ** 2) / 255**2)


def one_by_one(restore, image: np.ndarray) -> np.ndarray:
    return np.stack([restore(image[..., c]) for c in range(image.shape[-1])], -1)


def test_colours_are_told_from_pictures_of_their_own() -> None:
    for name in ("astronaut", "coffee", "chelsea"):
        clean = picture(name)
        for sigma in (0.0, 10.0, 50.0):
            assert colour.alike(planes(noisy(clean, sigma)), [sigma / 255] * 3)
    crops = [skimage.data.camera()[start : start + 96, 100:196] for start in (100, 220, 400)]
    unrelated = np.stack(crops, -1)
    assert not colour.alike(planes(unrelated), [0.0] * 3)
    assert not colour.alike(planes(noisy(unrelated, 10)), [10 / 255] * 3)
    assert not colour.alike(planes(unrelated), [10 / 255] * 3)  # told of noise that is not there


def test_noisy_colours_are_better_restored_together() -> None:
    clean = picture().astype(np.float64)
    y = noisy(clean, 25)
    together = slir.denoise(y, sigma=25, data_range=255, channel_axis=-1)
    alone = one_by_one(lambda plane: slir.denoise(plane, sigma=25, data_range=255), y)
    assert psnr(together, clean) > psnr(alone, clean) + 0.5


def test_blurred_colours_are_better_restored_together() -> None:
    kernel = psf.gaussian(1.2)
    clean = picture().astype(np.float64)
    operator = slir.operators.Blur(kernel, "reflect")
    blurred = np.stack([operator.forward(torch.from_numpy(clean[..., c])).numpy() for c in range(3)], -1)
    y = noisy(blurred, 5)
    settings = {"sigma": 5, "border": "reflect", "data_range": 255}
    together = slir.deblur(y, kernel, channel_axis=-1, **settings)
    alone = one_by_one(lambda plane: slir.deblur(plane, kernel, **settings), y)
    assert psnr(together, clean) > psnr(alone, clean) + 0.2


def test_pictures_of_their_own_stay_apart() -> None:
    """Dyes in a microscope, say: nothing of one channel may show in another."""
    image = np.stack([skimage.data.camera()[start : start + 64, 100:164] for start in (100, 220, 400)], -1)
    together = slir.denoise(image, sigma=10, channel_axis=-1)
    np.testing.assert_array_equal(together, one_by_one(lambda plane: slir.denoise(plane, sigma=10), image))


def test_grey_in_three_channels_stays_grey() -> None:
    grey = noisy(picture()[..., 0].astype(np.float64), 10)
    found = slir.denoise(np.stack([grey] * 3, -1), sigma=10, data_range=255, channel_axis=-1)
    np.testing.assert_allclose(found[..., 0], found[..., 1], atol=1e-3)
    np.testing.assert_allclose(found[..., 0], found[..., 2], atol=1e-3)


def test_a_fourth_channel_is_restored_by_itself() -> None:
    rgba = np.concatenate([picture(side=64), skimage.data.camera()[:64, :64, None]], -1)
    rgba = np.clip(noisy(rgba, 8), 0, 255).astype(np.uint8)
    result = slir.denoise(rgba, sigma=8, channel_axis=-1, return_info=True)
    np.testing.assert_array_equal(result.image[..., :3], slir.denoise(rgba[..., :3], sigma=8, channel_axis=-1))
    np.testing.assert_array_equal(result.image[..., 3], slir.denoise(rgba[..., 3], sigma=8))
    assert len(result.stats["residual"]) == len(result.stats["sigma"]) == 4
    assert result.stats["residual"][:3] == pytest.approx([8] * 3, rel=0.3)


def test_channels_may_come_first() -> None:
    image = picture(side=64)
    last = slir.denoise(image, sigma=8, channel_axis=-1)
    first = slir.denoise(np.moveaxis(image, -1, 0), sigma=8, channel_axis=0)
    np.testing.assert_array_equal(np.moveaxis(first, 0, -1), last)
