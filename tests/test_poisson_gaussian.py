"""Noise that grows with brightness, removed where it is even."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.data
import torch

import slir
from slir.errors import InputError
from slir.preprocessing.stabilise import Evened, Stabiliser

pytestmark = pytest.mark.usefixtures("one_thread")


def counted(clean: np.ndarray, peak: float, read: float = 0.0, seed: int = 0) -> np.ndarray:
    """y = Poisson(peak · x)/peak + N(0, read²)."""
    rng = np.random.default_rng(seed)
    return rng.poisson(peak * clean) / peak + read * rng.standard_normal(clean.shape)


def psnr(found: np.ndarray, clean: np.ndarray) -> float:
    return -10 * np.log10(np.mean((np.clip(found, 0, 1) - clean) ** 2))


def camera(side: int = 160) -> np.ndarray:
    return skimage.data.camera()[150 : 150 + side, 150 : 150 + side] / 255


@pytest.mark.filterwarnings("ignore:The noise grows with brightness")
@pytest.mark.parametrize(("peak", "read"), [(30, 0.0), (60, 0.03)])
def test_it_is_better_than_one_sigma_for_all(peak: float, read: float) -> None:
    clean = 0.6 * camera()  # room for what noise adds to white
    y = counted(clean, peak, read)
    result = slir.denoise(y, sigma="poisson-gaussian", data_range=1.0, return_info=True)
    even = slir.denoise(y, sigma="auto", data_range=1.0)
    known = slir.denoise(y, sigma=float(np.sqrt(np.mean(clean / peak + read**2))), data_range=1.0)
    assert psnr(result.image, clean) > max(psnr(even, clean), psnr(known, clean)) + 0.1
    assert result.stats["gain"][0] == pytest.approx(1 / peak, rel=0.3)
    assert result.stats["sigma"] == pytest.approx(np.sqrt(np.mean(clean / peak + read**2)), rel=0.2)
    assert result.stats["residual"] == pytest.approx(result.stats["sigma"], rel=0.2)


def test_brightness_is_kept() -> None:
    """The inverse is unbiased: the mean of what is restored is that of the light."""
    clean = np.repeat(np.linspace(0.1, 0.7, 8), 24)[:, None] * np.ones((1, 192))
    found = slir.denoise(counted(clean, 20), sigma="poisson-gaussian", data_range=1.0)
    for step in range(8):
        rows = slice(24 * step + 6, 24 * step + 18)
        assert found[rows].mean() == pytest.approx(clean[rows].mean(), abs=0.015)


def test_colours_and_integers() -> None:
    clean = skimage.data.astronaut()[:96, 180:276] / 255
    y = np.rint(np.clip(counted(clean, 40), 0, 1) * 65535).astype(np.uint16)
    result = slir.denoise(y, sigma="poisson-gaussian", channel_axis=-1, return_info=True)
    assert result.image.dtype == np.uint16
    assert len(result.stats["gain"]) == len(result.stats["sigma"]) == 3
    assert np.mean(result.stats["gain"]) == pytest.approx(65535 / 40, rel=0.4)
    assert psnr(result.image / 65535, clean) > psnr(y / 65535, clean) + 5


def test_an_evened_plane_keeps_black_and_white() -> None:
    even = Evened(Stabiliser(0.02, 1e-4))
    ends = torch.tensor([0.0, 1.0])
    torch.testing.assert_close(even.forward(ends), ends, atol=1e-6, rtol=0)
    x = torch.full((400, 400), 0.6)
    y = torch.from_numpy(counted(x.double().numpy(), 50, 0.01)).float()
    assert float(even.forward(y).std()) == pytest.approx(even.sigma, rel=0.05)
    assert float(even.inverse(even.forward(y).mean())) == pytest.approx(0.6, rel=0.01)
    assert even.strength(x) == pytest.approx((0.02 * 0.6 + 1e-4) ** 0.5)


def test_it_is_for_denoising_alone() -> None:
    with pytest.raises(InputError, match="auto, a number or a percentage to upsample"):
        slir.upsample(camera(32), 2, sigma="poisson-gaussian", data_range=1.0)
    with pytest.raises(InputError, match="poisson-gaussian"):
        slir.denoise(camera(32), sigma="poisson", data_range=1.0)


def test_without_noise_nothing_happens() -> None:
    flat = np.full((64, 64), 0.5)
    np.testing.assert_allclose(slir.denoise(flat, sigma="poisson-gaussian", data_range=1.0), flat, atol=1e-3)
