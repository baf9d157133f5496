"""Learn the network's error head, calibrate it on pictures that were held out, and write the kernel's file.

    python training/learn_errors.py --pictures FOLDER [FOLDER ...] --network kernel.pt --out kernel.safetensors

The trunk stays as it is. The head learns the logarithm of the root mean square error in squares of 5×5 pixels, by the
loss of a quantile: a likelihood would be ruled by the few pixels where the head is far too sure. The calibration
corrects what is left between that and E[(x̂ − x)²].
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import degradations
import losses
import torch
import torch.nn.functional as F
from pictures import LUMA, Pool, listed, read, sizes
from torch import Tensor

import slir
from slir.io.models import load_kernel, write_kernel
from slir.kernel.cell_ridge import cell_features, k_means
from slir.kernel.degradations import AnyBlur, AnyDownsampling, AnyMask, Family, Noise
from slir.kernel.learnt import LearntKernel
from slir.kernel.network import PATCH, KernelNetwork
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.stage import STAGES
from slir.trust.calibrate import calibrate_model
from slir.trust.examples import draw_examples

AROUND, LEAST = 5, 1e-6
"""Side of the squares in which errors are averaged, and the smallest error that counts, range 1."""

QUANTILE = 0.65
"""What the head learns of the distribution of local errors: about the mean square of one that is not skewed."""

GRAIN = (0.003, 0.006, 0.01)
"""Standard deviations of the grain that is added to crops, in turn: pictures that were reduced have lost theirs."""

CAMERA_SHARE = 0.7
"""Weight of the network that was learnt from simulated cameras, in an average with the one for white noise: cameras
differ from their simulation, and the average loses less where they do."""

SHOWN = ("cc0", "free-images")
"""Folders of pictures that may be shown as examples."""

KINDS = 64
"""Kinds of patches of which examples are drawn equally."""

FAMILIES: dict[str, Family] = {
    "denoise": Noise(1 / 255, 75 / 255),
    "deblur": AnyBlur(),
    "upsample2": AnyDownsampling(2),
    "upsample3": AnyDownsampling(3),
    "upsample4": AnyDownsampling(4),
    "inpaint": AnyMask(),
}
"""What the errors of each task are calibrated on."""


@torch.no_grad()
def restored(
    net: KernelNetwork, kind: str, clean: Tensor, banks: dict[str, degradations.Bank]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x̂ of degraded crops, the trunk's output in the last stage, the truth, and where errors count."""
    counted = torch.ones_like(clean, dtype=torch.bool)
    with losses.half_precision(clean.device):
        if kind == "noise":
            y, truth, level = degradations.with_noise(clean)
            trunk = net.trunk(y, y, torch.zeros_like(y), level)
            return net.estimate(y, trunk), trunk, truth, counted
        operators, sigma = banks[kind].draw(len(clean), clean.shape[-1])
        y = operators.forward(clean)
        y = y + sigma * torch.randn_like(y)
        *_, (estimate, trunk) = losses.unrolled(net, operators, y, sigma, STAGES)
    if hasattr(operators, "known"):
        counted = counted & ((operators.known == 0) | (sigma > 0))
    return estimate, trunk, clean, counted


