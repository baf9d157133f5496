"""Enlarging by any factor: restored at the next whole factor, then reduced with an antialiasing bicubic filter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from slir.errors import InputError, is_finite

Size = tuple[int, int]
Limits = tuple[float, float] | None


def factor_of(factor: Any, size: Any, shape: Size) -> float:
    """How many times as large an image of this shape becomes; an int where it is a whole number.

    size: (height, width) of the result, in place of a factor. The proportions of the image are kept, to the pixel.
    """
    check_one(factor, size)
    return checked_factor(factor) if size is None else _fitting(size, shape)


def check_one(factor: Any, size: Any) -> None:
    """Raise unless one of the two is given."""
    if (factor is None) == (size is None):
        found = "missing" if factor is None else "given together with size"
        raise InputError("factor", "be given, or size in its place", found, "Pass one of them.")


def checked_factor(factor: Any) -> float:
    """A number of at least 1; an int where it is a whole number."""
    number = isinstance(factor, int | float | np.number) and not isinstance(factor, bool) and is_finite(factor)
    if not number or factor < 1:
        raise InputError("factor", "be a number of at least 1", factor, "Pass 2, or 1.5.")
    return int(factor) if factor == int(factor) else float(factor)


def enlarged_size(shape: Size, factor: float) -> Size:
    """(height, width) of the result."""
    return round(shape[0] * factor), round(shape[1] * factor)


def _fitting(size: Any, shape: Size) -> float:
    """The factor that makes an image of this shape that large."""
    sides = [side for side in np.atleast_1d(size).tolist() if isinstance(side, int) and side > 0]
    if np.shape(size) != (2,) or len(sides) != 2:
        raise InputError("size", "be two whole numbers, height and width", repr(size), "Pass (1080, 1920).")
    wanted = (sides[0], sides[1])
    ratios = [side / before for side, before in zip(wanted, shape)]
    low = max((side - 0.5) / before for side, before in zip(wanted, shape))
    high = min((side + 0.5) / before for side, before in zip(wanted, shape))
    for factor in (*sorted(ratios, key=lambda own: own != int(own)), (low + high) / 2):
        if factor >= 1 and enlarged_size(shape, factor) == wanted:
            return checked_factor(factor)
    remedy = "slir only enlarges."
    if min(ratios) >= 1:
        height, width = enlarged_size(shape, min(ratios))
        remedy = f"Pass height {height} and width {width}, which fit inside."
    rule = f"keep the proportions of the image, which has height {shape[0]} and width {shape[1]}, and be no smaller"
    raise InputError("size", rule, f"height {wanted[0]} and width {wanted[1]}", remedy)


@dataclass(frozen=True)
class Reduction:
    """Makes images smaller, to `ratio` times as many pixels along each side, 0.5 < ratio < 1.

    The filter is Keys' bicubic kernel stretched by 1/ratio, as image software has it. Beyond the edges the outermost
    pixel is repeated. centred: whether the first new pixel lies where the corner of the image is, else its middle lies
    on that of the first old one.
    """

    ratio: float
    centred: bool = True

    @property
    def reach(self) -> int:
        """How many old pixels a new one sees at most, on each side."""
        return math.ceil(2 / self.ratio) + 1

    def places(self, new: range) -> np.ndarray:
        """Where the middles of new pixels lie, counted in old ones."""
        numbers = np.arange(new.start, new.stop)
        return (numbers + 0.5) / self.ratio - 0.5 if self.centred else numbers / self.ratio

    def source_range(self, new: range, length: int) -> range:
        """The old pixels, of `length`, that these new ones are made of."""
        first, last = self.places(new)[[0, -1]]
        start = min(max(0, math.floor(first) - self.reach), length - 1)
        return range(start, max(start + 1, min(length, math.ceil(last) + self.reach + 1)))

    def nearest(self, new: range, length: int) -> np.ndarray:
        """The old pixel that each new one lies in."""
        return np.rint(self.places(new)).astype(int).clip(0, length - 1)

    def weights(self, new: range, old: range, length: int) -> csr_array:
        """(new, old): what each new pixel takes of the old ones, which are `needed`."""
        places = self.places(new)
        taps = np.arange(-self.reach, self.reach + 1)
        columns = np.floor(places)[:, None].astype(int) + taps
        values = _cubic((columns - places[:, None]) * self.ratio)
        values /= values.sum(axis=1, keepdims=True)
        rows = np.broadcast_to(np.arange(len(places))[:, None], columns.shape)
        columns = (columns.clip(0, length - 1) - old.start).clip(0, len(old) - 1)
        shape = (len(places), len(old))
        return csr_array((values.ravel(), (rows.ravel(), columns.ravel())), shape=shape)

    def window(self, pixels: np.ndarray, rows: tuple[range, range, int], cols: tuple[range, range, int]) -> np.ndarray:
        """(h, w, C) old pixels -> (h′, w′, C) float64. rows, cols: the new ones, the old ones, and how many there are.

        A pixel is NaN where the old one that it lies in is; elsewhere NaN does not count.
        """
        down, across = self.weights(*rows), self.weights(*cols)
        values = pixels.astype(np.float64)
        missing = np.isnan(values)
        if not missing.any():
            return _both(down, across, values)
        known = _both(down, across, 1.0 - missing)
        result = _both(down, across, np.where(missing, 0.0, values)) / np.where(np.abs(known) > 0.1, known, np.nan)
        places = [self.nearest(new, length) - old.start for new, old, length in (rows, cols)]
        result[missing[np.ix_(*places)]] = np.nan
        return result

    def errors(self, sizes: np.ndarray, rows: tuple[range, range, int], cols: tuple[range, range, int]) -> np.ndarray:
        """The same for sizes of errors, which neighbours are taken to share: root mean squares of what is averaged."""
        return np.sqrt(self.window(np.square(sizes, dtype=np.float64), rows, cols).clip(0))

    def array(self, pixels: np.ndarray, size: Size, *, limits: Limits = None, errors: bool = False) -> np.ndarray:
        """A whole image (h, w) or (h, w, C), of the same type. limits: what integers are clipped to, at least."""
        interleaved = pixels if pixels.ndim == 3 else pixels[..., None]
        rows, cols = ((range(new), range(old), old) for new, old in zip(size, pixels.shape))
        made = (self.errors if errors else self.window)(interleaved, rows, cols)
        result = round_to_type(made, interleaved, limits)
        return result if pixels.ndim == 3 else result[..., 0]


@dataclass(frozen=True)
class Resize:
    """The last step of enlarging by a factor that is not whole: from `whole` times as large to `size`."""

    reduction: Reduction
    size: Size
    whole: int

    @property
    def reason(self) -> str:
        """Why errors are not calibrated."""
        return f"the result was reduced from one that is {self.whole} times as large"

    def image(
        self, pixels: np.ndarray, channel_axis: int | None, *, limits: Limits = None, errors: bool = False
    ) -> np.ndarray:
        """(H, W), or with a channel axis."""
        if channel_axis is None:
            return self.reduction.array(pixels, self.size, limits=limits, errors=errors)
        made = self.reduction.array(np.moveaxis(pixels, channel_axis, -1), self.size, limits=limits, errors=errors)
        return np.ascontiguousarray(np.moveaxis(made, -1, channel_axis))

    def explain_result(self, ask: Callable[[int, int, int], Any], shape: Size) -> Callable[[int, int, int], Any]:
        """What explains a pixel of the large image, of that shape, for pixels of the result."""

        def of_result(row: int, col: int, k: int) -> Any:
            there = [self.reduction.nearest(range(at, at + 1), side)[0] for at, side in zip((row, col), shape)]
            return ask(int(there[0]), int(there[1]), k)

        return of_result


def round_to_type(made: np.ndarray, old: np.ndarray, limits: Limits) -> np.ndarray:
    """New pixels in the type of the old ones. Integers stay within limits, or what the old ones hold beyond them."""
    if old.dtype.kind == "f":
        return made.astype(old.dtype)
    kind = np.iinfo(old.dtype)
    low, high = (kind.min, kind.max) if limits is None else limits
    low, high = max(kind.min, min(low, int(old.min()))), min(kind.max, max(high, int(old.max())))
    return np.rint(made).clip(low, high).astype(old.dtype)


def _both(down: csr_array, across: csr_array, values: np.ndarray) -> np.ndarray:
    height, width, channels = values.shape
    half = (down @ values.reshape(height, -1)).reshape(-1, width, channels)
    turned = np.ascontiguousarray(half.swapaxes(0, 1)).reshape(width, -1)
    return (across @ turned).reshape(-1, half.shape[0], channels).swapaxes(0, 1)


def _cubic(t: np.ndarray) -> np.ndarray:
    """Keys' cubic kernel with a = −1/2, as in `slir.operators.downsample`."""
    t = np.abs(t)
    near, far = (1.5 * t - 2.5) * t * t + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    return np.where(t < 1, near, np.where(t < 2, far, 0.0))
