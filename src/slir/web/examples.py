"""Pictures to try: one that slir has never learnt from, spoilt in several ways, with the settings that mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

NOISE = 2.55  # one percent of the range
Spoilt = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Example:
    """title : for people. size : (height, width), known before the picture is made. settings : as a client would send
    them, but for the mask. spoil : a clean picture -> what became of it, uint8, and a mask, (H, W) bool, or None."""

    name: str
    title: str
    size: tuple[int, int]
    settings: dict[str, Any]
    spoil: Callable[[np.ndarray], Spoilt]

    @property
    def task(self) -> str:
        return self.settings["task"]

    def made(self) -> Spoilt:
        return self.spoil(_clean())


@lru_cache(maxsize=1)
def _clean() -> np.ndarray:
    """The demonstration's picture, (256, 256, 3) uint8, read without torch."""
    from safetensors.numpy import load_file

    with as_file(files("slir.data") / "demo.safetensors") as path:
        return load_file(path)["picture"]


def _noisy(clean: np.ndarray) -> Spoilt:
    return _camera(clean, 20), None


def _shaken(clean: np.ndarray) -> Spoilt:
    from slir.psf import motion

    return _camera(_blurred(clean, motion(9, 30)), NOISE), None


def _unfocused(clean: np.ndarray) -> Spoilt:
    from slir.psf import defocus

    return _camera(_blurred(clean, defocus(2.5)), NOISE), None


def _small(clean: np.ndarray) -> Spoilt:
    from PIL import Image

    height, width = clean.shape[:2]
    return np.asarray(Image.fromarray(clean).resize((width // 2, height // 2), Image.Resampling.BICUBIC)), None


def _scratched(clean: np.ndarray) -> Spoilt:
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(3)
    sheet = Image.new("L", (clean.shape[1], clean.shape[0]), 0)
    draw = ImageDraw.Draw(sheet)
    for _ in range(9):
        start, end = rng.uniform(0, clean.shape[0], 2), rng.uniform(0, clean.shape[0], 2)
        middle = (start + end) / 2 + rng.normal(0, 18, 2)
        draw.line([tuple(start), tuple(middle), tuple(end)], fill=255, width=int(rng.integers(1, 4)), joint="curve")
    mask = np.asarray(sheet) > 0
    return np.where(mask[..., None], np.uint8(244), clean), mask


def _blurred(clean: np.ndarray, psf: np.ndarray) -> np.ndarray:
    """What the kernel makes of it, where it sees nothing beyond the edges."""
    spectra = np.fft.rfft2(clean.astype(np.float64), axes=(0, 1)) * np.fft.rfft2(psf, clean.shape[:2])[..., None]
    whole = np.fft.irfft2(spectra, clean.shape[:2], axes=(0, 1))
    return whole[psf.shape[0] - 1 :, psf.shape[1] - 1 :]  # before that it is wound around the edge


def _camera(image: np.ndarray, sigma: float) -> np.ndarray:
    """Noise added, rounded and clipped to eight bits."""
    rng = np.random.default_rng(0)
    return np.clip(np.rint(image + sigma * rng.standard_normal(image.shape)), 0, 255).astype(np.uint8)


def _all() -> tuple[Example, ...]:
    motion, disk = {"kind": "motion", "length": 9, "angle": 30}, {"kind": "defocus", "radius": 2.5}
    deblur = {"task": "deblur", "sigma": "auto"}
    return (
        Example("noisy", "A noisy photograph", (256, 256), {"task": "denoise", "sigma": "auto"}, _noisy),
        Example("shaken", "A shaken camera", (250, 248), {**deblur, "psf": motion}, _shaken),
        Example("unfocused", "A lens out of focus", (252, 252), {**deblur, "psf": disk}, _unfocused),
        Example("small", "A small picture", (128, 128), {"task": "upsample", "sigma": 0, "factor": 2}, _small),
        Example("scratched", "A scratched print", (256, 256), {"task": "inpaint", "sigma": 0}, _scratched),
    )


EXAMPLES = {example.name: example for example in _all()}
