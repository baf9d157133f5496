"""Kernels, weights and features: against loops, scikit-learn, SciPy and dense solves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from torch import Tensor

from reference import patches as reference_patches
from reference import weights as reference
from slir.descriptors import DctDescriptor, bandwidth, dct_basis
from slir.errors import InputError
from slir.patches import PatchGrid
from slir.weights import Kernel, KernelRidge, NadarayaWatson, Nystrom, Weights
from slir.weights import kernel_ridge as kernel_ridge_module
from slir.weights.kernels import squared_distances

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = ["gaussian", "laplacian"]
DTYPES = [torch.float32, torch.float64]


def rows(count: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.1, 0.3, (count, d))).to(dtype)


def centred(count: int, k: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    patches = rows(count, k, seed, dtype)
    return patches - patches.mean(1, keepdim=True)


# Kernels


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_are_the_loop_and_scikit_learn(name: str, dtype: torch.dtype) -> None:
    a, b = rows(7, 5, 0, dtype), rows(9, 5, 1, dtype)
    kernel = Kernel(name, 0.8)
    found = kernel.gram(a, b)
    assert found.dtype == dtype
    near = {"rtol": 0, "atol": 1e-6 if dtype == torch.float32 else 1e-13}
    expected = reference.kernel(name, 0.8, a.double().numpy(), b.double().numpy())
    np.testing.assert_allclose(found.double().numpy(), expected, **near)
    if name == "gaussian":
        theirs = rbf_kernel(a.double().numpy(), b.double().numpy(), gamma=1 / (2 * 0.8**2))
    else:
        theirs = np.exp(-euclidean_distances(a.double().numpy(), b.double().numpy()) / 0.8)
    np.testing.assert_allclose(found.double().numpy(), theirs, **near)
    torch.testing.assert_close(kernel.log(a, b).exp(), found, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_point_is_as_near_to_itself_as_rounding_allows(name: str, dtype: torch.dtype) -> None:
    a = rows(50, 63, 0, dtype) + 3
    value = Kernel(name, 2.0).gram(a, a).diagonal()
    # Squared distances are exact up to ε‖a‖², and the Laplacian kernel sees their root.
    error = torch.finfo(dtype).eps * float(a.square().sum(1).max())
    assert float((1 - value).max()) < (10 * error if name == "gaussian" else 4 * error**0.5)
    assert float(value.max()) <= 1
    assert float(squared_distances(a, a).min()) >= 0


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.sampled_from(KERNELS))
def test_kernels_for_any_size(c: int, m: int, d: int, name: str) -> None:
    a, b = rows(c, d, 0), rows(m, d, 1)
    expected = reference.kernel(name, 0.5, a.numpy(), b.numpy())
    np.testing.assert_allclose(Kernel(name, 0.5).gram(a, b).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "width", "words"),
    [
        ("cosine", 1.0, ("kernel", "'gaussian' or 'laplacian'", "'cosine'", "Pick")),
        ("gaussian", 0.0, ("bandwidth", "positive", "0.0", "richer images")),
        ("gaussian", -1.0, ("bandwidth", "positive", "-1.0", "richer images")),
        ("laplacian", float("nan"), ("bandwidth", "positive", "nan", "richer images")),
    ],
)
def test_bad_kernels(name: str, width: float, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        Kernel(name, width)
    for word in words:
        assert word in str(caught.value)


def test_a_bank_of_equal_patches_is_refused() -> None:
    with pytest.raises(InputError, match="richer images"):
        NadarayaWatson().fit(torch.ones(10, 4), torch.ones(10, 4))


# The bandwidth rule


@pytest.mark.parametrize("dtype", DTYPES)
def test_bandwidth_is_the_papers_rule(dtype: torch.dtype) -> None:
    features = rows(200, 6, 3, dtype) * torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=dtype)
    expected = 0.2 * np.linalg.norm(np.std(features.double().numpy(), axis=0))
    assert bandwidth(features, 0.2) == pytest.approx(expected, rel=1e-9)
    assert bandwidth(features) == pytest.approx(expected, rel=1e-9)
    for weights in (NadarayaWatson(s=0.3), KernelRidge(s=0.3), Nystrom(s=0.3)):
        assert weights.fit(features, features).kernel.bandwidth == pytest.approx(1.5 * expected, rel=1e-9)  # type: ignore[attr-defined]


# Nadaraya–Watson


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nadaraya_watson_is_the_loop(name: str, dtype: torch.dtype) -> None:
    features, clean, seen = rows(40, 6, 0, dtype), centred(40, 9, 1, dtype), rows(11, 6, 2, dtype)
    fitted = NadarayaWatson(s=0.5, kernel=name).fit(features, clean)
    values = reference.kernel(name, fitted.kernel.bandwidth, seen.double().numpy(), features.double().numpy())
    expected = reference.nadaraya_watson(values)
    near = {"rtol": 0, "atol": 2e-6 if dtype == torch.float32 else 1e-12}
    alpha = fitted.alpha(seen)
    assert alpha.dtype == dtype
    np.testing.assert_allclose(alpha.double().numpy(), expected, **near)
    total, weighted = fitted.moments(seen)
    np.testing.assert_allclose(total.double().numpy(), expected.sum(1), **near)
    np.testing.assert_allclose(weighted.double().numpy(), expected @ clean.double().numpy(), **near)
    assert not fitted.signed


@settings(max_examples=40)
@given(
    st.integers(2, 30),
    st.integers(1, 8),
    st.floats(1e-3, 1e3),
    st.floats(0, 1e3),
    st.sampled_from(KERNELS),
    st.sampled_from(DTYPES),
)
def test_nadaraya_watson_is_a_distribution(
    m: int, d: int, s: float, away: float, name: str, dtype: torch.dtype
) -> None:
    fitted = NadarayaWatson(s=s, kernel=name).fit(rows(m, d, 0, dtype), centred(m, 4, 1, dtype))
    alpha = fitted.alpha(rows(5, d, 2, dtype) + away)
    assert bool(torch.isfinite(alpha).all())
    assert float(alpha.min()) >= 0
    torch.testing.assert_close(alpha.sum(1), torch.ones(5, dtype=dtype), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_far_queries_follow_the_nearest_patch(dtype: torch.dtype) -> None:
    """Where every kernel value underflows, v / 1ᵀv would be 0/0."""
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=dtype)
    fitted = NadarayaWatson(s=0.05).fit(features, torch.eye(3, dtype=dtype))
    query = torch.tensor([[60.0, -1.0]], dtype=dtype)
    assert float(fitted.kernel.gram(query, features).max()) == 0
    np.testing.assert_allclose(fitted.alpha(query).numpy(), [[0, 1, 0]], atol=1e-6)


def test_bandwidth_from_copying_to_averaging() -> None:
    features, clean = rows(30, 4, 0), centred(30, 9, 1)
    copying = NadarayaWatson(s=1e-3).fit(features, clean).moments(features[:5])[1]
    torch.testing.assert_close(copying, clean[:5], rtol=0, atol=1e-12)
    averaging = NadarayaWatson(s=1e6).fit(features, clean).moments(features[:5])[1]
    torch.testing.assert_close(averaging, clean.mean(0).expand(5, -1), rtol=0, atol=1e-9)


# Kernel ridge


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lam", [1e-1, 1e-4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_ridge_solves_the_dense_system(name: str, lam: float, dtype: torch.dtype) -> None:
    features, clean, seen = rows(40, 6, 0, dtype), centred(40, 9, 1, dtype), rows(11, 6, 2, dtype)
    fitted = KernelRidge(lam=lam, s=0.8, kernel=name).fit(features, clean)
    points, queries = features.double().numpy(), seen.double().numpy()
    width = fitted.kernel.bandwidth
    gram, values = reference.kernel(name, width, points, points), reference.kernel(name, width, queries, points)
    expected = reference.kernel_ridge(gram, values, lam)
    # The root in the Laplacian kernel leaves 1e-8 of the rounding of squared distances, at the diagonal.
    exact = 1e-9 if name == "gaussian" else 1e-7
    near = {"rtol": 0, "atol": 5e-6 if dtype == torch.float32 else exact}
    alpha = fitted.alpha(seen)
    assert alpha.dtype == dtype
    np.testing.assert_allclose(alpha.double().numpy(), expected, **near)
    assert fitted.signed
    assert float(alpha.min()) < 0
    # The moments take a short cut that never forms α.
    total, weighted = fitted.moments(seen)
    near["atol"] = 5e-5 if dtype == torch.float32 else exact
    np.testing.assert_allclose(total.double().numpy(), expected.sum(1), **near)
    np.testing.assert_allclose(weighted.double().numpy(), expected @ clean.double().numpy(), **near)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_ridge_predicts_as_scikit_learn(name: str) -> None:
    features, clean, seen = rows(60, 6, 0), centred(60, 9, 1), rows(20, 6, 2)
    lam = 1e-3
    fitted = KernelRidge(lam=lam, s=0.8, kernel=name).fit(features, clean)
    theirs = SklearnKernelRidge(alpha=60 * lam, kernel="precomputed")
    theirs.fit(reference.kernel(name, fitted.kernel.bandwidth, features.numpy(), features.numpy()), clean.numpy())
    expected = theirs.predict(reference.kernel(name, fitted.kernel.bandwidth, seen.numpy(), features.numpy()))
    np.testing.assert_allclose(fitted.moments(seen)[1].numpy(), expected, rtol=0, atol=1e-7)


def test_a_wide_gaussian_kernel_is_linear_regression() -> None:
    """Clean patches that depend linearly on what is seen are predicted from a wide kernel and a small ridge."""
    features, seen = rows(200, 3, 0), rows(20, 3, 1)
    maps = rows(3, 4, 2)
    fitted = KernelRidge(lam=1e-12, s=20).fit(features, features @ maps)
    torch.testing.assert_close(fitted.moments(seen)[1], seen @ maps, rtol=0, atol=1e-3)


def test_a_large_ridge_silences_the_bank() -> None:
    features, clean = rows(40, 6, 0), centred(40, 9, 1)
    totals = [KernelRidge(lam=lam).fit(features, clean).moments(features)[0].mean() for lam in (1e-4, 1e-1, 1e3)]
    assert totals[0] > totals[1] > totals[2]
    assert float(totals[2]) < 1e-2
    assert float(totals[0]) == pytest.approx(1, abs=0.05)


def test_weights_are_linear_in_the_clean_patches() -> None:
    features, a, b, seen = rows(40, 6, 0), centred(40, 9, 1), centred(40, 9, 2), rows(7, 6, 3)
    for weights in (NadarayaWatson(s=0.5), KernelRidge(lam=1e-3), Nystrom(lam=1e-3, centres=10)):

        def predict(clean: Tensor, weights: Weights = weights) -> Tensor:
            return weights.fit(features, clean).moments(seen)[1]

        torch.testing.assert_close(predict(2 * a - 3 * b), 2 * predict(a) - 3 * predict(b), rtol=0, atol=1e-8)


# Nyström


@pytest.mark.parametrize("name", KERNELS)
def test_nystrom_with_all_centres_is_exact(name: str) -> None:
    """Up to its normal equations, which square the condition number: about that of K times 10⁻¹², by the jitter."""
    features, clean, seen = rows(80, 6, 0), centred(80, 9, 1), rows(20, 6, 2)
    exact = KernelRidge(lam=1e-4, s=0.8, kernel=name).fit(features, clean)
    nystrom = Nystrom(lam=1e-4, s=0.8, kernel=name, centres=80).fit(features, clean)
    torch.testing.assert_close(nystrom.alpha(seen), exact.alpha(seen), rtol=0, atol=1e-6)
    for found, expected in zip(nystrom.moments(seen), exact.moments(seen)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    more = Nystrom(lam=1e-4, s=0.8, kernel=name, centres=10_000).fit(features, clean)
    assert torch.equal(more.alpha(seen), nystrom.alpha(seen))


def test_nystrom_approximates_better_with_more_centres() -> None:
    features, seen = rows(400, 3, 0), rows(50, 3, 2)
    clean = torch.stack([torch.sin(3 * features[:, 0]), features[:, 1] * features[:, 2]], 1)
    exact = KernelRidge(lam=1e-5).fit(features, clean).moments(seen)[1]
    errors = []
    for centres in (5, 40, 200):
        found = Nystrom(lam=1e-5, centres=centres).fit(features, clean).moments(seen)[1]
        errors.append(float((found - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.05
    assert errors[2] < 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_nystrom_moments_are_those_of_its_weights(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    features, clean, seen = rows(120, 6, 0, dtype), centred(120, 9, 1, dtype), rows(20, 6, 2, dtype)
    fitted = Nystrom(lam=1e-3, centres=30).fit(features, clean)
    alpha = fitted.alpha(seen)
    assert alpha.dtype == dtype
    assert alpha.shape == (20, 120)
    near = {"rtol": 0, "atol": 5e-5 if dtype == torch.float32 else 1e-10}
    torch.testing.assert_close(fitted.moments(seen)[0], alpha.sum(1), **near)
    torch.testing.assert_close(fitted.moments(seen)[1], alpha @ clean, **near)
    monkeypatch.setattr(kernel_ridge_module, "rows_that_fit", lambda *_: 7)
    in_chunks = Nystrom(lam=1e-3, centres=30).fit(features, clean)
    torch.testing.assert_close(in_chunks.alpha(seen), alpha, **near)
    assert not torch.equal(Nystrom(lam=1e-3, centres=30, seed=1).fit(features, clean).centres, fitted.centres)


def test_nystrom_is_its_formula() -> None:
    """α = K_mM (K_Mm K_mM + mλ K_MM)⁻¹ v_M."""
    features, clean, seen = rows(50, 6, 0), centred(50, 9, 1), rows(8, 6, 2)
    lam = 1e-2
    fitted = Nystrom(lam=lam, centres=12).fit(features, clean)
    centres, width = fitted.centres.numpy(), fitted.kernel.bandwidth
    across = reference.kernel("gaussian", width, features.numpy(), centres)
    system = across.T @ across + 50 * lam * reference.kernel("gaussian", width, centres, centres)
    values = reference.kernel("gaussian", width, seen.numpy(), centres)
    expected = (across @ np.linalg.solve(system, values.T)).T
    np.testing.assert_allclose(fitted.alpha(seen).numpy(), expected, rtol=0, atol=1e-7)


# Bad input to the weights


def test_bad_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (KernelRidge, Nystrom):
        for lam in (0.0, -1.0, float("nan")):
            with pytest.raises(InputError, match=r"lam must be positive, but it is .*\. λ"):
                kind(lam=lam).fit(rows(9, 3, 0), centred(9, 4, 1))
    with pytest.raises(InputError, match="centres must"):
        Nystrom(centres=0).fit(rows(9, 3, 0), centred(9, 4, 1))
    for weights in (NadarayaWatson(kernel="cosine"), KernelRidge(kernel="cosine"), Nystrom(kernel="cosine")):
        with pytest.raises(InputError, match="'cosine'"):
            weights.fit(rows(9, 3, 0), centred(9, 4, 1))
    monkeypatch.setattr(kernel_ridge_module, "EXACT_LIMIT", 8)
    with pytest.raises(InputError, match=r"at most 8 pairs .* of 9\. Use Nystrom"):
        KernelRidge().fit(rows(9, 3, 0), centred(9, 4, 1))


def test_a_singular_system_asks_for_a_larger_ridge() -> None:
    features = rows(9, 3, 0).repeat(3, 1)
    with pytest.raises(InputError, match=r"lam must .* Pass a larger lam"):
        KernelRidge(lam=1e-30).fit(features, centred(27, 4, 1))


def test_settings_make_the_same_weights_again() -> None:
    kinds = {"nw": NadarayaWatson, "krr": KernelRidge, "nystrom": Nystrom}
    for weights in (NadarayaWatson(0.3, "laplacian"), KernelRidge(1e-2, 0.4), Nystrom(1e-2, 0.4, "laplacian", 7, 3)):
        own = weights.settings()
        assert kinds[own.pop("kind")](**own) == weights


# Descriptors


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_dct_basis_is_orthonormal_and_scipys(size: int) -> None:
    basis = dct_basis(size)
    torch.testing.assert_close(basis @ basis.T, torch.eye(size**2, dtype=torch.float64), rtol=0, atol=1e-12)
    patch = np.random.default_rng(size).normal(size=(size, size))
    found = (basis @ torch.from_numpy(patch).ravel()).reshape(size, size).numpy()
    np.testing.assert_allclose(found, scipy.fft.dctn(patch, norm="ortho"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found, reference.dct(patch), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropping_the_dc_is_centring(dtype: torch.dtype) -> None:
    patches = rows(20, 16, 0, dtype)
    without = DctDescriptor(keep_dc=False).of_patches(patches)
    assert without.shape == (20, 15)
    assert without.dtype == dtype
    both = DctDescriptor(keep_dc=True).of_patches(patches - patches.mean(1, keepdim=True))
    assert float(both[:, 0].abs().max()) < 1e-5
    near = {"rtol": 0, "atol": 1e-6 if dtype == torch.float32 else 1e-13}
    torch.testing.assert_close(both[:, 1:], without, **near)
    torch.testing.assert_close(DctDescriptor().of_patches(patches + 7), without, rtol=0, atol=1e-4)
    kept = DctDescriptor(keep_dc=True).of_patches(patches)
    torch.testing.assert_close(kept[:, 0], 4 * patches.mean(1), **near)
    # An orthonormal transform keeps distances, so kernels see patches as they are.
    torch.testing.assert_close(torch.cdist(kept, kept), torch.cdist(patches, patches), rtol=0, atol=1e-5)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 8), st.integers(9, 12), st.integers(9, 12), st.data(), st.booleans())
def test_windows_share_the_patches_centre(
    size: int, window: int, height: int, width: int, data: st.DataObject, keep_dc: bool
) -> None:
    """Windows of any size around patches of any size, the image mirrored at its edge (the edge not repeated)."""
    stride = data.draw(st.integers(1, size))
    image = rows(height, width, 0)
    grid = PatchGrid((height, width), size, stride)
    found = DctDescriptor(window, keep_dc).features(image, grid)
    before = (window - size) // 2 if window >= size else -((size - window) // 2)
    pad = 8
    padded = np.pad(image.numpy(), pad, mode="reflect")
    corners = reference_patches.corners((height, width), size, stride)
    assert len(found) == len(corners) == len(grid)
    for feature, (i, j) in zip(found, corners):
        top, left = i - before + pad, j - before + pad
        expected = scipy.fft.dctn(padded[top : top + window, left : left + window], norm="ortho").ravel()
        np.testing.assert_allclose(feature.numpy(), expected if keep_dc else expected[1:], rtol=0, atol=1e-12)


def test_features_of_an_image_are_those_of_its_patches() -> None:
    image, grid = rows(12, 14, 0), PatchGrid((12, 14), 4, 2)
    torch.testing.assert_close(DctDescriptor().features(image, grid), DctDescriptor().of_patches(grid.extract(image)))


def test_a_window_that_the_image_cannot_mirror_is_refused() -> None:
    with pytest.raises(InputError, match="window must"):
        DctDescriptor(window=31).features(rows(8, 9, 0), PatchGrid((8, 9), 4))
