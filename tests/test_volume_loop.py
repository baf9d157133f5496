"""The steps of the loop for volumes: against scipy's non-negative least squares, Richardson and Lucy, and planes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from scipy.signal import convolve
from torch import Tensor

from slir.estimator.state import State
from slir.kernel.sections import SECTIONS, denoise_planes, denoise_sections, section_weights
from slir.kernel.shipped import shipped_kernel
from slir.kernel.stage import stages
from slir.operators import Identity, VolumeBlur
from slir.solvers.nonnegative import UNSEEN, Variance, multiply

pytestmark = pytest.mark.usefixtures("one_thread")


def psf(*size: int) -> np.ndarray:
    values = np.random.default_rng(0).random(size) + 0.1
    return values / values.sum()


def light(*shape: int, seed: int = 1) -> Tensor:
    values = np.random.default_rng(seed).random(shape)
    return torch.from_numpy(np.where(values > 0.7, 10 * values, 0))


def matrix(operator: VolumeBlur, shape: tuple[int, ...]) -> np.ndarray:
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).view(-1, *shape)
    return np.stack([operator.forward(unit).numpy().ravel() for unit in units], 1)


def test_many_steps_reach_the_least_squares_of_non_negative_values() -> None:
    operator = VolumeBlur(psf(2, 2, 2), depth=3)
    shape, offset, weight = (4, 4, 4), 0.5, 0.3
    y, z = light(3, 3, 3, seed=2), light(*shape)
    y = y - 3.0  # so that some values would be negative
    start: dict[str, Any] = {"z": z, "weight": weight, "bright": 5.0}
    found = multiply(operator, y, Variance(0.0, offset), torch.ones(shape).double(), 2000, **start, ahead=True)
    rows = np.concatenate([matrix(operator, shape) / offset**0.5, weight**0.5 * np.eye(64)])
    expected, _ = nnls(rows, np.concatenate([y.numpy().ravel() / offset**0.5, weight**0.5 * z.numpy().ravel()]))
    assert (expected == 0).sum() > 5
    np.testing.assert_allclose(found.numpy().ravel(), expected, atol=1e-4)


def test_no_step_increases_the_sum_where_the_variance_is_even() -> None:
    operator = VolumeBlur(psf(3, 3, 3), depth=4)
    y, z, x = light(4, 5, 5, seed=3), light(6, 7, 7), torch.full((6, 7, 7), 2.0).double()
    sums = []
    for _ in range(12):
        sums.append(float((y - operator.forward(x)).square().sum() / 2 + 0.2 * (x - z).square().sum() / 2))
        x = multiply(operator, y, Variance(0.0, 1.0), x, 1, z=z, weight=0.2, bright=5.0)
    assert all(later <= earlier for earlier, later in itertools.pairwise(sums))


def test_counted_photons_make_it_the_step_of_richardson_and_lucy() -> None:
    kernel = psf(3, 3, 3)
    operator = VolumeBlur(kernel, depth=4)
    y, x = light(4, 5, 5, seed=3), light(6, 7, 7) + 0.1
    found = multiply(operator, y, Variance(1.0, 0.0), x, 1, bright=5.0).numpy()
    blurred = convolve(x.numpy(), kernel, mode="valid", method="direct")
    assert blurred.min() > 1  # beside the variance of dark voxels
    ratio = y.numpy() / (blurred + 0.01)
    back = [convolve(own, kernel[::-1, ::-1, ::-1], "full", "direct") for own in (ratio, blurred / (blurred + 0.01))]
    least = UNSEEN
    np.testing.assert_allclose(found, x.numpy() * (back[0] + least) / (back[1] + least), rtol=1e-9)


def test_planes_are_denoised_as_the_loop_does_it() -> None:
    network = shipped_kernel().network
    x = torch.rand((3, 24, 20), generator=torch.Generator().manual_seed(0))
    found = denoise_planes(network, x, x, 0.1)
    (stage,) = stages(network, 1)
    for plane, own in zip(x, found):
        expected, _ = stage.estimate(State(plane, Identity(), plane, plane, 0.1))
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)


def test_sections_are_planes_along_the_other_axes() -> None:
    network = shipped_kernel().network
    x = torch.rand((16, 24, 20), generator=torch.Generator().manual_seed(0))
    for number, axes in enumerate(SECTIONS):
        weights = [float(number == own) for own in range(3)]
        found = denoise_sections(network, x, x, 0.1, weights)
        turned = x.permute(axes)
        expected = denoise_planes(network, turned.contiguous(), turned.contiguous(), 0.1)
        torch.testing.assert_close(found.permute(axes), expected)
    parts = [denoise_sections(network, x, x, 0.1, np.eye(3)[own]) for own in range(3)]
    mixed = denoise_sections(network, x, x, 0.1, [0.5, 0.25, 0.25])
    torch.testing.assert_close(mixed, 0.5 * parts[0] + 0.25 * parts[1] + 0.25 * parts[2], rtol=0, atol=1e-6)


def test_sections_count_by_the_distances_of_their_voxels() -> None:
    np.testing.assert_allclose(section_weights((1, 1, 1)), 1 / 3)
    np.testing.assert_allclose(section_weights((3, 1, 1)), [0.6, 0.2, 0.2])


def test_a_volume_of_one_plane_has_one_section() -> None:
    network = shipped_kernel().network
    x = torch.rand((1, 24, 20), generator=torch.Generator().manual_seed(0))
    found = denoise_sections(network, x, x, 0.1, section_weights((1, 1, 1)))
    torch.testing.assert_close(found, denoise_planes(network, x, x, 0.1))
