"""Self-similarity within an image: patches that look alike are found, then filtered together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.compute import chunks, rows_that_fit
from slir.errors import InputError
from slir.patches import PatchGrid

TILE = {"cpu": (28, 56), "cuda": (224, 224)}
"""Rows and columns of the tiles that `match` works on: smaller ones overlap more, larger ones leave a CPU's caches."""

GROUPS = 1024
"""Groups that `collaborate` filters at a time on a CPU, whose caches they should not leave."""

BAND = 64
"""Fewest rows of references that `collaborate` takes at a time."""

FADE = 0.05
"""Share of the distance to the first patch outside a group within which its members fade out."""

SIDE = 18
"""Largest matrices that `_root_of_inverse` takes whole: smaller ones cost more steps, larger ones more passes."""


@dataclass(frozen=True)
class _Run:
    """Some of the references along one axis, evenly apart.

    part: which ones. starts: their first pixels, (n,). pixels: those that they cover, m of them.
    outside: whether the candidate at start + offset leaves the image, (n, 2·reach + 1); None where none does.
    """

    part: slice
    starts: Tensor
    pixels: slice
    outside: Tensor | None


def _runs(starts: list[int], length: int, size: int, stride: int, reach: int, most: int, like: Tensor) -> list[_Run]:
    """The references along an axis of `length` pixels, at most `most` at a time."""
    even = len(starts)
    if even > 1 and starts[-1] - starts[-2] < stride:
        even -= 1  # the last lies off the stride: a run of its own
    runs = []
    for part in (*chunks(even, most), *([slice(even, len(starts))] if even < len(starts) else [])):
        first, last = starts[part][0], starts[part][-1]
        # Counted out on the device, which then need not wait for a list of them.
        own = torch.arange(first, last + 1, stride, device=like.device)
        outside = None
        if first < reach or last + reach > length - size:
            candidates = own[:, None] + torch.arange(-reach, reach + 1, device=like.device)
            outside = (candidates < 0) | (candidates > length - size)
        runs.append(_Run(part, own, slice(first, last + size), outside))
    return runs


