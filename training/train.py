"""Learn the kernel's network by gradient descent.

    python training/train.py --pictures FOLDER [FOLDER ...] --out kernel.pt --minutes 600

The run is resumed from --out where that exists. Each step adds the gradient of a batch to denoise and of a batch to
restore through random operators; grey and colour pictures take turns. On a GPU each kind of batch is recorded as one
CUDA graph.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import degradations
import losses
import torch
from optimiser import Muon
from pictures import LUMA, Pool, listed, read
from torch import Tensor

from slir.io.models import load_kernel
from slir.kernel.network import FINE_LAYERS, KernelNetwork
from slir.kernel.stage import STAGES

SIGMAS = (2, 15, 25, 50)
"""Grey levels of noise at which denoising is validated."""

EDGES = ("head", "tail", "patches", "error")
"""First and last layers, which Adam learns; all others are learnt by Muon."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint; the log is written beside it")
    parser.add_argument("--start", type=Path, help="weights to begin with: a checkpoint or a kernel's file")
    parser.add_argument("--minutes", type=float, required=True, help="length of the schedule, over all runs")
    parser.add_argument(
        "--pause", type=float, default=math.inf, help="end this run after so many minutes, to go on later"
    )
    parser.add_argument("--steps", type=int, help="end after so many steps in any case")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--decay", type=float, default=0.4, help="share of the schedule in which the rate falls to zero"
    )
    parser.add_argument("--denoising", action="store_true", help="leave the other tasks out")
    parser.add_argument("--camera", action="store_true", help="learn the fine layers alone, for noise of cameras")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--widths", type=int, nargs=3, default=(64, 96, 176))
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16, help="crops to denoise in a step")
    parser.add_argument("--loop-batch", type=int, default=6, help="crops to restore through operators in a step")
    parser.add_argument("--operators", type=float, default=1.0, help="share of the operators to draw")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def weights(path: Path) -> dict[str, Tensor]:
    """Of a checkpoint, or of a kernel that ships."""
    if path.suffix == ".safetensors":
        return load_kernel(path).network.state_dict()
    return torch.load(path, map_location="cpu")["mean"]


