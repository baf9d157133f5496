"""The model that a task uses when none is given: learnt on the spot from the pictures that slir ships.

The operator and the noise level are known only when a task is called, so what ships is clean pictures, and the bank is
cut from them then, degraded by that very operator: seconds of work, kept for the next call.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from torch import Tensor

from slir.fitting import paper_model
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.recipes import sharper_deblurring

_KEPT: dict[str, Model] = {}
_KEEP = 4


def _shipped(name: str, key: str) -> Tensor:
    from safetensors.torch import load_file

    with as_file(files("slir.data") / name) as path:
        return load_file(path)[key]


@lru_cache(maxsize=1)
def training_pictures() -> list[Tensor]:
    """The 13 grey pictures that slir learns from by default: planes (384, 384) in [0, 1]."""
    return list(_shipped("pictures.safetensors", "pictures").float() / 255)


@lru_cache(maxsize=1)
def demo_picture() -> np.ndarray:
    """A colour picture (256, 256, 3), uint8, that no bank of slir's has seen."""
    return _shipped("demo.safetensors", "picture").numpy()


def default_settings(operator: Operator, sigma: float) -> dict[str, Any]:
    """Settings of `paper_model` by task: what restores best within seconds on a laptop.

    One kernel ridge regression under the squared loss wins where y and x share what is seen at a patch. Deblurring
    wants the Euclidean loss and several stages, because each recovers what the one before made visible.
    """
    if isinstance(operator, Identity | Downsample | Mask):
        return {"loss": "squared", "weights": "krr", "m": 4000}
    plan = replace(sharper_deblurring(sigma), delta=2.0, stages=6)  # a little less, for a good deal less time
    return {
        "m": 2000,
        "stride": 2,
        **{name: getattr(plan, name) for name in ("gamma", "beta0", "delta", "stages", "view")},
    }


def default_model(operator: Operator, sigma: float) -> Model:
    """The default model for this operator and noise level (range 1), on the CPU. The last few are kept."""
    if not isinstance(operator, Blur | Downsample | Identity | Mask):
        # Operators that say little of themselves cannot be told apart by what they say.
        return paper_model(training_pictures(), operator, sigma, **default_settings(operator, sigma))
    key = json.dumps([operator.describe(), sigma], sort_keys=True)
    if key not in _KEPT:
        while len(_KEPT) >= _KEEP:
            _KEPT.pop(next(iter(_KEPT)))
        settings = default_settings(operator, sigma)
        _KEPT[key] = paper_model(training_pictures(), operator, sigma, **settings)
    return _KEPT[key]
