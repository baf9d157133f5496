"""A report in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scipy.special import stdtrit

from slir.theory.rates import Gain, Rate

if TYPE_CHECKING:
    from slir.theory.reports import Report

_FACTS = {
    "learnt_for": "learnt for",
    "factor": "factor",
    "sigma": "noise",
    "images": "images",
    "crops": "crops",
    "bank": "patches",
    "cells": "cells",
    "seed": "seed",
    "slir": "made by slir",
}
_KINDS = {"nw": "Nadaraya-Watson", "krr": "kernel ridge", "nystrom": "Nyström"}

WORTH = 0.01
"""A doubling that takes off less than this share of the error is not worth it."""
SURE = 0.975
"""How likely chance must stay below a difference before it counts, on either side."""


def text(report: Report) -> str:
    """All of a report: the model, the theory's constants, the measurements, their law, and the advice."""
    parts = [_model(report), _constants(report), _errors(report), _laws(report)]
    if report.notes:
        parts.append("Notes\n" + "\n".join(f"  {note}" for note in report.notes))
    parts.append("Advice\n" + _wrap(advice(report)))
    return "\n\n".join(part for part in parts if part)


def advice(report: Report) -> str:
    """More images or more patches, from the last doublings that were measured; and what the next would bring."""
    if report.curves is None or report.gains is None or report.rate is None:
        return "Nothing was measured, so there is no advice. Pass clean images, three or more."
    patches, images = report.gains
    m, n = report.curves.m[-1], report.curves.n[-1]
    next_m, next_n = _next(report.rate, m, n)
    if images is None or report.preference is None:
        worth = "still helps" if patches.share > WORTH else "hardly helps"
        return f"Doubling the patches {worth}: {_share(patches)}. Whether more images would help takes three or more."
    facts = (
        f"The last doubling of patches (to {m}, of {n} images) took {_share(patches)} off the squared error, "
        f"the last doubling of images (to {n}, at {m} patches) {_share(images)}. By the law that fits, the next would "
        f"take {next_m:.1%} and {next_n:.1%}."
    )
    return f"{_verdict(report, patches, images, max(next_m, next_n))} {facts} {_turn(report)}".strip()


def _verdict(report: Report, patches: Gain, images: Gain, coming: float) -> str:
    lead, curves = report.preference, report.curves
    assert lead is not None
    assert curves is not None
    chance = float(stdtrit(len(curves.errors) - 1, SURE)) * lead.error  # Student's t: splits are few
    if max(patches.share, images.share, coming) < WORTH:
        return "Neither: this estimator has learnt what it can, and a learnt kernel (slir fit) sees more at each patch."
    if lead.share > chance:
        return "More images: half of the images is missed more than half of the patches."
    if lead.share < -chance:
        return "More patches: half of the patches is missed more than half of the images."
    return "Either: these splits cannot tell which counts more, and patches of images at hand cost nothing but time."


def _turn(report: Report) -> str:
    """From which m on images are what is missing; where that is too uncertain, before which they are not."""
    rate, curves = report.rate, report.curves
    assert rate is not None
    assert curves is not None
    n = report.n or curves.n[-1]
    most = rate.kappa + 2 * rate.kappa_error
    if most * curves.m[-1] < 0.05 * curves.n[-1]:
        return "The patches of an image count almost as if they were independent, so far."
    sure = rate.kappa > 2 * rate.kappa_error
    turn = n / (rate.kappa if sure else most)
    if report.correlation is not None and turn > n * report.correlation.patches:
        return f"By that law, all patches of these {n} images would not be too many for them."
    if sure:
        return f"With {n} images, more images become the better choice at a bank of about {_count(turn)} patches."
    bank = f"about {_count(turn)} patches of {n} images"
    return f"By that law, more images are not the better choice before a bank of {bank}."


def _next(rate: Rate, m: int, n: int) -> tuple[float, float]:
    """By which share the error would fall with twice the patches, and with twice the images."""
    now = float(rate(m, n))
    return 1 - float(rate(2 * m, n)) / now, 1 - float(rate(m, 2 * n)) / now


