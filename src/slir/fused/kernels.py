"""The Triton kernels. A program has a block of patches and goes over the bank tile by tile."""

from __future__ import annotations

import triton
import triton.language as tl

LEAST = tl.constexpr(1e-30)


@triton.jit
def _scores(seen, features, bias, rows, columns, real, DEEP: tl.constexpr, PART: tl.constexpr):
    """log₂ of the kernel, up to a number for each row: φᵀφⁱ − ‖φⁱ‖²/2, a tile of patches × bank."""
    scores = tl.load(bias + columns)[None, :]
    part = tl.arange(0, PART)
    for start in tl.static_range(0, DEEP, PART):
        own = tl.load(seen + rows[:, None] * DEEP + (start + part)[None, :], mask=real[:, None], other=0.0)
        theirs = tl.load(features + columns[:, None] * DEEP + (start + part)[None, :])
        scores += tl.dot(own, tl.trans(theirs))
    return scores


@triton.jit
def moments_kernel(
    seen, features, bias, clean, out, count, bank,
    DEEP: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """out (P, WIDE) = Σᵢ αᵢ xⁱ: attention, with a running maximum of the scores."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = rows < count
    inside, across = tl.arange(0, TILE), tl.arange(0, WIDE)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    mass = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK, WIDE], tl.float32)
    for start in range(0, bank, TILE):
        columns = start + inside
        scores = _scores(seen, features, bias, rows, columns, real, DEEP, PART)
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None]).to(tl.float16)
        shrink = tl.exp2(highest - higher)
        patches = tl.load(clean + columns[:, None] * WIDE + across[None, :])
        mass = mass * shrink + tl.sum(weights.to(tl.float32), 1)
        summed = tl.dot(weights, patches, summed * shrink[:, None])
        highest = higher
    tl.store(out + rows[:, None] * WIDE + across[None, :], summed / mass[:, None], mask=real[:, None])


@triton.jit
def mass_kernel(
    seen, features, bias, highest_out, mass_out, count, bank,
    DEEP: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The largest score of each patch (P,), and Σᵢ 2^(score − largest) (P,)."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = rows < count
    inside = tl.arange(0, TILE)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    mass = tl.zeros([BLOCK], tl.float32)
    for start in range(0, bank, TILE):
        scores = _scores(seen, features, bias, rows, start + inside, real, DEEP, PART)
        higher = tl.maximum(highest, tl.max(scores, 1))
        mass = mass * tl.exp2(highest - higher) + tl.sum(tl.exp2(scores - higher[:, None]), 1)
        highest = higher
    tl.store(highest_out + rows, highest, mask=real)
    tl.store(mass_out + rows, mass, mask=real)


@triton.jit
def weiszfeld_kernel(
    which, seen, features, bias, clean, norms, x, z, highest_in, mass_in, scale_in, change_in, left_in,
    count, bank, beta, tol, floor, steps,
    DEEP: tl.constexpr, PART: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """At most `steps` of Weiszfeld's for the patches `which`, in place: z, the last change and what is left to go.

    Weights are relative to each patch's largest, and β with them: what half precision loses is below 10⁻⁷ of it.
    """
    own = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = own < count
    rows = tl.load(which + own, mask=real, other=0)
    inside, across = tl.arange(0, TILE), tl.arange(0, WIDE)
    here = rows[:, None] * WIDE + across[None, :]
    middle = tl.load(x + here, mask=real[:, None], other=0.0)
    now = tl.load(z + here, mask=real[:, None], other=0.0)
    highest = tl.load(highest_in + rows, mask=real, other=0.0)
    tie = beta * tl.load(mass_in + rows, mask=real, other=1.0)
    scale = tl.load(scale_in + rows, mask=real, other=1.0)
    last = tl.load(change_in + rows, mask=real, other=1.0)
    left = tl.load(left_in + rows, mask=real, other=0.0)
    left = tl.where(real, left, 0.0)
    step = 0
    moving = tl.sum((left >= tol).to(tl.int32), 0)
    while (step < steps) & (moving > 0):
        step += 1
        # z in two halves, so that distances to the bank as it is are exact to single precision.
        coarse = now.to(tl.float16)
        fine = ((now - coarse.to(tl.float32)) * 2048).to(tl.float16)
        own_norm = tl.sum(now * now, 1)
        summed = tl.zeros([BLOCK, WIDE], tl.float32)
        stiffness = tl.zeros([BLOCK], tl.float32)
        near = tl.zeros([BLOCK], tl.float32)
        hardest = tl.zeros([BLOCK], tl.int32)
        hardest_start = tl.zeros([BLOCK], tl.int32)
        for start in range(0, bank, TILE):
            columns = start + inside
            scores = _scores(seen, features, bias, rows, columns, real, DEEP, PART)
            patches = tl.load(clean + columns[:, None] * WIDE + across[None, :])
            flipped = tl.trans(patches)
            inner = tl.dot(coarse, flipped) + tl.dot(fine, flipped) * (1 / 2048)
            squared = tl.maximum(own_norm[:, None] + tl.load(norms + columns)[None, :] - 2 * inner, floor * floor)
            pulls = (tl.exp2(scores - highest[:, None]) * tl.rsqrt(squared)).to(tl.float16)
            rounded = pulls.to(tl.float32)
            stiffness += tl.sum(rounded, 1)
            near += tl.sum(tl.where(squared <= floor * floor, rounded, 0.0), 1)
            summed = tl.dot(pulls, patches, summed)
            # The hardest pull and its place in one number: halves order as their bits do.
            packed = (pulls.to(tl.int16, bitcast=True).to(tl.int32) << 16) | inside[None, :]
            best = tl.max(packed, 1)
            harder = (best >> 16) > (hardest >> 16)
            hardest = tl.where(harder, best, hardest)
            hardest_start = tl.where(harder, start, hardest_start)
        anchor = tl.load(clean + (hardest_start + (hardest & 0xFFFF))[:, None] * WIDE + across[None, :]).to(tl.float32)
        pull = (hardest >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        apart = tl.sqrt(tl.sum((now - anchor) * (now - anchor), 1))
        # At the anchor, all that is there counts as one patch; elsewhere the anchor alone.
        pull = tl.where(apart <= floor, tl.maximum(near, pull), pull)
        anchored = pull * tl.maximum(apart, floor)  # its α
        rest = tl.maximum(stiffness - pull, 0.0)
        moved = (tie[:, None] * middle + summed - pull[:, None] * anchor) / (tie + rest)[:, None]
        away = moved - anchor
        reach = (tie + rest) * tl.sqrt(tl.sum(away * away, 1))
        shrink = tl.maximum(1 - anchored / tl.maximum(reach, LEAST), 0.0)
        done = left < tol
        moved = tl.where(done[:, None], now, anchor + shrink[:, None] * away)
        change = tl.sqrt(tl.sum((moved - now) * (moved - now), 1))
        ratio = tl.minimum(change / tl.maximum(last, LEAST), 1 - 1e-6)
        foretold = change * tl.minimum(rest / tie, tl.maximum(ratio / (1 - ratio), 1.0)) / scale
        left = tl.where(done, left, foretold)
        last = tl.where(done, last, change)
        now = moved
        moving = tl.sum((left >= tol).to(tl.int32), 0)
    tl.store(z + here, now, mask=real[:, None])
    tl.store(change_in + rows, last, mask=real)
    tl.store(left_in + rows, left, mask=real)
