"""Convolution with a PSF under one of three borders, and its exact adjoint; by FFT or directly, whichever is cheaper.

With c = ((K−1)//2, …) the PSF's centre, as in `scipy.signal.convolve(..., mode="same")`:

    unknown   y = the valid part of psf * x; x is larger than y by K − 1
    circular  y[i] = Σₖ psf[k] x[i + c − k], indices modulo the size
    reflect   the same, indices mirrored at the edge of the image, the edge pixel repeated (`scipy.ndimage`'s reflect)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.errors import InputError
from slir.operators.base import Preconditioner, Shape

Border = Literal["unknown", "circular", "reflect"]

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

    shape: Shape
    spectrum: Tensor
    conjugate: Tensor
    power: Tensor
    seen: Tensor


class Convolution:
    """psf * x for images of any size. The PSF's spectrum is kept for the last few sizes."""

    def __init__(self, psf: Tensor, border: Border = "unknown"):
        if border not in get_args(Border):
            raise InputError("border", f"be one of {', '.join(get_args(Border))}", repr(border), "Pick one of these.")
        self.psf = psf
        self.border = border
        self.size: Shape = (psf.shape[0], psf.shape[1])
        self.centre: Shape = ((psf.shape[0] - 1) // 2, (psf.shape[1] - 1) // 2)
        self._spectra: dict[tuple, Tensor] = {}

    def y_shape(self, x_shape: Shape) -> Shape:
        (height, width), (tall, wide) = x_shape, self.size
        if tall > height or wide > width:
            rule = f"be no larger than the image, {height}×{width}"
            raise InputError("psf", rule, f"{tall}×{wide}", "Crop the PSF to its support, or pass a larger image.")
        if self.border == "unknown":
            return height - tall + 1, width - wide + 1
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        if self.border == "unknown":
            return y_shape[0] + self.size[0] - 1, y_shape[1] + self.size[1] - 1
        return self.y_shape(y_shape)

    def forward(self, x: Tensor) -> Tensor:
        shape = self.y_shape((x.shape[-2], x.shape[-1]))
        if self.border == "circular":
            return self._circular(x, transpose=False)
        if self.border == "reflect":
            rows, cols = self.continued(shape, x.device)
            x = x[..., rows, :][..., cols]
        return self._valid(x)

    def adjoint(self, y: Tensor) -> Tensor:
        self.x_shape((y.shape[-2], y.shape[-1]))
        if self.border == "circular":
            return self._circular(y, transpose=True)
        x = self._valid_adjoint(y)
        if self.border == "reflect":
            shape = (y.shape[-2], y.shape[-1])
            rows, cols = self.continued(shape, x.device)
            x = x.new_zeros(*x.shape[:-2], shape[0], x.shape[-1]).index_add_(-2, rows, x)
            x = x.new_zeros(*x.shape[:-1], shape[1]).index_add_(-1, cols, x)
        return x

    def continued(self, shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
        """Row and column indices of the image continued by K−1−c pixels before and c after, by mirroring or around."""
        indices = []
        for length, size, centre in zip(shape, self.size, self.centre):
            i = torch.arange(-(size - 1 - centre), length + centre, device=device)
            if self.border == "circular":
                indices.append(i % length)
                continue
            i = torch.where(i < 0, -1 - i, i)
            indices.append(torch.where(i >= length, 2 * length - 1 - i, i))
        return indices[0], indices[1]

    def _direct(self, image: Tensor) -> bool:
        """On a GPU never: there an FFT costs less than the launches."""
        return len(self._taps) <= DIRECT_TAPS and image.device.type == "cpu"

    @cached_property
    def _taps(self) -> list[tuple[int, int, float]]:
        """Where in x, from the pixel of y on, each non-zero value of the PSF looks: row, column, value."""
        (tall, wide) = self.size
        places = self.psf.nonzero().tolist()
        return [(tall - 1 - i, wide - 1 - j, float(self.psf[i, j])) for i, j in places]

    def _valid(self, x: Tensor) -> Tensor:
        (height, width), (tall, wide) = x.shape[-2:], self.size
        if self._direct(x):
            # One pass per tap, in cache: several times faster than a convolution of one channel in torch.
            high, across = height - tall + 1, width - wide + 1
            out = x.new_zeros(*x.shape[:-2], high, across)
            for i, j, value in self._taps:
                out.add_(x[..., i : i + high, j : j + across], alpha=value)
            return out
        fast = (fast_length(height), fast_length(width))
        out = irfft2(rfft2(x, s=fast) * self._spectrum(fast, x), s=fast)
        return out[..., tall - 1 : height, wide - 1 : width]

    def _valid_adjoint(self, y: Tensor) -> Tensor:
        (tall, wide) = self.size
        height, width = y.shape[-2] + tall - 1, y.shape[-1] + wide - 1
        if self._direct(y):
            out = y.new_zeros(*y.shape[:-2], height, width)
            for i, j, value in self._taps:
                out[..., i : i + y.shape[-2], j : j + y.shape[-1]].add_(y, alpha=value)
            return out
        fast = (fast_length(height), fast_length(width))
        y = F.pad(y, (wide - 1, 0, tall - 1, 0))
        out = irfft2(rfft2(y, s=fast) * self._spectrum(fast, y, kind="conjugate"), s=fast)
        return out[..., :height, :width]

    def normal(self, x: Tensor) -> Tensor:
        """BᵀBx. By FFT and with an unknown border, y stays where its transform wants it: no cutting and padding."""
        if self.border != "unknown" or self._direct(x):
            return self.adjoint(self.forward(x))
        height, width = x.shape[-2:]
        fast = (fast_length(height), fast_length(width))
        blurred = irfft2(rfft2(x, s=fast) * self._spectrum(fast, x), s=fast)
        blurred *= self._seen((height, width), fast, x)
        out = irfft2(rfft2(blurred) * self._spectrum(fast, x, kind="conjugate"), s=fast)
        return out[..., :height, :width]

    def _circular(self, x: Tensor, *, transpose: bool) -> Tensor:
        shape = (x.shape[-2], x.shape[-1])
        spectrum = self._spectrum(shape, x, shift=self.centre)
        return irfft2(rfft2(x) * (spectrum.conj() if transpose else spectrum), s=shape)

    def torus(self, shape: Shape, like: Tensor) -> Torus:
        """For x of this shape. Its pixels come first; y's begin K − 1 later."""
        fast = (fast_length(shape[0]), fast_length(shape[1]))
        spectrum, conjugate, power = (self._spectrum(fast, like, kind=kind) for kind in get_args(Spectrum))
        return Torus(fast, spectrum, conjugate, power, self._seen(shape, fast, like))

    def power(self, shape: Shape, like: Tensor | None = None) -> Tensor:
        """|b|² of images of this shape, (H, W//2 + 1), of the type and on the device of `like`; of None in double
        precision on the CPU."""
        return self._spectrum(shape, torch.empty(0, dtype=torch.float64) if like is None else like, kind="power")

    def _spectrum(self, shape: Shape, like: Tensor, shift: Shape = (0, 0), kind: Spectrum = "plain") -> Tensor:
        """b, its conjugate, or |b|²."""
        key = (shape, shift, like.dtype, like.device, kind)
        found = self._spectra.get(key)
        if found is not None:
            return found
        padded = F.pad(self.psf.double(), (0, shape[1] - self.size[1], 0, shape[0] - self.size[0]))
        spectrum = rfft2(padded.roll((-shift[0], -shift[1]), (0, 1)))
        if kind == "power":
            return self._keep(key, spectrum.abs().square().to(like))
        complex_type = torch.complex128 if like.dtype == torch.float64 else torch.complex64
        own = spectrum.conj().resolve_conj() if kind == "conjugate" else spectrum
        return self._keep(key, own.to(like.device, complex_type))

    def _seen(self, shape: Shape, fast: Shape, like: Tensor) -> Tensor:
        """One where a transform of size `fast` holds y, the valid part for x of this shape, and zero elsewhere."""
        key = (shape, fast, like.dtype, like.device)
        found = self._spectra.get(key)
        if found is not None:
            return found
        seen = torch.zeros(fast, dtype=like.dtype)
        seen[self.size[0] - 1 : shape[0], self.size[1] - 1 : shape[1]] = 1
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


def inverse_on_torus(
    power: Callable[[Shape, Tensor], Tensor | None],
    like: Tensor,
    weight: float,
    ridge: float | Tensor,
    smooth: float,
    *,
    circular: bool = False,
) -> Preconditioner | None:
    """v -> (weight·BᵀB + ridge·I + smooth·∇ᵀ∇)⁻¹ v for images like this one, as if their borders met.

    power: the spectrum of BᵀB. circular: whether borders do meet. None where there is no spectrum.
    """
    height, width = like.shape[-2:]
    shape = (height, width) if circular else (fast_length(height), fast_length(width))
    own = power(shape, like)
    if own is None:
        return None
    divisor = weight * own + (ridge if smooth == 0 else roughness(shape, like, ridge, smooth))

    def apply(v: Tensor, factors: Tensor) -> Tensor:
        return irfft2(rfft2(v, s=shape) * factors, s=shape)[..., :height, :width]

    return Preconditioner(apply, 1 / divisor)


def roughness(shape: Shape, like: Tensor, ridge: float | Tensor, smooth: float) -> Tensor:
    """The spectrum of ridge·I + smooth·∇ᵀ∇ on a torus. A hair more where it would vanish: for the constant."""
    down, across = (
        2 - 2 * torch.cos(2 * torch.pi * steps)
        for steps in (
            torch.fft.fftfreq(shape[0], dtype=like.dtype, device=like.device),
            torch.fft.rfftfreq(shape[1], dtype=like.dtype, device=like.device),
        )
    )
    return (ridge + smooth * (down[:, None] + across)).clamp_(min=1e-4 * smooth)
