"""The loop: against dense minima at tiny size, its solvers' verdicts, end-to-end gains, files, memory, devices."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import scipy.optimize
import skimage.data
import torch
from torch import Tensor

import slir
from reference import operators as reference_operators
from reference import restoration as reference
from slir.bank import Bank, degrade
from slir.descriptors import DctDescriptor
from slir.errors import FileError, InputError
from slir.estimator.loop import restore, x_update
from slir.estimator.state import State
from slir.fitting import paper_model
from slir.losses import Euclidean, Huber, Loss, Squared
from slir.model import Model, Prior, Stage, aggregate
from slir.operators import Blur, Compose, Downsample, Identity, Mask, Operator
from slir.patches import PatchGrid
from slir.solvers import system
from slir.solvers.cg import cg
from slir.solvers.solution import Verdict
from slir.weights import KernelRidge, NadarayaWatson, Nystrom, Weights


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def exact_cg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The x-update to the last digit, so that what remains is what the loop does."""
    monkeypatch.setattr(system, "cg", lambda *args, start, **_: cg(*args, start=start, tol=1e-14, max_steps=5000))


# Conjugate gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_cg_is_the_dense_solve(dtype: torch.dtype, started: bool, preconditioned: bool, one_thread: None) -> None:
    root = torch.from_numpy(rng().normal(size=(30, 30)))
    matrix = (root @ root.T / 30 + torch.diag(torch.linspace(0.5, 20, 30, dtype=torch.float64))).to(dtype)
    rhs = torch.from_numpy(rng(1).normal(size=30)).to(dtype)
    start = torch.from_numpy(rng(2).normal(size=30)).to(dtype) if started else None
    before = None if start is None else start.clone()
    tol = 1e-5 if dtype == torch.float32 else 1e-12
    found = cg(
        lambda x: matrix @ x,
        rhs,
        start=start,
        precondition=(lambda r: r / matrix.diagonal()) if preconditioned else None,
        tol=tol,
    )
    assert found.converged
    expected = torch.linalg.solve(matrix, rhs)
    torch.testing.assert_close(found.value, expected, rtol=0, atol=100 * tol * float(expected.abs().max()))
    residual = float((matrix @ found.value - rhs).norm() / rhs.norm())
    assert residual == pytest.approx(found.stats["residual"], abs=tol)
    assert residual <= 2 * tol
    assert 0 < found.stats["steps"] <= 60
    assert start is None or torch.equal(start, before)


def test_cg_ends_after_as_many_steps_as_eigenvalues(one_thread: None) -> None:
    diagonal = torch.tensor([1.0, 1, 4, 4, 9, 9, 9], dtype=torch.float64)
    found = cg(lambda x: diagonal * x, torch.ones(7, dtype=torch.float64), tol=1e-12)
    assert found.stats["steps"] == 3


def test_cg_verdicts(one_thread: None) -> None:
    diagonal = torch.linspace(1, 100, 50, dtype=torch.float64)
    rhs = torch.ones(50, dtype=torch.float64)
    stopped = cg(lambda x: diagonal * x, rhs, max_steps=3)
    assert stopped.verdict is Verdict.STEP_LIMIT
    assert not stopped.converged
    assert stopped.stats["steps"] == 3
    assert stopped.stats["residual"] == pytest.approx(float((diagonal * stopped.value - rhs).norm() / rhs.norm()))
    assert bool(torch.isfinite(stopped.value).all())

    signed = diagonal.clone()
    signed[7] = -1
    indefinite = cg(lambda x: signed * x, rhs, max_steps=500)
    assert indefinite.verdict is Verdict.INDEFINITE
    assert bool(torch.isfinite(indefinite.value).all())
    assert "gamma" in indefinite.verdict.value

    solved = cg(lambda x: diagonal * x, rhs, start=rhs / diagonal)
    assert solved.converged
    assert solved.stats["steps"] == 0
    broken = cg(lambda x: diagonal * x, torch.full_like(rhs, float("nan")))
    assert not broken.converged


def test_cg_of_nothing_is_nothing(one_thread: None) -> None:
    zero = torch.zeros(5, dtype=torch.float64)
    diagonal = torch.linspace(1, 3, 5, dtype=torch.float64)
    assert torch.equal(cg(lambda x: diagonal * x, zero).value, zero)
    found = cg(lambda x: diagonal * x, zero, start=torch.ones_like(zero))
    torch.testing.assert_close(found.value, zero, rtol=0, atol=1e-10)
    assert found.converged


