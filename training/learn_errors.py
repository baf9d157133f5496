"""Learn the network's error head, then calibrate it on pictures that nothing was learnt from; write the model's file.

    python training/learn_errors.py --pictures FOLDER [FOLDER ...] --network kernel.pt --out kernel.safetensors

The trunk stays as it is. The head learns the logarithm of the root mean square error in squares of 5×5 pixels, by its
mean absolute error: a likelihood would be ruled by the few pixels where the head is far too sure. What is left between
that and E[(x̂ − x)²] the calibration corrects.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import degradations
import torch
import torch.nn.functional as F
from pictures import LUMA, Pool, listed, read
from torch import Tensor

import slir
from slir.cascade import cell_features, least_noise
from slir.cells import DirectionCells, direction_cells
from slir.families import AnyBlur, AnyDownsampling, AnyMask, Family, Noise
from slir.kernel.errors import NetworkErrors
from slir.kernel.network import PATCH, KernelNetwork
from slir.kernel.stage import KernelStage, stages
from slir.model import Model
from slir.operators import Identity, Mask, Operator
from slir.restoration import advance
from slir.trust.examples import draw_examples
from slir.trust.intervals import calibrate_errors
from slir.trust.record import Trust

SIDE, PIXELS = 192, 4000
"""Of the crops that errors are calibrated on, and how many pixels of each count."""

AROUND, LEAST = 5, 1e-6
"""Side of the squares in which errors are averaged, and the smallest error that counts, range 1."""

SHOWN = ("cc0", "free-images")
"""Folders of pictures that may be shown as examples."""


def drawn(denoise: bool, clean: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Operator, float]:
    """Clean pictures as far as the operator takes them, y, B and σ."""
    operator: Operator = Identity()
    sigma = degradations.LARGEST_SIGMA * float(torch.rand((), generator=generator))
    if not denoise:
        operator, sigma = degradations.operator(generator, (clean.shape[-2], clean.shape[-1]))
    height, width = operator.for_training((clean.shape[-2], clean.shape[-1]))[1]
    clean = clean[..., :height, :width]
    y = operator.forward(clean)
    return clean, y + sigma * torch.randn(y.shape, generator=generator), operator, sigma


def before_last(y: Tensor, operator: Operator, sigma: float, chain: tuple[KernelStage, ...]) -> Any:
    """The state that the last stage sees, of one picture (C, H, W) or plane (H, W)."""
    level = torch.full((len(y), 1, 1), sigma) if y.ndim > 2 else sigma
    state = chain[0].opening(y, operator, level)
    for stage in chain[:-1]:
        state, _ = advance(state, stage)
    return replace(state, told={})


def inputs(state: Any, stage: KernelStage) -> tuple[Tensor, Tensor]:
    """x and the trunk's output."""
    x, before, residual, level = stage.planes(state)
    return x, stage.network.trunk(x, before, residual, level)


