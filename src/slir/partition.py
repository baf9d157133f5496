"""Cells for every stage of a cascade: found once on clean patches, in each case's unit, then widened by each stage's
error."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from slir.carrying import clean_patches, shape_of
from slir.cascade import cell_features
from slir.cells import Cells, MixtureCells, OneCell, direction_cells, tree_cells
from slir.crews import Crew
from slir.mixture import Mixture, fit_mixture
from slir.plans import Plan


class Partition:
    """From clean patches, equally many of each case, drawn with replacement."""

    def __init__(self, crew: Crew, plan: Plan, generator: torch.Generator, device: torch.device):
        shapes = crew.ask(shape_of)
        each = -(-plan.patches // len(shapes))
        places = []
        for shape in shapes:
            limits = (length - plan.size + 1 for length in shape)
            places.append(tuple(torch.randint(limit, (each,), generator=generator) for limit in limits))
        self.clean = torch.cat(crew.ask(clean_patches, plan.size, each=places)).to(device)
        self.plan, self.generator = plan, generator

    @cached_property
    def mixture(self) -> Mixture:
        features = cell_features(self.clean).T.contiguous()
        count = min(self.plan.cells, max(1, features.shape[1] // (8 * self.plan.size**2)))
        return fit_mixture(features, count, rounds=25, generator=self.generator)[0]

    def of(self, patches: Tensor) -> Tensor:
        """Which of the mixture's components clean patches (P, k), in units, belong to; one where none is used."""
        if "mixture" not in self.__dict__:
            return torch.zeros(len(patches), dtype=torch.int64)
        patches = patches.to(self.clean.device)
        error = torch.zeros(patches.shape[1] - 1, patches.shape[1] - 1).to(patches)
        return MixtureCells(self.mixture, error).assign(cell_features(patches)).cpu()

    def at(self, kind: str, error: Tensor) -> Cells:
        """error: the covariance (d, d) of the current estimate's error, in units."""
        cells = self.plan.cells
        if kind == "one" or cells == 1:
            return OneCell()
        if kind == "mixture":
            return MixtureCells(self.mixture, error)
        root = torch.linalg.cholesky(error.double() + 1e-9 * error.trace() * torch.eye(len(error)).to(error.double()))
        noise = torch.randn(len(self.clean), len(error), generator=self.generator).to(self.clean)
        seen = cell_features(self.clean) + noise @ root.T.to(noise)
        if kind == "tree":
            return tree_cells(seen, max(1, round(np.log2(cells))), generator=self.generator)
        return direction_cells(seen, max(1, cells // 4), generator=self.generator)
