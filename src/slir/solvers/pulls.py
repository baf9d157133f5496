"""The sums over the bank that a step of Weiszfeld's needs, tile by tile, so that they stay in a core's cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from slir.compute import columns_in_cache
from slir.losses import Euclidean, Huber, Loss

GROUP = 8
"""Bank patches of which only the hardest pull is kept while it is looked for."""

LANES = 8 * GROUP
"""Tiles are multiples of this, so that maxima over groups fill a CPU's vectors."""


@dataclass(frozen=True)
class Targets:
    """The bank, ready for distances by one matrix product and cut into tiles.

    bank: (m, k), m a multiple of GROUP. Best centred: small norms, less cancellation in the distances.
    tiles: slices of it, each a multiple of GROUP long.
    """

    bank: Tensor
    tiles: tuple[slice, ...]

    @classmethod
    def of(cls, bank: Tensor, rows: int) -> Targets:
        """For `rows` patches at a time. Patches at 0 are appended to the bank, which are to have no weight."""
        bank = pad(bank, (0, 0, 0, -len(bank) % GROUP))
        width = max(1, columns_in_cache(rows, bank) // LANES) * LANES
        return cls(bank, tuple(slice(i, min(i + width, len(bank))) for i in range(0, len(bank), width)))

    @cached_property
    def lifted(self) -> Tensor:
        """(m, k + 2): [xⁱ, ‖xⁱ‖², 1], whose product with [−2z, 1, ‖z‖²] is the squared distance."""
        return torch.cat([self.bank, self.norms[:, None], torch.ones_like(self.norms[:, None])], 1)

    @cached_property
    def norms(self) -> Tensor:
        return self.bank.square().sum(1)

    @cached_property
    def rounding(self) -> float:
        """The distance below which a matrix product says nothing: about √ε‖xⁱ‖, 10⁻³ in float32."""
        return float((4 * torch.finfo(self.bank.dtype).eps * self.norms.max()) ** 0.5)


@dataclass(frozen=True)
class Sums:
    """Over the bank, for each z: stiffness Σwᵢ (c, 1), moment Σwᵢxⁱ (c, k), spread Σwᵢdᵢ² (c, 1).

    peaks: the largest w of each group (c, groups), or nothing where anchors are not looked for. points: what gave the
    distances (c, k + 2).
    """

    stiffness: Tensor
    moment: Tensor
    spread: Tensor
    peaks: Tensor
    points: Tensor


@dataclass(frozen=True)
class Anchor:
    """The bank patch that pulls the hardest (c, k), its α (c, 1); stiffness and moment of all others."""

    patch: Tensor
    hold: Tensor
    rest: Tensor
    moment: Tensor


@dataclass(frozen=True)
class Pulls:
    """How the bank pulls at some patches: wᵢ = αᵢ φ′(dᵢ)/dᵢ, summed.

    alpha: (c, m); total: its sums (c,). tiles: those that count; dropped: the part of total in those that do not (c,).
    """

    loss: Loss
    targets: Targets
    alpha: Tensor
    total: Tensor
    tiles: tuple[slice, ...]
    dropped: Tensor

    @classmethod
    def of(cls, loss: Loss, targets: Targets, alpha: Tensor, negligible: Tensor) -> Pulls:
        """Tiles are left out as long as no patch loses more than `negligible` (c,) of its Σα."""
        if alpha.shape[1] < len(targets.bank):
            alpha = pad(alpha, (0, len(targets.bank) - alpha.shape[1]))
        mass = torch.stack([alpha[:, tile].sum(1) for tile in targets.tiles], 1)  # (c, tiles)
        share = mass / negligible[:, None].clamp_min(torch.finfo(mass.dtype).tiny)
        order = share.amax(0).argsort()
        few = int((share[:, order[:-1]].cumsum(1).amax(0) <= 1).sum())  # one tile stays, whatever it is worth
        tiles = tuple(targets.tiles[i] for i in sorted(order[few:].tolist()))
        return cls(loss, targets, alpha, mass.sum(1), tiles, mass[:, order[:few]].sum(1))

    def of_rows(self, rows: Tensor) -> Pulls:
        """The same for some of the patches."""
        return replace(self, alpha=self.alpha[rows], total=self.total[rows], dropped=self.dropped[rows])

    @property
    def floor(self) -> float:
        """Patches nearer than this pull as if at this distance."""
        loss = self.loss
        return max(loss.delta if isinstance(loss, Huber) else loss.floor, self.targets.rounding)

    def at(self, z: Tensor, *, peaked: bool) -> Sums:
        """All sums at z (c, k), by one pass over the tiles; peaked: also what it takes to find anchors."""
        bank, lifted, norms = self.targets.bank, self.targets.lifted, self.targets.norms
        widths = [tile.stop - tile.start for tile in self.tiles]
        own = z.square().sum(1)
        points = torch.cat([-2 * z, torch.ones_like(own[:, None]), own[:, None]], 1)
        moment, stiffness, weighted = torch.zeros_like(z), torch.zeros_like(own), torch.zeros_like(own)
        peaks = z.new_empty(len(z), sum(widths) // GROUP if peaked else 0)
        buffer, first = z.new_empty(len(z) * max(widths)), 0
        for tile, width in zip(self.tiles, widths):
            pull = buffer[: len(z) * width].view(len(z), width)
            self._weigh(torch.mm(points, lifted[tile].T, out=pull), self.alpha[:, tile])
            # One product with `lifted` would give all three sums, and take longer: products like widths of 8, 16, 64.
            moment.addmm_(pull, bank[tile])
            weighted.addmv_(pull, norms[tile])
            stiffness += pull.sum(1)
            if peaked:
                last = first + width // GROUP
                torch.amax(pull.unflatten(1, (GROUP, -1)), 1, out=peaks[:, first:last])
                first = last
        spread = (weighted - 2 * (z * moment).sum(1) + stiffness * own).clamp_min_(0)
        return Sums(stiffness[:, None], moment, spread[:, None], peaks, points)

    def anchor(self, sums: Sums, z: Tensor, rows: Tensor) -> Anchor:
        """Which patch pulls the hardest at some of the z."""
        # A maximum and its place take ten times as long as the maximum alone. So: maxima of groups, then the place.
        grip, group = sums.peaks[rows].max(1, keepdim=True)
        members = self._members[group[:, 0]]  # (c, GROUP)
        alpha = self.alpha[rows[:, None], members]
        points = sums.points[rows]
        place = self._weigh((self.targets.lifted[members] @ points[:, :, None])[:, :, 0], alpha).argmax(1, keepdim=True)
        patch, hold = self.targets.bank[members.gather(1, place)[:, 0]], alpha.gather(1, place)
        rest = (sums.stiffness[rows] - grip).clamp_min_(0)
        moment = torch.addcmul(sums.moment[rows], grip, patch, value=-1)
        on = (torch.linalg.vector_norm(z[rows] - patch, dim=1) <= self.floor).nonzero()[:, 0]
        if len(on):
            hold[on], rest[on], moment[on] = self._without_copies(rows[on], points[on], hold[on])
        return Anchor(patch, hold, rest, moment)

    def _weigh(self, squared: Tensor, alpha: Tensor) -> Tensor:
        """Squared distances to weights w, in place."""
        squared.clamp_min_(self.floor**2)
        if isinstance(self.loss, Euclidean | Huber):  # 1/d beyond the floor, and no temporaries
            return squared.rsqrt_().mul_(alpha)
        return torch.mul(alpha, self.loss.weight(squared.sqrt_()), out=squared)

    @cached_property
    def _members(self) -> Tensor:
        """Which bank patches each group holds: (groups, GROUP)."""
        device = self.alpha.device
        return torch.cat([torch.arange(t.start, t.stop, device=device).view(GROUP, -1).T for t in self.tiles])

    def _without_copies(self, rows: Tensor, points: Tensor, hold: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where z lies on its anchor, all patches that are as near count as copies of it, as far as can be told."""
        alpha, lifted = self.alpha[rows], self.targets.lifted
        pull = points @ lifted.T
        copies = pull <= self.floor**2
        pull = self._weigh(pull, alpha).masked_fill_(copies, 0)
        hold = torch.maximum((alpha * copies).sum(1, keepdim=True), hold)
        return hold, pull.sum(1, keepdim=True), pull @ self.targets.bank