def learn(net: KernelNetwork, pool: Pool, o: argparse.Namespace) -> list[float]:
    net.requires_grad_(False)
    net.error.requires_grad_(True)
    adam = torch.optim.Adam(net.error.parameters(), lr=2e-3)
    began, step, losses = time.monotonic(), 0, []
    while (share := (time.monotonic() - began) / (60 * o.minutes)) < 1:
        for group in adam.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50) * (1 - share)
        generator = torch.Generator().manual_seed(o.seed * 1_000_003 + step)
        grey = not net.colour or step % 2 == 0
        crop = pool.crops(1, 128, grey, generator)[0]
        clean, y, operator, sigma = drawn(step // 2 % 2 == 0, crop[0] if grey else crop, generator)
        chain = stages(net, 1 if isinstance(operator, Identity) else o.stages)
        with torch.no_grad():
            state = before_last(y, operator, least_noise(sigma), chain)
            x, trunk = inputs(state, chain[-1])
            truth = clean.reshape(1, -1, *clean.shape[-2:])
            error = (net.estimate(x, trunk)[..., : truth.shape[-2], : truth.shape[-1]] - truth).square()
        e = net.expected_error(trunk, truth.shape[1])[..., : truth.shape[-2], : truth.shape[-1]]
        around = F.avg_pool2d(error, AROUND, stride=1, padding=AROUND // 2, count_include_pad=False)
        loss = ((e + LEAST).log() - (around.sqrt() + LEAST).log()).abs()
        if isinstance(operator, Mask):
            loss = loss[operator.missing.expand(loss.shape)]
        loss = loss.mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.error.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
        step += 1
    net.requires_grad_(False)
    return losses


FAMILIES: dict[str, Family] = {
    "denoise": Noise(1 / 255, 75 / 255),
    "deblur": AnyBlur(),
    "upsample": AnyDownsampling(2),
    "inpaint": AnyMask(),
}
"""What each task's errors are calibrated on."""


@torch.no_grad()
def calibrate(net: KernelNetwork, pictures: list[Tensor], o: argparse.Namespace) -> Trust:
    """Of one task, from crops of pictures that nothing was learnt from, restored as in use."""
    generator = torch.Generator().manual_seed(o.seed)
    chain = stages(net, 1 if o.task == "denoise" else o.stages)
    raw, errors, sigmas = [], [], []
    for number in range(o.crops):
        picture = pictures[number % len(pictures)]
        row, column = (int(torch.randint(n - SIDE + 1, (), generator=generator)) for n in picture.shape[-2:])
        crop = picture[:, row : row + SIDE, column : column + SIDE].float() / 255
        clean = crop if net.colour and number // len(pictures) % 2 else (crop * LUMA[:, None, None]).sum(0)
        operator, sigma = FAMILIES[o.task].draw(generator, (SIDE, SIDE))
        height, width = operator.for_training((SIDE, SIDE))[1]
        clean = clean[..., :height, :width]
        y = operator.forward(clean)
        y = y + sigma * torch.randn(y.shape, generator=generator)
        state, _ = advance(before_last(y, operator, least_noise(sigma), chain), chain[-1], telling=True)
        inside = torch.zeros(clean.shape[-2:], dtype=torch.bool)
        operator.crop(inside, (y.shape[-2], y.shape[-1]))[:] = True
        if isinstance(operator, Mask):
            inside &= operator.missing
        some = inside.expand(clean.shape).flatten().nonzero()[:, 0]
        some = some[torch.randperm(len(some), generator=generator)[:PIXELS]]
        raw.append(NetworkErrors().log_square(state, chain[-1]).flatten()[some])
        errors.append((state.x - clean).flatten()[some])
        sigmas.append(least_noise(sigma))
    table = calibrate_errors(torch.cat(raw), torch.cat(errors))
    what = {"family": FAMILIES[o.task].describe(), "pictures": len(pictures), "crops": o.crops}
    return Trust(NetworkErrors(), table, (min(sigmas), max(sigmas)), (1.0, 1.0), what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--network", type=Path, required=True, help="checkpoint of train.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", choices=list(FAMILIES), required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--crops", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    learnt_from, held_out = listed(o.pictures)
    state = torch.load(o.network)
    torch.manual_seed(o.seed)
    net = KernelNetwork(**state["settings"])
    net.load_state_dict(state["mean"])
    net = net.to(memory_format=torch.channels_last)
    planes = [(read(p).float() / 255 * LUMA[:, None, None]).sum(0) for p in learnt_from if p.parent.name in SHOWN]
    names = [p.stem for p in learnt_from if p.parent.name in SHOWN]
    losses = learn(net, Pool(learnt_from), o)
    trust = calibrate(net, [read(p) for p in held_out], o)
    generator = torch.Generator().manual_seed(o.seed)
    cells = direction_cells(cell_features(some_patches(planes, generator)), 64, generator=generator)
    kinds = partial(kinds_of, cells)
    examples = draw_examples(planes, names, kinds, size=PATCH, unit=1.0, generator=generator)
    provenance = {
        "method": "kernel",
        "slir": slir.__version__,
        "family": {"kind": o.task},
        "pictures": len(learnt_from),
        "steps": state["step"],
        "crop_pixels": state["pixels"],
        "hours": round(state["seconds"] / 3600, 2),
        "error_head": {"steps": len(losses), "loss": round(sum(losses[-200:]) / len(losses[-200:]), 4)},
    }
    chain = stages(net, 1 if o.task == "denoise" else o.stages)
    Model(chain, provenance, trust=trust, examples=examples).save(str(o.out))


def kinds_of(cells: DirectionCells, patches: Tensor) -> Tensor:
    return cells.assign(cell_features(patches))


def some_patches(planes: list[Tensor], generator: torch.Generator, each: int = 2000) -> Tensor:
    found = []
    for plane in planes:
        windows = plane.unfold(0, PATCH, 1).unfold(1, PATCH, 1)
        rows, cols = (torch.randint(n, (each,), generator=generator) for n in windows.shape[:2])
        found.append(windows[rows, cols].flatten(1))
    return torch.cat(found)


if __name__ == "__main__":
    main()
