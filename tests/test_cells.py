"""Cells: every kind against one sample at a time, and what the trained kinds are for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import cells as reference
from slir import cells as cells_module
from slir.cells import (
    Cells,
    DirectionCells,
    MixtureCells,
    OneCell,
    ScoredCells,
    TreeCells,
    direction_cells,
    nearest_cells,
    tree_cells,
)
from slir.mixture import Mixture

pytestmark = pytest.mark.usefixtures("one_thread")

D = 6


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def samples(count: int, d: int = D, seed: int = 0) -> Tensor:
    """Of a few covariances and many sizes, as patches are: (count, d) float32."""
    random = rng(seed)
    roots = random.normal(size=(5, d, d))
    kind, size = random.integers(0, 5, count), np.exp(random.normal(size=(count, 1)))
    return torch.from_numpy(np.einsum("nij,nj->ni", roots[kind], random.normal(size=(count, d))) * size).float()


def covariance(d: int, seed: int) -> Tensor:
    root = rng(seed).normal(size=(d, d))
    return torch.from_numpy(root @ root.T / d + 0.1 * np.eye(d))


def mixture_cells(d: int = D) -> MixtureCells:
    covariances = torch.stack([covariance(d, seed) * 4.0**seed for seed in range(5)])
    return MixtureCells(Mixture.of(torch.tensor([0.3, 0.1, 0.2, 0.3, 0.1]), covariances), covariance(d, 9).float())


KINDS: dict[str, Callable[[], Cells]] = {
    "one": OneCell,
    "mixture": mixture_cells,
    "nearest": lambda: nearest_cells(samples(400), 9, generator=seeded()),
    "directions": lambda: direction_cells(samples(400), 5, generator=seeded()),
    "tree": lambda: tree_cells(samples(400), 3, directions=3, generator=seeded()),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


# What every kind promises


@every_kind
def test_cells_are_numbered_from_zero(kind: str) -> None:
    cells = KINDS[kind]()
    found = cells.assign(samples(500, seed=1))
    assert found.shape == (500,)
    assert found.dtype == torch.int64
    assert int(found.min()) >= 0
    assert int(found.max()) < cells.count
    assert cells.count == {"one": 1, "mixture": 5, "nearest": 9, "directions": 20, "tree": 8}[kind]


@every_kind
def test_nothing_in_nothing_out(kind: str) -> None:
    found = KINDS[kind]().assign(torch.zeros(0, D))
    assert found.shape == (0,)
    assert found.dtype == torch.int64


@every_kind
def test_a_row_does_not_depend_on_the_others(kind: str) -> None:
    """Nor does a chunk's end matter: 2,048 rows are a chunk of the mixture's. All but the few on a boundary, as a
    product of another shape rounds otherwise."""
    cells, features = KINDS[kind](), samples(4200, seed=2)
    together = cells.assign(features)
    some = torch.tensor([0, 1, 2046, 2047, 2048, 2049, 4095, 4096, 4199])
    assert torch.equal(cells.assign(features[some]), together[some])
    order = torch.randperm(4200, generator=seeded())
    assert float((cells.assign(features[order]) == together[order]).float().mean()) > 0.998


@every_kind
@pytest.mark.parametrize("count", [0, 1, 4200])
def test_members_belong_to_their_cell(kind: str, count: int) -> None:
    cells, features = KINDS[kind](), samples(4200, seed=2)[:count]
    found = cells.members(features)
    assert torch.equal(found.cell, cells.assign(features))
    assert found.between.shape == found.other.shape == found.share.shape
    assert found.between.dtype == found.other.dtype == torch.int64
    assert bool((found.other != found.cell[found.between]).all())
    assert bool(((found.share >= 0) & (found.share <= 0.5)).all())
    assert len(found.between.unique()) == len(found.between)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"nearest"}))
def test_signs_do_not_matter(kind: str) -> None:
    """A patch and its negative belong together: all tests are quadratic."""
    features = samples(300, seed=3)
    cells = KINDS[kind]()
    assert torch.equal(cells.assign(-features), cells.assign(features))


@every_kind
def test_what_is_given_is_left_as_it_was(kind: str) -> None:
    features = samples(50)
    before = features.clone()
    KINDS[kind]().assign(features)
    assert torch.equal(features, before)


@every_kind
def test_to_moves_every_tensor(kind: str) -> None:
    cells = KINDS[kind]()
    features = samples(100, seed=4)
    assert torch.equal(cells.to("cpu").assign(features), cells.assign(features))
    moved = cells.to("meta")
    assert moved.count == cells.count
    tensors = [value for value in vars(moved).values() if isinstance(value, Tensor)]
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert len(tensors) == {"one": 0, "mixture": 1, "nearest": 1, "directions": 2, "tree": 3}[kind]


@every_kind
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cpu_and_cuda_agree(kind: str) -> None:
    cells, features = KINDS[kind](), samples(5000, seed=5)
    there = cells.to("cuda").assign(features.cuda())
    assert there.device.type == "cuda"
    assert float((there.cpu() == cells.assign(features)).float().mean()) > 0.998
    soft, here = cells.to("cuda").members(features.cuda()), cells.members(features)
    shares, own = torch.zeros(5000), torch.zeros(5000)
    shares[soft.between.cpu()], own[here.between] = soft.share.cpu(), here.share
    assert float(((shares - own).abs() < 0.02).float().mean()) > 0.998


# Mixture


def test_mixture_cells_against_brute_force() -> None:
    cells, features = mixture_cells(), samples(300, seed=6)
    weights, axes, spread = (
        value.double().numpy() for value in (cells.mixture.weights, cells.mixture.axes, cells.mixture.spread)
    )
    covariances = np.stack([u @ np.diag(s) @ u.T for u, s in zip(axes, spread)])
    found = cells.assign(features).tolist()
    for f, cell in zip(features.double().numpy(), found):
        scores = reference.most_likely(weights, covariances, cells.error.double().numpy(), f)
        assert scores[cell] > scores.max() - 1e-4 * (1 + abs(scores.max()))
    assert len(set(found)) == 5


def test_errors_blur_the_cells() -> None:
    """Two components that differ by little, the second met a little more often. Seen exactly, they are told apart;
    through an error that drowns the difference, all go to the likelier one."""
    one, two = torch.eye(D), 2 * torch.eye(D)
    mixture = Mixture.of(torch.tensor([0.45, 0.55]), torch.stack([one, two]))
    features = torch.from_numpy(rng().normal(size=(500, D))).float()
    sharp = MixtureCells(mixture, torch.zeros(D, D)).assign(features).float().mean()
    assert float(sharp) < 0.4
    blurred = MixtureCells(mixture, 1e4 * torch.eye(D)).assign(features)
    assert bool((blurred == 1).all())


def soft(kind: str) -> ScoredCells:
    cells = KINDS[kind]()
    assert isinstance(cells, ScoredCells)
    return cells


@pytest.mark.parametrize(("kind", "width"), [("mixture", 2.0), ("nearest", 0.5)])
def test_soft_borders(monkeypatch: pytest.MonkeyPatch, kind: str, width: float) -> None:
    """One row at a time, with borders so wide that a third cell is often within them."""
    monkeypatch.setattr(cells_module, "WIDTH", width)
    cells, features = soft(kind), samples(3000, seed=8)
    found = cells.members(features)
    joint = torch.cat(list(cells.scores(features)), 1).double().numpy()
    thirds = 0
    between = dict(zip(found.between.tolist(), zip(found.other.tolist(), found.share.tolist())))
    for row, scores in enumerate(joint.T):
        first, second, third = np.argsort(-scores)[:3]
        beyond = max(scores[third], scores[first] - width)
        above = max(scores[second] - beyond, 0)
        thirds += scores[third] > scores[first] - width
        other, share = between.get(row, (second, 0.0))
        assert found.cell[row] == first
        assert other == second
        assert share == pytest.approx(above / (scores[first] - beyond + above), abs=1e-3)
    assert 0.1 < len(between) / len(features) < 0.9
    assert thirds > 100


@pytest.mark.parametrize("kind", ["mixture", "nearest"])
def test_what_is_made_of_a_patch_changes_steadily(kind: str) -> None:
    """On the way from one patch to another the cell jumps, and with it a map; but not what is predicted."""
    cells = soft(kind)
    maps = torch.from_numpy(rng(1).normal(size=(cells.count, D, 3))).float()
    features = samples(60, seed=9).double()
    labels = cells.assign(features.float())

    def predicted(f: Tensor) -> tuple[int, Tensor]:
        found = cells.members(f.float()[None])
        out = f.float() @ maps[int(found.cell)]
        for other, share in zip(found.other, found.share):
            out = (1 - share) * out + share * (f.float() @ maps[int(other)])
        return int(found.cell), out

    jumps = 0
    for a, b in pairwise(features):
        if predicted(a)[0] == predicted(b)[0]:
            continue
        low, high = 0.0, 1.0
        for _ in range(22):  # as far as single precision tells
            middle = (low + high) / 2
            same = predicted(a + middle * (b - a))[0] == predicted(a)[0]
            low, high = (middle, high) if same else (low, middle)
        (one, before), (two, after) = predicted(a + low * (b - a)), predicted(a + high * (b - a))
        assert one != two
        f = (a + low * (b - a)).float()
        hard = float((f @ (maps[one] - maps[two])).norm())
        assert float((after - before).norm()) < 0.02 * hard
        jumps += 1
    assert jumps > 20
    assert len(set(labels.tolist())) > 2


# Nearest centres


def test_nearest_cells_against_brute_force() -> None:
    cells, features = nearest_cells(samples(600), 12, generator=seeded()), samples(300, seed=7)
    apart = (features.double()[:, None] - cells.centres.double()).norm(dim=2)
    assert torch.equal(cells.assign(features), apart.argmin(1))
    assert len(cells.assign(features).unique()) > 6


def test_patches_of_opposite_sign_are_of_different_cells() -> None:
    features = torch.cat([samples(300), -samples(300)])
    cells = nearest_cells(features, 20, generator=seeded())
    lively = features[features.norm(dim=1) > features.norm(dim=1).median()]
    assert float((cells.assign(lively) != cells.assign(-lively)).float().mean()) > 0.9


def test_k_means_finds_clusters_that_are_far_apart() -> None:
    """Each centre is the mean of its members, and rounds lower the squared distance."""
    centres = 50 * samples(6, seed=3)
    features = (centres[:, None] + 0.1 * samples(6 * 50).view(6, 50, D)).reshape(-1, D)
    distance = []
    for rounds in (0, 1, 10):
        cells = nearest_cells(features, 12, rounds=rounds, generator=seeded())
        label = cells.assign(features)
        distance.append(float((features - cells.centres[label]).square().sum()))
    assert distance[0] > distance[1] > distance[2]
    cells = nearest_cells(features, 12, rounds=30, generator=seeded())
    label = cells.assign(features)
    means = torch.stack([features[label == c].mean(0) for c in range(cells.count)])
    torch.testing.assert_close(cells.centres, means, rtol=1e-4, atol=1e-4)


def test_centres_without_members_are_left_out() -> None:
    """Equal patches, of which flat pictures have many, are one cell; of few patches there are few cells."""
    assert nearest_cells(torch.zeros(100, D), 8, generator=seeded()).count == 1
    assert nearest_cells(samples(5), 8, generator=seeded()).count <= 5
    cells = nearest_cells(torch.cat([torch.zeros(300, D), samples(40)]), 16, generator=seeded())
    assert int(torch.bincount(cells.assign(torch.cat([torch.zeros(300, D), samples(40)]))).min()) > 0


# Directions


def test_direction_cells_against_brute_force() -> None:
    cells, features = direction_cells(samples(600), 7, bands=3, generator=seeded()), samples(300, seed=7)
    assert cells.count == 21
    axes, bounds = cells.axes.double().numpy(), cells.bounds.double().numpy()
    np.testing.assert_allclose(np.linalg.norm(axes, axis=1), 1, atol=1e-5)
    expected = [reference.nearest_axis(axes, bounds, f) for f in features.double().numpy()]
    assert cells.assign(features).tolist() == expected


def test_axes_are_found_up_to_sign() -> None:
    """Patches along four lines, either way, with a little noise."""
    random = rng(8)
    lines = np.linalg.qr(random.normal(size=(D, D)))[0][:4]
    kind = random.integers(0, 4, 2000)
    points = lines[kind] * random.choice([-1, 1], (2000, 1)) * random.uniform(1, 3, (2000, 1))
    features = torch.from_numpy(points + 0.05 * random.normal(size=points.shape)).float()
    best = max(
        (direction_cells(features, 4, bands=2, generator=seeded(seed)) for seed in range(4)),
        key=lambda cells: float((features @ cells.axes.T).abs().amax(1).sum()),
    )
    closeness = np.abs(best.axes.double().numpy() @ lines.T)
    np.testing.assert_allclose(np.sort(closeness.max(0)), 1, atol=1e-2)
    label = best.assign(features).numpy() % 4
    assert all(len(set(label[kind == k])) == 1 for k in range(4))


def test_bands_share_the_training_patches_equally() -> None:
    features = samples(4000)
    cells = direction_cells(features, 3, bands=4, generator=seeded())
    bands = torch.bincount(cells.assign(features) // 3, minlength=4)
    assert int((bands - 1000).abs().max()) <= 5
    assert bool((cells.bounds.diff() > 0).all())


def test_lloyd_does_not_worsen() -> None:
    features = samples(1500)

    def closeness(rounds: int) -> float:
        axes = direction_cells(features, 8, rounds=rounds, generator=seeded()).axes
        size = features.square().sum(1)
        lively = features[size >= size.median()]
        lines = lively / lively.norm(dim=1, keepdim=True)
        return float((lines @ axes.T).abs().amax(1).mean())

    found = [closeness(rounds) for rounds in (0, 1, 3, 10)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.01


def test_no_bands_and_few_patches() -> None:
    with_one = direction_cells(samples(50), 4, bands=1, generator=seeded())
    assert with_one.count == 4
    few = direction_cells(samples(5), 16, generator=seeded())
    assert int(few.assign(samples(20)).max()) < few.count


def test_flat_patches_have_a_direction_cell_too() -> None:
    features = torch.cat([torch.zeros(300, D), samples(100)])
    cells = direction_cells(features, 4, generator=seeded())
    assert torch.isfinite(cells.axes).all()
    assert int(cells.assign(torch.zeros(3, D)).max()) < cells.count


# Tree


def handmade_tree(depth: int, r: int, d: int = D, seed: int = 0) -> TreeCells:
    """Random tests, whose gains are of both signs."""
    random, nodes = rng(seed), 2**depth - 1
    parts = (random.normal(size=(nodes, r, d)), random.normal(size=(nodes, r)), 0.5 * random.normal(size=nodes))
    return TreeCells(*(torch.from_numpy(part).float() for part in parts))


@pytest.mark.parametrize("cells", [handmade_tree(0, 2), handmade_tree(1, 1), handmade_tree(4, 3), None])
def test_tree_against_a_walk(cells: TreeCells | None) -> None:
    cells = cells or tree_cells(samples(1000), 4, generator=seeded(), directions=4)
    features = samples(400, seed=9)
    u, w, b = (part.double().numpy() for part in (cells.directions, cells.gains, cells.bounds))
    found = cells.assign(features).tolist()
    checked = 0
    for f, cell in zip(features.double().numpy(), found):
        expected, margin = reference.leaf(u, w, b, f)
        if margin > 1e-5:  # else rounding may decide
            checked += 1
            assert cell == expected
    assert checked > 395
    assert len(set(found)) > cells.count / 2


@pytest.mark.parametrize(("count", "depth"), [(4000, 3), (4003, 4), (1600, 5)])
def test_the_tree_is_balanced_on_what_it_was_trained_on(count: int, depth: int) -> None:
    features = samples(count)
    cells = tree_cells(features, depth, directions=5, generator=seeded())
    sizes = torch.bincount(cells.assign(features), minlength=cells.count)
    mean = count / 2**depth
    assert int(sizes.sum()) == count
    assert mean / 2 <= int(sizes.min())
    assert int(sizes.max()) <= 2 * mean


def test_the_tree_is_balanced_on_new_samples_too() -> None:
    """Of the same distribution, which the training patches are a half of."""
    features = samples(16000)
    cells = tree_cells(features[:8000], 4, directions=5, generator=seeded())
    sizes = torch.bincount(cells.assign(features[8000:]), minlength=16)
    assert 300 < int(sizes.min()) <= int(sizes.max()) < 800


def two_kinds(seed: int, d: int = 10, count: int = 4000) -> tuple[Tensor, np.ndarray]:
    """Equal energy, different shape: half of the axes long, the other half short, and the other way round."""
    random = rng(seed)
    turn = np.linalg.qr(random.normal(size=(d, d)))[0]
    spread = np.where(np.arange(d) < d // 2, 2.0, 0.5)
    kind = random.integers(0, 2, count)
    points = random.normal(size=(count, d)) * np.where(kind[:, None] == 1, spread, spread[::-1])
    return torch.from_numpy(points @ turn.T).float(), kind


@pytest.mark.parametrize("seed", range(5))
def test_the_first_test_tells_two_gaussians_apart(seed: int) -> None:
    """Contrast cannot: both have the same. A likelihood ratio with the true covariances is right 98 % of the time."""
    features, kind = two_kinds(seed, count=6000)
    cells = tree_cells(features[:4000], 1, generator=seeded(seed), directions=10)
    right = (cells.assign(features[4000:]).numpy() == kind[4000:]).mean()
    assert max(right, 1 - right) > 0.9


def test_a_deeper_tree_keeps_them_apart() -> None:
    features, kind = two_kinds(11)
    cells = tree_cells(features, 3, generator=seeded(), directions=10)
    leaves = cells.assign(features).numpy()
    right = sum(max((kind[leaves == leaf] == k).sum() for k in (0, 1)) for leaf in range(8)) / len(kind)
    assert right > 0.9


@pytest.mark.parametrize(
    "features",
    [
        samples(1),
        samples(10),
        torch.ones(200, D),
        torch.zeros(200, D),
        torch.cat([torch.zeros(150, D), samples(50)]),
    ],
)
def test_small_nodes_and_equal_samples_do_no_harm(features: Tensor) -> None:
    cells = tree_cells(features, 3, directions=2, generator=seeded())
    assert cells.count == 8
    assert all(bool(torch.isfinite(part).all()) for part in (cells.directions, cells.gains, cells.bounds))
    found = cells.assign(features)
    assert 0 <= int(found.min()) <= int(found.max()) < 8


def test_more_directions_than_dimensions() -> None:
    features = samples(200, d=3)
    cells = tree_cells(features, 2, directions=8, generator=seeded())
    assert int(torch.bincount(cells.assign(features), minlength=4).min()) == 50


def test_fewer_directions_than_dimensions_are_the_telling_ones() -> None:
    """Two kinds that differ along two axes out of ten: a test that looks at two directions finds these."""
    random = rng(12)
    kind = random.integers(0, 2, 4000)
    spread = np.ones((4000, 10))
    spread[:, 0], spread[:, 5] = np.where(kind, 6.0, 0.2), np.where(kind, 0.2, 6.0)
    features = torch.from_numpy(random.normal(size=(4000, 10)) * spread).float()
    cells = tree_cells(features, 1, directions=2, generator=seeded())
    right = (cells.assign(features).numpy() == kind).mean()
    assert max(right, 1 - right) > 0.9
    direction = cells.directions[0] / cells.directions[0].norm(dim=1, keepdim=True)
    assert float(direction[:, [0, 5]].square().sum(1).min()) > 0.9


# Determinism and precision


@pytest.mark.parametrize("kind", ["nearest", "directions", "tree"])
def test_training_depends_on_its_generator_alone(kind: str) -> None:
    def train(seed: int) -> Cells:
        if kind == "tree":
            return tree_cells(samples(800), 3, generator=seeded(seed), directions=3)
        if kind == "nearest":
            return nearest_cells(samples(800), 6, generator=seeded(seed))
        return direction_cells(samples(800), 6, generator=seeded(seed))

    torch.manual_seed(0)
    one = train(3)
    torch.manual_seed(1)
    two = train(3)
    assert all(torch.equal(a, b) for a, b in zip(vars(one).values(), vars(two).values()))
    if kind != "tree":  # which draws nothing
        assert not torch.equal(next(iter(vars(train(4)).values())), next(iter(vars(one).values())))


@pytest.mark.parametrize("kind", ["nearest", "directions", "tree"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_keep_the_precision_they_are_trained_in(kind: str, dtype: torch.dtype) -> None:
    features = samples(800).to(dtype)
    cells: Cells
    if kind == "tree":
        cells = tree_cells(features, 3, generator=seeded(), directions=3)
    elif kind == "nearest":
        cells = nearest_cells(features, 6, generator=seeded())
    else:
        cells = direction_cells(features, 6, generator=seeded())
    assert {value.dtype for value in vars(cells).values()} == {dtype}
    assert cells.assign(features).dtype == torch.int64


@every_kind
@pytest.mark.parametrize("scale", [0.1, 1e3])
def test_single_precision_is_enough_at_any_scale(kind: str, scale: float) -> None:
    """Cells of patches c times as large are the same cells, where the training patches were so too."""
    features = samples(800)
    error = covariance(D, 9).float()

    def trained(c: float) -> Cells:
        if kind == "one":
            return OneCell()
        if kind == "mixture":
            own = mixture_cells().mixture
            return MixtureCells(Mixture(own.weights, own.axes, c**2 * own.spread), c**2 * error)
        if kind == "tree":
            return tree_cells(c * features, 3, generator=seeded(), directions=3)
        if kind == "nearest":
            return nearest_cells(c * features, 5, generator=seeded())
        return direction_cells(c * features, 5, generator=seeded())

    same = trained(scale).assign(scale * features) == trained(1.0).assign(features)
    assert float(same.float().mean()) > 0.98


def test_direction_cells_at_a_bound() -> None:
    """‖f‖² at a bound belongs to the band below it, as in the slow version."""
    cells = DirectionCells(torch.eye(2), torch.tensor([1.0, 4.0]))
    found = cells.assign(torch.tensor([[1.0, 0], [0, 1.0], [1.5, 0], [0, 2.0], [3.0, 0]]))
    assert found.tolist() == [0, 1, 2, 3, 4]
