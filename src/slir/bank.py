"""The bank: m pairs (what is seen, clean patch) sampled from clean images degraded by B and σ."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import slir
from slir.errors import InputError
from slir.operators import Operator
from slir.patches import window_margin


@dataclass(frozen=True, eq=False, repr=False)
class Bank:
    """Pairs (yⁱ, xⁱ), i = 1 … m, with their origin.

    seen: (m, window²), patches of the degraded images on x's pixels: of x⁽⁰⁾ = B.guess(y), which is y itself where x
        and y share their pixels. They may be larger than the clean ones, with the same centre.
    clean: (m, size²).
    source: (m, 3), image index, row and column of each clean patch's first pixel.
    """

    seen: Tensor
    clean: Tensor
    source: Tensor
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not len(self.seen) == len(self.clean) == len(self.source):
            found = f"of {len(self.seen)} seen, {len(self.clean)} clean and {len(self.source)} sources"
            raise InputError("the bank", "hold pairs", found, "Sample it anew.")

    def __len__(self) -> int:
        return len(self.clean)

    def __repr__(self) -> str:
        return f"Bank({len(self)} pairs, seen {tuple(self.seen.shape)}, clean {tuple(self.clean.shape)})"

    def to(self, device: torch.device | str) -> Bank:
        return Bank(self.seen.to(device), self.clean.to(device), self.source, self.provenance)


def degrade(image: Tensor, operator: Operator, sigma: float, generator: torch.Generator) -> Tensor:
    """y = Bx + ε with ε drawn on the CPU, so that every device sees the same noise."""
    y = operator.forward(image)
    if sigma == 0:
        return y
    return y + sigma * torch.randn(y.shape, generator=generator, dtype=torch.float32).to(y)


def image_hash(image: Tensor) -> str:
    """The first 16 hex digits of the SHA-256 of an image's float32 pixels."""
    data = image.detach().float().cpu().contiguous().numpy()
    return hashlib.sha256(data.tobytes()).hexdigest()[:16]


def sample_bank(
    images: Sequence[Tensor],
    operator: Operator,
    sigma: float,
    *,
    m: int = 10_000,
    size: int = 8,
    window: int | None = None,
    seed: int = 0,
) -> Bank:
    """Sample m pairs uniformly from the patches of n clean images (the paper's sampling scheme).

    images: n planes (H, W) with values in [0, 1]. A pair is taken only where its window lies inside what y shows, so
    that no bank patch contains an extrapolated border. Draws are with replacement over all positions of all images.
    """
    if not images:
        raise InputError("images", "hold at least one image", "empty", "Pass clean images to learn from.")
    if m < 1:
        raise InputError("m", "be at least 1", m, "10,000 is a good start.")
    window = size if window is None else window
    for name, value in (("size", size), ("window", window)):
        if value < 1:
            raise InputError(name, "be at least 1", value, "8 is the paper's.")
    if not (sigma >= 0 and math.isfinite(sigma)):
        raise InputError("sigma", "be at least 0", sigma, "It is the noise's standard deviation, with a range of 1.")
    generator = torch.Generator().manual_seed(seed)
    shown = [_crop_to_shown(image, index, operator, sigma, generator) for index, image in enumerate(images)]
    before, outer = window_margin(window, size), max(window, size)  # `outer` covers both
    counts = []
    for index, (_, clean, _) in enumerate(shown):
        if min(clean.shape) < outer:
            rule = f"show at least {outer}×{outer} pixels after degradation"
            shape = f"only {clean.shape[0]}×{clean.shape[1]}"
            raise InputError(f"images[{index}]", rule, shape, "Leave it out, or learn from larger images.")
        counts.append((clean.shape[0] - outer + 1) * (clean.shape[1] - outer + 1))
    ends = torch.tensor(counts).cumsum(0)
    draws = torch.randint(int(ends[-1]), (m,), generator=generator).sort().values
    owner = torch.searchsorted(ends, draws, right=True)
    seen_parts, clean_parts, sources = [], [], []
    for index, (seen, clean, corner) in enumerate(shown):
        place = draws[owner == index] - (ends[index] - counts[index])
        across = clean.shape[1] - outer + 1
        rows, cols = place // across, place % across
        windows = seen.unfold(0, window, 1).unfold(1, window, 1)[rows + max(-before, 0), cols + max(-before, 0)]
        rows, cols = rows + max(before, 0), cols + max(before, 0)
        patches = clean.unfold(0, size, 1).unfold(1, size, 1)[rows, cols]
        seen_parts.append(windows.reshape(len(place), window**2))
        clean_parts.append(patches.reshape(len(place), size**2))
        sources.append(torch.stack([torch.full_like(rows, index), rows + corner[0], cols + corner[1]], 1))
    provenance = {
        "slir": slir.__version__,
        "images": [image_hash(image) for image in images],
        "operator": operator.describe(),
        "sigma": float(sigma),
        "seed": seed,
        "m": m,
        "size": size,
        "window": window,
    }
    return Bank(torch.cat(seen_parts), torch.cat(clean_parts), torch.cat(sources), provenance)


def _crop_to_shown(
    image: Tensor, index: int, operator: Operator, sigma: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """A training picture degraded, x⁽⁰⁾, beside the clean one: both cut to what y shows of x, and where that begins."""
    if image.ndim != 2:
        raise InputError(f"images[{index}]", "be one plane", f"of shape {tuple(image.shape)}", "Pass grey pictures.")
    if not bool(torch.isfinite(image).all()):
        raise InputError(f"images[{index}]", "be finite", "NaN or infinite in places", "Crop these pixels away.")
    own, (height, width) = operator.for_training((image.shape[0], image.shape[1]))
    image = image[:height, :width]
    y = degrade(image, own, sigma, generator)
    y_shape = (y.shape[-2], y.shape[-1])
    corner = int(own.crop(torch.arange(height * width).reshape(height, width), y_shape)[0, 0])
    return own.crop(own.guess(y), y_shape), own.crop(image, y_shape), (corner // width, corner % width)
