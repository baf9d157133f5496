"""What an operator B must offer, and the check that its adjoint is its adjoint."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from slir.operators.convolution import Convolution

Shape = tuple[int, int]
Image = TypeVar("Image", Tensor, np.ndarray)


@dataclass(frozen=True)
class Preconditioner:
    """A cheap inverse, v -> apply(v, factors): what conjugate gradient is preconditioned with."""

    apply: Callable[[Tensor, Tensor], Tensor]
    factors: Tensor

    def __call__(self, v: Tensor) -> Tensor:
        return self.apply(v, self.factors)


class Operator(ABC):
    """A linear map B from images x of shape (..., H, W) to observations y of shape (..., h, w).

    Operators know nothing of an image's size until they meet one, so the same B degrades training pictures of any
    size and restores another. Each shape of x belongs to exactly one shape of y and the other way round.

    Operators are built from others: `A @ B` applies B first, `A + B` and `A - B` add, `2 * B` scales, `B.T` is the
    transpose, and `B(x)` applies B to a tensor or an array.
    """

    x_planes: tuple[int, ...] = ()
    """Axes of x before height and width that B takes together: (3,) where it mixes three colours, () where it acts on
    one plane. It treats all planes of the axes before these alike."""

    y_planes: tuple[int, ...] = ()
    """The same axes of y: () where B makes one plane of what it takes together, (n,) where it makes n."""

    reach: int
    """How far, in pixels of x, a pixel is felt: y at p depends on x within `reach` of p, per axis."""

    scale: int = 1
    """How many pixels of x a pixel of y stands for, along each axis."""

    task: str = "other"
    """The task that undoes it."""

    is_identity: bool = False
    """Whether B = I."""

    keeps_constants: bool = False
    """Whether an image of one value is seen as that value, wherever it is seen."""

    missing: Tensor | None = None
    """(h, w) bool, true where y shows nothing of x; None where it shows something everywhere."""

    psf: Tensor | None = None
    """What one bright pixel becomes, where it is the same for all."""

    spacing: tuple[float, ...] = (1.0, 1.0)
    """Distances of pixels along the axes of space: height and width, or depth too where B sees a volume."""

    recordable: bool = False
    """Whether, on a GPU, applying B or its inverse hint once more only launches the same work once more."""

    shareable: bool = False
    """Whether several threads may apply B at once. While a model is learnt, one that is not is applied by one alone."""

    @abstractmethod
    def y_shape(self, x_shape: Shape) -> Shape:
        """The shape of Bx for x of this shape. Raises InputError when B does not fit such an x."""

    @abstractmethod
    def x_shape(self, y_shape: Shape) -> Shape:
        """The shape of x that y of this shape comes from."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Bx: (..., H, W) -> (..., h, w)."""

    @abstractmethod
    def adjoint(self, y: Tensor) -> Tensor:
        """Bᵀy: (..., h, w) -> (..., H, W)."""

    def normal(self, x: Tensor) -> Tensor:
        """BᵀBx, which is what the x-update applies again and again."""
        return self.adjoint(self.forward(x))

    def residual(self, y: Tensor, x: Tensor) -> Tensor:
        """y − Bx, zero where y shows nothing: (h, w)."""
        return y - self.forward(x)

    def batch(self, y: Tensor) -> tuple[int, ...]:
        """The axes of y before those that B takes together: its images are treated one by one."""
        return tuple(y.shape[: y.ndim - 2 - len(self.y_planes)])

    @property
    def observes_pixels(self) -> bool:
        """Whether y shows each pixel of x by itself, all of them about as well: then noise alone is to be undone."""
        return False

    @property
    def observed_fraction(self) -> float:
        """The share of y's pixels that show something."""
        return 1.0

    def normal_diagonal(self, weights: Tensor) -> Tensor | None:
        """The diagonal of Bᵀ diag(weights) B where this matrix is diagonal for any weights; None where it is not.

        weights: one for each pixel of y, of y's shape (*y_planes, h, w).
        """
        return None

    def power(self, shape: Shape, like: Tensor) -> Tensor | None:
        """About the spectrum of BᵀB on images of this shape whose borders meet, as `rfft2` orders it. None where
        nothing cheap is known."""
        return None

    def preconditioner(self, like: Tensor, weight: float, ridge: float, smooth: float = 0.0) -> Preconditioner | None:
        """About (weight·BᵀB + ridge·I + smooth·∇ᵀ∇)⁻¹, symmetric and positive definite, on images like this one. None
        where nothing cheap is known."""
        from slir.operators.convolution import inverse_on_torus

        diagonal = self.diagonal_like(like) if smooth == 0 else None
        if diagonal is not None:
            return Preconditioner(torch.div, weight * diagonal + ridge)
        return inverse_on_torus(self.power, like, weight, ridge, smooth, spacing=self.spacing)

    @property
    def bordered(self) -> Convolution | None:
        """B where it is a convolution with an unknown border."""
        return None

    def diagonal_like(self, x: Tensor) -> Tensor | None:
        """BᵀB where it is diagonal, for images like x: its diagonal, (*x_planes, H, W)."""
        return self.normal_diagonal(x.new_ones(*self.y_planes, *self.y_shape((x.shape[-2], x.shape[-1]))))

    @property
    def shows_picture(self) -> bool:
        """Whether y looks like a picture, so that its noise can be told from it."""
        return self.keeps_constants and self.missing is None

    @property
    def calibration(self) -> str:
        """The name under which the errors of a learnt kernel are calibrated. Any linear map is undone as a blur is."""
        return "denoise" if self.observes_pixels else "deblur"

    def constants(self) -> list[Tensor]:
        """What a recording of B reads besides its input, and so has to keep."""
        return []

    def guess(self, y: Tensor) -> Tensor:
        """A cheap image x⁽⁰⁾ of x's shape to start from: y itself where x and y live on the same pixels.

        Here: a few steps of conjugate gradient on (BᵀB + εI)x = Bᵀy, which fits any linear map.
        """
        from slir.solvers.cg import cg

        size = max(float(self.normal(torch.ones_like(self.adjoint(y))).abs().max()), 1e-12)
        return cg(lambda x: self.normal(x) + 1e-3 * size * x, self.adjoint(y), max_steps=20, tol=1e-3).value

    def margins(self) -> tuple[int, int, int, int]:
        """Pixels of x beyond what y shows: top, bottom, left, right. None, but for a blur with unknown border."""
        return 0, 0, 0, 0

    def shown(self, y_shape: Shape) -> tuple[int, int, int, int]:
        """Which part of x y shows: first row, first column, height, width, in pixels of x."""
        (top, bottom, left, right), (height, width) = self.margins(), self.x_shape(y_shape)
        return top, left, height - top - bottom, width - left - right

    def crop(self, x: Tensor, y_shape: Shape) -> Tensor:
        """The part of x that y shows."""
        row, col, height, width = self.shown(y_shape)
        return x[..., row : row + height, col : col + width]

    def part(self, rows: slice, cols: slice) -> Operator | None:
        """B for these rows and columns of y alone, right but near their edges; None where it cannot be cut so."""
        return None

    def for_training(self, shape: Shape) -> tuple[Operator, Shape]:
        """The same degradation for a training picture of another shape, and the shape to crop that picture to."""
        return self, shape

    def describe(self) -> dict[str, Any]:
        """What was applied, as JSON, for a model's provenance. Arrays appear as their shape and hash."""
        return {"kind": type(self).__name__.lower()}

    def __call__(self, x: Image) -> Image:
        """Bx of a tensor, or of a NumPy array, which gives an array."""
        if isinstance(x, Tensor):
            return self.forward(x)
        floats = x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)
        return self.forward(torch.from_numpy(np.ascontiguousarray(floats))).numpy()

    __array_ufunc__ = None  # NumPy leaves A * B and A @ B to the operator

    def __matmul__(self, inner: Operator) -> Operator:
        from slir.operators.compose import Compose

        return Compose(self, inner) if isinstance(inner, Operator) else NotImplemented

    def __add__(self, other: Operator) -> Operator:
        from slir.operators.algebra import Sum

        return Sum(self, other) if isinstance(other, Operator) else NotImplemented

    def __mul__(self, factor: float) -> Operator:
        from slir.operators.algebra import Scaled

        return Scaled(self, factor) if isinstance(factor, int | float | np.number) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Operator:
        return self * (1 / divisor) if isinstance(divisor, int | float | np.number) else NotImplemented

    def __neg__(self) -> Operator:
        return -1.0 * self

    def __sub__(self, other: Operator) -> Operator:
        return self + -1.0 * other if isinstance(other, Operator) else NotImplemented

    @property
    def T(self) -> Operator:
        """Bᵀ as an operator."""
        from slir.operators.algebra import Transposed

        return Transposed(self)


def fingerprint(array: Tensor) -> dict[str, Any]:
    """An array's shape and SHA-256, for provenance."""
    data = array.detach().cpu().contiguous()
    return {"shape": list(data.shape), "sha256": hashlib.sha256(data.numpy().tobytes()).hexdigest()}


def adjoint_error(
    operator: Operator,
    x_shape: Shape,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> float:
    """|⟨Bx, y⟩ − ⟨x, Bᵀy⟩| / (‖Bx‖‖y‖ + ‖x‖‖Bᵀy‖) for random x and y; zero up to rounding for a right adjoint.

    Use it on an operator of your own before you restore with it.
    """
    generator = torch.Generator().manual_seed(seed)
    sizes = ((*operator.x_planes, *x_shape), (*operator.y_planes, *operator.y_shape(x_shape)))
    x, y = (torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype) for size in sizes)
    forward, adjoint = operator.forward(x), operator.adjoint(y)
    left, right = (forward * y).sum(dtype=torch.float64), (x * adjoint).sum(dtype=torch.float64)
    scale = forward.double().norm() * y.double().norm() + x.double().norm() * adjoint.double().norm()
    return float((left - right).abs() / scale.clamp_min(1e-300))
