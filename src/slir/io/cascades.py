"""Learnt stages <-> tensors and JSON.

Maps differ little from cell to cell, so a file may hold them by rank: W_c ≈ W̄ + A_c B_c, with as few columns in A_c as
keep the mean square of (W_c − W̄ − A_c B_c)ᵀf, over the training's f and all cells, below a tolerance. With
LLᵀ = E[f fᵀ] those are the leading singular vectors of Lᵀ(W_c − W̄). In half precision, each feature's row is brought to
size one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slir.cascade import BankWeights, CellMaps, LearntStage, Regression
from slir.cells import Cells, DirectionCells, MixtureCells, NearestCells, OneCell, TreeCells
from slir.mixture import Mixture
from slir.views import view_from
from slir.weights import WEIGHTS

Tensors = dict[str, Tensor]


class Packer:
    """Gathers tensors under names; what stages share is stored once."""

    def __init__(self, *, tolerance: float = 0.0, half: bool = False):
        self.tensors: Tensors = {}
        self.tolerance, self.half = tolerance, half
        self._mixtures: list[Mixture] = []

    def stage(self, stage: LearntStage, name: str) -> dict[str, Any]:
        own = {"error": stage.error, "level": stage.level, "size": stage.size, "stride": stage.stride}
        views = [view.settings() for view in stage.views]
        return {"kind": "learnt", **own, "views": views, "regression": self._regression(stage, name)}

    def _regression(self, stage: LearntStage, name: str) -> dict[str, Any]:
        regression = stage.regression
        if isinstance(regression, BankWeights):
            self._put(f"{name}.features", regression.features)
            self._put(f"{name}.wanted", regression.wanted)
            return {"kind": "bank", "weights": regression.weights.settings()}
        assert isinstance(regression, CellMaps)  # there are these two
        self._maps(regression, name, self.tolerance * stage.error**2)
        return {"kind": "cells", "cells": self._cells(regression.cells, name)}

    def _maps(self, regression: CellMaps, name: str, tolerance: float) -> None:
        """tolerance: mean square per pixel that may be lost, in units."""
        maps, moment = regression.maps.cpu(), regression.moment.cpu()
        scale = moment.diagonal().sqrt().clamp(min=1e-6)  # (d,)
        self._put(f"{name}.scale", scale)
        scale = (scale if self.half else torch.ones_like(scale))[:, None]
        if tolerance > 0 and len(maps) > 1:
            mean = maps.mean(0)
            left, right, ranks = _factors(maps - mean, moment, tolerance)
            if left.numel() + right.numel() + mean.numel() < maps.numel():
                self._put(f"{name}.mean", mean * scale, self.half)
                self._put(f"{name}.left", left * scale[:, 0], self.half)
                self._put(f"{name}.right", right, self.half)
                self._put(f"{name}.ranks", ranks)
                return
        self._put(f"{name}.maps", maps * scale, self.half)

    def _cells(self, cells: Cells, name: str) -> dict[str, Any]:
        if isinstance(cells, MixtureCells):
            number = next((i for i, known in enumerate(self._mixtures) if known is cells.mixture), None)
            if number is None:
                number = len(self._mixtures)
                self._mixtures.append(cells.mixture)
                self._put(f"mixture{number}.weights", cells.mixture.weights)
                self._put(f"mixture{number}.axes", cells.mixture.axes, self.half)
                self._put(f"mixture{number}.spread", cells.mixture.spread)
            self._put(f"{name}.error", cells.error)
            return {"kind": "mixture", "mixture": number}
        if isinstance(cells, TreeCells):
            for part in ("directions", "gains", "bounds"):
                self._put(f"{name}.{part}", getattr(cells, part))
            return {"kind": "tree"}
        if isinstance(cells, NearestCells):
            self._put(f"{name}.centres", cells.centres)
            return {"kind": "nearest"}
        if isinstance(cells, DirectionCells):
            for part in ("axes", "bounds"):
                self._put(f"{name}.{part}", getattr(cells, part))
            return {"kind": "directions"}
        return {"kind": "one"}

    def _put(self, name: str, tensor: Tensor, half: bool = False) -> None:
        # A copy: stages may share tensors, and a safetensors file may not.
        self.tensors[name] = (tensor.half() if half else tensor).detach().cpu().clone().contiguous()


def _factors(maps: Tensor, moment: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """maps (C, d, k) ≈ A_c B_c: the columns of all A_c (r, d), the rows of all B_c (r, k), how many each cell has."""
    diagonal = moment.diagonal()
    root = torch.linalg.cholesky((moment + torch.diag(1e-6 * diagonal + 1e-12 * diagonal.mean())).double())
    u, s, vh = torch.linalg.svd(root.T @ maps.double(), full_matrices=False)
    rising = s.flatten().sort().values
    lost = rising.square().cumsum(0) / (len(maps) * maps.shape[2])
    kept = s >= rising[min(int((lost <= tolerance).sum()), len(lost) - 1)]  # (C, r): the largest, wherever they are
    left = torch.linalg.solve_triangular(root.T, u * s[:, None, :], upper=True)
    return left.mT[kept].float(), vh[kept].float(), kept.sum(1).to(torch.int32)


class Unpacker:
    """Makes stages again; a mixture that several share is made once."""

    def __init__(self, tensors: Tensors):
        self.tensors = tensors
        self._mixtures: dict[int, Mixture] = {}

    def stage(self, own: dict[str, Any], name: str) -> LearntStage:
        views = tuple(view_from(settings) for settings in own["views"])
        rest = {key: own[key] for key in ("error", "level", "size", "stride")}
        return LearntStage(self._regression(own["regression"], name), views, **rest)

    def _regression(self, own: dict[str, Any], name: str) -> Regression:
        if own["kind"] == "bank":
            settings = dict(own["weights"])
            weights = WEIGHTS[settings.pop("kind")](**settings)
            return BankWeights(weights, self._get(f"{name}.features"), self._get(f"{name}.wanted"))
        scale = self._get(f"{name}.scale")
        if f"{name}.maps" in self.tensors:
            maps, half = self._get(f"{name}.maps"), self.tensors[f"{name}.maps"].dtype == torch.float16
        else:
            left, right = self._get(f"{name}.left"), self._get(f"{name}.right")
            ranks = self.tensors[f"{name}.ranks"].tolist()
            mean, half = self._get(f"{name}.mean"), self.tensors[f"{name}.mean"].dtype == torch.float16
            maps = torch.stack([mean + a.T @ b for a, b in zip(left.split(ranks), right.split(ranks))])
        maps = maps / scale[:, None] if half else maps
        # The whole moment was needed to make the file small; a file keeps its diagonal.
        return CellMaps(self._cells(own["cells"], name), maps, torch.diag(scale.square()))

    def _cells(self, own: dict[str, Any], name: str) -> Cells:
        if own["kind"] == "mixture":
            number = own["mixture"]
            if number not in self._mixtures:
                parts = (self._get(f"mixture{number}.{part}") for part in ("weights", "axes", "spread"))
                self._mixtures[number] = Mixture(*parts)
            return MixtureCells(self._mixtures[number], self._get(f"{name}.error"))
        if own["kind"] == "tree":
            return TreeCells(*(self._get(f"{name}.{part}") for part in ("directions", "gains", "bounds")))
        if own["kind"] == "nearest":
            return NearestCells(self._get(f"{name}.centres"))
        if own["kind"] == "directions":
            return DirectionCells(*(self._get(f"{name}.{part}") for part in ("axes", "bounds")))
        return OneCell()

    def _get(self, name: str) -> Tensor:
        return self.tensors[name].float()
