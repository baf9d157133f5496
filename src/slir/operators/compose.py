"""B = B₂B₁."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape


class Compose(Operator):
    """y = outer(inner(x)): `Mask(missing) @ Blur(psf)` blurs first, then loses pixels.

    An operator that acts on one plane acts on each of the planes that the other one takes together.
    """

    def __init__(self, outer: Operator, inner: Operator):
        self.outer, self.inner = outer, inner
        self.scale = inner.scale * outer.scale
        self.reach = inner.reach + inner.scale * outer.reach
        self.shareable = inner.shareable and outer.shareable
        made, taken = inner.y_planes, outer.x_planes
        shared = min(len(made), len(taken))
        if shared and made[-shared:] != taken[-shared:]:
            rule = f"take the planes that the operator before it makes, {made}"
            raise InputError("operator", rule, taken, "Check the order: A @ B applies B first.")
        self.x_planes = taken[: len(taken) - shared] + inner.x_planes
        self.y_planes = made[: len(made) - shared] + outer.y_planes

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
    def observes_pixels(self) -> bool:
        return self.outer.observes_pixels and self.inner.observes_pixels

    @property
    def observed_fraction(self) -> float:
        return self.outer.observed_fraction

    def normal_diagonal(self, weights: Tensor) -> Tensor | None:
        between = self.outer.normal_diagonal(weights)
        return None if between is None else self.inner.normal_diagonal(between)

    def power(self, shape: Shape, like: Tensor) -> Tensor | None:
        """The product, exact for two blurs. What varies over the image counts by its mean."""
        inner, outer = self.inner.power(shape, like), self.outer.power(shape, like)
        return None if inner is None or outer is None or self.inner.scale > 1 else inner * outer

    def guess(self, y: Tensor) -> Tensor:
        return self.inner.guess(self.outer.guess(y))

    def margins(self) -> tuple[int, int, int, int]:
        top, bottom, left, right = (
            own + self.inner.scale * further for own, further in zip(self.inner.margins(), self.outer.margins())
        )
        return top, bottom, left, right

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """The outer operator for these pixels of y, the inner one for those between them that it looks at."""
        outer, scale = self.outer.part(rows, cols), self.outer.scale
        top, bottom, left, right = self.outer.margins()
        between = (
            slice(scale * rows.start, scale * rows.stop + top + bottom),
            slice(scale * cols.start, scale * cols.stop + left + right),
        )
        inner = self.inner.part(*between)
        return None if outer is None or inner is None else Compose(outer, inner)

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
