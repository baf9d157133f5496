"""What a model knows about its errors, and its examples <-> tensors and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from slir.kernel.errors import NetworkErrors
from slir.trust.examples import Examples
from slir.trust.expected import ErrorModel
from slir.trust.intervals import LEVELS, Calibration
from slir.trust.own_test import OwnTest
from slir.trust.record import Trust

Tensors = dict[str, Tensor]
Settings = dict[str, Any] | None

_ERRORS = ("ends", "knots", "slopes")
_CALIBRATION = ("raw", "ratio", "expected", "absolute", "quantiles")


def pack_trust(trust: Trust | None, tensors: Tensors, place: str = "trust") -> Settings:
    """Adds the calibration's tensors under `place`; returns the rest as JSON."""
    if trust is None:
        return None
    tensors |= {f"{place}.{name}": getattr(trust.calibration, name).cpu().contiguous() for name in _CALIBRATION}
    return {
        **_packed_errors(trust.errors, place, tensors),
        "levels": list(LEVELS),
        "pixels": trust.calibration.pixels,
        "sigma": list(trust.sigma),
        "unit": list(trust.unit),
        "what": trust.what,
        "own": None if trust.own is None else asdict(trust.own),
    }


def unpack_trust(own: Settings, tensors: Tensors, place: str = "trust") -> Trust | None:
    if own is None:
        return None
    if tuple(own["levels"]) != LEVELS:
        raise ValueError("the levels of its calibration are not this slir's")
    calibration = Calibration(pixels=own["pixels"], **_named(tensors, place, _CALIBRATION))
    sigma, unit = ((float(low), float(high)) for low, high in (own["sigma"], own["unit"]))
    test = own.get("own")  # files of earlier releases have none
    if test is not None:
        ends = tuple((float(low), float(high)) for low, high in test["ends"])
        test = OwnTest(float(test["level"]), float(test["form"]), tuple(map(float, test["centre"])), ends)
    return Trust(_errors(own, place, tensors), calibration, sigma, unit, own["what"], test)


def _packed_errors(errors: ErrorModel | NetworkErrors, place: str, tensors: Tensors) -> dict[str, Any]:
    if isinstance(errors, NetworkErrors):
        return {"kind": "network"}
    tensors |= {f"{place}.{name}": getattr(errors, name).cpu().contiguous() for name in _ERRORS}
    again = None if errors.again is None else _packed_errors(errors.again, f"{place}.again", tensors)
    return {"names": list(errors.names), "bias": errors.bias, "again": again}


def _errors(own: dict[str, Any], place: str, tensors: Tensors) -> Any:
    if own.get("kind") == "network":
        return NetworkErrors()
    again = own.get("again")  # files of earlier releases have none
    second = None if again is None else _errors(again, f"{place}.again", tensors)
    return ErrorModel(tuple(own["names"]), bias=own["bias"], again=second, **_named(tensors, place, _ERRORS))


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
