"""How the error on images that were never seen falls with m, the patches of a bank, and n, the images they are from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.bank import sample_bank
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.model import Prior
from slir.operators import Operator
from slir.patches import window_margin
from slir.weights import Weights, weights_named

Progress = Callable[[int, int, str], None]

LEAST = 32
"""Patches that an image must have."""
RIDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Among which λ is chosen."""
LARGEST = {"krr": 1024}
"""Banks that take seconds, where kernel ridge regression is cubic in m; `USUAL` for other weights."""
USUAL = 4096
_STEPS, _GROUPS = 5, 4


@dataclass(frozen=True)
class Curves:
    """Mean squared errors a pixel of held-out patches, (Σᵢαᵢxⁱ − x_p)², the range being 1 and patches centred.

    n, m: the sizes that were measured: images, and patches in the whole bank; m/n of them are from each image.
    errors: (splits, len(n), len(m)). The splits differ in which images are held out.
    seen: the error of what is seen, y_p. spread: the error of knowing nothing, which is the patches' variance.
    held_out: the numbers of the images that each split held out. training: the others, in order: with n images, the
        first n of them, the next n and so on (four groups at most) are learnt from in turn, and the errors averaged.
    """

    n: tuple[int, ...]
    m: tuple[int, ...]
    errors: np.ndarray
    seen: float
    spread: float
    held_out: tuple[tuple[int, ...], ...]
    training: tuple[tuple[int, ...], ...]
    weights: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def mean(self) -> np.ndarray:
        """(len(n), len(m))."""
        return self.errors.mean(0)

    @property
    def standard_error(self) -> np.ndarray:
        """Of the mean, over splits: (len(n), len(m)). Splits share training images, so it is a little too small."""
        return self.errors.std(0, ddof=1) / len(self.errors) ** 0.5

    @property
    def paired_error(self) -> np.ndarray:
        """The same without what all errors of a split have in common, for comparisons: some images are harder."""
        relative = self.errors / self.errors.mean((1, 2), keepdims=True)
        return relative.std(0, ddof=1) / len(self.errors) ** 0.5 * self.errors.mean()


@dataclass(frozen=True)
class Patches:
    """What was drawn from one image: c patches, those of k pixels centred.

    bank: (c, d), what describes them in a bank. query: (c, d), what is seen of them when they are to be restored.
    clean, seen: (c, k).
    """

    bank: Tensor
    query: Tensor
    clean: Tensor
    seen: Tensor

    def first(self, count: int) -> Patches:
        return Patches(self.bank[:count], self.query[:count], self.clean[:count], self.seen[:count])


