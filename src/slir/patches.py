"""R_p, which takes patch p out of an image, and its exact adjoint, which puts it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch.nn.functional as F
from torch import Tensor

from slir.compute import chunks
from slir.errors import InputError


def window_margin(window: int, size: int) -> int:
    """By how many pixels a window with the patch's centre begins before the patch; negative inside a larger patch."""
    return (window - size) // 2 if window >= size else -((size - window) // 2)


@dataclass(frozen=True)
class PatchGrid:
    """The set P of overlapping square patches of an image.

    Patches start at every `stride`-th row and column, and one more starts flush with the far border where the stride
    would leave pixels uncovered, so every pixel lies in at least one patch (for stride ≤ size).

    shape: of the image, (H, W). size: side of a patch, so k = size². P = rows × columns of starts.
    """

    shape: tuple[int, int]
    size: int
    stride: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or self.size > min(self.shape):
            rule = f"lie between 1 and the image's smaller side, {min(self.shape)}"
            raise InputError("patch size", rule, self.size, "Pass a larger image or smaller patches.")
        if not 1 <= self.stride <= self.size:
            rule = f"lie between 1 and the patch size, {self.size}"
            raise InputError("stride", rule, self.stride, "A larger one leaves pixels uncovered.")

    @cached_property
    def starts(self) -> tuple[list[int], list[int]]:
        """First rows and first columns of the patches."""
        axes = []
        for length in self.shape:
            last = length - self.size
            axes.append(sorted({*range(0, last + 1, self.stride), last}))
        return axes[0], axes[1]

    def __len__(self) -> int:
        return len(self.starts[0]) * len(self.starts[1])

    def _slices(self, offset: int, axis: int, first: int = 0, last: int | None = None) -> list[tuple[slice, slice]]:
        """Pixels at `offset` within each patch along an axis, as slices: (of the image, of the starts).

        The starts are evenly spaced but for the last one, so two slices always do. first, last: of the starts that are
        wanted; the second slices count from the first of these.
        """
        starts = self.starts[axis]
        last = len(starts) if last is None else last
        even = min(last, len(starts) if (starts[-1] % self.stride == 0) else len(starts) - 1)
        parts = []
        if first < even:
            pixels = slice(starts[first] + offset, starts[even - 1] + offset + 1, self.stride)
            parts.append((pixels, slice(0, even - first)))
        if even < last:
            parts.append((slice(starts[-1] + offset, starts[-1] + offset + 1), slice(even - first, even - first + 1)))
        return parts

    def bands(self, patches: int) -> Iterator[slice]:
        """The rows of starts, in slices of so many that each holds about this number of patches."""
        return chunks(len(self.starts[0]), max(1, patches // len(self.starts[1])))

    def extract(
        self, image: Tensor, window: int | None = None, *, rows: slice = slice(None), out: Tensor | None = None
    ) -> Tensor:
        """All patches x_p, row by row: (H, W) -> (P, k).

        With `window`, the squares of that side around the patches instead, (P, window²), which see the image mirrored
        beyond its border. rows: those of one of `bands` alone. out: where to put them; its rows need not touch.
        """
        window = self.size if window is None else window
        before = window_margin(window, self.size)
        after = window - self.size - before
        if window > self.size:
            if after >= min(self.shape):
                rule = f"reach less than an image's side, {min(self.shape)}, beyond a patch"
                raise InputError("window", rule, window, "Pass a larger image or a smaller window.")
            image = F.pad(image[None, None], (before, after, before, after), mode="reflect")[0, 0]
        elif window < self.size:
            image = image[-before : self.shape[0] + after, -before : self.shape[1] + after]
        windows = image.unfold(0, window, 1).unfold(1, window, 1)  # a view, (H', W', window, window)
        first, last, _ = rows.indices(len(self.starts[0]))
        tall, wide = last - first, len(self.starts[1])
        out = image.new_empty(tall * wide, window**2) if out is None else out
        blocks = out.view(tall, wide, window, window)
        for from_row, to_row in self._slices(0, 0, first, last):
            for from_col, to_col in self._slices(0, 1):
                blocks[to_row, to_col] = windows[from_row, from_col]
        return out

    def assemble(self, patches: Tensor, *, rows: slice = slice(None), into: Tensor | None = None) -> Tensor:
        """Σ_p R_pᵀ z_p, the adjoint of `extract`: (P, k) or (P, 1) for constant patches -> (H, W).

        rows: the patches are those of one of `bands`. into: an image to add to.
        """
        first, last, _ = rows.indices(len(self.starts[0]))
        blocks = patches.reshape(last - first, len(self.starts[1]), -1)
        if blocks.shape[-1] == 1:
            blocks = blocks.expand(-1, -1, self.size**2)
        image = patches.new_zeros(self.shape) if into is None else into
        if image.device.type != "cpu":
            return self._fold(blocks, image, first, last)
        for i in range(self.size):
            down = self._slices(i, 0, first, last)
            for j in range(self.size):
                values = blocks[:, :, i * self.size + j]
                for to_row, from_row in down:
                    for to_col, from_col in self._slices(j, 1):
                        image[to_row, to_col] += values[from_row, from_col]
        return image

    def _fold(self, blocks: Tensor, image: Tensor, first: int, last: int) -> Tensor:
        """The same with few launches, which is what counts on a GPU."""
        for rows, down in self._slices(0, 0, first, last):
            for cols, across in self._slices(0, 1):
                own = blocks[down, across]
                height, width = ((count - 1) * self.stride + self.size for count in own.shape[:2])
                whole = F.fold(own.flatten(0, 1).T[None], (height, width), self.size, stride=self.stride)[0, 0]
                image[rows.start : rows.start + height, cols.start : cols.start + width] += whole
        return image

    def counts(self, like: Tensor) -> Tensor:
        """Σ_p R_pᵀR_p, which is diagonal: in how many patches each pixel lies, (H, W)."""
        return self.assemble(like.new_ones(len(self), 1))
