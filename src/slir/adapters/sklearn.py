"""slir by scikit-learn's conventions: `fit`, `predict`, `transform`, `score`, `get_params`, in pipelines and searches.

KernelRidge, NadarayaWatson    the paper's weights α as regressors: predictions are Σᵢ αᵢ(x) yᵢ
Restorer                       pictures in, pictures out: learns from clean ones, restores degraded ones
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from slir import weights
from slir.adapters.planes import restore_planes
from slir.compute import chunks, pick_device, rows_that_fit
from slir.errors import InputError
from slir.fitting import fit
from slir.model import Model
from slir.operators import Identity, Mask, Operator
from slir.preprocessing.arrays import canvas
from slir.restoration import blank_missing

FLOATS = (np.float64, np.float32)


class _WeightedMeans(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """What both regressors do with weights."""

    fitted_: weights.Fitted

    def _weights(self) -> weights.Weights:
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Self:
        """X (n, d), y (n,) or (n, k)."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=FLOATS, ensure_min_samples=2)
        self._single = y.ndim == 1
        features = torch.from_numpy(np.array(X))
        targets = torch.from_numpy(np.array(y.reshape(len(y), -1))).to(features)
        self.fitted_ = self._weights().fit(features, targets)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Σᵢ αᵢ(x) yᵢ for each row x of X: (c, d) -> (c,) or (c, k), as y was."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        bank = self.fitted_.features
        seen = torch.from_numpy(np.array(X)).to(bank)
        pieces = chunks(len(seen), rows_that_fit(3 * bank.element_size() * len(bank), bank.device))
        predicted = torch.cat([self.fitted_.moments(seen[piece])[1] for piece in pieces]).numpy()
        return predicted[:, 0] if self._single else predicted


class NadarayaWatson(_WeightedMeans):
    """Predictions are means of the training targets, weighted by how near their features are.

    s: how far a sample is heard, as a share of the features' overall standard deviation; small values copy the nearest
    samples, large ones average many. kernel: "gaussian" or "laplacian".
    """

    def __init__(self, s: float = 0.2, kernel: str = "gaussian"):
        self.s = s
        self.kernel = kernel

    def _weights(self) -> weights.Weights:
        return weights.NadarayaWatson(s=self.s, kernel=self.kernel)


class KernelRidge(_WeightedMeans):
    """Kernel ridge regression (K + nλI) with the bandwidth rule of the paper; by Nyström's method for large n.

    lam: λ; scikit-learn's KernelRidge calls nλ alpha. s, kernel: as for `NadarayaWatson`. centres: how many training
    samples span the solution; None takes all, which costs n² memory. random_state: which ones these are.
    """

    def __init__(
        self,
        lam: float = 1e-5,
        s: float = 1.0,
        kernel: str = "gaussian",
        centres: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ):
        self.lam = lam
        self.s = s
        self.kernel = kernel
        self.centres = centres
        self.random_state = random_state

    def _weights(self) -> weights.Weights:
        if self.centres is None:
            return weights.KernelRidge(lam=self.lam, s=self.s, kernel=self.kernel)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return weights.Nystrom(lam=self.lam, s=self.s, kernel=self.kernel, centres=self.centres, seed=seed)


