"""The model that a task uses when none is given: the learnt kernel, for any operator and any noise level."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import as_file, files

import numpy as np
from torch import Tensor

from slir.kernel.learnt import LearntKernel
from slir.model import Model
from slir.operators import Operator


def _load_tensor(name: str, key: str) -> Tensor:
    from safetensors.torch import load_file

    with as_file(files("slir.data") / name) as path:
        return load_file(path)[key]


@lru_cache(maxsize=1)
def training_pictures() -> list[Tensor]:
    """13 grey pictures to learn from: planes (384, 384) in [0, 1]."""
    return list(_load_tensor("pictures.safetensors", "pictures").float() / 255)


@lru_cache(maxsize=1)
def demo_picture() -> np.ndarray:
    """A colour picture (256, 256, 3), uint8, that nothing of slir's was learnt from."""
    return _load_tensor("demo.safetensors", "picture").numpy()


@lru_cache(maxsize=1)
def shipped_kernel() -> LearntKernel:
    """The learnt kernel of `slir.models`, on the CPU."""
    from slir.io.models import load_kernel

    with as_file(files("slir.models") / "kernel.safetensors") as path:
        return load_kernel(path)


@lru_cache(maxsize=8)
def shipped_model(name: str) -> Model:
    """The model for operators of a calibration (`Operator.calibration`), on the CPU."""
    return shipped_kernel().model(name)


@lru_cache(maxsize=1)
def shipped_hash() -> str:
    """The first 16 hex digits of the SHA-256 of all shipped models: tells figures of one release from another's."""
    digest = hashlib.sha256()
    for file in sorted(files("slir.models").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".safetensors"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def default_model(operator: Operator) -> Model:
    """The model for an operator, on the CPU. It serves all noise levels."""
    return shipped_model(operator.calibration)
