"""The start of the loop, against dense minima."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import operators as reference_operators
from reference import systems as reference
from slir.estimator.loop import begin
from slir.estimator.paper_settings import ROUNDING
from slir.estimator.start import SLOPE, smooth_start
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import stages
from slir.model import Model
from slir.operators import Blur, Compose, Downsample, Identity, Mask, Operator
from slir.solvers import bordered, system
from slir.solvers.cg import cg

pytestmark = pytest.mark.usefixtures("one_thread")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(size=shape))


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear systems to the last digit, so that what remains is which system is solved."""

    def patient(*args: Any, start: Tensor | None = None, **_: Any) -> Any:
        return cg(*args, start=start, tol=1e-14, max_steps=5000)

    for module in (system, bordered):
        monkeypatch.setattr(module, "cg", patient)


LOPSIDED = np.array([[0.05, 0.1, 0.0, 0.05], [0.2, 0.3, 0.1, 0.0], [0.0, 0.1, 0.05, 0.05]])
HOLES = rng(5).random((9, 10)) < 0.6


@dataclasses.dataclass
class Small:
    """An operator at a size where it is a matrix."""

    operator: Operator
    shape: tuple[int, int]
    matrix: np.ndarray

    def y(self, sigma: float, seed: int = 0) -> np.ndarray:
        """Seen through the matrix: an image with an edge, and noise."""
        x = 0.3 + 0.4 * (np.add.outer(np.arange(self.shape[0]), np.arange(self.shape[1])) > 9)
        y = self.matrix @ x.ravel() + sigma * rng(seed).normal(size=len(self.matrix))
        return y.reshape(self.operator.y_shape(self.shape))


@functools.cache
def small(name: str) -> Small:
    """The matrices come from loops over pixels, not from the operators."""

    def convolved(border: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: reference_operators.convolve(x, LOPSIDED, border)

    if name == "mask":
        return Small(Mask(HOLES), (9, 10), np.diag((~HOLES).astype(float).ravel()))
    if name == "downsample":
        operator = Downsample(2, "box")
        kernel, phase = operator.kernel.numpy(), operator.phase
        return Small(
            operator,
            (8, 12),
            reference_operators.matrix(
                lambda x: reference_operators.downsample(x, kernel, 2, phase, "reflect"), (8, 12)
            ),
        )
    if name == "blur and mask":
        holes = rng(6).random((8, 9)) < 0.3
        blur = reference_operators.matrix(convolved("unknown"), (10, 12))
        matrix = np.diag((~holes).astype(float).ravel()) @ blur
        return Small(Compose(Mask(holes), Blur(LOPSIDED)), (10, 12), matrix)
    border = name.split()[-1]
    shape = (10, 12)
    return Small(Blur(LOPSIDED, border), shape, reference_operators.matrix(convolved(border), shape))  # type: ignore[arg-type]


SMALL = ["blur unknown", "blur reflect", "blur circular", "mask", "downsample", "blur and mask"]


@pytest.mark.parametrize("sigma", [0.01, 0.1])
@pytest.mark.parametrize("name", SMALL)
def test_the_start_is_the_dense_minimum(name: str, sigma: float, exact: None) -> None:
    own = small(name)
    y = own.y(sigma)
    expected = reference.smooth(own.matrix, y, own.shape, sigma, SLOPE)
    np.testing.assert_allclose(smooth_start(own.operator, torch.from_numpy(y), sigma).numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.002, 0.02, 0.1])
@pytest.mark.parametrize("name", SMALL)
def test_the_start_ends_where_nothing_is_left_to_gain(name: str, sigma: float, dtype: torch.dtype) -> None:
    """What its tolerance leaves is small beside the noise."""
    own = small(name)
    y = own.y(sigma)
    expected = reference.smooth(own.matrix, y, own.shape, sigma, SLOPE)
    found = smooth_start(own.operator, torch.from_numpy(y).to(dtype), sigma)
    assert found.dtype == dtype
    assert np.sqrt(np.mean((found.double().numpy() - expected) ** 2)) < 0.2 * sigma


def test_sigma_is_never_less_than_rounding(exact: None) -> None:
    own = small("blur reflect")
    y = torch.from_numpy(own.y(0.0))
    assert torch.equal(smooth_start(own.operator, y, 0.0), smooth_start(own.operator, y, ROUNDING))


def test_denoising_starts_at_y_and_channels_start_one_by_one() -> None:
    model = Model(stages(KernelNetwork((8, 12, 16), 1).requires_grad_(False), 2))
    y = noise((3, 9, 10)).float()
    assert torch.equal(begin(y, Identity(), model, 0.3).x, y)
    sigmas = torch.tensor([0.01, 0.02, 0.05]).view(3, 1, 1)
    state = begin(y, Mask(HOLES), model, sigmas)
    for plane, own, sigma in zip(state.x, y, (0.01, 0.02, 0.05)):
        torch.testing.assert_close(plane, smooth_start(Mask(HOLES), own, sigma))
