"""Large images in tiles: what is cut, and that the result is that of the whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from slir import psf
from slir.bank import degrade
from slir.estimator import tiling
from slir.estimator.loop import restore
from slir.estimator.tiling import restore_tiled
from slir.fitting import paper_model
from slir.kernel.shipped import demo_picture, shipped_model
from slir.operators import Blur, Compose, Downsample, Identity, Mask, Operator
from small_models import small_kernel

pytestmark = pytest.mark.usefixtures("one_thread")


def picture(side: int = 256) -> Tensor:
    grey = demo_picture().astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255
    times = -(-side // 256)
    return torch.from_numpy(np.tile(grey, (times, times))[:side, :side].copy()).float()


SHAKE = psf.motion(5, 30)
MISSING = np.random.default_rng(0).random((256, 256)) < 0.6
OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "blur": Blur(SHAKE),
    "blur reflect": Blur(SHAKE, "reflect"),
    "mask": Mask(MISSING),
    "downsample": Downsample(2, "box"),
    "mask and blur": Compose(Mask(MISSING[:248, :248]), Blur(np.outer(*[psf.gaussian(0.8).sum(0)] * 2))),
}


@pytest.mark.parametrize("shape", [(100, 130), (61, 400), (300, 300)])
@pytest.mark.parametrize("side", [64, 70, 150])
def test_every_pixel_belongs_to_one_tile(shape: tuple[int, int], side: int) -> None:
    model, operator = small_kernel(), Blur(SHAKE)
    step, margin = tiling.period(model), tiling.halo(model, operator)
    assert step == 8  # the coarsest scale of the network
    count = torch.zeros(shape)
    for piece in tiling.cut(shape, operator, model, side):
        count[piece.own] += 1
        for own, seen, within, length in zip(piece.own, piece.seen, piece.within, shape):
            assert own.start % step == seen.start % step == 0
            assert seen.start == 0 or own.start - seen.start >= margin
            assert seen.stop == length or seen.stop - own.stop >= margin
            assert (own.start, own.stop) == (seen.start + within.start, seen.start + within.stop)
    assert bool((count == 1).all())


@pytest.mark.parametrize("name", OPERATORS)
def test_tiles_give_what_the_whole_gives(name: str) -> None:
    operator, model = OPERATORS[name], small_kernel()
    sigma = 0.02
    x = picture()
    y = degrade(x, operator, sigma, torch.Generator().manual_seed(1))
    whole = operator.crop(restore(y, operator, model, sigma=sigma).x, (y.shape[0], y.shape[1]))
    assert len(list(tiling.cut((y.shape[0], y.shape[1]), operator, model, 64))) >= 4
    found = restore_tiled(y, operator, model, sigma=sigma, tile=64)
    assert found.x.shape == whole.shape
    assert float((found.x - whole).abs().max()) < 1e-4
    assert float((whole - operator.crop(operator.guess(y), (y.shape[0], y.shape[1]))).abs().max()) > 1e-3


SHIPPED: dict[str, tuple[Operator, float, tuple[int, int]]] = {
    "denoise": (Identity(), 0.1, (312, 72)),
    "deblur": (Blur(SHAKE), 0.01, (440, 56)),
    "upsample2": (Downsample(2), 0.0, (420, 64)),
    "inpaint": (Mask(np.random.default_rng(1).random((440, 56)) < 0.5), 0.0, (440, 56)),
}


@pytest.mark.parametrize("task", SHIPPED)
def test_tiles_of_the_shipped_models(task: str) -> None:
    """Networks, solves, known and unknown borders: all that may depend on where a tile begins."""
    operator, sigma, (height, width) = SHIPPED[task]
    x = picture(512)[30 : 30 + height, 90 : 90 + width].clamp(0.2, 0.7)
    y = degrade(x, operator, sigma, torch.Generator().manual_seed(2))
    shape, model = (y.shape[0], y.shape[1]), shipped_model(task)
    whole = restore(y, operator, model, sigma=sigma)
    assert len(list(tiling.cut(shape, operator, model, 64))) > 3
    found = restore_tiled(y, operator, model, sigma=sigma, tile=64)
    assert float((found.x - operator.crop(whole.x, shape)).abs().max()) < 1e-4
    assert found.residual == pytest.approx(whole.residual, rel=1e-3)


def test_tiles_of_the_papers_stages() -> None:
    x = picture(200)
    operator = Blur(psf.gaussian(0.8))
    model = paper_model([x[:96, :96]], operator, 0.02, m=300, loss="squared", weights="nw")
    y = degrade(x, operator, 0.02, torch.Generator().manual_seed(1))
    whole = operator.crop(restore(y, operator, model, sigma=0.02).x, (y.shape[0], y.shape[1]))
    found = restore_tiled(y, operator, model, sigma=0.02, tile=64).x
    # The x-update stops at a tenth of a grey level, on the whole's error or on the tile's.
    assert float((found - whole).abs().max()) < 2e-3


@pytest.mark.parametrize("operator", [Blur(SHAKE, "circular"), Identity()])
def test_what_cannot_or_need_not_be_cut_is_restored_whole(operator: Operator) -> None:
    x, model = picture(80), small_kernel()
    y = degrade(x, operator, 0.02, torch.Generator().manual_seed(1))
    whole = restore(y, operator, model, sigma=0.02)
    tile = 64 if isinstance(operator, Blur) else None
    found = restore_tiled(y, operator, model, sigma=0.02, tile=tile)
    assert torch.equal(found.x, operator.crop(whole.x, (80, 80)))
    assert found.stats == whole.stats


def test_a_tile_of_which_nothing_is_known() -> None:
    missing = np.zeros((160, 160), bool)
    missing[:130, :130] = True
    operator, model = Mask(missing), small_kernel()
    y = operator.forward(picture(160))
    whole = restore(y, operator, model)
    assert torch.equal(restore_tiled(y, operator, model, tile=64).x, whole.x)


def test_progress_counts_all_tiles() -> None:
    told: list[tuple[int, int, str]] = []
    y = picture(400)
    restore_tiled(y, Identity(), small_kernel(), sigma=0.1, tile=64, progress=lambda *step: told.append(step))
    count = len(list(tiling.cut((400, 400), Identity(), small_kernel(), 64)))
    assert count > 1
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] == 2 * count


@pytest.mark.parametrize("operator", [Identity(), Blur(np.full((9, 9), 1 / 81)), Downsample(2, np.ones((2, 2)) / 4)])
@pytest.mark.parametrize("shape", [(3000, 3000), (400, 9000), (5000, 1234)])
@pytest.mark.parametrize("memory", [2**26, 2**28, 2**30])
def test_tiles_fit_into_memory_and_are_no_smaller(
    memory: int, shape: tuple[int, int], operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, device = small_kernel(), torch.device("cpu")
    monkeypatch.setattr(tiling, "memory_for_tiles", lambda device: memory)

    def most(side: int) -> int:
        pieces = tiling.cut(shape, operator, model, side)
        return max(math.prod(axis.stop - axis.start for axis in piece.seen) for piece in pieces)

    side = tiling.tile_side(model, device, shape, operator)
    number = 4 * tiling.KERNEL_HELD * operator.scale**2
    assert number * most(side) <= memory
    across = -(-operator.scale * max(shape) // side)
    if across > 1:  # fewer tiles would not have fitted
        assert number * most(-(-operator.scale * max(shape) // (across - 1)) + 64) > memory


@pytest.mark.parametrize("shape", [(161, 177), (160, 177), (161, 176)])
def test_the_last_row_is_restored_as_well_as_the_first(shape: tuple[int, int]) -> None:
    """Of an odd number of them too, where blocks of pixels end beyond it. The picture is mirrored, so that its first
    and last rows, and columns, hold the same."""
    half = picture()[64 : 64 + (shape[0] + 1) // 2, 64 : 64 + (shape[1] + 1) // 2]
    clean = torch.cat([half, half[: shape[0] // 2].flip(0)])
    clean = torch.cat([clean, clean[:, : shape[1] // 2].flip(1)], 1)
    assert clean.shape == shape
    model, off, seen = shipped_model("denoise"), torch.zeros(shape), []
    for seed in range(4):
        y = clean + 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        found = restore(y, Identity(), model, sigma=0.1, errors=True, observe=lambda _, x: seen.append(x.shape))
        assert found.x.shape == shape
        assert found.error is not None
        assert found.error.shape == shape
        off += (found.x - clean).square()
    assert set(seen) == {shape}
    rows, cols = off[[0, -1]].mean(1).sqrt(), off[:, [0, -1]].mean(0).sqrt()
    for first, last in (rows.tolist(), cols.tolist()):
        assert last < 1.25 * first


def test_tiles_of_an_odd_number_of_rows() -> None:
    y = picture(461)[:, :401] + 0.1 * torch.randn((461, 401), generator=torch.Generator().manual_seed(0))
    model = shipped_model("denoise")
    whole, tiled = (restore_tiled(y, Identity(), model, sigma=0.1, tile=tile) for tile in (None, 128))
    assert len(tiled.stats) > len(whole.stats)
    assert float((whole.x - tiled.x).abs().max()) < 1e-4
