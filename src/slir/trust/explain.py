"""Why a pixel is what it is: the examples behind its patch, with their weights.

The patch is restored once more, alone with what surrounds it, up to the pull of the last stage. With a bank's weights
(Nadaraya–Watson, kernel ridge) α is the stage's own; with a learnt kernel it is that of `slir.trust.examples`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.errors import InputError, SlirError
from slir.estimator.loop import advance, begin, brightness, final_state, per_plane
from slir.estimator.state import State
from slir.estimator.tiling import piece_around
from slir.kernel.cell_ridge import CellRidgeStage
from slir.kernel.network import LEAD
from slir.kernel.stage import KernelStage
from slir.losses import Squared
from slir.model import Model, Stage
from slir.operators import Operator
from slir.patches import PatchGrid
from slir.trust.examples import local_weights


@dataclass(frozen=True)
class Explanation:
    """The k examples that say most about the patch around a pixel.

    patches: (k, size, size), as they are in the pictures, range 1. weights: their αᵢ (k,), the largest first.
    sources, positions: which picture each is from, and its first pixel there.
    pull: what the last stage wanted the patch to be (size, size), without its mean. mean: that mean.
    restored: the patch of the result, (size, size). corner: its first pixel, (row, col). Patches of a learnt kernel
    reach up to three pixels beyond the image, where x goes on mirrored.
    total: how many examples speak; the sum of all, each without its mean, is the pull, but for `reproduces` at most.
    own: whether the weights are the stage's, or those of a stage that is equal to it (`slir.trust.examples`).
    """

    row: int
    col: int
    corner: tuple[int, int]
    patches: np.ndarray
    weights: np.ndarray
    sources: list[str]
    positions: list[tuple[int, int]]
    pull: np.ndarray
    mean: float
    restored: np.ndarray
    reproduces: float
    total: int
    own: bool

    @property
    def size(self) -> int:
        return self.pull.shape[0]

    def picture(self, zoom: int = 12) -> np.ndarray:
        """The patch, the pull, and the examples by weight, for people: (H, W, 3), 8 bits."""
        from slir.trust.pictures import explanation_picture

        return explanation_picture(self, zoom)

    def as_json(self) -> dict[str, Any]:
        """All of it in plain numbers."""
        examples = zip(self.weights.tolist(), self.sources, self.positions, self.patches.tolist())
        return {
            "row": self.row,
            "col": self.col,
            "corner": list(self.corner),
            "size": self.size,
            "mean": self.mean,
            "pull": self.pull.tolist(),
            "restored": self.restored.tolist(),
            "reproduces": self.reproduces,
            "total": self.total,
            "own": self.own,
            "patches": [
                {"weight": weight, "source": source, "row": place[0], "col": place[1], "pixels": pixels}
                for weight, source, place, pixels in examples
            ],
        }


@dataclass(frozen=True)
class _Parts:
    """A patch as a sum: pull (k,) = fixed + Σᵢ αᵢ parts[i], of which `shown` (m, k) are the clean patches."""

    pull: Tensor
    fixed: Tensor
    parts: Tensor
    alpha: Tensor
    shown: Tensor
    origin: Tensor
    sources: tuple[str, ...]
    mean: float
    own: bool


@torch.no_grad()
def explain(
    y: Tensor, operator: Operator, model: Model, sigma: float | Sequence[float], row: int, col: int, k: int = 16
) -> Explanation:
    """Explain the patch around the pixel (row, col) of x, one that y shows.

    y: one plane (h, w) in [0, 1], or channels (C, h, w) that the model restores together, of which the mean is
    explained. sigma: of the noise, one for each channel.
    """
    shape = (y.shape[-2], y.shape[-1])
    height, width = (operator.scale * side for side in shape)
    for name, value, most in (("row", row, height), ("col", col, width)):
        if not 0 <= value < most:
            raise InputError(name, f"lie in 0 … {most - 1}", value, "It counts pixels of the restored image.")
    if k < 1:
        raise InputError("k", "be at least 1", k, "16 is a good number to look at.")
    if model.splitting == "admm":
        raise SlirError("ADMM's pulls depend on all that went before; splitting='hqs' can be explained.")
    pixel = [slice(at // operator.scale, at // operator.scale + 1) for at in (row, col)]
    piece = piece_around(shape, operator, model, (pixel[0], pixel[1]))
    seen, part = (y, operator) if piece.operator is None else (y[..., *piece.seen], piece.operator)
    start = (0, 0) if piece.operator is None else (piece.seen[0].start, piece.seen[1].start)
    state = begin(seen, part, model, per_plane(sigma, seen, part))
    for stage in model.stages[:-1]:
        state, _ = advance(state, stage)
    last = model.stages[-1]
    # The pixel on this piece's x, which may reach beyond what y shows.
    first = part.shown((seen.shape[-2], seen.shape[-1]))[:2]
    here = tuple(at - operator.scale * begun + more for at, begun, more in zip((row, col), start, first))
    after = final_state(advance(state, last)[0], model)
    if isinstance(last, KernelStage):
        corner = tuple(at - at % last.stride - LEAD for at in here)
        pull = _patch(state.x, corner, last.size) - _mean(last.correction(state, *here))
        found = _of_examples(pull.flatten().double(), model, last.size)
    else:
        grid = last.grid((state.x.shape[-2], state.x.shape[-1]))
        corner = tuple(_nearest(starts, at, last.size) for starts, at in zip(grid.starts, here))
        band, number = (starts.index(at) for starts, at in zip(grid.starts, corner))
        place = brightness(state), grid, slice(band, band + 1), number
        if isinstance(last, Stage):
            found = _of_paper(last, *place)
        else:
            assert isinstance(last, CellRidgeStage)  # there are these three
            found = _of_ridge(last, model, *place)
    restored = _patch(after.x, corner, last.size)
    order = found.alpha.abs().argsort(descending=True, stable=True)[:k]
    rest = found.fixed + found.alpha @ found.parts - found.pull
    origins = found.origin[order % len(found.origin)].tolist()
    side = (last.size, last.size)
    return Explanation(
        row,
        col,
        (row - (here[0] - corner[0]), col - (here[1] - corner[1])),
        found.shown[order].view(-1, *side).cpu().numpy(),
        found.alpha[order].cpu().numpy(),
        [found.sources[picture] for picture, _, _ in origins],
        [(top, left) for _, top, left in origins],
        (found.pull - found.pull.mean()).view(side).cpu().numpy(),
        found.mean,
        restored.cpu().numpy(),
        float(rest.abs().max()),
        int((found.alpha != 0).sum()),
        found.own,
    )


def _mean(image: Tensor) -> Tensor:
    """The brightness of channels (C, h, w); a plane as it is."""
    return image if image.ndim == 2 else image.mean(0)


def _patch(image: Tensor, corner: tuple[int, ...], size: int) -> Tensor:
    """The patch (size, size) of an image's brightness, which goes on mirrored beyond its borders."""
    rows, cols = (
        (length - 1) - ((length - 1) - torch.arange(start, start + size).abs()).abs()
        for start, length in zip(corner, image.shape[-2:])
    )
    return _mean(image)[rows][:, cols]


