"""HEIC and HEIF files, by pi-heif. They are read and not written: encoders for them are not free."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from slir.errors import FileError
from slir.io import exif
from slir.io.boxes import item_entries
from slir.io.picture import Head, Meta

EXTENSIONS = (".heic", ".heif", ".hif")
NAME = "HEIF"
_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"hevc")
_LAYOUTS = {"L": 1, "RGB": 3, "RGBA": 4, "L;16": 1, "RGB;16": 3, "RGBA;16": 4}


def is_start(start: bytes) -> bool:
    return start[4:8] == b"ftyp" and start[8:12] in _BRANDS


def begin(data: bytes) -> tuple[Head, Callable[[], np.ndarray]]:
    """What a HEIF file says of its pixels, and what decodes them. Raises ValueError or OSError with the reason."""
    file = _opened(data)
    notes = ["the file holds more than one picture; only the first is restored and kept"] if len(file) > 1 else []
    image = file[0]
    if image.mode not in _LAYOUTS:
        raise ValueError(f"has {image.mode} colours, which slir cannot read")
    (width, height), channels = image.size, _LAYOUTS[image.mode]
    if not width or not height:
        raise ValueError("declares no pixels: the file is damaged")
    deep = image.mode.endswith(";16")
    block = image.info.get("exif")
    if block is not None:
        block = block.removeprefix(exif.PREFIX) or None
    meta = Meta(
        icc=image.info.get("icc_profile") or None,
        exif=exif.upright(block),  # libheif has turned the pixels already
        xmp=image.info.get("xmp") or None,
        resolution=exif.resolution(block),
        premultiplied=bool(image.premultiplied_alpha),
    )

    def decode() -> np.ndarray:
        file = _opened(data)  # the pixels go with it, so that they are copied
        return np.array(file[0]).reshape(height, width, channels)

    dtype = np.dtype(np.uint16 if deep else np.uint8)
    told: dict[str, Any] = {"data_range": 65535.0 if deep else 255.0, "meta": meta, "notes": tuple(notes)}
    return Head((height, width), dtype, colour=channels > 1, has_alpha=channels == 4, **told), decode


def refusal(head: Head) -> str:
    """Why no picture is written as HEIF."""
    return "slir reads HEIF but does not write it"


def create(path: Path, head: Head, history: Sequence[str]) -> NoReturn:
    raise FileError(path, refusal(head), f"Write {path.stem}.png instead.")


def _opened(data: bytes) -> Any:
    import pi_heif

    _check_names(data)
    return pi_heif.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False)


def _check_names(data: bytes) -> None:
    """Raise ValueError where types or names of items are no text: pi-heif takes them for UTF-8, and crashes."""
    for entry in item_entries(data):
        try:
            entry[10 if entry[:1] == b"\3" else 8 :].decode()
        except UnicodeDecodeError:
            raise ValueError("has items whose types are no text: the file is damaged") from None
