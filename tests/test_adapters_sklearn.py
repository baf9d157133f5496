"""scikit-learn's conventions, by its own checks where they apply, and the pictures' estimator in its tools."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge as TheirKernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import slir
from slir.adapters.sklearn import KernelRidge, NadarayaWatson, Restorer
from slir.errors import InputError
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Downsample, Mask

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(0)
GREY = demo_picture().mean(-1, dtype=np.float32) / 255
X = RNG.standard_normal((80, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], 1)
CLEAN = [np.ascontiguousarray(GREY[64 * i : 64 * i + 64, 64:128]) for i in range(4)]
NOISY = [plane + 0.1 * RNG.standard_normal(plane.shape).astype(np.float32) for plane in CLEAN]
SHORT: dict[str, Any] = {"cells": 2, "crops": 4}


# Regressors


@pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([NadarayaWatson(), KernelRidge(), KernelRidge(kernel="laplacian"), KernelRidge(centres=20)])
def test_regressors_pass_all_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def bandwidth(s: float) -> float:
    return s * float(np.sqrt(X.var(0).sum()))


@pytest.mark.parametrize("centres", [None, 80])
def test_kernel_ridge_is_that_of_scikit_learn(centres: int | None) -> None:
    """Their alpha is nλ, their gamma 1/2σ². With all samples for centres, Nyström's is the exact one."""
    made = KernelRidge(lam=1e-3, s=0.7, centres=centres).fit(X[:60], Y[:60])
    width = 0.7 * float(np.sqrt(X[:60].var(0).sum()))
    theirs = TheirKernelRidge(alpha=60e-3, kernel="rbf", gamma=1 / (2 * width**2)).fit(X[:60], Y[:60])
    np.testing.assert_allclose(made.predict(X[60:]), theirs.predict(X[60:]), atol=1e-5)


def test_nadaraya_watson_is_a_weighted_mean() -> None:
    made = NadarayaWatson(s=0.3).fit(X, Y[:, 0])
    new = RNG.standard_normal((5, 3))
    distances = ((new[:, None] - X) ** 2).sum(-1)
    weights = np.exp(-distances / (2 * bandwidth(0.3) ** 2))
    np.testing.assert_allclose(made.predict(new), weights @ Y[:, 0] / weights.sum(1), atol=1e-10)


def test_regressors_learn_and_are_searched() -> None:
    search = GridSearchCV(KernelRidge(), {"lam": [1e-8, 1e-4, 1.0], "s": [0.3, 1.0]}, cv=4).fit(X, Y)
    assert search.best_score_ > 0.9
    assert search.best_params_["lam"] < 1
    with pytest.raises(ValueError, match="lam must be positive"):
        KernelRidge(lam=-1).fit(X, Y)


def test_single_precision_stays_single() -> None:
    for estimator in (KernelRidge(), NadarayaWatson()):
        assert estimator.fit(X.astype(np.float32), Y[:, 0]).predict(X.astype(np.float32)).dtype == np.float32


# Pictures

CHECKS = [
    "check_parameters_default_constructible",
    "check_no_attributes_set_in_init",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
    "check_estimator_repr",
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
]
"""Those that fit nothing: all others fit on tables, while pictures have height and width."""


@pytest.mark.parametrize("name", CHECKS)
def test_restorer_passes_the_checks_that_need_no_table(name: str) -> None:
    getattr(estimator_checks, name)("Restorer", Restorer(sigma=0.1))


def test_restorer_learns_from_clean_pictures_and_restores() -> None:
    restorer = Restorer(sigma=0.1, data_range=1.0, **SHORT)
    with pytest.raises(NotFittedError):
        restorer.transform(NOISY)
    unsupervised = clone(restorer).fit(CLEAN[1:])
    supervised = clone(restorer).fit(NOISY[1:], CLEAN[1:])
    made = unsupervised.transform(NOISY[:1])
    assert isinstance(made, list)
    np.testing.assert_array_equal(made[0], supervised.predict(NOISY[:1])[0])
    assert supervised.score(NOISY[:1], CLEAN[:1]) > 23  # 20 before
    stacked = unsupervised.transform(np.stack(NOISY[:2]))
    assert (stacked.shape, stacked.dtype) == ((2, 64, 64), np.float32)
    np.testing.assert_array_equal(stacked[0], made[0])
    again = pickle.loads(pickle.dumps(unsupervised))
    np.testing.assert_array_equal(again.transform(NOISY[:1])[0], made[0])


