"""B = I: denoising."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from slir.operators.base import Operator, Shape


class Identity(Operator):
    """y = x + ε."""

    reach = 0
    shareable = True
    task = calibration = "denoise"
    is_identity = keeps_constants = True

    observes_pixels = True

    def y_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        return y_shape

    def forward(self, x: Tensor) -> Tensor:
        return x

    def adjoint(self, y: Tensor) -> Tensor:
        return y

    def guess(self, y: Tensor) -> Tensor:
        return y

    def normal_diagonal(self, weights: Tensor) -> Tensor:
        return weights

    def power(self, shape: Shape, like: Tensor) -> Tensor:
        return like.new_ones(1, 1)

    def part(self, rows: slice, cols: slice) -> Operator | None:
        return self

    def describe(self) -> dict[str, Any]:
        return {"kind": "identity"}
