"""BM3D: groups of similar blocks, thresholded and then Wiener-filtered in a three-dimensional transform.

K. Dabov, A. Foi, V. Katkovnik, K. Egiazarian, "Image denoising by sparse 3-D transform-domain collaborative filtering",
IEEE TIP, 2007; the authors' own package `bm3d`. Its licence allows non-commercial use only, so it is a peer of the
benchmark and nothing else in slir may import it.
"""

from __future__ import annotations

import numpy as np

from slir_bench.peers.base import Peer, require
from slir_bench.protocols import Case


class BM3D(Peer):
    """Denoising; full size."""

    name = "BM3D"
    kinds = frozenset({"denoise"})

    def restore(self, case: Case) -> np.ndarray:
        return np.asarray(require("bm3d").bm3d(case.y, case.sigma), np.float32)
