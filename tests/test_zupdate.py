"""The solvers of the z-update: against slow references, against each other, and what each of them promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reference import zupdate as reference
from slir.errors import InputError
from slir.losses import Euclidean, Huber, Loss, Squared, energy
from slir.solvers import pulls as pulls_module
from slir.solvers import weiszfeld as weiszfeld_module
from slir.solvers.dual_free_sdca import dual_free_sdca
from slir.solvers.newton import newton
from slir.solvers.sdca import sdca
from slir.solvers.solution import Solution, Verdict
from slir.solvers.weiszfeld import weiszfeld

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES: list[Loss] = [Squared(), Euclidean(), Huber()]
DTYPES = [torch.float32, torch.float64]
Problem = tuple[Tensor, Tensor, Tensor]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def patches(count: int, k: int, seed: int) -> Tensor:
    return 0.5 + 0.2 * torch.randn(count, k, generator=seeded(seed), dtype=torch.float64)


def problem(m: int, k: int, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Problem:
    """Six patches, with Nadaraya-Watson weights from flat to very peaked, and (the last) with nine in ten zero."""
    bank = patches(m, k, seed)
    x = bank[torch.randint(m, (6,), generator=seeded(seed + 1))] + 0.25 * (patches(6, k, seed + 2) - 0.5)
    squared = torch.cdist(x, bank).square()
    sharpness = torch.tensor([0.0, 0.5, 2.0, 8.0, 30.0, 4.0], dtype=torch.float64)[:, None]
    alpha = torch.softmax(-sharpness * squared / squared.median(), 1)
    alpha[5] *= torch.arange(m) % 10 == 0
    alpha[5] /= alpha[5].sum()
    return alpha.to(dtype), bank.to(dtype), x.to(dtype)


def signed_problem(m: int, k: int, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Problem:
    alpha, bank, x = problem(m, k, seed=seed)
    alpha = alpha + 0.5 / m * torch.randn(alpha.shape, generator=seeded(seed + 3), dtype=torch.float64)
    return alpha.to(dtype), bank.to(dtype), x.to(dtype)


def solve(name: str, loss: Loss, data: Problem, beta: float) -> Solution:
    """Each solver with tolerances at which z is good to well below 1e-4."""
    if name == "weiszfeld":
        return weiszfeld(loss, *data, beta, tol=1e-5, max_steps=500)
    if name == "newton":
        return newton(loss, *data, beta)
    if name == "dual_free":
        tol = 1e-5 if data[2].dtype == torch.float64 else 3e-5
        return dual_free_sdca(loss, *data, beta, tol=tol, generator=seeded(7))
    # The gap bounds β/2 ‖z − z*‖², so 1e-5 of the energy gives only about three digits of z, and fewer for small β.
    tol = 1e-8 if data[2].dtype == torch.float64 else 1e-7 if beta < 1 else 3e-7
    return sdca(*data, beta, sampling=name, tol=tol, generator=seeded(7))


def solvers_of(loss: Loss) -> list[str]:
    return ["weiszfeld", "newton", "dual_free"] + (["gap", "uniform"] if isinstance(loss, Euclidean) else [])


def difference(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


# ---------------------------------------------------------------------------------------------- against the references


@pytest.mark.parametrize(("loss", "name"), [(loss, name) for loss in LOSSES for name in solvers_of(loss)])
def test_matches_scipy(loss: Loss, name: str) -> None:
    data = problem(20, 3, seed=1)
    for beta in (0.5, 3.0):
        found = solve(name, loss, data, beta)
        assert found.converged
        for alpha, x, z in zip(data[0].numpy(), data[2].numpy(), found.value.numpy()):
            expected = reference.minimum(loss.name, alpha, data[1].numpy(), x, beta)
            np.testing.assert_allclose(z, expected, atol=1e-4)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 6), beta=st.sampled_from([0.5, 3.0, 100.0]))
def test_matches_brute_force_on_a_line(seed: int, m: int, beta: float) -> None:
    """One dimension is the hardest: the Euclidean energy is piecewise quadratic, and its minimum is often a kink."""
    bank, x = patches(m, 1, seed), patches(1, 1, seed + 1)
    alpha = torch.rand(1, m, generator=seeded(seed), dtype=torch.float64)
    for loss in (Euclidean(), Huber()):
        expected = reference.minimum_on_a_line(loss.name, alpha[0].numpy(), bank[:, 0].numpy(), float(x), beta)
        found = [weiszfeld(loss, alpha, bank, x, beta, tol=1e-6, max_steps=20_000), newton(loss, alpha, bank, x, beta)]
        if isinstance(loss, Euclidean):
            found.append(sdca(alpha, bank, x, beta, tol=1e-9, max_steps=10_000, generator=seeded(0)))
        for solution in found:
            assert float(solution.value) == pytest.approx(expected, abs=3e-4)


# ------------------------------------------------------------------------------------------------------------ agreement


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("beta", [0.5, 3.0, 100.0])
@pytest.mark.parametrize(("m", "k"), [(50, 4), (100, 64), (400, 16)])
def test_solvers_agree(m: int, k: int, beta: float, dtype: torch.dtype) -> None:
    data, exact = problem(m, k, dtype=dtype), problem(m, k)
    for loss in (Euclidean(), Huber()):
        expected = newton(loss, *exact, beta, tol=1e-9)
        assert expected.converged
        names = solvers_of(loss)
        if m > 100:
            names = [name for name in names if name not in ("uniform", "dual_free")]  # they take their time
        for name in names:
            found = solve(name, loss, data, beta)
            assert found.converged, (name, found.stats)
            assert found.value.dtype == dtype
            assert difference(found.value, expected.value) < 1e-4, name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("beta", [3.0, 100.0])
def test_signed_weights(beta: float, dtype: torch.dtype) -> None:
    data, exact = signed_problem(50, 64, dtype=dtype, seed=2), signed_problem(50, 64, seed=2)
    for loss in LOSSES:
        expected = newton(loss, *exact, beta, tol=1e-9)
        assert expected.converged
        assert expected.stats["indefinite"] == 0  # the energy is convex where it was looked at
        assert difference(newton(loss, *data, beta).value, expected.value) < 1e-4
        stochastic = solve("dual_free", loss, data, beta)
        assert stochastic.converged
        assert difference(stochastic.value, expected.value) < 1e-4


def test_newton_goes_down_where_the_energy_is_not_convex() -> None:
    alpha, bank, x = problem(50, 8)
    alpha = alpha * torch.where(torch.arange(50) % 2 == 0, 30.0, -30.0)
    found = newton(Euclidean(), alpha, bank, x, 0.5)
    assert found.stats["indefinite"] > 0
    assert bool(
        (energy(Euclidean(), alpha, bank, x, 0.5, found.value) <= energy(Euclidean(), alpha, bank, x, 0.5, x)).all()
    )


class PseudoHuber(Loss):
    """A loss that no solver knows by name: φ(d) = √(d² + δ²)."""

    name = "pseudo-huber"

    def value(self, distance: Tensor) -> Tensor:
        return (distance.square() + 0.01).sqrt()

    def weight(self, distance: Tensor) -> Tensor:
        return (distance.square() + 0.01).rsqrt()

    def weight_slope(self, distance: Tensor) -> Tensor:
        return -(distance.square() + 0.01).pow(-1.5)


def test_any_loss() -> None:
    data, loss = problem(50, 8), PseudoHuber()
    assert difference(solve("weiszfeld", loss, data, 0.5).value, newton(loss, *data, 0.5).value) < 1e-4


# ------------------------------------------------------------------------------------------------------------- the kink


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("copies", [1, 3, 12])
@pytest.mark.parametrize("name", ["weiszfeld", "newton", "dual_free", "gap", "uniform"])
def test_minimum_at_a_bank_patch(name: str, copies: int, dtype: torch.dtype) -> None:
    """xⁱ is the minimum if and only if the others pull with less than αᵢ there; copies of xⁱ share that α."""
    bank = patches(40, 16, 0)
    bank[1:copies] = bank[0]
    alpha = torch.full((2, 40), 0.3 / 40, dtype=torch.float64)
    alpha[:, :copies] = 0.7 / copies
    x = bank[:2] * 0.9 + 0.1 * bank[30:32]
    x[1] = bank[0] + 0.1  # β‖x − x⁰‖ = 1.2 > 0.7: beyond the kink's hold
    found = solve(name, Euclidean(), (alpha.to(dtype), bank.to(dtype), x.to(dtype)), 3.0)
    assert found.converged
    exact = name in ("newton", "dual_free") or (name, copies) == ("weiszfeld", 1)
    assert difference(found.value[0], bank[0]) < (1e-6 if exact else 1e-4)
    assert difference(found.value[1], bank[0]) > 1e-3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weiszfeld_leaves_a_bank_patch_that_is_not_the_minimum(dtype: torch.dtype) -> None:
    """The plain fixed point divides by zero there, or with a floor under the distance hardly moves."""
    alpha, bank, x = problem(50, 16, dtype=dtype)
    expected = newton(Euclidean(), *problem(50, 16), 3.0)
    for start in (bank[:6], bank[alpha.argmax(1)], bank.mean(0).expand(6, -1)):
        found = weiszfeld(Euclidean(), alpha, bank, x, 3.0, tol=1e-5, start=start)
        assert found.converged
        assert difference(found.value, expected.value) < 1e-4


# ----------------------------------------------------------------------------------------------- what each one promises


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_squared_loss_is_exact_in_one_step(dtype: torch.dtype) -> None:
    alpha, bank, x = problem(60, 9, dtype=dtype)
    found = weiszfeld(Squared(), alpha, bank, x, 3.0)
    assert found.stats["steps"] == 1
    assert difference(found.value, (3.0 * x + alpha @ bank) / (3.0 + alpha.sum(1, keepdim=True))) < 1e-6


def test_squared_energy_is_a_parabola_about_the_mean() -> None:
    """Σᵢ αᵢ‖z − xⁱ‖²/2 = (Σα)/2 ‖z − z̄‖² + a constant, z̄ = Σαᵢxⁱ/Σα, also for signed weights."""
    alpha, bank, x = signed_problem(60, 9)
    total = alpha.sum(1)
    mean = alpha @ bank / total[:, None]

    def rest(z: Tensor) -> Tensor:
        return energy(Squared(), alpha, bank, x, 0.0, z) - total / 2 * (z - mean).square().sum(1)

    torch.testing.assert_close(rest(x), rest(mean), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(rest(x + 3), rest(mean), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sampling", ["gap", "uniform"])
def test_sdca_gap(sampling: str, dtype: torch.dtype) -> None:
    """The gap is never negative, shrinks, reaches 1e-5 of the energy, and bounds the error of energy and of z."""
    data, beta = problem(100, 16, dtype=dtype), 0.5
    history: list[tuple[int, Tensor]] = []
    found = sdca(
        *data, beta, sampling=sampling, generator=seeded(0), on_refresh=lambda s, g: history.append((s, g.clone()))
    )
    assert found.converged
    assert found.stats["gap"] <= 1e-5
    gaps = torch.stack([gap for _, gap in history])
    rounding = 10 * torch.finfo(dtype).eps * float(gaps[0].max())
    assert float(gaps.min()) >= -rounding
    assert bool((gaps[-1] < 1e-3 * gaps[0]).all())
    assert bool((gaps[len(gaps) // 2] < gaps[0]).all())
    assert history[-1][0] == found.stats["steps"]
    exact = problem(100, 16)
    best = newton(Euclidean(), *exact, beta, tol=1e-9).value
    floor = energy(Euclidean(), *exact, beta, best)
    for steps in (25, 100, 400, 100_000):
        gap: list[Tensor] = []
        z = sdca(
            *data,
            beta,
            sampling=sampling,
            max_steps=steps,
            generator=seeded(0),
            on_refresh=lambda _, g, to=gap: to.append(g),
        ).value.double()
        bound = gap[-1].double() + rounding
        assert bool((energy(Euclidean(), *exact, beta, z) - floor <= bound).all())
        assert bool((beta / 2 * (z - best).square().sum(1) <= bound).all())


def test_gap_sampling_needs_fewer_steps() -> None:
    data = problem(200, 16)
    steps = {name: sdca(*data, 0.5, sampling=name, generator=seeded(0)).stats["steps"] for name in ("gap", "uniform")}
    assert steps["gap"] < steps["uniform"]


@pytest.mark.parametrize("solver", [sdca, lambda *a, **k: dual_free_sdca(Euclidean(), *a, **k)])
def test_same_generator_same_answer(solver) -> None:  # type: ignore[no-untyped-def]
    data = problem(50, 4)
    assert torch.equal(*(solver(*data, 100.0, generator=seeded(3)).value for _ in range(2)))


def test_weiszfeld_blocks_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha, bank, x = problem(50, 16)
    together = weiszfeld(Euclidean(), alpha, bank, x, 0.5).value
    alone = torch.cat([weiszfeld(Euclidean(), alpha[i : i + 1], bank, x[i : i + 1], 0.5).value for i in range(6)])
    monkeypatch.setattr(weiszfeld_module, "rows_per_block", lambda length, device: max(1, 200 // length))
    blocks = weiszfeld(Euclidean(), alpha, bank, x, 0.5).value
    assert difference(together, alone) < 1e-12
    assert difference(together, blocks) < 1e-12


def test_weiszfeld_asks_for_weights_when_their_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """α as a function of the patches is α, on one thread and on several; and is checked all the same."""
    alpha, bank, x = problem(50, 16)
    expected = weiszfeld(Euclidean(), alpha, bank, x, 0.5)
    monkeypatch.setattr(weiszfeld_module, "rows_per_block", lambda length, device: 2)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        asked: list[slice] = []

        def some(rows: slice, asked: list[slice] = asked) -> Tensor:
            asked.append(rows)
            return alpha[rows]

        found = weiszfeld(Euclidean(), some, bank, x, 0.5)
        assert sorted(rows.start for rows in asked) == [0, 2, 4]
        assert difference(found.value, expected.value) < 1e-12
        with pytest.raises(InputError, match="non-negative"):
            weiszfeld(Euclidean(), lambda rows: -alpha[rows], bank, x, 0.5)
        with pytest.raises(InputError, match="finite"):
            weiszfeld(Euclidean(), lambda rows: alpha[rows] * torch.nan, bank, x, 0.5)
    for loss in (Squared(), Euclidean()):
        empty = weiszfeld(loss, lambda rows: alpha[:0], bank, x[:0], 0.5)
        assert empty.value.shape == (0, 16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("beta", [0.5, 48.0])
@pytest.mark.parametrize("share", [0.2, 5.0])
def test_weiszfeld_leaves_out_what_is_negligible(
    share: float, beta: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the bank has less weight than may be lost, or more; what is lost is told, and the error holds."""
    monkeypatch.setattr(pulls_module, "columns_in_cache", lambda rows, like: 500)
    tol, bank, x = 1e-3, patches(2000, 16, 0), patches(30, 16, 1)
    mean = bank.mean(0)
    scale = ((bank - mean).square().sum(1).mean() + (x - mean).square().sum(1)).sqrt()
    most = weiszfeld_module.NEGLIGIBLE * tol * beta * scale
    alpha = torch.softmax(-20 * torch.cdist(x, bank), 1)
    alpha[:, 1000:] *= share * most[:, None] / alpha[:, 1000:].sum(1, keepdim=True)
    exact = newton(Euclidean(), alpha, bank, x, beta, tol=1e-9).value
    found = weiszfeld(Euclidean(), alpha.to(dtype), bank.to(dtype), x.to(dtype), beta, tol=tol)
    assert found.converged
    assert float((torch.linalg.vector_norm(found.value.double() - exact, dim=1) / scale).max()) < tol
    if share > 1:
        assert found.stats["dropped"] == 0
    else:
        assert 0 < found.stats["dropped"] <= float(most.max())
        assert found.stats["error"] >= found.stats["dropped"] / beta / float(scale.max())


