"""B given as a SciPy `LinearOperator`, or as anything that SciPy turns into one (matrices, PyLops operators)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape


class Linear(Operator):
    """y = Ax with A acting on flattened images; it runs on the CPU, in A's precision.

    x_shape, y_shape: (H, W) and (h, w), or with the axes before them that A takes together: (3, H, W) for colours.
    reach: how far A is felt, if it is local; None says that it may be felt everywhere.
    """

    def __init__(
        self, matrix: LinearOperator | Any, x_shape: Sequence[int], y_shape: Sequence[int], *, reach: int | None = None
    ):
        try:
            self.matrix = aslinearoperator(matrix)
        except (TypeError, ValueError) as error:
            remedy = "Pass a matrix, a sparse matrix or a LinearOperator."
            raise InputError(
                "matrix", "be something that SciPy takes as a linear operator", repr(matrix), remedy
            ) from error
        x_size, y_size = tuple(map(int, x_shape)), tuple(map(int, y_shape))
        for name, own in (("x_shape", x_size), ("y_shape", y_size)):
            if len(own) < 2:
                raise InputError(name, "hold a height and a width", own, "Pass (1, n) for n numbers.")
        expected = (prod(y_size), prod(x_size))
        if self.matrix.shape != expected:
            rule = f"have shape {expected} for images of shapes {x_size} and {y_size}"
            raise InputError("matrix", rule, self.matrix.shape, "Check x_shape and y_shape.")
        self.x_planes, self._x_shape = x_size[:-2], (x_size[-2], x_size[-1])
        self.y_planes, self._y_shape = y_size[:-2], (y_size[-2], y_size[-1])
        self.reach = max(self._x_shape) if reach is None else reach

    def y_shape(self, x_shape: Shape) -> Shape:
        if tuple(x_shape) != self._x_shape:
            raise InputError("image", f"have the operator's shape {self._x_shape}", tuple(x_shape), "Crop or pad it.")
        return self._y_shape

    def x_shape(self, y_shape: Shape) -> Shape:
        if tuple(y_shape) != self._y_shape:
            raise InputError("image", f"have the operator's shape {self._y_shape}", tuple(y_shape), "Crop or pad it.")
        return self._x_shape

    def forward(self, x: Tensor) -> Tensor:
        self.y_shape((x.shape[-2], x.shape[-1]))
        return self._apply(self.matrix.matmat, x, (*self.x_planes, *self._x_shape), (*self.y_planes, *self._y_shape))

    def adjoint(self, y: Tensor) -> Tensor:
        self.x_shape((y.shape[-2], y.shape[-1]))
        return self._apply(self.matrix.rmatmat, y, (*self.y_planes, *self._y_shape), (*self.x_planes, *self._x_shape))

    @staticmethod
    def _apply(function: Any, image: Tensor, taken: tuple[int, ...], given: tuple[int, ...]) -> Tensor:
        columns = image.detach().cpu().numpy().reshape(-1, prod(taken)).T
        result = torch.from_numpy(np.ascontiguousarray(np.asarray(function(columns)).T)).to(image)
        return result.reshape(*image.shape[: image.ndim - len(taken)], *given)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The operator fits one size alone, so pictures are cropped to it."""
        if shape[0] < self._x_shape[0] or shape[1] < self._x_shape[1]:
            rule = f"have at least the operator's shape {self._x_shape}"
            raise InputError("images", rule, tuple(shape), "Learn from larger pictures.")
        return self, self._x_shape

    def describe(self) -> dict[str, Any]:
        x_size, y_size = [*self.x_planes, *self._x_shape], [*self.y_planes, *self._y_shape]
        return {"kind": "linear", "x_shape": x_size, "y_shape": y_size}
