"""Wiener deconvolution whose noise and smoothness levels are sampled from the image itself.

F. Orieux, J.-F. Giovannelli, T. Rodet, "Bayesian estimation of regularization and point spread function parameters for
Wiener–Hunt deconvolution", JOSA A, 2010; scikit-image's `unsupervised_wiener`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slir_bench.peers.base import Peer, require
from slir_bench.peers.forward import edge_tapered
from slir_bench.protocols import Case


class Wiener(Peer):
    """Deblurring; full size. Its model is circular, so y is continued past its border first."""

    name = "Wiener"
    kinds = frozenset({"deblur"})

    def __init__(self, **options: Any):
        super().__init__({"steps": 200, "seed": 0}, **options)

    def restore(self, case: Case) -> np.ndarray:
        y = edge_tapered(case).astype(np.float64)
        restored, _ = require("skimage.restoration").unsupervised_wiener(
            y,
            case.psf,
            clip=False,
            rng=self.settings["seed"],
            user_params={"max_num_iter": self.settings["steps"]},
        )
        return restored.astype(np.float32)