def test_nothing_is_left_out_where_pulls_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steep(PseudoHuber):
        """φ(d) = d³/3."""

        def value(self, distance: Tensor) -> Tensor:
            return distance**3 / 3

        def weight(self, distance: Tensor) -> Tensor:
            return distance

    monkeypatch.setattr(pulls_module, "columns_in_cache", lambda rows, like: 500)
    bank, x = patches(2000, 4, 0), patches(3, 4, 1)
    alpha = torch.full((3, 2000), 1e-9, dtype=torch.float64)
    alpha[:, :500] = 1 / 500
    assert weiszfeld(Steep(), alpha, bank, x, 1.0).stats["dropped"] == 0
    assert weiszfeld(Euclidean(), alpha, bank, x, 1.0).stats["dropped"] > 0


def test_no_solver_changes_its_arguments() -> None:
    data = problem(50, 4)
    before = [tensor.clone() for tensor in data]
    for name in solvers_of(Euclidean()):
        solve(name, Euclidean(), data, 100.0)
    assert all(torch.equal(one, other) for one, other in zip(data, before))


def test_step_limits_are_verdicts() -> None:
    data = problem(50, 16)
    assert weiszfeld(Euclidean(), *data, 0.5, tol=1e-12, max_steps=2).verdict is Verdict.STEP_LIMIT
    assert newton(Huber(), *data, 0.5, tol=1e-12, max_steps=1).verdict is Verdict.STEP_LIMIT
    assert sdca(*data, 0.5, max_steps=10).verdict is Verdict.STEP_LIMIT
    assert dual_free_sdca(Euclidean(), *data, 0.5, max_passes=1).verdict is Verdict.STEP_LIMIT


