"""What a file is: an image with what travels beside its pixels, or a model with where it came from."""

from __future__ import annotations

import io as streams
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slir import io

if TYPE_CHECKING:
    from slir.kernel.learnt import LearntKernel
    from slir.model import Model
    from slir.trust.record import Trust

MODEL_SUFFIX = ".safetensors"
BAND = 2**24
"""Pixels that are read at a time."""

_MAKE, _MODEL, _DATE, _SUB_IFD, _DATE_TAKEN = 0x010F, 0x0110, 0x0132, 0x8769, 0x9003


def about(path: str | os.PathLike[str], *, noise: bool = False) -> dict[str, Any]:
    """What can be said about an image or a model, by name; all of it is fit for JSON.

    noise : estimate the noise of an image as well, which takes a while. Raises FileError for a file that is neither.
    """
    path = Path(path)
    return about_model(path) if path.suffix.lower() == MODEL_SUFFIX else about_image(path, noise=noise)


def about_image(path: Path, *, noise: bool = False) -> dict[str, Any]:
    """Format, size, type, range and metadata of an image."""
    with io.open_source(path) as source:
        height, width = source.size
        found: dict[str, Any] = {
            "path": str(path),
            "kind": "image",
            "format": source.form,
            **({} if source.head.quality is None else {"quality": source.head.quality}),
            "width": width,
            "height": height,
            "layout": source.layout,
            "dtype": str(source.dtype),
            "planes": source.planes,
            "axes": "".join(source.axes),
            "data_range": source.data_range,
            **_values(source),
            **_beside(source.meta),
            "notes": [*source.notes, *_changed(path)],
            "bytes": _bytes(path),
        }
        if noise:
            found["sigma"] = _noise(source)
    return found


def _changed(path: Path) -> list[str]:
    """Says so where an output of slir is no longer as its sidecar tells: damaged, or edited."""
    from slir.files import provenance
    from slir.files.atomic_output import digest, sidecar_of

    beside = sidecar_of(path)
    if not provenance.is_sidecar(beside) or provenance.load(beside).record["output"]["sha256"] == digest(path):
        return []
    return ["the file has changed since slir wrote it: its hash is not that of its sidecar"]


def about_model(path: Path) -> dict[str, Any]:
    """What a model, or a learnt kernel, was learnt for and from, and what its intervals hold for."""
    from slir.files.atomic_output import digest
    from slir.io.models import is_kernel, load, load_kernel

    facts = _kernel_facts(load_kernel(path)) if is_kernel(path) else model_facts(load(path, device="cpu"))
    return {"path": str(path), "kind": "model", **facts, "sha256": digest(path), **_inside(path), "bytes": _bytes(path)}


def _inside(path: Path) -> dict[str, str]:
    """Of a model that ships, the hash by which sidecars know all of these."""
    from importlib.resources import as_file, files

    from slir.kernel.shipped import shipped_hash

    own = files("slir.models") / path.name
    if not own.is_file():
        return {}
    with as_file(own) as place:
        return {"inside_slir": shipped_hash()} if place.samefile(path) else {}


def _kernel_facts(kernel: LearntKernel) -> dict[str, Any]:
    """The facts of a learnt kernel, which serves all tasks."""
    own = kernel.provenance
    found: dict[str, Any] = {
        "method": "kernel",
        "task": "restore",
        "weights": sum(weight.numel() for weight in kernel.network.parameters()),
        "images": own.get("pictures"),
        "steps": own.get("steps"),
        "intervals": {task: _calibration_words(trust) for task, trust in kernel.trust.items()},
        "slir": own.get("slir"),
    }
    return {name: value for name, value in found.items() if value is not None}


