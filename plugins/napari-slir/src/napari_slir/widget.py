"""The dock widget: settings, Restore and Cancel, progress, and what a click on a result tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from napari import Viewer
from napari.layers import Image, Layer
from napari.qt.threading import create_worker
from napari.utils.notifications import show_error, show_warning
from qtpy.QtCore import QEvent
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from napari_slir.explaining import Explained, Panel, explain
from napari_slir.form import Form
from napari_slir.layers import drawn_alike, error_drawn, pixel_at, placed
from napari_slir.requests import Planes, Restored, restore
from napari_slir.working import Outcome, Work
from slir.errors import SlirError

DONE = {"denoise": "denoised", "deblur": "deblurred", "upsample": "enlarged", "inpaint": "inpainted"}

TREMBLE = 4
"""How far a hand moves, in pixels of the screen, that means to click and not to drag."""


class RestoreWidget(QWidget):
    """Restore a layer into a new one, with the error to expect in another.

    One piece of work at a time runs in another thread: a restoration, or the explanation of a pixel.
    """

    def __init__(self, napari_viewer: Viewer):
        super().__init__()
        # napari hands plugins a proxy whose layers are proxies too: new ones each time, which no dictionary keeps.
        self.viewer: Viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self.form = Form(self.viewer)
        self.start, self.cancel = QPushButton("Restore"), QPushButton("Cancel")
        self.bar, self.status, self.panel = QProgressBar(), QLabel(), Panel()
        self.explain = QCheckBox("Explain on click")
        self.explain.setToolTip("A click on a result shows the training patches that the pixel was made from.")
        self.status.setWordWrap(True)
        self.worker: Work | None = None
        self.then: Callable[[Any], None] = self._explained
        self.restored: WeakKeyDictionary[Layer, Restored] = WeakKeyDictionary()
        self.start.clicked.connect(self.run)
        self.cancel.clicked.connect(self.stop)
        self.explain.toggled.connect(self._listen)
        self._lay_out()
        self._rest()

    def _lay_out(self) -> None:
        buttons, column = QHBoxLayout(), QVBoxLayout(self)
        buttons.addWidget(self.start)
        buttons.addWidget(self.cancel)
        column.addWidget(self.form.native)
        column.addLayout(buttons)
        for own in (self.bar, self.status, self.explain):
            column.addWidget(own)
        column.addWidget(self.panel, stretch=1)

    def reset_choices(self, event: Any = None) -> None:
        """Called by napari when layers come, go or change their names."""
        self.form.reset_choices(event)

    def run(self) -> None:
        """Restore what the form says. The result comes as a layer, what is wrong with it as a notification."""
        if self.worker is not None:
            return
        try:
            layer, planes, request = self.form.request()
        except SlirError as error:
            show_error(str(error))
            return
        errors = self.form.errors.value

        def add(restored: Restored) -> None:
            self._add(layer, planes, restored)

        self._work(add, restore, planes, request, errors=errors)
        self.status.setText("Begins…")

    def stop(self) -> None:
        """End what is being done: it stops before its next stage."""
        if self.worker is not None:
            self.worker.quit()
            self.status.setText("Stops after this stage…")

    def _work(self, then: Callable[[Any], None], function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run a function in another thread, then(what it returns) in this one."""
        self.then = then
        self.worker = create_worker(function, *args, **options, _worker_class=Work, _start_thread=False)
        self.worker.bell.rung.connect(self._progressed)
        self.worker.returned.connect(self._end)
        self.worker.finished.connect(self._rest)
        self.destroyed.connect(self.worker.quit)
        self.start.setEnabled(False)
        self.cancel.setEnabled(True)
        self.bar.setRange(0, 0)  # busy, until there is something to count
        self.bar.show()
        self.worker.start()

    def _end(self, outcome: Outcome) -> None:
        for doubt in outcome.doubts:
            show_warning(doubt)
        if outcome.refused:
            show_error(outcome.refused)
            self.status.setText("Could not be done.")
        else:
            self.then(outcome.value)

    def _progressed(self, done: int, total: int) -> None:
        self.bar.setRange(0, total)
        self.bar.setValue(done)
        if self.worker is not None and not self.worker.abort_requested and total:
            self.status.setText(f"Stage {min(done + 1, total)} of {total}")

    def _rest(self) -> None:
        if self.worker is not None and self.worker.abort_requested:
            self.status.setText("Cancelled.")
        self.worker = None
        self.start.setEnabled(True)
        self.cancel.setEnabled(False)
        self.bar.hide()

    def _add(self, layer: Image, planes: Planes, restored: Restored) -> None:
        """The result and, under it, its error map as new layers."""
        request = restored.request
        name = f"{layer.name} {DONE[request.task]}"
        where = placed(layer, factor=request.factor, planes=planes)
        about = {"slir": request.record() | {"noise": restored.sigma, "seconds": restored.seconds}}
        if restored.error is not None:
            title = f"{name}: expected error"
            self.viewer.add_image(restored.error, name=title, **error_drawn(restored.error), **where)
        new = self.viewer.add_image(restored.image, name=name, metadata=about, **drawn_alike(layer), **where)
        self.restored[new] = restored
        self.viewer.layers.selection.active = new
        found = f"{restored.seconds:.1f} s, noise {restored.sigma:.3g}"
        self.status.setText(f"Done: {found}.{self._doubts(restored)}")

    def _doubts(self, restored: Restored) -> str:
        """Why the numbers that go with a result are to be taken with care, if so."""
        reasons = {result.calibrated for result in restored.results.values()} - {""}
        return "".join(f" No intervals: {reason}." for reason in sorted(reasons))

    def _listen(self, on: bool) -> None:
        callbacks = self.viewer.mouse_drag_callbacks
        if on:
            callbacks.append(self._clicked)
        elif self._clicked in callbacks:
            callbacks.remove(self._clicked)

    def changeEvent(self, event: QEvent) -> None:
        """When its dock is closed, nobody could stop it any more; and nobody would see what it answers to clicks."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self.stop()
            self.explain.setChecked(False)
        super().changeEvent(event)

    def _clicked(self, viewer: Viewer, event: Any) -> Iterator[None]:
        """A click that is no drag explains the pixel under it."""
        position, pressed, far = event.position, np.array(event.pos), 0.0
        yield
        while event.type == "mouse_move":
            far = max(far, float(np.abs(event.pos - pressed).max()))
            yield
        if far <= TREMBLE:
            self.explain_at(position)

    def explain_at(self, position: Any) -> None:
        """Explain the pixel at a place in the world, of the result that is selected or else of the topmost one."""
        layer = self._asked()
        at = None if layer is None else pixel_at(layer, position)
        if self.worker is not None:
            self.status.setText("Something else is being done: click again when it is over.")
        elif layer is None:
            self.status.setText("There is no result of this widget to explain.")
        elif at is not None:
            self._work(self._explained, explain, self.restored[layer], at, self.panel.room)
            self.status.setText("Asks…")

    def _asked(self) -> Layer | None:
        active = self.viewer.layers.selection.active
        if active in self.restored:
            return active
        results = [layer for layer in self.viewer.layers if layer in self.restored and layer.visible]
        return results[-1] if results else None

    def _explained(self, explained: Explained) -> None:
        self.panel.show_explained(explained)
        self.status.setText("")
