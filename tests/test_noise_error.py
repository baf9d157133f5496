"""Noise that is not white or not of one strength: found, and told by the error map."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import slir
from slir.errors import SlirError, SlirWarning
from slir.kernel.shipped import demo_picture
from slir.noise import estimate_sigma
from slir.trust.noise_error import NoiseError, noise_error


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    return demo_picture().astype(np.float64).mean(-1)


def eight_bits(image: np.ndarray) -> np.ndarray:
    return image.round().clip(0, 255).astype(np.uint8)


def smoothed(clean: np.ndarray, amplitude: float = 15) -> np.ndarray:
    noise = amplitude * np.random.default_rng(0).standard_normal(clean.shape)
    return eight_bits(clean + gaussian_filter(noise, 0.8))


def found(image: np.ndarray) -> NoiseError | None:
    y = torch.from_numpy(image).float() / 255
    sigma = estimate_sigma(y)
    return noise_error(y, sigma, sigma)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values.astype(np.float64)).mean()))


@pytest.mark.parametrize("sigma", [2, 10, 40])
def test_white_noise_is_not_suspected(sigma: float, clean: np.ndarray) -> None:
    assert found(eight_bits(clean + sigma * np.random.default_rng(1).standard_normal(clean.shape))) is None


def test_smoothed_noise(clean: np.ndarray) -> None:
    y = smoothed(clean)
    noise = found(y)
    assert noise is not None
    assert noise.kind == "coloured"
    assert noise.left * 255 == pytest.approx(rms(y - clean), rel=0.4)
    assert estimate_sigma(torch.from_numpy(y).float()) < 0.4 * rms(y - clean)  # what the estimate leaves out


def test_noise_that_grows(clean: np.ndarray) -> None:
    scene = clean * np.linspace(0.05, 1, clean.shape[1])
    y = eight_bits(np.random.default_rng(0).poisson(scene * 0.3) / 0.3)
    noise = found(y)
    assert noise is not None
    assert noise.kind == "growing"
    assert noise.level > 1.5 * noise.sigma
    assert np.hypot(noise.left, noise.sigma) * 255 == pytest.approx(rms(y - scene), rel=0.2)


def white_sigma(y: np.ndarray) -> float:
    """The level of the noise as if it were white, in grey levels."""
    return 255 * estimate_sigma(torch.from_numpy(y).float() / 255)


def test_the_error_map_says_so(clean: np.ndarray) -> None:
    y = smoothed(clean)
    with pytest.warns(SlirWarning, match="The noise is not white") as told:
        result = slir.denoise(y, sigma=white_sigma(y), return_info=True)
    assert len(told) == 1
    assert "the noise is not white" in result.calibrated
    assert "noise" in result.stats["forward"]["faults"]
    assert 0.8 < rms(result.error_map) / rms(result.image - clean) < 1.7
    with pytest.raises(SlirError, match="the noise is not white"):
        result.interval(0.9)


def test_auto_removes_it_and_does_not_warn(clean: np.ndarray) -> None:
    y = smoothed(clean)
    result = slir.denoise(y, return_info=True)
    assert "coarse noise" in result.stats["noise"]
    assert result.stats["forward"] is None  # which would judge noise as if it were white
    assert "not white" in result.calibrated
    assert rms(result.image - clean) < 0.95 * rms(y - clean)


def test_the_sigma_that_is_advised_includes_it(clean: np.ndarray) -> None:
    y = smoothed(clean)
    with pytest.warns(SlirWarning, match="The noise is not white") as told:
        slir.denoise(y, sigma=white_sigma(y))
    advised = re.search(r"sigma=([\d.]+) removes more", str(told[0].message))
    assert advised is not None
    result = slir.denoise(y, sigma=float(advised[1]), return_info=True)
    assert result.calibrated == ""
    assert rms(result.image - clean) < 0.95 * rms(y - clean)
