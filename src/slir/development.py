"""develop: a picture from what a camera's sensor recorded. Demosaicking and denoising are one restoration.

The equation is y = Bx + ε, with B the mosaic of colour filters, and ε the noise of photons and of the electronics. Its
variance at brightness x is gain·x + read². A curve f that acts on each pixel alone commutes with the mosaic: f(Bx) =
B f(x). So f(x) is restored from f(y), where noise is nearly the same everywhere, and σ is a map of what differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from slir.errors import InputError, is_finite
from slir.io import icc
from slir.io.picture import Picture
from slir.io.raw import RawPicture, repeated

if TYPE_CHECKING:
    import torch

SPACES = {"srgb": icc.SRGB, "rec2020": icc.REC2020}
MAX_STRENGTH = 3.0
STRIP_PIXELS = 1 << 23
"""Pixels of a strip that is restored at a time, without its halo."""
HALO = 144
"""Rows above and below a strip that are restored with it; wider than what the kernel feels of an edge."""
PERIOD = 48
"""Strips begin at multiples of so many rows, as all mosaics do; `HALO` is one too."""
SHARE = 0.7
"""Of σ that the kernel is told at a strength of 1. It smooths mosaics too much at the true σ. On simulated raw files
this gains 0.3 to 0.6 dB at the noise of high ISO, and loses 0.15 dB at that of low ISO."""
_NEAR = 7
_BRIGHTEST, _MOST_BRIGHTENED = 0.99, 16.0
_ROUNDING = 1 / 12  # variance of whole numbers
_SAMPLES = 1 << 18

Space = Literal["srgb", "rec2020"]
Progress = bool | Callable[[int, int, str], None]


@dataclass(frozen=True)
class RawNoise:
    """Noise of the numbers of a sensor: variance = gain · (number − black) + read².

    gain, read : of R, G and B, in the sensor's numbers.
    """

    gain: tuple[float, float, float]
    read: tuple[float, float, float]

    def __post_init__(self) -> None:
        for name, values in (("gain", self.gain), ("read", self.read)):
            if len(values) != 3 or not all(is_finite(value) and value >= 0 for value in values):
                raise InputError(name, "be three numbers of at least 0", values, "Pass those of R, G and B.")

    @classmethod
    def of(cls, raw: RawPicture) -> RawNoise:
        """The noise of a raw file, from the file alone: of each plane of the mosaic, then the mean of each colour."""
        import torch

        from slir.noise import estimate_poisson_gaussian

        found: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
        rows, cols = raw.pattern.shape
        for row in range(rows):
            for col in range(cols):
                plane = raw.mosaic[row::rows, col::cols].astype(np.float32) - np.float32(raw.black[row, col])
                found[int(raw.pattern[row, col])].append(estimate_poisson_gaussian(torch.from_numpy(plane)))
        means = [np.mean(found[colour], axis=0) for colour in range(3)]
        gain, variance = zip(*((float(one[0]), float(one[1])) for one in means))
        return cls(gain, tuple(math.sqrt(each) for each in variance))  # type: ignore[arg-type]

    def sigma(self, brightness: float) -> tuple[float, ...]:
        """Standard deviation in R, G and B at a brightness above black, in the sensor's numbers."""
        return tuple(math.sqrt(gain * brightness + read**2) for gain, read in zip(self.gain, self.read))


def develop(
    raw: RawPicture,
    *,
    sigma: float | Literal["auto"] | RawNoise = "auto",
    strength: float = 1.0,
    linear: bool = False,
    space: Space = "srgb",
    exposure: float | None = None,
    depth: int = 16,
    device: str | torch.device | None = None,
    progress: Progress = False,
) -> Picture:
    """A picture from a raw file, without noise: demosaicked, with the camera's white balance and colours, upright.

    raw: what `slir.io.read_raw` reads. sigma: the noise of the sensor's numbers: "auto" finds how it grows with
        brightness, a number is that of white noise, a `RawNoise` says it for each colour.
    strength: how much of the noise is removed, 0 to 3; 0 only demosaics.
    linear: values proportional to light, for further work; otherwise with the curve of sRGB, ready to be looked at.
    space: the primaries of the result, "srgb" or "rec2020"; its profile says them.
    exposure: stops by which the picture is made brighter; None is 0 for linear values, and otherwise as many as bring
        the brightest hundredth of the pixels to white.
    depth: bits of the result, 8 or 16.

    >>> slir.io.write("out.tif", slir.develop(slir.io.read_raw("in.dng")))
    """
    _check(raw, strength, space, exposure, depth)
    noise = noise_of(raw, sigma)
    x = camera_colours(raw, noise, strength=strength, device=device, progress=progress)  # (H, W, 3)
    pixels = raw.turned(rendered(x, raw.to_srgb, linear=linear, space=space, exposure=exposure, depth=depth))
    meta = replace(raw.meta, icc=icc.profile(SPACES[space], linear=linear))
    return Picture(np.ascontiguousarray(pixels), -1, data_range=float(2**depth - 1), meta=meta, notes=raw.notes)


