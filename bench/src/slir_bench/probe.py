"""One measurement of `slir bench speed`, in a process of its own: `python -m slir_bench.probe JSON` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir import psf
from slir.compute import peak_memory
from slir.estimator.tiling import restore_tiled
from slir.fitting import paper_model
from slir.kernel.network import KernelNetwork
from slir.kernel.shipped import default_model, training_pictures
from slir.kernel.stage import KernelStage
from slir.model import Model
from slir.operators import Downsample, Operator
from slir_bench.ours import operator_of
from slir_bench.peers import PEERS, MissingPackageError
from slir_bench.peers.base import require
from slir_bench.protocols import Case, Group, blurred, psnr, shrunk

NOISE = 25 / 255


def picture(side: int) -> np.ndarray:
    """A mosaic of the pictures that ship, mirrored as often as it takes."""
    tiles = [plane.numpy() for plane in training_pictures()]
    across = -(-side // tiles[0].shape[1])
    rows = [
        np.concatenate([tiles[(r * across + c) % len(tiles)][:, :: -1 if c % 2 else 1] for c in range(across)], 1)
        for r in range(-(-side // tiles[0].shape[0]))
    ]
    return np.ascontiguousarray(np.concatenate(rows)[:side, :side])


def case(task: str, side: int) -> Case:
    """A degraded picture whose restoration has about side² pixels."""
    clean = picture(side)
    if task == "denoise":
        noise = np.random.default_rng(0).standard_normal(clean.shape, dtype=np.float32)
        return Case("speed", "", "", task, clean + NOISE * noise, clean, NOISE)
    if task == "inpaint":
        known = np.random.default_rng(1).random(clean.shape) < 0.5
        return Case("speed", "", "", task, clean * known, clean, 0.0, mask=known)
    if task == "upsample":
        return shrunk("speed", "", "", clean)
    shake = psf.camera_shake(13, np.random.default_rng(3), softness=0.3)
    square = np.zeros((17, 17), np.float32)
    top, left = (17 - shake.shape[0]) // 2, (17 - shake.shape[1]) // 2
    square[top : top + shake.shape[0], left : left + shake.shape[1]] = shake
    return blurred("speed", "", "", clean, square / square.sum(), seed=0)


def operator_for(own: Case) -> Operator:
    """The protocol's, but for borders that can be cut into tiles."""
    if own.kind == "upsample":
        assert own.psf is not None  # `shrunk` gives one
        return Downsample(own.factor, own.psf.astype(np.float64))
    return operator_of(own)


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """What `slir_bench.speed.Measured` wants to know; "skipped" where a package is missing."""
    device = asked["device"]
    if asked["method"] == "ceiling":
        return ceiling(device)
    own = case(asked["task"], asked["side"])
    try:
        run, work = method(asked["method"], own, asked)
        run(True)  # once on a small part: imports, thread pools, plans of FFTs
    except MissingPackageError:
        return {"skipped": asked["method"]}
    start = peak()
    wait(device)
    began = time.perf_counter()
    x = run(False)
    wait(device)
    seconds = time.perf_counter() - began
    quality = float("nan") if x is None else psnr(own, x)
    return {
        "seconds": seconds,
        "psnr": quality,
        "peak": peak(device),
        "start": start,
        "operations": work[0],
        "traffic": work[1],
    }


def method(name: str, own: Case, asked: dict[str, Any]) -> tuple[Callable[[bool], np.ndarray | None], tuple]:
    """A method as a function of "on a small part only", and the operations and bytes that it needs on the whole."""
    device, operator = asked["device"], operator_for(own)
    if name == "slir" or name.startswith("paper"):
        if name == "slir":
            model = default_model(operator).to(device)
        else:
            settings: dict[str, Any] = {"m": asked["bank"], "loss": name.split(", ")[1].lower(), "weights": "nw"}
            model = paper_model(training_pictures(), operator, own.sigma, device=device, **settings)

        def ours(little: bool) -> np.ndarray:
            part = _little(own) if little else own
            y = torch.from_numpy(part.y).float().to(device)
            return restore_tiled(y, operator_for(part), model, sigma=part.sigma).x.cpu().numpy()

        return ours, work(model, operator.x_shape((own.y.shape[0], own.y.shape[1])))
    if name.startswith("network"):
        times = 24 if "24" in name else 1
        return lambda little: network(_little(own) if little else own, device, times), (0.0, 0.0)
    if name in ("NLM", "Richardson-Lucy"):
        return lambda little: classical(name, _little(own) if little else own), (0.0, 0.0)
    quick = {"patches": 60_000, "rounds": 8} if name == "EPLL" else {}  # its fit is not what is timed
    peer = PEERS[name](**quick, device=device, cache=Path(asked["out"]) / "fits")  # type: ignore[arg-type]
    peer.prepare(_Shipped("speed", "", (own,), ()))
    return lambda little: peer.restore(_little(own) if little else own), (0.0, 0.0)


