"""The kernels for GPUs against the plain PyTorch that they stand for: on a GPU where there is one, interpreted else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from slir import fused, psf
from slir.bank import degrade
from slir.estimator.loop import restore
from slir.fitting import paper_model
from slir.kernel.shipped import demo_picture, training_pictures
from slir.losses import Euclidean
from slir.operators import Blur
from slir.solvers.weiszfeld import weiszfeld
from slir.weights.nadaraya_watson import FittedNadarayaWatson, NadarayaWatson

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("one_thread")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


def problem(m: int, d: int, k: int, count: int, s: float = 0.3, seed: int = 0) -> tuple:
    """Weights fitted to a bank of smooth patches, what is seen of some others, and these."""
    generator = torch.Generator().manual_seed(seed)

    def smooth(rows: int) -> Tensor:
        contrast = torch.rand(rows, 1, generator=generator) ** 2
        return (contrast * torch.randn(rows, k, generator=generator).cumsum(1) / math.sqrt(k)).to(DEVICE)

    def seen(patches: Tensor) -> Tensor:
        wide = torch.nn.functional.pad(patches, (0, max(0, d - k)))[:, :d]
        return wide + 0.02 * torch.randn(len(patches), d, generator=generator).to(DEVICE)

    bank, x = smooth(m), smooth(count)
    return NadarayaWatson(s).fit(seen(bank), bank), seen(x), x


def tiled(fitted: FittedNadarayaWatson):
    from slir.fused.bank import tiled_bank

    return tiled_bank(fitted.features, fitted.clean, fitted.kernel.bandwidth)


SHAPES = [(300, 63, 64, 70), (128, 64, 64, 1), (1, 16, 16, 5), (257, 143, 36, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("s", [0.05, 0.3])
def test_moments_are_those_of_the_weights(shape: tuple[int, int, int, int], s: float) -> None:
    from slir.fused.launch import nw_moments

    fitted, seen, _ = problem(*shape, s=s) if shape[0] > 1 else one_patch(*shape[1:])
    expected = fitted.alpha(seen) @ fitted.clean
    found = nw_moments(tiled(fitted), seen)
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) < 4e-3 * float(fitted.clean.abs().max())
    assert float((found - expected).square().mean().sqrt()) < 2e-3 * float(fitted.clean.square().mean().sqrt())


def one_patch(d: int, k: int, count: int) -> tuple:
    """A bank of a single patch has no spread to take a bandwidth from."""
    from slir.weights.kernels import Kernel

    fitted, seen, x = problem(2, d, k, count)
    return FittedNadarayaWatson(Kernel("gaussian", 0.5), fitted.features[:1], fitted.clean[:1]), seen, x


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("beta", [0.5, 3.0, 48.0])
def test_the_euclidean_update_is_weiszfelds(shape: tuple[int, int, int, int], beta: float) -> None:
    from slir.fused.launch import nw_euclidean

    fitted, seen, x = problem(*shape) if shape[0] > 1 else one_patch(*shape[1:])
    expected = weiszfeld(Euclidean(), fitted.alpha(seen), fitted.clean, x, beta, tol=1e-6, max_steps=500)
    found = nw_euclidean(tiled(fitted), seen, x, beta, tol=1e-5, max_steps=60)
    assert found.value.shape == x.shape
    # Scores and the bank in half precision are all that differs.
    apart = (found.value - expected.value).abs()
    assert float(apart.max()) < 4e-3 * float(fitted.clean.abs().max())
    assert float(apart.square().mean().sqrt()) < 2e-3 * float(fitted.clean.square().mean().sqrt())


def test_copies_count_as_one_patch_and_hold_what_lies_on_them() -> None:
    """Where most weight is on one patch, the minimum is that patch exactly, be there copies of it or not."""
    from slir.fused.launch import nw_euclidean

    fitted, *_ = problem(200, 64, 64, 1, s=0.05)
    features, clean = fitted.features.clone(), fitted.clean.clone()
    own = int(clean.square().sum(1).argmax())  # nothing else looks like it
    other = 0 if own else 1
    features[other], clean[other] = features[own], clean[own]
    fitted = FittedNadarayaWatson(fitted.kernel, features, clean)
    x = clean[own] + 0.05 * torch.randn(8, 64, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    seen = features[own].repeat(8, 1)
    expected = weiszfeld(Euclidean(), fitted.alpha(seen), clean, x, 1.0, tol=1e-6, max_steps=500)
    found = nw_euclidean(tiled(fitted), seen, x, 1.0, tol=1e-5, max_steps=60)
    assert float((expected.value - clean[own]).abs().max()) < 1e-6
    assert float((found.value - clean[own]).abs().max()) < 2**-11 * float(clean.abs().max()) + 1e-6
    assert found.converged


def test_nothing_to_do_is_nothing_done() -> None:
    from slir.fused.launch import nw_euclidean, nw_moments

    fitted, seen, x = problem(130, 64, 64, 3)
    bank = tiled(fitted)
    assert nw_moments(bank, seen[:0]).shape == (0, 64)
    assert nw_euclidean(bank, seen[:0], x[:0], 1.0).value.shape == (0, 64)
    # A step limit is kept, and said.
    found = nw_euclidean(bank, seen, x, 0.01, tol=1e-9, max_steps=2)
    assert found.stats["steps"] == 2
    assert not found.converged


def test_cpus_and_other_kernels_keep_to_plain_pytorch() -> None:
    fitted, *_ = problem(130, 64, 64, 3)
    assert fused.usable(torch.zeros(1, dtype=torch.float64, device=DEVICE)) is False
    assert fused.usable(torch.zeros(1)) is False
    laplacian = NadarayaWatson(0.3, kernel="laplacian").fit(fitted.features, fitted.clean)
    assert laplacian.tiled is None
    assert (fitted.tiled is None) == (DEVICE == "cpu")


@gpu
@pytest.mark.parametrize("loss", ["euclidean", "squared"])
def test_a_gpu_restores_what_a_cpu_does(loss: str) -> None:
    grey = torch.from_numpy(demo_picture().astype(np.float32).mean(2) / 255)
    operator, sigma = Blur(psf.motion(7, 30)), 0.01
    y = degrade(grey, operator, sigma, torch.Generator().manual_seed(0))
    model = paper_model(training_pictures(), operator, sigma, loss, "nw", 2000)
    slow = restore(y, operator, model, sigma=sigma).x
    fast = restore(y.cuda(), operator, model.to("cuda"), sigma=sigma).x.cpu()
    inside = (slice(8, -8), slice(8, -8))
    scores = [-10 * math.log10(float((x[inside] - grey[inside]).square().mean())) for x in (slow, fast)]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
