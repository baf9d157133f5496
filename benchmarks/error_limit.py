"""What any map of errors to expect could win: slir's, a network that sees all there is around a pixel, and the truth.

    python benchmarks/error_limit.py DIR [--case denoise:25 deblur:1] [--images 200] [--steps 3000] [--device cuda]

DIR is the benchmark's data folder (docs/benchmark.md); its training pictures alone are used, three quarters of them to
learn from and the rest to judge by. Without the tenth of the pixels that a map expects to be worst, the root mean
square error falls by so much, of all these pixels together. slir's map is calibrated on the first pictures. The network
(eleven layers of 3×3, a field of 41 pixels, 0.9 million weights) sees the same evidence and, besides, x̂, what is left
over and what the estimates that x̂ was made from say, learns from every pixel of the same pictures, turned and mirrored,
by gradient descent and begins with slir's map. Last, maps of the true mean square error of each pixel's neighbourhood,
which nobody has. With 200 pictures and 3000 steps a GPU takes a minute or two a case; a CPU most of a day.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import slir
from slir.bank import degrade
from slir.bench.files import load_kernel
from slir.bench.protocols import train_images
from slir.compute import pick_device
from slir.estimator.loop import advance, begin, finished
from slir.model import Model
from slir.operators import Blur, Identity, Operator
from slir.trust.evidence import box, evidence
from slir.trust.record import expected_error_map

SIDE, BATCH, RATE = 96, 48, 1e-3
SIDES = (320, 480)
"""Of the pictures, all of which lie on their side."""


class Network(nn.Module):
    """log E[e²] less that of the map it begins with: (n, C, H, W) -> (n, H, W)."""

    def __init__(self, channels: int, width: int = 96) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(*(layer for _ in range(2) for layer in (nn.GELU(), _wide(width, apart))))
            for apart in (1, 2, 4, 2, 1)
        )
        self.last = nn.Conv2d(width, 1, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)  # type: ignore[arg-type]

    def forward(self, seen: Tensor) -> Tensor:
        found = self.first(seen)
        for block in self.blocks:
            found = found + block(found)
        return self.last(F.gelu(found))[:, 0]


def _wide(width: int, apart: int) -> nn.Conv2d:
    return nn.Conv2d(width, width, 3, padding=apart, dilation=apart)


@torch.no_grad()
def looked_at(
    picture: Tensor, operator: Operator, sigma: float, model: Model, draw: torch.Generator, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """All that a restoration shows (C, H, W), its error (H, W), and log ê² as slir expects it, in units."""
    y = degrade(picture, operator, sigma, draw).to(device)
    state = begin(y, operator, model, sigma)
    for stage in model.stages:
        state = advance(state, stage, telling=stage is model.stages[-1])[0]
    state = finished(state, model)
    left = operator.adjoint(operator.misfit(state.y, state.x)) / state.sigma
    others = [image - state.x for image in (state.z, *state.kept.values())]
    images = [make() for _, make in evidence(state, model.stages[-1])] + [state.x, left, *others]
    expected = expected_error_map(state, model)
    assert expected is not None
    shown = (y.shape[0], y.shape[1])
    error = operator.crop(state.x - picture.to(device) / state.unit, shown)
    return operator.crop(torch.stack(images), shown).half(), error, operator.crop(2 * expected.log(), shown)


def trained(seen: Tensor, errors: Tensor, start: Tensor, steps: int) -> Network:
    """By the same quasi-likelihood as slir's regression, Σ e²/μ + log μ."""
    network = Network(seen.shape[1]).to(seen.device)
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    draw = np.random.default_rng(0)
    for _ in range(steps):
        places = [
            (draw.integers(len(seen)), *(draw.integers(n - SIDE + 1) for n in seen.shape[2:])) for _ in range(BATCH)
        ]
        way = int(draw.integers(4)), bool(draw.integers(2))
        own, error, base = (_cut(images, places, *way) for images in (seen, errors, start))
        with torch.autocast(seen.device.type, torch.bfloat16):
            change = network(own)
        mu = (change.float() + base).clamp(-14, 8)
        loss = (error.square() * torch.exp(-mu) + mu).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return network.eval()


def _cut(images: Tensor, places: list[tuple[int, int, int]], turns: int, mirrored: bool) -> Tensor:
    """Squares out of images, turned by so many quarters."""
    cut = torch.stack([images[i, ..., row : row + SIDE, col : col + SIDE] for i, row, col in places]).float()
    cut = torch.rot90(cut, turns, (-2, -1))
    return cut.flip(-1) if mirrored else cut


def won(errors: Tensor, expected: Tensor) -> str:
    """By how many percent the error falls without the tenth that is expected to be worst."""
    order = expected.flatten().argsort()
    squares = errors.flatten().double().square()
    kept = squares[order[: len(order) - len(order) // 10]]
    return f"{100 * (1 - float((kept.mean() / squares.mean()).sqrt())):5.1f} %"


def judged(name: str, pictures: list[Tensor], data: Path, steps: int, device: torch.device) -> None:
    task, setting = name.split(":")
    operator: Operator = Identity()
    sigma = int(setting) / 255 if task == "denoise" else 0.01
    if task == "deblur":
        kernel = load_kernel(data, f"kernel {setting}").astype(np.float64)
        operator = Blur(kernel / kernel.sum())
    learnt = 3 * len(pictures) // 4
    known = [picture.numpy() for picture in pictures[:learnt]]
    model = slir.calibrate(known, operator=operator, sigma=sigma, grain=0.0, crops=learnt, device=device).to(device)
    draw = torch.Generator().manual_seed(0)
    rows = [looked_at(picture, operator, sigma, model, draw, device) for picture in pictures]
    seen, errors, expected = (torch.stack(column) for column in zip(*rows))
    for channel in range(seen.shape[1]):
        own = seen[:, channel].float()
        seen[:, channel] = ((own - own[:learnt].mean()) / (own[:learnt].std() + 1e-3)).clamp(-8, 8).half()
    network = trained(seen[:learnt], errors[:learnt], expected[:learnt], steps)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        changes = torch.cat([network(one[None].float()).float() for one in seen[learnt:]])
    errors, expected = errors[learnt:], expected[learnt:]
    around = {side: torch.stack([box(one.square(), side // 2) for one in errors]) for side in (9, 5, 3)}
    truth = ", ".join(f"{side}×{side} {won(errors, found)}" for side, found in around.items())
    print(
        f"{name:<12} slir {won(errors, expected)}   network {won(errors, expected + changes)}   truth: {truth}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--case", nargs="+", default=["denoise:25", "deblur:1"], help="denoise:SIGMA or deblur:KERNEL")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--device")
    options = parser.parse_args()
    torch.manual_seed(0)
    pictures = []
    for image in train_images(options.data, options.images):
        picture = torch.from_numpy(np.asarray(image, np.float32))
        picture = picture if picture.shape[0] < picture.shape[1] else picture.T
        pictures.append(picture[: SIDES[0], : SIDES[1]].contiguous())
    for case in options.case:
        judged(case, pictures, options.data, options.steps, pick_device(options.device))


if __name__ == "__main__":
    main()
