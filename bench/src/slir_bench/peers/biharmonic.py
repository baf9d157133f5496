"""Inpainting by the biharmonic equation, ∇⁴x = 0 where pixels are missing: scikit-image's."""

from __future__ import annotations

from typing import Any

import numpy as np

from slir_bench.peers.base import Peer, require
from slir_bench.protocols import Case


class Biharmonic(Peer):
    """scikit-image's `inpaint_biharmonic` (Damelin & Hoang, 2018)."""

    name = "biharmonic"
    kinds = frozenset({"inpaint"})

    def __init__(self, **options: Any):
        super().__init__({}, **options)

    def restore(self, case: Case) -> np.ndarray:
        assert case.mask is not None
        return require("skimage.restoration").inpaint_biharmonic(case.y.astype(np.float64), ~case.mask)
