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

    def part(self, rows: slice, cols: slice) -> Operator | None:
        return self

    def describe(self) -> dict[str, Any]:
        return {"kind": "identity"}
