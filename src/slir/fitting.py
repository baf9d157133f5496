"""Clean images and an operator in, a model out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import slir
from slir.arrays import grey_plane
from slir.bank import sample_bank
from slir.compute import pick_device
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.losses import Loss, loss_named
from slir.model import Model, Prior, Stage
from slir.operators import Operator
from slir.recipes import recipe
from slir.weights import KernelRidge, NadarayaWatson, Nystrom, Weights

VIEWS = {"seen": ("seen", "seen"), "clean": ("clean", "clean"), "seen-then-clean": ("seen", "clean")}
"""Which side of the bank's pairs describes it in the first stage, and in the later ones."""


def paper_model(
    images: Sequence[np.ndarray | Tensor],
    operator: Operator,
    sigma: float,
    loss: str | Loss = "euclidean",
    weights: str | Weights = "nw",
    m: int = 10_000,
    *,
    size: int = 8,
    window: int | None = None,
    view: str | None = None,
    keep_dc: bool = False,
    s: float | None = None,
    lam: float | str | None = None,
    kernel: str = "gaussian",
    gamma: float | None = None,
    beta0: float | None = None,
    delta: float | None = None,
    stages: int | None = None,
    splitting: str = "hqs",
    solver: str = "auto",
    stride: int = 1,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Model:
    """The paper's estimator, learnt from clean images degraded by `operator` and noise of standard deviation `sigma`.

    images: clean pictures, grey or colour, integer or float in [0, 1]. sigma: on the scale where the range is 1.
    loss: "euclidean" (HQS) or "squared" (one linear system, or HQS when beta0 is given).
    weights: "nw", "krr", "nystrom", or `slir.weights` of your own making.
    m: pairs in the bank. size: side of the patches. window: side of what is seen at each, where it differs.
    view: whether the bank is described by its degraded patches ("seen"), by its clean ones ("clean"), or by the
        degraded ones in the first stage and the clean ones after it ("seen-then-clean").
    s, lam, kernel: see `slir.weights`; lam="theorem" takes the λ of the generalisation bound.
    gamma, beta0, delta, stages: the schedule γ and β⁽ᵗ⁾ = β₀δᵗ.
    Whatever is None is taken from `slir.recipes` for the task.
    """
    loss = loss_named(loss)
    sigma = checked_sigma(sigma)
    plan = recipe(operator, sigma, loss, weights if isinstance(weights, str) else "own")
    given: dict[str, Any] = {"gamma": gamma, "beta0": beta0, "delta": delta, "stages": stages, "s": s, "view": view}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    if plan.view not in VIEWS:
        raise InputError("view", f"be one of {', '.join(VIEWS)}", repr(plan.view), "Pick one of these.")
    planes = [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]
    bank = sample_bank(planes, operator, sigma, m=m, size=size, window=window, seed=seed)
    distinct = len(torch.unique(bank.source, dim=0))
    if distinct < m / 2:  # draws are with replacement, and from so few places most of them are copies
        rule = f"be at most about the number of patches in the images, which gave {distinct} different ones"
        raise InputError("m", rule, m, "Pass more or larger images, or a smaller m.")
    descriptor = DctDescriptor(window, keep_dc)
    if lam == "theorem":
        from slir.theory import theorem_lam

        lam = theorem_lam(
            planes, operator, sigma, m=m, size=size, window=window, keep_dc=keep_dc, s=plan.s, kernel=kernel, seed=seed
        )
    chosen = weights_named(weights, s=plan.s, lam=plan.lam if lam is None else float(lam), kernel=kernel)
    first, rest = VIEWS[plan.view]
    prior = Prior(bank, descriptor, chosen, first)
    later = prior if rest == first else replace(prior, view=rest)
    betas = [None] if plan.beta0 is None else [plan.beta0 * plan.delta**t for t in range(plan.stages)]
    made = tuple(
        Stage(prior=later if t else prior, loss=loss, gamma=plan.gamma, beta=beta, solver=solver, stride=stride)
        for t, beta in enumerate(betas)
    )
    provenance = {"method": "paper", "slir": slir.__version__, "recipe": asdict(plan)}
    return Model(made, provenance, splitting).to(pick_device(device))


def checked_sigma(sigma: float) -> float:
    """σ on the scale where the range is 1."""
    if not (isinstance(sigma, int | float | np.floating) and 0 <= sigma <= 1):
        remedy = "It is the noise's standard deviation where the range is 1: 25/255 for 25 on an 8-bit image."
        raise InputError("sigma", "be a number from 0 to 1", repr(sigma), remedy)
    return float(sigma)


def weights_named(weights: str | Weights, *, s: float, lam: float, kernel: str) -> Weights:
    """The weights that a name stands for; `Weights` pass through."""
    if isinstance(weights, Weights):
        return weights
    if weights == "nw":
        return NadarayaWatson(s=s, kernel=kernel)
    known: dict[str, Callable[..., Weights]] = {"krr": KernelRidge, "nystrom": Nystrom}
    if weights not in known:
        rule = f"be one of nw, {', '.join(known)} or slir.weights"
        raise InputError("weights", rule, repr(weights), "Pick one of these.")
    return known[weights](s=s, lam=lam, kernel=kernel)


def fit(
    images: Sequence[np.ndarray | Tensor],
    *,
    operator: Operator,
    sigma: float,
    method: str = "paper",
    **settings: Any,
) -> Model:
    """Learn a model that undoes `operator` and noise of standard deviation `sigma` (range 1) from clean images.

    method: "paper", with the settings of `paper_model`.
    """
    if method != "paper":
        raise InputError("method", "be 'paper'", repr(method), "It is the one method of this version.")
    return paper_model(images, operator, sigma, **settings)
