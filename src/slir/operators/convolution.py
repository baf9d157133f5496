"""Convolution with a PSF of two or three axes under one of three borders, and its exact adjoint; by FFT or directly.

With c = ((K−1)//2, …) the PSF's centre, as in `scipy.signal.convolve(..., mode="same")`:

    unknown   y = the valid part of psf * x; x is larger than y by K − 1
    circular  y[i] = Σₖ psf[k] x[i + c − k], indices modulo the size
    reflect   the same, indices mirrored at the edge of the image, the edge pixel repeated (`scipy.ndimage`'s reflect)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfftn, rfftn
from slir.errors import InputError
from slir.operators.base import Preconditioner

Border = Literal["unknown", "circular", "reflect"]

Sides = tuple[int, ...]
"""As many as the PSF has axes: (height, width), or (depth, height, width)."""

DIRECT_TAPS = 32
"""PSFs of up to this many non-zero values are applied directly: benchmarks/convolution.py finds where costs cross."""


KEPT = 16
"""Spectra and windows that are kept: four for each size of image."""

POWERS = ((16, 1.0), (8, 1.08), (4, 1.15), (2, 1.3), (1, 1.5))
"""What a number costs in transforms whose length has this power of two in it, measured on a CPU."""

Spectrum = Literal["plain", "conjugate", "power"]


@cache
def fast_length(length: int) -> int:
    """The length from this one on at which transforms take the least time.

    Those without large factors do, and of them those with many factors of two: 336 takes a quarter less than 324.
    """
    smooth = (n for n in range(length, 2 * length + 16) if _without(n, (2, 3, 5, 7)) == 1)
    costs = {n: n * next(cost for power, cost in POWERS if n % power == 0) for n in islice(smooth, 12)}
    return min(costs, key=lambda n: costs[n])


def _without(n: int, factors: tuple[int, ...]) -> int:
    for factor in factors:
        while n % factor == 0:
            n //= factor
    return n


@dataclass(frozen=True)
class Torus:
    """A blur with an unknown border as a part of one whose borders meet, by transforms of size `shape`.

    spectrum, conjugate, power: b, its conjugate, |b|². seen: one where y is shown, zero elsewhere, of size `shape`.
    """

    shape: Sides
    spectrum: Tensor
    conjugate: Tensor
    power: Tensor
    seen: Tensor


class Convolution:
    """psf * x over the last axes of images of any size, as many as the PSF has. The PSF's spectrum is kept for the last
    few sizes."""

    def __init__(self, psf: Tensor, border: Border = "unknown"):
        if border not in get_args(Border):
            raise InputError("border", f"be one of {', '.join(get_args(Border))}", repr(border), "Pick one of these.")
        self.psf = psf
        self.border = border
        self.size: Sides = tuple(psf.shape)
        self.centre: Sides = tuple((side - 1) // 2 for side in psf.shape)
        self._spectra: dict[tuple, Tensor] = {}

    def sides(self, image: Tensor) -> Sides:
        """The lengths of the axes that are convolved."""
        return tuple(image.shape[image.ndim - len(self.size) :])

    def y_shape(self, x_shape: Sides) -> Sides:
        if any(own > side for own, side in zip(self.size, x_shape)):
            rule, found = f"be no larger than the image, {times(x_shape)}", times(self.size)
            raise InputError("psf", rule, found, "Crop the PSF to its support, or pass a larger image.")
        if self.border == "unknown":
            return tuple(side - own + 1 for side, own in zip(x_shape, self.size))
        return tuple(x_shape)

    def x_shape(self, y_shape: Sides) -> Sides:
        if self.border == "unknown":
            return tuple(side + own - 1 for side, own in zip(y_shape, self.size))
        return self.y_shape(y_shape)

    def margins(self) -> list[tuple[int, int]]:
        """How far x reaches beyond y, before and after, along each axis."""
        if self.border != "unknown":
            return [(0, 0)] * len(self.size)
        return [(own - 1 - centre, centre) for own, centre in zip(self.size, self.centre)]

    def forward(self, x: Tensor) -> Tensor:
        shape = self.y_shape(self.sides(x))
        if self.border == "circular":
            return self._circular(x, transpose=False)
        if self.border == "reflect":
            for axis, indices in zip(self._axes, self.continued(shape, x.device)):
                x = x.index_select(axis, indices)
        return self._valid(x)

    def adjoint(self, y: Tensor) -> Tensor:
        shape = self.sides(y)
        self.x_shape(shape)
        if self.border == "circular":
            return self._circular(y, transpose=True)
        x = self._valid_adjoint(y)
        if self.border == "reflect":
            for axis, side, indices in zip(self._axes, shape, self.continued(shape, x.device)):
                folded = x.new_zeros([*x.shape[: x.ndim + axis], side, *x.shape[x.ndim + axis + 1 :]])
                x = folded.index_add_(axis, indices, x)
        return x

    @property
    def _axes(self) -> range:
        return range(-len(self.size), 0)

    def continued(self, shape: Sides, device: torch.device) -> list[Tensor]:
        """Indices along each axis of the image continued by K−1−c pixels before and c after, by mirroring or around."""
        indices = []
        for length, size, centre in zip(shape, self.size, self.centre):
            i = torch.arange(-(size - 1 - centre), length + centre, device=device)
            if self.border == "circular":
                indices.append(i % length)
                continue
            i = torch.where(i < 0, -1 - i, i)
            indices.append(torch.where(i >= length, 2 * length - 1 - i, i))
        return indices

    def _direct(self, image: Tensor) -> bool:
        """On a GPU never: there an FFT costs less than the launches."""
        return len(self._taps) <= DIRECT_TAPS and image.device.type == "cpu"

    @cached_property
    def _taps(self) -> list[tuple[Sides, float]]:
        """Where in x, from the pixel of y on, each non-zero value of the PSF looks, and the value."""
        places = self.psf.nonzero().tolist()
        ahead = [tuple(own - 1 - i for own, i in zip(self.size, place)) for place in places]
        return [(step, float(self.psf[tuple(place)])) for step, place in zip(ahead, places)]

    def _valid(self, x: Tensor) -> Tensor:
        sides = self.sides(x)
        if self._direct(x):
            # One pass per tap, in cache: several times faster than a convolution of one channel in torch.
            shape = tuple(side - own + 1 for side, own in zip(sides, self.size))
            out = x.new_zeros(*x.shape[: x.ndim - len(shape)], *shape)
            for step, value in self._taps:
                out.add_(x[window(step, shape)], alpha=value)
            return out
        fast = fast_shape(sides)
        out = irfftn(rfftn(x, fast) * self._spectrum(fast, x), fast)
        return out[self._seen_window(sides)]

    def _valid_adjoint(self, y: Tensor) -> Tensor:
        shape = self.sides(y)
        sides = tuple(side + own - 1 for side, own in zip(shape, self.size))
        if self._direct(y):
            out = y.new_zeros(*y.shape[: y.ndim - len(shape)], *sides)
            for step, value in self._taps:
                out[window(step, shape)].add_(y, alpha=value)
            return out
        fast = fast_shape(sides)
        y = F.pad(y, [length for own in reversed(self.size) for length in (own - 1, 0)])
        out = irfftn(rfftn(y, fast) * self._spectrum(fast, y, kind="conjugate"), fast)
        return out[window((0,) * len(sides), sides)]

    def normal(self, x: Tensor) -> Tensor:
        """BᵀBx. By FFT and with an unknown border, y stays where its transform wants it: no cutting and padding."""
        if self.border != "unknown" or self._direct(x):
            return self.adjoint(self.forward(x))
        sides = self.sides(x)
        fast = fast_shape(sides)
        blurred = irfftn(rfftn(x, fast) * self._spectrum(fast, x), fast)
        blurred *= self._seen(sides, fast, x)
        out = irfftn(rfftn(blurred, fast) * self._spectrum(fast, x, kind="conjugate"), fast)
        return out[window((0,) * len(sides), sides)]

    def _circular(self, x: Tensor, *, transpose: bool) -> Tensor:
        shape = self.sides(x)
        spectrum = self._spectrum(shape, x, shift=self.centre)
        return irfftn(rfftn(x, shape) * (spectrum.conj() if transpose else spectrum), shape)

    def torus(self, shape: Sides, like: Tensor) -> Torus:
        """For x of this shape. Its pixels come first; y's begin K − 1 later."""
        fast = fast_shape(shape)
        spectrum, conjugate, power = (self._spectrum(fast, like, kind=kind) for kind in get_args(Spectrum))
        return Torus(fast, spectrum, conjugate, power, self._seen(shape, fast, like))

    def power(self, shape: Sides, like: Tensor | None = None) -> Tensor:
        """|b|² of images of this shape, (H, W//2 + 1), of the type and on the device of `like`; of None in double
        precision on the CPU."""
        return self._spectrum(shape, torch.empty(0, dtype=torch.float64) if like is None else like, kind="power")

    def _spectrum(self, shape: Sides, like: Tensor, shift: Sides | None = None, kind: Spectrum = "plain") -> Tensor:
        """b, its conjugate, or |b|²."""
        key = (shape, shift, like.dtype, like.device, kind)
        found = self._spectra.get(key)
        if found is not None:
            return found
        beyond = [(0, side - own) for side, own in zip(shape, self.size)]
        padded = F.pad(self.psf.double(), [length for pair in reversed(beyond) for length in pair])
        if shift is not None:
            padded = padded.roll([-step for step in shift], tuple(self._axes))
        spectrum = rfftn(padded, shape)
        if kind == "power":
            return self._keep(key, spectrum.abs().square().to(like))
        complex_type = torch.complex128 if like.dtype == torch.float64 else torch.complex64
        own = spectrum.conj().resolve_conj() if kind == "conjugate" else spectrum
        return self._keep(key, own.to(like.device, complex_type))

    def _seen_window(self, shape: Sides) -> tuple:
        """Where a transform holds y, the valid part for x of this shape."""
        return (..., *(slice(own - 1, side) for own, side in zip(self.size, shape)))

    def _seen(self, shape: Sides, fast: Sides, like: Tensor) -> Tensor:
        """One where a transform of size `fast` holds y, and zero elsewhere."""
        key = (shape, fast, like.dtype, like.device)
        found = self._spectra.get(key)
        if found is not None:
            return found
        seen = torch.zeros(fast, dtype=like.dtype)
        seen[self._seen_window(shape)] = 1
        return self._keep(key, seen.to(like.device))

    def constants(self) -> list[Tensor]:
        """The spectra and windows that are kept."""
        return list(self._spectra.values())

    def _keep(self, key: tuple, value: Tensor) -> Tensor:
        """The value. Another thread may clear what is kept at any time, so nobody looks it up after this."""
        if len(self._spectra) >= KEPT:
            self._spectra.clear()
        self._spectra[key] = value
        return value


