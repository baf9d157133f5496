"""The generalised Anscombe transform: even noise, and a way back without bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from slir.errors import InputError
from slir.preprocessing.stabilise import Stabiliser

DRAWS = 400_000


def drawn(x: float, gain: float, variance: float, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    signal = gain * rng.poisson(x / gain, DRAWS) if gain else np.full(DRAWS, x)
    return torch.from_numpy(signal + math.sqrt(variance) * rng.standard_normal(DRAWS))


@pytest.mark.parametrize("spread", [0, 0.5, 1.5, 2, 10])  # √b in counts
@pytest.mark.parametrize("counts", [3, 5, 10, 30, 100, 1000])
def test_the_noise_becomes_even(counts: float, spread: float) -> None:
    gain = 1 / 50
    stabiliser = Stabiliser(gain, (spread * gain) ** 2)
    z = stabiliser.forward(drawn(counts * gain, gain, stabiliser.variance))
    assert float(z.std()) == pytest.approx(1, rel=0.05)
    if counts >= 5 or spread <= 0.5:
        assert float(z.var()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("spread", [0, 0.1, 0.5, 2, 10, 60])
@pytest.mark.parametrize("counts", [0.05, 0.3, 1, 2, 4, 10, 40, 63, 66, 300])
def test_the_inverse_is_unbiased(counts: float, spread: float) -> None:
    gain = 1 / 200
    stabiliser = Stabiliser(gain, (spread * gain) ** 2)
    z = stabiliser.forward(drawn(counts * gain, gain, stabiliser.variance))
    found = float(stabiliser.inverse(z.mean())) / gain
    chance = math.sqrt((counts + spread**2) / DRAWS)  # of the mean of as many pixels
    assert found == pytest.approx(counts, rel=0.002, abs=4 * chance)
    if counts > 1 and spread <= 2:
        assert found == pytest.approx(counts, rel=0.01)


def test_the_inverse_is_the_published_one_for_poisson_noise() -> None:
    """Mäkitalo and Foi's closed form (2011), which they give to about 1e-2 of a count."""
    z = torch.linspace(2 * math.sqrt(3 / 8), 60, 1000, dtype=torch.float64)
    root = math.sqrt(3 / 2)
    closed = z**2 / 4 + root / 4 / z - 11 / 8 / z**2 + 5 / 8 * root / z**3 - 1 / 8
    assert float((Stabiliser(1.0, 0.0).inverse(z) - closed).abs().max()) < 0.02


@pytest.mark.parametrize(("gain", "variance"), [(0.01, 1e-4), (0.1, 0), (1e-3, 0.01), (0.0, 0.04), (1e-9, 0.01)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back(gain: float, variance: float, dtype: torch.dtype) -> None:
    """The inverse undoes the mean of f, not f: it is brighter by what the concave f loses, at most 3/8 of a count."""
    stabiliser = Stabiliser(gain, variance)
    x = torch.linspace(0, 2, 1001, dtype=dtype)
    z = stabiliser.forward(x)
    back = stabiliser.inverse(z)
    assert z.dtype == back.dtype == dtype
    assert bool((z.diff() > 0).all())
    assert bool((back.diff() > 0).all())
    assert bool((back - x >= -1e-5).all())
    assert bool((back - x <= 0.376 * gain + 1e-5).all())


@pytest.mark.parametrize("spread", [0, 0.3, 3, 30])
def test_the_inverse_rises_throughout(spread: float) -> None:
    stabiliser = Stabiliser(1.0, spread**2)
    z = torch.linspace(float(stabiliser.forward(torch.tensor(-1e9))), 40, 20001, dtype=torch.float64)
    x = stabiliser.inverse(z)
    assert bool((x.diff() > 0).all())
    assert float(x[0]) >= -(spread**2) - 0.376


def test_white_noise_is_only_scaled() -> None:
    x = torch.linspace(-1, 2, 31).reshape(1, 31)
    stabiliser = Stabiliser(0.0, 0.04)
    torch.testing.assert_close(stabiliser.forward(x), x / 0.2)
    torch.testing.assert_close(stabiliser.inverse(x / 0.2), x)
    nearly = Stabiliser(1e-12, 0.04)
    torch.testing.assert_close(nearly.forward(x), x / 0.2)
    torch.testing.assert_close(nearly.inverse(x / 0.2), x)


def test_poisson_noise_is_anscombes() -> None:
    y = torch.tensor([0.0, 0.1, 0.5, 1.0])
    torch.testing.assert_close(Stabiliser(0.1, 0.0).forward(y), 2 * (y / 0.1 + 3 / 8).sqrt())


def test_pixels_below_the_end_of_the_transform() -> None:
    for stabiliser in (Stabiliser(0.1, 0.0), Stabiliser(0.1, 0.01)):
        z = stabiliser.forward(torch.tensor([-9.0, -5.0, 0.0]))
        assert bool(z.isfinite().all())
        assert z[0] == z[1] < z[2]
        assert bool(stabiliser.inverse(z - 3).isfinite().all())


@pytest.mark.parametrize(
    ("gain", "variance", "argument"),
    [(-1, 0.1, "gain"), (math.nan, 0.1, "gain"), (0.1, -0.1, "variance"), (0.1, math.inf, "variance"), (0, 0, "gain")],
)
def test_bad_arguments(gain: float, variance: float, argument: str) -> None:
    with pytest.raises(InputError, match="must be") as caught:
        Stabiliser(gain, variance)
    assert caught.value.argument == argument
