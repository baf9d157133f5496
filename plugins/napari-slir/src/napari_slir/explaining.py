"""What is known about one pixel of a result: its interval, and the training patches behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import QLabel, QScrollArea, QVBoxLayout, QWidget

from napari_slir.requests import Index, Report, Restored
from slir.errors import SlirError
from slir.trust.pictures import explanation_picture

if TYPE_CHECKING:
    from slir.result import Result

LEVEL = 0.9
ZOOM = 8


@dataclass(frozen=True)
class Explained:
    """text: about the pixel, by lines. picture: (H, W, 3), 8 bits, its patches with their weights."""

    text: str
    picture: np.ndarray


def explain(restored: Restored, at: Index, width: int, *, report: Report) -> Explained:
    """All about the pixel `at` (…, row, col) of a result, for a panel of `width` pixels."""
    report(0, 0)
    *lead, row, col = at
    result = restored.results[tuple(lead)]
    found = result.explain(row, col)
    lines = [
        f"Row {row}, column {col}: {_told(result.image[row, col])}",
        *_trusted(result, row, col),
        f"{len(found.weights)} of {found.total} training patches, by weight",
    ]
    return Explained("\n".join(lines), explanation_picture(found, ZOOM, width=width))


def _trusted(result: Result, row: int, col: int) -> list[str]:
    """The error to expect at a pixel and its interval, or why there is none."""
    error = result.error_map
    lines = [] if error is None else [f"Expected error: {_told(error[row, col])}"]
    try:
        low, high = result.interval(LEVEL)
    except SlirError as reason:
        return [*lines, str(reason)]
    return [*lines, f"{LEVEL:.0%} interval: {_told(low[row, col])} to {_told(high[row, col])}"]


def _told(value: Any) -> str:
    """One number, or one a channel."""
    return ", ".join(f"{own:.4g}" for own in np.ravel(value).tolist())


class Panel(QWidget):
    """Shows an explanation; the picture scrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.picture, self.area = QLabel(), QLabel(), QScrollArea()
        self.text.setWordWrap(True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.area.setWidget(self.picture)
        self.area.setMinimumHeight(160)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.text)
        column.addWidget(self.area, stretch=1)

    @property
    def room(self) -> int:
        """How wide a picture may be without scrolling sideways."""
        return self.area.viewport().width()

    def show_explained(self, explained: Explained) -> None:
        self.text.setText(explained.text)
        pixels = np.ascontiguousarray(explained.picture)
        height, width, _ = pixels.shape
        image = QImage(pixels.data, width, height, 3 * width, QImage.Format.Format_RGB888)
        self.picture.setPixmap(QPixmap.fromImage(image))
        self.picture.resize(width, height)
