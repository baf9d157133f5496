"""The linear system of every x-update, (γBᵀB + D + w∇ᵀ∇) x = b, and how it is solved on each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from slir.compute.recording import undisturbed
from slir.operators.base import Operator, Preconditioner
from slir.solvers.bordered import smooth_preconditioner, solve_bordered
from slir.solvers.cg import LOOK, Walk, cg
from slir.solvers.solution import Solution, Verdict

RECORDINGS = 4
"""Most recordings that an operator keeps: one for each kind of system and shape."""


@dataclass(frozen=True)
class System:
    """operator: B. gamma: γ. diagonal: D, one number or an image of them. smooth: w, 0 for none.

    chroma: how many times as smooth as their mean colours are that B takes together, (3, H, W).
    """

    operator: Operator
    gamma: float | Tensor
    diagonal: float | Tensor
    smooth: float | Tensor = 0.0
    chroma: float = 1.0

    def apply(self, x: Tensor) -> Tensor:
        seen = self.operator.normal(x)
        out = self.gamma * seen if _absent(self.diagonal) else _plus(self.diagonal * x, self.gamma, seen)
        return out if _absent(self.smooth) else _plus(out, self.smooth, self.roughness(x))

    def roughness(self, x: Tensor) -> Tensor:
        """∇ᵀ∇x; of colours more where they differ from their mean."""
        rough = laplacian(x, self.operator.spacing)
        return rough if self.chroma == 1 else torch.lerp(rough.mean(-3, keepdim=True), rough, self.chroma)

    def preconditioner(self, like: Tensor) -> Preconditioner | None:
        """About the inverse of the system, with D's mean in place of D."""
        ridge = self.diagonal if isinstance(self.diagonal, float) else float(self.diagonal.mean())
        gamma, smooth = float(self.gamma), float(self.smooth)
        if smooth > 0 and self.operator.bordered is not None:
            return smooth_preconditioner(self.operator.bordered, like, gamma, ridge, smooth, self.operator.spacing)
        return self.operator.preconditioner(like, gamma, ridge, smooth)

    def solve(
        self,
        rhs: Tensor,
        *,
        start: Tensor | None = None,
        residual: Tensor | None = None,
        tol: float = 1e-5,
        target: float | None = None,
        max_steps: int = 200,
    ) -> Solution:
        """By conjugate gradient (`slir.solvers.cg`). residual: b − A·start, where it is known.

        A blur with an unknown border has a quicker way on a CPU (`slir.solvers.bordered`).
        """
        if (ridge := self._ridge(rhs)) > 0:
            if start is not None and residual is None:
                residual = rhs - self.apply(start)
            target = tol * float(rhs.norm()) if target is None else target
            return self._solve_bordered(rhs, start, residual, ridge, target, max_steps)
        hint = self.preconditioner(rhs)
        stop: dict[str, Any] = {"tol": tol, "target": target, "max_steps": max_steps}
        if rhs.device.type != "cuda" or not self.operator.recordable or max_steps < 2 * LOOK:
            return cg(self.apply, rhs, start=start, residual=residual, precondition=hint, **stop)
        found = _operator_recording(self, hint, rhs).restart(self, hint, rhs).solve(rhs, start, residual, **stop)
        return replace(found, value=found.value.clone())

    def _ridge(self, like: Tensor) -> float:
        """ρ where this is γ(BᵀB + ρI) with a blur whose border is unknown, on a CPU; else 0."""
        if (
            self.operator.bordered is None
            or like.device.type != "cpu"
            or isinstance(self.gamma, Tensor)
            or not _absent(self.smooth)
        ):
            return 0.0
        least, most = (self.diagonal, self.diagonal)
        if isinstance(self.diagonal, Tensor):
            least, most = (float(value) for value in self.diagonal.aminmax())
        return float(least) / self.gamma if least == most else 0.0

    def _solve_bordered(
        self, rhs: Tensor, start: Tensor | None, residual: Tensor | None, ridge: float, target: float, max_steps: int
    ) -> Solution:
        """From the start, what is missing to the solution."""
        assert self.operator.bordered is not None  # `_ridge` saw to it
        missing, gamma = rhs if residual is None else residual, float(self.gamma)
        size, scale = float(missing.norm()), max(float(rhs.norm()), 1e-30)
        if size <= target:
            value = torch.zeros_like(rhs) if start is None else start.clone()
            return Solution(value, Verdict.CONVERGED, {"steps": 0, "residual": size / scale})
        found = solve_bordered(
            self.operator.bordered, missing / gamma, ridge, target=target / gamma, max_steps=max_steps
        )
        stats = {**found.stats, "residual": found.stats["residual"] * size / scale}
        return replace(found, value=found.value if start is None else start + found.value, stats=stats)

    def explain(
        self, y: Tensor, start: Tensor, *, moment: Tensor | None = None, target: float, max_steps: int = 200
    ) -> Solution:
        """The x that explains y: b = γBᵀy + moment. From a start near it, with the residual

            γBᵀ(y − Bx) + moment − Dx − w∇ᵀ∇x

        where y is compared with Bx before Bᵀ: γBᵀy − γBᵀBx rounds to something that Bᵀ never makes, and what B hardly
        sees is then off by that, divided by next to nothing.
        """
        operator = self.operator
        rhs, residual = (self.gamma * operator.adjoint(part) for part in (y, y - operator.forward(start)))
        if moment is not None:
            rhs, residual = rhs + moment, residual + moment
        if not _absent(self.diagonal):
            residual = residual - self.diagonal * start
        if not _absent(self.smooth):
            residual = residual - self.smooth * self.roughness(start)
        return self.solve(rhs, start=start, residual=residual, target=target, max_steps=max_steps)


