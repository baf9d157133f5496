"""Where denoising keeps to y: against a loop over pixels, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage import data

import slir
from slir.estimator.loop import AROUND, CHI2_THRESHOLD, residual_correction, restore
from slir.estimator.state import State
from slir.kernel.shipped import default_model
from slir.operators import Identity

pytestmark = pytest.mark.usefixtures("one_thread")


def state(y: np.ndarray, x: np.ndarray, sigma: float) -> State:
    return State(torch.from_numpy(y), Identity(), torch.from_numpy(x), torch.from_numpy(x), sigma)


def test_it_is_the_x_update_with_the_error_that_y_shows() -> None:
    """argmin_u (y − u)²/σ² + (u − x)²/(Lσ²), with L from a loop over mirrored squares."""
    rng = np.random.default_rng(0)
    x, sigma = rng.random((15, 12)), 0.1
    y = x + sigma * rng.standard_normal(x.shape)
    y[6, 4] += 2.0
    padded = np.pad((y - x) ** 2, AROUND, mode="reflect")
    side, expected = 2 * AROUND + 1, np.empty_like(x)
    for row, col in np.ndindex(x.shape):
        excess = padded[row : row + side, col : col + side].mean() / sigma**2 - CHI2_THRESHOLD
        expected[row, col] = x[row, col]
        if excess > 0:
            weights = 1 / sigma**2, 1 / (excess * sigma**2)
            expected[row, col] = np.average([y[row, col], x[row, col]], weights=weights)
    found = residual_correction(state(y, x, sigma)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    far = np.abs(np.arange(15)[:, None] - 6) > AROUND
    assert (found == x)[np.broadcast_to(far, x.shape)].mean() > 0.9  # noise alone is hardly ever too much


def test_photographs_are_hardly_touched() -> None:
    clean = torch.from_numpy(data.camera()[100:196, 180:276] / 255.0).float()
    sigma = 25 / 255
    y = clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    denoised = restore(y, Identity(), default_model(Identity()), sigma=sigma).x
    again = residual_correction(State(y, Identity(), denoised, denoised, sigma))
    assert float((again != denoised).double().mean()) < 0.02


@pytest.mark.filterwarnings("ignore:The image is noisier")  # the drawing leaves no flat place to tell from
@pytest.mark.parametrize("kind", ["stars", "drawing"])
def test_denoising_does_not_spoil_what_noise_hardly_touches(kind: str) -> None:
    """Edges of thousands of σ: what is left over is no more than noise, and the error about that of y at most."""
    rng = np.random.default_rng(0)
    rows, cols = np.mgrid[:96, :96]
    clean = np.full((96, 96), 0.1)
    if kind == "stars":
        for row, col in ((20, 20), (50, 70), (80, 30), (30, 60)):
            clean += 0.8 * np.exp(-((rows - row) ** 2 + (cols - col) ** 2) / 2)
    else:
        clean += 0.8 * (np.sin(np.hypot(rows - 40, cols - 50) / 1.5) > 0.3)
    sigma = 2e-4
    y = clean + sigma * rng.standard_normal(clean.shape)
    found = slir.denoise(y, sigma=sigma, data_range=1.0)
    assert np.sqrt(np.mean((found - clean) ** 2)) < 1.2 * sigma
    assert np.sqrt(np.mean((y - found) ** 2)) < 1.2 * sigma


def test_a_channel_without_noise_comes_back() -> None:
    """Beside channels that have noise, its σ of zero divides a residual that may be zero or not."""
    y, x = torch.rand(2, 20, 20), torch.rand(2, 20, 20)
    x[:, :10] = y[:, :10]
    sigma = torch.tensor([0.1, 0.0]).reshape(2, 1, 1)
    found = residual_correction(State(y, Identity(), x, x, sigma))
    torch.testing.assert_close(found[1], y[1], atol=1e-6, rtol=0)
    assert bool(found[0].isfinite().all())