def test_degenerate_problems() -> None:
    alpha, bank, x = problem(50, 4)
    for name in solvers_of(Euclidean()):
        empty = solve(name, Euclidean(), (alpha[:0], bank, x[:0]), 3.0)
        assert empty.converged
        assert empty.value.shape == (0, 4)
        unweighted = solve(name, Euclidean(), (torch.zeros_like(alpha), bank, x), 3.0)
        assert unweighted.converged
        assert difference(unweighted.value, x) < 1e-12
        single = solve(name, Euclidean(), (torch.full_like(alpha[:, :1], 0.1), bank[:1], x), 3.0)
        gap = torch.linalg.vector_norm(x - bank[0], dim=1, keepdim=True)
        expected = bank[0] + (1 - 0.1 / (3 * gap)).clamp_min(0) * (x - bank[0])
        assert difference(single.value, expected) < 1e-4, name


# ------------------------------------------------------------------------------------------------------------ bad input


BAD: list[tuple[str, dict[str, object]]] = [
    ("beta", {"beta": 0.0}),
    ("beta", {"beta": float("nan")}),
    ("alpha", {"alpha": torch.ones(3, 4)}),
    ("x", {"x": torch.ones(2, 5)}),
    ("x", {"x": torch.ones(3)}),
    ("bank", {"bank": torch.ones(4)}),
    ("bank", {"bank": torch.ones(0, 3), "alpha": torch.ones(2, 0)}),
    ("alpha", {"alpha": torch.ones(2, 4, dtype=torch.float64)}),
    ("alpha", {"alpha": torch.ones(2, 4, dtype=torch.int64)}),
    ("bank", {"bank": torch.ones(4, 3, device="meta")}),
    ("alpha", {"alpha": torch.full((2, 4), torch.nan)}),
    ("bank", {"bank": torch.full((4, 3), torch.inf)}),
    ("x", {"x": torch.full((2, 3), torch.nan)}),
]


