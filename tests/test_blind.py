"""The PSF of a picture of which nothing else is known."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve

import slir
from slir.errors import InputError
from slir.psf.blind import estimate_psf
from slir.psf.blind.edges import sharp_edges
from slir.psf.blind.kernel import fit_kernel
from slir.psf.blind.part import telling_part, usable_pixels
from slir.psf.blind.scales import Start, search
from slir.psf.blind.softness import estimate_softness
from slir.psf.blind.support import cleaned
from slir.psf.blind.torus import Scene, difference_power, differences, divergence, joined, spectrum
from slir.psf.blind.verdict import similarity


def blocks(seed: int = 0, side: int = 160) -> np.ndarray:
    """A picture of overlapping rectangles in [0, 1]."""
    rng = np.random.default_rng(seed)
    x = np.full((side, side), 0.5)
    for _ in range(60):
        top, left = rng.integers(-8, side, 2)
        tall, wide = rng.integers(6, 40, 2)
        x[max(0, top) : top + tall, max(0, left) : left + wide] = rng.uniform(0.1, 0.9)
    return x


def blurred(x: np.ndarray, psf: np.ndarray, sigma: float = 0.01, seed: int = 0) -> np.ndarray:
    y = fftconvolve(x, psf, mode="valid")
    return np.clip(y + sigma * np.random.default_rng(seed).standard_normal(y.shape), 0, 1)


def everywhere(y: torch.Tensor) -> torch.Tensor:
    return torch.ones(y.shape, dtype=torch.bool)


def test_torus():
    y = torch.rand(20, 30, dtype=torch.float64)
    whole = joined(y, (32, 48))
    assert torch.equal(whole[:20, :30], y)
    down, right = differences(whole).abs()
    assert max(down[20:, :30].max(), right[:20, 30:].max()) < 0.3  # no jump where the borders meet
    g = torch.rand(2, 32, 48, dtype=torch.float64)
    assert torch.allclose((differences(whole) * g).sum(), (whole * divergence(g)).sum())
    power = torch.fft.rfft2(divergence(differences(whole))) / torch.fft.rfft2(whole)
    assert torch.allclose(power.real, difference_power((32, 48)).double(), atol=1e-5)
    centre = torch.zeros(5, 5)
    centre[2, 2] = 1
    assert torch.allclose(spectrum(centre, (32, 48)).real, torch.ones(32, 25))


def test_kernel_step_is_a_non_negative_least_squares():
    """Against the normal equations, solved densely on the support that came out."""
    x = torch.from_numpy(blocks(side=64)).float()
    psf = torch.tensor([[0.0, 0.1, 0.0], [0.2, 0.4, 0.3], [0.0, 0.0, 0.0]])
    y = torch.from_numpy(fftconvolve(x.numpy(), psf.numpy(), mode="same")).float()
    scene = Scene.of(y, everywhere(y), 3)
    k = fit_kernel(scene.placed(x), scene, 3, 1e-3, steps=2000)
    edges, target = differences(scene.placed(x)) * scene.weight, differences(scene.y) * scene.weight
    shifts = [(i - 1, j - 1) for i in range(3) for j in range(3)]
    columns = torch.stack([torch.roll(edges, shift, (1, 2)).flatten() for shift in shifts], 1).double()
    system = columns.T @ columns + 1e-3 * torch.eye(9, dtype=torch.float64)
    moment = columns.T @ target.flatten().double()
    support = k.flatten() > 1e-6
    exact = torch.linalg.solve(system[support][:, support], moment[support])
    assert torch.allclose(k.flatten()[support].double(), exact, atol=1e-4)
    assert (system @ k.flatten().double() - moment)[~support].min() > -1e-2  # no zero wants to be positive
    assert float((k / k.sum() - psf).abs().max()) < 0.03


def test_sharp_edges_are_few():
    y = torch.from_numpy(gaussian_filter(blocks(), 1.0)).float()
    scene = Scene.of(y, everywhere(y), 9)
    x = sharp_edges(scene, torch.from_numpy(slir.psf.gaussian(1.0)).float(), 2e-3)
    steps = [differences(image)[:, :150, :150].abs().sum(0) > 0.02 for image in (scene.y, x)]
    assert int(steps[1].sum()) < int(steps[0].sum()) / 2


def test_cleaned():
    kernel = torch.zeros(11, 11)
    kernel[1:4, 2] = 1.0
    kernel[9, 9] = 0.2  # a speck
    kernel[2, 3] = 0.01  # faint
    out = cleaned(kernel)
    wanted = torch.zeros(11, 11)
    wanted[4:7, 5] = 1 / 3
    assert torch.allclose(out, wanted)
    assert float(cleaned(torch.zeros(5, 5))[2, 2]) == 1


def test_search_finds_a_shake():
    psf = slir.psf.camera_shake(11, 3, centre="light")
    y = torch.from_numpy(blurred(blocks(1, 200), psf)).float()
    found = search(y, everywhere(y), Start(15, 2e-3, 60.0))
    assert similarity(found, torch.from_numpy(psf).float()) > 0.85


def test_similarity():
    a = torch.from_numpy(slir.psf.motion(9, 0)).float()
    assert similarity(a, torch.nn.functional.pad(a, (3, 0, 5, 2))) == pytest.approx(1, abs=1e-4)
    assert similarity(a, torch.from_numpy(slir.psf.motion(9, 90)).float()) < 0.5


@pytest.mark.parametrize("width", [1.0, 2.0])
def test_softness(width):
    """Of a picture whose spectrum falls as that of photographs does."""
    rng = np.random.default_rng(0)
    rows, cols = np.fft.fftfreq(256)[:, None], np.fft.rfftfreq(256)[None]
    fall = 1 / np.maximum(np.hypot(rows, cols), 1 / 256) ** 1.6
    x = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((256, 256))) * fall, (256, 256))
    y = gaussian_filter(0.2 * x / x.std(), width)[8:-8, 8:-8] + 0.01 * rng.standard_normal((240, 240))
    assert estimate_softness(torch.from_numpy(y).float(), 0.01) == pytest.approx(width, rel=0.25)


def test_sharp_picture_is_told():
    assert estimate_psf((255 * blocks(2, 128)).astype(np.uint8)).sharp


def test_part():
    y = torch.full((300, 400), 0.5)
    y[200:260, 280:360] = torch.rand(60, 80)
    rows, cols = telling_part(y, everywhere(y), 128)
    assert rows.start <= 200 < 260 <= rows.stop
    assert cols.start <= 280 < 360 <= cols.stop
    y[:100] = 1.0
    usable = usable_pixels(y, [y])
    assert not usable[:101].any()
    assert usable[101:].float().mean() > 0.9


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.full((96, 96), 100, np.uint8), "nothing|hardly"),
        (np.full((96, 96), 255, np.uint8), "hardly|clipped"),
        (np.zeros((20, 90), np.uint8), "too small"),
        (np.random.default_rng(0).normal(128, 9, (96, 96)).astype(np.uint8), "noise"),
    ],
)
def test_what_cannot_be_told(image, words):
    estimate = estimate_psf(image)
    assert not estimate.found
    assert estimate.confidence == 0
    assert re.search(words, estimate.words)


def test_arguments():
    image = np.zeros((64, 64), np.uint8)
    for wrong in ({"size": 4}, {"size": 63}, {"kind": "wind"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            estimate_psf(image, **wrong)
    with pytest.raises(InputError, match="sigma"):
        estimate_psf(image, sigma="poisson")
