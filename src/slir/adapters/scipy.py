"""slir's operators as SciPy's and PyLops' linear operators, and theirs as slir's.

    operator = from_scipy(A, x_shape, y_shape)      # a matrix, a sparse one, a LinearOperator
    operator = from_scipy(A)                        # a PyLops operator, which knows its shapes
    A = to_scipy(operator, x_shape)                 # for scipy.sparse.linalg
    A = to_pylops(operator, x_shape)                # for PyLops' solvers and compositions

Theirs act on flattened images, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from slir.errors import InputError, SlirError
from slir.operators import Linear, Operator
from slir.operators.base import Shape

if TYPE_CHECKING:
    import pylops


def from_scipy(
    matrix: Any, x_shape: Shape | None = None, y_shape: Shape | None = None, *, reach: int | None = None
) -> Linear:
    """A real linear map on flattened images as an operator; it runs on the CPU.

    matrix: whatever SciPy takes for a linear operator: an array, a sparse matrix, a LinearOperator, a PyLops operator.
    x_shape, y_shape: of the images; PyLops operators on two axes know them. What is measured need not be an image: any
        (h, w) with h·w values will do.
    reach: how many pixels of x far A is felt, if it is local.

    >>> operator = from_scipy(pylops.signalprocessing.Convolve2D((64, 64), psf, offset=(3, 3)))
    >>> restored = slir.restore(y, operator, sigma=0.01, data_range=1.0)
    """
    if np.issubdtype(getattr(matrix, "dtype", None) or np.float64, np.complexfloating):
        remedy = (
            "Measure real and imaginary parts one below the other: with PyLops, VStack of op.toreal() and op.toimag()."
        )
        raise InputError("matrix", "be real", f"of dtype {matrix.dtype}", remedy)
    return Linear(matrix, _axes(matrix, "dims", x_shape), _axes(matrix, "dimsd", y_shape), reach=reach)


def _axes(matrix: Any, name: str, given: Shape | None) -> Shape:
    """The shape that was given, or the one that a PyLops operator knows; measurements are brought to two axes."""
    if given is not None:
        return given
    known = tuple(getattr(matrix, name, ()))
    argument = "x_shape" if name == "dims" else "y_shape"
    if len(known) == 2:
        return known
    if known and name == "dimsd":
        return prod(known[:-1]), known[-1]
    raise InputError(argument, "be given for an operator that knows no image's height and width", None, "Pass (h, w).")


def to_scipy(operator: Operator, x_shape: Shape, *, dtype: DTypeLike = np.float64) -> LinearOperator:
    """B on images of this shape as a SciPy LinearOperator of shape (h·w, H·W).

    >>> A = to_scipy(slir.operators.Blur(psf), (64, 64))
    >>> x = scipy.sparse.linalg.lsqr(A, y.ravel(), damp=0.1)[0].reshape(64, 64)
    """
    y_shape = operator.y_shape(x_shape)
    forward, adjoint = _columns(operator.forward, x_shape, dtype), _columns(operator.adjoint, y_shape, dtype)
    shape = (prod(y_shape), prod(x_shape))
    return LinearOperator(shape, matvec=forward, rmatvec=adjoint, matmat=forward, rmatmat=adjoint, dtype=dtype)


def to_pylops(operator: Operator, x_shape: Shape, *, dtype: DTypeLike = np.float64) -> pylops.LinearOperator:
    """B on images of this shape as a PyLops operator, which knows the shapes: A @ x for x of shape (H, W) is (h, w).

    >>> A = pylops.VStack([to_pylops(slir.operators.Blur(psf), (64, 64)), 0.1 * pylops.Laplacian((64, 64))])
    """
    try:
        import pylops
    except ModuleNotFoundError as error:
        raise SlirError("to_pylops needs PyLops. Run pip install 'slir[pylops]'.") from error
    matrix = to_scipy(operator, x_shape, dtype=dtype)
    return pylops.LinearOperator(matrix, dims=x_shape, dimsd=operator.y_shape(x_shape))


def _columns(
    function: Callable[[Tensor], Tensor], shape: Shape, dtype: DTypeLike
) -> Callable[[np.ndarray], np.ndarray]:
    """A map on images as one on flattened images: one of them, (n,), or some side by side, (n, k)."""

    def apply(columns: np.ndarray) -> np.ndarray:
        # A copy: SciPy's solvers go on with their vectors, and an identity would hand them back.
        images = torch.from_numpy(np.array(columns.T, dtype=dtype, order="C")).reshape(*columns.shape[1:], *shape)
        return function(images).flatten(-2).numpy().T

    return apply


__all__ = ["from_scipy", "to_scipy", "to_pylops"]
