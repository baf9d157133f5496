"""ANR: anchored neighbourhood regression. Each anchor j, an atom of the dictionary, has a ridge regression of its own,

    P_j = N_h (N_lᵀ N_l + λI)⁻¹ N_lᵀ,

over its nearest atoms N_l and their coupled details N_h; a patch takes the matrix of the anchor that correlates most.

R. Timofte, V. De Smet, L. Van Gool, "Anchored neighborhood regression for fast example-based super-resolution", ICCV,
2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from slir_bench.peers.base import Arrays, Peer
from slir_bench.peers.scaleup import coupled_dictionaries, describe, paste, training_pairs
from slir_bench.protocols import Case


class ANR(Peer):
    """Upsampling; full size."""

    name = "ANR"
    kinds = frozenset({"upsample"})
    images = 100

    def __init__(self, *, atoms: int = 1000, pairs: int = 100_000, rounds: int = 20, **options: Any):
        settings = {"atoms": atoms, "pairs": pairs, "rounds": rounds, "neighbours": 40, "ridge": 0.01}
        super().__init__(settings | {"images": self.images}, **options)

    def fit_key(self, case: Case) -> dict[str, Any]:
        return self.settings | {"factor": case.factor}

    def fit(self, images: Sequence[np.ndarray], case: Case) -> Arrays:
        settings = self.settings
        low, high, basis = training_pairs(images, settings["pairs"], case.factor, self.device)
        anchors, details = coupled_dictionaries(low, high, atoms=settings["atoms"], rounds=settings["rounds"], most=3)
        nearest = (anchors @ anchors.T).topk(min(settings["neighbours"], len(anchors))).indices
        near_low, near_high = anchors[nearest].mT, details[nearest].mT  # (K, d, n), (K, side², n)
        normal = near_low.mT @ near_low
        normal.diagonal(dim1=1, dim2=2).add_(settings["ridge"])
        maps = near_high @ torch.linalg.solve(normal, near_low.mT)  # (K, side², d)
        return {name: tensor.cpu().numpy() for name, tensor in (("basis", basis), ("anchors", anchors), ("maps", maps))}

    def restore(self, case: Case) -> np.ndarray:
        basis, anchors, maps = (torch.from_numpy(self.model[n]).to(self.device) for n in ("basis", "anchors", "maps"))
        bicubic, features = describe(torch.from_numpy(case.y).to(self.device), case.factor, basis)
        chosen = torch.cat([(part @ anchors.T).abs().argmax(1) for part in features.split(16384)])
        order = chosen.argsort(stable=True)
        sizes = torch.bincount(chosen, minlength=len(anchors)).tolist()
        details = features.new_empty(len(features), maps.shape[1])
        for j, mine in enumerate(order.split(sizes)):
            details[mine] = features[mine] @ maps[j].T
        return paste(bicubic, details, case.factor).cpu().numpy()
