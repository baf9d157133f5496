"""The linear system of every x-update, against dense solves; recorded on a GPU, against what is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from slir import psf
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.solvers.solution import Verdict
from slir.solvers.system import System, laplacian

pytestmark = pytest.mark.usefixtures("one_thread")
SHAPE = (12, 10)
OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "blur": Blur(psf.motion(3, 20)),
    "blur circular": Blur(psf.motion(3, 20), "circular"),
    "downsample": Downsample(2, "box"),
    "mask": Mask(np.random.default_rng(0).random(SHAPE) < 0.5),
}


def image(seed: int, shape: tuple[int, int] = SHAPE) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def dense(system: System) -> Tensor:
    """The system as a matrix, (n, n)."""
    units = torch.eye(SHAPE[0] * SHAPE[1], dtype=torch.float64).view(-1, *SHAPE)
    return torch.stack([system.apply(unit).flatten() for unit in units], 1)


def systems(operator: Operator) -> dict[str, System]:
    spread = 0.5 + image(3).square()
    return {
        "ridge": System(operator, 2.0, 0.3),
        "diagonal": System(operator, 2.0, spread),
        "smooth": System(operator, 1.0, 1e-3, 0.7),
    }


@pytest.mark.parametrize("kind", ["ridge", "diagonal", "smooth"])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_solve_is_that_of_the_matrix(name: str, kind: str) -> None:
    system, rhs = systems(OPERATORS[name])[kind], image(1)
    matrix = dense(system)
    torch.testing.assert_close(matrix, matrix.T)
    expected = torch.linalg.solve(matrix, rhs.flatten()).view(SHAPE)
    found = system.solve(rhs, tol=1e-12, max_steps=2000)
    assert found.verdict is Verdict.CONVERGED
    torch.testing.assert_close(found.value, expected, atol=1e-8, rtol=1e-6)
    again = system.solve(rhs, start=expected, tol=1e-9)
    assert again.stats["steps"] == 0
    torch.testing.assert_close(again.value, expected)


def test_roughness_is_that_of_the_differences() -> None:
    x = image(2)
    energy = (x[1:] - x[:-1]).square().sum() + (x[:, 1:] - x[:, :-1]).square().sum()
    torch.testing.assert_close((x * laplacian(x)).sum(), energy)


def test_steps_are_limited_and_bad_curvature_is_said() -> None:
    system, rhs = System(OPERATORS["blur"], 1.0, 1e-6), image(1)
    limited = system.solve(rhs, tol=1e-14, max_steps=3)
    assert limited.stats["steps"] == 3
    assert limited.verdict is Verdict.STEP_LIMIT
    assert System(Identity(), -1.0, 0.0).solve(rhs).verdict is Verdict.INDEFINITE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["ridge", "diagonal", "smooth"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_recording_solves_what_a_cpu_does(name: str, kind: str) -> None:
    """Again and again, with other numbers each time: a recording must not remember the first."""
    operator = OPERATORS[name]
    for seed in range(3):
        own = systems(operator)[kind]
        scaled = System(operator, own.gamma * (1 + seed), own.diagonal, own.smooth)
        rhs, start = image(seed), image(seed + 10)
        expected = scaled.solve(rhs, start=start, tol=1e-10).value
        diagonal = own.diagonal.cuda() if isinstance(own.diagonal, Tensor) else own.diagonal
        there = System(operator, scaled.gamma, diagonal, own.smooth)
        found = there.solve(rhs.cuda(), start=start.cuda(), tol=1e-10)
        assert found.verdict is Verdict.CONVERGED
        torch.testing.assert_close(found.value.cpu(), expected, atol=1e-7, rtol=1e-6)
