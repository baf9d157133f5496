"""B = several operators on one x: views of one scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape

Margins = tuple[int, int, int, int]


class Stack(Operator):
    """y = (B₁x, B₂x, …): (..., H, W) -> (..., n, h, w), pictures of one scene that give one answer.

    operators: Bᵢ, whose images y have one shape. Where some reach beyond their image (blurs with unknown borders), x
    reaches as far as the farthest. Noise of strength sᵢ in picture i: pass sigma as an array of shape (n, 1, 1).
    """

    def __init__(self, operators: Sequence[Operator]):
        if not operators or not all(isinstance(own, Operator) for own in operators):
            raise InputError("operators", "be a list of operators", repr(operators), "Pass [Blur(a), Blur(b)].")
        self.operators = tuple(operators)
        for name in ("x_planes", "y_planes", "scale"):
            values = {getattr(own, name) for own in self.operators}
            if len(values) > 1:
                raise InputError("operators", f"have one {name}", sorted(values), "Stack operators on the same images.")
        first = self.operators[0]
        self.x_planes, self.y_planes, self.scale = first.x_planes, (len(self.operators), *first.y_planes), first.scale
        self.reach = max(own.reach for own in self.operators)
        self.recordable = all(own.recordable for own in self.operators)
        self.shareable = all(own.shareable for own in self.operators)
        self._axis = -3 - len(first.y_planes)
        tops, bottoms, lefts, rights = zip(*(own.margins() for own in self.operators))
        self._margins: Margins = (max(tops), max(bottoms), max(lefts), max(rights))

    def _spare(self) -> list[Margins]:
        """By how much x reaches farther than what each operator sees: top, bottom, left, right."""
        spare = []
        for own in self.operators:
            top, bottom, left, right = (whole - part for whole, part in zip(self._margins, own.margins()))
            spare.append((top, bottom, left, right))
        return spare

    def margins(self) -> Margins:
        return self._margins

    def y_shape(self, x_shape: Shape) -> Shape:
        shapes = {
            own.y_shape((x_shape[0] - top - bottom, x_shape[1] - left - right))
            for own, (top, bottom, left, right) in zip(self.operators, self._spare())
        }
        return self._one(shapes)

    def x_shape(self, y_shape: Shape) -> Shape:
        shapes = set()
        for own, (top, bottom, left, right) in zip(self.operators, self._spare()):
            height, width = own.x_shape(y_shape)
            shapes.add((height + top + bottom, width + left + right))
        return self._one(shapes)

    @staticmethod
    def _one(shapes: set[Shape]) -> Shape:
        if len(shapes) > 1:
            raise InputError("operators", "give images of one shape", sorted(shapes), "Crop the pictures to one size.")
        return shapes.pop()

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        seen = [
            own.forward(x[..., top : height - bottom, left : width - right])
            for own, (top, bottom, left, right) in zip(self.operators, self._spare())
        ]
        return torch.stack(seen, self._axis)

    def adjoint(self, y: Tensor) -> Tensor:
        parts = zip(self.operators, y.unbind(self._axis), self._spare())
        return sum((_padded(own.adjoint(view), spare) for own, view, spare in parts), start=y.new_zeros(()))

    def normal(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        total = torch.zeros_like(x)
        for own, (top, bottom, left, right) in zip(self.operators, self._spare()):
            inner = (..., slice(top, height - bottom), slice(left, width - right))
            total[inner] += own.normal(x[inner])
        return total

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        left_over = [
            own.residual(view, x[..., top : height - bottom, left : width - right])
            for own, view, (top, bottom, left, right) in zip(self.operators, y.unbind(self._axis), self._spare())
        ]
        return torch.stack(left_over, self._axis)

    @property
    def observes_pixels(self) -> bool:
        return all(own.observes_pixels for own in self.operators)

    @property
    def observed_fraction(self) -> float:
        return sum(own.observed_fraction for own in self.operators) / len(self.operators)

    def normal_diagonal(self, weights: Tensor) -> Tensor | None:
        views = weights.unbind(self._axis)
        parts = [own.normal_diagonal(view) for own, view in zip(self.operators, views)]
        known = [_padded(part, spare) for part, spare in zip(parts, self._spare()) if part is not None]
        return torch.stack(known).sum(0) if len(known) == len(parts) else None

    def power(self, shape: Shape, like: Tensor) -> Tensor | None:
        powers = [own.power(shape, like) for own in self.operators]
        known = [power for power in powers if power is not None]
        return sum(known[1:], start=known[0]) if len(known) == len(powers) else None

    def constants(self) -> list[Tensor]:
        return [kept for own in self.operators for kept in own.constants()]

    def part(self, rows: slice, cols: slice) -> Operator | None:
        parts = [own.part(rows, cols) for own in self.operators]
        known = [own for own in parts if own is not None]
        return Stack(known) if len(known) == len(parts) else None

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The smallest shape that an operator asks for."""
        for own, (top, bottom, left, right) in zip(self.operators, self._spare()):
            _, (height, width) = own.for_training((shape[0] - top - bottom, shape[1] - left - right))
            shape = (height + top + bottom, width + left + right)
        fitted = [
            own.for_training((shape[0] - top - bottom, shape[1] - left - right))[0]
            for own, (top, bottom, left, right) in zip(self.operators, self._spare())
        ]
        return Stack(fitted), shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "stack", "operators": [own.describe() for own in self.operators]}


def _padded(image: Tensor, margins: Margins) -> Tensor:
    """With zeros at the top, bottom, left and right."""
    top, bottom, left, right = margins
    return F.pad(image, (left, right, top, bottom)) if any(margins) else image
