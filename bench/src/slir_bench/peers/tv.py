"""Total variation: min_x ‖x − y‖²/2 + w ‖∇x‖₁, the weight w chosen on training images at the same noise.

A. Chambolle, "An algorithm for total variation minimization and applications", JMIV, 2004; scikit-image's solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slir_bench.peers.base import Arrays, Peer, require
from slir_bench.protocols import Case, noise


class TotalVariation(Peer):
    """Denoising; full size."""

    name = "TV"
    kinds = frozenset({"denoise"})
    images = 8

    def __init__(self, **options: Any):
        super().__init__({"weights over sigma": [0.3, 2.0], "steps": 200, "images": self.images}, **options)

    def fit_key(self, case: Case) -> dict[str, Any]:
        return self.settings | {"sigma": round(case.sigma, 6)}

    def fit(self, images: Sequence[np.ndarray], case: Case) -> Arrays:
        """The weight, a multiple of sigma, with the least error over the middle of each image."""
        middles = [image[image.shape[0] // 4 :, image.shape[1] // 4 :][:192, :192] for image in images]
        noisy = [x + np.float32(case.sigma) * noise(x.shape, 1000 + i) for i, x in enumerate(middles)]
        low, high = self.settings["weights over sigma"]
        ratios = np.geomspace(low, high, 12)
        errors = [
            np.mean([np.mean((self._denoise(y, ratio * case.sigma) - x) ** 2) for x, y in zip(middles, noisy)])
            for ratio in ratios
        ]
        return {"weight": np.array([ratios[int(np.argmin(errors))] * case.sigma])}

    def restore(self, case: Case) -> np.ndarray:
        return self._denoise(case.y, float(self.model["weight"][0]))

    def _denoise(self, y: np.ndarray, weight: float) -> np.ndarray:
        steps = self.settings["steps"]
        return require("skimage.restoration").denoise_tv_chambolle(y, weight=weight, eps=1e-5, max_num_iter=steps)
