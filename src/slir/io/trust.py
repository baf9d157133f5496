"""What a model knows about its errors, and its examples <-> tensors and JSON."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from slir.trust.examples import Examples
from slir.trust.intervals import LEVELS, Calibration
from slir.trust.record import Trust

Tensors = dict[str, Tensor]
Settings = dict[str, Any] | None

_CALIBRATION = ("raw", "ratio", "expected", "absolute", "quantiles")


def pack_trust(trust: Trust | None, tensors: Tensors, place: str = "trust") -> Settings:
    """Adds the calibration's tensors under `place`; returns the rest as JSON."""
    if trust is None:
        return None
    for number, calibration in enumerate(trust.calibrations):
        tensors |= {f"{place}.{number}.{name}": getattr(calibration, name).cpu().contiguous() for name in _CALIBRATION}
    settings = {"levels": list(LEVELS), "pixels": [calibration.pixels for calibration in trust.calibrations]}
    return settings | {"nodes": list(trust.nodes), "sigma": list(trust.sigma), "what": trust.what}


def unpack_trust(own: Settings, tensors: Tensors, place: str = "trust") -> Trust | None:
    if own is None:
        return None
    if tuple(own["levels"]) != LEVELS:
        raise ValueError("the levels of its calibration are not this slir's")
    nodes = tuple(float(node) for node in own["nodes"])
    calibrations = tuple(
        Calibration(pixels=pixels, **_named(tensors, f"{place}.{number}", _CALIBRATION))
        for number, (_, pixels) in enumerate(zip(nodes, own["pixels"], strict=True))
    )
    if not nodes or list(nodes) != sorted(set(nodes)) or nodes[0] <= 0:
        raise ValueError("the noise levels of its calibration do not increase")
    return Trust(nodes, calibrations, (float(own["sigma"][0]), float(own["sigma"][1])), own["what"])


def _named(tensors: Tensors, place: str, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: tensors[f"{place}.{name}"].cpu() for name in names}


def pack_examples(examples: Examples | None, tensors: Tensors) -> Settings:
    if examples is None:
        return None
    tensors["examples.patches"] = examples.patches.cpu().contiguous()
    tensors["examples.origin"] = examples.origin.cpu().contiguous()
    return {"sources": list(examples.sources)}


def unpack_examples(own: Settings, tensors: Tensors) -> Examples | None:
    if own is None:
        return None
    return Examples(tensors["examples.patches"].cpu(), tensors["examples.origin"].cpu(), tuple(own["sources"]))