# Tiny restorations against dense matrices

SIZE = 3
TINY: dict[str, Callable[[], Operator]] = {
    "identity": Identity,
    "blur": lambda: Blur(np.array([[0.1, 0.2], [0.3, 0.1], [0.2, 0.1]])),
    "blur-circular": lambda: Blur(np.full((3, 3), 1 / 9), "circular"),
    "down": lambda: Downsample(2, "box"),
    "mask": lambda: Mask(rng(9).random((8, 6)) < 0.3),
    "mask-blur": lambda: Compose(Mask(rng(9).random((6, 5)) < 0.3), Blur(np.full((3, 2), 1 / 6))),
}
X_SHAPE = (8, 6)


def tiny_prior(weights: Weights, *, m: int = 12, dtype: torch.dtype = torch.float64) -> Prior:
    clean = torch.from_numpy(rng(3).normal(0.5, 0.2, (m, SIZE**2))).to(dtype)
    seen = clean + torch.from_numpy(rng(4).normal(0, 0.1, clean.shape)).to(dtype)
    return Prior(Bank(seen, clean, torch.zeros(m, 3, dtype=torch.int64), {}), DctDescriptor(), weights)


def tiny_y(operator: Operator) -> Tensor:
    x = torch.from_numpy(rng(5).normal(0.5, 0.2, X_SHAPE))
    return degrade(x, operator, 0.05, torch.Generator().manual_seed(0))


def dense_energy(operator: Operator, y: Tensor, stage: Stage, seen: Tensor) -> reference.Energy:
    matrix = reference_operators.matrix(lambda x: operator.forward(torch.from_numpy(x)).numpy(), X_SHAPE)
    selections = reference.all_selections(X_SHAPE, SIZE, stage.stride)
    clean = stage.prior.bank.clean.numpy()
    # With a stride, fewer patches speak for the same pixels, so each counts stride² times.
    alpha = stage.stride**2 * stage.prior.fitted.alpha(seen).numpy()
    return reference.Energy(
        matrix, y.numpy().ravel(), selections, alpha, clean - clean.mean(1, keepdims=True), stage.gamma
    )


