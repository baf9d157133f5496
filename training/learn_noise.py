"""Learn the network that tells the level of the noise in a picture.

    python training/learn_noise.py --pictures FOLDER [FOLDER ...] --out noise.pt --minutes 30

The network learns the logarithm of the root mean square of the noise around each square, by its mean absolute error.
The noise is white or coloured, that of a camera, or what JPEG leaves. Some pictures have none.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import degradations
import losses
import torch
import torch.nn.functional as F
from pictures import Pool, listed, read
from torch import Tensor
from train import grey_of, validation_crops

from slir.io.models import load_kernel
from slir.kernel.noise_level import CELL, NoiseNetwork
from slir.preprocessing.local_noise import QUIET

LEAST = 0.5 / 255
"""Added to levels before the logarithm: what lies below hardly counts."""

CLEAN, CAMERA, JPEG = 0.1, 0.3, 0.25
"""Shares of the crops that come without noise, and of the others with noise of cameras and with JPEG alone."""


def target(error: Tensor) -> Tensor:
    """Level of an error in squares of 8×8 pixels, over a wider neighbourhood: (N, C, H/8, W/8)."""
    squares = F.avg_pool2d(error.square(), CELL)
    return F.avg_pool2d(squares, 5, stride=1, padding=2, count_include_pad=False).sqrt()


def example(clean: Tensor) -> tuple[Tensor, Tensor]:
    """(y, level) of a batch: with noise as the kernel learns it, a few without."""
    without = int(len(clean) * CLEAN + torch.rand(()))
    rest = clean[without:]
    kinds = (degradations.with_camera_noise, degradations.with_jpeg, degradations.with_noise)
    which = torch.multinomial(torch.tensor([CAMERA, JPEG, 1 - CAMERA - JPEG]), len(rest), replacement=True)
    parts = [spoil(rest[which == kind]) for kind, spoil in enumerate(kinds) if (which == kind).any()]
    y, truth, _ = (torch.cat(part) for part in zip(*parts))
    bare = clean[:without].clamp(0, 1)
    bare = torch.where(torch.rand((without, 1, 1, 1)) < 0.5, bare, (255 * bare).round() / 255)
    error = torch.cat([torch.zeros_like(bare), y - truth])
    return torch.cat([bare, y]), target(error)


def size(net: NoiseNetwork, clean: Tensor) -> Tensor:
    y, level = example(clean)
    with losses.half_precision(clean.device):
        told = net(y)
    return ((told + LEAST).log() - (level + LEAST).log()).abs().mean()


@torch.no_grad()
def validate(net: NoiseNetwork, clean: Tensor) -> dict[str, float]:
    """Mean absolute errors of the logarithm, and of the level of whole pictures."""
    scores = {}
    for name, x in (("grey", grey_of(clean)), ("colour", clean)):
        for sigma in (5, 15, 50):
            y = x + sigma / 255 * torch.randn(x.shape, generator=torch.Generator().manual_seed(sigma))
            found = 255 * net(y).flatten(2).quantile(QUIET, dim=2).mean(1)
            scores[f"{name}-{sigma}"] = (found / sigma).log().abs().mean().item()
    for name, degrade in (("camera", degradations.with_camera_noise), ("jpeg", degradations.with_jpeg)):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            y, truth, _ = degrade(clean)
        scores[name] = ((net(y) + LEAST).log() - (target(y - truth) + LEAST).log()).abs().mean().item()
    scores["clean"] = 255 * net(clean).flatten(1).quantile(QUIET, dim=1).mean().item()
    return {name: round(score, 3) for name, score in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a kernel's file whose noise network to begin with")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--crop", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    torch.manual_seed(o.seed)
    learnt_from, held_out = listed(o.pictures)
    pool = Pool(learnt_from, torch.device("cpu"))
    shown = validation_crops([read(p) for p in held_out])
    net = NoiseNetwork().to(memory_format=torch.channels_last)
    if o.start:
        net.load_state_dict(load_kernel(o.start).noise.state_dict())
    adam = torch.optim.Adam(net.parameters(), lr=o.lr)
    began, reported, step, found = time.monotonic(), time.monotonic(), 0, []
    while (share := (time.monotonic() - began) / (60 * o.minutes)) < 1:
        for group in adam.param_groups:
            group["lr"] = o.lr * min(1, (step + 1) / 100, 0.5 + 0.5 * math.cos(math.pi * share))
        generator = torch.Generator().manual_seed(o.seed * 1_000_003 + step)
        clean = degradations.varied(pool.crops(o.batch, o.crop, step % 2 == 0, generator))
        loss = size(net, clean)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        adam.step()
        found.append(loss.item())
        step += 1
        if time.monotonic() - reported > 120:
            line = {"step": step, "loss": round(sum(found) / len(found), 4), **validate(net, shown)}
            print(json.dumps(line), flush=True)
            found, reported = [], time.monotonic()
    torch.save({"settings": net.settings, "net": net.state_dict(), "step": step}, o.out)


if __name__ == "__main__":
    main()
