"""Colour: whether the channels of an image show one picture, so that they are restored together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch.nn.functional as F
from torch import Tensor

BLOCK = 4
"""Side of the blocks whose means are compared: they have less noise than pixels."""

ALIKE = 0.5
"""Least correlation of the channels' edges for which they count as colours of one picture."""


def alike(planes: Sequence[Tensor], sigmas: Sequence[float]) -> bool:
    """Whether channels are colours of one picture, rather than pictures of their own (dyes in a microscope, say).

    By the correlation of their edges, differences between neighbouring blocks of pixels, less what the noise adds to
    their squares; where that leaves next to nothing, by what little correlation there is.
    """
    coarse = [F.avg_pool2d(plane[None, None], BLOCK)[0, 0] for plane in planes]
    edges = [(plane[:, 1:] - plane[:, :-1]).flatten() for plane in coarse]
    whole = [max(float(edge.square().mean()), 1e-30) for edge in edges]
    power = [both - 2 * (sigma / BLOCK) ** 2 for both, sigma in zip(whole, sigmas)]
    clear = all(own > 0.1 * both for own, both in zip(power, whole))
    against = power if clear else whole
    found = [
        float((edges[one] * edges[other]).mean()) / (against[one] * against[other]) ** 0.5
        for one, other in combinations(range(len(planes)), 2)
    ]
    return sum(found) / len(found) > (ALIKE if clear else 0.1 * ALIKE)
