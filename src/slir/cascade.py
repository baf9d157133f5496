"""The learnt cascade: one estimator per stage, fitted on training images carried through the stages before it.

The estimator is the paper's with the squared loss, its weights those of a ridge regression per cell, so a stage is
"find the cell, apply the cell's map" and the x-update. Two things make one model serve any operator and noise level:

- the **unit**: the loop divides images by the error that a linear estimate would leave on a 1/f field, seen through the
  same operator and noise. Whatever B and σ are, the first stage then sees errors of size about one.
- the **start**: that linear estimate itself, argmin ‖y − Bx‖²/σ² + ‖∇x‖²/g², with g the slope of natural images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from slir.cells import Cells
from slir.compute import chunks, cuda_graph_cached, rows_that_fit
from slir.compute.transforms import irfft2, rfft2
from slir.descriptors import dct_basis_on
from slir.model import ImageQuadratic, PatchQuadratic, aggregate
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.operators.base import Shape
from slir.patches import PatchGrid
from slir.recipes import ROUNDING
from slir.solvers.system import System
from slir.views import State, View, look
from slir.weights import Fitted, Weights
from slir.weights.cell_ridge import apply_maps

SLOPE = 0.07
"""g: root mean square difference of neighbouring pixels of a natural image, on the scale where the range is 1."""

CONTRAST = 0.2
"""Standard deviation of the 1/f field that the unit is measured on."""

TOLERANCE = {"cpu": 1e-5, "cuda": 5e-5}
"""Root mean square error that the x-update may leave in x, as a share of the stage's level. Tiles have to agree with
the whole, but a GPU hardly ever needs any."""

FIELD = 128
"""Side of that field, beyond what the operator reaches."""

START = {"cpu": 3e-8, "cuda": 3e-6}
"""Residual at which the start is good enough, as a share of the prior's weight: the stages see to the rest. Close to
the border, where B says next to nothing, it may not get there for a small σ, and need not."""

ROUGHLY = 3e-5
"""The same where only the size of the start's error is asked for: the fifth digit of it does not change."""


def least_noise(sigma: float) -> float:
    """σ, but never less than what rounding to 8 bits leaves."""
    return max(sigma, ROUNDING)


def smooth_start(operator: Operator, y: Tensor, sigma: float, *, share: float | None = None) -> Tensor:
    """argmin_x ‖y − Bx‖²/σ² + ‖∇x‖²/g², by conjugate gradient from the operator's guess; y itself where B is I.

    Where x and y are the same image, nothing is gained by smoothing, and y shows the first stage more. share: at what
    residual it ends; None takes the device's `START`.
    """
    guess = operator.guess(y)
    if isinstance(operator, Identity):
        return guess
    weight = (sigma / SLOPE) ** 2
    share = START.get(y.device.type, 3e-8) if share is None else share
    target = share * guess.numel() ** 0.5 * weight
    return System(operator, 1.0, 0.0, weight).explain(y, guess, target=target).value


def expected_error(operator: Operator, sigma: float, shape: Shape) -> float:
    """The unit: root mean square error of `smooth_start` on a 1/f field of x's `shape`; σ itself where B is I.

    A blur leaves each frequency to itself, so that its error is a sum. Downsampling is tried on a small field; a mask
    belongs to one shape, and of a large one some blocks are put together.
    """
    if isinstance(operator, Identity):
        return sigma
    if isinstance(operator, Blur):
        return max(_blur_error(operator, sigma), sigma / 4)
    if isinstance(operator, Mask) and max(shape) > 4 * FIELD:
        operator = _mosaic(operator)
        shape = (operator.missing.shape[0], operator.missing.shape[1])
    if isinstance(operator, Downsample):
        side = FIELD + 2 * operator.reach
        shape = operator.for_training((min(shape[0], side), min(shape[1], side)))[1]
    field = _field(shape)
    y = operator.forward(field)
    noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
    error = smooth_start(operator, y + sigma * noise, sigma, share=ROUGHLY) - field
    return max(float(operator.crop(error, (y.shape[0], y.shape[1])).square().mean().sqrt()), sigma / 4)


def _blur_error(operator: Blur, sigma: float) -> float:
    """The same on a torus, in expectation:  mean over frequencies of  |1 − Hb|² S + |H|² σ²,  H = b̄/(|b|² + σ²r/g²)

    with b the PSF's spectrum, S that of the 1/f field and r that of ∇ᵀ∇."""
    side = 2 * FIELD + max(operator.psf.shape)
    power, rough, share = _torus(side)
    passed = operator.convolution.power((side, side))  # |b|²
    kept = passed + (sigma / SLOPE) ** 2 * rough
    kept[0, 0] = passed[0, 0]
    noise = torch.where(passed > 0, passed / kept.square(), 0.0) * sigma**2
    return float((share * (power * (1 - passed / kept).square() + noise)).sum().sqrt())


