"""The bank: do what is seen and what is clean line up, and are pairs drawn fairly?"""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch
from torch import Tensor

import slir
from slir.bank import Bank, degrade, image_hash, sample_bank
from slir.errors import InputError
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, Operator

pytestmark = pytest.mark.usefixtures("one_thread")


def picture(shape: tuple[int, int], seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random(shape)).float()


PICTURES = [picture((23, 31)), picture((40, 20), 1), picture((26, 27), 2)]
MISSING = np.random.default_rng(5).random((9, 7)) < 0.3
DELTA = np.zeros((5, 4))
DELTA[2, 1] = 1

OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "blur": Blur(np.full((5, 4), 1 / 20)),
    "blur-reflect": Blur(np.full((5, 4), 1 / 20), "reflect"),
    "down2": Downsample(2),
    "down3": Downsample(3, 0.8),
    "mask": Mask(MISSING),
    "mask-blur": Compose(Mask(MISSING), Blur(np.full((3, 6), 1 / 18))),
    "down-blur": Compose(Downsample(2, "box"), Blur(np.full((3, 6), 1 / 18))),
    "down-mask": Compose(Downsample(2, "box"), Mask(MISSING)),
    "blur-down": Compose(Blur(np.full((3, 3), 1 / 9)), Downsample(2, "box")),
    "linear": Linear(scipy.sparse.identity(16 * 18), (16, 18), (16, 18)),
}


def clean_at_its_source(bank: Bank, size: int) -> bool:
    """Whether every clean patch is found in its picture where its source says."""
    assert bank.source.shape == (len(bank), 3)
    for patch, (index, row, col) in zip(bank.clean, bank.source.tolist()):
        found = PICTURES[index][row : row + size, col : col + size]
        if not torch.equal(patch.reshape(size, size), found):
            return False
    return True


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("window", [None, 7, 8])
def test_clean_patches_are_where_their_source_says(name: str, window: int | None) -> None:
    bank = sample_bank(PICTURES, OPERATORS[name], 0.05, m=200, size=4, window=window, seed=3)
    assert bank.clean.shape == (200, 16)
    assert bank.seen.shape == (200, (window or 4) ** 2)
    assert len(bank) == 200
    assert bool(torch.isfinite(bank.seen).all())
    assert clean_at_its_source(bank, 4)


@pytest.mark.parametrize("operator", [Identity(), Blur(DELTA), Blur(DELTA, "reflect"), Downsample(1)])
@pytest.mark.parametrize(("size", "window"), [(4, 4), (4, 8), (4, 7), (3, 8), (5, 3), (6, 3), (4, 1)])
def test_without_loss_what_is_seen_is_the_picture(operator: Operator, size: int, window: int) -> None:
    """An operator that changes nothing shows the window around each clean patch, with the same centre."""
    bank = sample_bank(PICTURES, operator, 0, m=300, size=size, window=window, seed=1)
    before = (window - size) // 2 if window >= size else -((size - window) // 2)
    for seen, (index, row, col) in zip(bank.seen, bank.source.tolist()):
        top, left = row - before, col - before
        assert top >= 0
        assert left >= 0
        expected = PICTURES[index][top : top + window, left : left + window]
        torch.testing.assert_close(seen.reshape(window, window), expected, rtol=0, atol=1e-6)
    if window == size:
        torch.testing.assert_close(bank.seen, bank.clean, rtol=0, atol=1e-6)


def test_noise_has_the_sigma_asked_for_and_is_new_for_each_picture() -> None:
    flat = [torch.full((60, 60), 0.5), torch.full((60, 60), 0.5)]
    bank = sample_bank(flat, Identity(), 0.1, m=4000, size=8)
    assert float(bank.seen.std()) == pytest.approx(0.1, rel=0.05)
    assert float(bank.seen.mean()) == pytest.approx(0.5, abs=0.01)
    assert torch.equal(bank.clean, torch.full_like(bank.clean, 0.5))
    first, second = (bank.seen[bank.source[:, 0] == index].unique() for index in (0, 1))
    assert not set(first.tolist()) & set(second.tolist()[:200])


def test_a_blur_is_seen_as_the_blurred_picture() -> None:
    psf = np.random.default_rng(0).random((3, 4))
    operator = Blur(psf / psf.sum())
    bank = sample_bank(PICTURES, operator, 0, m=100, size=4)
    for seen, (index, row, col) in zip(bank.seen, bank.source.tolist()):
        y = operator.forward(PICTURES[index])
        expected = y[row - 1 : row + 3, col - 2 : col + 2]  # x begins K − 1 − (K − 1)//2 pixels before y
        torch.testing.assert_close(seen.reshape(4, 4), expected, rtol=0, atol=1e-6)