@torch.no_grad()
def heldout_curves(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    *,
    weights: str | Weights = "krr",
    s: float = 1.0,
    lam: float | None = None,
    m: int | None = None,
    size: int = 8,
    descriptor: DctDescriptor | None = None,
    view: str = "seen",
    folds: int = 5,
    repeats: int = 1,
    test: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> Curves:
    """Fit weights on nested banks, n = 1, 2, 4, … images by m/16 … m patches, and measure them on other images.

    images: n ≥ 2 clean planes (H, W) in [0, 1]. They are cut in `folds` groups, each held out in turn, `repeats` times.
    weights, s: as in `slir.paper_model`. lam: λ; None chooses it by the error on held-out images, at a bank of 512.
    m: the largest bank; None is 1024 for kernel ridge regression and 4096 for others. It is never larger than what the
        smallest image has. test: patches of each held-out image that are looked at.
    descriptor, view: what is seen at a patch, and which side of the pairs describes the bank.

    Banks are nested: a smaller one is part of a larger one, so that what they differ in is their size.
    """
    descriptor = DctDescriptor() if descriptor is None else descriptor
    chosen = weights_named(weights, s=s, lam=RIDGES[0] if lam is None else lam)
    most = largest_bank(images, operator, max(size, descriptor.window or size), m, chosen)
    seeds = torch.randint(2**31, (len(images),), generator=torch.Generator().manual_seed(seed)).tolist()
    drawn = [
        _patches([image], operator, sigma, max(most, test), size, descriptor, view, own)
        for image, own in zip(images, seeds)
    ]
    if lam is None and isinstance(weights, str) and weights != "nw":
        chosen = weights_named(weights, s=s, lam=_chosen_lam(drawn, weights, s, min(most, 512), test))
    held_out, training = _splits(len(images), folds, repeats, seed)
    ns = _powers(min(len(pool) for pool in training))
    ms = tuple(size for size in (most >> step for step in reversed(range(_STEPS))) if size >= max(ns))
    errors = np.empty((len(training), len(ns), len(ms)))
    for number, (outside, pool) in enumerate(zip(held_out, training)):
        aim = [drawn[i].first(test) for i in outside]
        for i, n in enumerate(ns):
            groups = [pool[k * n : (k + 1) * n] for k in range(min(len(pool) // n, _GROUPS))]
            for j, count in enumerate(ms):
                errors[number, i, j] = np.mean([_error(chosen, [drawn[k] for k in g], count, aim) for g in groups])
            if progress is not None:
                progress(number * len(ns) + i + 1, len(training) * len(ns), "measuring")
    aims = [each.first(test) for each in drawn]
    seen = float(np.mean([mean_square(aim.seen - aim.clean) for aim in aims]))
    spread = float(np.mean([mean_square(aim.clean) for aim in aims]))
    return Curves(ns, ms, errors, seen, spread, held_out, training, chosen.settings(), seed)


def largest_bank(images: Sequence[Tensor], operator: Operator, outer: int, m: int | None, weights: Weights) -> int:
    """The largest bank that every image can fill by itself, no more than m. outer: side of what is seen at a patch."""
    m = LARGEST.get(weights.settings().get("kind", ""), USUAL) if m is None else m
    if len(images) < 2:
        remedy = "One is learnt from while another is held out. Pass more, or cut one large picture in parts."
        raise InputError("images", "hold at least two pictures", len(images), remedy)
    if m < LEAST:
        raise InputError("m", f"be at least {LEAST}", m, "2048 is a good start.")
    for number, image in enumerate(images):
        own, shape = operator.for_training((image.shape[0], image.shape[1]))
        _, _, height, width = own.shown(own.y_shape(shape))
        places = max(height - outer + 1, 0) * max(width - outer + 1, 0)
        if places < LEAST:
            rule = f"show at least {LEAST} patches of {outer}×{outer} pixels after degradation"
            found = f"{image.shape[0]}×{image.shape[1]} and shows {places}"
            raise InputError(f"images[{number}]", rule, found, "Leave it out, or pass larger pictures.")
        m = min(m, places)
    return m - m % 2 ** (_STEPS - 1)  # so that it can be halved


def _patches(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    count: int,
    size: int,
    descriptor: DctDescriptor,
    view: str,
    seed: int,
) -> Patches:
    bank = sample_bank(images, operator, sigma, m=count, size=size, window=descriptor.window, seed=seed)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))  # a bank is sorted by place
    seen, clean = bank.seen[order], bank.clean[order]
    query = descriptor.of_patches(seen)
    shown = _middle(seen, size)
    return Patches(
        bank=query if view == "seen" else descriptor.of_patches(clean),
        query=query,
        clean=clean - clean.mean(1, keepdim=True),
        seen=shown - shown.mean(1, keepdim=True),
    )


def _middle(windows: Tensor, size: int) -> Tensor:
    """The patches in the middle of windows: (c, window²) -> (c, size²); NaN where windows are smaller than patches."""
    side = round(windows.shape[1] ** 0.5)
    if side < size:
        return windows.new_full((len(windows), size**2), float("nan"))
    before = window_margin(side, size)
    square = windows.reshape(-1, side, side)[:, before : before + size, before : before + size]
    return square.reshape(len(windows), -1)


def _error(weights: Weights, parts: Sequence[Patches], m: int, aims: Sequence[Patches]) -> float:
    """Of weights fitted on m patches, as many from each of the parts; the mean over images to aim at."""
    own = [part.first(m // len(parts) + (number < m % len(parts))) for number, part in enumerate(parts)]
    fitted = weights.fit(torch.cat([part.bank for part in own]), torch.cat([part.clean for part in own]))
    return float(np.mean([mean_square(fitted.moments(aim.query)[1] - aim.clean) for aim in aims]))


def mean_square(values: Tensor) -> float:
    return float(values.square().mean(dtype=torch.float64))


def _chosen_lam(drawn: Sequence[Patches], weights: str, s: float, m: int, test: int) -> float:
    """The λ that does best when one half of the images is learnt from and the other is held out, and the reverse."""
    halves = drawn[:m:2], drawn[1:m:2]

    def score(lam: float) -> float:
        kind = weights_named(weights, s=s, lam=lam)
        return sum(_error(kind, own, m, [part.first(test) for part in other]) for own, other in (halves, halves[::-1]))

    return min(RIDGES, key=score)


def _splits(count: int, folds: int, repeats: int, seed: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Which images each split holds out, and the others in the order in which they are learnt from."""
    for name, value, least in (("folds", folds, 2), ("repeats", repeats, 1)):
        if value < least:
            raise InputError(name, f"be at least {least}", value, "5 folds and 1 repeat are a start.")
    rng = np.random.default_rng(seed)
    held_out, training = [], []
    for _ in range(repeats):
        order = rng.permutation(count)
        for group in np.array_split(order, min(folds, count)):
            held_out.append(tuple(int(i) for i in group))
            training.append(tuple(int(i) for i in rng.permutation(np.setdiff1d(order, group))))
    return tuple(held_out), tuple(training)


def _powers(most: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `most`."""
    return tuple(2**k for k in range(most.bit_length()) if 2**k <= most)


@torch.no_grad()
def model_error(
    images: Sequence[Tensor], operator: Operator, sigma: float, prior: Prior, *, test: int = 500, seed: int = 0
) -> float:
    """The mean squared error a pixel of a model's own bank on patches of other images."""
    seeds = torch.randint(2**31, (len(images),), generator=torch.Generator().manual_seed(seed)).tolist()
    aims = [
        _patches([image], operator, sigma, test, prior.size, prior.descriptor, "seen", own)
        for image, own in zip(images, seeds)
    ]
    fitted = prior.fitted
    return float(np.mean([mean_square(fitted.moments(aim.query)[1] - aim.clean) for aim in aims]))
