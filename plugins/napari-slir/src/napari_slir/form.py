"""The settings of the widget, and the request that they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from magicgui.widgets import CheckBox, ComboBox, Container, FileEdit, FloatSpinBox, SpinBox, Widget
from napari import Viewer
from napari.layers import Image, Labels, Layer, Shapes

import slir.psf
from napari_slir.layers import kernel_of, missing_in, pixel_size, pixels_of, planes_of
from napari_slir.requests import Planes, Request
from slir.errors import InputError

TASKS = {"Denoise": "denoise", "Deblur": "deblur", "Enlarge": "upsample", "Inpaint": "inpaint"}
NOISES = {"estimated": "auto", "given": "given", "grows with light": "poisson-gaussian"}
RANGES = {
    "of the data type": "dtype",
    "0 to 1": "unit",
    "the contrast limits": "contrast",
    "black and white": "given",
}
BORDERS = {"goes on, unknown": "unknown", "reflects": "reflect", "wraps around": "circular"}
DEVICES = {"CPU": "cpu", "GPU": "cuda"}
FILTERS = {"bicubic": "bicubic", "box": "box"}


@dataclass(frozen=True)
class Blur:
    """A kind of blur, the function that makes its PSF, and its arguments: name, label, value to begin with."""

    title: str
    make: Callable[..., np.ndarray]
    takes: tuple[tuple[str, str, float], ...]


BLURS = {
    "gaussian": Blur("Gaussian", slir.psf.gaussian, (("sigma", "Width σ, pixels", 1.5),)),
    "motion": Blur("Motion", slir.psf.motion, (("length", "Length, pixels", 9), ("angle", "Angle, degrees", 30))),
    "defocus": Blur("Defocus", slir.psf.defocus, (("radius", "Radius, pixels", 2.5),)),
    "airy": Blur("Airy", slir.psf.airy, (("radius", "First dark ring, pixels", 2.4),)),
    "microscope": Blur(
        "Airy, of a microscope",
        slir.psf.airy_from_aperture,
        (
            ("numerical_aperture", "Aperture NA", 1.4),
            ("wavelength", "Wavelength, nm", 520),
            ("pixel_size", "Pixel, nm", 65),
        ),
    ),
}
IN_LAYERS = {"A layer: the kernel": "kernel", "A layer: a bead or star": "bead"}


class Form(Container):
    """What is asked for. `request` reads it; only what matters to the chosen task is shown."""

    def __init__(self, viewer: Viewer):
        self.viewer = viewer
        self.layer = ComboBox(label="Image", choices=self._images)
        self.task = ComboBox(label="Task", choices=list(TASKS.items()))
        self.noise = ComboBox(label="Noise", choices=self._noises)
        self.sigma = _number("Noise σ", 0.0, "Its standard deviation in pixel values. Too large smooths detail away.")
        blurs = [(blur.title, kind) for kind, blur in BLURS.items()]
        self.blur = ComboBox(label="Blur", choices=[*blurs, *IN_LAYERS.items()])
        self.numbers = {
            (kind, name): _number(label, value, least=-360.0 if name == "angle" else 0.0)
            for kind, blur in BLURS.items()
            for name, label, value in blur.takes
        }
        self.kernel = ComboBox(label="PSF", choices=self._images, nullable=True)
        self.border = ComboBox(label="Beyond the edge", choices=list(BORDERS.items()))
        self.factor = SpinBox(label="Factor", value=2, min=2, max=8)
        self.antialias = ComboBox(label="Shrunk by", choices=list(FILTERS.items()))
        self.mask = ComboBox(label="Missing", choices=self._masks)
        self.range = ComboBox(label="Range", choices=list(RANGES.items()))
        self.black = _number("Black", 0.0, least=-1e12)
        self.white = _number("White", 1.0, least=-1e12)
        self.model = FileEdit(label="Model", filter="*.safetensors", nullable=True, tooltip="Empty: slir's own.")
        self.device = ComboBox(label="Device", choices=list(DEVICES.items()))
        self.only_shown = CheckBox(text="Only the plane that is shown", value=False)
        self.errors = CheckBox(text="Error map", value=True, tooltip="Which error to expect at each pixel.")
        super().__init__(
            widgets=[
                self.layer, self.task, self.noise, self.sigma, self.blur, *self.numbers.values(), self.kernel,
                self.border, self.factor, self.antialias, self.mask, self.range, self.black, self.white, self.model,
                self.device, self.only_shown, self.errors,
            ],
            labels=True,
        )  # fmt: skip
        self.task.changed.connect(self._new_task)
        self.layer.changed.connect(self._new_layer)
        for choice in (self.noise, self.blur, self.range):
            choice.changed.connect(self.show_what_matters)
        self.take(viewer.layers.selection.active)
        self._new_task()
        self._new_layer()

    def take(self, layer: Layer | None) -> None:
        """Choose this layer, if it is an image."""
        if layer in self.layer.choices:
            self.layer.value = layer

    def request(self) -> tuple[Image, Planes, Request]:
        """The layer, its planes and what to do with them. An InputError says what is not right."""
        layer = self.layer.value
        if layer is None:
            raise InputError("image", "be a layer", "none", "Open an image, or one of File > Open Sample > slir.")
        stack = layer.ndim > 2 and self.only_shown.value
        planes = planes_of(layer, only_at=self.viewer.dims.point if stack else None)
        sigma = self.sigma.value if self.noise.value == "given" else self.noise.value
        model = self.model.value if str(self.model.value or ".") != "." else None
        missing = None
        if self.task.value == "inpaint" and self.mask.value is not None:
            missing = missing_in(self.mask.value, layer, planes)
        request = Request(
            self.task.value, sigma, self._data_range(layer), model, self.device.value, self._own(), missing
        )
        return layer, planes, request

    def _own(self) -> dict[str, Any]:
        """What the chosen task alone takes."""
        if self.task.value == "deblur":
            return {"psf": self._psf(), "border": self.border.value}
        if self.task.value == "upsample":
            return {"factor": self.factor.value, "antialias": self.antialias.value}
        return {}

    def _psf(self) -> np.ndarray:
        kind = self.blur.value
        if kind not in BLURS:
            return kernel_of(self.kernel.value, bead=kind == "bead")
        blur = BLURS[kind]
        return blur.make(**{name: self.numbers[kind, name].value for name, _, _ in blur.takes})

    def _data_range(self, layer: Image) -> float | tuple[float, float] | None:
        kind = self.range.value
        if kind == "given":
            return self.black.value, self.white.value
        if kind == "contrast" and not layer.rgb:
            low, high = layer.contrast_limits
            return float(low), float(high)
        floats = np.issubdtype(pixels_of(layer).dtype, np.floating)
        if kind == "unit" or (floats and layer.rgb):  # napari draws colours of floats from 0 to 1
            return 1.0
        if floats:
            remedy = "Choose 0 to 1, the contrast limits, or black and white."
            raise InputError("range", "be said for a layer of floats", "that of the data type", remedy)
        return None

    def _images(self, _: Widget) -> list[Layer]:
        return [layer for layer in self.viewer.layers if isinstance(layer, Image)]

    def _masks(self, _: Widget) -> list[tuple[str, Layer | None]]:
        """Labels and shapes first, then grey images; without any, NaN."""
        marked = [layer for layer in self.viewer.layers if isinstance(layer, Labels | Shapes)]
        greys = [layer for layer in self._images(_) if not layer.rgb]
        return [("NaN", None), *((layer.name, layer) for layer in [*marked, *greys])]

    def _noises(self, _: Widget) -> list[tuple[str, str]]:
        return [(text, kind) for text, kind in NOISES.items() if kind != "poisson-gaussian" or self._is("denoise")]

    def _is(self, task: str) -> bool:
        return self.task.value == task

    def _new_task(self) -> None:
        """What is usual for it: noise is looked for where noise is what spoils the image."""
        self.noise.reset_choices()
        self.noise.value = "auto" if self.task.value in ("denoise", "deblur") else "given"
        marked = [layer for layer in self.viewer.layers if isinstance(layer, Labels | Shapes)]
        if self._is("inpaint") and self.mask.value is None and marked:
            self.mask.value = marked[-1]
        self.show_what_matters()

    def _new_layer(self) -> None:
        layer = self.layer.value
        if layer is not None and (nanometres := pixel_size(layer)) is not None:
            self.numbers["microscope", "pixel_size"].value = nanometres
        self.show_what_matters()

    def show_what_matters(self) -> None:
        task, blur, layer = self.task.value, self.blur.value, self.layer.value
        self.sigma.visible = self.noise.value == "given"
        for (kind, _), number in self.numbers.items():
            number.visible = task == "deblur" and kind == blur
        self.blur.visible = self.border.visible = task == "deblur"
        self.kernel.visible = task == "deblur" and blur not in BLURS
        self.factor.visible = self.antialias.visible = task == "upsample"
        self.mask.visible = task == "inpaint"
        self.black.visible = self.white.visible = self.range.value == "given"
        self.only_shown.visible = layer is not None and layer.ndim > 2


def _number(label: str, value: float, tooltip: str = "", *, least: float = 0.0) -> FloatSpinBox:
    return FloatSpinBox(label=label, value=value, min=least, max=1e12, step=None, tooltip=tooltip)
