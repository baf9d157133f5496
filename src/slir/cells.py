"""Cells: a partition of what is seen at a patch, within which one linear map is enough.

A cell is found from the patch of the current estimate z, without its mean, in the orthonormal DCT: f = (side² − 1,).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from slir.mixture import Mixture, QuickLikelihood
from slir.recipes import ROUNDING

WIDTH = 0.02
"""How much likelier, in nats, a patch's cell has to be than the next for the patch to belong to it alone."""

ROOM = 8
"""On a GPU, where sizes have to be known beforehand, one patch in so many may lie between two cells."""

CHUNK = {True: 2048, False: 65536}
"""Rows that are compared with all centres at a time, on a CPU and elsewhere."""


@dataclass(frozen=True)
class Membership:
    """cell: of each row, (P,) int64. between: which rows lie close to the border of another cell, (n,).
    other: that cell, (n,). share: how much it has to say there, (n,), from 0 to ½ at the border itself."""

    cell: Tensor
    between: Tensor
    other: Tensor
    share: Tensor


class Cells(ABC):
    """A partition of feature space into `count` cells."""

    count: int

    @abstractmethod
    def assign(self, features: Tensor) -> Tensor:
        """The cell of each row: (P, d) -> (P,), int64."""

    def members(self, features: Tensor) -> Membership:
        """The same where borders are soft, if this partition has soft ones: (P, d) -> Membership."""
        cell = self.assign(features)
        return Membership(cell, cell[:0], cell[:0], features.new_zeros(0))

    @abstractmethod
    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> Cells:
        """The same cells on a device. moved: what is there already, by the identity of what it was."""


@dataclass(frozen=True)
class OneCell(Cells):
    """No partition: one map for all patches."""

    count = 1

    def assign(self, features: Tensor) -> Tensor:
        return torch.zeros(len(features), dtype=torch.int64, device=features.device)

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> OneCell:
        return self


class ScoredCells(Cells):
    """Cells of which each gives a sample a score; the sample belongs to the cell with the highest one.

    The scale of the scores is that of a log-likelihood: a lead of `WIDTH` is what borders are wide.
    """

    @abstractmethod
    def scores(self, features: Tensor) -> Iterator[Tensor]:
        """The scores of all cells, one chunk of rows after the other: (P, d) -> (K, p) each."""

    def assign(self, features: Tensor) -> Tensor:
        return torch.cat([scores.argmax(0) for scores in self.scores(features)])

    def members(self, features: Tensor) -> Membership:
        """Where a second cell scores nearly as high as the first, both have a say, the second with the share

            s = u₂ / (u₁ + u₂),    u_i = ℓ_i − max(ℓ₃, ℓ₁ − WIDTH), no less than 0

        of the three largest scores ℓ. So it is ½ where the two are equally likely, and 0 where the second is
        about to be another one: what is made of a patch changes steadily with it, and rounding never decides.
        """
        cells, between, others, shares, start = [], [], [], [], 0
        for scores in self.scores(features):
            first, cell = scores.max(0)
            scores.scatter_(0, cell[None], -torch.inf)
            near = _nearest_to_a_border(first - scores.amax(0))
            other, share = _rivals(first[near], scores[:, near])
            cells.append(cell)
            between.append(near + start)
            others.append(other)
            shares.append(share)
            start += len(cell)
        return Membership(*map(torch.cat, (cells, between, others, shares)))


@dataclass(frozen=True)
class MixtureCells(ScoredCells):
    """Cell c where component c of a mixture of clean patches, widened by the estimate's error, is the likeliest:

        c(f) = argmax_c  log π_c + log N(f; 0, Σ_c + E)

    So cells know how far the estimate can be trusted: at large E, fine differences of Σ_c count for nothing. Fine
    coefficients are taken to be independent (`slir.mixture.QuickLikelihood`).

    mixture: of clean patches. error: E (d, d), the covariance of f's error.
    """

    mixture: Mixture
    error: Tensor

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.mixture.weights)

    @cached_property
    def likelihood(self) -> QuickLikelihood:
        return QuickLikelihood(self.mixture.blurred(self.error))

    def scores(self, features: Tensor) -> Iterator[Tensor]:
        """The log-likelihoods of the components."""
        return (self.likelihood(few.T.contiguous()) for few in features.split(self.likelihood.chunk))

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> MixtureCells:
        moved = {} if moved is None else moved
        if id(self.mixture) not in moved:
            moved[id(self.mixture)] = self.mixture.to(device)
        return MixtureCells(moved[id(self.mixture)], self.error.to(device))