def test_restorer_with_what_ships_is_the_task() -> None:
    restorer = Restorer(sigma=25, learn=False, channel_axis=-1)
    noisy = np.clip(demo_picture()[:48, :48] + RNG.normal(0, 25, (48, 48, 3)), 0, 255).astype(np.uint8)
    made = restorer.transform([noisy])[0]  # nothing has to be fitted
    assert (made.dtype, made.shape) == (np.uint8, noisy.shape)
    np.testing.assert_array_equal(made, slir.denoise(noisy, sigma=25, channel_axis=-1))
    assert restorer.fit([noisy]).model_ is None
    assert restorer.score([noisy], [demo_picture()[:48, :48]]) > 25
    assert not restorer.__sklearn_tags__().requires_fit


def test_restorer_for_every_operator() -> None:
    truth = CLEAN[0].astype(np.float64)
    psf = slir.psf.gaussian(1.2)
    for operator, gain in ((Blur(psf), 1), (Downsample(2), None), (Mask(RNG.random(truth.shape) < 0.3), 12)):
        shape = operator.x_shape(truth.shape) if isinstance(operator, Blur) else truth.shape
        x = np.pad(truth, ((0, shape[0] - 64), (0, shape[1] - 64)), mode="reflect")
        y = operator.forward(torch.from_numpy(x)).numpy()
        restorer = Restorer(operator, data_range=1.0, learn=False)
        seen = operator.crop(torch.from_numpy(x), y.shape).numpy()
        y = np.where(operator.missing.numpy(), np.nan, y) if isinstance(operator, Mask) else y
        made = restorer.transform([y])[0]
        assert made.shape == seen.shape
        before = 0.0 if gain is None else -10 * np.log10(np.mean((np.nan_to_num(y) - seen) ** 2))
        assert restorer.score([y], [seen]) > max(20, before + (gain or 0))


def test_restorer_in_a_search_and_in_a_pipeline() -> None:
    search = GridSearchCV(Restorer(sigma=0.1, data_range=1.0, **SHORT), {"cells": [1, 2]}, cv=2)
    search.fit(NOISY[:2], CLEAN[:2])
    assert search.best_params_["cells"] in (1, 2)
    assert search.best_score_ > 22
    flat = FunctionTransformer(lambda pictures: np.reshape(pictures, (len(pictures), -1)))
    features = make_pipeline(Restorer(sigma=0.1, data_range=1.0, learn=False), flat, PCA(2))
    assert features.fit_transform(np.stack(NOISY)).shape == (4, 2)


def test_restorer_learns_from_colour_and_from_channels() -> None:
    colour = [demo_picture()[64 * i : 64 * i + 64, 64:128] for i in range(3)]
    made = Restorer(sigma=25, channel_axis=-1, **SHORT).fit(colour)
    assert made.model_ is not None
    assert made.transform(colour[:1])[0].shape == (64, 64, 3)
    pairs = [picture[..., :2] for picture in colour]  # two dyes are pictures of their own
    assert Restorer(sigma=25, channel_axis=-1, **SHORT).fit(pairs).transform(pairs[:1])[0].shape == (64, 64, 2)


def test_restorer_says_what_is_wrong() -> None:
    for wrong in (CLEAN[0], [], "pictures", None):
        with pytest.raises(InputError, match="X must hold"):
            Restorer(sigma=0.1, data_range=1.0).fit(wrong)
    with pytest.raises(InputError, match="sigma must be positive"):
        Restorer(data_range=1.0).fit(CLEAN)
    with pytest.raises(InputError, match="data_range must be given"):
        Restorer(sigma=0.1).fit(CLEAN)
