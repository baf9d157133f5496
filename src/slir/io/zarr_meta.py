"""What the metadata of an OME-Zarr image (versions 0.4 and 0.5) say, and what they say of a larger one."""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slir.errors import FileError
from slir.io.picture import Resolution

NAME = "OME-Zarr"
#: Files that say what a folder of a Zarr store is.
FILES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_MOST_JSON = 1 << 24
_CENTIMETRES = {"meter": 100, "centimeter": 1, "millimeter": 0.1, "micrometer": 1e-4, "nanometer": 1e-7, "inch": 2.54}
_SYMBOLS = {
    "meter": "m", "centimeter": "cm", "millimeter": "mm", "micrometer": "µm", "nanometer": "nm", "angstrom": "Å",
    "inch": "in",
}  # fmt: skip
_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


@dataclass(frozen=True)
class Multiscale:
    """An image at several resolutions.

    levels : folders of its arrays, the finest first. A plain array has one, "".
    axes : names of all axes, one letter each; where the file has more, the first.
    resolution : of the finest level, where its lengths have units. steps : distances of its pixels, by axis, likewise.
    """

    levels: tuple[str, ...]
    axes: str
    resolution: Resolution | None = None
    steps: Mapping[str, tuple[float, str]] = field(default_factory=dict)


def is_store(path: Path) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any((path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def contents(store: Path) -> Iterator[os.DirEntry[str]]:
    """Folders and files of a store; a folder comes before what is in it.

    Raises FileError where there is anything else. A link may lead out of the store or in circles, and so is never
    followed; whoever reads a pipe waits for ever.
    """
    folders = [os.fspath(store)]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    what = "a link" if entry.is_symlink() else "no file or folder"
                    reason = f"is no store of plain files: {os.path.relpath(entry.path, store)} in it is {what}"
                    remedy = "Remove it or, if you trust it, make a copy without links: cp -rL."
                    raise FileError(store, reason, remedy)
                yield entry


def holds_bytes(folder: Path, needed: int) -> bool:
    """Whether the files in a folder have so many bytes together, which are not counted any further."""
    for where, _, names in os.walk(folder) if needed else ():
        for name in names:
            needed -= os.stat(os.path.join(where, name)).st_size
            if needed <= 0:
                return True
    return needed <= 0


def read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MOST_JSON:
        raise ValueError(f"its {path.name} is longer than any metadata should be")
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"its {path.name} is damaged")
    return found


def multiscale(attributes: Mapping[str, Any], *, name: str) -> Multiscale:
    """The first image that a group's attributes speak of."""
    ome = attributes.get("ome", attributes)
    if not isinstance(ome, Mapping):
        raise ValueError("has damaged metadata")
    if "plate" in ome:
        raise ValueError(f"is a plate of many images: name one of them, such as {name}/A/1/0")
    if "bioformats2raw.layout" in ome and "multiscales" not in ome:
        raise ValueError(f"is a series of images: name one of them, such as {name}/0")
    try:
        first = ome["multiscales"][0]
        levels = tuple(str(dataset["path"]) for dataset in first["datasets"])
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"holds no image: name one of the arrays in it, such as {name}/0") from None
    axes = first.get("axes", list("tczyx"))
    names = "".join(str(axis["name"] if isinstance(axis, Mapping) else axis)[:1] for axis in axes)
    if not levels or any(".." in Path(level).parts or Path(level).is_absolute() for level in levels):
        raise ValueError("has damaged metadata: its levels lie outside of it")
    if names[-2:].lower() != "yx":
        raise ValueError(f"has axes {names}; slir reads those that end in y and x")
    dataset = first["datasets"][0]
    return Multiscale(levels, names, _resolution(axes, dataset), _steps(axes, dataset))


def _resolution(axes: Sequence[Any], dataset: Mapping[str, Any]) -> Resolution | None:
    """Pixels per centimetre across and down."""
    try:
        steps = next(step["scale"] for step in dataset["coordinateTransformations"] if "scale" in step)
        down, across = (float(steps[at]) * _CENTIMETRES[axes[at]["unit"]] for at in (-2, -1))
        return Resolution(1 / across, 1 / down, "cm") if across > 0 and down > 0 else None
    except (KeyError, IndexError, TypeError, ValueError, StopIteration):
        return None


def _steps(axes: Sequence[Any], dataset: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Distances of pixels along the axes of space that have units."""
    found = {}
    with contextlib.suppress(KeyError, IndexError, TypeError, ValueError, StopIteration):
        steps = next(step["scale"] for step in dataset["coordinateTransformations"] if "scale" in step)
        for axis, step in zip(axes, steps):
            if isinstance(axis, Mapping) and str(axis["name"])[:1].lower() in ("x", "y", "z") and "unit" in axis:
                unit = str(axis["unit"])
                found[str(axis["name"])[:1].lower()] = float(step), _SYMBOLS.get(unit, unit)
    return found


def scaled(attributes: dict[str, Any], scale: float, *, centred: bool) -> dict[str, Any]:
    """Attributes of an image whose pixels are `scale` times finer along y and x."""
    attributes = copy.deepcopy(attributes)
    for image in attributes.get("ome", attributes).get("multiscales", []):
        for dataset in image.get("datasets", []):
            _scale_transformations(dataset.get("coordinateTransformations", []), scale, centred)
    return attributes


def _scale_transformations(transformations: list[dict[str, Any]], scale: float, centred: bool) -> None:
    step: list[float] = []
    for transformation in transformations:
        if isinstance(transformation.get("scale"), list):
            step = transformation["scale"]
            transformation["scale"] = [*step[:-2], *(length / scale for length in step[-2:])]
        elif isinstance(transformation.get("translation"), list) and step and centred:
            # The middle of the first new pixel lies up and to the left of that of the old one.
            moved = transformation["translation"]
            shifts = [length * (1 / scale - 1) / 2 for length in step[-2:]]
            transformation["translation"] = [*moved[:-2], *(at + by for at, by in zip(moved[-2:], shifts))]


def new_attributes(axes: str, levels: int, name: str, resolution: Resolution | None) -> dict[str, Any]:
    """Attributes (version 0.4) of an image that comes from another format; pixels of unknown size have size 1."""
    known = None if resolution is None else resolution.per_inch()
    side = {"x": 1.0, "y": 1.0} if known is None else {"x": 25400 / known[0], "y": 25400 / known[1]}  # micrometres
    described = [{"name": axis, "type": _TYPES[axis]} for axis in axes]
    for axis in described if known is not None else ():
        axis |= {"unit": "micrometer"} if axis["name"] in side else {}
    datasets = []
    for level in range(levels):
        lengths = [side[axis] * 2**level if axis in side else 1.0 for axis in axes]
        shifts = [side[axis] * (2**level - 1) / 2 if axis in side else 0.0 for axis in axes]
        steps: list[dict[str, object]] = [{"type": "scale", "scale": lengths}]
        if level:
            steps.append({"type": "translation", "translation": shifts})
        datasets.append({"path": str(level), "coordinateTransformations": steps})
    return {"multiscales": [{"version": "0.4", "name": name, "axes": described, "datasets": datasets}]}


def new_axes(axes: str) -> str | None:
    """The leading axes of another format, as OME-Zarr names them, or None where it has no names for them."""
    names = axes.lower()
    if len(names) == 1 and names not in "tcz":
        names = "z"
    return names if set(names) <= set("tcz") and len(set(names)) == len(names) else None
