"""Operators of slir, SciPy and PyLops in each other's place."""

from __future__ import annotations

import sys

import numpy as np
import pylops
import pytest
import scipy.sparse
import torch
from pylops.utils import dottest
from scipy.sparse.linalg import LinearOperator, lsqr

import slir
from reference.operators import matrix
from slir.adapters.scipy import from_scipy, to_pylops, to_scipy
from slir.errors import InputError, SlirError
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Compose, Downsample, Identity, Mask, Operator, adjoint_error

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(0)
SHAPE = (12, 14)
PSF = RNG.random((4, 3))
PSF /= PSF.sum()

OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "unknown": Blur(PSF),
    "circular": Blur(PSF, "circular"),
    "reflect": Blur(PSF, "reflect"),
    "downsample": Downsample(2, "box"),
    "mask": Mask(RNG.random(SHAPE) < 0.3),
    "composition": Compose(Mask(RNG.random((6, 7)) < 0.3), Downsample(2, "box")),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_linear_operators(name: str) -> None:
    operator = OPERATORS[name]
    y_shape = operator.y_shape(SHAPE)
    dense = matrix(lambda x: operator.forward(torch.from_numpy(x)).numpy(), SHAPE)
    made = to_scipy(operator, SHAPE)
    assert isinstance(made, LinearOperator)
    assert made.shape == dense.shape
    assert made.dtype == np.float64
    x, y = RNG.random(dense.shape[1]), RNG.random(dense.shape[0])
    np.testing.assert_allclose(made @ x, dense @ x, atol=1e-12)
    np.testing.assert_allclose(made.T @ y, dense.T @ y, atol=1e-12)
    np.testing.assert_allclose(made @ np.eye(len(x)), dense, atol=1e-12)
    np.testing.assert_allclose(made.H @ np.eye(len(y)), dense.T, atol=1e-12)
    there = to_pylops(operator, SHAPE)
    dottest(there, rtol=1e-10)
    assert (there @ x.reshape(SHAPE)).shape == y_shape
    np.testing.assert_allclose(there.todense(), dense, atol=1e-12)
    for back in (from_scipy(there), from_scipy(made, SHAPE, y_shape), from_scipy(dense, SHAPE, y_shape)):
        image = torch.from_numpy(x.reshape(SHAPE))
        torch.testing.assert_close(back.forward(image), operator.forward(image))
        assert adjoint_error(back, SHAPE) < 1e-12


def test_results_are_theirs_to_change() -> None:
    made = to_scipy(Identity(), SHAPE)
    x = RNG.random(made.shape[1])
    y = made @ x
    y += 1
    assert not np.shares_memory(x, y)
    assert made.matvec(x.astype(np.float32)).dtype == np.float64
    assert to_scipy(Identity(), SHAPE, dtype=np.float32).matvec(x).dtype == np.float32


@pytest.mark.parametrize(
    ("given", "y_shape"),
    [
        (pylops.signalprocessing.Convolve2D(SHAPE, PSF, offset=(1, 1)), SHAPE),
        (pylops.Gradient(SHAPE), (24, 14)),  # (2, 12, 14): one gradient below the other
        (pylops.Laplacian(SHAPE), SHAPE),
        (pylops.Restriction(SHAPE, [1, 4, 5], axis=0), (3, 14)),
    ],
    ids=["convolution", "gradient", "laplacian", "restriction"],
)
def test_pylops_operators_know_their_shapes(given: object, y_shape: tuple[int, int]) -> None:
    operator = from_scipy(given)
    assert operator.y_shape(SHAPE) == y_shape
    assert adjoint_error(operator, SHAPE) < 1e-12
    x = RNG.random(SHAPE)
    np.testing.assert_allclose(operator.forward(torch.from_numpy(x)).numpy().ravel(), given.matvec(x.ravel()))


def test_sparse_matrices_and_vectors_of_measurements() -> None:
    sparse = scipy.sparse.random(50, 168, density=0.2, random_state=0, format="csr")
    operator = from_scipy(sparse, SHAPE, (5, 10), reach=3)
    assert operator.reach == 3
    assert adjoint_error(operator, SHAPE) < 1e-12
    samples = pylops.Restriction(168, np.arange(0, 168, 5))
    assert from_scipy(samples, SHAPE).y_shape(SHAPE) == (1, 34)


def test_what_is_missing_or_complex_is_told() -> None:
    with pytest.raises(InputError, match="x_shape must be given"):
        from_scipy(np.eye(168))
    with pytest.raises(InputError, match="y_shape must be given"):
        from_scipy(np.eye(168), SHAPE)
    with pytest.raises(InputError, match="x_shape must be given"):
        from_scipy(pylops.Gradient((4, 12, 14)))
    fourier = pylops.signalprocessing.FFT2D(SHAPE)
    with pytest.raises(InputError, match="be real"):
        from_scipy(fourier)
    parts = from_scipy(pylops.VStack([fourier.toreal(), fourier.toimag()]))  # as the message says
    assert adjoint_error(parts, SHAPE) < 1e-12


def test_without_pylops_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pylops", None)
    with pytest.raises(SlirError, match=r"slir\[pylops\]"):
        to_pylops(Identity(), SHAPE)


def test_slir_restores_what_pylops_has_blurred() -> None:
    x = torch.from_numpy(demo_picture()[64:112, 64:112].mean(-1) / 255).float()
    psf = slir.psf.gaussian(1.2)
    centre = (psf.shape[0] // 2, psf.shape[1] // 2)
    operator = from_scipy(pylops.signalprocessing.Convolve2D(x.shape, np.asarray(psf), offset=centre))
    y = operator.forward(x) + 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    made = slir.restore(y, operator, sigma=0.01, data_range=1.0)
    before, after = ((each - x).square().mean() for each in (y, made))
    assert float(10 * torch.log10(before / after)) > 3


def test_scipy_solves_with_slirs_operators() -> None:
    x = RNG.random(SHAPE)
    operator = Blur(PSF, "circular")
    y = operator.forward(torch.from_numpy(x)).numpy()
    solved = lsqr(to_scipy(operator, SHAPE), y.ravel(), atol=1e-12, btol=1e-12, iter_lim=2000)[0]
    np.testing.assert_allclose(solved.reshape(SHAPE), x, atol=1e-6)