def _nearest(starts: list[int], at: int, size: int) -> int:
    """The start of the patch that has a pixel closest to its middle."""
    return min(starts, key=lambda start: (abs(2 * (at - start) - (size - 1)), start))


def _of_paper(stage: Stage, state: State, grid: PatchGrid, band: slice, number: int) -> _Parts:
    """The weights of the paper's stage: its target, before the splitting ties it to x, is Σ αᵢxⁱ plus the mean of x_p.

    With another loss than the squared one the patches pull by their distance too: the pull is the weighted mean alone.
    """
    seen, patch = stage.describe(state.x, grid, band)[number][None], grid.extract(state.x, rows=band)[number].double()
    fitted, bank = stage.prior.fitted, stage.prior.bank
    alpha = fitted.alpha(seen)[0].double()
    clean = fitted.clean.double()
    pull = fitted.moments(seen)[1][0].double() if isinstance(stage.loss, Squared) else alpha @ clean
    sources = tuple(f"images[{n}]" for n in range(int(bank.source[:, 0].max()) + 1))
    return _Parts(
        pull, torch.zeros_like(pull), clean, alpha, bank.clean.double(), bank.source, sources, float(patch.mean()), True
    )


def _of_ridge(stage: CellRidgeStage, model: Model, state: State, grid: PatchGrid, band: slice, number: int) -> _Parts:
    return _of_examples(stage.target(state, grid, band)[number].double(), model, stage.size)


def _of_examples(pull: Tensor, model: Model, size: int) -> _Parts:
    """The most local weights on the model's examples that give a pull (k,), in double precision."""
    examples = model.examples
    if examples is None or examples.size != size:
        raise SlirError("This model carries no examples to explain with: fit it anew with this slir.")
    shown = examples.turned()
    parts = shown - shown.mean(1, keepdim=True)
    mean = pull.mean()
    centred = (pull - mean).cpu()
    alpha = local_weights(centred, parts)
    zero = torch.zeros_like(centred)
    return _Parts(centred, zero, parts, alpha, shown, examples.origin, examples.sources, float(mean), False)
