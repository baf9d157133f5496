"""Error maps as files: a TIFF of all planes, and a picture of the first for people."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slir import io
from slir.errors import SlirWarning

UNTOUCHED = "nothing was restored"
"""Why an image that came back as it was has no calibrated errors."""


@dataclass
class ErrorMaps:
    """Writes the error maps of a file's planes as they come.

    tiff, picture: where to. head: of the restored file, for its size, colours and planes.
    Used as a context: what is written is there in the end, unless no plane had a map.
    """

    tiff: Path
    picture: Path
    head: io.Head
    _opened: ExitStack = field(default_factory=ExitStack)
    _sink: io.Sink | None = None

    def __enter__(self) -> ErrorMaps:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.__exit__(*raised)  # type: ignore[arg-type]

    def take(self, plane: int, error: np.ndarray | None, reason: str) -> None:
        """One plane's. reason: why it is not calibrated, or why there is none; empty where it is."""
        if error is None:
            warnings.warn(f"No error map was made: {reason}.", SlirWarning, stacklevel=2)
            return
        if reason and not (reason == UNTOUCHED and self.head.planes > 1):  # a blank frame of a stack is no matter
            told = f"The error map is not calibrated: {reason}. It tells better from worse pixels, but not how far off"
            warnings.warn(f"{told} they are.", SlirWarning, stacklevel=2)
        axis = -1 if self.head.colour else None
        if self._sink is None:
            head = io.Head(
                self.head.size, np.dtype(np.float32), axis is not None, False, self.head.axes, self.head.shape
            )
            self._sink = self._opened.enter_context(io.create(self.tiff, head))
        self._sink.write(io.Picture(error.astype(np.float32, copy=False), axis), plane=plane)
        if plane == 0:
            from slir.trust.pictures import error_picture

            shown = error_picture(np.nan_to_num(error))  # NaN where the image has no pixels
            io.write(self.picture, io.Picture(shown, -1, data_range=255.0))
