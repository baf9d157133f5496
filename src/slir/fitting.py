"""Clean images and an operator in, a model out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import slir
from slir.bank import sample_bank
from slir.compute import pick_device, retry_on_oom
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.estimator.paper_settings import recipe
from slir.kernel.degradations import Family, Fixed
from slir.losses import Loss, loss_named
from slir.model import Model, Prior, Stage
from slir.operators import Operator
from slir.preprocessing.arrays import grey_plane
from slir.problem import task_named
from slir.weights import Weights, weights_named

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
    Whatever is None is taken from `slir.estimator.paper_settings` for the task.
    """
    loss = loss_named(loss)
    sigma = checked_sigma(sigma)
    _check_planes(operator)
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


def fit(
    images: Sequence[np.ndarray | Tensor],
    *,
    task: str | None = None,
    operator: Operator | None = None,
    sigma: float | tuple[float, float] | None = None,
    factor: int = 2,
    method: str = "kernel",
    cluster: Any = None,
    **settings: Any,
) -> Model:
    """Learn from clean images (grey or colour, integer or float in [0, 1]) how to undo a degradation.

    task: "denoise", "deblur", "upsample" or "inpaint", for any operator of the kind: any PSF, filter or mask.
    operator: instead of a task, the one operator that the model is for; it then does better on that one.
    sigma: standard deviation of the noise, range 1: a number, or the (lowest, highest) that the model is to serve. By
        default all that the task is likely to meet.
    factor: of upsampling, where task is given.
    method: "kernel" solves one stage in closed form on top of the learnt kernel, in about a minute, with the settings
        of `slir.kernel.fitting.fit_on_top`. "paper" takes the settings of `paper_model`, an operator and one sigma.
    cluster: where the work is done: None is this process; "local", "local:4" (processes on this machine), the address
        of a Dask scheduler ("tcp://10.0.0.1:8786"), or a `distributed.Client`. The model is the same. Not for method
        "paper".

    >>> model = slir.fit(pictures, task="denoise")
    >>> model = slir.fit(pictures, operator=slir.operators.Blur(psf), sigma=0.01)
    """
    if method == "paper":
        if cluster is not None:
            remedy = "Its bank is drawn in seconds; leave the cluster out."
            raise InputError("cluster", "be left out for method 'paper'", repr(cluster), remedy)
        if operator is None or isinstance(sigma, tuple) or sigma is None:
            remedy = (
                "Pass for example operator=slir.operators.Blur(psf), sigma=0.01; method='kernel' serves a whole task."
            )
            raise InputError("operator and sigma", "be given for method 'paper'", f"{operator}, {sigma}", remedy)
        return paper_model(images, operator, sigma, **settings)
    if method != "kernel":
        raise InputError("method", "be 'kernel' or 'paper'", repr(method), "Pick one of these.")
    from slir.kernel.fitting import fit_on_top

    family = family_for(task, operator, sigma, factor)
    if cluster is not None:
        return fit_on_top(images, family, cluster=cluster, **settings)
    return retry_on_oom(lambda: fit_on_top(images, family, **settings), pick_device(settings.get("device")))


def family_for(
    task: str | None, operator: Operator | None, sigma: float | tuple[float, float] | None, factor: int = 2
) -> Family:
    """What a model is to undo, from what `fit` was told."""
    if (task is None) == (operator is None):
        found = "neither is" if task is None else "both are"
        remedy = "A model for one operator does better on that one; a task serves all of its kind."
        raise InputError("task or operator", "be given, one of the two", found, remedy)
    if operator is not None:
        _check_planes(operator)
        if sigma is None:
            sigma = NOISE
        if isinstance(sigma, tuple):
            return Fixed(operator, (checked_sigma(sigma[0]), checked_sigma(sigma[1])))
        return Fixed(operator, checked_sigma(sigma))
    assert task is not None  # one of the two is given
    low, high = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    levels = None if low is None or high is None else (checked_sigma(low), checked_sigma(high))
    return task_named(task).degradations({"factor": factor}, levels)


NOISE = (2 / 255, 80 / 255)
"""Noise levels that denoising serves by default."""


def _check_planes(operator: Operator) -> None:
    """Raise InputError for an operator that mixes channels: what is fitted sees the brightness alone."""
    if operator.x_planes:
        remedy = "slir.restore without a model serves it."
        raise InputError("operator", "act on one plane, to fit a model", f"on {operator.x_planes}", remedy)