@torch.no_grad()
def match(pilot: Tensor, *, size: int = 8, radius: int = 16, stride: int = 3, count: int = 16) -> tuple[Tensor, Tensor]:
    """The patches of an image that look most like each reference patch: (H, W) -> (G, count) int32, (G, count + 1).

        d(p, q) = ‖x_p − x_q‖²,  q within `radius` rows and columns of p

    The references p are the patches of `PatchGrid((H, W), size, stride)`, row by row. A patch is named by its first
    pixel, row · W + column. Each group begins with its reference, then come the others by distance, ties in no
    particular order. A reference with fewer than `count` candidates, itself included, repeats them in turn.

    The second result are the distances: −1 for the reference, then by size, the last one that of the nearest patch
    outside the group; infinite where a member is repeated or none is outside. `faded` makes weights of them.

    Works in tiles of so many pixels at most, so memory does not grow with the image. In a tile the squared differences
    for all offsets are summed over the patches' rows and then over their columns: more additions than a running sum
    has, but at the references alone, and without ever subtracting.
    """
    height, width = pilot.shape
    grid = PatchGrid((height, width), size, stride)
    if radius < 0:
        raise InputError("radius", "be at least 0", radius, "0 finds the reference alone.")
    if count < 1:
        raise InputError("count", "be at least 1", count, "Each group holds its reference at least.")
    up, left = min(radius, height - size), min(radius, width - size)  # farther candidates never fit
    tall, wide = 2 * up + 1, 2 * left + 1
    # Squared differences, summed over rows, and over columns too: three arrays at most as large as the first.
    side = isqrt(rows_that_fit(3 * tall * wide * pilot.element_size(), pilot.device))
    shape = TILE.get(pilot.device.type, TILE["cpu"])
    rows, cols = (
        _runs(starts, length, size, stride, reach, max(1, (min(most, side) - size) // stride + 1), pilot)
        for starts, length, reach, most in zip(grid.starts, pilot.shape, (up, left), shape)
    )
    # What lies around each pixel, a view (H, W, tall, wide). The padding only keeps it whole: see `outside`.
    around = F.pad(pilot, (left, left, up, up)).unfold(0, tall, 1).unfold(1, wide, 1)
    groups = torch.empty(*map(len, grid.starts), count, dtype=torch.int32, device=pilot.device)
    distances = pilot.new_empty(*groups.shape[:2], count + 1)
    for row, col in product(rows, cols):
        found = _match_tile(pilot, around, row, col, size, stride, count)
        groups[row.part, col.part], distances[row.part, col.part] = found
    return groups.flatten(0, 1), distances.flatten(0, 1)


def _match_tile(
    pilot: Tensor, around: Tensor, row: _Run, col: _Run, size: int, stride: int, count: int
) -> tuple[Tensor, Tensor]:
    """The groups of the references in `row` × `col`, (n, n′, count), and their distances, (n, n′, count + 1)."""
    near, here = around[row.pixels, col.pixels], pilot[row.pixels, col.pixels, None, None]
    tall, wide = near.shape[2:]
    # Into an array of our own, since the result would otherwise take its layout from the overlapping view.
    apart = pilot.new_empty(near.shape)
    torch.ops.aten.mse_loss.out(near, here.expand(near.shape), 0, out=apart)  # differences and squares in one pass
    summed = apart.unfold(0, size, stride).sum(-1)  # (n, m′, tall, wide)
    distances = summed.unfold(1, size, stride).sum(-1)  # (n, n′, tall, wide)
    if row.outside is not None:
        distances.masked_fill_(row.outside[:, None, :, None], torch.inf)
    if col.outside is not None:
        distances.masked_fill_(col.outside[:, None, :], torch.inf)
    distances[:, :, tall // 2, wide // 2] = -1  # the reference comes before its exact copies
    nearest, offsets = distances.flatten(2).topk(min(count + 1, tall * wide), largest=False)
    found = nearest.isfinite().sum(2, keepdim=True)
    offsets = offsets.gather(2, torch.arange(count, device=pilot.device) % found)
    nearest = F.pad(nearest, (0, count + 1 - nearest.shape[2]), value=torch.inf)
    width = pilot.shape[1]
    first = (row.starts - tall // 2)[:, None] * width + (col.starts - wide // 2)  # the window's corner, (n, n′)
    return first[:, :, None] + offsets // wide * width + offsets % wide, nearest


def faded(distances: Tensor, same: float = 0.0) -> Tensor:
    """How much each member of a group counts: (G, count + 1) distances from `match` -> (G, count) weights.

        w_i = (d − d_i) / (δd + same), between 0 and 1,    d the distance of the nearest patch outside, δ = `FADE`

    A member that is about to leave the group counts for nothing already. So groups change steadily with the image, and
    rounding never decides. Weights are 1 where nothing is left outside.

    same: a distance so small that nobody could tell the patches apart. Where all are that near, which of them make up
    the group would be chance, and the reference stays alone.
    """
    beyond = distances[:, -1:]
    return ((beyond - distances[:, :-1]) / (FADE * beyond + same)).nan_to_num_(1.0, posinf=1.0).clamp_(0, 1)


@torch.no_grad()
def collaborate(
    noisy: Tensor,
    pilot: Tensor,
    groups: Tensor,
    variance: float | Tensor,
    *,
    size: int = 8,
    weights: Tensor | None = None,
) -> Tensor:
    """Groups of similar patches as samples of a Gaussian: (H, W), (H, W) -> (H, W).

        ŷ = ȳ_g + C_g (C_g + σ²I)⁻¹ (y − ȳ_g),    C_g = Cov(x_g)

    with y_g and x_g the (count, size²) patches of `noisy` and `pilot` in group g, and ȳ_g the mean of the first. It is
    the regression of clean on noisy patches that one would learn from a bank of the pilot's own patches x_g, seen
    through white noise of variance σ² (Lebrun, Buades & Morel, 2013, second step). A pixel becomes the mean of what
    the groups say of it, group g with weight 1/(1 + tr C_g(C_g + σ²I)⁻¹): by how few degrees of freedom its noise
    passes. Where no patch lies the pilot stays.

    groups: (G, count) first pixels, from `match` with the same `size`; more than size² of them tell a Gaussian best.
    variance: σ², one number. 0 gives back `noisy`.
    weights: how much each member counts, in means, covariances and in what becomes of its pixels; None is 1 for all.
    """
    return _collaborated(noisy, pilot, groups, float(variance), size, weights, False)[0]


@torch.no_grad()
def collaborate_and_tell(
    noisy: Tensor,
    pilot: Tensor,
    groups: Tensor,
    variance: float | Tensor,
    *,
    size: int = 8,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`collaborate`, and what it leaves open: (H, W), (H, W).

        diag σ²C_g(C_g + σ²I)⁻¹,  the variance of x given y in the Gaussian of group g

    of each pixel, the mean over the groups with the same weights as their estimates; σ² where no patch lies.
    """
    found, spread = _collaborated(noisy, pilot, groups, float(variance), size, weights, True)
    assert spread is not None  # it was asked for
    return found, spread


def _collaborated(
    noisy: Tensor, pilot: Tensor, groups: Tensor, variance: float, size: int, weights: Tensor | None, tell: bool
) -> tuple[Tensor, Tensor | None]:
    if noisy.shape != pilot.shape:
        rule = f"have the noisy image's shape, {tuple(noisy.shape)}"
        raise InputError("pilot", rule, tuple(pilot.shape), "Pass two versions of one image.")
    (height, width), k = noisy.shape, size**2
    total, weight = torch.zeros_like(noisy), torch.zeros_like(noisy)
    passed = torch.zeros_like(noisy) if tell else None
    weights = noisy.new_ones(groups.shape) if weights is None else weights
    # Patches are copied out of a band of rows at a time: three images of them, which groups then take whole rows from.
    # A band reaches beyond its references as far as matches lie, so thin ones would copy most rows again and again.
    rows = max(BAND, rows_that_fit((4 if tell else 3) * width * k * noisy.element_size(), noisy.device))
    for band in chunks(len(groups), max(1, len(groups) * rows // height)):
        own = groups[band]
        first, last = 0, height
        if len(own) < len(groups):
            first, last = int(own.min()) // width, int(own.max()) // width + size
        taken, trust, let_pass = _filtered(
            noisy[first:last], pilot[first:last], own - first * width, weights[band], variance, size, tell
        )
        total[first:last] += taken
        weight[first:last] += trust
        if passed is not None and let_pass is not None:
            passed[first:last] += let_pass
    found = torch.where(weight > 0, noisy - total / weight, pilot)
    return found, None if passed is None else torch.where(weight > 0, variance * passed / weight, variance)


def _filtered(
    noisy: Tensor, pilot: Tensor, groups: Tensor, weights: Tensor, variance: float, size: int, tell: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the filter takes away from a band of rows, summed with each group's weight; these weights, summed; and, if
    it is to tell, the share of a pixel's noise that it lets pass, summed with them too.

    What it takes away, σ²(C + σ²I)⁻¹(y − ȳ), and not what it leaves: sums of it round far less than sums of whole
    patches, and σ² = 0 takes away exactly nothing.
    """
    grid = PatchGrid((noisy.shape[0], noisy.shape[1]), size)
    across = len(grid.starts[1])
    count, k, rounding = groups.shape[1], size**2, torch.finfo(noisy.dtype)
    planes = grid.extract(noisy), grid.extract(pilot)  # (P, k)
    total, weight = noisy.new_zeros(len(grid), k), noisy.new_zeros(len(grid))
    passed = noisy.new_zeros(len(grid), k) if tell else None
    fitting = rows_that_fit((4 * count + 6 * k) * k * noisy.element_size(), noisy.device)
    for part in chunks(len(groups), min(fitting, GROUPS) if noisy.device.type == "cpu" else fitting):
        starts = groups[part].long()
        patches = (starts - starts // noisy.shape[1] * (noisy.shape[1] - across)).flatten()  # as the grid counts them
        y, x = (plane.index_select(0, patches).view(-1, count, k) for plane in planes)
        share = weights[part, :, None]
        mass = share.sum(1)  # (n, 1)
        for members, scale in ((y, share), (x, share.sqrt())):
            members.sub_((share.mT @ members).div_(mass[:, None])).mul_(scale)
        mass = mass[:, 0]
        ratio = x.mT @ x  # mass · C, (n, k, k); then I + C/σ²
        diagonal = ratio.diagonal(dim1=1, dim2=2)
        # σ², but no less than what rounding may add to C, so that C + σ²I stays positive definite.
        floor = (32 * rounding.eps / mass * diagonal.sum(1)).clamp_(min=max(variance, rounding.tiny))  # (n,)
        ratio.div_((mass * floor)[:, None, None])
        diagonal.add_(1)
        root = _root_of_inverse(ratio)
        taken = root.mT @ root  # (I + C/σ²)⁻¹
        passes = (1 - taken.diagonal(dim1=1, dim2=2)).clamp_(min=0)  # (n, k)
        trust = 1 / (1 + passes.sum(1))  # (n,)
        taken.mul_((variance * trust / floor)[:, None, None])
        everywhere = patches[:, None].expand(-1, k)
        total.scatter_add_(0, everywhere, (y @ taken).view(-1, k))
        counts = trust[:, None] * weights[part]  # (n, count)
        weight.scatter_add_(0, patches, counts.flatten())
        if passed is not None:
            passed.scatter_add_(0, everywhere, (counts[:, :, None] * passes[:, None]).view(-1, k))
    return grid.assemble(total), grid.assemble(weight[:, None]), None if passed is None else grid.assemble(passed)


def _root_of_inverse(matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Lower triangular R with RᵀR = A⁻¹, for matrices A ⪰ I: (n, k, k) -> (n, k, k), by halves. With L = B R₁ᵀ,

        A = [A₁ Bᵀ; B A₂],    R = [R₁ 0; −R₂ L R₁, R₂],    R₂ᵀR₂ = (A₂ − LLᵀ)⁻¹

    On a CPU libraries factor such small matrices one by one; here a step is taken for all of them together.
    out: zeros, where R goes.
    """
    k = matrices.shape[1]
    if matrices.device.type != "cpu":
        return torch.linalg.solve_triangular(
            torch.linalg.cholesky_ex(matrices).L,
            torch.eye(k, dtype=matrices.dtype, device=matrices.device),
            upper=False,
        )
    root = torch.zeros_like(matrices) if out is None else out
    if k <= SIDE:
        return root.copy_(_eliminated(matrices))
    first, last = slice(0, k // 2), slice(k // 2, k)
    upper = _root_of_inverse(matrices[:, first, first], root[:, first, first])
    left = matrices[:, last, first] @ upper.mT
    rest = torch.baddbmm(matrices[:, last, last], left, left.mT, alpha=-1)
    lower = _root_of_inverse(rest, root[:, last, last])
    torch.neg((lower @ left) @ upper, out=root[:, last, first])
    return root


def _eliminated(matrices: Tensor) -> Tensor:
    """The same by Gaussian elimination: one pass over all n for each column. A becomes DL⁻¹, in place, with D = diag.

    As A ⪰ I, so is what is left of it at any step: a pivot that is not above 1 has nothing but rounding beside it.
    """
    a = matrices.permute(1, 2, 0).clone(memory_format=torch.contiguous_format)  # one matrix beside the other
    share = torch.empty_like(a[0])
    for j, row in enumerate(a):
        inverse = F.threshold(row[j], 1.0, torch.inf).reciprocal_()
        torch.mul(row, inverse, out=share)
        share[j] = inverse
        below = a[j + 1 :]
        below[:, j] = 0  # from here on L⁻¹'s column, which begins as that of I
        below.addcmul_(row[j + 1 :, None], share[None], value=-1)  # the row is the column, as A is symmetric
        row[j + 1 :] = 0
    pivots = a.diagonal().T
    scale = pivots.clamp(min=1).rsqrt_()
    pivots.fill_(1)
    return a.mul_(scale[:, None]).permute(2, 0, 1)
