"""Similar patches: found and filtered together, against one pair and one group at a time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from reference import similar as reference
from slir import similar
from slir.compute import rows_that_fit
from slir.errors import InputError
from slir.patches import PatchGrid
from slir.similar import FADE, collaborate, collaborate_and_tell, faded, match

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float32, torch.float64]


def image(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Values from 0 to 500, whole numbers, so that both dtypes hold them and their distances exactly."""
    return np.random.default_rng(seed).integers(0, 501, shape).astype(float)


def noise(shape: tuple[int, int], seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def texture(shape: tuple[int, int]) -> torch.Tensor:
    """A periodic one in [0, 1], with edges; 8 rows and 7 columns a period, so that 5 × 5 copies lie within 16."""
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    tile = np.random.default_rng(3).random((8, 7)).round(1)
    return torch.from_numpy(tile[rows % 8, cols % 7])


def psnr(x: torch.Tensor, clean: torch.Tensor) -> float:
    return float(-10 * (x - clean).square().mean().log10())


@st.composite
def settings_of_match(draw: DrawFn) -> tuple[tuple[int, int], dict[str, int]]:
    size = draw(st.integers(1, 5))
    shape = (draw(st.integers(size, 14)), draw(st.integers(size, 14)))
    given = {
        "size": size,
        "radius": draw(st.integers(0, 9)),
        "stride": draw(st.integers(1, size)),
        "count": draw(st.integers(1, 30)),
    }
    return shape, given


def groups_of(x: torch.Tensor, **given: int) -> torch.Tensor:
    return match(x, **given)[0]


def check_match(x: np.ndarray, given: dict[str, int], dtype: torch.dtype) -> None:
    """Distances, not names, are compared: among equals any order will do."""
    size, width = given["size"], x.shape[1]
    expected = reference.match(x, **given)
    found, distances = match(torch.from_numpy(x).to(dtype), **given)
    assert found.dtype == torch.int32
    assert found.shape == (len(expected), given["count"])
    assert distances.shape == (len(expected), given["count"] + 1)
    one_more = reference.match(x, **{**given, "count": given["count"] + 1})
    for group, apart, answer, longer in zip(found.tolist(), distances.tolist(), expected, one_more):
        corners = [divmod(first, width) for first in group]
        own = corners[0]
        assert own == answer[0][1]
        for row, col in corners:
            assert abs(row - own[0]) <= given["radius"]
            assert abs(col - own[1]) <= given["radius"]
            assert 0 <= row <= x.shape[0] - size
            assert 0 <= col <= width - size
        distinct = len({corner for _, corner in answer})
        assert len(set(group)) == distinct
        assert group == [group[i % distinct] for i in range(len(group))]
        np.testing.assert_array_equal(
            [reference.distance(x, own, corner, size) for corner in corners], [distance for distance, _ in answer]
        )
        known = [distance for distance, _ in longer[: len({corner for _, corner in longer})]]
        known += [np.inf] * (len(longer) - len(known))
        np.testing.assert_array_equal(apart, [-1, *known[1:]])


@settings(max_examples=60)
@given(settings_of_match(), st.sampled_from(DTYPES), st.sampled_from([(1, 1), (7, 9), similar.TILE["cpu"]]))
def test_match_against_all_pairs(
    case: tuple[tuple[int, int], dict[str, int]], dtype: torch.dtype, tile: tuple[int, int]
) -> None:
    shape, given = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(similar.TILE, "cpu", tile)
        check_match(image(shape), given, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "size", "radius", "stride", "count"),
    [
        ((24, 31), 8, 6, 3, 16),
        ((31, 24), 8, 40, 5, 16),
        ((20, 20), 4, 4, 4, 100),  # more than there ever are
        ((8, 8), 8, 16, 3, 16),  # one patch
        ((8, 9), 8, 16, 3, 16),  # two
        ((1, 1), 1, 0, 1, 3),
        ((8, 40), 8, 16, 3, 16),  # one row of patches
    ],
)
def test_match_at_some_sizes(
    shape: tuple[int, int], size: int, radius: int, stride: int, count: int, dtype: torch.dtype
) -> None:
    given = {"size": size, "radius": radius, "stride": stride, "count": count}
    check_match(image(shape), given, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "x", [np.full((13, 17), 0.3), image((13, 17)) // 250, (10 * texture((25, 28))).round().numpy()]
)
def test_match_with_ties(x: np.ndarray, dtype: torch.dtype) -> None:
    check_match(x, {"size": 4, "radius": 13, "stride": 3, "count": 12}, dtype)


def test_dark_candidates_do_not_win_beyond_the_border() -> None:
    """A black image is what the padding looks like."""
    check_match(np.zeros((12, 15)), {"size": 5, "radius": 9, "stride": 2, "count": 8}, torch.float32)


def test_small_differences_on_a_bright_image() -> None:
    """‖a‖² + ‖b‖² − 2ab would lose them all in float32."""
    x = 500 + image((20, 22)) / 2**14  # both dtypes hold it exactly
    given = {"size": 6, "radius": 7, "stride": 3, "count": 9}
    single, double = (groups_of(torch.from_numpy(x).to(dtype), **given) for dtype in DTYPES)
    assert torch.equal(single, double)


@pytest.mark.parametrize("dtype", DTYPES)
def test_units_do_not_matter(dtype: torch.dtype) -> None:
    x = noise((40, 53)).to(dtype)
    assert torch.equal(groups_of(x), groups_of(1000 * x))
    assert torch.equal(groups_of(x), groups_of(1e-3 * x))


def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise((50, 71))
    groups = groups_of(x, radius=9)
    for tile in ((1, 1), (17, 40), (31, 31), (1000, 1000)):
        monkeypatch.setitem(similar.TILE, "cpu", tile)
        assert torch.equal(groups_of(x, radius=9), groups)


def test_a_small_budget_makes_small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The squared differences of a tile, the largest array there is, stay within what `compute` allows."""
    x, sizes = noise((60, 71)), []
    groups = groups_of(x, radius=9)
    real = similar._match_tile

    def spy(
        pilot: torch.Tensor, around: torch.Tensor, row: similar._Run, col: similar._Run, *numbers: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(around[row.pixels, col.pixels].numel() * pilot.element_size())
        return real(pilot, around, row, col, *numbers)

    monkeypatch.setattr(similar, "_match_tile", spy)
    for budget in (2**21, 2**22, 2**23):
        sizes.clear()
        monkeypatch.setattr(sys.modules[rows_that_fit.__module__], "CPU_BUDGET", budget)
        assert torch.equal(groups_of(x, radius=9), groups)
        assert len(sizes) > 1
        assert max(sizes) < budget / 3


def grouped(shape: tuple[int, int], size: int, stride: int, count: int, seed: int = 0) -> torch.Tensor:
    """Groups of any patches at all, (G, count); what `collaborate` does with them does not depend on likeness."""
    random = np.random.default_rng(seed)
    groups = len(PatchGrid(shape, size, stride))
    rows = random.integers(0, shape[0] - size + 1, (groups, count))
    cols = random.integers(0, shape[1] - size + 1, (groups, count))
    return torch.from_numpy(rows * shape[1] + cols)


def check_collaborate(
    groups: torch.Tensor,
    shape: tuple[int, int],
    size: int,
    variance: float,
    dtype: torch.dtype,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    pilot = image(shape) / 500
    noisy = pilot + 0.1 * noise(shape).numpy()
    corners = [[divmod(first, shape[1]) for first in group] for group in groups.tolist()]
    known = None if weights is None else weights.double().numpy()
    expected = reference.collaborate(noisy, pilot, corners, variance, size, known)
    y, x = (torch.from_numpy(a).to(dtype) for a in (noisy, pilot))
    found = collaborate(y, x, groups, variance, size=size, weights=weights)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 5e-6)
    again, spread = collaborate_and_tell(y, x, groups, variance, size=size, weights=weights)
    assert torch.equal(again, found)
    left_open = reference.spread(pilot, corners, variance, size, known)
    exact = 1e-11 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(spread.numpy(), left_open, rtol=0, atol=exact * variance)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [1e-3, 0.01, 1.0])
@pytest.mark.parametrize(
    ("shape", "size", "stride", "count"),
    [
        ((24, 31), 8, 3, 16),  # fewer than the pixels of a patch
        ((24, 31), 6, 3, 48),  # more
        ((9, 14), 4, 2, 5),
        ((8, 8), 8, 1, 1),
        ((8, 8), 8, 1, 7),  # copies of one patch
        ((3, 5), 1, 1, 3),
    ],
)
def test_collaborate_against_one_group_at_a_time(
    shape: tuple[int, int], size: int, stride: int, count: int, variance: float, dtype: torch.dtype
) -> None:
    x = torch.from_numpy(image(shape))
    check_collaborate(groups_of(x, size=size, stride=stride, count=count), shape, size, variance, dtype)
    check_collaborate(grouped(shape, size, stride, count), shape, size, variance, dtype)


def test_what_is_left_open_is_the_error_of_a_gaussian() -> None:
    """Patches of 4×4 pixels, side by side, drawn from one Gaussian: then spread is the mean square error itself."""
    random = np.random.default_rng(0)
    root = random.standard_normal((16, 16)) * np.geomspace(2, 0.05, 16)
    clean = (random.standard_normal((900, 16)) @ root.T).reshape(30, 30, 4, 4).swapaxes(1, 2).reshape(120, 120)
    x = torch.from_numpy(clean)
    y = x + 0.5 * noise((120, 120))
    rows, cols = torch.meshgrid(torch.arange(0, 120, 4), torch.arange(0, 120, 4), indexing="ij")
    found, spread = collaborate_and_tell(y, x, (rows * 120 + cols).reshape(1, -1), 0.25, size=4)
    squares = (found - x).square().reshape(30, 4, 30, 4).mean((0, 2))
    expected = spread.reshape(30, 4, 30, 4).mean((0, 2))
    torch.testing.assert_close(squares, expected, rtol=0.2, atol=0)  # 900 draws of each, known to 5 %
    assert float(expected.max() / expected.min()) > 1.5
    assert float(squares.mean() / expected.mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
def test_members_that_count_less(dtype: torch.dtype) -> None:
    shape, groups = (24, 31), grouped((24, 31), 6, 3, 12)
    weights = torch.from_numpy(np.random.default_rng(1).random(groups.shape)).to(dtype)
    weights[:, 0], weights[:, -1] = 1, 0
    found = check_collaborate(groups, shape, 6, 0.01, dtype, weights)
    without = check_collaborate(groups[:, :-1], shape, 6, 0.01, dtype, weights[:, :-1])
    torch.testing.assert_close(found, without)  # who counts for nothing may as well be away
    ones = check_collaborate(groups, shape, 6, 0.01, dtype, torch.ones_like(weights))
    assert not torch.allclose(found, ones, atol=1e-3)


def test_who_is_about_to_leave_counts_for_nothing() -> None:
    inf = float("inf")
    distances = torch.tensor(
        [
            [-1, 1, 100 - 100 * FADE, 100 - 50 * FADE, 100, 100],
            [-1, 0, 0, 0, 0, 0],  # copies of one patch
            [-1, 2, 3, inf, inf, inf],  # three candidates, two of them repeated
            [-1, 0, 0, 0, 0, 5],
        ]
    )
    expected = torch.tensor([[1, 1, 1, 0.5, 0], [1] * 5, [1] * 5, [1] * 5])
    torch.testing.assert_close(faded(distances), expected.float(), rtol=0, atol=1e-4)
    # Among copies chance would choose, so that the reference stays alone; where there is no choice all count.
    expected[1] = torch.tensor([1, 0, 0, 0, 0])
    torch.testing.assert_close(faded(distances, same=1e-5), expected.float(), rtol=0, atol=1e-4)


def test_groups_change_steadily_with_the_image() -> None:
    """Two candidates that change places as the pilot moves by next to nothing: names jump, the result does not."""
    pilot, y = noise((40, 45)), noise((40, 45), 1)
    given = {"size": 6, "radius": 6, "stride": 4, "count": 10}

    def filtered(x: torch.Tensor, *, soft: bool) -> torch.Tensor:
        groups, distances = match(x, **given)
        return collaborate(y, x, groups, 0.5, size=6, weights=faded(distances) if soft else None)

    way = noise((40, 45), 2)
    low, high = 0.0, 0.2
    before = match(pilot, **given)[0].sort(1).values
    assert not torch.equal(match(pilot + high * way, **given)[0].sort(1).values, before)
    for _ in range(40):  # to where a group first changes
        middle = (low + high) / 2
        same = torch.equal(match(pilot + middle * way, **given)[0].sort(1).values, before)
        low, high = (middle, high) if same else (low, middle)
    hard, soft = (
        float((filtered(pilot + high * way, soft=own) - filtered(pilot + low * way, soft=own)).abs().max())
        for own in (False, True)
    )
    assert hard > 1e-3
    assert soft < 1e-9


@pytest.mark.parametrize("k", [1, similar.SIDE, similar.SIDE + 1, 49, 3 * similar.SIDE])
def test_roots_of_inverses_by_halves(k: int) -> None:
    some = noise((5 * k, k)).view(5, k, k)
    matrices = torch.eye(k).double() + some.mT @ some
    root = similar._root_of_inverse(matrices)
    assert torch.equal(root, root.tril())
    torch.testing.assert_close(root.mT @ root, torch.linalg.inv(matrices))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_pilot_stays_where_no_patch_lies(dtype: torch.dtype) -> None:
    shape, size = (20, 23), 4
    groups = grouped(shape, size, 4, 6)[:3]
    found = check_collaborate(groups, shape, size, 0.01, dtype)
    bare = np.ones(shape, bool)
    for first in groups.flatten().tolist():
        row, col = divmod(first, shape[1])
        bare[row : row + size, col : col + size] = False
    assert 0 < bare.sum() < bare.size
    np.testing.assert_array_equal(found.numpy()[bare], torch.from_numpy(image(shape) / 500).to(dtype).numpy()[bare])


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_do_not_matter(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise((40, 53)).to(dtype)
    groups, y = groups_of(x), x + 0.1 * noise((40, 53), 1).to(dtype)
    expected = collaborate(y, x, groups, 0.3)
    for most in (1, 7, 10**6):
        monkeypatch.setattr(similar, "GROUPS", most)
        found = collaborate(y, x, groups, 0.3)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_every_time(threads: int) -> None:
    torch.set_num_threads(threads)  # the fixture sets it back
    x, y = noise((70, 83)).float(), noise((70, 83), 1).float()
    groups = groups_of(x, size=6, count=48)
    first = collaborate(y, x, groups, 0.5, size=6)
    for _ in range(3):
        assert torch.equal(groups_of(x, size=6, count=48), groups)
        assert torch.equal(collaborate(y, x, groups, 0.5, size=6), first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [0, 0.0, torch.tensor(0.0)])
def test_no_noise_gives_back_what_was_seen(variance: float | torch.Tensor, dtype: torch.dtype) -> None:
    noisy = noise((30, 41), 1).to(dtype)
    for pilot in (noise((30, 41)), torch.zeros(30, 41), torch.full((30, 41), 0.7), texture((30, 41))):
        for count in (1, 16, 100):
            groups = groups_of(pilot.to(dtype), count=count)
            assert torch.equal(collaborate(noisy, pilot.to(dtype), groups, variance), noisy)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [1e-30, 1e-14, 1e-9, 1e-7, 1e-5])
@pytest.mark.parametrize("contrast", [1e-3, 1.0, 1e4])
def test_little_noise_takes_little(variance: float, contrast: float, dtype: torch.dtype) -> None:
    """Covariances of low rank, where σ² is lost in rounding: 16 patches for 64 pixels, an edge, copies of one patch.
    (C + σ²I)⁻¹σ² shortens, so nothing taken away is longer than what lies around the groups' means."""
    edge = torch.where(torch.arange(41) < 20, 0.0, 1.0).expand(30, 41)
    for pilot in (noise((30, 41)), edge, texture((30, 41)), edge + 1e-4 * noise((30, 41))):
        x = contrast * pilot.to(dtype)
        y = x + variance**0.5 * noise((30, 41), 1).to(dtype)
        found = collaborate(y, x, groups_of(x), variance)
        assert (found - y).abs().max() < 10 * variance**0.5 + 1e-6 * contrast


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [1e-6, 0.3, 1e6])
def test_a_patch_alone_is_its_own_mean(variance: float, dtype: torch.dtype) -> None:
    """Groups of one have C = 0 and y = ȳ."""
    x, y = noise((30, 41)).to(dtype), noise((30, 41), 1).to(dtype)
    assert torch.equal(collaborate(y, x, groups_of(x, count=1), variance), y)


