"""Methods to compare with. `build` makes one by name; a peer's package is imported when it first restores."""

from __future__ import annotations

from pathlib import Path

from slir.bench.peers.anr import ANR
from slir.bench.peers.base import MissingPackageError, Peer
from slir.bench.peers.bicubic import Bicubic, Triangles
from slir.bench.peers.biharmonic import Biharmonic
from slir.bench.peers.bm3d import BM3D
from slir.bench.peers.epll import EPLL
from slir.bench.peers.hyper_laplacian import HyperLaplacian
from slir.bench.peers.ksvd import KSVD
from slir.bench.peers.tv import TotalVariation
from slir.bench.peers.wiener import Wiener
from slir.errors import InputError

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
