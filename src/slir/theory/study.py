"""The theory in use: images or a model in, a `Report` out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.bank import image_hash
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.estimator.paper_settings import recipe
from slir.fitting import checked_sigma
from slir.kernel.degradations import family_from
from slir.losses import Squared
from slir.model import Model, Prior, Stage
from slir.operators import Downsample, Identity, Mask, Operator
from slir.preprocessing.arrays import grey_plane
from slir.theory import bounds
from slir.theory.banks import prior_correlation
from slir.theory.correlation import Correlation, bank_correlation, first_estimates, kernel_of, patch_correlation
from slir.theory.curves import Progress, heldout_curves, largest_bank, model_error
from slir.theory.rates import bound_rate, fit_rate
from slir.theory.reports import Report
from slir.weights import Weights, weights_named

CENTRES, PARTNERS = 256, 4096
"""Patches of an image that q is measured on, and those that each of them meets."""


def report(
    images: Sequence[np.ndarray | Tensor] | None = None,
    operator: Operator | None = None,
    sigma: float | None = None,
    *,
    model: Model | None = None,
    weights: str | Weights = "krr",
    s: float | None = None,
    lam: float | str | None = None,
    m: int | None = None,
    size: int = 8,
    folds: int = 5,
    repeats: int = 1,
    test: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure q, c_{B,σ}, λ and the bound, and how the error on held-out images falls with patches and images.

    images: two clean pictures at least, grey or colour, integer or float in [0, 1]. None takes the 13 that slir ships;
        with a model, None measures nothing and reports what the model says by itself.
    operator, sigma: what is to be undone, σ where the range is 1. With a model they may be left out where it says them:
        one that serves many is measured at one of them, drawn from `seed`.
    model: where it has a bank, its weights, descriptor and patch size are used instead of those below.
    weights, s: as in `slir.paper_model`. lam: λ of the measurements; "theorem" takes the theorem's, None the best of
        six on held-out images.
    m, folds, repeats, test: see `slir.theory.heldout_curves`.

    >>> found = slir.theory.report(pictures, slir.operators.Blur(psf), 0.01)
    >>> print(found.text())
    """
    prior = _prior(model)
    if model is not None and images is None:
        return _of_model(model, prior, seed)
    planes, notes = _planes(images), []
    operator, sigma, drawn = _subject(model, operator, sigma, (planes[0].shape[0], planes[0].shape[1]), seed)
    if drawn:
        notes.append(f"The model serves many operators and noise levels; one of them was drawn with seed {seed}.")
    descriptor, view = DctDescriptor(), "seen"
    if prior is not None:
        weights, size, descriptor, view = prior.weights, prior.size, prior.descriptor, prior.view
    elif isinstance(weights, str):
        s = recipe(operator, sigma, Squared(), weights).s if s is None else s
    given = weights_named(weights, s=s, lam=lam if isinstance(lam, float | int) else 1e-5)
    largest = largest_bank(planes, operator, max(size, descriptor.window or size), m, given)
    if prior is None:
        own = {name: value for name, value in given.settings().items() if name in ("s", "kernel")}
        correlation = bank_correlation(
            planes, operator, sigma, m=largest, size=size, centres=CENTRES, partners=PARTNERS, seed=seed, **own
        )
        bank = largest, len(planes)
    else:
        correlation = _through(prior, planes, operator, sigma, seed)
        bank = len(prior.bank), _images(prior)
    constants = _constants(operator, sigma, correlation, *bank)
    curves = heldout_curves(
        planes,
        operator,
        sigma,
        weights=weights,
        s=1.0 if s is None else s,
        lam=_number(lam, constants["lam"]),
        m=largest,
        size=size,
        descriptor=descriptor,
        view=view,
        folds=folds,
        repeats=repeats,
        test=test,
        seed=seed,
        progress=progress,
    )
    fresh = [] if prior is None else _unknown_to(prior, planes, notes)
    if len(curves.n) == 1:
        notes.append("Two images cannot tell what more images would bring; three are the least.")
    return Report(
        task=operator.task,
        operator=operator.describe(),
        sigma=sigma,
        size=size,
        correlation=correlation,
        **constants,
        curves=curves,
        rate=fit_rate(curves),
        bound_rate=bound_rate(curves, q=correlation.q, patches=correlation.patches),
        model=_facts(model),
        model_error=model_error(fresh, operator, sigma, prior, test=test, seed=seed) if prior and fresh else None,
        notes=tuple(notes),
        seed=seed,
    )


