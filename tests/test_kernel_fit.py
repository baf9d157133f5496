"""The closed-form stage on top of a learnt kernel: against dense solves, and what `slir.fit` promises of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import slir
from slir.errors import FileError, InputError, SlirError
from slir.estimator.loop import advance, restore
from slir.estimator.tiling import restore_tiled
from slir.kernel import fitting, ridge
from slir.kernel.cell_ridge import CellRidgeStage, Cells, cell_features, k_means
from slir.kernel.degradations import Noise
from slir.kernel.fitting import FOLDS, cut, pairs_of, restore_crop, sums_of
from slir.kernel.network import KernelNetwork
from slir.kernel.ridge import fit_cell_ridge
from slir.kernel.shipped import shipped_kernel
from slir.kernel.stage import STAGES, stages
from slir.model import Model
from slir.operators import Blur, Downsample, Identity
from slir.trust.examples import Examples
from slir.trust.explain import Explanation, explain

pytestmark = pytest.mark.usefixtures("one_thread")

SIGMA = 0.1
FAMILY = Noise(0.08, 0.12)


@pytest.fixture(scope="module")
def base() -> Model:
    """A small network that was never trained; its corrections are a few percent of the noise."""
    torch.manual_seed(0)
    network = KernelNetwork((8, 12, 16), blocks=1)
    for weight in network.patches.parameters():
        weight.data *= 0.2
    return Model(stages(network.requires_grad_(False), 1))


def stripes(seed: int, side: int = 96) -> np.ndarray:
    """Black and white rectangles, one picture of a kind: 8 bits."""
    random = np.random.default_rng(seed)
    picture = np.full((side, side), 40, np.uint8)
    for _ in range(12):
        top, left = random.integers(0, side - 12, 2)
        height, width = random.integers(6, 40, 2)
        picture[top : top + height, left : left + width] = random.choice([40, 210])
    return picture


PICTURES = [stripes(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def fitted(base: Model) -> Model:
    return slir.fit(PICTURES, task="denoise", sigma=(0.08, 0.12), base=base, crops=8, cells=6)


def noisy(picture: np.ndarray, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    clean = torch.from_numpy(picture).float() / 255
    return clean, clean + SIGMA * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed))


def top_of(model: Model) -> CellRidgeStage:
    top = model.stages[-1]
    assert isinstance(top, CellRidgeStage)
    return top


# --- the closed form ---


class Pairs:
    """What is seen and what is wanted at the patches of four small crops, in three cells, and their ridge."""

    def __init__(self, base: Model) -> None:
        planes = [torch.from_numpy(picture[:40, :40]).float() / 255 for picture in PICTURES]
        crops = cut(planes, 4, torch.Generator().manual_seed(0))
        parts = [pairs_of(*restore_crop(crop, FAMILY, base)) for crop in crops]
        features = torch.cat([cell_features(patches) for _, patches, _ in parts])
        cells = k_means(features, 3, generator=torch.Generator().manual_seed(0))
        sums = sums_of(crops, FAMILY, base, cells)
        self.solved = fit_cell_ridge(sums, lambda fold, maps: sums.over([fold]).loss(maps))
        self.cell = cells.assign(features)
        self.seen, self.wanted = (torch.cat([part[k] for part in parts]).double() for k in (0, 2))
        assert torch.bincount(self.cell).min() > 10
        self.scale = self.seen.square().sum(0)  # n D
        self.ridge = self.solved.lam * self.scale + 1e-12 * self.scale.mean()

    def pull(self, number: int) -> torch.Tensor:
        """τ e F, by which the map of a cell is drawn towards the common one."""
        typical = (self.seen.T @ self.seen + self.ridge.diag()) / len(self.seen)
        own = self.seen[self.cell == number]
        return self.solved.tau * own.square().sum(1).mean() / typical.trace() * typical


@pytest.fixture(scope="module")
def pairs(base: Model) -> Pairs:
    return Pairs(base)


def least_squares(blocks: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    rows, targets = (torch.cat(part) for part in zip(*blocks))
    return torch.linalg.lstsq(rows, targets, driver="gelsd").solution


def test_maps_are_dense_ridges_on_all_pairs(pairs: Pairs) -> None:
    """By least squares over the pairs themselves, ridges as rows below them, no sums."""
    zero = torch.zeros(len(pairs.scale), pairs.wanted.shape[1], dtype=torch.float64)
    common = least_squares([(pairs.seen, pairs.wanted), (pairs.ridge.sqrt().diag(), zero)])
    for number, found in enumerate(pairs.solved.maps):
        own = pairs.cell == number
        seen, wanted = pairs.seen[own], pairs.wanted[own]
        root = torch.linalg.cholesky(pairs.pull(number)).T
        rounding = (1e-6 * seen.square().sum(0)).sqrt().diag()
        dense = least_squares([(seen, wanted), (rounding, zero), (root, root @ common)])
        assert float((seen @ dense).square().mean()) > 0.01 * float(wanted.square().mean())  # something is learnt
        torch.testing.assert_close(seen @ found.double(), seen @ dense, rtol=0, atol=2e-5)


def test_alpha_reproduces_what_the_maps_predict(pairs: Pairs) -> None:
    """The maps are kernel ridge regression: α from the dense Gram matrix of the pairs gives Σᵢ αᵢ tⁱ.

    The common map has the kernel ⟨f, f′⟩ on all pairs; a cell's own adds what α makes of that map's errors there.
    """

    def predicted(seen: torch.Tensor, wanted: torch.Tensor, ridge: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        white = torch.linalg.solve(ridge, seen.T)  # the kernel is ⟨f, f′⟩ in the metric of the ridge
        gram = seen @ white + torch.eye(len(seen), dtype=torch.float64)
        alpha = torch.linalg.solve(gram, (f @ white).T).T
        return alpha @ wanted

    new = pairs.seen[::97] + 0.01
    for number, found in enumerate(pairs.solved.maps):
        own = pairs.cell == number
        everything = torch.cat([new, pairs.seen[own]])
        common = predicted(pairs.seen, pairs.wanted, pairs.ridge.diag(), everything)
        errors = pairs.wanted[own] - common[len(new) :]
        expected = common[: len(new)] + predicted(pairs.seen[own], errors, pairs.pull(number), new)
        torch.testing.assert_close(new @ found.double(), expected, rtol=0, atol=5e-5)


def test_sums_of_halves_add_up(base: Model) -> None:
    """A crop's seed decides its degradation, so it does not matter who makes which sums."""
    planes = [torch.from_numpy(picture).float() / 255 for picture in PICTURES]
    crops = cut(planes, 8, torch.Generator().manual_seed(1))
    features = cell_features(pairs_of(*restore_crop(crops[0], FAMILY, base))[1])
    cells = Cells(features[::500])
    whole = sums_of(crops, FAMILY, base, cells)
    halves = [sums_of(part, FAMILY, base, cells) for part in (crops[:3], crops[3:])]
    assert float(whole.pairs.sum()) == 8 * ((96 - 8) // 2 + 1) ** 2
    for one, *parts in zip(whole.tensors, *(half.tensors for half in halves)):
        torch.testing.assert_close(one, sum(parts), rtol=1e-10, atol=1e-10)


def test_folds_share_no_pixel() -> None:
    """Each crop of few pictures is of the quarter of its fold."""
    for count in (1, 3, 6):
        planes = [torch.arange(64 * 80).view(64, 80) + 10_000.0 * number for number in range(count)]
        crops = cut(planes, 24, torch.Generator().manual_seed(0))
        pixels = [
            set(torch.cat([c.clean.flatten() for c in crops if c.fold == fold]).tolist()) for fold in range(FOLDS)
        ]
        for fold in range(FOLDS):
            assert pixels[fold]
            assert not pixels[fold] & set().union(*pixels[:fold])
        assert len({crop.seed for crop in crops}) == len(crops)
        assert {crop.fold for crop in crops[: fitting.PILOT]} == set(range(FOLDS))


def test_the_ridge_is_as_strong_as_restored_crops_ask_for(base: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """τ is judged by restored crops, in which overlapping patches are averaged, and not by single patches."""
    settings: dict = {"task": "denoise", "sigma": SIGMA, "base": base, "crops": 12, "cells": 3}
    taus, judged = (1.0, 1e3, 1e5), {}
    original = ridge.fit_cell_ridge

    def noted(sums: ridge.Sums, error, **named) -> ridge.CellRidge:
        def kept(fold: int, maps: torch.Tensor) -> float:
            judged[fold] = maps
            return error(fold, maps)

        return original(sums, kept, taus=taus, **named)

    monkeypatch.setattr(fitting, "fit_cell_ridge", noted)
    chosen = slir.fit(PICTURES, **settings).provenance
    errors = {}
    for tau in (1.0, 1e3, 1e5):
        taus = (tau,)
        errors[tau] = slir.fit(PICTURES, **settings).provenance["held_out_error"]["after"]
    assert chosen["ridge"]["tau"] == min(errors, key=lambda tau: errors[tau])
    assert chosen["held_out_error"]["after"] == pytest.approx(min(errors.values()))
    assert max(errors.values()) > 1.02 * min(errors.values())

    # Slowly: each crop restored by a model that its fold was left out of.
    taus = (chosen["ridge"]["tau"],)
    model = slir.fit(PICTURES, **settings)
    crops = cut([torch.from_numpy(picture).float() / 255 for picture in PICTURES], 12, torch.Generator().manual_seed(0))
    squares = []
    for crop in crops:
        state, clean = restore_crop(crop, Noise(SIGMA, SIGMA), base)
        top = replace(top_of(model), maps=judged[crop.fold].float())
        squares.append(float((advance(state, top)[0].z - clean).square().mean()))
    assert np.mean(squares) ** 0.5 == pytest.approx(model.provenance["held_out_error"]["after"], rel=1e-5)


# --- what slir.fit promises ---


def test_a_fit_improves_held_out_pictures_of_its_kind(base: Model, fitted: Model) -> None:
    for seed in (10, 11):
        clean, y = noisy(stripes(seed), seed)
        before, after = (
            float((restore(y, Identity(), model, sigma=SIGMA).x - clean).square().mean()) for model in (base, fitted)
        )
        assert after < 0.5 * before  # 3 dB


def test_the_same_seed_gives_the_same_file(base: Model, fitted: Model, tmp_path: Path) -> None:
    settings: dict = {
        "task": "denoise",
        "sigma": (0.08, 0.12),
        "base": base,
        "crops": 8,
        "cells": 6,
    }
    torch.manual_seed(5)  # nothing is drawn from the generator that all share
    models = fitted, slir.fit(PICTURES, **settings), slir.fit(PICTURES, seed=1, **settings)
    contents = []
    for number, model in enumerate(models):
        model.save(str(tmp_path / f"{number}.safetensors"))
        contents.append((tmp_path / f"{number}.safetensors").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_a_model_file_gives_the_same_model(fitted: Model, tmp_path: Path) -> None:
    path = str(tmp_path / "text.safetensors")
    fitted.save(path)
    again = slir.load(path, device="cpu")
    _, y = noisy(stripes(12))
    one, other = (restore(y, Identity(), model, sigma=SIGMA).x for model in (fitted, again))
    torch.testing.assert_close(one, other, rtol=0, atol=2e-3)  # the network is kept in half precision
    assert again.provenance == fitted.provenance
    assert torch.equal(top_of(again).maps, top_of(fitted).maps)
    assert torch.equal(top_of(again).cells.centres, top_of(fitted).cells.centres)


def test_a_base_is_a_model_or_its_file(base: Model, fitted: Model, tmp_path: Path) -> None:
    """A stage on top that the base has already is replaced, and the network stays."""
    path = tmp_path / "kernel.safetensors"
    replace(base, provenance={"network": "small"}).save(str(path))
    settings: dict = {"task": "denoise", "crops": 2, "cells": 2}
    first = slir.fit(PICTURES, base=path, **settings)
    second = slir.fit(PICTURES, base=first, **settings)
    assert len(first.stages) == len(second.stages) == 2
    assert first.provenance == second.provenance
    assert first.provenance["base"] == {"network": "small"}
    assert torch.equal(top_of(first).maps, top_of(second).maps)


@pytest.mark.parametrize(("task", "count"), [("denoise", 1), ("deblur", STAGES)])
def test_without_a_base_the_network_that_ships_is_taken(task: str, count: int) -> None:
    model = slir.fit(PICTURES, task=task, crops=4, cells=2)
    assert len(model.stages) == count + 1
    assert model.stages[0].network is shipped_kernel().network  # type: ignore[attr-defined, union-attr]


def test_errors_of_a_fitted_model_are_calibrated(fitted: Model) -> None:
    """They are the network's, told before the stage on top; intervals hold as often as they say."""
    model = slir.calibrate(
        [stripes(seed) for seed in range(20, 26)], task="denoise", sigma=SIGMA, model=fitted, side=96
    )
    held = []
    for seed in range(30, 34):
        clean, y = noisy(stripes(seed), seed)
        result = slir.denoise(y.numpy(), sigma=SIGMA, data_range=1.0, model=model, return_info=True)
        low, high = result.interval(0.8)
        held.append(float(((low <= clean.numpy()) & (clean.numpy() <= high)).mean()))
        assert bool((result.error_map > 0).all())
    assert 0.7 < np.mean(held) < 0.9


def test_one_picture_is_enough(base: Model) -> None:
    model = slir.fit(PICTURES[:1], task="denoise", sigma=SIGMA, base=base, crops=8, cells=4, names=["page.png"])
    clean, y = noisy(PICTURES[0], 3)
    before, after = (restore(y, Identity(), own, sigma=SIGMA).x - clean for own in (base, model))
    assert float(after.square().mean()) < 0.6 * float(before.square().mean())
    assert model.examples is not None
    assert model.examples.sources == ("page.png",)
    assert model.provenance["held_out_error"]["after"] < model.provenance["held_out_error"]["before"]


@pytest.mark.parametrize("task", ["deblur", "upsample", "inpaint"])
def test_every_task_is_fitted(base: Model, task: str) -> None:
    """With several stages below the one on top; the error on folds that were left out falls."""
    several = Model(stages(base.stages[0].network, 3))  # type: ignore[attr-defined]
    told: list[tuple[int, int, str]] = []
    model = slir.fit(PICTURES, task=task, base=several, crops=4, cells=2, progress=lambda *own: told.append(own))
    held_out = model.provenance["held_out_error"]
    assert held_out["after"] < held_out["before"]
    assert told[-1][0] == told[-1][1] == 4
    assert model.provenance["family"]["kind"] == task


def test_colours_are_restored_by_a_fit_on_colours(base: Model) -> None:
    """Brightness is learnt from, and what the stage on top changes in the mean of the channels, all of them take."""
    tint = np.array([1.0, 0.8, 0.6])
    pictures = [np.rint(picture[..., None] * tint).astype(np.uint8) for picture in PICTURES]
    model = slir.fit(pictures, task="denoise", sigma=SIGMA, base=base, crops=8, cells=4)
    clean = stripes(10)[..., None] * tint
    y = clean + 255 * SIGMA * np.random.default_rng(0).normal(size=clean.shape)
    before, after = (
        slir.denoise(y, sigma=255 * SIGMA, model=own, data_range=255.0, channel_axis=-1) - clean
        for own in (base, model)
    )
    assert np.square(after.mean(-1)).mean() < 0.6 * np.square(before.mean(-1)).mean()
    assert np.square(after).mean() < np.square(before).mean()


@pytest.mark.parametrize("channels", [0, 3])
def test_tiles_agree_with_the_whole(fitted: Model, channels: int) -> None:
    picture = np.concatenate([stripes(seed, 60) for seed in range(20, 29)], 1)
    _, y = noisy(picture)
    y = torch.stack([y, 0.8 * y.flip(0), 0.6 * y]) if channels else y
    noise: float | list[float] = [SIGMA] * 3 if channels else SIGMA
    whole = restore_tiled(y, Identity(), fitted, sigma=noise, tile=10_000)
    tiled = restore_tiled(y, Identity(), fitted, sigma=noise, tile=64)
    assert len(tiled.stats) > len(whole.stats)  # it was cut
    torch.testing.assert_close(tiled.x, whole.x, rtol=0, atol=1e-4)


# --- explanations ---


def spoken(found: Explanation) -> np.ndarray:
    """The pull as the examples make it up, each without its mean."""
    assert np.count_nonzero(found.weights) == found.total
    shapes = found.patches - found.patches.mean((1, 2), keepdims=True)
    return np.einsum("i,ijk->jk", found.weights, shapes)


@pytest.mark.parametrize("channels", [0, 3])
def test_pulls_of_a_learnt_kernel_average_to_its_estimate(base: Model, fitted: Model, channels: int) -> None:
    """The patches that a pixel lies in, each explained at its own 2×2 block; of colours the brightness."""
    _, y = noisy(stripes(30))
    y = torch.stack([y, 0.8 * y, 0.6 * y]) if channels else y
    noise: float | list[float] = [SIGMA, 0.8 * SIGMA, 0.6 * SIGMA] if channels else SIGMA
    assert fitted.examples is not None
    few = Examples(fitted.examples.patches[::8], fitted.examples.origin[::8], fitted.examples.sources)
    model = replace(base, examples=few)
    x = restore(y, Identity(), model, sigma=noise).x
    x = x.mean(0) if channels else x
    for row, col in [(40, 51), (1, 95)]:
        values = []
        for i in range(max(0, row - 4), row + 5):
            for j in range(col - 4, min(96, col + 5)):
                at = row - (i - 3), col - (j - 3)
                if i % 2 or j % 2 or not (0 <= at[0] < 8 and 0 <= at[1] < 8):
                    continue
                found = explain(y, Identity(), model, noise, i, j, k=100_000)
                assert found.corner == (i - 3, j - 3)
                values.append(found.pull[at] + found.mean)
                assert found.restored[at] == pytest.approx(float(x[row, col]), abs=1e-5)
        assert len(values) in (6, 16)
        assert np.mean(values) == pytest.approx(float(x[row, col]), abs=1e-5)
    assert found.reproduces < 1e-6
    assert not found.own
    np.testing.assert_allclose(spoken(found), found.pull, atol=1e-5)


def test_every_pixel_lies_in_the_patch_that_explains_it(base: Model, fitted: Model) -> None:
    """Near borders, behind a blur that hides them, and between pixels of y."""
    model = Model(stages(base.stages[0].network, 2), examples=fitted.examples)  # type: ignore[attr-defined]
    clean, _ = noisy(stripes(31, 64))
    for operator in (Blur(slir.psf.gaussian(1.0)), Downsample(2, "bicubic")):
        y = operator.forward(clean)
        last = operator.scale * y.shape[0] - 1
        x = restore_tiled(y, operator, model, sigma=0.02).x
        for row, col in [(0, 0), (1, last), (last, 30), (33, 33)]:
            found = explain(y, operator, model, 0.02, row, col)
            at = row - found.corner[0], col - found.corner[1]
            assert at[0] in (3, 4)
            assert at[1] in (3, 4)
            assert found.restored[at] == pytest.approx(float(x[row, col]), abs=1e-4)


def test_the_stage_on_top_is_explained(fitted: Model) -> None:
    clean, y = noisy(stripes(32))
    result = slir.denoise(y.numpy(), sigma=SIGMA, model=fitted, data_range=1.0, return_info="stats")
    found = result.explain(41, 50, 100_000)
    np.testing.assert_allclose(spoken(found), found.pull, atol=1e-5)
    assert found.reproduces < 1e-6
    assert set(found.sources) <= {f"images[{n}]" for n in range(4)}
    assert fitted.examples is not None
    assert top_of(fitted).maps.shape[2] == found.size**2
    patch = clean[found.corner[0] :, found.corner[1] :][:8, :8].numpy()
    seen = y[found.corner[0] :, found.corner[1] :][:8, :8].numpy()
    pull = found.pull + found.mean
    assert np.square(pull - patch).mean() < 0.5 * np.square(seen - patch).mean()


@pytest.mark.parametrize("on_top", [False, True])
def test_of_colours_the_brightness_is_explained(base: Model, fitted: Model, on_top: bool) -> None:
    """Channels are restored together, and each of them counts: the first was explained alone."""
    model = fitted if on_top else replace(base, examples=fitted.examples)
    clean = stripes(33)[..., None] / 255 * np.array([1.0, 0.7, 0.4])
    y = (clean + SIGMA * np.random.default_rng(0).normal(size=clean.shape)).astype(np.float32)
    result = slir.denoise(y, sigma=SIGMA, model=model, data_range=1.0, channel_axis=-1, return_info="stats")
    found = result.explain(40, 50)
    own = tuple(slice(start, start + 8) for start in found.corner)
    np.testing.assert_allclose(found.restored, result.image[own].mean(-1), atol=1e-5)
    assert found.mean == pytest.approx(result.image[own].mean(), abs=0.02)


def test_a_kernel_without_examples_says_so(base: Model) -> None:
    _, y = noisy(stripes(34))
    with pytest.raises(SlirError, match="carries no examples to explain with"):
        explain(y, Identity(), base, SIGMA, 10, 10)


# --- what is refused ---


def refused(argument: str, **settings: object) -> str:
    with pytest.raises(InputError) as caught:
        slir.fit(**{"images": PICTURES, "task": "denoise", **settings})  # type: ignore[arg-type]
    assert caught.value.argument == argument
    return str(caught.value)


def test_what_cannot_be_fitted_is_refused(base: Model, tmp_path: Path) -> None:
    paper = slir.paper_model(PICTURES, Identity(), SIGMA, m=200)
    assert "learnt kernel" in refused("base", base=paper)
    with pytest.raises(FileError, match="no such model file"):
        slir.fit(PICTURES, task="denoise", base=tmp_path / "none.safetensors")
    small = PICTURES[0][: fitting.MIN_SIDE - 1]
    assert "31×96" in refused("images[1]", images=[PICTURES[0], small], base=base)
    refused("images", images=[], base=base)
    refused("crops", base=base, crops=0)
    refused("cells", base=base, cells=0)
    refused("names", base=base, names=["one"])
    paper = {"operator": Identity(), "sigma": SIGMA, "task": None, "method": "paper"}
    assert "leave the cluster out" in refused("cluster", cluster="local", **paper)
    refused("task or operator", base=base, task=None)
    assert "'kernel'" in refused("method", method="network")