def _model(report: Report) -> str:
    facts = report.model
    if facts is None:
        return ""
    rows = [("kind", f"{facts.get('method')}, to {facts.get('task')}, {facts.get('stages')} stages")]
    rows += [(label, _plain(facts[name])) for name, label in _FACTS.items() if name in facts]
    if report.model_error is not None:
        rows.append(("held-out error", f"{_rms(report.model_error)} of its bank, on these images"))
    return "The model\n" + _rows(rows)


def _constants(report: Report) -> str:
    found = report.correlation
    if found is None:
        return ""
    assert report.c is not None
    assert report.lam is not None
    assert report.bound is not None
    what = report.task or "restore"
    sigma = "" if report.sigma is None else f", sigma {report.sigma:.4g} where the range is 1"
    error = "" if math.isnan(found.error) else f" ± {found.error:.3g}"
    printed = "" if report.c_printed is None else f"; the paper prints {report.c_printed:.3g}"
    nothing = "; nothing better is known for this operator" if report.c_printed is None and report.c == 1 else ""
    used = _used_words(report)
    rows = [
        ("q", f"{found.q:.4g}{error}: how much patches of one image have in common, from 0 to |P|"),
        ("|P|", f"{found.patches:.0f} patches an image, on average over {found.images} images"),
        ("c", f"{report.c:.3g}: what the data leave open, as a share of everything{printed}{nothing}"),
        ("lambda", f"{report.lam:.3g}, the theorem's for m = {report.m} patches of n = {report.n} images{used}"),
        ("bound", f"{report.bound:.3g} × g, where g is an unknown norm: its rate matters, not its size"),
    ]
    return f"The theory's constants: {what}{sigma}, patches of {report.size}×{report.size}\n" + _rows(rows)


def _used_words(report: Report) -> str:
    used = {} if report.curves is None else report.curves.weights
    return f"; {used['lam']:.3g} was used" if "lam" in used else ""


def _errors(report: Report) -> str:
    """The table of held-out errors, in percent of the range."""
    curves = report.curves
    if curves is None:
        return ""
    kind = _KINDS.get(curves.weights.get("kind", ""), "own")
    head = f"Held-out error, root mean square in percent of the range ({kind} weights, {len(curves.errors)} splits)"
    lines = ["  images      patches in the bank", " " * 10 + "".join(f"{m:>9}" for m in curves.m)]
    for n, row in zip(curves.n, curves.mean):
        lines.append(f"  {n:<8}" + "".join(f"{100 * value**0.5:>9.2f}" for value in row))
    shown = "" if math.isnan(curves.seen) else f"what is seen is off by {_rms(curves.seen)}, and "
    lines.append(f"  In comparison {shown}knowing nothing is off by {_rms(curves.spread)}.")
    if curves.mean[-1, -1] > curves.seen:
        lines.append("  A bank of this size alone is worse than what is seen; a restoration has the data term, too.")
    return "\n".join([head, *lines])


def _laws(report: Report) -> str:
    rate, theirs = report.rate, report.bound_rate
    if rate is None or theirs is None:
        return ""
    rows = [
        ("measured", f"power {rate.power:.2f} ± {rate.power_error:.2f}, k {_kappa(rate)}; misfit {rate.misfit:.1%}"),
        (
            "the bound",
            f"power 0.25, k {theirs.kappa:.2g} = (1 + q)/|P|; misfit {theirs.misfit:.1%}, its size fitted",
        ),
    ]
    return "The law: squared error = floor + size · (1/m + k/n)^power\n" + _rows(rows)


def _kappa(rate: Rate) -> str:
    return f"{rate.kappa:.2g} ± {rate.kappa_error:.2g}"


def _share(gain: Gain) -> str:
    return f"{gain.share:.1%} ± {gain.error:.1%}"


def _rms(square: float) -> str:
    return f"{100 * square**0.5:.2f} %"


def _count(number: float) -> str:
    """To two digits: 1234 -> 1200."""
    return f"{round(number, 1 - math.floor(math.log10(number))):.0f}"


def _plain(value: Any) -> str:
    return " to ".join(f"{each:.3g}" for each in value) if isinstance(value, list | tuple) else f"{value}"


def _rows(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"  {name:<15} {value}" for name, value in rows)


def _wrap(words: str) -> str:
    import textwrap

    return textwrap.fill(words, 100, initial_indent="  ", subsequent_indent="  ")
