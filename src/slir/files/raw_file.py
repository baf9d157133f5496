"""Raw files of cameras developed into picture files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slir import io
from slir.errors import FileError, InputError
from slir.io.raw import EXTENSIONS
from slir.problem import parse_sigma

if TYPE_CHECKING:
    from slir.development import RawNoise

DARK, LIGHT = 0.01, 0.5
"""Shares of white at which the noise is told."""


@dataclass(frozen=True)
class Development:
    """How raw files are developed. sigma : "auto", a number of the sensor's, or "2%" of white. The rest as in
    `slir.develop`."""

    sigma: float | str = "auto"
    strength: float = 1.0
    linear: bool = False
    space: str = "srgb"
    exposure: float | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if parse_sigma(self.sigma)[1] == "poisson-gaussian":
            raise InputError("sigma", "be auto, a number or a percentage", repr(self.sigma), "auto finds such noise.")

    def depth(self, output: Path) -> int:
        """Bits of an output: 16 where its format holds them."""
        head = io.Head((16, 16), np.dtype(np.uint16), colour=True)
        if io.can_hold(output, head):
            return 16
        if self.linear:
            remedy = f"Write {output.stem}.tif instead."
            raise FileError(output, "would hold 8 bits, which are too few for linear values", remedy)
        return 8

    def run(
        self, image: Path, output: Path, *, progress: Callable[[int, int, str], None] | None = None
    ) -> dict[str, Any]:
        """Develop one file; gives what was done: size, noise, seconds, notes."""
        from slir import development

        started = time.perf_counter()
        depth = self.depth(output)
        output.parent.mkdir(parents=True, exist_ok=True)
        io.check_output(output)
        raw = io.read_raw(image)
        kind, value = parse_sigma(self.sigma)
        span = float(raw.white - raw.black.mean())
        sigma: Any = float(value) / 100 * span if kind == "percent" else value
        noise = development.noise_of(raw, sigma)
        told: dict[str, Any] = {"strength": self.strength, "linear": self.linear, "space": self.space}
        told |= {"exposure": self.exposure, "device": self.device, "progress": progress or False}
        picture = development.develop(raw, sigma=noise, depth=depth, **told)
        io.write(output, picture)
        height, width = picture.size
        return {
            "image": str(image),
            "output": str(output),
            "width": width,
            "height": height,
            "bits": depth,
            "noise": _told(noise, span),
            "notes": list(raw.notes),
            "seconds": round(time.perf_counter() - started, 3),
        }


def _told(noise: RawNoise, span: float) -> dict[str, Any]:
    """The noise for people: gain and read noise of R, G, B, and green's level in the dark and in the light."""
    levels = {name: noise.sigma(share * span)[1] for name, share in (("dark", DARK), ("light", LIGHT))}
    return {"gain": list(noise.gain), "read": list(noise.read), **levels, "white": span}


def pairs(inputs: Sequence[str], output: str, *, recursive: bool, form: str | None) -> list[tuple[Path, Path]]:
    """Every raw file that `inputs` (files and folders) mean, with the file that it is developed into."""
    folders = [place for place in map(Path, inputs) if place.is_dir()]
    if len(inputs) == 1 and not folders and not output.endswith("/") and not Path(output).is_dir():
        if form is not None:
            rule = "be left out where the output is a file"
            raise InputError("the format", rule, repr(form), f"The suffix of {output} specifies it.")
        return [(Path(inputs[0]), Path(output))]
    suffix = "." + (form or "tif").lower().removeprefix(".")
    if suffix not in io.EXTENSIONS:
        raise InputError("the format", "be one that slir writes", repr(form), "Pass tif, png or jpg.")
    if Path(output).is_file():
        raise InputError("the output", "be a folder for many files", f"the file {output}", "Name a folder.")
    found: dict[Path, Path] = {}
    for place in map(Path, inputs):
        for image, name in _images(place, recursive=recursive):
            target = Path(output) / name.with_suffix(suffix)
            if found.setdefault(target, image) != image:
                reason = f"both {found[target]} and {image} would be written to it"
                raise FileError(target, reason, "Develop them into two folders.")
    return [(image, target) for target, image in found.items()]


def _images(place: Path, *, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """(raw file, its name below the folder that was named)."""
    if not place.is_dir():
        yield place, Path(place.name)
        return
    inside = sorted(place.rglob("*") if recursive else place.iterdir())
    found = [each for each in inside if io.is_raw_name(each) and each.is_file() and not each.name.startswith(".")]
    if not found:
        hint = "" if recursive else " Pass --recursive to look into its folders."
        raise FileError(place, "holds no raw files", f"slir develops {', '.join(EXTENSIONS)}.{hint}")
    for each in found:
        yield each, each.relative_to(place)
