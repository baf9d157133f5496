"""A PSF that is wrong: found in the spectrum of y, counted as noise, and never made into a result worse than y."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve

import slir
from slir import psf as psfs
from slir.errors import SlirWarning
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Identity
from slir.trust.evidence import BLOCK, Evidence, liveliest
from slir.trust.psf_error import KEPT, PsfError, partial_blur, psf_error

SHAKE = psfs.camera_shake(14, 3, softness=0.3, centre="light")
GUESSES = {"motion": psfs.motion(9, 45), "gaussian": psfs.gaussian(2), "defocus": psfs.defocus(3)}


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    """What a picture blurred by SHAKE shows."""
    rows, cols = (side // 2 for side in SHAKE.shape)
    return demo_picture().astype(np.float64).mean(-1)[rows:-rows, cols:-cols]


@pytest.fixture(scope="module")
def shaken() -> np.ndarray:
    clean = demo_picture().astype(np.float64).mean(-1)
    y = fftconvolve(clean, SHAKE, mode="valid")
    return (y + 0.5 * np.random.default_rng(0).standard_normal(y.shape)).round().clip(0, 255).astype(np.uint8)


def error(image: np.ndarray, truth: np.ndarray) -> float:
    """Root mean square, away from the border."""
    return float(np.sqrt(np.square(image.astype(np.float64) - truth)[16:-16, 16:-16].mean()))


def found(y: np.ndarray, psf: np.ndarray) -> PsfError:
    seen = psf_error(torch.from_numpy(y / 255), torch.from_numpy(psf))
    assert seen is not None
    return seen


def test_the_true_psf_is_not_suspected(shaken: np.ndarray) -> None:
    assert not found(shaken, SHAKE).significant
    result = slir.deblur(shaken, SHAKE, sigma=1, return_info="stats")
    assert result.stats["forward"]["psf_error"] is None
    assert result.stats["sigma"] == pytest.approx(1)


def test_an_error_is_measured(shaken: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    powers = []
    for size in (0.03, 0.1, 0.3):
        off = (SHAKE + size * SHAKE.max() * rng.standard_normal(SHAKE.shape)).clip(0)
        powers.append(found(shaken, off / off.sum()).power)
    assert powers == sorted(powers)
    assert powers[-1] > 10 * powers[0]


def test_noise_that_is_not_white_is_no_evidence_below_sigma() -> None:
    """Denoising leaves little power beyond the frequencies that a lens transmits, but falling with the frequency."""
    lens = psfs.airy_from_aperture(1.4, wavelength=520, pixel_size=65)
    clean = fftconvolve(demo_picture().astype(np.float64).mean(-1), lens, mode="valid")
    noisy = clean + 12 * np.random.default_rng(0).standard_normal(clean.shape)
    y = torch.from_numpy(np.asarray(slir.denoise(noisy, sigma=12, data_range=255)) / 255)
    white, coloured = (psf_error(y, torch.from_numpy(lens), sigma) for sigma in (0.0, 4 / 255))
    assert white is not None
    assert white.significant
    assert coloured is not None
    assert not coloured.significant


@pytest.mark.parametrize("name", GUESSES)
@pytest.mark.parametrize("sigma", ["auto", 0.5])
def test_a_guess_gives_nothing_worse_than_came(
    name: str, sigma: float | str, shaken: np.ndarray, truth: np.ndarray
) -> None:
    with pytest.warns(SlirWarning, match="The PSF") as told:
        result = slir.deblur(shaken, GUESSES[name], sigma=sigma, return_info=True)
    assert len([each for each in told if "PSF" in str(each.message)]) == 1
    assert error(result.image, truth) < 1.02 * error(shaken, truth)
    assert not result.stats["forward"]["right"]
    assert result.stats["forward"]["psf_error"] > 0
    assert "PSF" in result.calibrated


def test_a_psf_that_is_nearly_right_counts_as_noise(shaken: np.ndarray, truth: np.ndarray) -> None:
    off = SHAKE + 0.05 * SHAKE.max() * np.abs(np.random.default_rng(2).standard_normal(SHAKE.shape))
    off /= off.sum()
    with pytest.warns(SlirWarning, match="acts like noise of"):
        result = slir.deblur(shaken, off, return_info="stats")
    assert result.stats["sigma"] > 1.5 * 0.5
    assert error(result.image, truth) < 0.8 * error(shaken, truth)


def test_levels() -> None:
    near = Evidence(PsfError(0.01, 0.02, 0.2, 1000.0, 0.0))
    assert near.sigma(0.01, estimated=True) == pytest.approx(np.hypot(0.01, 0.02))
    assert near.sigma(0.01, estimated=False) == 0.02
    assert near.sigma(0.03, estimated=False) == 0.03  # meant to include it
    wrong = Evidence(PsfError(0.5, 0.2, 0.2, 1000.0, 0.0))
    assert wrong.sigma(0.01, estimated=True) == 0.01
    blur = Blur(SHAKE)
    assert near.operator(blur) is blur
    assert wrong.operator(blur) is partial_blur(blur)
    identity = Identity()
    assert wrong.operator(identity) is identity


def test_partial_blurs_stay_where_the_psf_is() -> None:
    psf = np.zeros((5, 8))
    psf[1, 5:7] = 0.5
    mixed = partial_blur(Blur(psf, "circular"))
    assert mixed.border == "circular"
    assert float(mixed.psf.sum()) == pytest.approx(1)
    assert float(mixed.psf[1].max()) == pytest.approx(1 - KEPT + KEPT / 2)


def test_small_or_empty_images_show_nothing() -> None:
    psf = torch.from_numpy(SHAKE)
    assert psf_error(torch.rand(40, 40), psf) is None
    assert psf_error(torch.zeros(200, 200), psf) is None


def test_of_a_large_plane_the_liveliest_block_is_seen() -> None:
    plane = torch.zeros(3 * BLOCK, 2 * BLOCK + 100)
    plane[BLOCK : 2 * BLOCK, :BLOCK] = torch.rand(BLOCK, BLOCK)
    torch.testing.assert_close(liveliest(plane), plane[BLOCK : 2 * BLOCK, :BLOCK])
    assert liveliest(plane[:, :300]).shape == (BLOCK, 300)
