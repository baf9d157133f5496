"""Any linear physics of deepinv as an operator: one of slir's own where the two are equal, so that its models apply.

    deepinv                                    slir
    Denoising                                  Identity
    Blur, padding "valid"                      Blur, border "unknown": x is larger than y
    Blur, padding "circular"; BlurFFT          Blur, border "circular"
    Blur, padding "replicate"                  Blur, border "reflect", for PSFs of up to 3×3 pixels, where they agree
    Inpainting, Demosaicing                    Mask, in PerChannel where masks differ
    Downsampling, padding "circular"           Downsample, border "circular"
    DownsamplingMatlab                         Downsample, "bicubic"
    all others                                 PhysicsOperator

Both convolve (deepinv flips its filter), but the centre of an even filter lies one pixel later in deepinv. What is read
off a physics is never trusted: it is applied to random images beside the physics, and dropped where they differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import prod
from typing import Any

import deepinv.physics as dinv
import torch
import torch.nn.functional as F
from deepinv.utils import TensorList
from torch import Tensor

from slir.errors import InputError, SlirWarning
from slir.operators import Blur, Downsample, Identity, Mask, Operator, PerChannel, adjoint_error
from slir.operators.base import Shape
from slir.operators.convolution import Border

Size = tuple[int, int, int]

AGREE = 1e-5
"""Largest difference of two operators that count as equal, as a share of the largest value; physics have float32."""

ADJOINT = 1e-3
"""Largest error of an adjoint that is passed over in silence; that of a right one is below 1e-6 in float32."""

BORDERS: dict[str, Border] = {"valid": "unknown", "circular": "circular", "replicate": "reflect", "reflect": "reflect"}


def from_physics(physics: dinv.LinearPhysics, img_size: Size | None = None, *, sample: int = 0) -> Operator:
    """A deepinv physics as an operator.

    img_size: (C, H, W) of x; None takes the physics' own. sample: which one of a batch of filters or masks.

    Where the physics treats all channels alike, the operator acts on one channel, (H, W). Otherwise it takes all of
    them together, (C, H, W). The y of a PhysicsOperator is what the physics measures, flattened to two axes.

    >>> operator = from_physics(deepinv.physics.Blur(filter), (1, 128, 128))
    """
    size = checked_size(physics, img_size)
    own = of_sample(physics, sample, size)
    held = getattr(physics, "operator", None)
    if isinstance(held, Operator) and (held.x_planes or held.y_planes):  # slir's own on its way back
        return held
    operators = channel_operators(own, size)
    if operators is None:
        return PhysicsOperator(own, size)
    return operators[0] if all(operator is operators[0] for operator in operators) else PerChannel(operators)


def checked_size(physics: dinv.LinearPhysics, img_size: Size | None) -> Size:
    if not isinstance(physics, dinv.LinearPhysics):
        remedy = "slir restores what a linear map has degraded."
        raise InputError("physics", "be a deepinv LinearPhysics", type(physics).__name__, remedy)
    size = img_size or getattr(physics, "img_size", None) or getattr(physics, "imsize", None)
    if size is None or len(size) != 3:
        raise InputError("img_size", "be (channels, height, width)", size, "Pass for example img_size=(1, 128, 128).")
    return (int(size[0]), int(size[1]), int(size[2]))


def of_sample(physics: dinv.LinearPhysics, number: int, size: Size) -> dinv.LinearPhysics:
    """The physics of one image, where it holds a filter or a mask for each image of a batch: these have four axes."""
    batched = {name: kept for name, kept in physics.named_buffers() if kept.ndim >= 4 and len(kept) > 1}
    if not batched:
        return physics
    count = max(len(kept) for kept in batched.values())
    own = physics.clone()
    for name, kept in batched.items():
        path, _, leaf = name.rpartition(".")
        setattr(own.get_submodule(path), leaf, kept[number : number + 1])
    x = _random(physics, (count, *size))
    if not _equal(_parts(own.A(x[number : number + 1])), [part[number : number + 1] for part in _parts(physics.A(x))]):
        remedy = "Restore images one by one, each with its own physics."
        raise InputError(
            "physics", "specify which of its parameters belong to an image", type(physics).__name__, remedy
        )
    return own


def channel_operators(physics: dinv.LinearPhysics, size: Size) -> list[Operator] | None:
    """B of each channel, one object where they are the same; None where channels are mixed."""
    x = _random(physics, (1, *size))
    y = physics.A(x)
    if not isinstance(y, Tensor) or y.ndim < 3 or y.shape[1] != size[0]:
        return None
    try:
        operators = _proposed(physics, size)
        if operators and _equal(torch.stack([b.forward(plane) for b, plane in zip(operators, x[0])])[None], y):
            return operators
    except InputError:  # a PSF that does not sum to one, sides that are no multiples of the factor, an empty mask
        pass
    # A = I ⊗ A₀: channels may be exchanged before or after, and what is in one of them stays there.
    first = torch.cat([x[:, :1], torch.zeros_like(x[:, 1:])], 1)
    alike = _equal(physics.A(x.roll(1, 1)), y.roll(1, 1)) and _equal(physics.A(first)[:, :1], y[:, :1])
    alike = alike and not bool(physics.A(first)[:, 1:].any())
    return [PhysicsOperator(physics, size, alike=True)] * size[0] if alike else None


def _proposed(physics: dinv.LinearPhysics, size: Size) -> list[Operator]:
    """What the physics seems to be, by its class and attributes: one operator a channel, or none."""
    channels = size[0]
    held = getattr(physics, "operator", None)
    if isinstance(held, Operator):  # slir's own on its way back
        return [held] * channels
    if isinstance(physics, dinv.Denoising):
        return [Identity()] * channels
    if isinstance(physics, dinv.Inpainting):
        return _of_channels(physics.mask.broadcast_to(1, *size), channels, lambda mask: Mask(mask.cpu() == 0))
    if isinstance(physics, dinv.BlurFFT):
        return _of_channels(physics.filter, channels, lambda psf: Blur(_centred(psf), "circular"))
    if isinstance(physics, dinv.Blur):
        border = BORDERS.get(physics.padding, "unknown")
        fit = _centred if border != "unknown" else torch.Tensor.cpu
        return _of_channels(physics.filter, channels, lambda psf: Blur(fit(psf), border))
    if isinstance(physics, dinv.DownsamplingMatlab):
        return [Downsample(physics.factor, "bicubic")] * channels
    if isinstance(physics, dinv.Downsampling):
        border, factor = BORDERS.get(physics.padding, "unknown"), physics.factor
        kernel = torch.ones(1, 1, 1, 1) if physics.filter is None else physics.filter
        return _of_channels(kernel, channels, lambda psf: _downsample(psf, factor, border))
    return []


def _of_channels(kept: Tensor, channels: int, make: Callable[[Tensor], Operator]) -> list[Operator]:
    """One operator for each channel's plane of (1, c, h, w), or one for all where these are equal."""
    planes = kept[0]
    if bool((planes == planes[:1]).all()):
        return [make(planes[0])] * channels
    return [make(plane) for plane in planes]


