"""ICC profiles of RGB spaces, from their primaries and their transfer curve: a matrix and a curve (ICC.1:2010)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

D50 = (0.9642, 1.0, 0.8249)
_D65 = (0.3127, 0.3290)
_BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
_SRGB_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


@dataclass(frozen=True)
class Space:
    """An RGB space whose white is D65. primaries: (x, y) of R, G and B."""

    name: str
    primaries: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

    @property
    def to_xyz(self) -> np.ndarray:
        """Linear RGB -> XYZ, where white has Y = 1: (3, 3)."""
        columns = np.array([_xyz(*point) for point in self.primaries]).T
        return columns * np.linalg.solve(columns, _xyz(*_D65))


SRGB = Space("sRGB", ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06)))
REC2020 = Space("Rec. 2020", ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046)))


def encoded(linear: np.ndarray) -> np.ndarray:
    """Values in [0, 1] by the curve of sRGB."""
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0) ** (1 / 2.4) - 0.055)


def profile(space: Space, *, linear: bool) -> bytes:
    """The profile of a space, with linear values or with the curve of sRGB."""
    adapted = _adaptation(_xyz(*_D65), np.array(D50))
    colours = (adapted @ space.to_xyz).T
    curve = _parametric(0, (1.0,)) if linear else _parametric(3, _SRGB_CURVE)
    name = f"{space.name}, linear" if linear else f"{space.name}, sRGB curve" if space != SRGB else space.name
    tags = {
        b"desc": _text(name),
        b"cprt": _text("No copyright, use freely"),
        b"wtpt": _xyz_type(np.array(D50)),
        b"chad": b"sf32\0\0\0\0" + _fixed(adapted.ravel()),
        **{key: _xyz_type(colour) for key, colour in zip((b"rXYZ", b"gXYZ", b"bXYZ"), colours)},
        **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve),
    }
    return _file(tags)


def _xyz(x: float, y: float) -> np.ndarray:
    return np.array([x / y, 1.0, (1 - x - y) / y])


def _adaptation(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Colours under one white -> the same under another, by Bradford's method: (3, 3)."""
    return np.linalg.solve(_BRADFORD, np.diag(_BRADFORD @ new / (_BRADFORD @ old)) @ _BRADFORD)


def _fixed(values: np.ndarray) -> bytes:
    """Numbers with 16 bits after the point."""
    return np.rint(np.asarray(values) * 65536).astype(">i4").tobytes()


def _xyz_type(value: np.ndarray) -> bytes:
    return b"XYZ \0\0\0\0" + _fixed(value)


def _parametric(kind: int, values: tuple[float, ...]) -> bytes:
    return struct.pack(">4s4xHH", b"para", kind, 0) + _fixed(np.array(values))


def _text(text: str) -> bytes:
    """One record of Unicode text, in American English."""
    body = text.encode("utf-16-be")
    return struct.pack(">4s4xII4sII", b"mluc", 1, 12, b"enUS", len(body), 28) + body


def _file(tags: dict[bytes, bytes]) -> bytes:
    table, body = b"", b""
    start = 128 + 4 + 12 * len(tags)
    places: dict[bytes, int] = {}
    for key, value in tags.items():
        if value not in places:
            places[value] = start + len(body)
            body += value + bytes(-len(value) % 4)
        table += struct.pack(">4sII", key, places[value], len(value))
    size = start + len(body)
    header = struct.pack(
        ">I4xI4s4s4s6H4s4xI4x4x8xI", size, 0x04300000, b"mntr", b"RGB ", b"XYZ ", 2026, 1, 1, 0, 0, 0, b"acsp", 0, 0
    )
    header += _fixed(np.array(D50))
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body
