"""Operators made of others: sums, multiples and transposes."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape


class Sum(Operator):
    """y = first(x) + second(x), for operators between images of the same shapes."""

    def __init__(self, first: Operator, second: Operator):
        for name in ("x_planes", "y_planes", "scale"):
            if getattr(first, name) != getattr(second, name):
                rule = f"have the {name} of the operator that it is added to, {getattr(first, name)}"
                raise InputError("operator", rule, getattr(second, name), "Add operators between the same images.")
        if first.margins() != second.margins():
            rule = f"reach as far beyond the image as the operator that it is added to, {first.margins()}"
            raise InputError("operator", rule, second.margins(), "Pad the PSFs to one size with zeros.")
        self.first, self.second = first, second
        self.x_planes, self.y_planes, self.scale = first.x_planes, first.y_planes, first.scale
        self.reach = max(first.reach, second.reach)
        self.shareable = first.shareable and second.shareable

    def y_shape(self, x_shape: Shape) -> Shape:
        return self._same(self.first.y_shape(x_shape), self.second.y_shape(x_shape))

    def x_shape(self, y_shape: Shape) -> Shape:
        return self._same(self.first.x_shape(y_shape), self.second.x_shape(y_shape))

    @staticmethod
    def _same(one: Shape, other: Shape) -> Shape:
        if tuple(one) != tuple(other):
            raise InputError("operator", "give images of one shape", f"{one} and {other}", "Check both operators.")
        return one

    def forward(self, x: Tensor) -> Tensor:
        return self.first.forward(x) + self.second.forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.first.adjoint(y) + self.second.adjoint(y)

    def margins(self) -> tuple[int, int, int, int]:
        return self.first.margins()

    def part(self, rows: slice, cols: slice) -> Operator | None:
        first, second = self.first.part(rows, cols), self.second.part(rows, cols)
        return None if first is None or second is None else Sum(first, second)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        first, smaller = self.first.for_training(shape)
        second, wanted = self.second.for_training(smaller)
        if wanted != smaller:
            first, _ = self.first.for_training(wanted)
        return Sum(first, second), wanted

    def describe(self) -> dict[str, Any]:
        return {"kind": "sum", "first": self.first.describe(), "second": self.second.describe()}


class Scaled(Operator):
    """y = factor · B(x)."""

    def __init__(self, operator: Operator, factor: float):
        if not (math.isfinite(factor) and factor != 0):
            raise InputError("factor", "be finite and not zero", factor, "An operator that is zero shows nothing.")
        self.operator, self.factor = operator, float(factor)
        self.x_planes, self.y_planes, self.scale = operator.x_planes, operator.y_planes, operator.scale
        self.reach, self.recordable, self.shareable = operator.reach, operator.recordable, operator.shareable

    def y_shape(self, x_shape: Shape) -> Shape:
        return self.operator.y_shape(x_shape)

    def x_shape(self, y_shape: Shape) -> Shape:
        return self.operator.x_shape(y_shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.operator.forward(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.factor * self.operator.adjoint(y)

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        return self.operator.residual(y, self.factor * x)

    @property
    def observes_pixels(self) -> bool:
        return self.operator.observes_pixels

    @property
    def observed_fraction(self) -> float:
        return self.operator.observed_fraction

    def normal_diagonal(self, weights: Tensor) -> Tensor | None:
        return self.operator.normal_diagonal(self.factor**2 * weights)

    def power(self, shape: Shape, like: Tensor) -> Tensor | None:
        own = self.operator.power(shape, like)
        return None if own is None else self.factor**2 * own

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Any:
        return self.operator.preconditioner(like, self.factor**2 * weight, ridge, smooth)

    def constants(self) -> list[Tensor]:
        return self.operator.constants()

    def guess(self, y: Tensor) -> Tensor:
        return self.operator.guess(y / self.factor)

    def margins(self) -> tuple[int, int, int, int]:
        return self.operator.margins()

    def part(self, rows: slice, cols: slice) -> Operator | None:
        own = self.operator.part(rows, cols)
        return None if own is None else Scaled(own, self.factor)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        own, shape = self.operator.for_training(shape)
        return Scaled(own, self.factor), shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "scaled", "factor": self.factor, "operator": self.operator.describe()}


class Transposed(Operator):
    """y = Bᵀx."""

    def __init__(self, operator: Operator):
        self.operator = operator
        self.x_planes, self.y_planes = operator.y_planes, operator.x_planes
        self.reach, self.recordable, self.shareable = operator.reach, operator.recordable, operator.shareable

    def y_shape(self, x_shape: Shape) -> Shape:
        return self.operator.x_shape(x_shape)

    def x_shape(self, y_shape: Shape) -> Shape:
        return self.operator.y_shape(y_shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.operator.adjoint(x)

    def adjoint(self, y: Tensor) -> Tensor:
        return self.operator.forward(y)

    def constants(self) -> list[Tensor]:
        return self.operator.constants()

    @property
    def T(self) -> Operator:
        return self.operator

    def describe(self) -> dict[str, Any]:
        return {"kind": "transposed", "operator": self.operator.describe()}
