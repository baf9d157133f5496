"""q, the total correlation between the patches of an image, and the map of it around the central patch.

    q = 1/(|P| r²) Σ_{p,p'} E_{y,y'} [ k(y_p, y_p')² − k(y_p, y'_p')² ],    r = sup k(y_p, y_p)

with y and y' independent images. k² is a kernel too; if Φ is its feature map, q is E‖Σ_p Φ(y_p) − E Σ_p Φ(y_p)‖² over
|P| r²: a variance, so 0 ≤ q ≤ |P|. Two things about it that are easily missed:

- the terms with p = p' alone add 1 − E k(y_p, y'_p)²/r². So patches that are independent but that the kernel tells
  apart have q ≈ 1; q ≈ 0 also needs a kernel so wide that all patches look alike;
- a small correlation at all distances counts as much as a large one nearby, because there are |P|² pairs.

The paper has r² = sup k in section 3 and r = sup k in appendix A.3; both are 1 for the kernels of `slir.weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from slir.bank import degrade, sample_bank
from slir.compute import chunks, rows_that_fit
from slir.descriptors import DctDescriptor, bandwidth
from slir.errors import InputError
from slir.estimator.loop import restore
from slir.model import Model, Prior
from slir.operators import Operator
from slir.patches import PatchGrid
from slir.weights import Kernel


@dataclass(frozen=True)
class Correlation:
    """q with what it was measured on.

    q: within − between. error: its standard error, by the jackknife over images; NaN for two images.
    patches: |P|, the mean over images where they differ in size. images: n.
    within: 1/|P| Σ_{p,p'} E k(y_p, y_p')², at least 1. between: the same with p' in another image.
    """

    q: float
    error: float
    patches: float
    images: int
    within: float
    between: float


@torch.no_grad()
def patch_correlation(
    images: Sequence[Tensor],
    descriptor: DctDescriptor,
    *,
    size: int,
    kernel: Kernel,
    stride: int = 1,
    centres: int | None = None,
    partners: int | None = None,
    seed: int = 0,
) -> Correlation:
    """Estimate q from degraded images, or from the estimates that a later stage sees; unbiased.

        q̂ = 1/n Σ_y 1/|P| Σ_{p∈P} [ Σ_{p'∈P} k(y_p, y_p')² − |P|/(n−1) Σ_{y'≠y} mean_{p'} k(y_p, y'_p')² ]

    For images of one size this is the definition with its expectations replaced by averages over all y and all pairs
    y ≠ y'; images of several sizes each count with their own |P|. Being unbiased, q̂ may fall below 0 where q is small.

    images: n ≥ 2 planes (H, W). size, stride: of the patches P. kernel: as fitted, e.g. `prior.fitted.kernel`.
    centres: how many patches p are drawn from each image, without replacement; None takes all, which needs
        (n|P|)²/2 kernel values. Inside an image they meet all p' ∈ P, in other images those that were drawn there.
    partners: how many p' ∈ P they meet inside an image, drawn likewise; None is all. Far fewer tell nearly as much.
    seed: of these draws.

    Nothing larger than a chunk of rows of a kernel matrix is held.
    """
    if len(images) < 2:
        remedy = "Expectations over pairs of images need two; cut one large picture in parts."
        raise InputError("images", "hold at least two images", f"{len(images)}", remedy)
    if centres is not None and centres < 1:
        raise InputError("centres", "be at least 1", centres, "256 is a good start; None takes all patches.")
    if partners is not None and partners < 2:
        raise InputError("partners", "be at least 2", partners, "4096 is a good start; None takes all patches.")
    generator = torch.Generator().manual_seed(seed)
    n = len(images)
    counts, within, drawn = np.empty(n), np.empty(n), []
    for i, image in enumerate(images):
        patches = PatchGrid((image.shape[0], image.shape[1]), size, stride).extract(image, descriptor.window)  # (P, d)
        counts[i] = len(patches)
        chosen, met = _draw(patches, centres, generator), _draw(patches, partners, generator)
        some = descriptor.of_patches(patches[chosen])
        within[i] = mean_within(kernel, some, descriptor.of_patches(patches[met]), chosen, met, whole=len(patches))
        drawn.append(some)
    return pool(kernel, drawn, within, counts)


def _draw(patches: Tensor, count: int | None, generator: torch.Generator) -> Tensor:
    """Numbers of `count` patches without replacement, or of all."""
    if count is None or count >= len(patches):
        return torch.arange(len(patches), device=patches.device)
    return torch.randperm(len(patches), generator=generator)[:count].to(patches.device)


def mean_within(kernel: Kernel, some: Tensor, others: Tensor, chosen: Tensor, met: Tensor, *, whole: int) -> float:
    """1/|P| Σ_{p,p'} k(y_p, y_p')² inside an image, from the patches `chosen` and those that they meet.

    A patch meets itself once in |P| and adds 1; a draw that met it more or less often would be far off, so these pairs
    are taken out and counted apart.
    """
    total = float(_column_sums(kernel, some, others).sum())
    if len(others) == whole:
        return total / len(some)
    same = int(torch.isin(chosen, met).sum())
    return 1 + (whole - 1) * (total - same) / max(len(some) * len(others) - same, 1)


def pool(kernel: Kernel, drawn: Sequence[Tensor], within: np.ndarray, counts: np.ndarray) -> Correlation:
    """q from what images have within, and the features drawn from each, which meet those of the others."""
    n = len(drawn)
    between = np.zeros((n, n))  # means over p and p' of k(y_p, y'_p')², symmetric, the diagonal left out
    for i in range(n - 1):
        sums = _column_sums(kernel, drawn[i], torch.cat(list(drawn[i + 1 :]))).split(
            [len(some) for some in drawn[i + 1 :]]
        )
        between[i, i + 1 :] = [float(part.mean()) / len(drawn[i]) for part in sums]
    between += between.T
    across = counts * between.sum(1) / (n - 1)
    q = float((within - across).mean())
    return Correlation(
        q=q,
        error=_jackknife(q, within, counts, between),
        patches=float(counts.mean()),
        images=n,
        within=float(within.mean()),
        between=float(across.mean()),
    )


def _column_sums(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """Σᵢ k(aᵢ, bⱼ)², for each j, in float64: (c, d), (m, d) -> (m,)."""
    total = torch.zeros(len(b), dtype=torch.float64, device=b.device)
    for piece in chunks(len(a), rows_that_fit(3 * b.element_size() * len(b), b.device)):
        total += kernel.log(a[piece], b).mul_(2).exp_().sum(0, dtype=torch.float64)
    return total


def _jackknife(q: float, within: np.ndarray, counts: np.ndarray, between: np.ndarray) -> float:
    """The standard error of q̂ from its n values with one image left out."""
    n = len(within)
    if n < 3:
        return float("nan")
    # [l, i]: what image i adds when image l is left out.
    terms = within - counts * (between.sum(1) - between) / (n - 2)
    without = (terms.sum(1) - terms.diagonal()) / (n - 1)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))


def bank_correlation(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    *,
    m: int = 10_000,
    size: int = 8,
    window: int | None = None,
    keep_dc: bool = False,
    s: float = 0.2,
    kernel: str = "gaussian",
    stride: int = 1,
    centres: int | None = 256,
    partners: int | None = None,
    seed: int = 0,
) -> Correlation:
    """q for the degraded images that `slir.paper_model` would learn from, with the kernel that it would fit.

    images: clean planes (H, W) in [0, 1]. The bandwidth is s times the features' overall standard deviation over the
    bank of m pairs; `seed` draws noise, bank and centres, the first two as `paper_model` does.
    """
    descriptor = DctDescriptor(window, keep_dc)
    bank = sample_bank(images, operator, sigma, m=m, size=size, window=window, seed=seed)
    fitted = Kernel(kernel, bandwidth(descriptor.of_patches(bank.seen), s))
    seen = first_estimates(images, operator, sigma, seed)
    return patch_correlation(
        seen, descriptor, size=size, kernel=fitted, stride=stride, centres=centres, partners=partners, seed=seed
    )


@torch.no_grad()
def central_correlation(
    images: Sequence[Tensor],
    descriptor: DctDescriptor,
    *,
    size: int,
    kernel: Kernel,
    stride: int = 1,
    power: int = 1,
    centred: bool = False,
) -> np.ndarray:
    """E_y k(y_c, y_p)^power for the central patch c and all p, an average over images: -> (rows, cols) of patches.

    centred: subtract E_{y,y'} k(y_c, y'_p)^power over pairs y ≠ y', which is what patches of unrelated images have in
        common. With power=2 this is the row of q's sum that belongs to c.
    images: planes of one shape (H, W).
    """
    if not images or any(image.shape != images[0].shape for image in images):
        shapes = ", ".join(sorted({f"{image.shape[0]}×{image.shape[1]}" for image in images})) or "empty"
        raise InputError("images", "be at least one image, all of one shape", shapes, "Crop them to a common shape.")
    if centred and len(images) < 2:
        raise InputError("images", "hold at least two images where centred=True", "one", "Pass more, or centred=False.")
    grid = PatchGrid((images[0].shape[0], images[0].shape[1]), size, stride)
    rows, cols = (len(starts) for starts in grid.starts)
    middle = rows // 2 * cols + cols // 2
    described = [descriptor.features(image, grid) for image in images]
    central = torch.stack([features[middle] for features in described])  # (n, d)
    n = len(images)
    own, others = torch.zeros(len(grid), dtype=torch.float64), torch.zeros(len(grid), dtype=torch.float64)
    for i, features in enumerate(described):
        values = kernel.gram(central if centred else central[i : i + 1], features).double().pow_(power).cpu()
        mine = values[i] if centred else values[0]
        own += mine / n
        if centred:
            others += (values.sum(0) - mine) / (n * (n - 1))
    return (own - others).reshape(rows, cols).numpy()


def correlation_map(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    model: Model,
    *,
    iterations: int = 3,
    power: int = 1,
    centred: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """The figure of appendix C.1: how the central patch correlates with all others, (iterations, rows, cols).

    Iteration 1 sees the degraded image, later ones the current estimate of the sharp one, each through the descriptor
    and the kernel of its stage. power, centred: see `central_correlation`.

    images: clean planes (H, W) of one shape, in [0, 1]; they are degraded by `operator` and noise of standard deviation
    `sigma`, drawn from `seed`.
    """
    maps = []
    for stage, seen in zip(model.paper_stages, iterates(images, operator, sigma, model, count=iterations, seed=seed)):
        prior = stage.prior
        maps.append(
            central_correlation(
                seen,
                prior.descriptor,
                size=prior.size,
                kernel=kernel_of(prior),
                stride=stage.stride,
                power=power,
                centred=centred,
            )
        )
    return np.stack(maps)


def iterates(
    images: Sequence[Tensor], operator: Operator, sigma: float, model: Model, *, count: int = 3, seed: int = 0
) -> list[list[Tensor]]:
    """What the first `count` stages see of each image: x⁽⁰⁾, x⁽¹⁾, …, cut to what y shows. `count` lists of planes."""
    if not 1 <= count <= len(model.stages):
        rule = f"lie between 1 and the number of stages, {len(model.stages)}"
        raise InputError("iterations", rule, count, "Fit a model with more stages, or ask for fewer.")
    seen: list[list[Tensor]] = [[] for _ in range(count)]
    device = model.stages[0].device
    for own, y in _observe([image.to(device) for image in images], operator, sigma, seed):
        estimates: list[Tensor] = []
        first = replace(model, stages=model.stages[: max(count - 1, 1)])
        generator = torch.Generator().manual_seed(seed)
        restore(y, own, first, sigma=sigma, generator=generator, observe=_keeper(estimates))
        for t in range(count):
            seen[t].append(own.crop(estimates[t], _shape(y)))
    return seen


def _keeper(estimates: list[Tensor]) -> Callable[[int, Tensor], None]:
    """What `restore` calls with each estimate, to keep them."""
    return lambda _, x: estimates.append(x.clone())


def _observe(images: Sequence[Tensor], operator: Operator, sigma: float, seed: int) -> list[tuple[Operator, Tensor]]:
    """The operator as it applies to each image, and y; the same noise as in `sample_bank`."""
    generator = torch.Generator().manual_seed(seed)
    observed = []
    for image in images:
        own, (height, width) = operator.for_training((image.shape[0], image.shape[1]))
        observed.append((own, degrade(image[:height, :width], own, sigma, generator)))
    return observed


def first_estimates(images: Sequence[Tensor], operator: Operator, sigma: float, seed: int) -> list[Tensor]:
    """x⁽⁰⁾ of each image, degraded, cut to what y shows."""
    return [own.crop(own.guess(y), _shape(y)) for own, y in _observe(images, operator, sigma, seed)]


def _shape(y: Tensor) -> tuple[int, int]:
    return y.shape[-2], y.shape[-1]


def kernel_of(prior: Prior) -> Kernel:
    """The kernel of a prior's weights, with its bandwidth."""
    kernel = getattr(prior.fitted, "kernel", None)
    if not isinstance(kernel, Kernel):
        remedy = "Use Nadaraya-Watson or kernel ridge weights, or call central_correlation with a kernel."
        raise InputError("model", "have weights with a kernel", type(prior.weights).__name__, remedy)
    return kernel