class Trainer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device(options.device)
        torch.manual_seed(options.seed)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False  # of the first layer, which is in single precision
        learnt_from, held_out = listed(options.pictures)
        self.pool = Pool(learnt_from, self.device)
        self.held_out = validation_crops([read(p) for p in held_out]).to(self.device)
        self.banks = {}
        if not (options.denoising or options.camera):
            workers = len(os.sched_getaffinity(0))
            self.banks = degradations.banks(options.crop, self.device, options.seed, options.operators, workers)
        self.net = KernelNetwork(options.widths).to(self.device, memory_format=torch.channels_last)
        if options.start:
            trunk = {k: v for k, v in weights(options.start).items() if not k.startswith("error.")}
            self.net.load_state_dict(trunk, strict=False)
        self.mean = copy.deepcopy(self.net)
        if options.camera:
            for name, weight in self.net.named_parameters():
                weight.requires_grad_(name.startswith(FINE_LAYERS))
        named = [(name, weight) for name, weight in self.net.named_parameters() if weight.requires_grad]
        self.learnt = [weight for _, weight in named]
        matrices = [p for name, p in named if name.split(".")[0] not in EDGES]
        edges = [p for name, p in named if name.split(".")[0] in EDGES]
        self.lr = torch.zeros((), device=self.device)
        cuda = self.device.type == "cuda"
        adam = torch.optim.Adam(edges, lr=self.lr, foreach=cuda, capturable=cuda)
        self.optimisers = [adam, Muon(matrices, lr=self.lr)]
        self.keep = torch.zeros((), device=self.device)
        for p in self.learnt:
            p.grad = torch.zeros_like(p)
        self.blend = torch.zeros((), device=self.device)
        self.step, self.pixels, self.seconds = 0, 0, 0.0
        if options.out.exists():
            self.load()
            torch.manual_seed(options.seed + self.step)
        self.recorded: dict[tuple[str, bool], Callable[[Tensor], Tensor]] = {}
        self.recorded_update: torch.cuda.CUDAGraph | None = None

    def load(self) -> None:
        state = torch.load(self.options.out, map_location=self.device)
        self.net.load_state_dict(state["net"])
        self.mean.load_state_dict(state["mean"])
        for optimiser, kept in zip(self.optimisers, state["optimisers"]):
            optimiser.load_state_dict(kept)
            for group in optimiser.param_groups:
                group["lr"] = self.lr
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
        """Warm-up, a constant rate, and a linear decay at the end."""
        left = 1 - self.seconds / (60 * self.options.minutes)
        return self.options.lr * min(1, (self.step + 1) / 500, max(0.001, left / self.options.decay))

    def blended(self) -> float:
        """Share of root mean square errors in the loss: none at first, all at the end and where a run starts from
        weights, which were learnt to the end."""
        if self.options.start:
            return 1.0
        left = 1 - self.seconds / (60 * self.options.minutes)
        return min(1.0, 4 * max(0.0, 1 - left / self.options.decay))

    def loss(self, kind: str, clean: Tensor) -> Tensor:
        clean = degradations.varied(clean, self.banks["mask"].kernels if self.banks else None)
        if kind == "noise":
            spoil = degradations.by_camera if self.options.camera else degradations.with_noise
            return losses.denoising(self.net, clean, spoil, self.blend)
        return losses.restoring(self.net, clean, self.banks[kind], STAGES, self.blend)

    def gradient(self, kind: str, grey: bool, generator: torch.Generator) -> Tensor:
        """Adds the gradient of one batch; the loss."""
        o = self.options
        count = o.batch if kind == "noise" else o.loop_batch
        clean = self.pool.crops(count, degradations.field_side(kind, o.crop), grey, generator)
        self.pixels += clean[:, 0].numel()
        if self.device.type != "cuda":
            loss = self.loss(kind, clean)
            loss.backward()
            return loss.detach()
        if (kind, grey) not in self.recorded:
            self.recorded[kind, grey] = self.record(kind, clean)
        return self.recorded[kind, grey](clean)

    def record(self, kind: str, clean: Tensor) -> Callable[[Tensor], Tensor]:
        """The loss and its gradient as one CUDA graph."""
        own = clean.clone()
        kept = [p.grad.clone() for p in self.learnt]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self.loss(kind, own).backward()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = self.loss(kind, own)
            loss.backward()
        for p, grad in zip(self.learnt, kept):
            p.grad.copy_(grad)

        def replay(clean: Tensor) -> Tensor:
            own.copy_(clean)
            graph.replay()
            return loss.detach().clone()

        return replay

    def run(self) -> None:
        o = self.options
        shares = torch.tensor(list(degradations.SHARES.values()))
        kinds = list(degradations.SHARES)
        began = saved = reported = time.monotonic()
        before = self.seconds
        found: dict[str, list[Tensor]] = {}
        while self.seconds < 60 * o.minutes and self.step != o.steps and time.monotonic() - began < 60 * o.pause:
            generator = torch.Generator().manual_seed(o.seed * 1_000_003 + self.step)
            grey = self.step % 2 == 0
            self.blend.fill_(self.blended())
            found.setdefault("noise", []).append(self.gradient("noise", grey, generator))
            if self.banks:
                kind = kinds[int(torch.multinomial(shares, 1, generator=generator))]
                found.setdefault(kind, []).append(self.gradient(kind, grey, generator))
            self.update()
            self.seconds = before + time.monotonic() - began
            if self.step % 50 == 0 and self.device.type == "cuda":
                torch.cuda.synchronize()
            if time.monotonic() - reported > (90 if self.device.type == "cuda" else 300):
                self.report(found)
                found, reported = {}, time.monotonic()
            if time.monotonic() - saved > (120 if self.device.type == "cuda" else 600):
                self.save()
                saved = time.monotonic()
        self.report(found)
        self.save()

    def update(self) -> None:
        """One step along the gradient. On a GPU it is recorded once all buffers are there."""
        self.lr.fill_(self.rate())
        self.keep.fill_(min(0.999, self.step / (self.step + 100)))
        if self.recorded_update:
            self.recorded_update.replay()
        else:
            self.move()
            if self.device.type == "cuda" and self.step % 10 == 9:
                torch.cuda.synchronize()
                self.recorded_update = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.recorded_update):
                    self.move()
        self.step += 1

    @torch.no_grad()
    def move(self) -> None:
        means = dict(self.mean.named_parameters())
        parameters = self.learnt
        mean = [means[name] for name, p in self.net.named_parameters() if p.requires_grad]
        grads = [p.grad for p in parameters]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        # a step that is not finite is left out
        scale = torch.where(norm.isfinite(), (1 / norm.clamp(min=1e-12)).clamp(max=1.0), torch.zeros_like(norm))
        for g in grads:
            g.nan_to_num_(0.0, 0.0, 0.0)
        torch._foreach_mul_(grads, scale)
        for optimiser in self.optimisers:
            optimiser.step()
        torch._foreach_zero_(grads)
        ahead = torch._foreach_sub(parameters, mean)
        torch._foreach_mul_(ahead, 1 - self.keep)
        torch._foreach_add_(mean, ahead)

    @torch.no_grad()
    def report(self, found: dict[str, list[Tensor]]) -> None:
        line = {"step": self.step, "pixels": self.pixels, "minutes": round(self.seconds / 60, 2), "lr": self.rate()}
        line |= {f"loss-{kind}": round(float(torch.stack(own).mean()), 5) for kind, own in sorted(found.items())}
        line |= {k: round(v, 3) for k, v in validate(self.mean, self.held_out).items()}
        for kind, bank in self.banks.items():
            line |= {k: round(v, 3) for k, v in validate_loop(self.mean, self.held_out, kind, bank).items()}
        with self.options.out.with_suffix(".jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def validation_crops(pictures: list[Tensor], side: int = 256) -> Tensor:
    """(N, 3, side, side) in [0, 1]: the middles."""
    middles = []
    for p in pictures:
        row, column = ((n - side) // 2 for n in p.shape[-2:])
        middles.append(p[:, row : row + side, column : column + side].float() / 255)
    return torch.stack(middles)


def grey_of(clean: Tensor) -> Tensor:
    return (clean * LUMA.to(clean).view(1, 3, 1, 1)).sum(1, keepdim=True)


def psnr(estimate: Tensor, clean: Tensor) -> float:
    """Mean over pictures."""
    mse = (estimate.clamp(0, 1) - clean).square().mean((1, 2, 3))
    return (-10 * mse.log10()).mean().item()


@torch.no_grad()
def validate(net: KernelNetwork, clean: Tensor) -> dict[str, float]:
    """PSNR in denoising of grey and colour pictures."""
    scores = {}
    for name, x in (("grey", grey_of(clean)), ("colour", clean)):
        for sigma in SIGMAS:
            y = x + sigma / 255 * torch.randn(x.shape, generator=torch.Generator().manual_seed(sigma)).to(x)
            level = torch.full_like(x[:1], sigma / 255)
            scores[f"{name}-{sigma}"] = psnr(denoised(net, y, level.expand_as(y)), x)
    for name, degraded in (("camera", degradations.with_camera_noise), ("jpeg", degradations.with_jpeg)):
        with torch.random.fork_rng([clean.device] if clean.device.type == "cuda" else []):
            torch.manual_seed(1)
            y, truth, level = degraded(clean)
        scores[name] = psnr(denoised(net, y, level), truth)
        scores[f"{name}-came"] = psnr(y, truth)
    return scores


def denoised(net: KernelNetwork, y: Tensor, level: Tensor) -> Tensor:
    with losses.half_precision(y.device):
        pairs = zip(y.split(1), level.split(1))
        return torch.cat([net(p, p, torch.zeros_like(p), noise).float() for p, noise in pairs])


@torch.no_grad()
def validate_loop(net: KernelNetwork, clean: Tensor, kind: str, bank: degradations.Bank) -> dict[str, float]:
    """PSNR through the operators of a kind that a fixed seed draws, of grey crops."""
    side = bank.kernels.shape[-1]
    x = grey_of(clean)[..., :side, :side]
    with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
        torch.manual_seed(1)
        operators, sigma = bank.draw(len(x), side)
        y = operators.forward(x)
        y = y + sigma * torch.randn_like(y)
        with losses.half_precision(x.device):
            *_, (estimate, _) = losses.unrolled(net, operators, y, sigma, STAGES)
        return {kind: psnr(estimate.float(), x)}


if __name__ == "__main__":
    Trainer(arguments()).run()
