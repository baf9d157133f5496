"""A filter along the rows' axis of which every f-th value is kept: what a separable anti-aliasing kernel is made of.

On a CPU this takes a third of the time of FFTs, which filter at every pixel and leave out most of them afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RANK_ONE = 1e-6
"""Largest second singular value of a kernel that counts as separable, as a share of the first."""


@dataclass(frozen=True)
class Line:
    """y[i] = Σₖ taps[k] x[f·i + phase + c − k], c = (K−1)//2, with x mirrored or continued periodically.

    factor: f, which divides the number of x's rows. No more taps than there are rows.
    """

    taps: tuple[float, ...]
    factor: int
    phase: int
    circular: bool

    def forward(self, x: Tensor) -> Tensor:
        """(..., H, W) -> (..., H/f, W)."""
        height = x.shape[-2]
        before, after = self._beyond()
        rows = torch.cat([x[..., before, :], x, x[..., after, :]], -2) if len(before) + len(after) else x
        out = x.new_zeros(*x.shape[:-2], height // self.factor, x.shape[-1])
        for start, value in self._starts(len(before)):
            out.add_(rows[..., start : start + height : self.factor, :], alpha=value)
        return out

    def adjoint(self, y: Tensor) -> Tensor:
        """(..., h, W) -> (..., fh, W)."""
        height = y.shape[-2] * self.factor
        before, after = self._beyond()
        rows = y.new_zeros(*y.shape[:-2], len(before) + height + len(after), y.shape[-1])
        for start, value in self._starts(len(before)):
            rows[..., start : start + height : self.factor, :].add_(y, alpha=value)
        top, x, bottom = rows.split([len(before), height, len(after)], -2)
        for number, row in enumerate(before):
            x[..., row, :] += top[..., number, :]
        for number, row in enumerate(after):
            x[..., row, :] += bottom[..., number, :]
        return x

    def _starts(self, before: int) -> list[tuple[int, float]]:
        """Where in x with its continuation each tap begins to look, and its value."""
        first = before + self.phase + (len(self.taps) - 1) // 2
        return [(first - k, value) for k, value in enumerate(self.taps) if value]

    def _beyond(self) -> tuple[list[int], list[int]]:
        """The rows of x that continue it before its first and after its last, counted from either end."""
        centre, last = (len(self.taps) - 1) // 2, self.factor - 1 - self.phase
        before = range(-max(len(self.taps) - 1 - centre - self.phase, 0), 0)
        after = range(max(centre - last, 0))
        if self.circular:
            return list(before), list(after)
        return [-1 - i for i in before], [-1 - i for i in after]


def lines_of(kernel: Tensor, factor: int, phase: int, *, circular: bool) -> tuple[Line, Line] | None:
    """One along rows and one along columns that do the same as the kernel; None where it is not separable."""
    left, sizes, right = torch.linalg.svd(kernel.double())
    if len(sizes) > 1 and sizes[1] > RANK_ONE * sizes[0]:
        return None
    down, across = (line * sizes[0].sqrt() for line in (left[:, 0], right[0]))
    return Line(tuple(down.tolist()), factor, phase, circular), Line(tuple(across.tolist()), factor, phase, circular)
