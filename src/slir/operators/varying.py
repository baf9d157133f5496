"""B = a blur that changes over the image: PSFs on a grid, interpolated between its points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute.transforms import irfft2, rfft2
from slir.errors import InputError
from slir.operators.base import Operator, Preconditioner, Shape, fingerprint
from slir.operators.blur import checked_psf
from slir.operators.convolution import Border, Convolution, Sides, fast_length, inverse_on_torus

Window = tuple[slice, slice]


class VaryingBlur(Operator):
    """y(p) = Σₙ hₙ(p) (psfₙ * x)(p), a blur whose PSF at pixel p of y is interpolated between those of a grid.

    psfs: (R, C, K, L), the PSF at the middle of each of R × C equal parts of the image; each sums to one. Between these
        points it is interpolated linearly; beyond the outermost ones it stays.
    shape: height and width of y, over which the grid is spread.
    border: as for `Blur`.

    A point of the grid is felt in the parts around it alone, so each of its convolutions is one of a small piece: all
    of them together cost about four of the whole image (after Nagy & O'Leary, 1998).
    """

    recordable = True
    shareable = True

    def __init__(self, psfs: Tensor | np.ndarray, shape: Shape, border: Border = "unknown"):
        array = psfs if isinstance(psfs, Tensor) else torch.as_tensor(np.asarray(psfs, np.float64))
        if array.ndim != 4 or array.numel() == 0:
            found = f"of shape {tuple(array.shape)}"
            raise InputError("psfs", "have four dimensions, (rows, columns, K, L)", found, "Pass psfs[None, None].")
        if len(shape) != 2 or min(shape) < 1:
            raise InputError("shape", "be the height and width of the image", shape, "Pass image.shape[:2].")
        self.psfs = torch.stack([torch.stack([checked_psf(psf, argument="psfs") for psf in row]) for row in array])
        self._whole: Shape = (int(shape[0]), int(shape[1]))
        self._place(border, (slice(0, self._whole[0]), slice(0, self._whole[1])))

    def _place(self, border: Border, window: Window) -> None:
        """The operator for this window of y."""
        self._window = window
        self._shape: Shape = (window[0].stop - window[0].start, window[1].stop - window[1].start)
        self._frame = Convolution(self.psfs[0, 0], border)  # its shapes and borders are those of all
        self.reach = max(self.psfs.shape[-2:]) - 1
        self._kept: dict[tuple, Tensor] = {}

    @property
    def border(self) -> Border:
        return self._frame.border

    def y_shape(self, x_shape: Shape) -> Shape:
        return self._matched(self._frame.y_shape(x_shape))

    def x_shape(self, y_shape: Shape) -> Shape:
        height, width = self._frame.x_shape(self._matched(y_shape))
        return height, width

    def _matched(self, y_shape: Sides) -> Shape:
        if tuple(y_shape) != self._shape:
            rule = f"have the shape that the PSFs are spread over, {self._shape}"
            raise InputError("image", rule, tuple(y_shape), "Pass this shape to VaryingBlur.")
        return self._shape

    def margins(self) -> tuple[int, int, int, int]:
        (top, bottom), (left, right) = self._frame.margins()
        return top, bottom, left, right

    @cached_property
    def _axes(self) -> tuple[Axis, Axis]:
        rows, cols = (
            Axis.of(self.psfs.shape[axis], self._whole[axis], self._window[axis], self._frame.size[axis])
            for axis in (0, 1)
        )
        return rows, cols

    def forward(self, x: Tensor) -> Tensor:
        self.y_shape((x.shape[-2], x.shape[-1]))
        x = self._continued(x)
        rows, cols = self._axes
        boxes = torch.stack([torch.stack([x[..., row, col] for col in cols.seen]) for row in rows.seen])
        size = self._transform
        blurred = irfft2(rfft2(boxes, s=size) * self._spectra(x, conjugate=False, ndim=x.ndim), s=size)
        tall, wide = self._frame.size
        blurred = blurred[..., tall - 1 : tall - 1 + rows.size, wide - 1 : wide - 1 + cols.size]
        y = x.new_zeros(*x.shape[:-2], *self._shape)
        for i, j, part in self._weighted(blurred):
            y[..., rows.own[i], cols.own[j]] += part
        return y

    def adjoint(self, y: Tensor) -> Tensor:
        self._matched((y.shape[-2], y.shape[-1]))
        rows, cols = self._axes
        boxes = torch.stack([torch.stack([y[..., row, col] for col in cols.own]) for row in rows.own])
        tall, wide = self._frame.size
        padded = torch.stack([torch.stack([F.pad(part, (wide - 1, 0, tall - 1, 0)) for part in row])
                              for row in self._rows(boxes)])  # fmt: skip
        size = self._transform
        back = irfft2(rfft2(padded, s=size) * self._spectra(y, conjugate=True, ndim=y.ndim), s=size)
        x = y.new_zeros(*y.shape[:-2], *(length + own - 1 for length, own in zip(self._shape, self._frame.size)))
        for i, row in enumerate(rows.seen):
            for j, col in enumerate(cols.seen):
                x[..., row, col] += back[i, j][..., : row.stop - row.start, : col.stop - col.start]
        return self._folded(x)

    def _rows(self, boxes: Tensor) -> list[list[Tensor]]:
        """Boxes of y, weighted, row by row of the grid."""
        parts: list[list[Tensor]] = [[] for _ in range(len(boxes))]
        for i, _, part in self._weighted(boxes):
            parts[i].append(part)
        return parts

    def _weighted(self, boxes: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Each box times how much its grid point counts there."""
        rows, cols = self._axes
        down, across = rows.weights.to(boxes), cols.weights.to(boxes)
        for i in range(len(down)):
            for j in range(len(across)):
                yield i, j, boxes[i, j] * (down[i][:, None] * across[j])

    @property
    def _transform(self) -> Shape:
        (rows, cols), (tall, wide) = self._axes, self._frame.size
        return fast_length(rows.size + tall - 1), fast_length(cols.size + wide - 1)

    def _spectra(self, like: Tensor, *, conjugate: bool, ndim: int) -> Tensor:
        """Of the PSFs of the grid's points that are felt: (R, C, ..., H, W//2 + 1)."""
        key = (like.device, like.dtype, conjugate)
        if key not in self._kept:
            rows, cols = self._axes
            psfs = self.psfs[rows.points][:, cols.points]
            spectra = rfft2(psfs, s=self._transform)
            spectra = spectra.conj().resolve_conj() if conjugate else spectra
            wanted = torch.complex128 if like.dtype == torch.float64 else torch.complex64
            self._kept[key] = spectra.to(like.device, wanted)
        spectra = self._kept[key]
        return spectra.reshape(*spectra.shape[:2], *[1] * (ndim - 2), *spectra.shape[2:])

    def _continued(self, x: Tensor) -> Tensor:
        """x with what its border makes of the pixels beyond it."""
        if self.border == "unknown":
            return x
        rows, cols = self._beyond(x.device)
        return x[..., rows, :][..., cols]

    def _folded(self, x: Tensor) -> Tensor:
        """The transpose of `_continued`."""
        if self.border == "unknown":
            return x
        rows, cols = self._beyond(x.device)
        x = x.new_zeros(*x.shape[:-2], self._shape[0], x.shape[-1]).index_add_(-2, rows, x)
        return x.new_zeros(*x.shape[:-1], self._shape[1]).index_add_(-1, cols, x)

    def _beyond(self, device: torch.device) -> tuple[Tensor, Tensor]:
        rows, cols = self._frame.continued(self._shape, device)
        return rows, cols

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        """The mean of those of the grid's PSFs."""
        key = (shape, like.device, like.dtype)
        if key not in self._kept:
            rows, cols = self._axes
            total = sum(
                rfft2(psf, s=shape).abs().square() for row in self.psfs[rows.points] for psf in row[cols.points]
            )
            self._kept[key] = (total / (len(rows.points) * len(cols.points))).to(like)  # type: ignore[union-attr]
        return self._kept[key]

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """As of a blur that is the same everywhere."""
        return inverse_on_torus(self.power, like, weight, ridge, smooth, circular=self.border == "circular")

    def constants(self) -> list[Tensor]:
        return list(self._kept.values())

    def guess(self, y: Tensor) -> Tensor:
        """y, its edge pixels repeated outwards over an unknown border."""
        top, bottom, left, right = self.margins()
        padded = F.pad(y.reshape(1, -1, *y.shape[-2:]), (left, right, top, bottom), mode="replicate")
        return padded.reshape(*y.shape[:-2], *padded.shape[-2:])

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """The same PSFs at the same pixels; a circular border alone ties far pixels together."""
        if self.border == "circular":
            return None
        top, left = self._window[0].start, self._window[1].start
        window = (slice(top + rows.start, top + rows.stop), slice(left + cols.start, left + cols.stop))
        part = object.__new__(VaryingBlur)
        part.psfs, part._whole = self.psfs, self._whole
        part._place(self.border, window)
        return part

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The grid spread over the picture."""
        height, width = self._frame.y_shape(shape)
        return VaryingBlur(self.psfs, (height, width), self.border), shape

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "varying blur",
            "border": self.border,
            "shape": list(self._shape),
            "psfs": fingerprint(self.psfs),
        }


@dataclass(frozen=True)
class Axis:
    """Along one axis of y: the grid's points that are felt, where their boxes are, and how much they count there.

    own: the boxes in y. seen: the pixels of x, continued at the border, that these are blurred from. size: of a box.
    weights: (points, size).
    """

    points: list[int]
    own: list[slice]
    seen: list[slice]
    size: int
    weights: Tensor

    @classmethod
    def of(cls, count: int, whole: int, window: slice, taps: int) -> Axis:
        """count: of points, spread over `whole` pixels of which y is a window. taps: of the PSFs."""
        length = window.stop - window.start
        place = (torch.arange(window.start, window.stop, dtype=torch.float64) + 0.5) / whole * count - 0.5
        away = place.clamp(0, count - 1) - torch.arange(count, dtype=torch.float64)[:, None]
        weights = (1 - away.abs()).clamp(min=0)  # columns sum to one
        felt = [(n, weights[n].nonzero().flatten().tolist()) for n in range(count)]
        felt = [(n, places) for n, places in felt if places]
        size = max(places[-1] - places[0] + 1 for _, places in felt)
        own = [slice(start, start + size) for start in (min(places[0], length - size) for _, places in felt)]
        seen = [slice(box.start, box.stop + taps - 1) for box in own]
        boxed = torch.stack([weights[n, box] for (n, _), box in zip(felt, own)])
        return cls([n for n, _ in felt], own, seen, size, boxed)
