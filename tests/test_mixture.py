"""The mixture of zero-mean Gaussians: its likelihood against SciPy's, its fit against a slow EM and known truths."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch import Tensor

from reference import weights as reference
from slir_bench.peers.mixture import FLOOR, Mixture, fit_mixture, patch_basis, products, sample_patches

pytestmark = pytest.mark.usefixtures("one_thread")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def covariance(d: int, seed: int, size: float = 1.0) -> np.ndarray:
    """Full, and well conditioned."""
    root = rng(seed).normal(size=(d, d))
    return size * (root @ root.T / d + 0.3 * np.eye(d))


def dense(mixture: Mixture) -> np.ndarray:
    """The covariances, (K, d, d)."""
    axes, spread = mixture.axes.double().numpy(), mixture.spread.double().numpy()
    return np.stack([u @ np.diag(s) @ u.T for u, s in zip(axes, spread)])


def some_mixture(components: int, d: int) -> Mixture:
    weights = rng(9).dirichlet(np.full(components, 3.0))
    covariances = np.stack([covariance(d, seed, 0.2 + seed) for seed in range(components)])
    return Mixture.of(torch.from_numpy(weights), torch.from_numpy(covariances))


def scipy_joint(mixture: Mixture, features: Tensor) -> np.ndarray:
    """log π_k + log N(f; 0, Σ_k), the constant d/2·log 2π included: (K, P)."""
    d = len(features)
    points = features.double().numpy().T
    return np.stack(
        [
            np.log(weight) + multivariate_normal.logpdf(points, np.zeros(d), own).reshape(len(points))
            for weight, own in zip(mixture.weights.double().numpy(), dense(mixture))
        ]
    )


def drawn(covariances: list[np.ndarray], counts: list[int], seed: int = 0) -> Tensor:
    """Samples of each Gaussian in turn, (d, Σ counts) float32."""
    random = rng(seed)
    parts = [random.multivariate_normal(np.zeros(len(c)), c, n) for c, n in zip(covariances, counts)]
    return torch.from_numpy(np.concatenate(parts).T.copy()).float()


# Likelihood


@pytest.mark.parametrize(("components", "d", "count"), [(1, 1, 3), (1, 5, 20), (3, 2, 20), (6, 15, 40), (4, 63, 30)])
def test_log_joint_is_scipys(components: int, d: int, count: int) -> None:
    mixture = some_mixture(components, d)
    features = torch.from_numpy(rng(1).normal(size=(d, count))).float()
    found = mixture.log_joint(features)
    assert found.shape == (components, count)
    expected = scipy_joint(mixture, features) + d / 2 * math.log(2 * math.pi)
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-4)
    given = mixture.log_joint(features, products(features))
    assert torch.equal(given, found)


def test_log_joint_of_no_patches() -> None:
    assert some_mixture(3, 5).log_joint(torch.zeros(5, 0)).shape == (3, 0)


def test_products_are_all_pairs_once() -> None:
    features = torch.from_numpy(rng(2).normal(size=(4, 7)))
    expected = [features[i] * features[j] for i in range(4) for j in range(i, 4)]
    assert torch.equal(products(features), torch.stack(expected))


# The mixture as data


def test_of_keeps_covariances_and_floors_them() -> None:
    flat = np.diag([4.0, 1.0, 0.0])  # a direction in which nothing ever varies
    mixture = Mixture.of(torch.tensor([1.0]), torch.from_numpy(flat)[None])
    np.testing.assert_allclose(dense(mixture)[0], np.diag([4.0, 1.0, FLOOR]), atol=1e-6)
    assert float(mixture.spread.min()) == pytest.approx(FLOOR)
    assert torch.isfinite(mixture.log_joint(torch.ones(3, 2))).all()


def test_white_errors_widen() -> None:
    mixture = some_mixture(3, 6)
    wide = mixture.widened(0.7)
    np.testing.assert_allclose(dense(wide), dense(mixture) + 0.7 * np.eye(6), rtol=1e-5, atol=1e-5)


def test_arrays_and_load_are_inverse() -> None:
    mixture = some_mixture(3, 5)
    arrays = mixture.arrays()
    assert {name: (a.shape, a.dtype.name) for name, a in arrays.items()} == {
        "weights": ((3,), "float32"),
        "axes": ((3, 5, 5), "float32"),
        "spread": ((3, 5), "float32"),
    }
    again = Mixture.load({name: array.copy() for name, array in arrays.items()}, "cpu")
    features = torch.from_numpy(rng(4).normal(size=(5, 8))).float()
    assert torch.equal(again.log_joint(features), mixture.log_joint(features))


def test_a_fitted_mixture_outlives_a_file(tmp_path: Path) -> None:
    mixture, _ = fit_mixture(drawn([covariance(4, 1)], [500]), 2, rounds=3, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "mixture.npz", **mixture.arrays())  # type: ignore[arg-type]
    with np.load(tmp_path / "mixture.npz") as file:
        again = Mixture.load(dict(file), "cpu")
    for name, array in mixture.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)


def test_to_moves_everything() -> None:
    mixture = some_mixture(3, 5)
    moved = mixture.to("meta")
    assert {tensor.device.type for tensor in (moved.weights, moved.axes, moved.spread)} == {"meta"}
    assert moved.chunk > mixture.chunk
    stayed = mixture.to("cpu")
    for name, array in mixture.arrays().items():
        np.testing.assert_array_equal(stayed.arrays()[name], array)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cpu_and_cuda_agree() -> None:
    features = drawn([covariance(6, 1), covariance(6, 2, 9.0)], [3000, 2000])
    here, path = fit_mixture(features, 3, rounds=5, generator=torch.Generator().manual_seed(0))
    there, other = fit_mixture(features.cuda(), 3, rounds=5, generator=torch.Generator().manual_seed(0))
    assert path == pytest.approx(other, abs=1e-3)
    found = there.log_joint(features.cuda()).cpu()
    torch.testing.assert_close(found, here.log_joint(features), rtol=1e-3, atol=1e-2)


# Expectation–maximisation


def slow_em(mixture: Mixture, features: Tensor) -> tuple[np.ndarray, np.ndarray, float]:
    """One round, a patch at a time: π (K,), Σ (K, d, d), and the mean log-likelihood before it."""
    joint = scipy_joint(mixture, features)
    evidence = logsumexp(joint, axis=0)
    share = np.exp(joint - evidence)
    points = features.double().numpy().T
    covariances = []
    for own in share:
        total = np.zeros((points.shape[1],) * 2)
        for weight, point in zip(own, points):
            total += weight * np.outer(point, point)
        covariances.append(total / own.sum())
    return share.mean(1), np.stack(covariances), float(evidence.mean())


def test_a_round_is_the_slow_one() -> None:
    """The first round's start is not given out, so rounds are compared one by one from the same seed."""
    features = drawn([covariance(5, 1), covariance(5, 2, 4.0), covariance(5, 3, 0.3)], [300, 200, 250])

    def after(rounds: int) -> tuple[Mixture, list[float]]:
        return fit_mixture(features, 3, rounds=rounds, generator=torch.Generator().manual_seed(1))

    for rounds in (0, 1, 4):
        before, _ = after(rounds)
        weights, covariances, likelihood = slow_em(before, features)
        found, path = after(rounds + 1)
        np.testing.assert_allclose(found.weights.numpy(), weights, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(dense(found), covariances, rtol=1e-3, atol=1e-3)
        assert path[-1] == pytest.approx(likelihood, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("components", [2, 5, 12])
def test_the_likelihood_never_falls(components: int, seed: int) -> None:
    """Heavy tails, which no mixture of a few Gaussians fits, so that EM goes on improving."""
    random = rng(seed)
    size = np.exp(random.normal(size=(1, 2000)))
    features = torch.from_numpy(np.linalg.cholesky(covariance(8, seed)) @ random.normal(size=(8, 2000)) * size).float()
    mixture, path = fit_mixture(features, components, rounds=15, generator=torch.Generator().manual_seed(seed))
    assert len(path) == 15
    assert all(after >= before - 1e-4 for before, after in itertools.pairwise(path))
    assert path[-1] > path[0] + 0.05
    assert float(mixture.weights.sum()) == pytest.approx(1, abs=1e-5)
    final = logsumexp(scipy_joint(mixture, features), axis=0).mean()
    assert final >= path[-1] - 1e-4  # the path holds what was before each round


@pytest.mark.parametrize("seed", range(3))
def test_two_covariances_are_recovered(seed: int) -> None:
    """One long along an axis, the other long across it, a third of the samples in the first."""
    turn, _ = np.linalg.qr(rng(seed).normal(size=(6, 6)))
    one = turn @ np.diag([9.0, 9, 9, 0.1, 0.1, 0.1]) @ turn.T
    two = turn @ np.diag([0.1, 0.1, 0.1, 4.0, 4, 4]) @ turn.T
    features = drawn([one, two], [4000, 8000], seed)
    mixture, _ = fit_mixture(features, 2, rounds=30, generator=torch.Generator().manual_seed(seed))
    order = np.argsort(mixture.weights.numpy())
    np.testing.assert_allclose(mixture.weights.numpy()[order], [1 / 3, 2 / 3], atol=0.01)
    for found, truth in zip(dense(mixture)[order], (one, two)):
        assert np.linalg.norm(found - truth) < 0.08 * np.linalg.norm(truth)  # 0.03 is what sampling leaves
    sides = mixture.log_joint(features).argmax(0).numpy() == order[0]
    assert sides[:4000].mean() > 0.98
    assert sides[4000:].mean() < 0.02


def test_one_component_is_the_second_moment() -> None:
    features = drawn([covariance(7, 3)], [900]) + 0.5  # the mean is not taken away
    mixture, _ = fit_mixture(features, 1, rounds=1, generator=torch.Generator().manual_seed(0))
    points = features.double().numpy()
    np.testing.assert_allclose(dense(mixture)[0], points @ points.T / 900, rtol=1e-4, atol=1e-5)
    assert float(mixture.weights) == 1


@pytest.mark.parametrize("chunk", [1, 7, 100, 101, 4096])
def test_chunks_do_not_matter(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features = drawn([covariance(4, 1), covariance(4, 2, 5.0)], [50, 51])

    def fit() -> tuple[Mixture, list[float]]:
        return fit_mixture(features, 2, rounds=3, generator=torch.Generator().manual_seed(0))

    expected, path = fit()
    monkeypatch.setattr(Mixture, "chunk", chunk)
    found, other = fit()
    assert other == pytest.approx(path, abs=1e-5)
    np.testing.assert_allclose(found.weights.numpy(), expected.weights.numpy(), atol=1e-5)
    np.testing.assert_allclose(dense(found), dense(expected), rtol=1e-4, atol=1e-4)


def test_the_default_chunk_is_crossed() -> None:
    """2,048 columns and one more: the last one counts as the others do."""
    features = drawn([np.eye(2)], [2049])
    assert some_mixture(1, 2).chunk == 2048
    features[:, -1] = 1000.0
    mixture, _ = fit_mixture(features, 1, rounds=1, generator=torch.Generator().manual_seed(0))
    assert dense(mixture)[0, 0, 1] == pytest.approx(1e6 / 2049, rel=0.01)


def test_the_same_seed_gives_the_same_mixture() -> None:
    features = drawn([covariance(6, s, 1.0 + s) for s in range(4)], [300] * 4)

    def fit(seed: int) -> dict[str, np.ndarray]:
        return fit_mixture(features, 8, rounds=4, generator=torch.Generator().manual_seed(seed))[0].arrays()

    torch.manual_seed(0)
    one = fit(5)
    torch.manual_seed(1)
    two, other = fit(5), fit(6)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert not np.array_equal(one["spread"], other["spread"])


@pytest.mark.parametrize(
    "features",
    [
        torch.zeros(5, 40),
        torch.ones(5, 3),
        torch.eye(5),
    ],
)
def test_poor_data_still_make_a_mixture(features: Tensor) -> None:
    """Nothing but flat patches, fewer patches than components, or one of each."""
    mixture, path = fit_mixture(features, 6, rounds=5, generator=torch.Generator().manual_seed(0))
    assert len(mixture.weights) == 6
    assert np.isfinite(path).all()
    assert all(np.isfinite(array).all() for array in mixture.arrays().values())
    assert torch.isfinite(mixture.log_joint(features)).all()


# Patches


def test_the_basis_is_the_dct_without_its_mean() -> None:
    patch = rng(6).normal(size=(4, 4))
    found = patch_basis(4).double().numpy() @ patch.ravel()
    np.testing.assert_allclose(found, reference.dct(patch).ravel()[1:], atol=1e-6)


def test_sampled_patches_are_patches_of_their_images() -> None:
    images = [rng(seed).random((9, 12)).astype(np.float32) for seed in range(3)]
    features = sample_patches(images, 30, 4, seed=0)
    assert features.shape == (15, 30)
    for number, image in enumerate(images):
        every = [image[i : i + 4, j : j + 4].ravel() for i in range(6) for j in range(9)]
        known = patch_basis(4).numpy() @ np.stack(every, 1)
        for column in features[:, 10 * number : 10 * number + 10].numpy().T:
            assert np.abs(known - column[:, None]).max(0).min() < 1e-5
    assert torch.equal(features, sample_patches(images, 30, 4, seed=0))
    assert not torch.equal(features, sample_patches(images, 30, 4, seed=1))
