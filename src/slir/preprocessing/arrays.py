"""Users' arrays <-> planes: float tensors (H, W) in [0, 1]. Nothing about a user's dtype or range is guessed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import to_numpy
from slir.errors import InputError, SlirWarning
from slir.preprocessing.resampling import Resize

GREY = (0.299, 0.587, 0.114)
"""Weights of R, G, B in the grey picture that banks are learnt from."""

Array = np.ndarray | Tensor
DataRange = float | tuple[float, float] | None

FILLED = 1e-3
"""Share of the range of its type that an image of more than 16 bits fills at least where that range is meant."""


def as_numpy(image: Any, argument: str = "image") -> np.ndarray:
    """A real array of integers or floats, as NumPy; torch tensors come off their device."""
    if image is None or isinstance(image, str | bytes | PathLike):
        raise InputError(argument, "be an array", repr(image), "slir.io.read and the command line read files.")
    array = to_numpy(image, argument)
    if array.dtype == bool or not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)):
        remedy = "Convert it: image.astype(np.float32)."
        raise InputError(argument, "hold integers or floats", f"of dtype {array.dtype}", remedy)
    if array.size == 0:
        raise InputError(argument, "hold at least one pixel", f"of shape {array.shape}", "Check how it was read.")
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        remedy = "Fill them in: slir.inpaint(image, ~np.isfinite(image), ...)."
        raise InputError(argument, "be finite", f"NaN or infinite at {bad} pixels", remedy)
    return array


@dataclass(frozen=True)
class Canvas:
    """How a user's image maps to planes and back: dtype, range, channels, kind of array.

    ranges: the pixel values that become 0 and 1, of each channel. limits: what integers are clipped to: black and
    white, or what the image holds beyond them (noise below a camera's black, a hot pixel).
    resize: the last step to the user's image, where what was restored is too large.
    """

    ranges: tuple[tuple[float, float], ...]
    limits: tuple[float, float]
    dtype: np.dtype
    shape: tuple[int, ...]
    channel_axis: int | None
    tensor: Tensor | None
    resize: Resize | None = None

    @property
    def spans(self) -> list[float]:
        """How many pixel values lie between 0 and 1, in each channel."""
        return [high - low for low, high in self.ranges]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        sides = list(self.shape)
        if self.channel_axis is not None:
            sides.pop(self.channel_axis)
        return sides[0], sides[1]

    def planes(self, image: np.ndarray, device: torch.device) -> list[Tensor]:
        """One float32 plane a channel, in [0, 1]."""
        moved = image[None] if self.channel_axis is None else np.moveaxis(image, self.channel_axis, 0)
        scaled = (
            ((plane.astype(np.float64) - low) / (high - low)).astype(np.float32)
            for plane, (low, high) in zip(moved, self.ranges)
        )
        return [torch.from_numpy(np.ascontiguousarray(plane)).to(device) for plane in scaled]

    def image(self, planes: list[Tensor]) -> Array:
        """The planes as the user's kind of array: same dtype, range, axes. Integers are rounded and clipped."""
        values = (plane.detach().cpu().numpy().astype(np.float64) for plane in planes)
        stacked = np.stack([plane * (high - low) + low for plane, (low, high) in zip(values, self.ranges)])
        stacked = stacked[0] if self.channel_axis is None else np.moveaxis(stacked, 0, self.channel_axis)
        if np.issubdtype(self.dtype, np.integer):
            stacked = np.clip(np.rint(stacked), *self.limits)
        result = np.ascontiguousarray(stacked.astype(self.dtype))
        if self.resize is not None:
            result = self.resize.image(result, self.channel_axis, limits=self.limits)
        return result if self.tensor is None else torch.from_numpy(result).to(self.tensor.device)

    def sizes(self, planes: list[Tensor]) -> Array:
        """Sizes of differences, one plane a channel, in the user's units and axes, as float32."""
        stacked = np.stack([plane.detach().cpu().numpy() * np.float32(span) for plane, span in zip(planes, self.spans)])
        stacked = stacked[0] if self.channel_axis is None else np.moveaxis(stacked, 0, self.channel_axis)
        result = np.ascontiguousarray(stacked, dtype=np.float32)
        if self.resize is not None:
            result = self.resize.image(result, self.channel_axis, errors=True)
        return result if self.tensor is None else torch.from_numpy(result).to(self.tensor.device)


def canvas(image: Any, *, data_range: DataRange, channel_axis: int | None) -> tuple[Canvas, np.ndarray]:
    """Check an image and work out how it maps to planes.

    data_range: the value that stands for white, or (black, white). None takes the whole range of an integer dtype;
        for floats it must be given, because guessing it would rescale somebody's data in silence.
    """
    array = as_numpy(image)
    expected = 2 if channel_axis is None else 3
    if array.ndim != expected:
        remedy = "Pass channel_axis=-1 for a colour image (H, W, C), or one plane at a time."
        raise InputError("image", f"have {expected} dimensions with channel_axis={channel_axis}", array.shape, remedy)
    if channel_axis is not None and not (isinstance(channel_axis, int | np.integer) and -3 <= channel_axis <= 2):
        raise InputError("channel_axis", "name one of the image's 3 axes", repr(channel_axis), "It is often -1.")
    low, high = pixel_range(array, data_range)
    least, most = float(array.min()), float(array.max())
    found = f"{least:g} to {most:g}"
    if least < low - (high - low) / 2 or most > high + (high - low) / 2:
        # Noise may carry values a little beyond black and white; this is more.
        if np.issubdtype(array.dtype, np.integer):
            rule = f"lie within data_range, {low:g} to {high:g}, or near it"
            raise InputError("image", rule, found, "Pass the data_range that the pixel values have.")
        advice = f"The image's values, {found}, lie far outside data_range, {low:g} to {high:g}. Is data_range right?"
        warnings.warn(advice, SlirWarning, stacklevel=5)
    kept = image if isinstance(image, Tensor) else None
    limits = min(low, least), max(high, most)
    channels = 1 if channel_axis is None else array.shape[channel_axis]
    return Canvas(((low, high),) * channels, limits, array.dtype, array.shape, channel_axis, kept), array


def check_filled(array: np.ndarray, data_range: DataRange) -> None:
    """Warn where values are lost in a range that nobody has said, and that a given model may have been made for: 32-bit
    floats round them there, and their noise is too small to be seen."""
    if data_range is not None or not np.issubdtype(array.dtype, np.integer) or array.dtype.itemsize <= 2:
        return
    least, most = float(array.min()), float(array.max())
    low, high = pixel_range(array, None)
    share = (most - least) / (high - low)
    if 0 < share < FILLED:  # one value throughout says nothing
        found = f"The image's values fill {share:.1g} of the range of {array.dtype}, which is taken for black to white"
        warnings.warn(f"{found}. Pass data_range, the value of white or (black, white).", SlirWarning, stacklevel=5)


def pixel_range(array: np.ndarray, data_range: DataRange) -> tuple[float, float]:
    """Black and white: those that were given, or the whole range of an integer dtype."""
    if data_range is None:
        if np.issubdtype(array.dtype, np.integer):
            return float(min(np.iinfo(array.dtype).min, 0)), float(np.iinfo(array.dtype).max)
        remedy = "Pass data_range=1.0 where white is 1, data_range=255.0 where it is 255, or (black, white)."
        raise InputError("data_range", "be given for a float image", None, remedy)
    low, high = _two_numbers(data_range)
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        remedy = "Pass data_range=1.0 where white is 1, or (black, white)."
        raise InputError("data_range", "be positive, or (black, white) with black < white", data_range, remedy)
    return float(low), float(high)


def _two_numbers(data_range: Any) -> tuple[float, float]:
    """Black and white, whatever kind of number they are; NaN where they are none."""
    try:
        low, high = (0.0, data_range) if np.ndim(data_range) == 0 else data_range
        if isinstance(high, str):
            return np.nan, np.nan
        return float(low), float(high)
    except (TypeError, ValueError, OverflowError):
        return np.nan, np.nan


def grey_plane(image: Any, argument: str = "image") -> Tensor:
    """A clean picture to learn from, as one float32 plane in [0, 1]: (H, W) or (H, W, 3 or 4), integer or float."""
    picture = _clean(image, argument)
    plane = np.tensordot(GREY, picture, 1) if picture.ndim == 3 else picture
    return torch.from_numpy(np.ascontiguousarray(plane, dtype=np.float32))


def clean_picture(image: Any, argument: str = "image") -> Tensor:
    """The same with its colours: (H, W) or (3, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(_clean(image, argument), dtype=np.float32))


def _clean(image: Any, argument: str) -> np.ndarray:
    array = as_numpy(image, argument)
    if array.ndim == 3 and array.shape[-1] in (3, 4):
        return np.moveaxis(array[..., :3], -1, 0).astype(np.float64) / _white(array, argument)
    if array.ndim == 2:
        return array / _white(array, argument)
    remedy = "Pass (H, W), or (H, W, 3) with the colours last."
    raise InputError(argument, "be a grey or colour picture", f"of shape {array.shape}", remedy)


def _white(array: np.ndarray, argument: str) -> float:
    if np.issubdtype(array.dtype, np.integer):
        if array.dtype.itemsize > 2:
            remedy = "Divide it by its white, or convert it: image.astype(np.uint8) where white is 255."
            raise InputError(argument, "have at most 16 bits where it holds integers", f"of {array.dtype}", remedy)
        return float(np.iinfo(array.dtype).max)
    if array.min() < -1e-3 or array.max() > 1 + 1e-3:
        found = f"{array.min():g} to {array.max():g}"
        raise InputError(argument, "lie in [0, 1] where it holds floats", found, "Divide it by its white.")
    return 1.0
