"""Blur of volumes: against loops over voxels, dense matrices and the blur of planes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import operators as reference
from slir.errors import InputError
from slir.estimator.start import SLOPE, smooth_start
from slir.operators import Blur, VolumeBlur, adjoint_error
from slir.solvers.system import System, laplacian

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = [(1, 1, 1), (3, 3, 3), (2, 3, 4), (4, 1, 2), (5, 4, 3)]


def psf(*size: int) -> np.ndarray:
    values = np.random.default_rng(0).random(size) + 0.1
    return values / values.sum()


def volume(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.5, 0.3, shape))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("direct", [True, False])
def test_forward_is_a_sum_over_voxels(size: tuple, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct:
        monkeypatch.setattr("slir.operators.convolution.DIRECT_TAPS", 0)
    x = volume(7, 8, 6)
    operator = VolumeBlur(psf(*size), depth=7 - size[0] + 1)
    expected = reference.convolve_volume(x.numpy(), psf(*size))
    np.testing.assert_allclose(operator.forward(x).numpy(), expected, atol=1e-13)
    np.testing.assert_allclose(operator.normal(x).numpy(), operator.adjoint(operator.forward(x)).numpy(), atol=1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_adjoint_and_shapes(size: tuple) -> None:
    operator = VolumeBlur(psf(*size), depth=4)
    assert operator.x_planes == (4 + size[0] - 1,)
    shape = operator.x_shape((9, 8))
    assert operator.y_shape(shape) == (9, 8)
    for dtype, near in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        assert adjoint_error(operator, shape, dtype=dtype) < near
    y = volume(2, 4, 9, 8)
    x = operator.guess(y)
    assert x.shape == (2, *operator.x_planes, *shape)
    torch.testing.assert_close(operator.crop(x, (9, 8)), y)


def test_a_psf_of_one_plane_blurs_each_plane() -> None:
    x = volume(5, 12, 13)
    kernel = psf(1, 5, 4)
    torch.testing.assert_close(VolumeBlur(kernel, 5).forward(x), Blur(kernel[0]).forward(x))


def matrix(operator: VolumeBlur, shape: tuple[int, ...]) -> np.ndarray:
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).view(-1, *shape)
    return np.stack([operator.forward(unit).numpy().ravel() for unit in units], 1)


@pytest.mark.parametrize("spread", [False, True])
def test_the_least_squares_step_is_the_dense_solution(spread: bool) -> None:
    """Once on a torus and its hidden border, once by preconditioned conjugate gradient."""
    operator = VolumeBlur(psf(3, 3, 3), depth=4)
    shape = (6, 7, 6)
    blur, ridge = matrix(operator, shape), 0.05
    weights = ridge * (1 + volume(*shape, seed=3).square()) if spread else torch.full(shape, ridge).double()
    y, moment = volume(4, 5, 4), volume(*shape, seed=1)
    system = System(operator, 1.0, weights)
    solved = system.explain(y, torch.zeros(shape).double(), moment=moment, target=1e-9)
    left = blur.T @ blur + np.diag(weights.numpy().ravel())
    expected = np.linalg.solve(left, blur.T @ y.numpy().ravel() + moment.numpy().ravel())
    assert solved.converged
    np.testing.assert_allclose(solved.value.numpy().ravel(), expected, atol=1e-7)


def test_the_smooth_start_knows_the_distances_of_voxels() -> None:
    operator = VolumeBlur(psf(2, 3, 2), depth=3, spacing=(300, 100, 100))
    shape, sigma = (4, 5, 4), 0.1
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).view(-1, *shape)
    rough = np.stack([laplacian(unit, (3.0, 1.0, 1.0)).numpy().ravel() for unit in units], 1)
    pairs = [(a, b) for a in np.ndindex(shape) for b in np.ndindex(shape) if sum(abs(np.subtract(a, b))) == 1]
    expected = np.zeros_like(rough)
    for a, b in pairs:
        i, j = np.ravel_multi_index(a, shape), np.ravel_multi_index(b, shape)
        weight = 1 / 9 if a[0] != b[0] else 1.0
        expected[i, i] += weight
        expected[i, j] -= weight
    np.testing.assert_allclose(rough, expected, atol=1e-12)
    blur, y = matrix(operator, shape), volume(3, 3, 3)
    dense = blur.T @ blur + (sigma / SLOPE) ** 2 * rough
    start = smooth_start(operator, y, sigma).numpy().ravel()
    np.testing.assert_allclose(start, np.linalg.solve(dense, blur.T @ y.numpy().ravel()), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: VolumeBlur(np.ones((3, 3)) / 9, 4), "psf must be a non-empty array of three dimensions"),
        (lambda: VolumeBlur(np.ones((3, 3, 3)), 4), "psf must sum to one"),
        (lambda: VolumeBlur(psf(3, 3, 3), 0), "depth must be a number of planes"),
        (lambda: VolumeBlur(psf(3, 3, 3), 4, (1, 1)), "spacing must be three positive distances"),
        (lambda: VolumeBlur(psf(3, 5, 3), 4).y_shape((4, 9)), "psf must be no larger than the image, 6×4×9"),
    ],
)
def test_wrong_arguments_are_refused_in_words(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()