def camera_colours(
    raw: RawPicture,
    noise: RawNoise,
    *,
    strength: float = 1.0,
    device: str | torch.device | None = None,
    progress: Progress = False,
) -> np.ndarray:
    """White-balanced linear colours of the camera, not clipped, where 1 is the first colour to saturate.

    Gives (H, W, 3) float32. Strips of rows are restored one after the other, so memory grows only by the result.
    """
    from slir.inverse import restore
    from slir.kernel.shipped import default_model
    from slir.operators import ColourFilterArray
    from slir.preprocessing.ranges import filled_range

    scale = np.array([_scale(raw, colour) for colour in range(3)])
    a = np.array(noise.gain) * scale  # of the white-balanced colours: variance a·x + b
    b = (np.square(noise.read) + _ROUNDING) * scale**2
    curve = Curve.of(a, b)
    sample = slice(None, None, max(1, raw.mosaic.size // _SAMPLES))
    known = curve.forward(_balanced(raw, slice(None, None), scale).ravel()[sample])
    strength = SHARE * strength
    level = strength * float(np.sqrt(b).max()) * float(curve.slope(np.zeros(1))[0])
    width = filled_range(known, (0.0, 1.0), level, black=True, far=math.inf)[1]
    height = raw.mosaic.shape[0]
    step = max(PERIOD, STRIP_PIXELS // raw.mosaic.shape[1] // PERIOD * PERIOD)
    starts = range(0, height, step)
    x = np.empty((*raw.mosaic.shape, 3), np.float32)
    for number, start in enumerate(starts):
        seen = slice(max(0, start - HALO), min(height, start + step + HALO))
        y = _balanced(raw, seen, scale)
        sigma = strength * _deviation(y, raw.pattern, a, b, curve)
        operator = ColourFilterArray(raw.pattern)
        told: dict[str, Any] = {"model": default_model(operator), "data_range": (0.0, width), "device": device}
        told["progress"] = _share(progress, number, len(starts))
        z = restore(curve.forward(y), operator, sigma=sigma, **told)[start - seen.start :][:step]
        x[start : start + step] = curve.inverse(z, a, b)
    return x


@dataclass(frozen=True)
class Curve:
    """f(x) = (√(x + offset) − √offset) / (√(1 + offset) − √offset): 0 stays 0, and 1 stays 1.

    The variance of noise whose variance is a·x + b becomes the same everywhere with the offset b/a (+ 3a/8: Anscombe).
    """

    offset: float

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray) -> Curve:
        """The curve for noise of three colours, by their geometric means. Noise that hardly grows with brightness asks
        for a straight line; the offset stays of the size of the noise in the dark, since the kernel was learnt from
        pictures with a curve such as that of sRGB."""
        gain, dark = (float(np.exp(np.log(np.maximum(values, 1e-30)).mean())) for values in (a, b))
        deviation = math.sqrt(dark)
        even = dark / gain + 0.375 * gain
        return cls(min(max(even, 3 * deviation), 3 * deviation + 0.01))

    @property
    def _ends(self) -> tuple[float, float]:
        low = math.sqrt(self.offset)
        return low, math.sqrt(1 + self.offset) - low

    def forward(self, x: np.ndarray) -> np.ndarray:
        low, span = self._ends
        return (np.sqrt(np.maximum(x + self.offset, 0)) - low) / span

    def slope(self, x: np.ndarray) -> np.ndarray:
        """The derivative at x ≥ 0."""
        return 0.5 / np.sqrt(x + self.offset) / self._ends[1]

    def inverse(self, z: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The x for which the mean of f(y) is z, with noise of variance a·x + b in each of the colours: (H, W, 3).

        f is concave, so f⁻¹(z) is darker than x, by −f″/f′ · variance/2.
        """
        low, span = self._ends
        roots = z * np.float32(span) + np.float32(low)
        x = roots * np.abs(roots) - np.float32(self.offset)
        light = np.maximum(x, 0)
        return x + (a.astype(np.float32) * light + b.astype(np.float32)) / (4 * (light + np.float32(self.offset)))


def _scale(raw: RawPicture, colour: int) -> float:
    """From the sensor's numbers above black to white-balanced values."""
    return float(raw.white_balance[colour] / (raw.white - raw.black[raw.pattern == colour].mean()))


def _balanced(raw: RawPicture, rows: slice, scale: np.ndarray) -> np.ndarray:
    """White-balanced values of rows of the mosaic; the first of them begins the pattern."""
    numbers = raw.mosaic[rows].astype(np.float32)
    numbers -= repeated(raw.black, numbers.shape).astype(np.float32)
    numbers *= repeated(scale[raw.pattern], numbers.shape).astype(np.float32)
    return numbers


def _deviation(y: np.ndarray, pattern: np.ndarray, a: np.ndarray, b: np.ndarray, curve: Curve) -> np.ndarray:
    """σ of f(y) at each pixel, from the mean of the pixels of its colour nearby: (h, w) float32."""
    from scipy.ndimage import uniform_filter

    colours = repeated(pattern, y.shape)
    sigma = np.empty_like(y)
    for colour in range(3):
        own = colours == colour
        mask = own.astype(np.float32)
        near = uniform_filter(y * mask, _NEAR)[own] / np.maximum(uniform_filter(mask, _NEAR)[own], 1e-6)
        light = np.maximum(near, 0)
        sigma[own] = curve.slope(light) * np.sqrt(a[colour] * light + b[colour])
    return sigma


def rendered(
    x: np.ndarray, to_srgb: np.ndarray, *, linear: bool, space: Space, exposure: float | None, depth: int
) -> np.ndarray:
    """Pixels of white-balanced colours of a camera: (H, W, 3) uint8 or uint16. What is brighter than white is white."""
    matrix = np.linalg.solve(SPACES[space].to_xyz, icc.SRGB.to_xyz @ to_srgb).T.astype(np.float32)
    factor = 2.0**exposure if exposure is not None else 1.0 if linear else _brightening(x, matrix)
    most = 2**depth - 1
    pixels = np.empty(x.shape, np.uint8 if depth == 8 else np.uint16)
    for row, colours in enumerate(x):
        values = (np.minimum(colours, 1) @ matrix * np.float32(factor)).clip(0, 1)
        pixels[row] = np.rint(most * (values if linear else icc.encoded(values)))
    return pixels


def _brightening(x: np.ndarray, matrix: np.ndarray) -> float:
    """The factor that brings the brightest hundredth of the pixels to white."""
    colours = x.reshape(-1, 3)[:: max(1, x.size // 3 // _SAMPLES)]
    brightest = float(np.quantile((np.minimum(colours, 1) @ matrix).max(1), _BRIGHTEST))
    return min(max(1 / max(brightest, 1e-6), 1.0), _MOST_BRIGHTENED)


def _share(progress: Progress, number: int, count: int) -> Progress:
    """Progress of one strip as a share of all of them."""
    if not callable(progress) or count == 1:
        return progress
    return lambda done, total, what: progress(number * total + done, count * total, what)


def noise_of(raw: RawPicture, sigma: float | str | RawNoise) -> RawNoise:
    """The noise that `sigma` means for a raw file: see `develop`."""
    if isinstance(sigma, RawNoise):
        return sigma
    if sigma == "auto":
        return RawNoise.of(raw)
    if isinstance(sigma, str) or not is_finite(sigma) or sigma < 0:
        remedy = "It is the standard deviation of white noise in the sensor's numbers."
        raise InputError("sigma", 'be "auto", a number of at least 0, or a RawNoise', repr(sigma), remedy)
    return RawNoise((0.0, 0.0, 0.0), (float(sigma),) * 3)


def _check(raw: RawPicture, strength: float, space: str, exposure: float | None, depth: int) -> None:
    if not isinstance(raw, RawPicture):
        raise InputError("raw", "be a RawPicture", type(raw).__name__, "slir.io.read_raw(path) reads one.")
    if not (is_finite(strength) and 0 <= strength <= MAX_STRENGTH):
        raise InputError("strength", f"be a number from 0 to {MAX_STRENGTH:g}", repr(strength), "1 is usual.")
    if space not in SPACES:
        raise InputError("space", f"be one of {', '.join(SPACES)}", repr(space), "Most screens show srgb.")
    if exposure is not None and not (is_finite(exposure) and abs(exposure) <= 16):
        raise InputError("exposure", "be a number of stops from -16 to 16, or None", repr(exposure), "0 is usual.")
    if depth not in (8, 16):
        raise InputError("depth", "be 8 or 16", repr(depth), "16 keeps more.")
