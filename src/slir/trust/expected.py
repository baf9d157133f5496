"""The expected squared error of each pixel, from evidence: a regression of second moments, without gradient descent.

    E[(x̂ − x)² | evidence φ] = exp(b + Σ_f g_f(φ_f)),      g_f piecewise linear

fitted by the quasi-likelihood of a Gamma law, Σ e²/μ + log μ, which is right for means of squares whatever their
distribution, by Fisher's scoring: some ridge regressions in a row. What is learnt from are errors of finished
restorations, so that patches which overlap, and agree or not, and what the data term made of them, are counted in.

Twice: the second regression sees the same evidence, and what the first expects around the pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.model import AnyStage
from slir.trust.evidence import REACH, WIDE, around, evidence
from slir.views import State

KNOTS = (0.05, 0.5, 0.95)
"""Quantiles of a piece of evidence at which its g_f may bend."""

ENDS = (0.002, 0.998)
"""Quantiles beyond which evidence counts as the quantile: nothing is known out there."""

RIDGE = 1e-2
"""In units of what a column of the basis has in squares: pictures are few, however many pixels they have."""

LEAST = 1e-8
"""Squared error below which nothing is learnt, in units."""


@dataclass(frozen=True)
class ErrorModel:
    """names: of F pieces of evidence. ends: (F, 2). knots: (F, K). slopes: (F, 1 + K). bias: b.
    again: the second regression, whose evidence begins with the same pieces; None where there is none.

    g_f(φ) = slopes₀ (φ − knot₀) + Σ_k slopes_k max(0, φ − knot_k)
    """

    names: tuple[str, ...]
    ends: Tensor
    knots: Tensor
    slopes: Tensor
    bias: float
    again: ErrorModel | None = None

    @property
    def reach(self) -> int:
        """How far from a pixel it looks."""
        return REACH if self.again is None else REACH + WIDE

    def log_square(self, state: State, stage: AnyStage) -> Tensor:
        """log E[(x̂ − x)²] in units: (H, W). Evidence that a picture lacks is taken to be as it mostly is."""
        if self.again is None:
            return _looked((self,), self.names, state, stage)[0]
        first, total = _looked((self, self.again), self.names, state, stage)
        for number, (_, make) in enumerate(around(first), start=len(self.names)):
            total += self.again._contribution(number, make())
        return total

    def log_square_from(self, seen: Tensor) -> Tensor:
        """The same from evidence that was gathered, without a second look: (n, F) -> (n,)."""
        total = torch.full((len(seen),), self.bias)
        for number, column in enumerate(seen.T):
            total += self._contribution(number, column)
        return total

    def _contribution(self, number: int, values: Tensor) -> Tensor:
        low, high = self.ends[number].tolist()
        slopes, knots = self.slopes[number].tolist(), self.knots[number].tolist()
        values = values.clamp(low, high)
        out = (values - knots[0]).mul_(slopes[0])
        for slope, knot in zip(slopes[1:], knots):
            out.add_((values - knot).clamp_(min=0), alpha=slope)
        return out


def gather(state: State, stage: AnyStage, pixels: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """The evidence at some pixels, which count row by row: names, (n, F)."""
    names, columns = [], []
    for name, make in evidence(state, stage):
        names.append(name)
        columns.append(make().flatten()[pixels])
    return tuple(names), torch.stack(columns, 1)


def gather_around(
    state: State, stage: AnyStage, firsts: Sequence[ErrorModel], pixels: Tensor
) -> tuple[tuple[str, ...], Tensor]:
    """What each of some models, which look once, expects around some pixels: names, (models, n, A)."""
    names: list[str] = []
    found = []
    for expected in _looked(firsts, firsts[0].names, state, stage):
        pieces = [(name, make().flatten()[pixels]) for name, make in around(expected)]
        names = [name for name, _ in pieces]
        found.append(torch.stack([values for _, values in pieces], 1))
    return tuple(names), torch.stack(found)


def _looked(models: Sequence[ErrorModel], names: Sequence[str], state: State, stage: AnyStage) -> list[Tensor]:
    """b + Σ_f g_f(φ_f) of models whose first pieces of evidence have these names. Each is made once, and serves all."""
    totals = [torch.full_like(state.x, model.bias) for model in models]
    left = dict(zip(names, range(len(names))))
    for name, make in evidence(state, stage):  # one at a time, so memory holds few
        number = left.pop(name, None)
        if number is not None:
            image = make()
            for model, total in zip(models, totals):
                total += model._contribution(number, image)
    for number in left.values():
        for model, total in zip(models, totals):
            total += model._contribution(number, model.knots[number, len(KNOTS) // 2].to(total))
    return totals


def fit_error_model(names: Iterable[str], seen: Tensor, errors: Tensor, *, rounds: int = 40) -> ErrorModel:
    """seen: (n, F). errors: x̂ − x of the same pixels, (n,), in units."""
    seen, squares = seen.double().cpu(), errors.double().cpu().square().clamp(min=LEAST)
    some = seen[:: max(1, len(seen) // 100_000)]
    levels = torch.tensor([*ENDS, *KNOTS], dtype=seen.dtype)
    marks = torch.stack([torch.quantile(column, levels) for column in some.T])  # (F, 2 + K)
    ends, knots = marks[:, :2], marks[:, 2:]
    seen = torch.maximum(torch.minimum(seen, ends[:, 1]), ends[:, 0])
    bends = (seen[:, :, None] - knots).clamp_(min=0)  # (n, F, K)
    basis = torch.cat([torch.ones(len(seen), 1, dtype=seen.dtype), seen - knots[:, 0], bends.flatten(1)], 1)
    theta = basis.new_zeros(basis.shape[1])
    theta[0] = squares.mean().log()
    scale = basis.square().mean(0)
    penalty = RIDGE * scale
    penalty[0] = 0
    # Of the Gamma law the Hessian's expectation does not depend on θ: one factorisation serves all rounds.
    gram = basis.T @ basis / len(basis) + torch.diag(penalty + 1e-9 * scale.mean())
    factor = torch.linalg.cholesky(gram)
    value = _deviance(basis, theta, squares, penalty)
    for _ in range(rounds):
        gradient = basis.T @ (squares * torch.exp(-(basis @ theta)) - 1) / len(basis) - penalty * theta
        step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        length = 1.0
        while length > 1e-4:  # far from the minimum a whole step may overshoot
            tried = _deviance(basis, theta + length * step, squares, penalty)
            if tried < value:
                break
            length /= 2
        else:
            break
        theta = theta + length * step
        converged, value = value - tried < 1e-6, tried
        if converged:
            break
    count = len(ends)
    slopes = torch.cat([theta[1 : 1 + count, None], theta[1 + count :].view(count, -1)], 1)
    return ErrorModel(tuple(names), ends.float(), knots.float(), slopes.float(), float(theta[0]))


def _deviance(basis: Tensor, theta: Tensor, squares: Tensor, penalty: Tensor) -> float:
    """Half of the Gamma law's deviance, and the ridge."""
    mu = basis @ theta
    return float((squares * torch.exp(-mu) + mu).mean() + 0.5 * (penalty * theta.square()).sum())