def _nearest_to_a_border(lead: Tensor) -> Tensor:
    """Which patches are little likelier in their own cell than in another, from how much they are: (P,) -> (n,)."""
    if lead.device.type == "cpu":
        return (lead < WIDTH).nonzero()[:, 0]
    return lead.topk(-(-len(lead) // ROOM), largest=False).indices


def _rivals(first: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The second likeliest cell and its share: the largest log-likelihood (n,), all others (K, n) -> (n,), (n,)."""
    second, other = others.max(0)
    third = others.scatter(0, other[None], -torch.inf).amax(0)
    beyond = torch.maximum(third, first - WIDTH)
    own, rival = first - beyond, (second - beyond).clamp_(min=0)
    return other, (rival / (own + rival)).nan_to_num_(0.0)


@dataclass(frozen=True)
class NearestCells(ScoredCells):
    """Cell c where centre c is the nearest:  c(f) = argmin_c ‖f − m_c‖.

    The scores are −log(‖f − m_c‖² + r²), with r the length of f's error from rounding to 8 bits. So the width of a
    border is a share of the distance to the centres: dense centres have narrow borders.

    centres: m (K, d), of features of pictures whose range is 1.
    """

    centres: Tensor

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.centres)

    def scores(self, features: Tensor) -> Iterator[Tensor]:
        lengths = self.centres.square().sum(1, keepdim=True)  # (K, 1)
        floor = self.centres.shape[1] * ROUNDING**2
        for few in features.split(CHUNK[features.device.type == "cpu"]):
            squares = torch.addmm(lengths + few.square().sum(1), self.centres, few.T, alpha=-2)
            yield squares.clamp_(min=0).add_(floor).log_().neg_()

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> NearestCells:
        return NearestCells(self.centres.to(device))


def nearest_cells(features: Tensor, count: int, *, rounds: int = 10, generator: torch.Generator) -> NearestCells:
    """k-means by Lloyd's algorithm: features (P, d) -> at most `count` cells.

    The first centres are samples. A centre without members moves to a sample; in the end it is left out.
    """

    def sampled(number: int) -> Tensor:
        return features[torch.randperm(len(features), generator=generator)[:number].to(features.device)]

    cells = NearestCells(sampled(count))
    for _ in range(rounds):
        label = cells.assign(features)
        sums = torch.zeros_like(cells.centres).index_add_(0, label, features)
        sizes = torch.bincount(label, minlength=cells.count)[:, None]
        cells = NearestCells(torch.where(sizes > 0, sums / sizes.clamp(min=1), sampled(cells.count)))
    return NearestCells(cells.centres[torch.bincount(cells.assign(features), minlength=cells.count) > 0])


@dataclass(frozen=True)
class DirectionCells(Cells):
    """k-means on directions up to sign: the nearest of `count` axes, in one of a few bands of contrast.

    axes: (n, d), of unit length. bounds: (b − 1,) increasing limits of ‖f‖² between the bands. count = n·b.
    """

    axes: Tensor
    bounds: Tensor

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.axes) * (len(self.bounds) + 1)

    def assign(self, features: Tensor) -> Tensor:
        nearest = (features @ self.axes.T).abs().argmax(1)
        return nearest + len(self.axes) * torch.bucketize(features.square().sum(1), self.bounds)

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> DirectionCells:
        return DirectionCells(self.axes.to(device), self.bounds.to(device))


def direction_cells(
    features: Tensor, axes: int, *, bands: int = 4, rounds: int = 10, generator: torch.Generator
) -> DirectionCells:
    """Lloyd's algorithm for lines through the origin: features (P, d) -> cells.

    An axis moves to the leading principal direction of its members, found by one step of the power method a round.
    """
    size = features.square().sum(1)
    bounds = torch.quantile(size[:: max(1, len(size) // 100_000)], torch.linspace(0, 1, bands + 1)[1:-1].to(size))
    # Flat patches have no direction: those of the lower half would place axes at random.
    lively = features[size >= size.median()]
    lines = lively / lively.norm(dim=1, keepdim=True).clamp(min=1e-12)
    own = lines[torch.randperm(len(lines), generator=generator)[:axes].to(lines.device)]
    for _ in range(rounds):
        closeness = lines @ own.T
        label = closeness.abs().argmax(1)
        side = closeness.gather(1, label[:, None]).sign()
        moved = torch.zeros_like(own).index_add_(0, label, lines * side)
        length = moved.norm(dim=1, keepdim=True)
        own = torch.where(length > 0, moved / length.clamp(min=1e-12), own)
    return DirectionCells(own, bounds)


@dataclass(frozen=True)
class TreeCells(Cells):
    """A binary tree of quadratic tests, cheap to search: depth · r products in place of one per cell.

    At node n, f goes to the right where Σ_j w_nj (u_njᵀ f)² > b_n. Nodes are numbered as in a heap: the children of n
    are 2n + 1 and 2n + 2, the leaves of a tree of depth D are the cells, 2^D of them.

    directions: u (2^D − 1, r, d). gains: w (2^D − 1, r). bounds: b (2^D − 1,).
    """

    directions: Tensor
    gains: Tensor
    bounds: Tensor

    @property
    def count(self) -> int:  # type: ignore[override]
        return len(self.bounds) + 1

    def assign(self, features: Tensor) -> Tensor:
        node = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        while True:
            if len(features) == 0 or int(node[0]) >= len(self.bounds):
                return node - len(self.bounds)
            order = node.argsort(stable=True)
            first = 2 ** ((int(node[0]) + 1).bit_length() - 1) - 1
            sizes = torch.bincount(node - first, minlength=first + 1).tolist()
            right = torch.empty(len(features), dtype=torch.int64, device=features.device)
            for n, members in enumerate(order.split(sizes), start=first):
                if len(members):
                    test = (features[members] @ self.directions[n].T).square() @ self.gains[n]
                    right[members] = (test > self.bounds[n]).long()
            node = 2 * node + 1 + right

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> TreeCells:
        return TreeCells(self.directions.to(device), self.gains.to(device), self.bounds.to(device))


def tree_cells(
    features: Tensor, depth: int, *, directions: int = 8, rounds: int = 8, generator: torch.Generator
) -> TreeCells:
    """Split by split: a mixture of two Gaussians on the members of a node, halved at the median of its log-odds.

    log N(f; 0, Σ₁) − log N(f; 0, Σ₀) = ½ fᵀ(Σ₀⁻¹ − Σ₁⁻¹)f + const. In the generalised eigenvectors of (Σ₁, Σ₀) the
    form is diagonal; the `directions` that tell the two apart best are kept. The median keeps the tree balanced, so
    that every cell has pairs enough.
    """
    d = features.shape[1]
    nodes, directions = 2**depth - 1, min(directions, d)
    u, w, b = features.new_zeros(nodes, directions, d), features.new_zeros(nodes, directions), features.new_zeros(nodes)
    members = [torch.arange(len(features), device=features.device)]
    for n in range(nodes):
        own = features[members[n]]
        if len(own) >= 4 * d:
            u[n], w[n] = _quadratic_test(own, directions, rounds, generator)
        value = (own @ u[n].T).square() @ w[n]
        b[n] = value.median() if len(own) else 0.0
        right = value > b[n]
        members += [members[n][~right], members[n][right]]
    return TreeCells(u, w, b)


def _quadratic_test(own: Tensor, directions: int, rounds: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The directions and gains that part the rows of `own` (n, d) into two zero-mean Gaussians: (r, d), (r,)."""
    d = own.shape[1]
    both = (own.T @ own).double() / len(own)
    ridge = (1e-3 * both.diagonal().mean() + 1e-30) * torch.eye(d, dtype=both.dtype, device=own.device)
    # Begin with a split by contrast relative to the node's own covariance: that is where patches differ most.
    factor = torch.linalg.cholesky(both + ridge)
    white = torch.linalg.solve_triangular(factor, own.T.double(), upper=False)
    lead = white.square()[: max(1, d // 4)].sum(0) - white.square()[max(1, d // 4) :].sum(0) / 3
    share = (lead > lead.median()).double()
    for _ in range(rounds):
        parts = []
        for weight in (1 - share, share):
            mass = weight.sum().clamp(min=1.0)
            parts.append(((own.double() * weight[:, None]).T @ own.double() + d * (both + ridge)) / (mass + d))
        low, high = (torch.linalg.cholesky(part) for part in parts)
        odds = own.new_zeros(len(own), dtype=torch.float64)
        for sign, root in ((-1.0, high), (1.0, low)):
            white = torch.linalg.solve_triangular(root, own.T.double(), upper=False)
            odds += sign * (0.5 * white.square().sum(0) + root.diagonal().log().sum())
        share = torch.sigmoid(odds + torch.log(share.mean() / (1 - share.mean()).clamp(min=1e-6)))
        share = share.clamp(1e-6, 1 - 1e-6)
    # Generalised eigenvectors: Σ₁ v = μ Σ₀ v. The log-odds are ½ Σ (1 − 1/μ)(vᵀf)² + const.
    inverse = torch.linalg.inv(low)
    values, vectors = torch.linalg.eigh(inverse @ parts[1] @ inverse.T)
    worth = (1 - 1 / values) * values.sqrt()  # by how much a direction moves the odds, up to sign
    kept = worth.abs().argsort(descending=True)[:directions]
    return (inverse.T @ vectors)[:, kept].T.to(own), (0.5 * (1 - 1 / values))[kept].to(own)