def learn(net: KernelNetwork, pool: Pool, o: argparse.Namespace, device: torch.device) -> list[float]:
    net.requires_grad_(False)
    net.error.requires_grad_(True)
    banks = degradations.banks(o.crop, device, o.seed, o.operators, len(os.sched_getaffinity(0)))
    kinds, shares = list(degradations.SHARES), torch.tensor(list(degradations.SHARES.values()))
    adam = torch.optim.Adam(net.error.parameters(), lr=o.lr)
    began, step, found = time.monotonic(), 0, []
    while (share := (time.monotonic() - began) / (60 * o.minutes)) < 1:
        for group in adam.param_groups:
            group["lr"] = o.lr * min(1, (step + 1) / 50) * (1 - share)
        generator = torch.Generator().manual_seed(o.seed * 1_000_003 + step)
        kind = kinds[int(torch.multinomial(shares, 1, generator=generator))] if step % 4 > 1 else "noise"
        clean = pool.crops(o.batch, degradations.field_side(kind, o.crop), step % 2 == 0, generator)
        clean = degradations.varied(clean, banks["mask"].kernels)
        grain = torch.tensor(GRAIN)[torch.randint(len(GRAIN), (len(clean), 1, 1, 1), generator=generator)]
        clean = clean + grain.to(device) * torch.randn_like(clean)
        estimate, trunk, truth, counted = restored(net, kind, clean, banks)
        with losses.half_precision(device):
            expected = net.expected_error(trunk, clean.shape[1]).float()
        error = (estimate.float() - truth).square()
        around = F.avg_pool2d(error, AROUND, stride=1, padding=AROUND // 2, count_include_pad=False)
        short = ((around.sqrt() + LEAST).log() - (expected + LEAST).log())[counted]
        loss = 2 * torch.maximum(QUANTILE * short, (QUANTILE - 1) * short).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.error.parameters(), 1.0)
        adam.step()
        found.append(loss.item())
        step += 1
    net.requires_grad_(False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--network", type=Path, required=True, help="checkpoint of train.py")
    parser.add_argument("--noise", type=Path, help="checkpoint of learn_noise.py")
    parser.add_argument("--camera", type=Path, help="checkpoint of train.py --camera")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", type=Path, help="a kernel's file whose error head to begin with")
    parser.add_argument("--provenance", default="{}", help="JSON: what else is to be known of the training")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--operators", type=float, default=0.1, help="share of the operators to draw")
    parser.add_argument("--crops", type=int, default=240, help="of the held-out pictures, for each task")
    parser.add_argument("--side", type=int, default=192, help="of these crops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    o = parser.parse_args()
    device = torch.device(o.device)
    learnt_from, held_out = listed(o.pictures)
    state = torch.load(o.network, map_location="cpu")
    torch.manual_seed(o.seed)
    net = KernelNetwork(**state["settings"])
    net.load_state_dict({k: v for k, v in state["mean"].items() if not k.startswith("error.")}, strict=False)
    if o.head:
        net.error.load_state_dict(load_kernel(o.head).network.error.state_dict())
    net = net.to(device, memory_format=torch.channels_last)
    found = learn(net, Pool(learnt_from, device), o, device)
    provenance = {
        "method": "kernel",
        "slir": slir.__version__,
        "pictures": len(learnt_from),
        "steps": state["step"],
        "crop_pixels": state["pixels"],
        "hours": round(state["seconds"] / 3600, 2),
        "error_head": {"steps": len(found), "loss": round(sum(found[-200:]) / len(found[-200:]), 4)},
        **json.loads(o.provenance),
    }
    kernel = LearntKernel(net, {}, None, provenance)
    several = (sizes(read(p), 256) for p in held_out)
    pictures = [small.float() / 255 for own in several for small in own[1:] or own]  # smaller copies have more detail
    trust = {}
    for task, family in FAMILIES.items():
        generator = torch.Generator().manual_seed(o.seed)
        what = {"pictures": len(held_out)}
        settings = {"crops": o.crops, "side": o.side, "grain": GRAIN, "generator": generator}
        trust[task] = calibrate_model(pictures, family, kernel.model(task), what=what, **settings)
    shown = [p for p in learnt_from if p.parent.name in SHOWN]
    planes = [(read(p).float() / 255 * LUMA[:, None, None]).sum(0) for p in shown]
    generator = torch.Generator().manual_seed(o.seed)
    cells = k_means(cell_features(some_patches(planes, generator)), KINDS, generator=generator)
    examples = draw_examples(
        planes, [p.stem for p in shown], lambda clean: cells.assign(cell_features(clean)),
        size=PATCH, generator=generator,
    )  # fmt: skip
    noise = None
    if o.noise:
        kept = torch.load(o.noise, map_location="cpu")
        noise = NoiseNetwork(**kept["settings"])
        noise.load_state_dict(kept["net"])
    camera = None
    if o.camera:
        camera = KernelNetwork(**state["settings"])
        learnt = torch.load(o.camera, map_location="cpu")["mean"]
        white = net.cpu().state_dict()
        camera.load_state_dict({name: torch.lerp(white[name], learnt[name], CAMERA_SHARE) for name in white})
    write_kernel(o.out, LearntKernel(net, trust, examples, provenance, noise, camera))


def some_patches(planes: list[Tensor], generator: torch.Generator, each: int = 1000) -> Tensor:
    found = []
    for plane in planes:
        windows = plane.unfold(0, PATCH, 1).unfold(1, PATCH, 1)
        rows, cols = (torch.randint(n, (each,), generator=generator) for n in windows.shape[:2])
        found.append(windows[rows, cols].flatten(1))
    return torch.cat(found)


if __name__ == "__main__":
    main()