def test_a_number_or_a_tensor_of_one() -> None:
    x, y = noise((20, 23)), noise((20, 23), 1)
    groups = groups_of(x)
    expected = collaborate(y, x, groups, 0.5)
    for variance in (torch.tensor(0.5), torch.tensor(0.5, dtype=torch.float64)):
        assert torch.equal(collaborate(y, x, groups, variance), expected)


@pytest.mark.parametrize("value", [0.0, 0.7, 500.0])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e6])
def test_a_constant_image_stays(value: float, variance: float) -> None:
    x = torch.full((30, 41), value)
    torch.testing.assert_close(collaborate(x, x, groups_of(x), variance), x, rtol=3e-7, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variance", [1e12, 1e30])
def test_much_noise_leaves_the_means_of_groups(variance: float, dtype: torch.dtype) -> None:
    """One group of four patches that do not overlap: each becomes their mean."""
    x, y = noise((8, 8)).to(dtype), noise((8, 8), 1).to(dtype)
    found = collaborate(y, x, torch.tensor([[0, 4, 32, 36]]), variance, size=4)
    mean = (y[:4, :4] + y[:4, 4:] + y[4:, :4] + y[4:, 4:]) / 4
    torch.testing.assert_close(found, mean.repeat(2, 2), rtol=0, atol=1e-11 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unit", [1e-3, 1000.0])
def test_units_of_the_filter(unit: float, dtype: torch.dtype) -> None:
    x, y = noise((30, 41)).to(dtype), noise((30, 41), 1).to(dtype)
    groups = groups_of(x)
    found = collaborate(unit * y, unit * x, groups, unit**2 * 0.3)
    expected = unit * collaborate(y, x, groups, 0.3)
    torch.testing.assert_close(found, expected, rtol=0, atol=unit * (1e-12 if dtype == torch.float64 else 1e-5))


@pytest.mark.parametrize(("count", "gain"), [(16, 14), (48, 16.5)])
def test_a_periodic_texture_is_denoised(count: int, gain: float) -> None:
    """Groups of 16 copies of a patch, C = 0, gain 14.7 dB: their mean 12.0, the overlaps the rest. Groups of 48 gain
    17.1 dB: the 25 copies within reach would gain 14.0 by their mean, and C tells them from the patches after them."""
    clean = texture((80, 90)).float()
    noisy = clean + 0.2 * noise((80, 90)).float()
    found = collaborate(noisy, clean, groups_of(clean, count=count), 0.04)
    assert psnr(found, clean) > psnr(noisy, clean) + gain


def test_a_picture_is_denoised_from_a_blurred_pilot() -> None:
    rows, cols = np.mgrid[:64, :64]
    clean = torch.from_numpy(0.2 + 0.6 * ((rows // 12 + cols // 12) % 2)).float()
    noisy = clean + 0.1 * noise((64, 64)).float()
    pilot = torch.nn.functional.avg_pool2d(noisy[None, None], 3, 1, 1, count_include_pad=False)[0, 0]
    found = collaborate(noisy, pilot, groups_of(pilot), 0.01)
    assert psnr(found, clean) > max(psnr(pilot, clean), psnr(noisy, clean)) + 3


def test_what_was_passed_is_left_as_it_was() -> None:
    x, y = noise((20, 23)), noise((20, 23), 1)
    groups, variance = groups_of(x), torch.ones((), dtype=torch.float64)
    before = [a.clone() for a in (x, y, groups, variance)]
    collaborate(y, x, groups, variance)
    for now, then in zip((x, y, groups, variance), before):
        assert torch.equal(now, then)


def test_views_are_read_as_they_look() -> None:
    x, y = noise((40, 46)), noise((40, 46), 1)
    for view in (lambda a: a.T, lambda a: a[::2, 1::2], lambda a: a[3:30, 5:40]):
        groups = groups_of(view(x))
        assert torch.equal(groups, groups_of(view(x).contiguous()))
        expected = collaborate(view(y).contiguous(), view(x).contiguous(), groups, 0.5)
        torch.testing.assert_close(collaborate(view(y), view(x), groups, 0.5), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": 11}, ("patch size", "10", "11")),
        ({"stride": 9}, ("stride", "8", "9")),
        ({"radius": -1}, ("radius", "at least 0", "-1")),
        ({"count": 0}, ("count", "at least 1", "0")),
    ],
)
def test_bad_input(given: dict[str, int], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        groups_of(noise((10, 12)), **given)
    for word in words:
        assert word in str(caught.value)


def test_images_of_two_shapes() -> None:
    x = noise((10, 12))
    with pytest.raises(InputError, match=r"pilot must have the noisy image's shape, \(10, 12\), but it is \(12, 10\)"):
        collaborate(x, x.T, groups_of(x), 1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cpu_and_cuda_agree() -> None:
    x, y = noise((90, 103)), noise((90, 103), 1)
    groups, distances = match(x)
    there, apart = match(x.cuda())
    assert torch.equal(there.cpu(), groups)
    torch.testing.assert_close(apart.cpu(), distances)
    weights = faded(distances)
    found = collaborate(y.cuda(), x.cuda(), there, 0.3, weights=faded(apart)).cpu()
    torch.testing.assert_close(found, collaborate(y, x, groups, 0.3, weights=weights), rtol=0, atol=1e-10)
