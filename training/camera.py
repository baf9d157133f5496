"""Noise as cameras leave it in their pictures: raw noise through demosaicking, colours, gamma, filters and JPEG.

    raw values      x = M⁻¹ g⁻¹(clean) / w,    y = x + √(a·x + b)·n on a Bayer pattern, n ~ N(0, 1)
    picture         g(M w D(y)): demosaicking D, white balance w, colour matrix M, gamma g

The pipeline is run twice, with and without noise. The difference is the noise: it is coarse, depends on brightness and
colour, and is correlated between channels. Filters of the noise stand for a camera's own denoising and for resizing.
Sharpening applies to both pictures. JPEG comes last, on the noisy picture alone.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

GAMMA = 2.2

COLOURS = torch.tensor([[1.7, -0.55, -0.15], [-0.25, 1.55, -0.3], [0.0, -0.6, 1.6]])
"""A typical matrix from a camera's colours to sRGB; its rows sum to one."""

QUANTISATION = torch.tensor(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
).float()
"""The luminance table of JPEG's annex K."""

QUANTISATION_COLOUR = torch.full((8, 8), 99.0)
QUANTISATION_COLOUR[:4, :4] = torch.tensor([[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]])

YCC = torch.tensor([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

CONSTANTS = {
    "colours": COLOURS,
    "ycc": YCC,
    "rgb": torch.linalg.inv(YCC),
    "middle": torch.tensor([128.0, 0, 0]).view(3, 1, 1),
    "luma": YCC[0].view(1, 3, 1, 1),
    "tables": torch.stack([QUANTISATION, QUANTISATION_COLOUR, QUANTISATION_COLOUR]),
    "cross": torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4,
    "tent": torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4,
}


@lru_cache(maxsize=64)
def constant(name: str, device: torch.device) -> Tensor:
    """A constant on a device, copied there once: a CUDA graph cannot hold a copy from the CPU's memory."""
    return CONSTANTS[name].to(device)


def luma(picture: Tensor) -> Tensor:
    """(N, 3, H, W) -> (N, 1, H, W)."""
    return (picture * constant("luma", picture.device)).sum(1, keepdim=True)


def inverse(matrices: Tensor) -> Tensor:
    """Of 3×3 matrices (N, 3, 3), by cross products of their columns."""
    a, b, c = matrices.unbind(-1)
    rows = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -2)
    return rows / (a * rows[:, 0]).sum(-1)[:, None, None]


def camera(clean: Tensor) -> tuple[Tensor, Tensor]:
    """(y, truth) of pictures as a camera would store them: (N, C, H, W) in [0, 1], sides divisible by 16."""
    count, channels = clean.shape[:2]

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand((count, *(shape or (1, 1, 1))), device=clean.device)

    colour = clean.expand(-1, 3, -1, -1)
    matrix = torch.lerp(torch.eye(3, device=clean.device), constant("colours", clean.device), uniform(0, 1, 1, 1))
    balance = torch.ones_like(clean[:, :1, :1, :1]).repeat(1, 3, 1, 1)
    balance[:, ::2] = torch.exp(uniform(0.0, 0.9, 2, 1, 1))
    exposure = torch.exp(uniform(-0.5, 0.0))
    linear = torch.einsum("nij,njhw->nihw", inverse(matrix), colour.clamp(min=0) ** GAMMA)
    raw = gaussian_blur(linear, uniform(0.2, 0.9)).clamp(min=0) * exposure / balance  # a lens is no sharper
    gain = torch.exp(uniform(math.log(1e-4), math.log(2.5e-2)))
    dark = (gain * uniform(0.02, 0.3)).square()  # read noise in proportion to the gain, as at high ISO
    noisy = raw + (gain * raw + dark).sqrt() * torch.randn_like(raw)
    kernel = uniform(0, 1)

    def picture(values: Tensor) -> Tensor:
        mixed = torch.einsum("nij,njhw->nihw", matrix, demosaic(values, kernel) * balance / exposure)
        return mixed.clamp(min=1e-5) ** (1 / GAMMA)

    truth = picture(raw)
    noise = smooth_noise(picture(noisy) - truth, truth)
    strength = uniform(0, 1.2) * (uniform(0, 1) < 0.6)
    truth, noise = (image + strength * (image - gaussian_blur(image, 1.0)) for image in (truth, noise))
    y, truth = (truth + noise).clamp(0, 1), truth.clamp(0, 1)
    stored = compress_jpeg(y, quality(uniform(0, 1), 60), uniform(0, 1) < 0.6)
    y = torch.where(uniform(0, 1) < 0.8, stored, (255 * y).round() / 255)
    if channels == 1:
        y, truth = luma(y), luma(truth)
        y = (255 * y).round() / 255
    return y, truth


def jpeg(clean: Tensor) -> Tensor:
    """Pictures compressed with a quality of 8 to 95."""
    count, channels = clean.shape[:2]
    drawn = torch.rand((2, count, 1, 1, 1), device=clean.device)
    y = compress_jpeg(clean.clamp(0, 1).expand(-1, 3, -1, -1), quality(drawn[0], 8, 95), drawn[1] < 0.6)
    return y if channels == 3 else luma(y)


def quality(drawn: Tensor, low: float, high: float = 100) -> Tensor:
    """A quality for numbers drawn from 0 to 1."""
    return low + (high - low) * drawn


def demosaic(values: Tensor, sharpness: Tensor) -> Tensor:
    """Red, green and blue from the values on a Bayer pattern RGGB: (N, 3, H, W).

    Green is interpolated bilinearly, with a share (sharpness) of the Laplacian of the other colour, as Malvar et al. do
    (2004). Red and blue are interpolated as differences from green.
    """
    height, width = values.shape[-2:]
    masks = values.new_zeros(3, height, width)
    masks[0, ::2, ::2] = masks[2, 1::2, 1::2] = 1
    masks[1] = 1 - masks[0] - masks[2]
    mosaic = (values * masks).sum(1, keepdim=True)
    cross, tent = (constant(name, values.device) for name in ("cross", "tent"))
    second = F.pad(mosaic, (2, 2, 2, 2), mode="circular")
    around = second[..., :-4, 2:-2] + second[..., 4:, 2:-2] + second[..., 2:-2, :-4] + second[..., 2:-2, 4:]
    laplacian = mosaic - around / 4
    between = convolve(mosaic, cross) + 0.5 * sharpness * laplacian
    green = torch.where(masks[1:2] > 0, mosaic, between)
    red, blue = (convolve((mosaic - green) * masks[c], tent) + green for c in (0, 2))
    return torch.cat([red, green, blue], 1)


def convolve(image: Tensor, kernel: Tensor) -> Tensor:
    """One plane (N, 1, H, W) with a kernel of odd size, on a torus."""
    reach = kernel.shape[0] // 2
    return F.conv2d(F.pad(image, (reach,) * 4, mode="circular"), kernel[None, None])


def gaussian_blur(image: Tensor, width: Tensor | float) -> Tensor:
    """Gaussian blur on a torus. width: standard deviation in pixels, a number or (N, C or 1, 1, 1)."""
    height, length = image.shape[-2:]
    rows, cols = torch.fft.fftfreq(height, device=image.device), torch.fft.rfftfreq(length, device=image.device)
    squares = rows[:, None].square() + cols.square()
    passed = torch.exp(-2 * math.pi**2 * width**2 * squares)
    return torch.fft.irfft2(passed * torch.fft.rfft2(image), s=(height, length))


def smooth_noise(noise: Tensor, truth: Tensor) -> Tensor:
    """The noise as a camera's own denoising and resizing leave it: smoother and weaker, above all in colour and, for
    some cameras, where the picture is flat."""
    count = len(noise)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((count, 1, 1, 1), device=noise.device)

    light = luma(noise)
    tint = noise - light
    chosen = uniform(0, 1) < 0.8
    width = 0.3 * torch.exp(uniform(0, math.log(10)))
    everywhere = torch.where(uniform(0, 1) < 0.5, torch.ones_like(width), flatness(noise, truth, uniform(0.5, 3)))
    share = uniform(0, 1) * everywhere
    share_tint = torch.maximum(share, uniform(0, 1) * everywhere)
    smooth_light = torch.lerp(light, gaussian_blur(light, width), share)
    smooth_tint = torch.lerp(tint, gaussian_blur(tint, width + uniform(0, 4)), share_tint)
    kept = uniform(0, 1).sqrt()
    return torch.where(chosen, smooth_light + kept * smooth_tint, noise)


def flatness(noise: Tensor, truth: Tensor, threshold: Tensor) -> Tensor:
    """1 where the picture varies less than its noise, towards 0 where it varies more: (N, 1, H, W)."""
    light = luma(truth)
    varies = gaussian_blur((light - gaussian_blur(light, 2.0)).square(), 2.0).clamp(min=0)
    level = luma(noise).square().mean((1, 2, 3), keepdim=True) + 1e-10
    return 1 / (1 + varies / (threshold.square() * level))


def compress_jpeg(picture: Tensor, quality: Tensor, subsampled: Tensor) -> Tensor:
    """JPEG whose blocks begin at a pixel drawn at random. Arguments as for `jpeg_at_corner`."""
    down, across = (torch.randint(16, (len(picture), 1, 1), device=picture.device) for _ in range(2))
    return shift(jpeg_at_corner(shift(picture, down, across), quality, subsampled), -down, -across)


def jpeg_at_corner(picture: Tensor, quality: Tensor, subsampled: Tensor) -> Tensor:
    """JPEG: (N, 3, H, W) in [0, 1] -> the same, rounded to 8 bits.

    quality: 1 to 100, (N, 1, 1, 1). subsampled: whether colours have half the size, (N, 1, 1, 1).
    """
    ycc, rgb, middle, standard = (constant(name, picture.device) for name in ("ycc", "rgb", "middle", "tables"))
    planes = torch.einsum("ij,njhw->nihw", ycc, (255 * picture).round()) - middle
    scale = torch.where(quality < 50, 5000 / quality.clamp(min=1), 200 - 2 * quality)
    tables = ((standard * scale.view(-1, 1, 1, 1) + 50) / 100).floor().clamp(1, 255)
    light = quantise(planes[:, :1], tables[:, :1])
    whole = quantise(planes[:, 1:], tables[:, 1:])
    half = F.interpolate(quantise(F.avg_pool2d(planes[:, 1:], 2), tables[:, 1:]), scale_factor=2, mode="bilinear")
    colours = torch.where(subsampled, half, whole)
    back = torch.einsum("ij,njhw->nihw", rgb, torch.cat([light + 128, colours], 1))
    return back.round().clamp(0, 255) / 255


def shift(image: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Each image of a batch moved on a torus. down, across: (N, 1, 1)."""
    height, width = image.shape[-2:]
    rows = (torch.arange(height, device=image.device).view(1, -1, 1) - down) % height
    cols = (torch.arange(width, device=image.device).view(1, 1, -1) - across) % width
    which = torch.arange(len(image), device=image.device).view(-1, 1, 1)
    return image.permute(0, 2, 3, 1)[which, rows, cols].permute(0, 3, 1, 2)


def quantise(planes: Tensor, tables: Tensor) -> Tensor:
    """Blocks of 8×8 rounded in the cosine domain: planes (N, C, H, W), tables (N, C, 8, 8)."""
    steps = torch.arange(8, device=planes.device)
    basis = torch.cos(math.pi / 8 * (steps + 0.5) * steps[:, None]) / 2
    basis[0] = math.sqrt(1 / 8)
    blocks = planes.unfold(2, 8, 8).unfold(3, 8, 8)  # (N, C, H/8, W/8, 8, 8)
    step = tables[:, :, None, None]
    kept = basis.T @ ((basis @ blocks @ basis.T / step).round() * step) @ basis
    return kept.permute(0, 1, 2, 4, 3, 5).reshape(planes.shape)
