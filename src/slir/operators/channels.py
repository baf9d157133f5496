"""B = an operator of its own for each channel: colours that a lens blurs by different PSFs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape


class PerChannel(Operator):
    """y = (B₁x₁, B₂x₂, …): (..., n, H, W) -> (..., n, h, w), one operator a channel.

    operators: on single planes, between images of the same shapes. Pad PSFs with zeros to one size.
    """

    def __init__(self, operators: Sequence[Operator]):
        if not operators or not all(isinstance(own, Operator) for own in operators):
            raise InputError("operators", "be a list of operators", repr(operators), "Pass one for each channel.")
        self.operators = tuple(operators)
        first = self.operators[0]
        for own in self.operators:
            kinds = [(one.x_planes, one.y_planes, one.scale, one.margins()) for one in (own, first)]
            if kinds[0] != kinds[1] or own.x_planes or own.y_planes:
                rule = "act on single planes, and reach equally far beyond the image"
                raise InputError("operators", rule, kinds[0], "Pad PSFs with zeros to one size.")
        self.x_planes = self.y_planes = (len(self.operators),)
        self.scale = first.scale
        self.reach = max(own.reach for own in self.operators)
        self.recordable = all(own.recordable for own in self.operators)
        self.shareable = all(own.shareable for own in self.operators)

    def y_shape(self, x_shape: Shape) -> Shape:
        return self._one({own.y_shape(x_shape) for own in self.operators})

    def x_shape(self, y_shape: Shape) -> Shape:
        return self._one({own.x_shape(y_shape) for own in self.operators})

    @staticmethod
    def _one(shapes: set[Shape]) -> Shape:
        if len(shapes) > 1:
            raise InputError("operators", "give images of one shape", sorted(shapes), "Crop the channels to one size.")
        return shapes.pop()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([own.forward(plane) for own, plane in zip(self.operators, x.unbind(-3))], -3)

    def adjoint(self, y: Tensor) -> Tensor:
        return torch.stack([own.adjoint(plane) for own, plane in zip(self.operators, y.unbind(-3))], -3)

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        parts = zip(self.operators, y.unbind(-3), x.unbind(-3))
        return torch.stack([own.residual(seen, plane) for own, seen, plane in parts], -3)

    @property
    def observes_pixels(self) -> bool:
        return all(own.observes_pixels for own in self.operators)

    @property
    def observed_fraction(self) -> float:
        return sum(own.observed_fraction for own in self.operators) / len(self.operators)

    def normal_diagonal(self, weights: Tensor) -> Tensor | None:
        parts = [own.normal_diagonal(plane) for own, plane in zip(self.operators, weights.unbind(-3))]
        known = [part for part in parts if part is not None]
        return torch.stack(known, -3) if len(known) == len(parts) else None

    def power(self, shape: Shape, like: Tensor) -> Tensor | None:
        powers = [own.power(shape, like) for own in self.operators]
        known = [power.expand(shape[0], shape[1] // 2 + 1) for power in powers if power is not None]
        return torch.stack(known) if len(known) == len(powers) else None

    def constants(self) -> list[Tensor]:
        return [kept for own in self.operators for kept in own.constants()]

    def guess(self, y: Tensor) -> Tensor:
        return torch.stack([own.guess(plane) for own, plane in zip(self.operators, y.unbind(-3))], -3)

    def margins(self) -> tuple[int, int, int, int]:
        return self.operators[0].margins()

    def part(self, rows: slice, cols: slice) -> Operator | None:
        known = [part for own in self.operators if (part := own.part(rows, cols)) is not None]
        return PerChannel(known) if len(known) == len(self.operators) else None

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        for own in self.operators:
            shape = own.for_training(shape)[1]
        return PerChannel([own.for_training(shape)[0] for own in self.operators]), shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "per channel", "operators": [own.describe() for own in self.operators]}