class _Shipped(Group):
    """A group whose training images are those that ship."""

    def train_images(self, count: int, *, seed: int = 0) -> list[np.ndarray]:
        return [plane.numpy() for plane in training_pictures()][:count]


def _little(own: Case) -> Case:
    """The first 96 rows and columns of a case."""
    side = 96
    mask = None if own.mask is None else own.mask[:side, :side]
    beyond = own.clean.shape[0] - own.factor * own.y.shape[0]  # a blur's x is larger than its y
    clean = own.clean[: own.factor * side + beyond, : own.factor * side + beyond]
    return Case(
        *(own.table, own.setting, own.name, own.kind), own.y[:side, :side], clean, own.sigma, own.border, own.psf,
        own.factor, mask,
    )  # fmt: skip


def classical(name: str, own: Case) -> np.ndarray:
    """scikit-image's methods at its own defaults but for the noise level, which it is told."""
    skimage = require("skimage.restoration")
    if name == "NLM":
        return skimage.denoise_nl_means(own.y, h=0.8 * own.sigma, sigma=own.sigma, fast_mode=True)
    assert own.psf is not None
    return skimage.richardson_lucy(np.clip(own.y, 1e-3, 1), own.psf, num_iter=30)


def network(own: Case, device: str, times: int) -> None:
    """The cost of a convolutional denoiser of 20 layers with 64 channels; its weights are random, so no picture."""
    channels = [1, *[64] * 19, 1]
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(channels):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers).to(device).eval()
    y = torch.from_numpy(own.y).float().to(device)[None, None]
    with torch.inference_mode():
        for _ in range(times):
            net(y)


def work(model: Model, shape: Sequence[int]) -> tuple[float, float]:
    """Operations and bytes that a learnt kernel needs at least for x of this shape: weights and features read once."""
    operations = traffic = 0.0
    for stage in model.stages:
        if isinstance(stage, KernelStage):
            own = list(_products(stage.network, shape[0] * shape[1]))
            operations += sum(2 * count for count, _ in own)
            traffic += sum(4 * numbers for _, numbers in own)
    return operations, traffic


def _products(network: KernelNetwork, pixels: int) -> Iterator[tuple[float, float]]:
    """Multiplications of each convolution on a grey picture, and the numbers that it reads and writes."""
    for name, layer in network.named_modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d) and "colour" not in name:
            deep = int(name.split(".")[1]) if name.startswith(("encoder", "decoder")) else 2 * name.startswith("middle")
            places = pixels / 4 ** (1 + deep)
            yield places * layer.weight.numel(), places * (layer.in_channels + layer.out_channels)


def ceiling(device: str) -> dict[str, float]:
    """What the machine can do at best: operations a second in a product of square matrices, bytes a second copied."""
    a, b = (torch.randn(2048, 2048, device=device) for _ in range(2))
    large = torch.zeros(2**26, device=device)
    other = torch.empty_like(large)

    def best(call: Callable[[], Tensor]) -> float:
        times = []
        for _ in range(5):
            wait(device)
            began = time.perf_counter()
            call()
            wait(device)
            times.append(time.perf_counter() - began)
        return min(times)

    return {
        "operations": 2 * 2048**3 / best(lambda: a @ b),
        "bytes": 8 * 2**26 / best(lambda: other.copy_(large)),
    }


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def peak(device: str = "cpu") -> int:
    """Bytes that this process held at most: of the GPU where there is one, of main memory otherwise."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    return peak_memory() or 0


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
