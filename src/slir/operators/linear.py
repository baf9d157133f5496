"""B given as a SciPy `LinearOperator`, or as anything that SciPy turns into one (matrices, PyLops operators)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from slir.errors import InputError
from slir.operators.base import Operator, Shape


class Linear(Operator):
    """y = Ax with A of shape (h·w, H·W) acting on flattened images; it runs on the CPU, in A's precision.

    reach: how far A is felt, if it is local; None says that it may be felt everywhere.
    """

    def __init__(self, matrix: LinearOperator | Any, x_shape: Shape, y_shape: Shape, *, reach: int | None = None):
        try:
            self.matrix = aslinearoperator(matrix)
        except (TypeError, ValueError) as error:
            remedy = "Pass a matrix, a sparse matrix or a LinearOperator."
            raise InputError(
                "matrix", "be something that SciPy takes as a linear operator", repr(matrix), remedy
            ) from error
        self._x_shape, self._y_shape = (int(x_shape[0]), int(x_shape[1])), (int(y_shape[0]), int(y_shape[1]))
        expected = (self._y_shape[0] * self._y_shape[1], self._x_shape[0] * self._x_shape[1])
        if self.matrix.shape != expected:
            rule = f"have shape {expected} for images of shapes {self._x_shape} and {self._y_shape}"
            raise InputError("matrix", rule, self.matrix.shape, "Check x_shape and y_shape.")
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
        return self._apply(self.matrix.matmat, x, self._y_shape)

    def adjoint(self, y: Tensor) -> Tensor:
        self.x_shape((y.shape[-2], y.shape[-1]))
        return self._apply(self.matrix.rmatmat, y, self._x_shape)

    @staticmethod
    def _apply(function: Any, image: Tensor, shape: Shape) -> Tensor:
        columns = image.detach().cpu().numpy().reshape(-1, image.shape[-2] * image.shape[-1]).T
        result = torch.from_numpy(np.ascontiguousarray(np.asarray(function(columns)).T)).to(image)
        return result.reshape(*image.shape[:-2], *shape)

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The operator fits one size alone, so pictures are cropped to it."""
        if shape[0] < self._x_shape[0] or shape[1] < self._x_shape[1]:
            rule = f"have at least the operator's shape {self._x_shape}"
            raise InputError("images", rule, tuple(shape), "Learn from larger pictures.")
        return self, self._x_shape

    def describe(self) -> dict[str, Any]:
        return {"kind": "linear", "x_shape": list(self._x_shape), "y_shape": list(self._y_shape)}