TINY_WEIGHTS: dict[str, Weights] = {
    "nw": NadarayaWatson(s=0.5),
    "krr": KernelRidge(lam=1e-2),
    "nystrom": Nystrom(lam=1e-2, centres=6),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("kind", TINY_WEIGHTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_squared_loss_is_the_minimum_of_the_energy(
    name: str, kind: str, stride: int, exact_cg: None, one_thread: None
) -> None:
    """One stage, no splitting: the paper's linear system, weights that do not sum to one included."""
    operator = TINY[name]()
    y = tiny_y(operator)
    stage = Stage(prior=tiny_prior(TINY_WEIGHTS[kind]), loss=Squared(), gamma=4.0, stride=stride)
    found = restore(y, operator, Model((stage,)))
    assert "x_verdict" not in found.stats[0]
    guess = operator.guess(y)
    grid = PatchGrid(X_SHAPE, SIZE, stride)
    energy = dense_energy(operator, y, stage, stage.describe(guess, grid))
    means = grid.extract(guess).mean(1).numpy()
    expected = energy.minimum_of_squared_to(means)
    np.testing.assert_allclose(found.x.numpy().ravel(), expected, rtol=0, atol=1e-9)
    # And it is a minimum: the energy itself, summed term by term, rises wherever one goes.
    lowest = energy.squared_to(found.x.numpy().ravel(), means)
    for seed in range(5):
        step = 1e-2 * rng(seed).normal(size=expected.shape)
        assert energy.squared_to(expected + step, means) > lowest


def test_squared_loss_with_the_tolerance_that_ships(one_thread: None) -> None:
    for make in TINY.values():
        operator = make()
        y = tiny_y(operator)
        stage = Stage(prior=tiny_prior(TINY_WEIGHTS["nw"]), loss=Squared(), gamma=50.0)
        guess, grid = operator.guess(y), PatchGrid(X_SHAPE, SIZE)
        energy = dense_energy(operator, y, stage, stage.describe(guess, grid))
        expected = energy.minimum_of_squared_to(grid.extract(guess).mean(1).numpy())
        found = restore(y, operator, Model((stage,))).x.numpy().ravel()
        # The residual that is left, over the least curvature: a corner lies in one patch, the mean pixel in more.
        counts = grid.counts(guess)
        bound = slir.model.X_TOLERANCE * float(counts.mean() / counts.min()) * guess.numel() ** 0.5
        assert np.linalg.norm(found - expected) < bound


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("loss", [Squared(), Euclidean(), Huber(0.2)])
def test_the_x_update_of_hqs_is_the_dense_solve(name: str, loss: Loss, exact_cg: None, one_thread: None) -> None:
    """(γBᵀB + βΣRᵀR) x = γBᵀy + βΣRᵀz."""
    operator = TINY[name]()
    y = tiny_y(operator)
    stage = Stage(prior=tiny_prior(TINY_WEIGHTS["nw"]), loss=loss, gamma=4.0, beta=0.7)
    guess, grid = operator.guess(y), PatchGrid(X_SHAPE, SIZE)
    pull = stage.pull(stage.describe(guess, grid), grid.extract(guess))
    z = (pull.moment / 0.7).numpy()
    selections = reference.all_selections(X_SHAPE, SIZE)
    matrix = reference_operators.matrix(lambda x: operator.forward(torch.from_numpy(x)).numpy(), X_SHAPE)
    system = 4.0 * matrix.T @ matrix + 0.7 * sum(select.T @ select for select in selections)
    rhs = 4.0 * matrix.T @ y.numpy().ravel() + 0.7 * sum(select.T @ patch for select, patch in zip(selections, z))
    expected = np.linalg.solve(system, rhs)
    solved, _ = x_update(State(y, operator, guess, guess), aggregate(grid, [(slice(None), pull)]), stage)
    assert solved.converged
    np.testing.assert_allclose(solved.value.numpy().ravel(), expected, rtol=0, atol=1e-10)
    whole = restore(y, operator, Model((stage,)))
    np.testing.assert_allclose(whole.x.numpy().ravel(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", TINY_WEIGHTS)
def test_the_z_update_of_the_squared_loss_is_its_minimum(kind: str, one_thread: None) -> None:
    """z = (βx + Σα(xⁱ + mean)) / (β + Σα), whose energy is (Σα + β)/2 ‖z − ẑ‖² + a constant."""
    stage = Stage(prior=tiny_prior(TINY_WEIGHTS[kind]), loss=Squared(), gamma=4.0, beta=0.7)
    grid = PatchGrid(X_SHAPE, SIZE)
    x = torch.from_numpy(rng(6).normal(0.5, 0.2, X_SHAPE))
    seen, patches = stage.describe(x, grid), grid.extract(x)
    z = (stage.pull(seen, patches).moment / 0.7).numpy()
    alpha, bank = stage.prior.fitted.alpha(seen).numpy(), stage.prior.fitted.clean.numpy()
    for p in range(0, len(grid), 5):
        own, mean = patches[p].numpy(), float(patches[p].mean())

        def energy(at: np.ndarray, p: int = p, own: np.ndarray = own, mean: float = mean) -> float:
            pulled = sum(a / 2 * np.sum((at - patch - mean) ** 2) for a, patch in zip(alpha[p], bank))
            return float(pulled + 0.7 / 2 * np.sum((at - own) ** 2))

        for seed in range(3):
            other = z[p] + rng(seed).normal(0, 0.1, own.shape)
            rise = (alpha[p].sum() + 0.7) / 2 * np.sum((other - z[p]) ** 2)
            assert energy(other) - energy(z[p]) == pytest.approx(rise, rel=1e-9)


def same_alpha_everywhere() -> Prior:
    """A kernel so wide that α is 1/m whatever is seen: then x may move and the energy stays."""
    return tiny_prior(NadarayaWatson(s=1e7))


@pytest.mark.parametrize("name", ["identity", "blur", "mask"])
def test_hqs_and_admm_go_where_theory_says(name: str, exact_cg: None, one_thread: None) -> None:
    """With α and β fixed, ADMM ends at the minimum of the energy; HQS at that of the energy with z and x apart."""
    operator = TINY[name]()
    y = tiny_y(operator)
    stage = Stage(prior=same_alpha_everywhere(), loss=Squared(), gamma=4.0, beta=1.0)
    energy = dense_energy(operator, y, stage, stage.describe(operator.guess(y), PatchGrid(X_SHAPE, SIZE)))
    true, split = energy.minimum_of_squared(), energy.minimum_of_squared(beta=1.0)
    assert np.abs(true - split).max() > 1e-3
    hqs = restore(y, operator, Model((stage,) * 300)).x.numpy().ravel()
    np.testing.assert_allclose(hqs, split, rtol=0, atol=1e-5)
    admm = restore(y, operator, Model((stage,) * 300, splitting="admm")).x.numpy().ravel()
    np.testing.assert_allclose(admm, true, rtol=0, atol=1e-5)


def test_admm_is_indifferent_to_beta_and_to_its_changes(exact_cg: None, one_thread: None) -> None:
    operator = TINY["blur"]()
    y = tiny_y(operator)
    prior = same_alpha_everywhere()
    ends = []
    for betas in ([0.3] * 300, [3.0] * 300, [0.3 * 1.05 ** min(t, 40) for t in range(300)]):
        stages = tuple(Stage(prior=prior, loss=Squared(), gamma=4.0, beta=beta) for beta in betas)
        ends.append(restore(y, operator, Model(stages, splitting="admm")).x)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-4)
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-4)


def test_growing_beta_brings_hqs_to_the_minimum(exact_cg: None, one_thread: None) -> None:
    operator = TINY["blur"]()
    y = tiny_y(operator)
    stages = [
        Stage(prior=same_alpha_everywhere(), loss=Squared(), gamma=4.0, beta=0.1 * 1.1 ** (t // 8)) for t in range(480)
    ]
    energy = dense_energy(operator, y, stages[0], stages[0].describe(operator.guess(y), PatchGrid(X_SHAPE, SIZE)))
    found = restore(y, operator, Model(tuple(stages))).x.numpy().ravel()
    np.testing.assert_allclose(found, energy.minimum_of_squared(), rtol=0, atol=1e-2)
    far = np.abs(energy.minimum_of_squared(beta=0.1) - energy.minimum_of_squared()).max()
    assert np.abs(found - energy.minimum_of_squared()).max() < far / 5


def test_admm_minimises_the_euclidean_energy(exact_cg: None, one_thread: None) -> None:
    operator = TINY["blur"]()
    y = tiny_y(operator)
    stage = Stage(prior=same_alpha_everywhere(), loss=Euclidean(), gamma=4.0, beta=1.0, tol=1e-9, max_steps=500)
    energy = dense_energy(operator, y, stage, stage.describe(operator.guess(y), PatchGrid(X_SHAPE, SIZE)))
    admm = restore(y, operator, Model((stage,) * 200, splitting="admm")).x.numpy().ravel()
    best = scipy.optimize.minimize(energy.euclidean, admm, method="L-BFGS-B", options={"maxfun": 10**6})
    assert energy.euclidean(admm) <= best.fun * (1 + 1e-5)
    hqs = restore(y, operator, Model((stage,) * 200)).x.numpy().ravel()
    assert energy.euclidean(admm) < energy.euclidean(hqs)


MEASURES = {"weiszfeld": "z_error", "newton": "z_residual", "sdca": "z_gap", "dual-free": "z_residual"}


@pytest.mark.parametrize("name", ["identity", "blur", "mask"])
def test_solvers_of_the_z_update_restore_alike(name: str, one_thread: None) -> None:
    operator = TINY[name]()
    y = tiny_y(operator).float()
    found = {}
    for solver in MEASURES:
        prior = tiny_prior(TINY_WEIGHTS["nw"], m=40, dtype=torch.float32)
        stages = tuple(
            Stage(prior=prior, loss=Euclidean(), gamma=4.0, beta=beta, solver=solver, tol=1e-5, max_steps=200)
            for beta in (0.5, 1.0, 2.0)
        )
        found[solver] = restore(y, operator, Model(stages), generator=torch.Generator().manual_seed(0))
    for solver in MEASURES:
        torch.testing.assert_close(found[solver].x, found["weiszfeld"].x, rtol=0, atol=1e-3)
    for solver, result in found.items():
        for stats in result.stats:
            assert stats["z_steps"] >= 1
            assert 0 <= stats[MEASURES[solver]] < 1e-2


def test_an_unfinished_z_update_is_told(one_thread: None) -> None:
    """The error that is reported is that of the solver, whichever it is."""
    operator = TINY["identity"]()
    y = tiny_y(operator)
    for solver in ("weiszfeld", "newton"):
        stage = Stage(
            prior=tiny_prior(TINY_WEIGHTS["nw"], m=40),
            loss=Euclidean(),
            gamma=4.0,
            beta=0.01,
            solver=solver,
            tol=1e-12,
            max_steps=1,
        )
        assert restore(y, operator, Model((stage,))).stats[0][MEASURES[solver]] > 1e-12


@pytest.mark.parametrize("kind", ["krr", "nystrom"])
@pytest.mark.parametrize("loss", [Euclidean(), Huber(0.2)])
def test_signed_weights_restore(kind: str, loss: Loss, one_thread: None) -> None:
    operator = TINY["blur"]()
    y = tiny_y(operator)
    stage = Stage(prior=tiny_prior(TINY_WEIGHTS[kind]), loss=loss, gamma=4.0, beta=2.0)
    found = restore(y, operator, Model((stage, stage)))
    assert bool(torch.isfinite(found.x).all())
    weiszfeld = dataclasses.replace(stage, solver="weiszfeld")
    with pytest.raises(InputError, match="non-negative"):
        restore(y, operator, Model((weiszfeld,)))


def test_negative_strengths_end_with_a_verdict(one_thread: None) -> None:
    """Σα < 0 makes the energy concave; the answer stays finite and says so."""

    class Negative(NadarayaWatson):
        def fit(self, features: Tensor, clean: Tensor):
            fitted = super().fit(features, clean)
            object.__setattr__(fitted, "moments", lambda seen: (-9 * torch.ones(len(seen)), clean[: len(seen)] * 0 - 1))
            return fitted

    prior = tiny_prior(Negative(), m=24)
    stage = Stage(prior=prior, loss=Squared(), gamma=0.1)
    found = restore(tiny_y(Identity()), Identity(), Model((stage,)))
    assert "convex" in found.stats[0]["x_verdict"]
    assert bool(torch.isfinite(found.x).all())


def test_progress_is_told_and_y_is_left_as_it_was(one_thread: None) -> None:
    operator = TINY["identity"]()
    y = tiny_y(operator)
    before = y.clone()
    stage = Stage(prior=tiny_prior(TINY_WEIGHTS["nw"]), loss=Squared(), gamma=4.0, beta=1.0)
    calls: list[tuple[int, int, str]] = []
    found = restore(y, operator, Model((stage,) * 3), progress=lambda *call: calls.append(call))
    assert [call[0] for call in calls] == [0, 1, 2, 3]
    assert {call[1] for call in calls} == {3}
    assert torch.equal(y, before)
    assert len(found.stats) == 3
    assert not found.x.requires_grad


def test_chunks_do_not_matter(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = TINY["blur"]()
    y = tiny_y(operator)
    for loss, beta, kind in ((Squared(), None, "krr"), (Euclidean(), 1.0, "nw"), (Euclidean(), 1.0, "krr")):
        stage = Stage(prior=tiny_prior(TINY_WEIGHTS[kind]), loss=loss, gamma=4.0, beta=beta, tol=1e-9, max_steps=300)
        whole = restore(y, operator, Model((stage,))).x
        with monkeypatch.context() as patch:
            patch.setattr("slir.model.rows_that_fit", lambda *_: 5)
            torch.testing.assert_close(restore(y, operator, Model((stage,))).x, whole, rtol=0, atol=1e-7)


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", TINY)
def test_flat_images_restore(level: float, name: str, one_thread: None) -> None:
    operator = TINY[name]()
    y = operator.forward(torch.full(X_SHAPE, level, dtype=torch.float64))
    for loss, beta in ((Squared(), None), (Euclidean(), 1.0)):
        stage = Stage(prior=tiny_prior(TINY_WEIGHTS["nw"]), loss=loss, gamma=50.0, beta=beta)
        found = restore(y, operator, Model((stage,)))
        assert bool(torch.isfinite(found.x).all())
        assert "x_verdict" not in found.stats[0]


# What a stage and a model refuse


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gamma": 0.0}, ("gamma", "positive", "0.0", "data")),
        ({"gamma": float("nan")}, ("gamma", "positive", "nan")),
        ({"beta": None}, ("beta", "given for the euclidean loss", "None", "squared")),
        ({"beta": -1.0}, ("beta", "positive", "-1.0")),
        ({"solver": "adam"}, ("solver", "weiszfeld, newton, sdca", "'adam'", "Pick")),
        ({"loss": Huber(), "solver": "sdca"}, ("solver", "huber")),
    ],
)
def test_bad_stages(change: dict, words: tuple[str, ...]) -> None:
    good = {"prior": tiny_prior(NadarayaWatson()), "loss": Euclidean(), "gamma": 1.0, "beta": 1.0}
    with pytest.raises(InputError) as caught:
        Stage(**good | change)
    for word in words:
        assert word in str(caught.value)


def test_bad_models() -> None:
    stage = Stage(prior=tiny_prior(NadarayaWatson()), loss=Squared(), gamma=1.0)
    with pytest.raises(InputError, match=r"stages must hold at least one stage.*slir\.fit"):
        Model(())
    with pytest.raises(InputError, match="splitting must be 'hqs' or 'admm'"):
        Model((stage,), splitting="gradient")
    with pytest.raises(InputError, match="beta must be given for every stage under ADMM"):
        Model((stage,), splitting="admm")
    with pytest.raises(InputError, match="view must be 'seen' or 'clean'"):
        Prior(stage.prior.bank, DctDescriptor(), NadarayaWatson(), "both")
    with pytest.raises(InputError, match="window"):  # the clean patches are smaller than the windows of the descriptor
        Prior(stage.prior.bank, DctDescriptor(window=5), NadarayaWatson(), "clean").fitted  # noqa: B018
    with pytest.raises(InputError, match="patch size"):
        restore(torch.rand(2, 9), Identity(), Model((stage,)))


# End to end


def grey(name: str, rows: slice, cols: slice) -> np.ndarray:
    return getattr(skimage.data, name)()[rows, cols] / 255


def psnr(a: Tensor, b: Tensor) -> float:
    return float(-10 * torch.log10((a - b).square().mean()))


TRAINING = [grey("camera", slice(0, 512), slice(0, 512)), grey("brick", slice(0, 200), slice(0, 200))]
CLEAN = torch.from_numpy(grey("coins", slice(30, 86), slice(60, 116))).float()
MOTION = np.eye(7) / 7
SPOTS = rng(7).random((56, 56)) < 0.5
# operator, σ, settings, and by how many decibels the answer must beat y (spread over x's pixels, for a smaller y)
TASKS: dict[str, tuple[Operator, float, dict, float]] = {
    "denoise": (Identity(), 25 / 255, {"stages": 3}, 5.5),
    "deblur": (Blur(MOTION), 0.01, {"stages": 4}, 3.0),
    "upsample": (Downsample(2), 0.0, {"stages": 3}, 0.6),
    "inpaint": (Mask(SPOTS), 0.0, {"stages": 3}, 18.0),
}


def gain(operator: Operator, sigma: float, seed: int, **settings: object) -> float:
    """PSNR of the answer less that of y, m = 1,000, bank and noise of this seed."""
    model = paper_model(TRAINING, operator, sigma, m=1000, seed=seed, **settings)  # type: ignore[arg-type]
    y = degrade(CLEAN, operator, sigma, torch.Generator().manual_seed(100 + seed))
    shape = (y.shape[-2], y.shape[-1])
    clean = operator.crop(CLEAN, shape)
    start = y if y.shape == clean.shape else operator.guess(y)
    return psnr(operator.crop(restore(y, operator, model).x, shape), clean) - psnr(start, clean)


@pytest.mark.parametrize("task", TASKS)
def test_restoring_raises_psnr(task: str) -> None:
    """The Euclidean loss with Nadaraya–Watson weights."""
    operator, sigma, settings, margin = TASKS[task]
    for seed in range(3):
        assert gain(operator, sigma, seed, **settings) > margin


@pytest.mark.parametrize(("weights", "margin"), [("nw", 2.2), ("krr", 2.8)])
def test_squared_loss_raises_psnr(weights: str, margin: float) -> None:
    for seed in range(3):
        assert gain(Blur(MOTION), 0.01, seed, loss="squared", weights=weights) > margin


def test_same_seed_same_picture() -> None:
    y = degrade(CLEAN, Identity(), 0.1, torch.Generator().manual_seed(0))
    found = [
        restore(y, Identity(), paper_model(TRAINING, Identity(), 0.1, m=200, seed=5, stages=2, stride=4)).x
        for _ in range(2)
    ]
    assert torch.equal(found[0], found[1])


# Files


def small_model(**settings: object) -> Model:
    return paper_model(TRAINING, Identity(), 0.1, m=60, size=5, seed=1, stride=2, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"stages": 2},
        {"loss": "squared"},
        {"loss": "squared", "weights": "krr"},
        {"loss": "huber", "stages": 1},
        {"weights": "nystrom", "stages": 1},
        {"window": 7, "keep_dc": True, "view": "seen", "stages": 2, "splitting": "admm"},
        {"view": "seen-then-clean", "stages": 3, "solver": "sdca"},
    ],
)
def test_a_saved_model_restores_bit_for_bit(settings: dict, tmp_path: Path, one_thread: None) -> None:
    model = small_model(**settings)
    path = tmp_path / "model.safetensors"
    model.save(str(path))
    loaded = slir.load(path)
    y = degrade(CLEAN[:24, :20], Identity(), 0.1, torch.Generator().manual_seed(0))
    first, second = (
        restore(y, Identity(), each, generator=torch.Generator().manual_seed(3)) for each in (model, loaded)
    )
    assert torch.equal(first.x, second.x)
    assert first.stats == second.stats
    assert loaded.provenance == model.provenance
    assert loaded.splitting == model.splitting
    assert len({id(stage.prior) for stage in loaded.stages}) == len({id(stage.prior) for stage in model.stages})
    for own, other in zip(model.stages, loaded.stages):
        for name in ("loss", "gamma", "beta", "solver", "stride", "tol", "max_steps"):
            assert getattr(own, name) == getattr(other, name)
        assert own.prior.bank.provenance == other.prior.bank.provenance
        assert torch.equal(own.prior.bank.source, other.prior.bank.source)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_bank_that_stages_share_is_stored_once(tmp_path: Path) -> None:
    for number, settings in enumerate(({"stages": 5}, {"stages": 3, "view": "seen-then-clean"})):
        path = tmp_path / f"{number}.safetensors"
        small_model(**settings).save(str(path))
        with safetensors.safe_open(path, framework="pt") as file:
            assert sorted(file.keys()) == ["bank0.clean", "bank0.seen", "bank0.source"]


def test_the_same_model_is_the_same_file_whoever_writes_it(tmp_path: Path) -> None:
    """Also from another process, where hashes of strings fall otherwise."""
    small_model(stages=2).save(str(tmp_path / "a.safetensors"))
    script = "import sys, slir; slir.load(sys.argv[1]).save(sys.argv[2]); slir.load(sys.argv[1]).save(sys.argv[3])"
    names = [str(tmp_path / f"{name}.safetensors") for name in "abc"]
    subprocess.run([sys.executable, "-c", script, *names], check=True, env=environment(), timeout=120)
    contents = {Path(name).read_bytes() for name in names}
    assert len(contents) == 1


def test_files_that_are_no_models(tmp_path: Path) -> None:
    good = tmp_path / "good.safetensors"
    small_model(stages=1).save(str(good))
    data = good.read_bytes()

    def refuse(contents: bytes | None, *words: str) -> None:
        path = tmp_path / "bad.safetensors"
        if contents is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(contents)
        with pytest.raises(FileError) as caught:
            slir.load(path)
        for word in ("bad.safetensors", *words):
            assert word in str(caught.value)

    refuse(None, "no such model file", "slir fit")
    refuse(b"", "cannot be read as a model", "truncated")
    refuse(b"\x89PNG\r\n\x1a\n" + bytes(500), "cannot be read as a model", "another kind")
    for share in (0.001, 0.1, 0.5, 0.999):
        refuse(data[: int(share * len(data))], "cannot be read as a model", "truncated")
    with pytest.raises(FileError, match="cannot be read as a model"):
        slir.load(tmp_path)


def test_models_of_another_version_or_kind(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    small_model(stages=1).save(str(good))
    with safetensors.safe_open(good, framework="pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in sorted(file.keys())}
    header = json.loads(metadata["model"])

    def refuse(own: dict[str, str] | None, *words: str, changed: dict[str, Tensor] | None = None) -> None:
        safetensors.torch.save_file(changed or tensors, bad, metadata=own)
        with pytest.raises(FileError) as caught:
            slir.load(bad)
        for word in ("bad.safetensors", *words):
            assert word in str(caught.value)

    refuse(None, "not a slir model", "slir fit")
    refuse({"format": "pt"}, "not a slir model")
    refuse(metadata | {"version": "99", "slir": "9.9"}, "format version 99", "reads 2", "9.9", "fit it again")
    refuse({key: value for key, value in metadata.items() if key != "model"}, "do not make a model")
    refuse(metadata | {"model": "{"}, "do not make a model", "damaged")
    refuse(metadata | {"model": "[]"}, "do not make a model")
    refuse(metadata | {"model": json.dumps(header | {"stages": []})}, "do not make a model")
    for key in header.keys() - {"trust", "examples"}:  # which files of earlier versions lack
        refuse(metadata | {"model": json.dumps({k: v for k, v in header.items() if k != key})}, "do not make a model")
    lost = [dict(stage, prior=7) for stage in header["stages"]]
    refuse(metadata | {"model": json.dumps(header | {"stages": lost})}, "do not make a model")
    strange = [dict(prior, weights={"kind": "psychic"}) for prior in header["priors"]]
    refuse(metadata | {"model": json.dumps(header | {"priors": strange})}, "do not make a model")
    for key in tensors:
        left = {name: tensor for name, tensor in tensors.items() if name != key}
        refuse(metadata, "do not make a model", changed=left)
    uneven = tensors | {"bank0.seen": tensors["bank0.seen"][:-1].contiguous()}
    refuse(metadata, "do not make a model", changed=uneven)


def test_saving_where_one_cannot(tmp_path: Path) -> None:
    model = small_model(stages=1)
    with pytest.raises(FileError, match="does not exist"):
        model.save(str(tmp_path / "nowhere" / "model.safetensors"))
    with pytest.raises(FileError, match="is a folder"):
        model.save(str(tmp_path))


# Memory and devices


def test_what_is_shared_stays_shared_on_another_device() -> None:
    moved = small_model(stages=3, view="seen-then-clean").to("meta")
    assert moved.stages[1].prior is moved.stages[2].prior
    assert moved.stages[0].prior is not moved.stages[1].prior
    assert moved.stages[0].prior.bank is moved.stages[1].prior.bank
    assert moved.stages[0].prior.bank.clean.device.type == "meta"
    model = small_model(stages=2)
    assert model.to("cpu").stages[0].prior is model.stages[0].prior


def environment() -> dict[str, str]:
    """For a process of its own that imports the slir under test."""
    return os.environ | {"PYTHONPATH": str(Path(slir.__file__).parents[1]), "PYTHONWARNINGS": "error"}


MEMORY = """
import itertools
import numpy as np, skimage.data, torch
import slir.model
import slir.solvers.weiszfeld
from slir.compute import peak_memory
from slir.fitting import paper_model
from slir.operators import Identity
from slir.estimator.loop import restore

# All chunks are alike, and what one leaves behind is gone when the next begins: a few tell what all of them need.
every = slir.model.chunks
for module in (slir.model, slir.solvers.weiszfeld):
    module.chunks = lambda total, rows: itertools.islice(every(total, rows), 4)

clean = np.tile(skimage.data.coins(), (2, 2))[:321, :481]
y = torch.from_numpy(clean / 255).float() + 0.1 * torch.randn(321, 481, generator=torch.Generator().manual_seed(0))
for loss in ("squared", "euclidean"):
    model = paper_model([skimage.data.camera()], Identity(), 0.1, m=10_000, loss=loss, stages=1)
    assert len(model.stages) == 1 and len(model.stages[0].prior.bank) == 10_000 and model.stages[0].stride == 1
    assert restore(y, Identity(), model).x.shape == (321, 481)
    print(peak_memory())
"""


def test_no_array_of_bank_by_patches_is_ever_held() -> None:
    """321×481 pixels and m = 10,000: one such array alone would take 6 GB; all of the process takes less than 2."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, env=environment(), timeout=300, capture_output=True, text=True
    )
    peaks = [int(line) for line in done.stdout.split()]
    assert len(peaks) == 2
    assert max(peaks) < 2e9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("loss", ["euclidean", "squared"])
def test_cpu_and_cuda_agree(task: str, loss: str) -> None:
    operator, sigma, settings, _ = TASKS[task]
    model = paper_model(TRAINING, operator, sigma, loss=loss, m=1000, **settings)
    # To the end, as the two may stop anywhere within the tolerance.
    model = replace(model, stages=tuple(replace(stage, tol=1e-4) for stage in model.stages))
    y = degrade(CLEAN, operator, sigma, torch.Generator().manual_seed(0))
    shape = (y.shape[-2], y.shape[-1])
    clean = operator.crop(CLEAN, shape)
    on_cpu = operator.crop(restore(y, operator, model).x, shape)
    on_cuda = operator.crop(restore(y.cuda(), operator, model.to("cuda")).x, shape).cpu()
    assert abs(psnr(on_cpu, clean) - psnr(on_cuda, clean)) < 0.01
    assert psnr(on_cuda, on_cpu) > 50
