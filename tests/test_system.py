"""The linear system of every x-update, against dense solves; recorded on a GPU, against what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from slir import psf
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.solvers.cg import cg
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


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["ridge", "diagonal", "smooth"])
def test_what_explains_y(name: str, kind: str) -> None:
    """b = γBᵀy + moment, from any start."""
    operator = OPERATORS[name]
    system, moment = systems(operator)[kind], image(5)
    y = image(4, operator.y_shape(SHAPE))
    y = operator.residual(y, torch.zeros(SHAPE, dtype=y.dtype))
    rhs = system.gamma * operator.adjoint(y)
    for own in (None, moment):
        expected = torch.linalg.solve(dense(system), (rhs if own is None else rhs + own).flatten()).view(SHAPE)
        found = system.explain(y, image(6), moment=own, target=1e-10, max_steps=2000)
        assert found.converged
        torch.testing.assert_close(found.value, expected, atol=1e-7, rtol=1e-6)


def test_explaining_rounds_little() -> None:
    """What B hardly sees is not off by the rounding of what it does see, divided by next to nothing."""
    operator, shape = Downsample(2), (64, 64)
    smooth = image(7, (4, 4))[None, None]
    x = 0.5 + 0.1 * torch.nn.functional.interpolate(smooth, shape, mode="bicubic")[0, 0]
    y = operator.forward(x)
    system, guess = System(operator, 1.0, 0.0, 2e-4), operator.guess(y)
    exact = system.solve(operator.adjoint(y), start=guess, tol=1e-12, max_steps=3000).value
    stop = {"target": 1e-9, "max_steps": 500}
    plain = system.solve(operator.adjoint(y.float()), start=guess.float(), **stop).value  # type: ignore[arg-type]
    found = system.explain(y.float(), guess.float(), **stop).value  # type: ignore[arg-type]
    assert float((found - exact).abs().max()) < 2e-6
    assert float((found - exact).abs().max()) < 0.3 * float((plain - exact).abs().max())


@pytest.mark.parametrize("ridge", [0.3, 1e-3])
@pytest.mark.parametrize(
    ("kernel", "share"), [(psf.motion(9, 30), 0.7), (psf.gaussian(1.6), 0.7), (np.full((4, 7), 1 / 28), 2.0)]
)
def test_what_an_unknown_border_hides(kernel: np.ndarray, share: float, ridge: float) -> None:
    """Four transforms a step in place of six, and for most PSFs a fraction of the steps."""
    operator = Blur(kernel)
    system, rhs = System(operator, 1.0, ridge), operator.adjoint(image(8, (70, 61)))
    quick = system.solve(rhs, tol=1e-6)
    slow = cg(system.apply, rhs, precondition=system.preconditioner(rhs), tol=1e-12, max_steps=5000)
    assert float((rhs - system.apply(quick.value)).norm()) <= 1.01e-6 * float(rhs.norm())
    assert quick.stats["residual"] <= 1e-6
    torch.testing.assert_close(quick.value, slow.value, rtol=0, atol=1e-4 * float(slow.value.abs().max()))
    plain = cg(system.apply, rhs, precondition=system.preconditioner(rhs), tol=1e-6, max_steps=5000)
    assert quick.stats["steps"] < share * plain.stats["steps"]
    spread = System(operator, 1.0, torch.full_like(rhs, ridge)).solve(rhs, tol=1e-6)
    torch.testing.assert_close(spread.value, quick.value)


@pytest.mark.parametrize("kernel", [psf.gaussian(1.6), psf.camera_shake(13, 3, softness=0.3)])
def test_a_smooth_start_where_the_border_is_unknown(kernel: np.ndarray) -> None:
    """The hint is positive definite, and takes far fewer steps than one that knows nothing of the border."""
    operator = Blur(kernel)
    system = System(operator, 1.5, 0.0, 0.02)
    rhs = operator.adjoint(image(8, (70, 61)))
    plain = operator.preconditioner(rhs, 1.5, 0.0, 0.02)
    slow = cg(system.apply, rhs, precondition=plain, tol=1e-6, max_steps=5000)
    quick = system.solve(rhs, tol=1e-6)
    assert quick.verdict is Verdict.CONVERGED
    assert quick.stats["steps"] < 0.5 * slow.stats["steps"]
    exact = cg(system.apply, rhs, precondition=plain, tol=1e-12, max_steps=5000).value
    torch.testing.assert_close(quick.value, exact, rtol=0, atol=1e-3 * float(exact.abs().max()))
    small = image(2, (2 * kernel.shape[0], 2 * kernel.shape[1]))
    hint = system.preconditioner(small)
    assert hint is not None
    units = torch.eye(small.numel(), dtype=torch.float64).view(-1, *small.shape)
    matrix = torch.stack([hint(unit).flatten() for unit in units], 1)
    torch.testing.assert_close(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix).min() > 0


@pytest.mark.parametrize("kind", ["ridge", "smooth"])
@pytest.mark.parametrize("name", ["blur", "blur circular"])
def test_factors_are_all_that_a_hint_has_of_its_system(name: str, kind: str) -> None:
    """A recording on a GPU keeps the first hint and is told of the next ones by their factors."""
    operator, v = OPERATORS[name], image(1)
    first = systems(operator)[kind].preconditioner(v)
    other = System(operator, 7.0, 0.2, 0.0 if kind == "ridge" else 0.05).preconditioner(v)
    assert first is not None
    assert other is not None
    torch.testing.assert_close(replace(first, factors=other.factors)(v), other(v))
    assert not torch.allclose(first(v), other(v))


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
