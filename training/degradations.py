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
from camera import camera, jpeg
from torch import Tensor
from torus import Blurs, Downsamplings, Masks, Operators

from slir.kernel.degradations import AnyBlur, AnyDownsampling, AnyMask
from slir.operators import Blur, Downsample, Mask

LARGEST_SIGMA = 75 / 255

SHARES = {"blur": 0.42, "down2": 0.22, "down3": 0.06, "down4": 0.06, "mask": 0.24}
"""Operators to restore through, and how often each kind is drawn."""

COUNTS = {"blur": 6000, "down2": 400, "down3": 200, "down4": 200, "mask": 1500}
"""How many of a kind are kept. Pixels missing at random are drawn anew each time; kept masks are text and scratches."""

NOISE = {"blur": (0.001, 0.1, 0.0), "down": (0.002, 0.1, 0.5), "mask": (0.004, 0.1, 0.7)}
"""Noise levels, log-uniform from the first to the second, and how often there is none."""


DRAWINGS = 0.1
"""Share of the crops that are drawings in place of photographs."""

FAINT = 0.35
"""Share of the crops whose noise level is log-uniform, over three orders of magnitude."""


JPEG, WHITE = 0.2, 0.3
"""Shares of JPEG alone and of added noise among crops with noise as cameras leave it: noise of some cameras is fine."""

AROUND = 31
"""Side of the squares over which the level of such noise is told."""


