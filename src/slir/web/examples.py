"""Pictures to try: one that slir has never learnt from, spoilt in several ways, with the settings that mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

NOISE = 2.55  # one percent of the range


@dataclass(frozen=True, eq=False)
class Example:
    """title : for people. settings : as a client would send them; the mask apart, which is (H, W) bool."""

    name: str
    title: str
    pixels: np.ndarray
    settings: dict[str, Any]
    mask: np.ndarray | None = field(default=None)

    @property
    def task(self) -> str:
        return self.settings["task"]


@lru_cache(maxsize=1)
def examples() -> dict[str, Example]:
    """All of them, by name."""
    made: tuple[Callable[[np.ndarray], Example], ...] = (_noisy, _shaken, _unfocused, _small, _scratched)
    clean = _clean()
    return {example.name: example for example in (make(clean) for make in made)}


def _clean() -> np.ndarray:
    """The demonstration's picture, (256, 256, 3) uint8, read without torch."""
    from safetensors.numpy import load_file

    with as_file(files("slir.data") / "demo.safetensors") as path:
        return load_file(path)["picture"]


def _noisy(clean: np.ndarray) -> Example:
    return Example("noisy", "A noisy photograph", _camera(clean, 20), {"task": "denoise", "sigma": "auto"})


def _shaken(clean: np.ndarray) -> Example:
    from slir.psf import motion

    blur = {"kind": "motion", "length": 9, "angle": 30}
    seen = _camera(_blurred(clean, motion(9, 30)), NOISE)
    return Example("shaken", "A shaken camera", seen, {"task": "deblur", "sigma": NOISE, "psf": blur})


def _unfocused(clean: np.ndarray) -> Example:
    from slir.psf import defocus

    blur = {"kind": "defocus", "radius": 2.5}
    seen = _camera(_blurred(clean, defocus(2.5)), NOISE)
    return Example("unfocused", "A lens out of focus", seen, {"task": "deblur", "sigma": NOISE, "psf": blur})


def _small(clean: np.ndarray) -> Example:
    from PIL import Image

    height, width = clean.shape[:2]
    small = np.asarray(Image.fromarray(clean).resize((width // 2, height // 2), Image.Resampling.BICUBIC))
    return Example("small", "A small picture", small, {"task": "upsample", "sigma": 0, "factor": 2})


def _scratched(clean: np.ndarray) -> Example:
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(3)
    sheet = Image.new("L", (clean.shape[1], clean.shape[0]), 0)
    draw = ImageDraw.Draw(sheet)
    for _ in range(9):
        start, end = rng.uniform(0, clean.shape[0], 2), rng.uniform(0, clean.shape[0], 2)
        middle = (start + end) / 2 + rng.normal(0, 18, 2)
        draw.line([tuple(start), tuple(middle), tuple(end)], fill=255, width=int(rng.integers(1, 4)), joint="curve")
    mask = np.asarray(sheet) > 0
    spoilt = np.where(mask[..., None], np.uint8(244), clean)
    return Example("scratched", "A scratched print", spoilt, {"task": "inpaint", "sigma": 0}, mask)


def _blurred(clean: np.ndarray, psf: np.ndarray) -> np.ndarray:
    """What the kernel makes of it, where it sees nothing beyond the edges."""
    from scipy.signal import fftconvolve

    return fftconvolve(clean.astype(np.float64), psf[..., None], mode="valid", axes=(0, 1))


def _camera(image: np.ndarray, sigma: float) -> np.ndarray:
    """Noise added, rounded and clipped to eight bits."""
    rng = np.random.default_rng(0)
    return np.clip(np.rint(image + sigma * rng.standard_normal(image.shape)), 0, 255).astype(np.uint8)
