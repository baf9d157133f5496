"""What pictures are degraded by while the kernel is learnt."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torus import Blurs, Downsamplings, Masks, Operators

from slir.families import AnyBlur, AnyDownsampling, AnyMask
from slir.operators import Blur, Downsample, Mask

LARGEST_SIGMA = 75 / 255

SHARES = {"blur": 0.42, "down2": 0.22, "down3": 0.06, "down4": 0.06, "mask": 0.24}
"""Operators to restore through, and how often each kind is drawn."""

COUNTS = {"blur": 6000, "down2": 400, "down3": 200, "down4": 200, "mask": 1500}
"""How many of a kind are kept. Pixels missing at random are drawn anew each time; kept masks are text and scratches."""

NOISE = {"blur": (0.001, 0.1, 0.0), "down": (0.002, 0.1, 0.5), "mask": (0.004, 0.1, 0.7)}
"""Noise levels, log-uniform from the first to the second, and how often there is none."""


def noise(clean: Tensor) -> tuple[Tensor, Tensor]:
    """White noise of up to 75 grey levels, and its standard deviation at each pixel.

    The level is uniform, in a fifth of the crops log-uniform. It varies over a quarter of the crops, and from channel
    to channel in a quarter of the colour crops.
    """
    count, channels, height, width = clean.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, device=clean.device)

    drawn = uniform(count, 1, 1, 1)
    drawn = torch.where(uniform(count, 1, 1, 1) < 0.2, 1e-3 ** (1 - drawn), drawn)
    level = LARGEST_SIGMA * drawn.expand(count, channels, height, width)
    grid = LARGEST_SIGMA * uniform(count, 1, 3, 3)
    varied = F.interpolate(grid, size=(height, width), mode="bilinear", align_corners=True)
    level = torch.where(uniform(count, 1, 1, 1) < 0.25, varied, level)
    if channels > 1:
        uneven = uniform(count, 1, 1, 1) < 0.25
        level = level * torch.where(uneven, 0.25 + 0.75 * uniform(count, channels, 1, 1), torch.ones_like(level[:, :1]))
    return level * torch.randn_like(clean), level


def dimmed(clean: Tensor) -> Tensor:
    """The crops, every twentieth of them at a tenth to all of its contrast: pictures that hide in noise."""
    contrast = 0.1 ** torch.rand((len(clean), 1, 1, 1), device=clean.device)
    chosen = torch.rand_like(contrast) < 0.05
    return torch.where(chosen, contrast * clean, clean)


@dataclass(frozen=True)
class Bank:
    """Operators of one kind, drawn once.

    kernels: PSFs or filters, their centres at pixel (0, 0) of a field (M, side, side); masks: true where a pixel is
    missing.
    """

    kind: str
    kernels: Tensor

    def draw(self, count: int, side: int) -> tuple[Operators, Tensor]:
        """Operators for a batch of pictures, and their noise levels (count, 1, 1, 1)."""
        device = self.kernels.device
        low, high, share = NOISE[self.kind.rstrip("234")]
        uniform = torch.rand((count, 1, 1, 1), device=device)
        sigma = torch.exp(math.log(low) + (math.log(high) - math.log(low)) * uniform)
        sigma = torch.where(torch.rand_like(sigma) < share, 0.0, sigma)
        which = torch.randint(len(self.kernels), (count,), device=device)
        chosen = self.kernels[which].unsqueeze(1)
        if self.kind == "mask":
            at_random = torch.rand((count, 1, side, side), device=device) < self._missing(count, device)
            drawn = torch.rand((count, 1, 1, 1), device=device) < 0.7
            return Masks(1 - torch.where(drawn, at_random, chosen > 0).float()), sigma
        if self.kind == "blur":
            return Blurs(torch.fft.rfft2(chosen)), sigma
        return Downsamplings(torch.fft.fft2(chosen), int(self.kind[-1])), sigma

    @staticmethod
    def _missing(count: int, device: torch.device) -> Tensor:
        """Shares of missing pixels: 50 to 90 % in half of the draws, else 30 to 95 %."""
        narrow = torch.rand((count, 1, 1, 1), device=device) < 0.5
        uniform = torch.rand((count, 1, 1, 1), device=device)
        return torch.where(narrow, 0.5 + 0.4 * uniform, 0.3 + 0.65 * uniform)


def centred(kernel: Tensor, side: int, centre: tuple[int, int]) -> Tensor:
    """The kernel on a torus (side, side), its centre moved to pixel (0, 0)."""
    field = torch.zeros(side, side)
    field[: kernel.shape[0], : kernel.shape[1]] = kernel
    return field.roll((-centre[0], -centre[1]), (0, 1))


def _draw(kind: str, side: int, seed: int) -> np.ndarray:
    """One operator of a kind as an image (side, side)."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    shape = (side, side)
    if kind == "mask":
        family = AnyMask()
        while True:
            operator, _ = family.draw(generator, shape)
            assert isinstance(operator, Mask)
            if 0.01 < float(operator.missing.float().mean()) < 0.3:  # text or scratches
                return operator.missing.numpy().astype(np.float32)
    if kind == "blur":
        operator, _ = AnyBlur().draw(generator, (3 * 65 + 2, 3 * 65 + 2))
        assert isinstance(operator, Blur)
        return centred(operator.psf.float(), side, operator.convolution.centre).numpy()
    operator, _ = AnyDownsampling(int(kind[-1])).draw(generator, shape)
    assert isinstance(operator, Downsample)
    rows, cols = operator.convolution.centre  # a shift of the filter stands for the phase
    return centred(operator.kernel.float(), side, (rows + operator.phase, cols + operator.phase)).numpy()


def banks(side: int, device: torch.device, seed: int = 0, share: float = 1.0, workers: int = 1) -> dict[str, Bank]:
    """All kinds. share: of the counts, for tests."""
    made = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (kind, count) in enumerate(COUNTS.items()):
            own = field_side(kind, side)
            seeds = range(seed + 10**6 * number, seed + 10**6 * number + max(2, round(share * count)))
            images = np.stack(list(pool.map(partial(_draw, kind, own), seeds, chunksize=50)))
            made[kind] = Bank(kind, torch.from_numpy(images).to(device))
    return made


def field_side(kind: str, side: int) -> int:
    """Side of the crops for operators of a kind: a multiple of 8 and of the factor."""
    return side // 24 * 24 if kind == "down3" else side