def by_camera(clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(y, truth, level): pictures as a camera stores them, some of them compressed alone or with added noise."""
    jpegs, noisy = (int(len(clean) * share + torch.rand(())) for share in (JPEG, WHITE))
    noisy = min(noisy, len(clean) - jpegs)
    crops = clean.split([jpegs, noisy, len(clean) - jpegs - noisy])
    parts = [spoil(own) for spoil, own in zip((with_jpeg, with_noise, with_camera_noise), crops) if len(own)]
    y, truth, level = (torch.cat(part) for part in zip(*parts))
    return y, truth, level


def with_camera_noise(clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, truth = camera(clean)
    return y, truth, local_level(y - truth)


def with_jpeg(clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    truth = clean.clamp(0, 1)
    y = jpeg(truth)
    return y, truth, local_level(y - truth)


def with_noise(clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(y, truth, level) of added noise. A tenth of the pictures are clipped to [0, 1] and rounded to 8 bits."""
    chosen = torch.rand((len(clean), 1, 1, 1), device=clean.device) < 0.1
    clean = torch.where(chosen, clean.clamp(max=1), clean)
    added, level = noise(clean)
    y = clean + added
    return torch.where(chosen, (255 * y).round().clamp(0, 255) / 255, y), clean, level


def local_level(error: Tensor, unsure: float = 0.3) -> Tensor:
    """Root mean square of an error in squares around each pixel, in half of the crops of the whole crop, off by a
    factor that is about 1 (unsure: how far): levels that are estimated are no better."""
    local = F.avg_pool2d(error.square(), AROUND, stride=1, padding=AROUND // 2, count_include_pad=False)
    whole = error.square().mean((2, 3), keepdim=True)
    drawn = torch.rand((len(error), 1, 1, 1), device=error.device)
    factor = torch.exp(unsure * torch.randn((len(error), 1, 1, 1), device=error.device))
    return factor * torch.where(drawn < 0.5, local, whole).sqrt()


def noise(clean: Tensor) -> tuple[Tensor, Tensor]:
    """Noise of up to 75 grey levels, and its standard deviation at each pixel.

    It is white, in an eighth of the crops coloured. The level is uniform, in some log-uniform. It
    varies over a quarter of the crops, and from channel to channel in a quarter of the colour crops.
    """
    count, channels, height, width = clean.shape

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, device=clean.device)

    drawn = uniform(count, 1, 1, 1)
    drawn = torch.where(uniform(count, 1, 1, 1) < FAINT, 1e-3 ** (1 - drawn), drawn)
    level = LARGEST_SIGMA * drawn.expand(count, channels, height, width)
    grid = LARGEST_SIGMA * uniform(count, 1, 3, 3)
    varied = F.interpolate(grid, size=(height, width), mode="bilinear", align_corners=True)
    level = torch.where(uniform(count, 1, 1, 1) < 0.25, varied, level)
    if channels > 1:
        uneven = uniform(count, 1, 1, 1) < 0.25
        level = level * torch.where(uneven, 0.25 + 0.75 * uniform(count, channels, 1, 1), torch.ones_like(level[:, :1]))
    return level * correlated(torch.randn_like(clean), uniform(count, 1, 1, 1) < 0.125), level


def varied(clean: Tensor, letters: Tensor | None = None) -> Tensor:
    """Crops of photographs as pictures of many kinds: drawings, little colour or contrast, points of light.

    letters: lines of text and scratches (M, side, side), which half of the drawings are written on with.
    """
    few = int(len(clean) * DRAWINGS + torch.rand(()))
    if few:
        drawings = drawn(few, clean.shape[1], clean.shape[-1], clean.device)
        drawings = drawings if letters is None else written(drawings, letters)
        clean = torch.cat([drawings, clean[few:]])
    return starry(dimmed(faded(clean)))


def correlated(white: Tensor, chosen: Tensor) -> Tensor:
    """White noise, in the chosen crops filtered at random to the same variance: as deconvolution or a camera leaves it.

    The filter is a random sum of an impulse and two Gaussians of different widths.
    """
    count, _, height, width = white.shape
    rows, cols = torch.fft.fftfreq(height, device=white.device), torch.fft.rfftfreq(width, device=white.device)
    squares = rows[:, None].square() + cols.square()
    narrow, wide = (0.3 + most * torch.rand((count, 1, 1, 1), device=white.device) for most in (0.9, 2.0))
    widths = torch.stack([narrow, wide])
    shares = torch.randn((3, count, 1, 1, 1), device=white.device)
    passed = shares[0] + (shares[1:] * torch.exp(-19.74 * widths.square() * squares)).sum(0)  # 2π² = 19.74
    coloured = torch.fft.irfft2(torch.fft.rfft2(white) * passed, s=(height, width))
    coloured = coloured / coloured.square().mean((1, 2, 3), keepdim=True).sqrt()
    return torch.where(chosen, coloured, white)


def dimmed(clean: Tensor) -> Tensor:
    """The crops, every twentieth of them at a tenth to all of its contrast: pictures that hide in noise."""
    contrast = 0.1 ** torch.rand((len(clean), 1, 1, 1), device=clean.device)
    chosen = torch.rand_like(contrast) < 0.05
    return torch.where(chosen, contrast * clean, clean)


def drawn(count: int, channels: int, side: int, device: torch.device, layers: int = 12) -> Tensor:
    """Lines, rings, discs, planes and gratings in random colours: (count, channels, side, side) in [0, 1]."""

    def uniform(low: float, high: float, last: int = 1) -> Tensor:
        return low + (high - low) * torch.rand((count, last, 1, 1), device=device)

    def colour() -> Tensor:
        grey, own = uniform(0, 1).expand(-1, channels, -1, -1), uniform(0, 1, channels)
        return torch.where(uniform(0, 1) < 0.5, grey, own)

    rows, cols = (torch.arange(side, device=device).view(shape).float() for shape in ((1, 1, -1, 1), (1, 1, 1, -1)))
    image = colour().expand(count, channels, side, side)
    for _ in range(layers):
        angle, period = uniform(0, math.pi), torch.exp(uniform(0.8, 3.2))
        down, across = rows - uniform(0, side), cols - uniform(0, side)
        along, beside = down * angle.sin() + across * angle.cos(), down * angle.cos() - across * angle.sin()
        width, length, radius = uniform(0.7, 6), uniform(5, side), uniform(3, side / 3)
        away = (down.square() + across.square()).sqrt()
        line = torch.maximum(beside.abs() - width / 2, along.abs() - length / 2)
        shapes = torch.stack([line, line, (away - radius).abs() - width / 2, away - radius, beside])
        which = torch.randint(len(shapes), (1, count, 1, 1, 1), device=device).expand(1, -1, -1, side, side)
        distance = shapes.gather(0, which)[0]
        cover = (0.5 - distance * uniform(0.7, 3)).clamp(0, 1)
        wave = torch.sin(2 * math.pi / period * along)
        wave = torch.where(uniform(0, 1) < 0.5, wave, (wave * period / 3).clamp(-1, 1))
        paint = torch.where(uniform(0, 1) < 0.2, torch.lerp(colour(), colour(), 0.5 + 0.5 * wave), colour())
        image = torch.lerp(image, paint, cover)
    return image


def written(drawings: Tensor, letters: Tensor) -> Tensor:
    """The drawings, a quarter of them under text, another quarter text on a plain background, sharp or soft."""
    count, channels, height, width = drawings.shape
    cover = letters[torch.randint(len(letters), (count,), device=letters.device), None, :height, :width]
    soft = F.avg_pool2d(cover, 3, 1, 1, count_include_pad=False)
    ink, paper, kind, softness = torch.rand((4, count, channels, 1, 1), device=drawings.device)
    kind, softness = kind[:, :1], softness[:, :1]
    ground = torch.where(kind < 0.25, paper, drawings)
    text = torch.lerp(ground, ink, torch.lerp(cover, soft, (2 * softness - 1).clamp(min=0)))
    return torch.where(kind < 0.5, text, drawings)


def starry(clean: Tensor) -> Tensor:
    """The crops, every twentieth of them with points of light that outshine the rest of it up to 300 times."""
    count, _, height, width = clean.shape
    points = 8

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((count, points, 1, 1), device=clean.device)

    rows = (torch.arange(height, device=clean.device).view(1, 1, -1, 1) - uniform(0, height)).square()
    cols = (torch.arange(width, device=clean.device).view(1, 1, 1, -1) - uniform(0, width)).square()
    narrow = -0.5 / uniform(0.4, 2.5).square()
    light = (torch.exp(uniform(-1, 5.7)) * torch.exp(narrow * rows) * torch.exp(narrow * cols)).sum(1, keepdim=True)
    chosen = torch.rand((count, 1, 1, 1), device=clean.device) < 0.05
    return torch.where(chosen, clean + light, clean)


def faded(clean: Tensor) -> Tensor:
    """The crops, half of them with less colour or none: monochrome pictures are often stored as RGB."""
    if clean.shape[1] == 1:
        return clean
    saturation = torch.rand((len(clean), 1, 1, 1), device=clean.device)
    saturation = torch.where(torch.rand_like(saturation) < 0.5, saturation, torch.ones_like(saturation))
    return torch.lerp(clean.mean(1, keepdim=True), clean, saturation)


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
