"""What a learnt stage looks at: images made from the state of the restoration, of which it sees the same window.

Between-locality asks that x_p depend on y only through what is seen at p. Each view brings to p something that y knows
about x_p and that the patch of the current estimate does not show.

All but the first are differences from z, so that a stage which learns nothing leaves z as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from slir.compute import cuda_graph_cached
from slir.operators import Operator
from slir.patches import PatchGrid
from slir.similar import collaborate, collaborate_and_tell, faded, match
from slir.solvers.system import System

SAME = 1e-6
"""Patches whose difference has this share of the error's variance are taken to be the same."""

NEAREST = 8
"""Members of a group by which it is told how much alike they are."""


@dataclass(frozen=True)
class State:
    """Where a restoration stands. All images count in the loop's unit.

    x: the image that explains y best among those near z, (H, W). z: the image that the patches agree on.
    sigma: of the noise in y; of channels restored together (C, 1, 1). unit: of the loop, where the range is 1.
    kept: what views of the stage before left behind. matched: groups of patches that were found alike in z, and their
    distances. told: by name, second moments that views come across and that errors to expect are told from
    (`slir.trust.evidence`); None where nobody wants to know.
    """

    y: Tensor
    operator: Operator
    x: Tensor
    z: Tensor
    sigma: Any = 0.0
    unit: float = 1.0
    kept: dict[str, Tensor] = field(default_factory=dict)
    matched: dict[tuple[int, ...], tuple[Tensor, ...]] = field(default_factory=dict)
    told: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class View(ABC):
    """window: side of what is seen of this view around a patch; None is the patch's own side."""

    kind: ClassVar[str]
    window: int | None = None

    @abstractmethod
    def see(self, state: State, error: float) -> Tensor:
        """The view as an image on x's pixels, (H, W). error: root mean square error of x, as learnt."""

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Estimate(View):
    """z, without the mean of the patch."""

    kind = "estimate"

    def see(self, state: State, error: float) -> Tensor:
        return state.z


@dataclass(frozen=True)
class Data(View):
    """x − z: what the data step changed."""

    kind = "data"

    def see(self, state: State, error: float) -> Tensor:
        return state.x - state.z


@dataclass(frozen=True)
class InverseResidual(View):
    """(BᵀB + ρI)⁻¹ Bᵀ(y − Bx), ρ = weight·(σ/error)²: what y still says, brought back to where it belongs.

    Bᵀ(y − Bx) alone is spread out by the blur twice; the regularised inverse undoes that. steps: at most, on a GPU.
    """

    kind = "inverse residual"
    weight: float = 0.3
    steps: int = 20

    def see(self, state: State, error: float) -> Tensor:
        rho = self.weight * (state.sigma / error) ** 2
        residual = state.operator.adjoint(state.y - state.operator.forward(state.x))
        # Tiles have to agree with the whole, so it must not matter where a solve ends; but a GPU hardly ever needs any.
        tol, steps = (1e-3, self.steps) if state.x.device.type == "cuda" else (1e-5, 200)
        return System(state.operator, 1.0, rho).solve(residual, max_steps=steps, tol=tol).value


