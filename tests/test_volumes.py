"""Volumes in, volumes out: kinds of arrays, planes as planes, blocks as the whole, and words for what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve

import slir
from slir.errors import InputError
from slir.estimator.volume import cut_volume, restore_blocks, restore_volume
from slir.kernel.shipped import shipped_kernel
from slir.operators import VolumeBlur
from slir.solvers.nonnegative import Variance
from slir.volumes import variance_of

pytestmark = pytest.mark.usefixtures("one_thread")

PSF = slir.psf.gaussian_volume((1.6, 1.2, 1.2), size=(7, 7, 7))


def beads(*shape: int) -> np.ndarray:
    """Balls of light in the dark."""
    rng = np.random.default_rng(0)
    grid = np.indices(shape)
    x = np.zeros(shape)
    for _ in range(8):
        place = [rng.uniform(0, side) for side in shape]
        away = np.sqrt(sum((axis - at) ** 2 for axis, at in zip(grid, place)))
        x = np.maximum(x, rng.uniform(0.4, 1) * np.clip(3 - away, 0, 1))
    return x


def blurred(photons: float = 200.0, shape: tuple[int, ...] = (8, 18, 20)) -> tuple[np.ndarray, np.ndarray]:
    """Truth and y, in photons."""
    x = beads(*(side + own - 1 for side, own in zip(shape, PSF.shape)))
    light = fftconvolve(x, PSF, "valid").clip(0)
    gain = photons / light.max()
    y = np.random.default_rng(1).poisson(gain * light).astype(np.float64)
    return gain * x[3:-3, 3:-3, 3:-3], y


@pytest.fixture(scope="module")
def restored() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = blurred()
    return x, y, slir.deblur(y, PSF, sigma="poisson")


def error(found: Any, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((np.asarray(found) - truth) ** 2)))


def test_a_deblurred_volume_is_closer_to_the_truth_and_nowhere_negative(restored) -> None:
    x, y, found = restored
    assert found.shape == y.shape
    assert found.dtype == y.dtype
    assert found.min() >= 0
    assert error(found, x) < 0.6 * error(y, x)


def test_kinds_of_arrays_come_back(restored) -> None:
    _, y, found = restored
    as_integers = slir.deblur(y.astype(np.uint16), PSF, sigma="poisson")
    assert as_integers.dtype == np.uint16
    np.testing.assert_allclose(as_integers, found, atol=0.51)
    offset = slir.deblur((y + 100).astype(np.uint16), PSF, sigma="poisson", data_range=(100, 65535))
    np.testing.assert_allclose(offset, found + 100, atol=0.51)
    as_tensor = slir.deblur(torch.from_numpy(y).float(), PSF, sigma="poisson")
    assert isinstance(as_tensor, torch.Tensor)
    np.testing.assert_allclose(as_tensor.numpy(), found, rtol=1e-4, atol=1e-3)


def test_the_unit_of_the_values_changes_nothing(restored) -> None:
    """Photons, or a camera that turns each of them into seven counts."""
    _, y, found = restored
    variance = Variance(7.0, 0.0)
    operator, network = VolumeBlur(PSF, len(y)), shipped_kernel().network
    counts = restore_volume(torch.from_numpy(7 * y).float(), operator, network, variance)
    np.testing.assert_allclose(counts.x.numpy() / 7, found, rtol=1e-3, atol=1e-2)


def test_restore_with_a_blur_of_volumes_is_deblurring() -> None:
    _, y = blurred()
    found = slir.restore(y, VolumeBlur(PSF, len(y), (2, 1, 1)), sigma=4.0, data_range=250)
    np.testing.assert_array_equal(found, slir.deblur(y, PSF, sigma=4.0, voxel_size=(2, 1, 1)))


def test_channels_are_volumes_of_their_own(restored) -> None:
    _, y, found = restored
    both = slir.deblur(np.stack([y, 2 * y], -1), PSF, sigma="poisson", channel_axis=-1)
    np.testing.assert_allclose(both[..., 0], found, atol=1e-5)


def test_info_says_what_was_measured_and_that_errors_are_not_for_volumes(restored) -> None:
    _, y, found = restored
    seen: list[np.ndarray] = []
    told: list[int] = []
    asked: dict[str, Any] = {"observe": seen.append, "progress": lambda done, total, what: told.append(done)}
    result = slir.deblur(y, PSF, sigma="poisson", return_info=True, **asked)
    np.testing.assert_array_equal(result.image, found)
    assert result.stats["residual"] == pytest.approx(result.stats["sigma"], rel=0.5)
    assert result.error_map is None
    assert "not for volumes" in result.calibrated
    assert len(seen) == len(result.stats["stages"])
    assert told == sorted(told)
    np.testing.assert_array_equal(seen[-1], found)


def test_a_psf_of_one_plane_gives_the_result_of_planes() -> None:
    _, y = blurred()
    plane = PSF.sum(0)
    asked: dict[str, Any] = {"sigma": 4.0, "data_range": 250.0}
    found = slir.deblur(y[:2], plane[None], **asked)
    expected = np.stack([slir.deblur(own, plane, **asked) for own in y[:2]])
    np.testing.assert_allclose(found, expected, atol=1e-5 * 250)


def test_a_stack_of_one_plane_gives_what_the_plane_gives() -> None:
    _, y = blurred()
    asked: dict[str, Any] = {"sigma": 4.0, "data_range": 250.0}
    found = slir.denoise(y[5:6], axes="ZYX", **asked)
    np.testing.assert_allclose(found[0], slir.denoise(y[5], **asked), atol=1e-5 * 250)
    deblurred = slir.deblur(y[5:6], PSF.sum(0)[None], **asked)
    np.testing.assert_allclose(deblurred[0], slir.deblur(y[5], PSF.sum(0), **asked), atol=1e-5 * 250)


@pytest.mark.parametrize("sigma", ["poisson", 6.0])
def test_a_denoised_volume_is_better_than_its_planes(sigma: str | float) -> None:
    x = fftconvolve(beads(18, 38, 38), PSF, "valid").clip(0)
    truth = 60 * x / x.max()
    rng = np.random.default_rng(2)
    y = rng.poisson(truth).astype(float) if sigma != 6.0 else truth + rng.normal(0, 6, truth.shape)
    found = slir.denoise(y, sigma=sigma, axes="ZYX")
    middle = slice(5, 8)
    kind = sigma if sigma == 6.0 else "poisson-gaussian"
    planes = np.stack([slir.denoise(plane, sigma=kind, data_range=60.0) for plane in y[middle]])
    assert error(found[middle], truth[middle]) < 0.9 * error(planes, truth[middle])
    half = slir.denoise(y, sigma=sigma, axes="ZYX", strength=0.5)
    np.testing.assert_allclose(half, (y + found) / 2, atol=1e-3)


def test_the_noise_of_photons_is_estimated() -> None:
    x = fftconvolve(beads(26, 76, 74), PSF, "valid").clip(0)
    y = 3.0 * np.random.default_rng(0).poisson(50 * x / x.max() + 5) + np.random.default_rng(1).normal(0, 2, x.shape)
    found = variance_of(torch.from_numpy(y), "auto")
    for brightness in (20.0, 80.0):
        assert found.gain * brightness + found.offset == pytest.approx(3 * brightness + 4, rel=0.25)


def test_blocks_agree_with_the_whole() -> None:
    _, y = blurred(shape=(9, 120, 16))
    volume = torch.from_numpy(y).float()
    operator, network = VolumeBlur(PSF, len(y)), shipped_kernel().network
    whole = restore_blocks(volume, operator, network, Variance(1.0, 0.0), room=1e9)
    parts = restore_blocks(volume, operator, network, Variance(1.0, 0.0), room=32_000)
    blocks = list(cut_volume(tuple(y.shape), operator, 32_000))
    assert len(blocks) > 1
    assert float((whole.x - parts.x).abs().max()) < 1e-3 * float(whole.x.max())
    assert parts.residual == pytest.approx(whole.residual, rel=0.1)


@pytest.mark.parametrize("shape", [(24, 64, 40), (5, 300, 200), (100, 20, 16)])
def test_blocks_tile_the_volume_and_stay_small(shape: tuple) -> None:
    operator, room = VolumeBlur(PSF, shape[0]), 150_000
    count = np.zeros(shape, int)
    for own, seen in cut_volume(shape, operator, room):
        count[own] += 1
        assert all(a.start >= b.start and a.stop <= b.stop for a, b in zip(own, seen))
        assert np.prod([axis.stop - axis.start + 6 for axis in seen]) <= room
    assert (count == 1).all()


def deblur(y: np.ndarray, psf: np.ndarray = PSF, **settings: Any) -> Any:
    return slir.deblur(y, psf, **{"sigma": "poisson", **settings})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: deblur(np.ones((20, 30))), r"image must have the axes \(Z, Y, X\)"),
        (lambda: deblur(np.ones((20, 30, 8))), "image must have at least 16 voxels along x"),
        (lambda: deblur(np.ones((5, 30, 30))), "psf must be no larger than the volume along z, 5, but it is 7"),
        (lambda: deblur(np.ones((9, 30, 30)), PSF * 2), "psf must sum to one"),
        (lambda: deblur(np.ones((9, 30, 30)), sigma="loud"), "sigma must be 'auto', 'poisson'"),
        (lambda: deblur(np.ones((9, 30, 30)), voxel_size=(1, 2)), "voxel_size must be three positive numbers"),
        (lambda: deblur(np.ones((9, 30, 30)), border="reflect"), "border must be 'unknown' for a PSF of three axes"),
        (lambda: deblur(np.full((9, 30, 30), np.nan)), "image must be finite"),
        (lambda: slir.denoise(np.ones((9, 30, 30)), axes="XYZ"), "axes must be 'YX' for planes or 'ZYX' for volumes"),
        (lambda: slir.denoise(np.ones((30, 30)), axes="ZYX"), r"image must have the axes \(Z, Y, X\)"),
        (lambda: slir.denoise(np.ones((30, 30)), sigma="poisson", data_range=1), "sigma must be auto, a number"),
    ],
)
def test_what_cannot_be_is_said_in_words(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_an_even_volume_stays_even() -> None:
    for level in (0.0, 40.0):
        found = deblur(np.full((9, 24, 24), level))
        np.testing.assert_allclose(found, level, atol=0.05 * level + 1e-6)
