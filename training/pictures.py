"""Pictures to learn from: each at several sizes, crops of them drawn at random, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

SUFFIXES = {".png", ".webp", ".tif", ".tiff"}
HELD_OUT = 24  # every 24th picture is for validation
DEMO = "purple-dream"  # what `slir demo` restores: nothing is learnt from it or calibrated on it
LUMA = torch.tensor([0.299, 0.587, 0.114])


def listed(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files to learn from and files to validate with, ordered by name."""
    files = sorted((p for folder in folders for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES), key=_key)
    if not files:
        raise SystemExit(f"no pictures in {', '.join(map(str, folders))}")
    held_out = set(files[::HELD_OUT])
    usable = [p for p in files if p.stem != DEMO]
    return [p for p in usable if p not in held_out], [p for p in usable if p in held_out]


def _key(path: Path) -> tuple[str, str]:
    return path.parent.name, path.name


def read(path: Path) -> Tensor:
    """(3, H, W) of 8 bits."""
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1).contiguous()


def sizes(picture: Tensor, least: int) -> list[Tensor]:
    """The picture reduced by several factors: smaller copies are sharper and add more than flips do."""
    side = min(picture.shape[-2:])
    factors = (1, 0.8, 0.65, 0.5) if side < 700 else (1, 0.7, 0.5, 0.35, 0.25)
    return [
        picture
        if f == 1
        else F.interpolate(picture[None].float(), scale_factor=f, mode="bicubic", antialias=True)[0]
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        for f in factors
        if side * f >= least
    ]


class Pool:
    """All pictures at all sizes in the device's memory, end to end.

    crops() draws on the CPU which pixels a crop has, and takes them from there in one go.
    """

    def __init__(self, paths: Sequence[Path], device: torch.device, least: int = 180) -> None:
        with ThreadPoolExecutor() as threads:
            pictures = [small for own in threads.map(lambda path: sizes(read(path), least), paths) for small in own]
        self.pixels = torch.cat([p.flatten() for p in pictures]).to(device)
        self.shapes = torch.tensor([p.shape[-2:] for p in pictures])
        self.areas = self.shapes.prod(1)
        self.starts = 3 * (self.areas.cumsum(0) - self.areas)
        self.luma = LUMA.to(device).view(1, 3, 1, 1)

    def crops(self, count: int, side: int, grey: bool, generator: torch.Generator) -> Tensor:
        """(count, 1 or 3, side, side) in [0, 1], turned and mirrored at random; larger pictures come more often."""
        which = torch.multinomial(self.areas.float(), count, replacement=True, generator=generator)
        rows, cols = self.shapes[which].T
        corner = torch.rand(2, count, generator=generator)
        top, left = (corner * (torch.stack([rows, cols]) - side + 1)).long()
        down, across, swap = torch.randint(2, (3, count), generator=generator)
        drawn = torch.stack([self.starts[which], rows * cols, cols, top, left, down, across, swap])
        drawn = drawn.to(self.pixels.device, non_blocking=True)[:, :, None, None, None]
        start, plane, width, top, left, down, across, swap = drawn
        i, j = (torch.arange(side, device=drawn.device).view(shape) for shape in ((1, 1, -1, 1), (1, 1, 1, -1)))
        i, j = torch.where(swap > 0, j, i), torch.where(swap > 0, i, j)
        i, j = torch.where(down > 0, side - 1 - i, i), torch.where(across > 0, side - 1 - j, j)
        channel = torch.arange(3, device=drawn.device).view(1, 3, 1, 1)
        crops = self.pixels[start + channel * plane + (top + i) * width + left + j].float()
        return ((crops * self.luma).sum(1, keepdim=True).round() if grey else crops) / 255
