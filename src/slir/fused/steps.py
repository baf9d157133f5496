"""What conjugate gradient does to whole images between two products, in four kernels a step instead of seventeen.

Sums are made of parts, one a program, which the next kernel adds up: in the same order every time, unlike atomic sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 128
BLOCK = 1024


@triton.jit
def inner_kernel(a, b, parts, count, cols, stride, BLOCK: tl.constexpr):
    """parts: of Σ a·b, one a program. a: contiguous; b: rows of `cols` numbers, `stride` apart."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        real = place < count
        theirs = tl.load(b + place // cols * stride + place % cols, mask=real, other=0.0)
        total += tl.load(a + place, mask=real, other=0.0) * theirs
    tl.store(parts + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def move_kernel(
    x, residual, direction, mapped, parts, fresh, product, curvature, count, cols, stride,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x += αd, r −= αAd with α = rᵀs/dᵀAd, 0 where the energy does not curve upwards. Keeps rᵀs as `product`."""
    curved = tl.sum(tl.load(parts + tl.arange(0, PARTS)), 0)
    known = tl.load(fresh)
    length = tl.where(curved > 0, known / curved, 0.0)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = place < count
    theirs = tl.load(mapped + place // cols * stride + place % cols, mask=real)
    own = tl.load(direction + place, mask=real)
    tl.store(x + place, tl.load(x + place, mask=real) + length * own, mask=real)
    tl.store(residual + place, tl.load(residual + place, mask=real) - length * theirs, mask=real)
    if tl.program_id(0) == 0:
        tl.store(curvature, curved)
        tl.store(product, known)  # nobody reads it in this kernel


@triton.jit
def turn_kernel(direction, steer, parts, fresh, product, count, cols, stride, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """d = s + (rᵀs / what it was)·d. Keeps rᵀs as `fresh`."""
    new = tl.sum(tl.load(parts + tl.arange(0, PARTS)), 0)
    ratio = new / tl.load(product)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = place < count
    theirs = tl.load(steer + place // cols * stride + place % cols, mask=real)
    tl.store(direction + place, theirs + ratio * tl.load(direction + place, mask=real), mask=real)
    if tl.program_id(0) == 0:
        tl.store(fresh, new)  # nobody reads it in this kernel


class Steps:
    """The steps of a walk over images like `x`, (H, W) and contiguous."""

    def __init__(self, x: Tensor):
        self.parts = x.new_zeros(PROGRAMS)
        self.fresh = x.new_zeros(())
        self.grid = (triton.cdiv(x.numel(), BLOCK),)

    def move(
        self, x: Tensor, residual: Tensor, direction: Tensor, mapped: Tensor, product: Tensor, bent: Tensor
    ) -> None:
        """To the lowest point along the direction; `product` and `bent` (dᵀAd) are kept."""
        mapped = _by_rows(mapped)
        shape = (x.numel(), x.shape[1], mapped.stride(0))
        inner_kernel[(PROGRAMS,)](direction, mapped, self.parts, *shape, BLOCK=BLOCK)
        move_kernel[self.grid](
            x, residual, direction, mapped, self.parts, self.fresh, product, bent, *shape, PARTS=PROGRAMS, BLOCK=BLOCK
        )

    def turn(self, residual: Tensor, direction: Tensor, steer: Tensor, product: Tensor) -> None:
        """Into the next direction."""
        steer = _by_rows(steer)
        shape = (residual.numel(), residual.shape[1], steer.stride(0))
        inner_kernel[(PROGRAMS,)](residual, steer, self.parts, *shape, BLOCK=BLOCK)
        turn_kernel[self.grid](direction, steer, self.parts, self.fresh, product, *shape, PARTS=PROGRAMS, BLOCK=BLOCK)


def _by_rows(image: Tensor) -> Tensor:
    return image if image.stride(1) == 1 else torch.clone(image, memory_format=torch.contiguous_format)
