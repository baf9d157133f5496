"""Learn the network's error head, then calibrate it on pictures that nothing was learnt from; write the model's file.

    python training/learn_errors.py --pictures FOLDER [FOLDER ...] --network kernel.pt --out kernel.safetensors

The trunk stays as it is. The head minimises log e + (x̂ − x)²/2e², whose least value is at e² = E[(x̂ − x)²].
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import degradations
import torch
from pictures import LUMA, Pool, listed, read
from torch import Tensor

from slir.cascade import least_noise
from slir.kernel.errors import NetworkErrors
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import KernelStage, stages
from slir.model import Model
from slir.operators import Identity, Mask, Operator
from slir.restoration import advance
from slir.trust.intervals import Calibration, calibrate_errors
from slir.trust.record import Trust

TASKS = ("denoise", "restore")


def drawn(task: str, clean: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Operator, float]:
    """Clean pictures as far as the operator takes them, y, B and σ."""
    operator: Operator = Identity()
    sigma = degradations.LARGEST_SIGMA * float(torch.rand((), generator=generator))
    if task != "denoise":
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
    from slir.kernel.stage import _framed

    level = torch.as_tensor(stage.level(state), dtype=state.x.dtype).expand(state.x.shape)
    x = _framed(state.x)
    return x, stage.network.trunk(x, _framed(state.z), _framed(stage.residual(state)), _framed(level))


def learn(net: KernelNetwork, pool: Pool, minutes: float, stages_: int, seed: int) -> list[float]:
    net.requires_grad_(False)
    net.error.requires_grad_(True)
    adam = torch.optim.Adam(net.error.parameters(), lr=2e-3)
    began, step, losses = time.monotonic(), 0, []
    while (share := (time.monotonic() - began) / (60 * minutes)) < 1:
        for group in adam.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50) * (1 - share)
        generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
        grey = step % 2 == 0
        crop = pool.crops(1, 128, grey, generator)[0]
        clean, y, operator, sigma = drawn(TASKS[step // 2 % 2], crop[0] if grey else crop, generator)
        chain = stages(net, 1 if isinstance(operator, Identity) else stages_)
        with torch.no_grad():
            state = before_last(y, operator, least_noise(sigma), chain)
            x, trunk = inputs(state, chain[-1])
            truth = clean.reshape(1, -1, *clean.shape[-2:])
            error = (net.estimate(x, trunk)[..., : truth.shape[-2], : truth.shape[-1]] - truth).square()
        e = net.expected_error(trunk, truth.shape[1])[..., : truth.shape[-2], : truth.shape[-1]] + 1e-5
        loss = e.log() + error / (2 * e.square())
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


@torch.no_grad()
def calibrate(
    net: KernelNetwork, pictures: list[Tensor], task: str, stages_: int, crops: int, seed: int
) -> Calibration:
    """Of one task, from crops of pictures that nothing was learnt from."""
    generator = torch.Generator().manual_seed(seed)
    raw, errors = [], []
    for number in range(crops):
        picture = pictures[number % len(pictures)]
        side = 192
        row, column = (int(torch.randint(n - side + 1, (), generator=generator)) for n in picture.shape[-2:])
        crop = picture[:, row : row + side, column : column + side].float() / 255
        grey = number // len(pictures) % 2 == 0
        clean = (crop * LUMA[:, None, None]).sum(0) if grey else crop
        clean, y, operator, sigma = drawn(task, clean, generator)
        if task != "denoise":
            y = (y * 255).round() / 255
        chain = stages(net, 1 if isinstance(operator, Identity) else stages_)
        state, _ = advance(before_last(y, operator, least_noise(sigma), chain), chain[-1], telling=True)
        seen = torch.ones(clean.shape, dtype=torch.bool)
        if isinstance(operator, Mask):
            seen = operator.missing.expand(clean.shape)
        some = seen.flatten().nonzero()[:, 0]
        some = some[torch.randperm(len(some), generator=generator)[:4000]]
        raw.append(NetworkErrors().log_square(state, chain[-1]).flatten()[some])
        errors.append((state.x - clean).flatten()[some])
    return calibrate_errors(torch.cat(raw), torch.cat(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, nargs="+", required=True)
    parser.add_argument("--network", type=Path, required=True, help="checkpoint of train.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--stages", type=int, default=5)
    parser.add_argument("--crops", type=int, default=240)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    learnt_from, held_out = listed(o.pictures)
    torch.manual_seed(o.seed)
    net = KernelNetwork(o.width)
    state = torch.load(o.network)
    net.load_state_dict(state["mean"], strict=False)
    net = net.to(memory_format=torch.channels_last)
    losses = learn(net, Pool(learnt_from), o.minutes, o.stages, o.seed)
    print(f"{len(losses)} steps, loss {sum(losses[-200:]) / 200:.4f}")
    provenance = {
        "network": {"steps": state["step"], "pixels": state["pixels"], "hours": round(state["seconds"] / 3600, 2)}
    }
    pictures = [read(p) for p in held_out]
    for task, name, count in (("denoise", "denoise", 1), ("restore", "restore", o.stages)):
        table = calibrate(net, pictures, task, o.stages, o.crops, o.seed)
        what = {"pictures": len(held_out), "crops": o.crops}
        trust = Trust(NetworkErrors(), table, (0.0005, 0.3), (1.0, 1.0), what)
        path = o.out.with_name(f"{o.out.stem}-{name}.safetensors")
        Model(stages(net, count), {**provenance, "family": {"kind": "any"}}, trust=trust).save(str(path))
        print(path)


if __name__ == "__main__":
    main()
