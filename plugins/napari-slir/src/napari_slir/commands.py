"""Entries of the menu Layers > Filter: the widget, with a task and the selected layer chosen."""

from __future__ import annotations

import napari


def denoise(viewer: napari.Viewer) -> None:
    """Open the widget to remove noise from the selected layer."""
    _open(viewer, "denoise")


def deblur(viewer: napari.Viewer) -> None:
    """Open the widget to undo a blur."""
    _open(viewer, "deblur")


def upsample(viewer: napari.Viewer) -> None:
    """Open the widget to enlarge."""
    _open(viewer, "upsample")


def inpaint(viewer: napari.Viewer) -> None:
    """Open the widget to fill in missing pixels."""
    _open(viewer, "inpaint")


def _open(viewer: napari.Viewer, task: str) -> None:
    _, widget = viewer.window.add_plugin_dock_widget("napari-slir", "Restore")
    widget.form.take(viewer.layers.selection.active)
    widget.form.task.value = task