def _centred(psf: Tensor) -> Tensor:
    """The PSF with zeros after its even sides, which puts its centre where deepinv has it: at K//2."""
    tall, wide = psf.shape
    return F.pad(psf, (0, 1 - wide % 2, 0, 1 - tall % 2)).cpu()


def _downsample(psf: Tensor, factor: int, border: Border) -> Operator:
    """The centre of an even filter lies one pixel later: then the samples are taken there."""
    tall, wide = psf.shape
    if factor > 1 and tall % 2 == wide % 2 == 0:
        return Downsample(factor, psf.cpu(), phase=1, border=border)
    return Downsample(factor, _centred(psf), phase=0, border=border)


class PhysicsOperator(Operator):
    """y = A(x) by a deepinv physics, on its device and in its precision, for images of one size.

    alike: the physics treats all channels alike, so x is one of them, (H, W). Otherwise x is all of them, (C, H, W), or
        the only one. y is flattened to two axes; measurements of several parts follow each other in one row.
    """

    def __init__(self, physics: dinv.LinearPhysics, size: Size, *, alike: bool = False):
        self.physics, self.size, self.alike = physics, size, alike
        parts = _parts(physics.A(torch.zeros(1, *size, device=_device(physics), dtype=_dtype(physics))))
        if any(part.is_complex() for part in parts):
            remedy = "Have it return real and imaginary parts as two channels (torch.view_as_real)."
            raise InputError("physics", "measure real numbers", f"complex ({type(physics).__name__})", remedy)
        self.y_sizes = [tuple(part.shape[1:]) for part in parts]
        first = self.y_sizes[0][1:] if alike else self.y_sizes[0]
        whole = len(parts) == 1 and len(first) > 1
        self._y_shape: Shape = (prod(first[:-1]), first[-1]) if whole else (1, sum(map(prod, self.y_sizes)))
        self._x_shape: Shape = (size[1], size[2])
        self.x_planes = () if alike or size[0] == 1 else (size[0],)
        self.reach = max(self._x_shape)
        off = adjoint_error(self, self._x_shape, dtype=_dtype(physics), device=_device(physics))
        if off > ADJOINT:
            told = f"A_adjoint of {type(physics).__name__} is not the adjoint of its A: they differ by {off:.1%}."
            warnings.warn(f"{told} What is restored with it may be wrong.", SlirWarning, stacklevel=2)

    def y_shape(self, x_shape: Shape) -> Shape:
        return self._matched(x_shape, self._x_shape, self._y_shape)

    def x_shape(self, y_shape: Shape) -> Shape:
        return self._matched(y_shape, self._y_shape, self._x_shape)

    @staticmethod
    def _matched(found: Shape, wanted: Shape, other: Shape) -> Shape:
        if tuple(found) != wanted:
            raise InputError("image", f"have the physics' shape {wanted}", tuple(found), "Crop or pad it.")
        return other

    def forward(self, x: Tensor) -> Tensor:
        self.y_shape((x.shape[-2], x.shape[-1]))
        images = x.to(_device(self.physics), _dtype(self.physics)).reshape(-1, *self.x_planes, *self._x_shape)
        channels = images if self.x_planes else images[:, None].expand(-1, *self.size)
        batch = x.shape[: x.ndim - 2 - len(self.x_planes)]
        return self.flat(self.physics.A(channels)).to(x).reshape(*batch, *self._y_shape)

    def adjoint(self, y: Tensor) -> Tensor:
        self.x_shape((y.shape[-2], y.shape[-1]))
        planes = y.to(_device(self.physics), _dtype(self.physics)).reshape(-1, *self._y_shape)
        x = self.physics.A_adjoint(self._measured(planes))
        x = x if self.x_planes else x[:, 0]
        return x.to(y).reshape(*y.shape[:-2], *self.x_planes, *self._x_shape)

    def flat(self, y: Tensor | TensorList) -> Tensor:
        """What the physics measured, as planes: (N, h, w)."""
        parts = [part[:, 0] if self.alike else part for part in _parts(y)]
        return torch.cat([part.reshape(len(part), -1) for part in parts], 1).reshape(-1, *self._y_shape)

    def _measured(self, planes: Tensor) -> Tensor | TensorList:
        """And back: (N, h, w) -> as the physics has it."""
        if self.alike:
            planes = planes.reshape(len(planes), 1, *self.y_sizes[0][1:])
            return planes.expand(-1, self.size[0], *planes.shape[2:])
        rows = planes.flatten(1).split([prod(size) for size in self.y_sizes], 1)
        parts = [row.reshape(-1, *size) for row, size in zip(rows, self.y_sizes)]
        return parts[0] if len(parts) == 1 else TensorList(parts)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The physics fits one size alone, so pictures are cropped to it."""
        if shape[0] < self._x_shape[0] or shape[1] < self._x_shape[1]:
            rule = f"have at least the physics' shape {self._x_shape}"
            raise InputError("images", rule, tuple(shape), "Learn from larger pictures.")
        return self, self._x_shape

    def describe(self) -> dict[str, Any]:
        kind = type(self.physics).__name__
        x_shape = [*self.x_planes, *self._x_shape]
        return {"kind": "physics", "physics": kind, "x_shape": x_shape, "y_shape": list(self._y_shape)}


def _parts(y: Any) -> list[Tensor]:
    return [y] if isinstance(y, Tensor) else list(y)


def _equal(found: Tensor | list[Tensor], expected: Tensor | list[Tensor]) -> bool:
    """Up to rounding."""
    pairs = list(zip(_parts(found), _parts(expected), strict=True))
    return all(a.shape == b.shape and float((a - b).abs().max()) <= AGREE * float(b.abs().max()) for a, b in pairs)


def _device(physics: dinv.LinearPhysics) -> torch.device:
    return next((kept.device for kept in physics.buffers()), torch.device("cpu"))


def _dtype(physics: dinv.LinearPhysics) -> torch.dtype:
    return next((kept.dtype for kept in physics.buffers() if kept.is_floating_point()), torch.float32)


def _random(physics: dinv.LinearPhysics, shape: tuple[int, ...]) -> Tensor:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return drawn.to(_device(physics), _dtype(physics))
