"""Methods to compare with. `build` makes one by name; a peer's package is imported when it first restores."""

from __future__ import annotations

from pathlib import Path

from slir.errors import InputError
from slir_bench.peers.anr import ANR
from slir_bench.peers.base import MissingPackageError, Peer
from slir_bench.peers.bicubic import Bicubic, Triangles
from slir_bench.peers.biharmonic import Biharmonic
from slir_bench.peers.bm3d import BM3D
from slir_bench.peers.epll import EPLL
from slir_bench.peers.hyper_laplacian import HyperLaplacian
from slir_bench.peers.ksvd import KSVD
from slir_bench.peers.tv import TotalVariation
from slir_bench.peers.wiener import Wiener

PEERS: dict[str, type[Peer]] = {
    kind.name: kind
    for kind in (Bicubic, Triangles, Biharmonic, TotalVariation, Wiener, HyperLaplacian, KSVD, ANR, BM3D, EPLL)
}


def build(name: str, *, device: str = "cpu", cache: Path | None = None) -> Peer:
    """The peer of this name, in any case; `cache` is a folder for what it fits."""
    for known, kind in PEERS.items():
        if known.lower() == name.lower():
            return kind(device=device, cache=cache)
    raise InputError("method", f"be one of {', '.join(PEERS)}", repr(name), "Pass one of these names.")


__all__ = [
    "PEERS",
    "build",
    "MissingPackageError",
    "Peer",
    "ANR",
    "Bicubic",
    "Biharmonic",
    "BM3D",
    "EPLL",
    "HyperLaplacian",
    "KSVD",
    "TotalVariation",
    "Triangles",
    "Wiener",
]