class Restorer(TransformerMixin, BaseEstimator):
    """Undoes one degradation y = Bx + ε of pictures.

    operator: B; None is noise alone. It does not carry the size of a picture, unless it is a mask or a matrix.
    sigma: of the noise, in pixel values. data_range, channel_axis: as for `slir.denoise`.
    learn: whether `fit` learns a model from the pictures that it is given; False takes the models that ship, and
        nothing has to be fitted.
    cells, crops, random_state: of the stage that is learnt (`slir.kernel.fitting.fit_on_top`). device: "cpu" (the
        default) or "cuda".

    Pictures are a list of arrays, which may differ in size, or one array of them.

    >>> search = GridSearchCV(Restorer(sigma=25), {"cells": [10, 40, 100]}, cv=3).fit(noisy, clean)
    >>> features = make_pipeline(Restorer(sigma=25, learn=False), FunctionTransformer(flatten), PCA(10))
    """

    model_: Model | None

    def __init__(
        self,
        operator: Operator | None = None,
        sigma: float = 0.0,
        data_range: float | tuple[float, float] | None = None,
        channel_axis: int | None = None,
        learn: bool = True,
        cells: int = 512,
        crops: int = 80,
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
    ):
        self.operator = operator
        self.sigma = sigma
        self.data_range = data_range
        self.channel_axis = channel_axis
        self.learn = learn
        self.cells = cells
        self.crops = crops
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from clean pictures: y where it is given, as X are then degraded ones; otherwise X.

        Degraded pictures are not learnt from: slir degrades the clean ones itself, by `operator` and `sigma`.
        """
        clean = _pictures(X if y is None else y, "X" if y is None else "y")
        if self.learn and self.operator is None and not self.sigma > 0:
            raise InputError(
                "sigma", "be positive where there is no operator", self.sigma, "It counts in pixel values."
            )
        self.model_ = self._learnt(clean) if self.learn else None
        return self

    def _learnt(self, clean: list[np.ndarray]) -> Model:
        grey, span = [], 1.0
        for picture in clean:
            frame, array = canvas(picture, data_range=self.data_range, channel_axis=self.channel_axis)
            planes = torch.stack(frame.planes(array, torch.device("cpu"))).numpy()
            grey += (
                list(planes.clip(0, 1)) if len(planes) not in (3, 4) else [np.moveaxis(planes[:3].clip(0, 1), 0, -1)]
            )
            span = frame.spans[0]
        return fit(
            grey,
            operator=self.operator or Identity(),
            sigma=self.sigma / span,
            cells=self.cells,
            crops=self.crops,
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            device=self.device,
        )

    def transform(self, X: Any) -> Any:
        """Restore pictures: a list gives a list, an array an array, of the dtype and range that came in."""
        check_is_fitted(self)
        restored = [self._restored(picture) for picture in _pictures(X, "X")]
        return np.stack(restored) if isinstance(X, np.ndarray) else restored

    def predict(self, X: Any) -> Any:
        """The same as `transform`, for those who take restoration for a regression."""
        return self.transform(X)

    def _restored(self, picture: np.ndarray) -> np.ndarray:
        if isinstance(self.operator, Mask):  # missing pixels may be NaN
            picture = np.asarray(blank_missing(picture, self.operator.missing.numpy(), self.channel_axis))
        frame, array = canvas(picture, data_range=self.data_range, channel_axis=self.channel_axis)
        planes = frame.planes(array, pick_device(self.device))
        sigma = self.sigma / frame.spans[0]
        model = getattr(self, "model_", None)
        made = restore_planes(planes, self.operator or Identity(), sigma=sigma, model=model)
        return np.asarray(frame.image(made))

    def score(self, X: Any, y: Any) -> float:
        """Mean PSNR in dB of what is restored from X against the clean pictures y."""
        return float(np.mean([self._psnr(made, truth) for made, truth in zip(self.transform(X), _pictures(y, "y"))]))

    def _psnr(self, made: np.ndarray, truth: np.ndarray) -> float:
        frame, _ = canvas(truth, data_range=self.data_range, channel_axis=self.channel_axis)
        error = np.mean(np.square(made.astype(np.float64) - truth)) / frame.spans[0] ** 2
        return float(-10 * np.log10(max(error, 1e-30)))

    def __sklearn_is_fitted__(self) -> bool:
        return not self.learn or hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.requires_fit = self.learn
        return tags


def _pictures(pictures: Any, argument: str) -> list[np.ndarray]:
    """Each of them as an array."""
    if isinstance(pictures, np.ndarray) and pictures.ndim < 3:
        remedy = "Pass [image] for a single picture."
        raise InputError(argument, "hold several pictures", f"of shape {pictures.shape}", remedy)
    if not isinstance(pictures, np.ndarray | Sequence) or isinstance(pictures, str) or len(pictures) == 0:
        remedy = "Pass a list of arrays, or one array of shape (n, H, W) or (n, H, W, 3)."
        raise InputError(argument, "hold pictures", type(pictures).__name__, remedy)
    return [np.asarray(picture) for picture in pictures]