@pytest.mark.parametrize("name", ["weiszfeld", "newton", "dual_free", "gap"])
@pytest.mark.parametrize(("argument", "change"), BAD)
def test_bad_problems_are_named(name: str, argument: str, change: dict[str, object]) -> None:
    good = {"alpha": torch.ones(2, 4), "bank": torch.ones(4, 3), "x": torch.ones(2, 3), "beta": 1.0}
    given_ = {**good, **change}
    with pytest.raises(InputError) as raised:
        solve(name, Euclidean(), (given_["alpha"], given_["bank"], given_["x"]), given_["beta"])  # type: ignore[arg-type]
    assert raised.value.argument == argument


def test_bad_settings_are_named() -> None:
    alpha, bank, x = problem(10, 4)
    with pytest.raises(InputError, match="newton or dual_free_sdca"):
        weiszfeld(Euclidean(), -alpha, bank, x, 1.0)
    with pytest.raises(InputError, match="non-negative"):
        sdca(-alpha, bank, x, 1.0)
    with pytest.raises(InputError, match="max_steps"):
        weiszfeld(Euclidean(), alpha, bank, x, 1.0, max_steps=0)
    with pytest.raises(InputError, match="start"):
        weiszfeld(Euclidean(), alpha, bank, x, 1.0, start=x[:1])
    with pytest.raises(InputError, match="sampling"):
        sdca(alpha, bank, x, 1.0, sampling="greedy")
    with pytest.raises(InputError, match="refresh"):
        sdca(alpha, bank, x, 1.0, refresh=0)
    with pytest.raises(InputError, match="max_steps"):
        newton(Euclidean(), alpha, bank, x, 1.0, max_steps=0)
    with pytest.raises(InputError, match="smoothing"):
        dual_free_sdca(Euclidean(), alpha, bank, x, 1.0, smoothing=-1.0)
