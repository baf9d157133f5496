"""The law that held-out errors follow, beside the law of the bound; and what doubling m or n is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slir.theory.curves import Curves

POWERS = np.geomspace(0.05, 1.5, 48)
KAPPAS = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 73)])


@dataclass(frozen=True)
class Rate:
    """error(m, n) = floor + scale · (1/m + kappa/n)^power: the shape of the bound, which has power ¼ for the excess.

    floor: the error that no bank of this kind gets below. kappa: what one image counts for: a bank of m patches from n
    images is worth 1/(1/m + kappa/n) independent ones, so beyond m = n/kappa more images are what is missing. The
    bound has kappa = (1 + q)/|P|.
    misfit: how far it is from the measurements, relative, root mean square.
    power_error, kappa_error: standard errors, by leaving splits out in turn; 0 where they were given.
    """

    floor: float
    scale: float
    kappa: float
    power: float
    misfit: float
    power_error: float = 0.0
    kappa_error: float = 0.0

    def __call__(self, m: Any, n: Any) -> Any:
        """The error of a bank of m patches from n images; numbers, or arrays that broadcast."""
        inside = 1 / np.asarray(m, dtype=float) + self.kappa / np.asarray(n, dtype=float)
        return self.floor + self.scale * inside**self.power


@dataclass(frozen=True)
class Gain:
    """By which share the error fell at the last doubling, as measured, with its standard error."""

    share: float
    error: float


def fit_rate(curves: Curves) -> Rate:
    """The law that fits the measurements best, in relative terms. One image alone says nothing of kappa, which is 0."""
    kappas = KAPPAS if len(curves.n) > 1 else KAPPAS[:1]
    best = _fit(curves, curves.mean, kappas, POWERS)
    splits = len(curves.errors)
    without = [_fit(curves, np.delete(curves.errors, i, 0).mean(0), kappas, POWERS) for i in range(splits)]
    return replace(
        best,
        power_error=_jackknife([each.power for each in without]),
        kappa_error=_jackknife([each.kappa for each in without]),
    )


def bound_rate(curves: Curves, *, q: float, patches: float) -> Rate:
    """The bound's own shape, its two unknowns (the floor, and the size) fitted to the measurements."""
    return _fit(curves, curves.mean, np.array([(1 + max(q, 0.0)) / patches]), np.array([0.25]))


def _fit(curves: Curves, mean: np.ndarray, kappas: np.ndarray, powers: np.ndarray) -> Rate:
    """Least squares in floor and scale, neither negative, for every kappa and power; the best of them."""
    n, m = np.meshgrid(curves.n, curves.m, indexing="ij")
    inside = 1 / m.ravel() + kappas[:, None] / n.ravel()  # (kappas, cells)
    column = inside[:, None] ** powers[:, None] / mean.ravel()  # (kappas, powers, cells), relative to what is met
    one = 1 / mean.ravel()
    # The normal equations of two unknowns, where the target is 1 everywhere.
    aa, ab, bb = (one * one).sum(), (one * column).sum(-1), (column * column).sum(-1)
    ta, tb = one.sum(), column.sum(-1)
    determinant = np.maximum(aa * bb - ab**2, 1e-300)
    floor, scale = (ta * bb - tb * ab) / determinant, (aa * tb - ab * ta) / determinant
    floor, scale = np.where(floor < 0, 0.0, floor), np.where(floor < 0, tb / bb, scale)
    floor, scale = np.where(scale < 0, ta / aa, floor), np.maximum(scale, 0.0)
    misfit = np.sqrt(np.mean((floor[..., None] * one + scale[..., None] * column - 1) ** 2, -1))
    i, j = np.unravel_index(int(misfit.argmin()), misfit.shape)
    return Rate(
        floor=float(floor[i, j]),
        scale=float(scale[i, j]),
        kappa=float(kappas[i]),
        power=float(powers[j]),
        misfit=float(misfit[i, j]),
    )


def gains(curves: Curves) -> tuple[Gain, Gain | None]:
    """What the last doubling of m was worth, n being the largest; and that of n, m being the largest."""
    last = curves.errors[:, -1, -1]
    more_patches = _gain(curves.errors[:, -1, -2], last)
    return more_patches, _gain(curves.errors[:, -2, -1], last) if len(curves.n) > 1 else None


def preference(curves: Curves) -> Gain | None:
    """How much more half of the images is missed than half of the patches, as a share of the error; below 0: less.

    It is measured on the same held-out patches, so most of what makes single errors uncertain cancels.
    """
    if len(curves.n) < 2:
        return None
    return _gain(curves.errors[:, -2, -1], curves.errors[:, -1, -2])


def _gain(before: np.ndarray, after: np.ndarray) -> Gain:
    shares = 1 - after / before
    return Gain(float(shares.mean()), float(shares.std(ddof=1)) / len(shares) ** 0.5)


def _jackknife(values: list[float]) -> float:
    found = np.array(values)
    return float(np.sqrt((len(found) - 1) / len(found) * np.square(found - found.mean()).sum()))
