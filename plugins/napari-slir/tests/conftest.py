"""Small pictures, and a widget in a viewer that nobody sees."""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from collections.abc import Callable

import numpy as np
import pytest
import torch
from napari.utils.notifications import notification_manager
from napari_slir.widget import RestoreWidget

from slir.kernel.shipped import demo_picture

SIDE = 40


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_graphics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qt's offscreen platform has no OpenGL. napari asks it for two facts when a layer comes, and draws nothing."""
    if os.environ["QT_QPA_PLATFORM"] == "offscreen":
        from vispy.gloo import gl

        monkeypatch.setattr(gl, "glGetParameter", lambda name: "" if name == gl.GL_EXTENSIONS else 4096)


@pytest.fixture
def clean() -> np.ndarray:
    """(40, 40, 3), 8 bits."""
    return demo_picture()[100 : 100 + SIDE, 60 : 60 + SIDE]


@pytest.fixture
def noisy(clean: np.ndarray) -> np.ndarray:
    """(40, 40), 8 bits, with noise of 20."""
    noise = 20 * np.random.default_rng(0).standard_normal((SIDE, SIDE))
    return np.clip(np.rint(clean[..., 1] + noise), 0, 255).astype(np.uint8)


@pytest.fixture
def widget(make_napari_viewer: Callable) -> RestoreWidget:
    """The widget, docked as a user would open it."""
    viewer = make_napari_viewer()
    _, own = viewer.window.add_plugin_dock_widget("napari-slir", "Restore")
    return own


@pytest.fixture
def finish(widget: RestoreWidget, qtbot) -> Callable[[], None]:
    """Waits until what the widget does is over."""
    return lambda: qtbot.waitUntil(lambda: widget.worker is None, timeout=120_000)


@pytest.fixture
def told() -> Callable[[], list[str]]:
    """What napari has notified the user of since the test began."""
    before = len(notification_manager.records)
    return lambda: [own.message for own in notification_manager.records[before:]]
