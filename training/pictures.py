"""Pictures to learn from: each at several sizes, crops of them drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

SUFFIXES = {".png", ".webp", ".tif", ".tiff"}
HELD_OUT = 24  # every 24th picture is for validation
LUMA = torch.tensor([0.299, 0.587, 0.114])


def listed(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files to learn from and files to validate with."""
    files = sorted(p for folder in folders for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if not files:
        raise SystemExit(f"no pictures in {', '.join(map(str, folders))}")
    return [p for i, p in enumerate(files) if i % HELD_OUT], files[::HELD_OUT]


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
    """All pictures at all sizes, in memory."""

    def __init__(self, paths: Sequence[Path], least: int = 180) -> None:
        self.pictures = [small for path in paths for small in sizes(read(path), least)]
        self.areas = torch.tensor([float(p[0].numel()) for p in self.pictures])

    def crops(self, count: int, side: int, grey: bool, generator: torch.Generator) -> Tensor:
        """(count, 1 or 3, side, side) in [0, 1], turned and mirrored at random; larger pictures come more often."""
        out = []
        for i in torch.multinomial(self.areas, count, replacement=True, generator=generator).tolist():
            picture = self.pictures[i]
            row, column = (int(torch.randint(n - side + 1, (), generator=generator)) for n in picture.shape[-2:])
            turn = int(torch.randint(8, (), generator=generator))
            crop = picture[:, row : row + side, column : column + side].float()
            crop = (crop * LUMA[:, None, None]).sum(0, keepdim=True).round() if grey else crop
            crop = crop.flip([d for d, bit in ((1, 1), (2, 2)) if turn & bit])
            out.append(crop.transpose(1, 2) if turn & 4 else crop)
        return torch.stack(out) / 255