def model_facts(model: Model) -> dict[str, Any]:
    """The same of a model in memory."""
    from slir.model import Stage

    own, made_for = model.provenance, model.made_for
    family = made_for.get("family", made_for)
    operator = family.get("operator", {})
    first = model.stages[0]
    found: dict[str, Any] = {
        "method": own.get("method", "kernel" if model.learnt else "paper"),
        "task": family.get("kind") or _task(operator.get("kind", "restore")),
        "learnt_for": family.get("family") or operator.get("kind"),
        "sigma": family.get("sigma", [family["low"], family["high"]] if "low" in family else None),
        "factor": family.get("factor", operator.get("factor")),
        "stages": len(model.stages),
        "patch": first.size,
        "cells": own.get("cells"),
        "bank": len(first.prior.bank) if isinstance(first, Stage) else None,
        "images": len(own["images"]) if isinstance(own.get("images"), list) else own.get("images"),
        "crops": own.get("crops"),
        "seed": own.get("seed", made_for.get("seed")),
        "intervals": _calibration_words(model.trust),
        "slir": own.get("slir"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _task(kind: str) -> str:
    """The task that undoes an operator of a kind; the kind where no task is known."""
    from slir.operators import KINDS

    return KINDS[kind].task if kind in KINDS else kind


def _calibration_words(trust: Trust | None) -> str:
    """What the intervals hold for, in words."""
    if trust is None:
        return "not calibrated"
    family = trust.what.get("family", {})
    for_what = "one operator" if family.get("operator") else "the whole task"
    low, high = trust.sigma
    sigma = f"sigma {low:.3g}" if low == high else f"sigma from {low:.3g} to {high:.3g}"
    return f"calibrated for {for_what}, {sigma} of the range"


def _values(source: io.Source) -> dict[str, Any]:
    """The smallest and the largest pixel value, alpha not counted, and how many are NaN or infinite."""
    low, high, broken = np.inf, -np.inf, 0
    for band in _bands(source):
        finite = band[np.isfinite(band)] if band.dtype.kind == "f" else band
        broken += band.size - finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    known = low <= high
    return {"lowest": low if known else None, "highest": high if known else None, "not_finite": broken}


def _bands(source: io.Source) -> Iterator[np.ndarray]:
    height, width = source.size
    rows = max(1, BAND // width) if source.large else height
    for plane in range(source.planes):
        for top in range(0, height, rows):
            yield source.read(plane, slice(top, min(top + rows, height))).pixels


def _beside(meta: io.Meta) -> dict[str, Any]:
    """What travels beside the pixels, where there is any."""
    found: dict[str, Any] = {}
    if meta.icc is not None:
        found["colour_profile"] = _profile_name(meta.icc)
    found |= _camera(meta.exif)
    if meta.resolution is not None:
        inches = meta.resolution.per_inch()
        found["resolution"] = list(inches or (meta.resolution.x, meta.resolution.y))
        found["resolution_unit"] = "inch" if inches else meta.resolution.unit
    if steps := io.pixel_size(meta):
        found["pixel_size"] = {axis: {"step": step, "unit": unit} for axis, (step, unit) in steps.items()}
    if meta.orientation != 1:
        found["orientation"] = meta.orientation
    if meta.xmp is not None:
        found["xmp_bytes"] = len(meta.xmp)
    if meta.text:
        found["text"] = {key: value[:200] for key, value in meta.text.items()}
    return found


def _profile_name(icc: bytes) -> str:
    try:
        from PIL import ImageCms

        return ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(streams.BytesIO(icc))).strip()
    except Exception:  # a damaged profile, or a Pillow without littleCMS
        return f"unnamed, {len(icc)} bytes"


def _camera(block: bytes | None) -> dict[str, Any]:
    """Camera and date out of EXIF."""
    if not block:
        return {}
    from PIL import Image

    from slir.io.exif import PREFIX

    tags = Image.Exif()
    try:
        tags.load(PREFIX + block)
        inner = tags.get_ifd(_SUB_IFD)
    except Exception:  # a damaged block says nothing, but it is there
        return {"exif_bytes": len(block)}
    camera = " ".join(str(tags[tag]).strip("\0 ") for tag in (_MAKE, _MODEL) if tag in tags)
    date = str(inner.get(_DATE_TAKEN, tags.get(_DATE, ""))).strip("\0 ")
    return {"exif_bytes": len(block), **({"camera": camera} if camera else {}), **({"date": date} if date else {})}


def _noise(source: io.Source) -> float | list[float]:
    """σ of the first plane in units of its pixel values: one number, or one a channel."""
    from slir.noise import estimate_sigma

    pixels = np.nan_to_num(source.read(0).pixels, posinf=0, neginf=0)
    return estimate_sigma(pixels) if pixels.ndim == 2 else estimate_sigma(pixels, channel_axis=-1)


def _bytes(path: Path) -> int:
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size