def test_what_is_missing_is_never_copied_from_the_clean_picture() -> None:
    """Pixels that a mask hides are seen as a guess, never as what they are."""
    missing = np.zeros((10, 10), bool)
    missing[4:6, 4:6] = True
    bank = sample_bank([picture((30, 30))], Mask(missing), 0, m=300, size=4)
    for seen, clean, (_, row, col) in zip(bank.seen, bank.clean, bank.source.tolist()):
        hidden = np.array([[missing[(row + i) % 10, (col + j) % 10] for j in range(4)] for i in range(4)]).ravel()
        assert bool((seen[~hidden] == clean[~hidden]).all())
        assert not bool((seen[hidden] == clean[hidden]).any())


def test_positions_are_uniform() -> None:
    pictures = [picture((11, 13)), picture((9, 9), 1)]
    bank = sample_bank(pictures, Identity(), 0, m=20_000, size=4, window=6, seed=11)
    counts = np.zeros((2, 13, 13))
    for index, row, col in bank.source.tolist():
        counts[index, row, col] += 1
    # Starts of 6×6 windows: 6 × 8 and 4 × 4; the patch starts one pixel further in.
    inside = np.concatenate([counts[0, 1:7, 1:9].ravel(), counts[1, 1:5, 1:5].ravel()])
    assert inside.sum() == 20_000
    assert scipy.stats.chisquare(inside).pvalue > 1e-3


def test_seeds() -> None:
    make = [sample_bank(PICTURES, OPERATORS["blur"], 0.1, m=50, size=4, seed=seed) for seed in (7, 7, 8)]
    for name in ("seen", "clean", "source"):
        assert torch.equal(getattr(make[0], name), getattr(make[1], name))
        assert not torch.equal(getattr(make[0], name), getattr(make[2], name))
    assert make[0].provenance == make[1].provenance
    assert make[0].provenance != make[2].provenance


def test_sampling_leaves_torchs_own_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    sample_bank(PICTURES, Identity(), 0.1, m=5, size=4)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_provenance_tells_where_a_bank_comes_from(name: str) -> None:
    provenance = sample_bank(PICTURES, OPERATORS[name], 0.1, m=9, size=4, window=6, seed=2).provenance
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["images"] == [image_hash(image) for image in PICTURES]
    assert provenance["operator"] == OPERATORS[name].describe()
    assert [provenance[key] for key in ("sigma", "seed", "m", "size", "window")] == [0.1, 2, 9, 4, 6]
    assert provenance["slir"] == slir.__version__


def test_hashes_tell_pictures_apart() -> None:
    assert len({image_hash(image) for image in PICTURES}) == 3
    assert image_hash(PICTURES[0].double()) == image_hash(PICTURES[0])
    changed = PICTURES[0].clone()
    changed[3, 4] += 0.01
    assert image_hash(changed) != image_hash(PICTURES[0])


def test_training_on_downsampled_and_masked_pictures() -> None:
    down = sample_bank([picture((41, 33))], Downsample(4), 0, m=500, size=8, seed=0)
    assert int(down.source[:, 1].max()) <= 40 - 8
    assert int(down.source[:, 2].max()) <= 32 - 8
    mask = sample_bank([picture((12, 33))], Mask(MISSING), 0, m=500, size=8, seed=0)
    assert int(mask.source[:, 1].max()) == 12 - 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_the_pictures(dtype: torch.dtype) -> None:
    bank = sample_bank([picture((20, 20)).to(dtype)], OPERATORS["blur"], 0.1, m=5, size=4)
    assert bank.seen.dtype == bank.clean.dtype == dtype


def test_degrade() -> None:
    generator = torch.Generator().manual_seed(0)
    x = picture((200, 200))
    assert torch.equal(degrade(x, Identity(), 0, generator), x)
    noise = degrade(x, Identity(), 0.2, generator) - x
    assert float(noise.std()) == pytest.approx(0.2, rel=0.02)
    assert abs(float(noise.mean())) < 0.005


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": []}, ("images", "at least one", "empty", "Pass clean images")),
        ({"m": 0}, ("m must", "at least 1", "0", "10,000")),
        ({"size": 0}, ("size", "1", "0")),
        ({"size": 30}, ("images[0]", "30×30", "23×31", "larger images")),
        ({"window": 24}, ("images[0]", "24×24", "23×31", "larger images")),
        ({"window": -3}, ("window", "-3")),
        ({"sigma": -0.1}, ("sigma", "-0.1")),
        ({"sigma": float("nan")}, ("sigma", "nan")),
        ({"images": [torch.rand(20, 20, 3)]}, ("images[0]", "(20, 20, 3)")),
        ({"images": [torch.full((20, 20), float("nan"))]}, ("images[0]", "finite", "NaN")),
        ({"operator": Blur(np.full((25, 25), 1 / 625))}, ("psf", "23×31", "25×25", "Crop")),
    ],
)
def test_bad_input(change: dict, words: tuple[str, ...]) -> None:
    settings = {"images": PICTURES, "operator": Identity(), "sigma": 0.1, "m": 10, "size": 8, "window": None} | change
    images, operator, sigma = (settings.pop(name) for name in ("images", "operator", "sigma"))
    with pytest.raises(InputError) as caught:
        sample_bank(images, operator, sigma, **settings)
    for word in words:
        assert word in str(caught.value)
