"""Descriptions of TIFF files that programs read: OME-XML, ImageJ's, tifffile's. What they say of a stack's axes, and
how they change with the picture's size or the file's name. They are edited where they must be, never written anew.
"""

from __future__ import annotations

import contextlib
import html
import json
import math
import re
import uuid
from collections.abc import Callable
from typing import NamedTuple

_PIXELS = re.compile(r"<(?:\w+:)?Pixels\b[^>]*>")
_FILE = re.compile(r'(<(?:\w+:)?UUID\b[^>]*\bFileName=")([^"]*)(")')
_UUID = re.compile(r"urn:uuid:([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
Axes = tuple[str, tuple[int, ...]]
_MOST_AXES = 64  # of an array, as NumPy has them


class PageShape(NamedTuple):
    """The part of an array's shape that one page of the file holds.

    apart : samples of a pixel that are stored one plane after the other, or 1.
    size : (height, width).
    together : samples of a pixel that are stored beside each other, or 1.
    """

    apart: int
    size: tuple[int, int]
    together: int


def is_ome(text: str) -> bool:
    return "<OME" in text[:4096] or ":OME " in text[:4096]


def is_imagej(text: str) -> bool:
    return text.startswith("ImageJ=")


def is_shaped(text: str) -> bool:
    """Whether it is tifffile's note of an array's shape."""
    return text.startswith('{"shape"')


def axes(text: str, planes: int, samples: int) -> Axes:
    """The leading axes of a stack of so many planes, and their lengths; "I", images, where nothing fits."""
    found: Axes = ("", ())
    if is_ome(text):
        found = _ome_axes(text, samples)
    elif is_imagej(text):
        found = _long(
            [(name, _value(text, key)) for name, key in (("T", "frames"), ("Z", "slices"), ("C", "channels"))]
        )
    elif is_shaped(text):
        found = _shaped_axes(text, planes)
    if math.prod(found[1]) == planes:
        return found
    return ("I", (planes,)) if planes > 1 else ("", ())


def hidden_planes(text: str, page: PageShape) -> int:
    """How many planes follow each other without a directory of their own, as ImageJ and tifffile write large stacks."""
    if is_imagej(text):
        return _value(text, "images")
    if is_shaped(text):
        shape = _json(text).get("shape", [])
        at = _place(shape, page)
        if at is not None:
            return math.prod(shape[:at]) // page.apart
    return 1


def foreign_files(text: str) -> bool:
    """Whether an OME description speaks of pixels in other files."""
    return is_ome(text) and len(set(_UUID.findall(text))) > 1 and len(set(_names(text))) > 1


def rewritten(text: str, *, scale: float, size: tuple[int, int], name: str) -> str:
    """The description of a picture of that size, (height, width), and `scale` times as fine, in a file of that name."""
    if is_ome(text):
        return _renamed(text if scale == 1 else _PIXELS.sub(lambda found: _pixels(found[0], scale, size), text), name)
    return text


def reshaped(text: str, old: PageShape, new: PageShape, *, pages: int, hidden: bool) -> str:
    """tifffile's note, whose pages had the shape `old`, for pages of the shape `new`.

    pages : how many there are from this one on. hidden : whether only the first of them has a directory. A note that
    does not fit the pages is left as it is, and left out where their shape changes.
    """
    note = _json(text)
    shape, names = note.get("shape", []), note.get("axes", "")
    at = _place(shape, old)
    if at is None or math.prod(shape[:at]) // old.apart > pages or old.apart not in (1, new.apart):
        return text if old == new else ""
    leading, trailing = shape[:at], shape[at + 2 :]
    first, last = ("", "") if not isinstance(names, str) else (names[: at + 2], names[at + 2 :])
    if new.apart > old.apart:
        leading, first = [*leading, new.apart], f"{first[:at]}S{first[at:]}"
    if new.together != old.together:
        trailing, last = ([new.together], "S") if new.together > 1 else ([], "")
    changed = note | {"shape": [*leading, *new.size, *trailing]}
    if isinstance(names, str) and len(names) == len(shape):
        changed["axes"] = first + last
    if not hidden:
        changed.pop("truncated", None)
    return text if changed == note else json.dumps(changed)


def shaped(axes: str, shape: tuple[int, ...], channels: int) -> str:
    """tifffile's note on the leading axes of a stack of this shape, for those that come from other formats."""
    inner = ("YXS", [channels]) if channels > 1 else ("YX", [])
    return json.dumps({"shape": [*shape, *inner[1]], "axes": axes + inner[0]})


def ome_steps(text: str) -> dict[str, tuple[float, str]]:
    """Sizes of a voxel along x, y and z, with their units."""
    elements = _PIXELS.findall(text)
    if len(elements) != 1:
        return {}
    told = dict(re.findall(r'\b(PhysicalSize[XYZ](?:Unit)?)="([^"]*)"', elements[0]))
    found = {}
    for axis in "XYZ":
        with contextlib.suppress(KeyError, ValueError):
            unit = html.unescape(told.get(f"PhysicalSize{axis}Unit", "µm"))
            found[axis.lower()] = float(told[f"PhysicalSize{axis}"]), unit
    return found


def imagej_unit(text: str) -> str | None:
    """The unit of lengths in ImageJ's description; None where it has none."""
    found = re.search(r"^unit=(.+?)\s*$", text, re.MULTILINE) if is_imagej(text) else None
    if found is None or found[1] in ("pixel", "pixels"):
        return None
    return "µm" if found[1].lower() in ("um", "micron", "microns", "µm", "μm", "\\u00b5m") else found[1]


def imagej_spacing(text: str) -> dict[str, float]:
    """{"z": distance of slices}, where ImageJ's description says it."""
    found = re.search(r"^spacing=([-+.eE\d]{1,30})\s*$", text, re.MULTILINE)
    with contextlib.suppress(ValueError):
        return {"z": abs(float(found[1]))} if found else {}
    return {}


def _names(text: str) -> list[str]:
    return [found[1] for found in _FILE.findall(text)]


def _renamed(text: str, name: str) -> str:
    """Readers look for pixels in the files that OME-XML names, so the new file must name itself, not the old one.

    The new identifier follows from the old one, so that the same work gives the same bytes.
    """
    names = set(_names(text))
    if not names or names == {name}:
        return text
    escaped = name.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = _FILE.sub(lambda found: found[1] + escaped + found[3], text)
    return _UUID.sub(lambda found: f"urn:uuid:{uuid.uuid5(uuid.UUID(found[1]), 'slir')}", text)


def _pixels(element: str, scale: float, size: tuple[int, int]) -> str:
    for axis, side in zip("YX", size):
        element = _changed(element, f"Size{axis}", lambda _, side=side: str(side))
        element = _changed(element, f"PhysicalSize{axis}", lambda value: repr(float(value) / scale))
    return element


def _changed(element: str, attribute: str, change: Callable[..., str]) -> str:
    def new(found: re.Match[str]) -> str:
        try:
            return found[1] + change(found[2]) + found[3]
        except ValueError:
            return found[0]

    return re.sub(rf'(\b{attribute}=")([^"]*)(")', new, element)


def _ome_axes(text: str, samples: int) -> Axes:
    elements = _PIXELS.findall(text)
    if len(elements) != 1:
        return "", ()
    named = dict(re.findall(r'\b(DimensionOrder|Size[ZCT])="([^"]*)"', elements[0]))
    order = named.get("DimensionOrder", "XYZCT")
    if sorted(order) != sorted("XYZCT"):
        return "", ()
    lengths = {axis: int(value) if (value := named.get(f"Size{axis}", "1")).isdecimal() else 0 for axis in "ZCT"}
    lengths["C"] //= max(1, samples)
    return _long([(axis, lengths[axis]) for axis in reversed(order) if axis in "ZCT"])


def _long(pairs: list[tuple[str, int]]) -> Axes:
    """Without the axes of length one."""
    kept = [(name, length) for name, length in pairs if length != 1]
    return "".join(name for name, _ in kept), tuple(length for _, length in kept)


def _shaped_axes(text: str, planes: int) -> Axes:
    note = _json(text)
    shape, names = note.get("shape", []), note.get("axes", "")
    count = next((at for at in range(len(shape)) if math.prod(shape[:at]) == planes), 0)
    named = isinstance(names, str) and len(names) == len(shape)
    return (names[:count] if named else "Q" * count), tuple(shape[:count])


def _place(shape: list[int], page: PageShape) -> int | None:
    """Where height and width are in the shape of an array: the last place that leaves a page's samples behind them."""
    for at in range(len(shape) - 2, -1, -1):
        if tuple(shape[at : at + 2]) == page.size and math.prod(shape[at + 2 :]) == page.together:
            return at
    return None


def _json(text: str) -> dict:
    """tifffile's note; empty where its shape makes no sense."""
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    shape = note.get("shape") if isinstance(note, dict) else None
    if not isinstance(shape, list) or len(shape) > _MOST_AXES:
        return {}
    return note if all(isinstance(side, int) and side > 0 for side in shape) else {}


def _value(text: str, key: str) -> int:
    """A number of ImageJ's description; 1 where it is not there."""
    found = re.search(rf"^{key}=(\d{{1,9}})\s*$", text, re.MULTILINE)
    return max(1, int(found[1])) if found else 1