def _of_model(model: Model, prior: Prior | None, seed: int) -> Report:
    """What a model says without any image: the constants for a bank, the provenance of a learnt kernel."""
    said, facts = model.made_for, _facts(model)
    sigma = said.get("sigma") if isinstance(said.get("sigma"), float | int) else None
    constants: dict[str, Any] = dict.fromkeys(("m", "n", "c", "c_printed", "lam", "bound"))
    notes, correlation = [], None
    if prior is None:
        notes.append("A learnt kernel keeps no bank: pass images to measure q and the curves on them.")
    elif _images(prior) < 2:
        notes.append("The bank is from one image, and q compares images: pass some to measure it.")
    else:
        correlation = prior_correlation(prior)
        constants = _constants(
            _rebuilt(said.get("operator", {})), float(sigma or 0.0), correlation, len(prior.bank), _images(prior)
        )
    return Report(
        task=(facts or {}).get("task"),
        operator=said.get("operator"),
        sigma=sigma,
        size=model.stages[0].size,
        correlation=correlation,
        **constants,
        curves=None,
        rate=None,
        bound_rate=None,
        model=facts,
        model_error=None,
        notes=tuple(notes),
        seed=seed,
    )


def _constants(operator: Operator | None, sigma: float, found: Correlation, m: int, n: int) -> dict[str, Any]:
    """c, λ and the bound for m patches of n images."""
    c, printed = 1.0, None
    if isinstance(operator, Identity | Mask | Downsample):
        c, printed = bounds.constraint_ratio(operator, sigma, exact=True), bounds.constraint_ratio(operator, sigma)
    q = max(found.q, 0.0)
    lam = float(bounds.lam(m, q=q, patches=found.patches, n=n))
    least = float(bounds.bound(m, n, q=q, patches=found.patches, c=c))
    return {"m": m, "n": n, "c": c, "c_printed": printed, "lam": lam, "bound": least}


def _through(prior: Prior, planes: Sequence[Tensor], operator: Operator, sigma: float, seed: int) -> Correlation:
    """q of images seen through a model's kernel."""
    seen = first_estimates(planes, operator, sigma, seed)
    settings: dict[str, Any] = {"centres": CENTRES, "partners": PARTNERS, "seed": seed}
    return patch_correlation(seen, prior.descriptor, size=prior.size, kernel=kernel_of(prior), **settings)


def _number(lam: float | str | None, theorem: float) -> float | None:
    if isinstance(lam, str):
        if lam != "theorem":
            raise InputError("lam", "be a number, 'theorem' or None", repr(lam), "None chooses it on held-out images.")
        return theorem
    return lam


def _planes(images: Sequence[np.ndarray | Tensor] | None) -> list[Tensor]:
    if images is None:
        from slir.kernel.shipped import training_pictures

        return training_pictures()
    if not len(images):
        raise InputError("images", "hold at least two pictures", "empty", "Pass clean pictures, or None for slir's.")
    return [grey_plane(image, f"images[{i}]") for i, image in enumerate(images)]


def _prior(model: Model | None) -> Prior | None:
    """Of a model's first stage, where it has a bank."""
    first = None if model is None else model.stages[0]
    return first.prior if isinstance(first, Stage) else None


def _images(prior: Prior) -> int:
    return len(prior.bank.source[:, 0].unique())


def _facts(model: Model | None) -> dict[str, Any] | None:
    from slir.files.inspect import model_facts  # which knows of files, unlike all of this

    return None if model is None else model_facts(model)


def _subject(
    model: Model | None, operator: Operator | None, sigma: float | None, shape: tuple[int, int], seed: int
) -> tuple[Operator, float, bool]:
    """The operator and σ to measure: as given, else as the model says; and whether they were drawn from its family."""
    said = {} if model is None else model.made_for
    family, noise, drawn = said.get("family", said), said.get("sigma"), False
    noise = family.get("sigma", noise)
    if operator is None and "family" in family and family["family"] != "Fixed":
        operator, noise = family_from(family).draw(torch.Generator().manual_seed(seed), shape)
        drawn = True
    if operator is None:
        operator = _rebuilt(family.get("operator", {}))
    if isinstance(noise, list | tuple):
        noise = float(np.sqrt(noise[0] * noise[1]))
    sigma = noise if sigma is None else sigma
    if operator is None:
        remedy = "Pass slir.operators.Identity(), say; of a blur, filter or mask a model keeps the hash alone."
        raise InputError("operator", "be given unless a model specifies it", "missing", remedy)
    if sigma is None:
        remedy = "Pass the noise, where the range is 1."
        raise InputError("sigma", "be given unless a model specifies it", "missing", remedy)
    return operator, checked_sigma(sigma), drawn


def _rebuilt(described: dict[str, Any]) -> Operator | None:
    """The operator of a description, where that says all of it."""
    if described.get("kind") == "identity":
        return Identity()
    if described.get("kind") == "downsample":
        usual = Downsample(int(described["factor"]))
        return usual if usual.describe() == described else None
    return None


def _unknown_to(prior: Prior, planes: Sequence[Tensor], notes: list[str]) -> list[Tensor]:
    """Those images that a bank does not come from."""
    known = set(prior.bank.provenance.get("images", ()))
    fresh = [plane for plane in planes if image_hash(plane) not in known]
    if len(fresh) < len(planes):
        notes.append(f"The model was learnt from {len(planes) - len(fresh)} of these {len(planes)} images.")
    return fresh
