"""How far a result may be trusted: what `slir.tasks.Result` knows of it, kept in files for questions to come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from slir.errors import SlirError
from slir.web.problems import refused

LEVELS = ("0.5", "0.9")
"""Shares of the pixels that intervals are to hold."""

UNASKED = "The error map was not requested."
TOO_LARGE = "Planes of this size are restored by windows, without an error map."
UNCALIBRATED = "This model has no calibration."


def error_of(folder: Path) -> Path:
    return folder / "error.npy"


def bounds_of(folder: Path, level: str) -> Path:
    return folder / f"interval-{level}.npy"


def keep(folder: Path, result: Any) -> dict[str, Any]:
    """Write the error map and the intervals of a result; what there is to say of them."""
    error = getattr(result, "error_map", None)
    if error is None:
        return {"error": False, "error_reason": getattr(result, "calibrated", "") or UNCALIBRATED}
    error = np.asarray(error, np.float32)
    np.save(error_of(folder), error)
    for level in LEVELS:
        try:
            np.save(bounds_of(folder, level), np.stack(result.interval(float(level))).astype(np.float32))
        except SlirError as failure:
            reason = getattr(result, "calibrated", "")
            return _told(error) | {"error_reason": reason, "interval_reason": reason or str(failure)}
    return _told(error)


KEPT: OrderedDict[Path, Any] = OrderedDict()
"""Results of the last jobs of this process, by their folders, for questions about their pixels."""

KEPT_PIXELS = 2**24


def remember(folder: Path, result: Any) -> None:
    """Keep a result at hand; of more than KEPT_PIXELS in all, those that nobody asked about for longest go."""
    KEPT[folder] = result
    KEPT.move_to_end(folder)
    while len(KEPT) > 1 and sum(np.size(own.image) for own in KEPT.values()) > KEPT_PIXELS:
        KEPT.popitem(last=False)


def explained(explain: Callable[[], Any]) -> dict[str, Any]:
    """The patches behind a pixel as JSON, pixels from 0 to 1. explain : gives the `slir.trust.Explanation`."""
    try:
        found = explain()
    except SlirError as error:
        raise refused(error, status=409) from None
    return plain(found.as_json() | {"weights_sum": float(np.sum(found.weights))})


def plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers as numbers, and none where they are not finite."""
    if isinstance(value, dict):
        return {str(name): plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(own) for own in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _told(error: np.ndarray) -> dict[str, Any]:
    finite = error[np.isfinite(error)]
    return {"error": True, "error_reason": "", "max_error": float(finite.max()) if finite.size else 0.0}


def at(folder: Path, row: int, col: int) -> dict[str, Any]:
    """The error to expect at a pixel of the first plane, by channel, and its intervals; None where it is not known."""
    found: dict[str, Any] = {"error": None, "interval": {}}
    if error_of(folder).exists():
        error = np.load(error_of(folder), mmap_mode="r", allow_pickle=False)
        found["error"] = plain(np.ravel(error[row, col]))
    for level in LEVELS:
        if bounds_of(folder, level).exists():
            bounds = np.load(bounds_of(folder, level), mmap_mode="r", allow_pickle=False)
            found["interval"][level] = [plain(np.ravel(own[row, col])) for own in bounds]
    return found
