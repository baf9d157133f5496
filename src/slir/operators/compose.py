"""B = B₂B₁."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from slir.operators.base import Operator, Shape


class Compose(Operator):
    """y = outer(inner(x)): `Compose(Mask(missing), Blur(psf))` blurs first, then loses pixels."""

    def __init__(self, outer: Operator, inner: Operator):
        self.outer, self.inner = outer, inner
        self.scale = inner.scale * outer.scale
        self.reach = inner.reach + inner.scale * outer.reach
        self.shareable = inner.shareable and outer.shareable

    def y_shape(self, x_shape: Shape) -> Shape:
        return self.outer.y_shape(self.inner.y_shape(x_shape))

    def x_shape(self, y_shape: Shape) -> Shape:
        return self.inner.x_shape(self.outer.x_shape(y_shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.outer.forward(self.inner.forward(x))

    def adjoint(self, y: Tensor) -> Tensor:
        return self.inner.adjoint(self.outer.adjoint(y))

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        return self.outer.residual(y, self.inner.forward(x))

    @property
    def observed_fraction(self) -> float:
        return self.outer.observed_fraction

    def guess(self, y: Tensor) -> Tensor:
        return self.inner.guess(self.outer.guess(y))

    def shown(self, y_shape: Shape) -> tuple[int, int, int, int]:
        row, col, _, _ = self.inner.shown(self.outer.x_shape(y_shape))
        top, left, height, width = (self.inner.scale * n for n in self.outer.shown(y_shape))
        return row + top, col + left, height, width

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """Where the inner operator is the same everywhere."""
        outer, inner = self.outer.part(rows, cols), self.inner.part(rows, cols)
        return Compose(outer, inner) if outer is not None and inner is self.inner else None

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        inner, shape = self.inner.for_training(shape)
        middle = inner.y_shape(shape)
        outer, wanted = self.outer.for_training(middle)
        if wanted != middle:  # the outer operator crops, so the inner one must
            scale = inner.scale
            smaller = (shape[0] - scale * (middle[0] - wanted[0]), shape[1] - scale * (middle[1] - wanted[1]))
            inner, shape = self.inner.for_training(smaller)
            outer, _ = self.outer.for_training(inner.y_shape(shape))
        return Compose(outer, inner), shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "compose", "outer": self.outer.describe(), "inner": self.inner.describe()}