@dataclass(frozen=True)
class Similar(View):
    """x filtered with the patches that look alike in z (`slir.similar`), less z: what the image says about itself.

    size, count, stride, radius: of the patches that are filtered together. like: side of the squares around them that
    are compared, no smaller than `size`; None is `size`. Views that compare alike share what they find.
    rematch: False takes the groups that a stage before found, where one did: once z is good they hardly change.
    scale: side of the blocks of pixels that are averaged first. A coarse image has less noise, and its patches see
    farther; what it lacks are details, so the view is the change that it asks for, interpolated.
    """

    kind = "similar"
    size: int = 6
    count: int = 48
    stride: int = 3
    radius: int = 16
    like: int | None = None
    scale: int = 1
    rematch: bool = True

    @property
    def name(self) -> str:
        """Under which the next stage finds what this one saw."""
        return f"similar {self.size}" if self.scale == 1 else f"similar {self.size} of {self.scale}"

    def see(self, state: State, error: float) -> Tensor:
        shape = state.z.shape
        x, z = (_coarse(image, self.scale) for image in (state.x, state.z))
        like = min(self.like or self.size, *z.shape)
        size = min(self.size, like)
        margin = (like - size) // 2
        groups, distances = self._groups(state, z, like)
        variance = (error / self.scale) ** 2
        telling = state.told is not None and self.scale == 1 and margin == 0

        def filtered(x: Tensor, z: Tensor, groups: Tensor, distances: Tensor) -> tuple[Tensor, ...]:
            middles = groups + margin * (z.shape[1] + 1)
            weights = faded(distances, SAME * variance * like**2)
            if telling:
                return collaborate_and_tell(x, z, middles, variance, size=size, weights=weights)
            return (collaborate(x, z, middles, variance, size=size, weights=weights),)

        key = ("collaborate", variance, size, like, telling)
        found, *spread = cuda_graph_cached(filtered, x, z, groups, distances, key=key)
        if state.told is not None and telling:
            state.told[f"spread {self.size}"] = spread[0]
            state.told[f"apart {self.size}"] = self._apart(distances, like, z)
        change = found - z
        if self.scale == 1:
            return change
        fine = F.interpolate(change[None, None], scale_factor=self.scale, mode="bicubic", align_corners=False)
        return fine[0, 0, : shape[0], : shape[1]]

    def _apart(self, distances: Tensor, like: int, z: Tensor) -> Tensor:
        """Mean square difference of patches and those most like them, of all patches around a pixel: (H, W)."""
        grid = PatchGrid((z.shape[0], z.shape[1]), like, min(self.stride, like))
        nearest = distances[:, 1 : 1 + NEAREST].nan_to_num(posinf=0.0)  # infinite where there are fewer
        return grid.assemble(nearest.mean(1, keepdim=True).div_(like**2)).div_(grid.counts(z))

    def _groups(self, state: State, z: Tensor, like: int) -> tuple[Tensor, Tensor]:
        """(G, count), (G, count + 1): found now, or by a view before that compared the same."""
        asked = (like, self.stride, self.radius, self.scale)
        if asked not in state.matched or state.matched[asked][0].shape[1] < self.count:
            stride = min(self.stride, like)
            settings = {"size": like, "radius": self.radius, "stride": stride, "count": self.count}
            key = ("match", *settings.values())
            state.matched[asked] = cuda_graph_cached(lambda pilot: match(pilot, **settings), z, key=key)
        groups, distances = state.matched[asked]
        return groups[:, : self.count], distances[:, : self.count + 1]


def _coarse(image: Tensor, scale: int) -> Tensor:
    """Means of scale × scale pixels: (H, W) -> (⌈H/scale⌉, ⌈W/scale⌉).

    Where the last ones lack pixels, the image goes on mirrored: means of fewer would have more noise than all others.
    """
    if scale == 1:
        return image
    rows, cols = (-length % scale for length in image.shape)
    mode = "reflect" if rows < image.shape[0] and cols < image.shape[1] else "replicate"
    return F.avg_pool2d(F.pad(image[None, None], (0, cols, 0, rows), mode=mode), scale)[0, 0]


@dataclass(frozen=True)
class Before(View):
    """z, or what a view showed, one stage ago, less z."""

    kind = "before"
    name: str = "z"

    def see(self, state: State, error: float) -> Tensor:
        return state.kept[self.name] - state.z


VIEWS: dict[str, type[View]] = {view.kind: view for view in (Estimate, Data, InverseResidual, Similar, Before)}


def view_from(settings: dict[str, Any]) -> View:
    """The view that `settings()` describes."""
    own = dict(settings)
    return VIEWS[own.pop("kind")](**own)


def look(state: State, views: tuple[View, ...], error: float) -> tuple[list[Tensor], State]:
    """The images of all views, and the state that remembers, for the stage after, what `Before` may ask for."""
    again = any(isinstance(view, Similar) and view.rematch for view in views)
    told = None if state.told is None else dict(state.told)
    state = replace(state, matched={} if again else dict(state.matched), told=told)
    seen = [view.see(state, error) for view in views]
    kept = {view.name: image + state.z for view, image in zip(views, seen) if isinstance(view, Similar)}
    return seen, replace(state, kept={**state.kept, **kept, "z": state.z})