@lru_cache(maxsize=16)
def _torus(side: int) -> tuple[Tensor, Tensor, Tensor]:
    """S, r, and the share of all frequencies that each one of a real transform stands for: (side, side//2 + 1)."""
    rows, cols = torch.fft.fftfreq(side, dtype=torch.float64)[:, None], torch.fft.rfftfreq(side, dtype=torch.float64)
    share = torch.full_like(cols, 2 / side**2)
    share[0] = 1 / side**2
    if side % 2 == 0:
        share[-1] = 1 / side**2
    power = 1 / (rows.square() + cols.square() + (1 / 256) ** 2)
    power[0, 0] = 0
    power *= CONTRAST**2 / (share * power).sum()
    rough = 4 - 2 * torch.cos(2 * torch.pi * rows) - 2 * torch.cos(2 * torch.pi * cols)
    return power, rough, share


def _mosaic(mask: Mask) -> Mask:
    """A mask of up to 4×4 blocks of FIELD pixels a side, taken at even distances out of a large one."""
    missing = mask.missing
    for axis in (0, 1):
        room = max(0, missing.shape[axis] - FIELD)
        blocks = min(4, -(-missing.shape[axis] // FIELD))
        firsts = [room * block // max(1, blocks - 1) for block in range(blocks)]
        missing = torch.cat([missing.narrow(axis, first, min(FIELD, missing.shape[axis])) for first in firsts], axis)
    return mask if bool(missing.all()) else Mask(missing)


def _field(shape: Shape) -> Tensor:
    """A random field whose amplitude falls as 1/frequency, as that of natural images does."""
    white = rfft2(torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32))
    rows = torch.fft.fftfreq(shape[0], dtype=torch.float32)[:, None]
    cols = torch.fft.rfftfreq(shape[1], dtype=torch.float32)[None]
    amplitude = (rows.square() + cols.square() + (1 / 256) ** 2).rsqrt()
    amplitude[0, 0] = 0
    field = irfft2(white * amplitude, s=shape)
    return 0.5 + field * (CONTRAST / field.std())


def begin_learnt(y: Tensor, operator: Operator, sigma: float, unit: float | None = None) -> State:
    """Where every cascade begins, in training as in use."""
    sigma = least_noise(sigma)
    x = smooth_start(operator, y, sigma)
    unit = expected_error(operator, sigma, (x.shape[0], x.shape[1])) if unit is None else unit
    return State(y / unit, operator, x / unit, x / unit, sigma / unit, unit)


class Regression(ABC):
    """What is learnt: from what is seen at a patch to what is missing there."""

    @abstractmethod
    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        """seen (P, d), patches z_p (P, k) -> x_p − z_p as far as it can be known, (P, k)."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where its tensors are."""

    @abstractmethod
    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> Regression:
        """The same on a device. moved: what is there already, by the identity of what it was."""


@dataclass(frozen=True)
class CellMaps(Regression):
    """Ridge per cell (`slir.weights.cell_ridge`): W_cᵀf with c = c(z_p), or a mean of two cells' close to their border.

    maps: W (C, d, k). moment: E[f fᵀ] in training, (d, d): which features, and which of their sums, are ever large.
    """

    cells: Cells
    maps: Tensor
    moment: Tensor

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        found = self.cells.members(cell_features(patches))
        wanted = apply_maps(self.maps, found.cell, seen)
        if len(found.between):
            other = apply_maps(self.maps, found.other, seen[found.between])
            wanted[found.between] = wanted[found.between].lerp_(other, found.share[:, None])
        return wanted

    @property
    def device(self) -> torch.device:
        return self.maps.device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> CellMaps:
        return CellMaps(self.cells.to(device, moved), self.maps.to(device), self.moment.to(device))


@dataclass(frozen=True)
class BankWeights(Regression):
    """The paper's weights on a bank of pairs: Σᵢ αᵢ(f) tⁱ, by Nadaraya–Watson, kernel ridge or Nyström.

    features: (m, d). wanted: (m, k), xⁱ − zⁱ of the same pairs.
    """

    weights: Weights
    features: Tensor
    wanted: Tensor

    @cached_property
    def fitted(self) -> Fitted:
        return self.weights.fit(self.features, self.wanted)

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        out = torch.empty_like(patches)
        for piece in chunks(len(seen), rows_that_fit(12 * len(self.features), seen.device)):
            out[piece] = self.fitted.moments(seen[piece])[1]
        return out

    @property
    def device(self) -> torch.device:
        return self.features.device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> BankWeights:
        return BankWeights(self.weights, self.features.to(device), self.wanted.to(device))


def cell_features(patches: Tensor) -> Tensor:
    """What a cell is found from: the DCT of the centred patch, (P, k) -> (P, k − 1)."""
    return patches @ dct_basis_on(round(patches.shape[1] ** 0.5), patches.dtype, patches.device)[1:].T


@dataclass(frozen=True)
class LearntStage:
    """Predict what is missing in z_p from what is seen at p, then let the data speak.

        z_p ← z_p + regression(f_p),      x ← argmin ‖y − Bx‖²/σ² + ‖x − z‖²/level²

    views: what f_p is made of. size, stride: of the patches.
    error: root mean square error of x before the stage, in units, as the training images had it.
    level: how far the new z is off, as the x-update takes it; 0 keeps z as it is.
    """

    regression: Regression
    views: tuple[View, ...]
    error: float
    level: float
    size: int = 8
    stride: int = 2

    def grid(self, shape: Shape) -> PatchGrid:
        return PatchGrid(shape, self.size, self.stride)

    def unit(self, operator: Operator, sigma: float, shape: Shape) -> float:
        """Of the loop: the error to expect of the start."""
        return expected_error(operator, least_noise(sigma), shape)

    def opening(self, y: Tensor, operator: Operator, sigma: float, unit: float | None = None) -> State:
        """Where the loop begins: the smooth start, in units."""
        return begin_learnt(y, operator, sigma, unit)

    def z_update(
        self, state: State, grid: PatchGrid, generator: torch.Generator | None = None
    ) -> tuple[ImageQuadratic, State]:
        """What the patches want, band by band; and the state that remembers what was seen."""
        images, remembering = look(state, self.views, self.error)
        return self.quadratic(images, state.z, grid), remembering

    def quadratic(self, images: list[Tensor], z: Tensor, grid: PatchGrid) -> ImageQuadratic:
        """The same from the images of the views."""
        diagonal, moment = cuda_graph_cached(
            partial(self._wished, grid), z, *images, key=("quadratic", grid), owner=self
        )
        return ImageQuadratic(diagonal, moment)

    def _wished(self, grid: PatchGrid, z: Tensor, *images: Tensor) -> tuple[Tensor, Tensor]:
        """The diagonal and the moment of the quadratic."""
        numbers = 4 * sum((view.window or self.size) ** 2 for view in self.views)
        bands = grid.bands(rows_that_fit(numbers * z.element_size(), z.device))
        quadratic = aggregate(grid, ((rows, self.pull(*self.features(images, z, grid, rows))) for rows in bands))
        return quadratic.diagonal, quadratic.moment

    def features(
        self, images: Sequence[Tensor], z: Tensor, grid: PatchGrid, rows: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """f_p from the images of the views (P, d), and z_p (P, k); of all patches, or of a band of rows."""
        patches = grid.extract(z, rows=rows)
        widths = [(view.window or self.size) ** 2 for view in self.views]
        seen = patches.new_empty(len(patches), sum(widths))
        for view, image, part in zip(self.views, images, seen.split(widths, 1)):
            grid.extract(image, view.window, rows=rows, out=part)
        seen[:, : widths[0]] -= patches.mean(1, keepdim=True)  # the first is z itself, the rest are differences
        return seen, patches

    def pull(self, seen: Tensor, patches: Tensor) -> PatchQuadratic:
        """seen (P, d), patches z_p (P, k) -> PatchQuadratic. Every patch pulls alike."""
        moment = patches + self.regression.predict(seen, patches)
        return PatchQuadratic(moment.new_ones(len(moment)), moment)

    def system(self, quadratic: ImageQuadratic, sigma: float) -> tuple[float, Tensor, Tensor]:
        """The x-update's data weight, diagonal and moment. Pixels count alike, in however many patches they lie."""
        z = quadratic.moment / quadratic.diagonal
        if self.level == 0:
            return 0.0, torch.ones_like(z), z
        return 1 / sigma**2, torch.full_like(z, self.level**-2), z / self.level**2

    def begin(self, state: State, z: Tensor) -> tuple[float, Tensor]:
        """The error that the x-update may leave in x, and where it starts: z is right where B sees nothing."""
        return TOLERANCE.get(z.device.type, 1e-5) * self.level, z

    @property
    def device(self) -> torch.device:
        return self.regression.device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> LearntStage:
        """The same stage on a device. moved: what is there already, so that stages go on sharing their mixture."""
        return replace(self, regression=self.regression.to(device, {} if moved is None else moved))