def fast_shape(shape: Sides) -> Sides:
    """`fast_length` of each side."""
    return tuple(fast_length(side) for side in shape)


def window(start: Sides, shape: Sides) -> tuple:
    """The index of a part of the last axes."""
    return (..., *(slice(first, first + side) for first, side in zip(start, shape)))


def times(shape: Sides) -> str:
    """Sides in words: 3×4."""
    return "×".join(map(str, shape))


def inverse_on_torus(
    power: Callable[[Any, Tensor], Tensor | None],
    like: Tensor,
    weight: float,
    ridge: float | Tensor,
    smooth: float,
    *,
    circular: bool = False,
    spacing: Sequence[float] = (1.0, 1.0),
) -> Preconditioner | None:
    """v -> (weight·BᵀB + ridge·I + smooth·∇ᵀ∇)⁻¹ v for images like this one, as if their borders met.

    power: the spectrum of BᵀB. circular: whether borders do meet. spacing: the distances of pixels along the last axes,
    as many as are transformed. None where there is no spectrum.
    """
    sides = tuple(like.shape[like.ndim - len(spacing) :])
    shape = sides if circular else fast_shape(sides)
    own = power(shape, like)
    if own is None:
        return None
    divisor = weight * own + (ridge if smooth == 0 else roughness(shape, like, ridge, smooth, spacing))
    inner = window((0,) * len(sides), sides)

    def apply(v: Tensor, factors: Tensor) -> Tensor:
        return irfftn(rfftn(v, shape) * factors, shape)[inner]

    return Preconditioner(apply, 1 / divisor)


def roughness(
    shape: Sides, like: Tensor, ridge: float | Tensor, smooth: float, spacing: Sequence[float] = (1.0, 1.0)
) -> Tensor:
    """The spectrum of ridge·I + smooth·∇ᵀ∇ on a torus. A hair more where it would vanish: for the constant."""
    total = like.new_zeros(())
    for axis, (side, step) in enumerate(zip(shape, spacing)):
        frequencies = torch.fft.rfftfreq if axis == len(shape) - 1 else torch.fft.fftfreq
        waves = frequencies(side, dtype=like.dtype, device=like.device)
        line = (2 - 2 * torch.cos(2 * torch.pi * waves)) / step**2
        total = total + line.reshape(-1, *[1] * (len(shape) - 1 - axis))
    return (ridge + smooth * total).clamp_(min=1e-4 * smooth)
