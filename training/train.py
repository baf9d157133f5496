"""Learn the kernel's network by gradient descent.

    python training/train.py --pictures FOLDER [FOLDER ...] --out kernel.pt --minutes 600

The run is resumed from --out where that exists. Each step is an average over several small batches, which are shared
out among --workers threads of one core each: they do not wait for each other within a step, so other work on the
machine slows them in proportion.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import losses
import torch
from optimiser import Muon
from pictures import LUMA, Pool, listed, read
from torch import Tensor

from slir.kernel.network import KernelNetwork

SIGMAS = (15, 25, 50)
"""Grey levels of noise at which denoising is validated."""

EDGES = ("head", "patches", "error")
"""First and last layers, which Adam learns; all others are learnt by Muon."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint; the log is written beside it")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--minutes", type=float, required=True, help="length of the schedule, over all runs")
    parser.add_argument("--steps", type=int, help="end after so many steps in any case")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--denoising", action="store_true", help="leave the other tasks out")
    parser.add_argument("--grey", action="store_true", help="a network for single planes")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8, help="crops in one small batch")
    parser.add_argument("--accumulate", type=int, default=2, help="small batches in one step")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        torch.manual_seed(options.seed)
        learnt_from, held_out = listed(options.pictures)
        self.pool = Pool(learnt_from)
        self.held_out = validation_crops([read(p) for p in held_out])
        self.device = torch.device(options.device)
        self.net = KernelNetwork(options.width, colour=not options.grey)
        self.net = self.net.to(self.device, memory_format=torch.channels_last)
        if options.start:
            self.net.load_state_dict(torch.load(options.start, map_location=self.device))
        self.mean = copy.deepcopy(self.net)
        named = list(self.net.named_parameters())
        matrices = [p for name, p in named if name.split(".")[0] not in EDGES]
        edges = [p for name, p in named if name.split(".")[0] in EDGES]
        self.optimisers = [torch.optim.Adam(edges, lr=options.lr), Muon(matrices, lr=options.lr)]
        self.step, self.pixels, self.seconds = 0, 0, 0.0
        if options.out.exists():
            self.load()
        self.replicas = [self.replica() for _ in range(options.workers)]

    def replica(self) -> KernelNetwork:
        """A network on the same weights, with gradients of its own."""
        other = copy.deepcopy(self.net)
        for p, q in zip(other.parameters(), self.net.parameters()):
            p.data = q.data
        return other

    def load(self) -> None:
        state = torch.load(self.options.out, map_location=self.device)
        self.net.load_state_dict(state["net"])
        self.mean.load_state_dict(state["mean"])
        for optimiser, kept in zip(self.optimisers, state["optimisers"]):
            optimiser.load_state_dict(kept)
        self.step, self.pixels, self.seconds = state["step"], state["pixels"], state["seconds"]

    def save(self) -> None:
        part = self.options.out.with_suffix(".part")
        torch.save(
            {
                "settings": self.net.settings,
                "net": self.net.state_dict(),
                "mean": self.mean.state_dict(),
                "optimisers": [o.state_dict() for o in self.optimisers],
                "step": self.step,
                "pixels": self.pixels,
                "seconds": self.seconds,
            },
            part,
        )
        part.replace(self.options.out)

    def rate(self) -> float:
        """Warm-up, a constant rate, and a linear decay over the last two fifths."""
        share = self.seconds / (60 * self.options.minutes)
        return self.options.lr * min(1, (self.step + 1) / 200, max(0.002, (1 - share) / 0.4))

    def small_batch(self, index: int, worker: KernelNetwork) -> float:
        """Adds the gradient of one small batch to the worker's."""
        o = self.options
        generator = torch.Generator().manual_seed((o.seed * 1_000_003 + self.step) * 64 + index)
        # in turns: denoising and the loop; of steps: grey and colour
        restoring = index % 2 == 1 and not o.denoising
        grey = o.grey or self.step % 2 == 0
        # the loop costs several passes, so its batches are smaller
        clean = self.pool.crops(max(1, o.batch // 2) if restoring else o.batch, o.crop, grey, generator)
        loss = (losses.restoring if restoring else losses.denoising)(worker, clean, generator, self.device)
        (loss / o.accumulate).backward()
        return loss.item()

    def run(self) -> None:
        o = self.options
        idle = list(self.replicas)
        saved = time.monotonic()
        found: list[float] = []

        def share(index: int) -> float:
            torch.set_num_threads(1)
            worker = idle.pop()
            try:
                return self.small_batch(index, worker)
            finally:
                idle.append(worker)

        with ThreadPoolExecutor(o.workers) as threads:
            while self.seconds < 60 * o.minutes and self.step != o.steps:
                began = time.monotonic()
                found += threads.map(share, range(o.accumulate))
                self.update()
                self.seconds += time.monotonic() - began
                if self.step % 250 == 0:
                    self.report(found)
                    found = []
                if time.monotonic() - saved > 600:
                    self.save()
                    saved = time.monotonic()
        self.report(found)
        self.save()

    @torch.no_grad()
    def update(self) -> None:
        for p, *others in zip(self.net.parameters(), *(r.parameters() for r in self.replicas)):
            grads = [q.grad for q in others if q.grad is not None]
            p.grad = torch.stack(grads).sum(0) if len(grads) > 1 else grads[0] if grads else torch.zeros_like(p)
        for replica in self.replicas:
            replica.zero_grad(set_to_none=True)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.rate()
            optimiser.step()
        self.step += 1
        self.pixels += self.options.accumulate * self.options.batch * self.options.crop**2
        if self.step % 4 == 0:
            keep = min(0.995, self.step / (self.step + 100))
            torch._foreach_lerp_(list(self.mean.parameters()), list(self.net.parameters()), 1 - keep)

    @torch.no_grad()
    def report(self, found: list[float]) -> None:
        scores = {k: round(v, 3) for k, v in validate(self.mean, self.held_out.to(self.device)).items()}
        line = {"step": self.step, "pixels": self.pixels, "minutes": round(self.seconds / 60, 1), "lr": self.rate()}
        line |= {"loss": round(sum(found) / max(1, len(found)), 5)} | scores
        with self.options.out.with_suffix(".jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def validation_crops(pictures: list[Tensor], side: int = 256) -> Tensor:
    """(N, 3, side, side) in [0, 1]: the middles."""
    middles = []
    for p in pictures:
        row, column = ((n - side) // 2 for n in p.shape[-2:])
        middles.append(p[:, row : row + side, column : column + side].float() / 255)
    return torch.stack(middles)


@torch.no_grad()
def validate(net: KernelNetwork, clean: Tensor) -> dict[str, float]:
    """PSNR in denoising of grey and colour pictures, mean over pictures."""
    scores = {}
    grey = (clean * LUMA.to(clean).view(1, 3, 1, 1)).sum(1, keepdim=True)
    for name, x in (("grey", grey), ("colour", clean)) if net.colour else (("grey", grey),):
        for sigma in SIGMAS:
            y = x + sigma / 255 * torch.randn(x.shape, generator=torch.Generator().manual_seed(sigma)).to(x)
            level = torch.full_like(x[:1], sigma / 255)
            with losses.half_precision(x.device):
                estimate = torch.cat([net(p, p, torch.zeros_like(p), level).float() for p in y.split(1)])
            mse = (estimate.clamp(0, 1) - x).square().mean((1, 2, 3))
            scores[f"{name}-{sigma}"] = (-10 * mse.log10()).mean().item()
    return scores


if __name__ == "__main__":
    Trainer(arguments()).run()
