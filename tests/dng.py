"""Raw files as cameras write them, made from pictures: a simulated sensor, and DNG files that LibRaw reads."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from slir.io import icc
from slir.io.ifd import ASCII, BYTE, LONG, RATIONAL, SHORT, UNDEFINED, Layout, Tag, Tags, tag, write_directory

SRATIONAL = 10
BLACK, WHITE = 512, 16383
WHITE_BALANCE = np.array([2.0, 1.0, 1.6])
#: XYZ -> colours of the camera, close to those of real ones.
XYZ_TO_CAMERA = np.array([[0.82, -0.29, -0.07], [-0.48, 1.27, 0.24], [-0.04, 0.12, 0.66]])
EXPOSURE, F_NUMBER, ISO = (1, 250), (28, 10), 1600


def camera_colours(srgb: np.ndarray) -> np.ndarray:
    """An sRGB picture in [0, 1] as white-balanced linear colours of the camera, where white is 1."""
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    matrix = XYZ_TO_CAMERA @ icc.SRGB.to_xyz
    return linear @ (matrix / matrix.sum(1, keepdims=True)).T


def mosaic(
    srgb: np.ndarray, pattern: np.ndarray, *, gain: float = 0.0, read: float = 0.0, white: int = WHITE, seed: int = 0
) -> np.ndarray:
    """What a sensor records of an sRGB picture (H, W, 3): (H, W) uint16.

    gain, read: variance a photon brings and read noise, in units where the sensor saturates at 1.
    """
    height, width = srgb.shape[:2]
    colours = np.tile(pattern, (-(-height // len(pattern)), -(-width // len(pattern[0]))))[:height, :width]
    light = np.take_along_axis(camera_colours(srgb) / WHITE_BALANCE, colours[..., None], 2)[..., 0]
    random = np.random.default_rng(seed)
    seen = random.poisson(light / gain) * gain if gain else light
    seen = seen + random.normal(0, read, light.shape) if read else seen
    return np.rint(BLACK + (white - BLACK) * seen).clip(0, white).astype(np.uint16)


def dng(
    pixels: np.ndarray,
    pattern: np.ndarray | None = None,
    *,
    orientation: int = 1,
    colours: int = 1,
    neutral: tuple[float, ...] | None = tuple(1 / WHITE_BALANCE),
    matrix: np.ndarray | None = XYZ_TO_CAMERA,
    extra: Tags | None = None,
) -> bytes:
    """A DNG file of a mosaic (H, W); of linear colours (H, W, 3); or, without a pattern, of a grey sensor."""
    height, width = pixels.shape[:2]
    data = pixels.astype("<u2").tobytes()
    photometric = 32803 if pattern is not None else 34892
    tags: dict[int, Tag | Tags] = {
        254: tag(LONG, 0), 256: tag(LONG, width), 257: tag(LONG, height), 258: tag(SHORT, [16] * colours),
        259: tag(SHORT, 1), 262: tag(SHORT, photometric), 271: tag(ASCII, b"Maker\0"), 272: tag(ASCII, b"Model 1\0"),
        273: tag(LONG, 8), 274: tag(SHORT, orientation), 277: tag(SHORT, colours), 278: tag(LONG, height),
        279: tag(LONG, len(data)), 284: tag(SHORT, 1), 306: tag(ASCII, b"2026:01:02 03:04:05\0"),
        50706: tag(BYTE, b"\1\4\0\0"), 50708: tag(ASCII, b"Maker Model 1\0"), 50714: tag(LONG, [BLACK] * colours),
        50717: tag(LONG, [WHITE] * colours), 50778: tag(SHORT, 21),
        0x8769: {
            0x829A: tag(RATIONAL, EXPOSURE), 0x829D: tag(RATIONAL, F_NUMBER), 0x8827: tag(SHORT, ISO),
            0x927C: tag(UNDEFINED, b"what only the maker understands " * 3000),
        },
    }  # fmt: skip
    if pattern is not None:
        tags |= {33421: tag(SHORT, pattern.shape), 33422: tag(BYTE, pattern.astype(np.uint8).tobytes())}
    if neutral is not None:
        tags[50728] = tag(RATIONAL, _ratios(neutral))
    if matrix is not None:
        tags[50721] = tag(SRATIONAL, _ratios(matrix.ravel()))
    stream = io.BytesIO()
    layout = Layout()
    stream.write(layout.start + layout.offset.pack(0) + data)
    at, _ = write_directory(stream, {**tags, **(extra or {})}, layout)
    stream.seek(len(layout.start))
    stream.write(layout.offset.pack(at))
    return stream.getvalue()


def write(path: Path, pixels: np.ndarray, pattern: np.ndarray | None = None, **told: object) -> Path:
    path.write_bytes(dng(pixels, pattern, **told))  # type: ignore[arg-type]
    return path


def _ratios(values: tuple[float, ...] | np.ndarray) -> np.ndarray:
    """Numerators and denominators in turn."""
    return np.array([(round(value * 1_000_000), 1_000_000) for value in values]).ravel()
