"""A bank as the kernels read it: in half precision, whole tiles long."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

COLUMNS = 64
"""Numbers that a product of tiles sums over at a time."""

TILE = 128
"""Bank patches are padded to a multiple of these."""


@dataclass(frozen=True)
class TiledBank:
    """features: φⁱ (M, D), half precision, scaled so that a score is log₂ of a weight. bias: −‖φⁱ‖²/2 (M,); −∞ for
    what only fills up the last tile. clean: (M, K), half precision. norms: ‖xⁱ‖² (M,) of these. centre: what was taken
    from all clean patches (k,), so that distances round less. scale: of the features.
    """

    features: Tensor
    bias: Tensor
    clean: Tensor
    norms: Tensor
    centre: Tensor
    scale: float

    def described(self, seen: Tensor) -> Tensor:
        """Features of patches, to match the bank's: (c, d) -> (c, D)."""
        return padded(seen * self.scale, self.features.shape[1]).half()


def tiled_bank(features: Tensor, clean: Tensor, bandwidth: float) -> TiledBank:
    """features (m, d), clean (m, k), bandwidth σ_k of a Gaussian kernel.

        log₂ k(f, fⁱ) = φᵀφⁱ − ‖φⁱ‖²/2 − ‖φ‖²/2,    φ = f √(log₂e)/σ_k

    Half precision has eleven bits, as TF32 has: with pixels between −1 and 1 nothing overflows, and weights are off by
    less than a hundredth where it matters. The clean patches that are summed are those in half precision, exactly.
    """
    scale = math.sqrt(math.log2(math.e)) / bandwidth
    centre = clean.mean(0)
    rows = -(-len(clean) // TILE) * TILE
    wide = max(16, 1 << (clean.shape[1] - 1).bit_length())
    deep = -(-features.shape[1] // COLUMNS) * COLUMNS
    described = padded(features * scale, deep)
    bias = described.square().sum(1).mul_(-0.5)
    rounded = padded(clean - centre, wide).half()
    return TiledBank(
        _long(described.half(), rows),
        _long(bias, rows, -math.inf),
        _long(rounded, rows),
        _long(rounded.float().square().sum(1), rows),
        centre,
        scale,
    )


def padded(rows: Tensor, width: int) -> Tensor:
    """Zeros to the right: (n, w) -> (n, width)."""
    return torch.nn.functional.pad(rows, (0, width - rows.shape[1]))


def _long(rows: Tensor, count: int, value: float = 0.0) -> Tensor:
    """The rows, and as many more of one value as make them `count`."""
    more = rows.new_full((count - len(rows), *rows.shape[1:]), value)
    return torch.cat([rows, more]).contiguous()
