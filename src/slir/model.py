"""Stage and Model: the estimator as data. A model is a list of stages; `slir.estimator.loop` runs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from slir.bank import Bank
from slir.compute import chunks, rows_that_fit
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.estimator.state import State
from slir.losses import Euclidean, Loss, Squared
from slir.patches import PatchGrid
from slir.solvers.dual_free_sdca import dual_free_sdca
from slir.solvers.newton import newton
from slir.solvers.sdca import sdca
from slir.solvers.solution import Solution
from slir.solvers.weiszfeld import weiszfeld
from slir.weights import Fitted, Weights

if TYPE_CHECKING:
    from slir.trust.examples import Examples
    from slir.trust.record import Trust

SOLVERS = {"auto": "", "weiszfeld": "error", "newton": "residual", "sdca": "gap", "dual-free": "residual"}
"""Solvers of the z-update, and by which of its statistics each says how far it is from the minimum."""

X_TOLERANCE = 2e-5
"""Root mean square error that the x-update may leave in x, whose range is 1: a tenth of an 8-bit grey level."""

DUAL = ("sdca", "dual-free")
"""Those that hold a dual variable for every patch and every bank patch: exact, and slow."""


@dataclass(frozen=True)
class Prior:
    """A bank, how it is described and how its patches are weighted: α(·) and xⁱ, fitted once and shared by stages.

    view: which side of the pairs the bank is described by: "seen" (degraded patches) or "clean".
    size: side of the clean patches.
    """

    bank: Bank
    descriptor: DctDescriptor
    weights: Weights
    view: str = "seen"

    def __post_init__(self) -> None:
        if self.view not in ("seen", "clean"):
            raise InputError("view", "be 'seen' or 'clean'", repr(self.view), "Pick one of these.")
        sees, has = self.descriptor.window or self.size, self.bank.seen if self.view == "seen" else self.bank.clean
        if sees**2 != has.shape[1]:
            rule = f"be that of the bank's {self.view} patches, {round(has.shape[1] ** 0.5)}"
            raise InputError("window", rule, sees, "Describe the bank by what is seen: view='seen'.")

    @property
    def size(self) -> int:
        return round(self.bank.clean.shape[1] ** 0.5)

    @cached_property
    def fitted(self) -> Fitted:
        clean = self.bank.clean
        described = self.bank.seen if self.view == "seen" else clean
        features = self.descriptor.of_patches(described)
        return self.weights.fit(features, clean - clean.mean(1, keepdim=True))


@dataclass(frozen=True)
class PatchQuadratic:
    """Quadratic prior term of single patches, ½ Σ_p (s_p ‖x_p‖² − 2 v_pᵀx_p). Its minimum has patches v_p/s_p.

    strength: s (P,). moment: v (P, k). stats: what the z-update measured.
    """

    strength: Tensor
    moment: Tensor
    stats: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageQuadratic:
    """Quadratic prior term of the image, ½ xᵀDx − vᵀx, summed over patches.

    diagonal: D = Σ_p s_p R_pᵀR_p, which is diagonal, (H, W). moment: v = Σ_p R_pᵀv_p (H, W). stats: the worst of any.
    """

    diagonal: Tensor
    moment: Tensor
    stats: dict[str, float] = field(default_factory=dict)


def aggregate(grid: PatchGrid, pulls: Iterable[tuple[slice, PatchQuadratic]]) -> ImageQuadratic:
    """The quadratic of a grid from the pulls of its bands."""
    diagonal: Tensor | None = None
    moment: Tensor | None = None
    stats: dict[str, float] = {}
    for rows, pull in pulls:
        diagonal = grid.assemble(pull.strength[:, None], rows=rows, into=diagonal)
        moment = grid.assemble(pull.moment, rows=rows, into=moment)
        stats = {name: max(value, stats.get(name, value)) for name, value in pull.stats.items()}
    assert diagonal is not None  # there is at least one band
    assert moment is not None
    return ImageQuadratic(diagonal, moment, stats)


@dataclass(frozen=True)
class Stage:
    """One turn of the loop: describe, pull, solve.

    prior: the bank with its weights α.
    loss: ℓ.
    gamma: weight γ of the data term. Larger values follow y, noise included; smaller ones follow the bank.
    beta: β ties the patches z_p to x in half-quadratic splitting; None solves the squared loss directly, as one
        linear system in x.
    solver: of the z-update: "weiszfeld", "newton", "sdca" or "dual-free"; "auto" is the Weiszfeld fixed point, or
        Newton's method where weights are signed.
    stride: of the patches of x.
    """

    prior: Prior
    loss: Loss
    gamma: float
    beta: float | None = None
    solver: str = "auto"
    stride: int = 1
    tol: float = 4e-3
    max_steps: int = 20

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise InputError("gamma", "be positive", self.gamma, "Larger values follow the data more closely.")
        if self.stride < 1:
            raise InputError("stride", "be at least 1", self.stride, "1 restores from patches at every pixel.")
        if self.beta is None and not isinstance(self.loss, Squared):
            raise InputError(
                "beta", f"be given for the {self.loss.name} loss", None, "Only the squared loss needs none."
            )
        if self.beta is not None and not self.beta > 0:
            raise InputError("beta", "be positive", self.beta, "It ties the patches to the image.")
        if self.solver == "sdca" and not isinstance(self.loss, Euclidean | Squared):
            raise InputError("solver", f"not be 'sdca' for the {self.loss.name} loss", "'sdca'", "Use 'auto'.")
        if self.solver not in SOLVERS:
            raise InputError("solver", f"be one of {', '.join(SOLVERS)}", repr(self.solver), "Pick one of these.")

    @property
    def size(self) -> int:
        """Side of the patches of x."""
        return self.prior.size

    def grid(self, shape: tuple[int, int]) -> PatchGrid:
        return PatchGrid(shape, self.size, self.stride)

    def z_update(
        self, state: State, grid: PatchGrid, generator: torch.Generator | None = None, *, errors: bool = False
    ) -> tuple[ImageQuadratic, State]:
        """The quadratic of all patches, band by band; the state stays as it is."""
        x = state.x
        numbers = 4 * (self.prior.descriptor.window or self.size) ** 2
        bands = grid.bands(rows_that_fit(numbers * x.element_size(), x.device))
        pulls = (
            (rows, self.pull(self.describe(x, grid, rows), grid.extract(x, rows=rows), generator)) for rows in bands
        )
        return aggregate(grid, pulls), state

    def system(self, quadratic: ImageQuadratic, sigma: float) -> tuple[float, Tensor, Tensor]:
        """The x-update's data weight γ, diagonal Σ s_p R_pᵀR_p and moment Σ R_pᵀv_p.

        With a stride, fewer patches speak for the same pixels: each counts stride² times, so that γ keeps its meaning.
        """
        share = self.stride**2
        return self.gamma, share * quadratic.diagonal, share * quadratic.moment

    def solve_from(self, state: State, z: Tensor) -> tuple[float, Tensor]:
        """The root mean square error that the x-update may leave in x, and where it starts."""
        return X_TOLERANCE, state.x

    @property
    def device(self) -> torch.device:
        return self.prior.bank.clean.device

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> Stage:
        """The same stage on a device. moved: what is there already, so that shared priors and banks stay shared."""
        moved = {} if moved is None else moved
        prior, bank = self.prior, self.prior.bank
        if id(prior) not in moved:
            if id(bank) not in moved:
                moved[id(bank)] = bank.to(device)
            moved[id(prior)] = replace(prior, bank=moved[id(bank)])
        return replace(self, prior=moved[id(prior)])

    def describe(self, x: Tensor, grid: PatchGrid, rows: slice = slice(None)) -> Tensor:
        """What is seen at each patch of the current estimate, or of a band of them: (H, W) -> (P, d)."""
        return self.prior.descriptor.features(x, grid, rows)

    def pull(self, seen: Tensor, patches: Tensor, generator: torch.Generator | None = None) -> PatchQuadratic:
        """The z-update of all patches, chunk by chunk: seen (P, d), patches x_p (P, k) -> PatchQuadratic.

        Patches are centred; the mean of x_p is added to z_p in the end (Implementation details of the paper).
        """
        fitted = self.prior.fitted
        mean = patches.mean(1, keepdim=True)
        if isinstance(self.loss, Squared):
            return self._pull_squared(fitted, seen, patches, mean)
        assert self.beta is not None  # __post_init__ guarantees it
        solver = self._solver(fitted)
        centred = patches - mean
        tiled = fitted.tiled if solver == "weiszfeld" and isinstance(self.loss, Euclidean) else None
        if tiled is not None:
            from slir.fused.launch import nw_euclidean

            solution = nw_euclidean(tiled, seen, centred, self.beta, tol=self.tol, max_steps=self.max_steps)
            z = solution.value + mean
            stats = {f"z_{name}": value for name, value in solution.stats.items()}
            return PatchQuadratic(z.new_full((len(z),), self.beta), z.mul_(self.beta), stats)
        if solver == "weiszfeld":
            solution = self._weiszfeld(fitted.by_contrast, seen, centred)
            stats = {f"z_{name}": value for name, value in solution.stats.items()}
            z = solution.value.add_(mean)
            return PatchQuadratic(z.new_full((len(z),), self.beta), z.mul_(self.beta), stats)
        z = torch.empty_like(patches)
        m, k = fitted.clean.shape
        numbers = m * (2 * k + 6) if solver in DUAL else 4 * m + 4 * k * k  # held at a time for each patch
        measure = SOLVERS[solver]
        steps, worst = 0.0, 0.0
        for piece in chunks(len(seen), rows_that_fit(patches.element_size() * numbers, seen.device)):
            solution = self._solve(solver, fitted.alpha(seen[piece]), fitted.clean, centred[piece], generator)
            z[piece] = solution.value
            steps = max(steps, solution.stats["steps"])
            worst = max(worst, solution.stats[measure])
        z += mean
        return PatchQuadratic(
            z.new_full((len(z),), self.beta), z.mul_(self.beta), {"z_steps": steps, f"z_{measure}": worst}
        )

    def _solver(self, fitted: Fitted) -> str:
        if self.solver == "auto":
            return "newton" if fitted.signed else "weiszfeld"
        return self.solver

    def _weiszfeld(self, fitted: Fitted, seen: Tensor, centred: Tensor) -> Solution:
        """Patches in order of their contrast: those of a block then ask for the same part of the bank."""
        assert self.beta is not None
        order = torch.linalg.vector_norm(seen, dim=1).argsort()
        seen = seen[order]
        solution = weiszfeld(
            self.loss, lambda rows: fitted.alpha(seen[rows]), fitted.clean, centred[order], self.beta,
            tol=self.tol, max_steps=self.max_steps,
        )  # fmt: skip
        return replace(solution, value=torch.empty_like(centred).index_copy_(0, order, solution.value))

    def _solve(
        self, solver: str, alpha: Tensor, clean: Tensor, centred: Tensor, generator: torch.Generator | None
    ) -> Solution:
        assert self.beta is not None
        if solver == "sdca":
            return sdca(alpha, clean, centred, self.beta, generator=generator)
        if solver == "dual-free":
            return dual_free_sdca(self.loss, alpha, clean, centred, self.beta, generator=generator)
        return newton(self.loss, alpha, clean, centred, self.beta, tol=self.tol, max_steps=self.max_steps)

    def _pull_squared(self, fitted: Fitted, seen: Tensor, patches: Tensor, mean: Tensor) -> PatchQuadratic:
        """Exact, from the moments Σα and Σαxⁱ alone: with splitting, z = (βx + Σαxⁱ)/(β + Σα)."""
        total, weighted = patches.new_empty(len(patches)), torch.empty_like(patches)
        for piece in chunks(len(seen), rows_that_fit(12 * len(fitted.clean), seen.device)):
            total[piece], weighted[piece] = fitted.moments(seen[piece])
        moment = weighted + total[:, None] * mean
        if self.beta is None:
            return PatchQuadratic(total, moment)
        z = (self.beta * patches + moment) / (self.beta + total)[:, None]
        return PatchQuadratic(torch.full_like(total, self.beta), z.mul_(self.beta))


class AnyStage(Protocol):
    """The interface of a stage: the paper's `Stage`, a learnt kernel's, or the closed-form stage on top of it."""

    @property
    def size(self) -> int: ...

    @property
    def stride(self) -> int: ...

    def grid(self, shape: tuple[int, int]) -> PatchGrid: ...

    def z_update(
        self, state: State, grid: PatchGrid, generator: torch.Generator | None = None, *, errors: bool = False
    ) -> tuple[ImageQuadratic, State]: ...

    def system(self, quadratic: ImageQuadratic, sigma: float) -> tuple[float, Tensor, Tensor]: ...

    def solve_from(self, state: State, z: Tensor) -> tuple[float, Tensor]: ...

    @property
    def device(self) -> torch.device: ...

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> AnyStage: ...


@dataclass(frozen=True, repr=False)
class Model:
    """A list of stages with their provenance.

    The paper's HQS is the model whose stages share one prior; its squared-loss solver is the model with one stage.

    splitting: "hqs", or "admm" to add ADMM's dual variables to the same stages.
    trust: what errors to expect, as held-out pictures had them. examples: some of the patches that were learnt from.
    """

    stages: tuple[AnyStage, ...]
    provenance: dict[str, Any] = field(default_factory=dict)
    splitting: str = "hqs"
    trust: Trust | None = None
    examples: Examples | None = None

    def __post_init__(self) -> None:
        if self.splitting not in ("hqs", "admm"):
            raise InputError("splitting", "be 'hqs' or 'admm'", repr(self.splitting), "Pick one of these.")
        if not self.stages:
            raise InputError("stages", "hold at least one stage", "empty", "slir.fit and slir.paper_model make them.")
        if self.splitting == "admm" and any(getattr(stage, "beta", None) is None for stage in self.stages):
            raise InputError("beta", "be given for every stage under ADMM", None, "Pass beta0, or use 'hqs'.")

    @property
    def learnt(self) -> bool:
        """Whether the kernel is learnt; such a model serves the σ that it is given."""
        return not isinstance(self.stages[0], Stage)

    @property
    def joint(self) -> bool:
        """Whether channels of one picture are restored together, by a learnt kernel."""
        return getattr(self.stages[0], "joint", False)

    @property
    def paper_stages(self) -> tuple[Stage, ...]:
        """The stages, where all of them are the paper's; what asks for their banks and losses asks here."""
        own = tuple(stage for stage in self.stages if isinstance(stage, Stage))
        if len(own) < len(self.stages):
            remedy = "Pass one that slir.paper_model made."
            raise InputError("model", "be made of the paper's stages", "a learnt kernel", remedy)
        return own

    @property
    def made_for(self) -> dict[str, Any]:
        """The operator and the noise that the model was learnt for, as JSON: "operator" and "sigma", or "family"."""
        first = self.stages[0]
        return first.prior.bank.provenance if isinstance(first, Stage) else self.provenance

    def __repr__(self) -> str:
        """One line, without the banks."""
        first = self.stages[0]
        if not isinstance(first, Stage):
            family = self.provenance.get("family", {})
            return f"Model(learnt kernel, {len(self.stages)} stages, for {family.get('kind', 'any operator')})"
        bank = first.prior.bank
        task = bank.provenance.get("operator", {}).get("kind", "operator")
        weights = first.prior.weights.settings()["kind"]
        what = f"{len(self.stages)} × ({first.loss.name}, {weights}), bank of {len(bank)}"
        return f"Model({what}, for {task} and sigma {bank.provenance.get('sigma', 'unknown')})"

    def to(self, device: torch.device | str) -> Model:
        """The same model on a device, moved once; stages that share a prior or a bank go on sharing it."""
        device = torch.empty(0, device=device).device  # "cuda" is "cuda:0", or whichever is current
        if all(stage.device == device for stage in self.stages):
            return self
        there: dict[torch.device, Model] = self.__dict__.setdefault("_there", {})
        if device not in there:
            moved: dict[int, Any] = {}  # what was moved already, by the identity of what it was
            there[device] = replace(self, stages=tuple(stage.to(device, moved) for stage in self.stages))
        return there[device]

    def save(self, path: str) -> None:
        """Write the model as one safetensors file, whole or not at all."""
        from slir.io.models import write_model

        write_model(path, self)
