"""The model that a task uses when none is given: a cascade that slir ships, learnt from freely licensed pictures.

A shipped cascade serves any operator of its kind and any noise level. Where none fits (upsampling by another factor
than 2, 3 or 4), a model of the paper's kind is learnt on the spot from pictures that ship too: seconds of work, kept
for the next call.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
from torch import Tensor

from slir.fitting import paper_model
from slir.model import Model
from slir.operators import Downsample, Identity, Mask, Operator

FACTORS = (2, 3, 4)
"""Of upsampling, for which a cascade ships."""

KERNEL_STAGES = 5
"""Stages of the learnt kernel where B is not the identity."""

_KEPT: dict[str, Model] = {}
_KEEP = 4


def _shipped(name: str, key: str) -> Tensor:
    from safetensors.torch import load_file

    with as_file(files("slir.data") / name) as path:
        return load_file(path)[key]


@lru_cache(maxsize=1)
def training_pictures() -> list[Tensor]:
    """13 grey pictures to learn from: planes (384, 384) in [0, 1]."""
    return list(_shipped("pictures.safetensors", "pictures").float() / 255)


@lru_cache(maxsize=1)
def demo_picture() -> np.ndarray:
    """A colour picture (256, 256, 3), uint8, that nothing of slir's was learnt from."""
    return _shipped("demo.safetensors", "picture").numpy()


@lru_cache(maxsize=8)
def shipped_model(name: str) -> Model:
    """A cascade of `slir.models`, on the CPU."""
    from slir.io.models import load

    with as_file(files("slir.models") / f"{name}.safetensors") as path:
        return load(path, device="cpu")


@lru_cache(maxsize=8)
def kernel_model(task: str) -> Model:
    """The learnt kernel that ships, with as many stages as a task takes, on the CPU. Nothing uses it by default yet."""
    from slir.kernel.stage import KernelStage, stages

    shipped = shipped_model("kernel")
    first = shipped.stages[0]
    assert isinstance(first, KernelStage)  # the file holds nothing else
    provenance = {name: value for name, value in shipped.provenance.items() if name != "family"}
    return Model(stages(first.network, 1 if task == "denoise" else KERNEL_STAGES), provenance)


@lru_cache(maxsize=1)
def shipped_hash() -> str:
    """The first 16 hex digits of the SHA-256 of all shipped models: tells figures of one release from another's."""
    digest = hashlib.sha256()
    for file in sorted(files("slir.models").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".safetensors"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def shipped_name(operator: Operator) -> str | None:
    """Which cascade serves an operator. Any linear map can be undone by the one for blurs, if less well."""
    if isinstance(operator, Identity):
        return "denoise"
    if isinstance(operator, Mask):
        return "inpaint"
    if isinstance(operator, Downsample) and operator.factor > 1:
        return f"upsample{operator.factor}" if operator.factor in FACTORS else None
    return "deblur"


def default_model(operator: Operator, sigma: float) -> Model:
    """The model for this operator and noise level (range 1), on the CPU."""
    name = shipped_name(operator)
    if name is not None:
        return shipped_model(name)
    key = json.dumps([operator.describe(), sigma], sort_keys=True)
    if key not in _KEPT:
        while len(_KEPT) >= _KEEP:
            _KEPT.pop(next(iter(_KEPT)))
        # One kernel ridge regression under the squared loss is the best of the paper's within seconds.
        _KEPT[key] = paper_model(training_pictures(), operator, sigma, loss="squared", weights="krr", m=4000)
    return _KEPT[key]