def _plus(base: Tensor, weight: float | Tensor, value: Tensor) -> Tensor:
    """base + weight · value, in one pass."""
    if isinstance(weight, Tensor):
        return torch.addcmul(base, weight, value)
    return torch.add(base, value, alpha=weight)


def _absent(value: float | Tensor) -> bool:
    return isinstance(value, float) and value == 0


def laplacian(x: Tensor, spacing: Sequence[float] = (1.0, 1.0)) -> Tensor:
    """∇ᵀ∇x, with mirrored borders: the sum of x's differences from its neighbours over the squares of their distances,
    along as many of the last axes as there are distances."""
    out = torch.zeros_like(x)
    for axis, step in zip(range(-len(spacing), 0), spacing):
        differences, count = x.diff(dim=axis), x.shape[axis] - 1
        out.narrow(axis, 1, count).add_(differences, alpha=step**-2)
        out.narrow(axis, 0, count).sub_(differences, alpha=step**-2)
    return out


class _Recorded(Walk):
    """LOOK steps recorded as one launch. Launched one by one, they keep a GPU waiting most of the time.

    A recording reads and writes the same memory each time, so it has copies of all that a system is made of.
    """

    def __init__(self, system: System, hint: Preconditioner | None, rhs: Tensor):

        def own(value: float | Tensor) -> float | Tensor:
            return 0.0 if _absent(value) else torch.as_tensor(value, dtype=rhs.dtype, device=rhs.device).clone()

        self.system = replace(system, gamma=own(system.gamma), diagonal=own(system.diagonal), smooth=own(system.smooth))
        self.hint = None if hint is None else replace(hint, factors=hint.factors.clone())
        super().__init__(self.system.apply, self.hint or (lambda r: r), torch.zeros_like(rhs), torch.zeros_like(rhs))
        self.turn()  # once without recording: plans of FFTs are made
        self.move()
        self.graph = torch.cuda.CUDAGraph()
        aside, here = torch.cuda.Stream(), torch.cuda.current_stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside), undisturbed():
            self.graph.capture_begin(capture_error_mode="thread_local")
            for _ in range(LOOK):
                self.move()
                self.turn()
            self.seen = torch.stack([self.residual.norm(), self.curvature])
            self.graph.capture_end()
        here.wait_stream(aside)
        self.constants = system.operator.constants()  # the operator may forget them, the recording must not

    def restart(self, system: System, hint: Preconditioner | None, rhs: Tensor) -> _Recorded:
        """Ready for another system of the same kind, from x = 0."""
        for own, new in zip(_tensors(self.system, self.hint), _tensors(system, hint)):
            own.copy_(new) if isinstance(new, Tensor) else own.fill_(new)
        self.x.zero_()
        self.residual.copy_(rhs)
        return self

    def advance(self, step: int, max_steps: int) -> int:
        self.graph.replay()
        return LOOK

    def measured(self) -> list[float]:
        return self.seen.tolist()


def _tensors(system: System, hint: Preconditioner | None) -> list[Any]:
    """All that a recording has copies of."""
    parts = [system.gamma, system.diagonal, system.smooth, *([] if hint is None else [hint.factors])]
    return [part for part in parts if not _absent(part)]


def _operator_recording(system: System, hint: Preconditioner | None, rhs: Tensor) -> _Recorded:
    """The operator's recording for systems of this kind."""
    kept: dict[tuple, _Recorded] = system.operator.__dict__.setdefault("_recordings", {})
    spread = isinstance(system.diagonal, Tensor)
    kind = (spread, _absent(system.diagonal), _absent(system.smooth), hint is None, system.chroma)
    key = (rhs.shape, rhs.dtype, rhs.device, kind, get_ident())  # another thread would write into the same memory
    if key not in kept:
        if len(kept) >= RECORDINGS:
            kept.clear()
        kept[key] = _Recorded(system, hint, rhs)
    return kept[key]
