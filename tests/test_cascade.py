"""The learnt cascade: its start, unit, views and stages against dense solves; fits, files and errors end to end."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import sparse
from torch import Tensor

from reference import cascade as reference
from reference import operators as reference_operators
from slir import cascade, learning, partition, psf, views
from slir.carrying import looked
from slir.cascade import (
    BankWeights,
    CellMaps,
    LearntStage,
    Regression,
    begin_learnt,
    cell_features,
    expected_error,
    least_noise,
    smooth_start,
)
from slir.cells import DirectionCells, OneCell, TreeCells, direction_cells, tree_cells
from slir.crews import LocalCrew
from slir.crops import Case, Crop, draw_crops
from slir.errors import InputError
from slir.estimator.loop import advance, restore
from slir.families import AnyBlur, AnyDownsampling, AnyMask, Family, Fixed, Noise
from slir.io.models import load
from slir.learning import fit_cascade, fit_stage
from slir.model import Model
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, Operator
from slir.partition import Partition
from slir.patches import PatchGrid
from slir.plans import Plan, StagePlan, cascade_plan
from slir.similar import collaborate, collaborate_and_tell, faded, match
from slir.solvers import bordered, system
from slir.solvers.cg import cg
from slir.views import VIEWS, Before, Data, Estimate, InverseResidual, Similar, State, View, look, view_from
from slir.weights import Fitted, KernelRidge, NadarayaWatson, Weights
from slir.weights.cell_ridge import CellRidge, Sums, fit_cell_ridge

pytestmark = pytest.mark.usefixtures("one_thread")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(size=shape))


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear systems to the last digit, so that what remains is which system is solved."""

    def patient(*args: Any, start: Tensor | None = None, **_: Any) -> Any:
        return cg(*args, start=start, tol=1e-14, max_steps=5000)

    for module in (system, bordered):
        monkeypatch.setattr(module, "cg", patient)


LOPSIDED = np.array([[0.05, 0.1, 0.0, 0.05], [0.2, 0.3, 0.1, 0.0], [0.0, 0.1, 0.05, 0.05]])
HOLES = rng(5).random((9, 10)) < 0.6


@dataclasses.dataclass
class Small:
    """An operator at a size where it is a matrix."""

    operator: Operator
    shape: tuple[int, int]
    matrix: np.ndarray

    def y(self, sigma: float, seed: int = 0) -> np.ndarray:
        """Seen through the matrix: an image with an edge, and noise."""
        x = 0.3 + 0.4 * (np.add.outer(np.arange(self.shape[0]), np.arange(self.shape[1])) > 9)
        y = self.matrix @ x.ravel() + sigma * rng(seed).normal(size=len(self.matrix))
        return y.reshape(self.operator.y_shape(self.shape))


@functools.cache
def small(name: str) -> Small:
    """The matrices come from loops over pixels, not from the operators."""

    def convolved(border: str) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: reference_operators.convolve(x, LOPSIDED, border)

    if name == "mask":
        return Small(Mask(HOLES), (9, 10), np.diag((~HOLES).astype(float).ravel()))
    if name == "downsample":
        operator = Downsample(2, "box")
        kernel, phase = operator.kernel.numpy(), operator.phase
        return Small(
            operator,
            (8, 12),
            reference_operators.matrix(
                lambda x: reference_operators.downsample(x, kernel, 2, phase, "reflect"), (8, 12)
            ),
        )
    if name == "blur and mask":
        holes = rng(6).random((8, 9)) < 0.3
        blur = reference_operators.matrix(convolved("unknown"), (10, 12))
        matrix = np.diag((~holes).astype(float).ravel()) @ blur
        return Small(Compose(Mask(holes), Blur(LOPSIDED)), (10, 12), matrix)
    border = name.split()[-1]
    shape = (10, 12)
    return Small(Blur(LOPSIDED, border), shape, reference_operators.matrix(convolved(border), shape))  # type: ignore[arg-type]


SMALL = ["blur unknown", "blur reflect", "blur circular", "mask", "downsample", "blur and mask"]


# The start


@pytest.mark.parametrize("sigma", [0.01, 0.1])
@pytest.mark.parametrize("name", SMALL)
def test_the_start_is_the_dense_minimum(name: str, sigma: float, exact: None) -> None:
    own = small(name)
    y = own.y(sigma)
    expected = reference.smooth(own.matrix, y, own.shape, sigma, cascade.SLOPE)
    found = smooth_start(own.operator, torch.from_numpy(y), sigma)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.002, 0.02, 0.1])
@pytest.mark.parametrize("name", SMALL)
def test_the_start_stops_where_nothing_is_left_to_gain(name: str, sigma: float, dtype: torch.dtype) -> None:
    """What its tolerance leaves is small beside the error that the minimum itself has."""
    own = small(name)
    y = own.y(sigma)
    expected = reference.smooth(own.matrix, y, own.shape, sigma, cascade.SLOPE)
    found = smooth_start(own.operator, torch.from_numpy(y).to(dtype), sigma)
    assert found.dtype == dtype
    left = np.sqrt(np.mean((found.double().numpy() - expected) ** 2))
    assert left < 0.1 * expected_error(own.operator, sigma, own.shape)


def test_the_start_of_denoising_is_y() -> None:
    y = noise((7, 9))
    assert torch.equal(smooth_start(Identity(), y, 0.3), y)


def test_sigma_is_never_less_than_rounding() -> None:
    assert least_noise(0.0) == pytest.approx(1 / 255 / 12**0.5)
    assert least_noise(0.2) == 0.2


# The unit


def linear(own: Small) -> Linear:
    return Linear(sparse.csr_matrix(own.matrix), own.shape, own.operator.y_shape(own.shape))


OPERATORS: dict[str, Callable[[], Operator]] = {
    "blur": lambda: Blur(psf.gaussian(1.5)),
    "blur reflect": lambda: Blur(psf.defocus(2.5), "reflect"),
    "downsample": lambda: Downsample(3),
    "mask": lambda: Mask(rng(2).random((48, 60)) < 0.7),
    "compose": lambda: Compose(Mask(rng(3).random((42, 54)) < 0.3), Blur(psf.defocus(3))),
    "linear": lambda: Linear(
        sparse.kron(0.5 * sparse.eye(48) + 0.5 * sparse.eye(48, k=1), sparse.eye(60)), *[(48, 60)] * 2
    ),
}


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 0.7])
def test_the_unit_of_denoising_is_sigma(sigma: float) -> None:
    assert expected_error(Identity(), sigma, (48, 60)) == sigma


@pytest.mark.parametrize("name", OPERATORS)
def test_the_unit_grows_with_the_noise(name: str) -> None:
    operator = OPERATORS[name]()
    found = [expected_error(operator, sigma, (48, 60)) for sigma in (0.0012, 0.004, 0.012, 0.04, 0.12, 0.4)]
    assert all(np.isfinite(found))
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    assert found[0] > 0.0012 / 4


def test_the_unit_grows_with_the_blur() -> None:
    for sigma in (0.003, 0.03):
        found = [expected_error(Blur(psf.gaussian(width)), sigma, (120, 120)) for width in (0.5, 1, 2, 4)]
        assert found == sorted(found)
        assert found[-1] > 1.5 * found[0]
    found = [expected_error(Downsample(factor), 0.01, (120, 120)) for factor in (2, 3, 4)]
    assert found == sorted(found)
    found = [expected_error(Mask(rng(4).random((60, 60)) < share), 0.01, (60, 60)) for share in (0.3, 0.6, 0.9)]
    assert found == sorted(found)


@pytest.mark.parametrize("name", SMALL)
def test_the_unit_of_a_matrix_is_that_of_the_operator_it_is(name: str) -> None:
    """A matrix has another guess to start from and no notion of a border; a blur's unit is that of a large image."""
    own = small(name)
    found, expected = expected_error(linear(own), 0.05, own.shape), expected_error(own.operator, 0.05, own.shape)
    assert found == pytest.approx(expected, rel=1.0 if "blur" in name else 0.5 if "and" in name else 0.03)


@pytest.mark.parametrize("border", ["circular", "reflect", "unknown"])
@pytest.mark.parametrize("sigma", [0.003, 0.03])
def test_the_unit_of_a_blur_is_the_error_of_the_start_on_a_large_field(border: str, sigma: float) -> None:
    operator, errors = Blur(psf.motion(7, 30.0), border=border), []
    for seed in range(3):
        white = torch.fft.rfft2(torch.randn(256, 256, generator=torch.Generator().manual_seed(seed)))
        rows, cols = torch.fft.fftfreq(256)[:, None], torch.fft.rfftfreq(256)
        amplitude = (rows.square() + cols.square() + 1 / 256**2).rsqrt()
        amplitude[0, 0] = 0
        field = torch.fft.irfft2(white * amplitude, s=(256, 256))
        field = 0.5 + 0.2 * field / field.std()
        y = operator.forward(field)
        y += sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 10))
        off = (cascade.smooth_start(operator, y, sigma) - field)[20:-20, 20:-20]
        errors.append(float(off.square().mean()))
    assert expected_error(operator, sigma, (256, 256)) == pytest.approx(np.mean(errors) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("sigma", [0.01, 0.1])
def test_the_unit_is_the_error_of_the_start_on_natural_fields(name: str, sigma: float) -> None:
    """Fields and noise of our own, dense solves: the mean over many is within the spread of one so small."""
    own, errors = small(name), []
    row, col, height, width = own.operator.shown(own.operator.y_shape(own.shape))
    for seed in range(40):
        white = np.fft.fft2(rng(seed).normal(size=own.shape))
        squared = np.add.outer(np.fft.fftfreq(own.shape[0]) ** 2, np.fft.fftfreq(own.shape[1]) ** 2)
        squared[0, 0] = np.inf
        field = np.fft.ifft2(white / np.sqrt(squared)).real
        field = 0.5 + 0.2 * field / field.std()
        y = own.matrix @ field.ravel() + sigma * rng(seed + 1000).normal(size=len(own.matrix))
        off = reference.smooth(own.matrix, y, own.shape, sigma, cascade.SLOPE) - field
        errors.append(np.mean(off[row : row + height, col : col + width] ** 2))
    found, expected = expected_error(own.operator, sigma, own.shape), np.sqrt(np.mean(errors))
    assert 0.6 < found / expected < 1.6


def test_the_unit_has_a_floor() -> None:
    """An operator that sees every pixel a hundred times as large leaves next to no error."""
    loud = Linear(100 * sparse.eye(36), (6, 6), (6, 6))
    assert expected_error(loud, 0.1, (6, 6)) == pytest.approx(0.025)


def test_the_unit_does_not_depend_on_the_size_of_large_images() -> None:
    blur, shrink = Blur(psf.gaussian(1.0)), Downsample(2)
    for operator in (blur, shrink):
        assert expected_error(operator, 0.02, (400, 360)) == expected_error(operator, 0.02, (900, 1400))


@pytest.mark.parametrize("name", ["blur", "mask", "downsample", "compose"])
def test_the_unit_does_not_depend_on_precision_or_chance(name: str) -> None:
    operator = OPERATORS[name]()
    y = operator.forward(torch.full((48, 60), 0.5, dtype=torch.float64))
    torch.manual_seed(0)
    one = begin_learnt(y, operator, 0.02)
    torch.manual_seed(1)
    two = begin_learnt(y.float(), operator, 0.02)
    assert one.unit == two.unit == expected_error(operator, 0.02, (48, 60))
    assert (one.x.dtype, two.x.dtype) == (torch.float64, torch.float32)
    assert one.sigma * one.unit == pytest.approx(0.02)
    if isinstance(operator, Blur):
        single = Blur(operator.psf.float())
        assert expected_error(single, 0.02, (48, 60)) == pytest.approx(one.unit, rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["blur", "mask", "downsample", "compose"])
def test_the_unit_is_the_same_on_a_gpu(name: str) -> None:
    operator = OPERATORS[name]()
    y = operator.forward(torch.full((48, 60), 0.5))
    assert begin_learnt(y.cuda(), operator, 0.02).unit == begin_learnt(y, operator, 0.02).unit


# Views


def some_state(own: Small, dtype: torch.dtype = torch.float64, sigma: float = 0.4) -> State:
    """In units: errors of about one."""
    y = torch.from_numpy(own.y(0.02)).to(dtype) / 0.05
    return State(y, own.operator, 5 * noise(own.shape, 1).to(dtype), 5 * noise(own.shape, 2).to(dtype), sigma, 0.05)


def test_simple_views() -> None:
    state = dataclasses.replace(
        some_state(small("mask")), kept={"z": noise((9, 10), 3), "similar 8": noise((9, 10), 4)}
    )
    assert torch.equal(Estimate().see(state, 1.0), state.z)
    assert torch.equal(Data().see(state, 1.0), state.x - state.z)
    assert torch.equal(Before().see(state, 1.0), state.kept["z"] - state.z)
    assert torch.equal(Before(name="similar 8").see(state, 1.0), state.kept["similar 8"] - state.z)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("error", [0.5, 2.0])
def test_the_inverse_residual_is_the_dense_solve(name: str, error: float, exact: None) -> None:
    own = small(name)
    state = some_state(own)
    rho = 0.7 * (state.sigma / error) ** 2
    expected = reference.inverse_residual(own.matrix, state.y.numpy(), state.x.numpy(), rho)
    found = InverseResidual(weight=0.7).see(state, error)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("name", SMALL)
def test_twenty_steps_are_near_enough(name: str) -> None:
    own = small(name)
    state = some_state(own)
    rho = 0.3 * (state.sigma / 1.0) ** 2
    expected = reference.inverse_residual(own.matrix, state.y.numpy(), state.x.numpy(), rho)
    found = InverseResidual().see(state, 1.0).numpy()
    assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(30, 33), (9, 40), (5, 6)])
def test_similar_is_the_filter_of_slir_similar(shape: tuple[int, int]) -> None:
    x, z = noise(shape, 1), noise(shape, 2)
    state = State(x, Identity(), x, z, 1.0)
    view = Similar(size=8, count=5, stride=3, radius=6)
    size = min(8, *shape)
    groups, distances = match(z, size=size, radius=6, stride=3, count=5)
    expected = collaborate(x, z, groups, 0.49, size=size, weights=faded(distances, 0.49e-6 * size**2)) - z
    torch.testing.assert_close(view.see(state, 0.7), expected, rtol=0, atol=1e-12)


def test_similar_compares_what_lies_around_its_patches() -> None:
    x, z = noise((30, 33), 1), noise((30, 33), 2)
    view = Similar(size=4, count=5, stride=3, radius=6, like=8)
    groups, distances = match(z, size=8, radius=6, stride=3, count=5)
    expected = collaborate(x, z, groups + 2 * 33 + 2, 0.49, size=4, weights=faded(distances, 0.49e-6 * 64)) - z
    torch.testing.assert_close(view.see(State(x, Identity(), x, z, 1.0), 0.7), expected, rtol=0, atol=1e-12)


def test_views_tell_second_moments_where_these_are_asked_for() -> None:
    x, z = noise((30, 33), 1), noise((30, 33), 2)
    fine, coarse = Similar(size=4, count=9, stride=3, like=6), Similar(size=6, count=9, stride=3, scale=2)
    own = (Estimate(), Similar(size=6, count=9, stride=3, radius=6), fine, coarse)
    silent = State(x, Identity(), x, z, 1.0)
    seen, state = look(silent, own, 0.7)
    assert state.told is None
    again, state = look(dataclasses.replace(silent, told={"spread 6": x, "stale": x}), own, 0.7)
    assert all(torch.equal(a, b) for a, b in zip(seen, again))
    assert state.told is not None
    assert sorted(state.told) == ["apart 6", "spread 6"]
    groups, distances = match(z, size=6, radius=6, stride=3, count=9)
    weights = faded(distances, 0.49e-6 * 36)
    torch.testing.assert_close(
        state.told["spread 6"], collaborate_and_tell(x, z, groups, 0.49, size=6, weights=weights)[1]
    )
    total, count = np.zeros((2, 30, 33))
    grid = PatchGrid((30, 33), 6, 3)
    corners = [(row, col) for row in grid.starts[0] for col in grid.starts[1]]
    for (row, col), apart in zip(corners, distances[:, 1:9].mean(1) / 36):
        total[row : row + 6, col : col + 6] += float(apart)
        count[row : row + 6, col : col + 6] += 1
    np.testing.assert_allclose(state.told["apart 6"].numpy(), total / count, rtol=1e-9)


@pytest.mark.parametrize("shape", [(40, 46), (33, 47), (9, 12)])
def test_similar_of_a_coarser_image(shape: tuple[int, int]) -> None:
    """Where all is alike but for noise, the coarse change is the mean of blocks, spread over them again."""
    x, z = noise(shape, 1), noise(shape, 2)
    view = Similar(size=4, count=5, stride=2, radius=6, scale=2)
    even = (shape[0] // 2 * 2, shape[1] // 2 * 2)
    coarse_x, coarse_z = (
        v[: even[0], : even[1]].reshape(even[0] // 2, 2, even[1] // 2, 2).mean((1, 3)) for v in (x, z)
    )
    found = view.see(State(x, Identity(), x, z, 1.0), 0.7)
    assert found.shape == shape
    if even == shape:
        groups, distances = match(coarse_z, size=4, radius=6, stride=2, count=5)
        change = (
            collaborate(coarse_x, coarse_z, groups, 0.35**2, size=4, weights=faded(distances, 0.35e-3**2 * 16))
            - coarse_z
        )
        spread = torch.nn.functional.interpolate(change[None, None], scale_factor=2, mode="bicubic")[0, 0]
        torch.testing.assert_close(found, spread)
    flat = torch.full(shape, 0.7, dtype=x.dtype)
    torch.testing.assert_close(view.see(State(flat, Identity(), flat, flat, 1.0), 0.7), torch.zeros_like(flat))


def test_matches_are_found_once_for_all_who_compare_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(pilot: Tensor, **own: int) -> tuple[Tensor, Tensor]:
        asked.append(own)
        return match(pilot, **own)

    monkeypatch.setattr(views, "match", counted)
    x, z, later = noise((30, 33), 1), noise((30, 33), 2), noise((30, 33), 3)
    both = (Estimate(), Similar(size=6, count=8), Similar(size=4, count=5, like=6))
    seen, state = look(State(x, Identity(), x, z, 1.0), both, 0.7)
    assert asked == [{"size": 6, "radius": 16, "stride": 3, "count": 8}]
    alone = [view.see(State(x, Identity(), x, z, 1.0), 0.7) for view in both]
    assert all(torch.equal(a, b) for a, b in zip(seen, alone))
    asked.clear()
    moved = dataclasses.replace(state, z=later)
    settled = tuple(dataclasses.replace(view, rematch=False) if isinstance(view, Similar) else view for view in both)
    again, _ = look(moved, settled, 0.7)
    assert not asked
    groups, distances = match(z, size=6, radius=16, stride=3, count=8)  # z's, not later's
    expected = collaborate(x, later, groups, 0.49, size=6, weights=faded(distances, 0.49e-6 * 36)) - later
    torch.testing.assert_close(again[1], expected)
    look(moved, both, 0.7)
    assert len(asked) == 1
    asked.clear()
    look(State(x, Identity(), x, z, 1.0), settled, 0.7)  # none were found before
    assert len(asked) == 1


def test_a_stride_beyond_a_small_image() -> None:
    x = noise((2, 9))
    assert Similar(stride=4, size=12).see(State(x, Identity(), x, x, 1.0), 1.0).shape == (2, 9)


def test_looking_remembers() -> None:
    x, z = noise((20, 24), 1), noise((20, 24), 2)
    state = State(x, Identity(), x, z, 1.0, kept={"other": z, "z": x})
    seen, after = look(state, (Estimate(), Similar(size=6), Before(), Similar(size=8)), 1.0)
    assert len(seen) == 4
    assert torch.equal(seen[2], x - z)  # z as it was one stage ago, not now
    assert set(after.kept) == {"other", "z", "similar 6", "similar 8"}
    assert torch.equal(after.kept["z"], z)
    torch.testing.assert_close(after.kept["similar 8"], seen[3] + z)
    assert torch.equal(after.x, x)
    assert set(state.kept) == {"other", "z"}


@pytest.mark.parametrize(
    "view",
    [
        Estimate(),
        Estimate(window=12),
        Data(6),
        InverseResidual(weight=2.0, steps=3),
        Similar(size=6, count=32, stride=2, radius=9),
        Before(name="similar 6"),
    ],
    ids=str,
)
def test_views_outlive_json(view: View) -> None:
    assert view_from(json.loads(json.dumps(view.settings()))) == view
    assert VIEWS[view.kind] is type(view)


# Stages


@dataclasses.dataclass(frozen=True)
class Made(Regression):
    """Whatever a function says."""

    function: Callable[[Tensor, Tensor], Tensor]
    device = torch.device("cpu")

    def predict(self, seen: Tensor, patches: Tensor) -> Tensor:
        return self.function(seen, patches)

    def to(self, device: torch.device | str, moved: dict[int, Any] | None = None) -> Made:
        return self


NOTHING = Made(lambda seen, patches: torch.zeros_like(patches))


def test_cell_features_are_the_dct_without_its_mean() -> None:
    patches = noise((5, 16))
    found = cell_features(patches)
    assert found.shape == (5, 15)
    torch.testing.assert_close(found.square().sum(1), (patches - patches.mean(1, keepdim=True)).square().sum(1))
    torch.testing.assert_close(cell_features(patches + 3), found)


@pytest.mark.parametrize("level", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("name", SMALL)
def test_zero_maps_leave_z_as_it_is(name: str, level: float) -> None:
    own = small(name)
    maps = CellMaps(OneCell(), torch.zeros(1, 32, 16, dtype=torch.float64), torch.eye(32, dtype=torch.float64))
    stage = LearntStage(maps, (Estimate(), Data()), 1.0, level, size=4, stride=3)
    state = some_state(own)
    after, _ = advance(state, stage)
    torch.testing.assert_close(after.z, state.z, rtol=0, atol=1e-12)
    assert (after.unit, after.sigma) == (state.unit, state.sigma)
    assert torch.equal(after.kept["z"], state.z)


@pytest.mark.parametrize("level", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", SMALL)
def test_the_data_step_is_the_dense_solve(name: str, level: float, exact: None) -> None:
    own = small(name)
    state = some_state(own)
    after, _ = advance(state, LearntStage(NOTHING, (Estimate(),), 1.0, level, size=4, stride=2))
    expected = reference.follow(own.matrix, state.y.numpy(), state.z.numpy(), state.sigma, level)
    np.testing.assert_allclose(after.x.numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("level", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", SMALL)
def test_the_data_step_stops_within_its_tolerance(name: str, level: float) -> None:
    own = small(name)
    state = some_state(own)
    after, stats = advance(state, LearntStage(NOTHING, (Estimate(),), 1.0, level, size=4, stride=2))
    expected = reference.follow(own.matrix, state.y.numpy(), state.z.numpy(), state.sigma, level)
    assert np.sqrt(np.mean((after.x.numpy() - expected) ** 2)) <= cascade.TOLERANCE["cpu"] * level
    assert "x_verdict" not in stats


@pytest.mark.parametrize("name", [*SMALL, "identity"])
def test_levels_at_their_ends(name: str) -> None:
    own = small(name) if name != "identity" else Small(Identity(), (9, 10), np.eye(90))
    state = some_state(own, torch.float32)
    for level in (0.0, 1e-4):  # z is certain
        after, _ = advance(state, LearntStage(NOTHING, (Estimate(),), 1.0, level, size=4))
        torch.testing.assert_close(after.x, after.z, rtol=0, atol=1e-3 if level else 0)
        torch.testing.assert_close(after.z, state.z, rtol=0, atol=1e-5)
    if name == "identity":  # z is worthless
        after, _ = advance(state, LearntStage(NOTHING, (Estimate(),), 1.0, 1e5, size=4))
        torch.testing.assert_close(after.x, state.y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kind", ["one", "directions", "tree"])
def test_a_stage_against_one_patch_at_a_time(kind: str, stride: int) -> None:
    """Windows larger, as large and smaller than a patch; random maps; patches that overlap unevenly."""
    shape, size = (9, 11), 4
    x, z = noise(shape, 1), noise(shape, 2)
    state = State(x, Identity(), x, z, 1.0, kept={"z": noise(shape, 3)})
    shown = (Estimate(window=7), Data(), Before(window=2))
    features = noise((300, size**2 - 1), 4)
    generator = torch.Generator().manual_seed(0)
    cells = {
        "one": OneCell(),
        "directions": direction_cells(features, 3, bands=2, generator=generator),
        "tree": tree_cells(features, 2, directions=3, generator=generator),
    }[kind]
    maps = 0.1 * noise((cells.count, 49 + 16 + 4, 16), 5)
    regression = CellMaps(cells, maps, torch.eye(69))
    after, _ = advance(state, LearntStage(regression, shown, 1.0, 0.0, size=size, stride=stride))

    def predict(seen: np.ndarray, patch: np.ndarray) -> np.ndarray:
        cell = int(cells.assign(cell_features(torch.from_numpy(patch)[None])))
        return maps[cell].numpy().T @ seen

    images = [(z.numpy(), 7), ((x - z).numpy(), 4), ((state.kept["z"] - z).numpy(), 2)]
    expected = reference.learnt_z(z.numpy(), images, size, stride, predict)
    np.testing.assert_allclose(after.z.numpy(), expected, atol=1e-10)
    assert torch.equal(after.x, after.z)


def test_bank_weights_predict_what_their_weights_say() -> None:
    features, wanted, seen = noise((40, 6)), noise((40, 4), 1), noise((9, 6), 2)
    for weights in (NadarayaWatson(), KernelRidge(lam=1e-2)):
        regression = BankWeights(weights, features, wanted)
        expected = weights.fit(features, wanted).alpha(seen) @ wanted
        torch.testing.assert_close(regression.predict(seen, noise((9, 4))), expected, rtol=1e-8, atol=1e-8)
    assert regression.device.type == "cpu"
    moved = regression.to("meta")
    assert {moved.features.device.type, moved.wanted.device.type} == {"meta"}


# Fits


def scene(seed: int, shape: tuple[int, int] = (80, 88)) -> np.ndarray:
    """Discs and half-planes of flat grey, half of it under a wave: edges and a texture."""
    random = rng(seed)
    rows, cols = np.mgrid[: shape[0], : shape[1]].astype(float)
    image = 0.35 + 0.2 * rows / shape[0]
    for _ in range(10):
        middle, angle = random.uniform(0, 1, 2) * shape, random.uniform(0, 2 * np.pi)
        edge = np.hypot(rows - middle[0], cols - middle[1]) - random.uniform(5, 20)
        if random.random() < 0.4:
            edge = (rows - middle[0]) * np.cos(angle) + (cols - middle[1]) * np.sin(angle)
        image = np.where(edge < 0, random.uniform(0.1, 0.9), image)
    angle, frequency = random.uniform(0, np.pi), random.uniform(0.3, 0.9)
    wave = np.sin(frequency * (rows * np.cos(angle) + cols * np.sin(angle)))
    return (image + 0.08 * wave * (cols > shape[1] / 2)).clip(0, 1).astype(np.float32)


FAMILIES: dict[str, Family] = {
    "denoise": Noise(0.05, 0.1),
    "deblur": AnyBlur(sizes=(3, 9), low=0.005, high=0.02),
    "upsample": AnyDownsampling(2),
    "inpaint": AnyMask(),
}
every_task = pytest.mark.parametrize("task", FAMILIES)
IMAGES = [scene(seed) for seed in range(8)]


def tiny_plan(task: str, **other: Any) -> Plan:
    """The task's own plan with two stages and four cells, similar patches sought among fewer, all stages of the plan's
    partition."""
    plan = cascade_plan(FAMILIES[task], stages=2, cells=4)
    stages = []
    for stage in plan.stages:
        shown = tuple(
            Similar(size=view.size, count=16, stride=4, radius=8) if isinstance(view, Similar) else view
            for view in stage.views
        )
        stages.append(dataclasses.replace(stage, views=shown, partition=None))
    return dataclasses.replace(plan, stages=tuple(stages), patches=2200, **other)


def fit(task: str, seed: int = 0, plan: Plan | None = None, **other: Any) -> Model:
    settings = {"crops": 8, "side": 56, "seed": seed, **other}
    return fit_cascade(IMAGES, FAMILIES[task], plan=plan or tiny_plan(task), **settings)


@functools.cache
def fitted(task: str) -> Model:
    return fit(task)


@dataclasses.dataclass
class Trial:
    """A picture that no model saw, degraded by the task's family."""

    clean: Tensor
    operator: Operator
    sigma: float
    y: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.y.shape[0], self.y.shape[1]

    def psnr(self, x: Tensor) -> float:
        off = self.operator.crop(x.clamp(0, 1) - self.clean, self.shape)
        return -10 * float(off.square().mean().log10())

    def start(self) -> float:
        state = begin_learnt(self.y, self.operator, self.sigma)
        return self.psnr(state.x * state.unit)

    def restored(self, model: Model) -> Tensor:
        return restore(self.y, self.operator, model, sigma=self.sigma).x


@functools.cache
def trials(task: str, count: int = 2) -> list[Trial]:
    generator, made = torch.Generator().manual_seed(77), []
    for number in range(count):
        clean = torch.from_numpy(scene(100 + number, (56, 64)))
        operator, sigma = FAMILIES[task].draw(generator, (56, 64))
        y = operator.forward(clean)
        made.append(Trial(clean, operator, sigma, y + sigma * torch.randn(y.shape, generator=generator)))
    return made


def gain(model: Model, task: str, count: int = 2) -> float:
    """Mean in dB over the start."""
    return float(np.mean([trial.psnr(trial.restored(model)) - trial.start() for trial in trials(task, count)]))


@pytest.mark.parametrize(("task", "margin"), [("denoise", 6.0), ("deblur", 1.0), ("upsample", 0.2), ("inpaint", 0.2)])
def test_a_fit_improves_on_the_start(task: str, margin: float) -> None:
    """In dB over the linear estimate that the cascade begins with (y itself for denoising), on pictures not seen; and
    on the training crops, each restored by stages that were fitted without it."""
    model = fitted(task)
    assert gain(model, task, 4) > margin
    scores = model.provenance["held_out_psnr"]
    assert len(scores) == len(model.stages) + 1
    assert scores[-1] > scores[0] + margin


@every_task
def test_a_fit_says_how_it_came_to_be(task: str) -> None:
    model = fitted(task)
    assert model.learnt
    assert 1 <= len(model.stages) <= 2
    assert model.provenance["family"] == FAMILIES[task].describe()
    assert json.loads(json.dumps(model.provenance)) == model.provenance
    assert task in repr(model)
    for stage in model.stages:
        assert isinstance(stage, LearntStage)
        assert isinstance(stage.regression, CellMaps)
        assert stage.regression.cells.count == 4
        assert stage.error > 0
        assert stage.level >= 0


@every_task
def test_the_same_seed_gives_the_same_file(task: str, tmp_path: Path) -> None:
    plan = tiny_plan(task, partition="mixture" if task == "denoise" else "one")
    for name, seed in (("one", 0), ("two", 1)):
        torch.manual_seed(seed)  # it is not this one that counts
        fit(task, plan=plan, crops=4, side=40).save(str(tmp_path / name))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_another_seed_gives_another_model() -> None:
    plan = tiny_plan("denoise", partition="one")
    one, two = (fit("denoise", seed=seed, plan=plan, crops=4, side=40).stages[0] for seed in (0, 1))
    assert not torch.equal(one.regression.maps, two.regression.maps)  # type: ignore[attr-defined]


def check_file(model: Model, task: str, folder: Path) -> None:
    """A file of it restores the very same image, and is the same when written again."""
    model.save(str(folder / "model"))
    again = load(folder / "model")
    for trial in trials(task):
        assert torch.equal(trial.restored(again), trial.restored(model))
    assert again.provenance == model.provenance
    again.save(str(folder / "again"))
    assert (folder / "again").read_bytes() == (folder / "model").read_bytes()


@every_task
def test_a_file_restores_the_very_same_image(task: str, tmp_path: Path) -> None:
    check_file(fitted(task), task, tmp_path)


@every_task
def test_a_small_file_restores_nearly_the_same_image(task: str, tmp_path: Path) -> None:
    model = fitted(task)
    model.save(str(tmp_path / "whole"))
    model.save(str(tmp_path / "small"), tolerance=2e-5, half=True)
    assert (tmp_path / "small").stat().st_size < 0.75 * (tmp_path / "whole").stat().st_size
    again = load(tmp_path / "small")
    for trial in trials(task):
        assert trial.psnr(trial.restored(again)) == pytest.approx(trial.psnr(trial.restored(model)), abs=0.05)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("task", ["denoise", "deblur"])
def test_what_a_file_may_lose(task: str, tolerance: float, tmp_path: Path) -> None:
    """Mean square per pixel of (W_c − W′_c)ᵀf, over the training's f and all cells: no more than that share of the
    squared error. And no fewer singular vectors would do, of all cells together."""
    model = fitted(task)
    model.save(str(tmp_path / "model"), tolerance=tolerance)
    tensors = load_file(tmp_path / "model")
    for number, (stage, other) in enumerate(zip(model.stages, load(tmp_path / "model").stages)):
        maps, moment = (getattr(stage.regression, name).double().numpy() for name in ("maps", "moment"))  # type: ignore[attr-defined]
        off = maps - other.regression.maps.double().numpy()  # type: ignore[attr-defined]
        allowed = tolerance * stage.error**2  # type: ignore[attr-defined]
        assert np.mean([np.trace(own.T @ moment @ own) for own in off]) / off.shape[2] <= 1.01 * allowed
        values, vectors = np.linalg.eigh(moment)
        root = vectors * np.sqrt(values.clip(0)) @ vectors.T
        singular = np.sort(np.concatenate([np.linalg.svd(root @ (own - maps.mean(0)))[1] for own in maps]) ** 2)
        dropped = int((singular.cumsum() / (len(maps) * off.shape[2]) <= allowed).sum())
        needed, about = max(1, len(singular) - dropped), 1 + 0.02 * len(singular)
        if f"stage{number}.ranks" in tensors:
            assert int(tensors[f"stage{number}.ranks"].sum()) == pytest.approx(needed, abs=about)
        else:  # as many vectors take more room than the maps
            assert not off.any()
            assert (needed + about) * sum(off.shape[1:]) + maps[0].size >= maps.size


def test_a_tolerance_never_makes_a_file_larger(tmp_path: Path) -> None:
    fitted("denoise").save(str(tmp_path / "whole"))
    fitted("denoise").save(str(tmp_path / "small"), tolerance=1e-6)
    assert (tmp_path / "small").stat().st_size <= (tmp_path / "whole").stat().st_size + 1000


def test_half_precision_alone(tmp_path: Path) -> None:
    trial = trials("denoise")[0]
    model = dataclasses.replace(fitted("denoise"), trust=None, examples=None)
    model.save(str(tmp_path / "whole"))
    model.save(str(tmp_path / "half"), half=True)
    assert (tmp_path / "half").stat().st_size < 0.6 * (tmp_path / "whole").stat().st_size
    off = trial.restored(load(tmp_path / "half")) - trial.restored(model)
    assert float(off.square().mean().sqrt()) < 1e-3


def test_any_tolerance_makes_a_file(tmp_path: Path) -> None:
    """Even one that would let everything go."""
    trial = trials("denoise")[0]
    fitted("denoise").save(str(tmp_path / "model"), tolerance=1e9, half=True)
    assert bool(torch.isfinite(trial.restored(load(tmp_path / "model"))).all())


def test_stages_share_their_mixture_in_files_too(tmp_path: Path) -> None:
    fitted("denoise").save(str(tmp_path / "model"))
    names = load_file(tmp_path / "model")
    assert {name for name in names if "mixture" in name} == {
        f"mixture0.{part}" for part in ("weights", "axes", "spread")
    }
    assert shared_mixtures(load(tmp_path / "model")) == 1


def shared_mixtures(model: Model) -> int:
    return len({id(stage.regression.cells.mixture) for stage in model.stages})  # type: ignore[attr-defined]


def test_stages_share_their_mixture_on_another_device() -> None:
    assert shared_mixtures(fitted("denoise")) == 1
    assert shared_mixtures(fitted("denoise").to("meta")) == 1


@pytest.mark.parametrize("c", [0.5, 2.0])
def test_twice_the_image_and_the_noise_is_twice_the_result(c: float) -> None:
    model = fitted("denoise")
    for trial in trials("denoise"):
        found = restore(c * trial.y, trial.operator, model, sigma=c * trial.sigma).x
        torch.testing.assert_close(found, c * trial.restored(model), rtol=0, atol=c * 2e-6)


def test_brightness_is_kept() -> None:
    """Every view but the mean of z_p is blind to it."""
    model, trial = fitted("denoise"), trials("denoise")[0]
    found = restore(trial.y + 0.25, trial.operator, model, sigma=trial.sigma).x
    off = (found - 0.25 - trial.restored(model)).abs()
    assert float(off.median()) < 1e-5


@pytest.mark.parametrize("task", ["denoise", "inpaint"])
def test_what_is_given_is_left_as_it_was(task: str) -> None:
    trial = trials(task)[0]
    before = trial.y.clone()
    one, two = trial.restored(fitted(task)), trial.restored(fitted(task))
    assert torch.equal(trial.y, before)
    assert torch.equal(one, two)


@pytest.mark.parametrize("shape", [(8, 8), (9, 31), (50, 13)])
def test_small_images(shape: tuple[int, int]) -> None:
    y = torch.from_numpy(scene(3, shape)) + 0.07 * noise(shape).float()
    found = restore(y, Identity(), fitted("denoise"), sigma=0.07).x
    assert tuple(found.shape) == shape
    assert bool(torch.isfinite(found).all())
    assert float((found - torch.from_numpy(scene(3, shape))).square().mean().sqrt()) < 0.07


def test_what_observers_see_counts_in_the_range() -> None:
    trial, seen = trials("deblur")[0], []
    restore(
        trial.y,
        trial.operator,
        fitted("deblur"),
        sigma=trial.sigma,
        observe=lambda number, x: seen.append((number, x)),
    )
    assert [number for number, _ in seen] == list(range(len(fitted("deblur").stages) + 1))
    assert trial.psnr(seen[0][1]) == pytest.approx(trial.start(), abs=1e-3)
    assert torch.equal(seen[-1][1], trial.restored(fitted("deblur")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_task
def test_cpu_and_cuda_agree(task: str) -> None:
    model, trial = fitted(task), trials(task)[0]
    there = restore(trial.y.cuda(), trial.operator, model.to("cuda"), sigma=trial.sigma).x.cpu()
    assert trial.psnr(there) == pytest.approx(trial.psnr(trial.restored(model)), abs=0.05)


# Other partitions, other weights


@pytest.mark.parametrize(("partition", "kind"), [("directions", DirectionCells), ("tree", TreeCells), ("one", OneCell)])
def test_other_partitions(partition: str, kind: type, tmp_path: Path) -> None:
    model = fit("denoise", plan=tiny_plan("denoise", partition=partition))
    for stage in model.stages:
        assert isinstance(stage, LearntStage)
        assert isinstance(stage.regression, CellMaps)
        assert isinstance(stage.regression.cells, kind)
        assert len(stage.regression.maps) == stage.regression.cells.count == (1 if partition == "one" else 4)
    assert gain(model, "denoise") > 6
    check_file(model, "denoise", tmp_path)


def test_one_cell_is_no_partition() -> None:
    one, two = (
        fit("denoise", plan=tiny_plan("denoise", **own), crops=4) for own in ({"partition": "one"}, {"cells": 1})
    )
    assert isinstance(two.stages[0].regression.cells, OneCell)  # type: ignore[attr-defined]
    for first, second in zip(one.stages, two.stages):
        assert torch.equal(first.regression.maps, second.regression.maps)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("weights", "bank"), [("nw", 0), ("krr", 1), ("nystrom", 0), (KernelRidge(lam=1e-3, s=2.0), 0)]
)
def test_banks_among_cells(weights: Any, bank: int, tmp_path: Path) -> None:
    """A stage with a bank before or after one with cells."""
    plan = tiny_plan("denoise", partition="one", pairs=400)
    stages = list(plan.stages)
    stages[bank] = dataclasses.replace(stages[bank], weights=weights)
    model = fit("denoise", plan=dataclasses.replace(plan, stages=tuple(stages)), crops=4)
    kinds = [type(stage.regression) for stage in model.stages]  # type: ignore[attr-defined]
    assert kinds == ([BankWeights, CellMaps] if bank == 0 else [CellMaps, BankWeights])
    own = model.stages[bank].regression  # type: ignore[attr-defined]
    assert len(own.features) == len(own.wanted) == 400
    assert gain(model, "denoise") > 4
    check_file(model, "denoise", tmp_path)


def test_banks_alone(tmp_path: Path) -> None:
    plan = tiny_plan("denoise", partition="one", pairs=300)
    stages = tuple(dataclasses.replace(stage, weights="krr") for stage in plan.stages)
    model = fit("denoise", plan=dataclasses.replace(plan, stages=stages), crops=4)
    assert gain(model, "denoise") > 3
    check_file(model, "denoise", tmp_path)


def test_one_operator_alone() -> None:
    """A family of one, of an operator that fits a single size: the plan for deblurring serves any operator."""
    size = (32, 40)
    matrix = sparse.kron(sparse.eye(32), 0.6 * sparse.eye(40) + 0.4 * sparse.eye(40, k=1))
    family = Fixed(Linear(matrix, size, size), 0.02)
    assert family.kind == "other"
    model = fit_cascade(IMAGES, family, stages=2, cells=1, crops=4, side=48)
    assert np.isfinite(model.provenance["held_out_psnr"]).all()
    clean = torch.from_numpy(scene(100, size))
    y = family.operator.forward(clean) + 0.02 * noise(size).float()
    trial = Trial(clean, family.operator, 0.02, y)
    assert trial.psnr(trial.restored(model)) > trial.start() + 1


@dataclasses.dataclass(frozen=True)
class Wrong(Weights):
    """Says at every patch that the clean one is five units brighter."""

    def fit(self, features: Tensor, clean: Tensor) -> Fitted:
        class Five(Fitted):
            signed = True

            def alpha(self, seen: Tensor) -> Tensor:
                raise NotImplementedError

            def moments(self, seen: Tensor) -> tuple[Tensor, Tensor]:
                return seen.new_ones(len(seen)), seen.new_full((len(seen), clean.shape[1]), 5.0)

        return Five()

    def settings(self) -> dict[str, Any]:
        return {"kind": "wrong"}


def test_a_stage_that_does_harm_is_left_out() -> None:
    plan = tiny_plan("denoise", partition="one")
    worse = dataclasses.replace(plan.stages[1], weights=Wrong())
    model = fit("denoise", plan=dataclasses.replace(plan, stages=(plan.stages[0], worse, plan.stages[1])), crops=4)
    alone = fit("denoise", plan=dataclasses.replace(plan, stages=plan.stages[:1]), crops=4)
    assert len(model.stages) == 1
    assert model.stages[0].level == 0  # type: ignore[attr-defined]  # not the one that a next stage would want
    assert len(model.provenance["held_out_psnr"]) == 2
    assert torch.equal(model.stages[0].regression.maps, alone.stages[0].regression.maps)  # type: ignore[attr-defined]
    assert gain(model, "denoise") > 5


# Cross-fitting

CPU = torch.device("cpu")


def crew(crops: list[Crop]) -> LocalCrew:
    return LocalCrew.of(crops, CPU)


def test_cases_are_drawn_fold_by_fold() -> None:
    planes = [torch.from_numpy(image) for image in IMAGES[:5]]

    def drawn(groups: list[int], folds: int, images: list[Tensor] = planes) -> list[Case]:
        generator = torch.Generator().manual_seed(0)
        return crew(draw_crops(images, groups, Noise(0.1, 0.1), 10, 32, folds, generator)).cases

    assert [case.fold for case in drawn([0, 1, 2, 3, 4], 4)] == [0, 1, 2, 3, 0] * 2
    assert [case.fold for case in drawn([0, 0, 1, 1, 1], 4)] == [0, 0, 1, 1, 1] * 2
    assert [case.fold for case in drawn([0], 4, planes[:1])] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    for case in drawn([0, 1, 2, 3, 4], 4):
        assert tuple(case.clean.shape) == (32, 32)
        assert case.state.unit == pytest.approx(0.1)
        assert float(case.error(case.state.x).std()) == pytest.approx(1, abs=0.1)


def spied(monkeypatch: pytest.MonkeyPatch) -> list[CellRidge]:
    """What is fitted on the way, with λ and τ given, since both are chosen on all folds."""
    found: list[CellRidge] = []

    def once(sums: Sums) -> CellRidge:
        found.append(fit_cell_ridge(sums, lams=(1e-3,), taus=(1e3,)))
        return found[-1]

    monkeypatch.setattr(learning, "fit_cell_ridge", once)
    return found


def test_maps_for_a_case_do_not_know_its_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images 1 and 5, which make fold 1, are turned into something else entirely."""
    found = spied(monkeypatch)
    plan = dataclasses.replace(tiny_plan("denoise", partition="one"), stages=tiny_plan("denoise").stages[:1])
    wild = [
        np.ascontiguousarray(1 - image[::-1] ** 3) if number % 4 == 1 else image for number, image in enumerate(IMAGES)
    ]
    for images in (IMAGES, wild):
        fit_cascade(images, FAMILIES["denoise"], plan=plan, crops=8, side=64)
    one, two = found
    assert torch.equal(one.held_out[1], two.held_out[1])
    assert not torch.equal(one.maps, two.maps)
    for other in (0, 2, 3):
        assert not torch.equal(one.held_out[other], two.held_out[other])


def test_a_case_is_carried_on_by_maps_without_its_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    found = spied(monkeypatch)
    generator = torch.Generator().manual_seed(0)
    plan = tiny_plan("denoise")
    planes = [torch.from_numpy(image) for image in IMAGES]
    carried = crew(draw_crops(planes, range(8), FAMILIES["denoise"], 8, 64, 4, generator))
    before = [case.state for case in carried.cases]
    found_on = Partition(carried, plan, generator, CPU)
    stage, _, _ = fit_stage(carried, plan.stages[0], plan, found_on, generator, last=False)
    cases = carried.cases
    assert isinstance(stage.regression, CellMaps)
    assert torch.equal(stage.regression.maps, found[0].maps)
    for case, state in zip(cases, before):
        own = dataclasses.replace(stage.regression, maps=found[0].held_out[case.fold])
        expected, _ = advance(state, dataclasses.replace(stage, regression=own))
        torch.testing.assert_close(case.state.z, expected.z, rtol=0, atol=1e-5)
        torch.testing.assert_close(case.state.x, expected.x, rtol=0, atol=1e-3)
        whole, _ = advance(state, stage)
        assert float((case.state.z - whole.z).abs().max()) > 1e-3
    errors = torch.stack([case.error(state.x).square().mean() for case, state in zip(cases, before)])
    assert stage.error == pytest.approx(float(errors.mean().sqrt()))


def test_banks_for_a_case_do_not_know_its_fold() -> None:
    """Every pair of a bank without a fold is one of the whole bank, and none is of a case of that fold."""
    generator, plan = torch.Generator().manual_seed(0), tiny_plan("denoise")
    planes = [torch.from_numpy(image) for image in IMAGES]
    carried = crew(draw_crops(planes, range(8), FAMILIES["denoise"], 8, 40, 4, generator))
    stage = LearntStage(NOTHING, plan.stages[0].views, 1.0, 0.0)
    carried.move(looked, stage.views, 1.0)
    whole, parts = learning._fit_bank(carried, stage, NadarayaWatson(), 160, generator)
    assert isinstance(whole, BankWeights)
    assert len(whole.features) == 160
    for fold, part in enumerate(parts):
        assert isinstance(part, BankWeights)
        assert len(part.features) == len(part.wanted) == 120
        for case in carried.cases:
            seen, patches = stage.features(case.views, case.state.z, stage.grid((40, 40)))
            wanted = stage.grid((40, 40)).extract(case.clean) - patches
            known = {tuple(pair) for pair in torch.cat([seen, wanted], 1).tolist()}
            found = sum(tuple(pair) in known for pair in torch.cat([part.features, part.wanted], 1).tolist())
            assert found == (0 if case.fold == fold else 20)


@pytest.mark.parametrize("kind", ["tree", "directions"])
def test_cells_are_found_through_the_error_of_the_estimate(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean patches are seen with errors of the covariance that the estimate's have."""
    generator, plan = torch.Generator().manual_seed(0), tiny_plan("denoise", partition=kind)
    planes = [torch.from_numpy(image) for image in IMAGES[:4]]
    carried = crew(draw_crops(planes, range(4), FAMILIES["denoise"], 4, 40, 4, generator))
    cells = Partition(carried, dataclasses.replace(plan, patches=40_000), generator, CPU)
    found: list[Tensor] = []
    name = f"{kind}_cells" if kind == "tree" else "direction_cells"
    monkeypatch.setattr(partition, name, lambda seen, *args, **kwargs: found.append(seen))
    root = torch.eye(63, dtype=torch.float64) + 0.5 * torch.eye(63, dtype=torch.float64).roll(1, 0)
    root[0] *= 3
    error = root @ root.T
    cells.at(kind, error.float())
    off = (found[0] - cell_features(cells.clean)).double()
    np.testing.assert_allclose((off.T @ off / len(off)).numpy(), error.numpy(), atol=0.03 * float(error.max()))


def test_the_last_level_is_the_best_of_those_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    scores: list[float] = []
    real = learning._mean

    def spy(values: Sequence[float]) -> float:
        scores.append(real(values))
        return scores[-1]

    generator, plan = torch.Generator().manual_seed(0), tiny_plan("deblur", partition="one")
    planes = [torch.from_numpy(image) for image in IMAGES[:4]]
    carried = crew(draw_crops(planes, range(4), FAMILIES["deblur"], 4, 64, 4, generator))
    found_on = Partition(carried, plan, generator, CPU)
    monkeypatch.setattr(learning, "_mean", spy)
    stage, _, ends = fit_stage(carried, plan.stages[0], plan, found_on, generator, last=True)
    of_patches, *tried = scores
    assert len(tried) == len(learning.LEVELS)
    off = torch.stack([case.error(case.state.z).square().mean() for case in carried.cases]).mean().sqrt()
    assert stage.level == pytest.approx(learning.LEVELS[int(np.argmax(tried))] * float(off))
    assert real([case.psnr(case.state.x) for case in carried.cases]) == max(tried)
    assert real([case.psnr(case.state.z) for case in carried.cases]) == of_patches == tried[0]
    assert ends == {0.0: of_patches, stage.level: max(tried)}
    assert len(set(tried)) == len(tried)


# Plans and errors


@every_task
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 7])
def test_plans_have_as_many_stages_as_asked_for(task: str, stages: int) -> None:
    plan = cascade_plan(FAMILIES[task], stages=stages, cells=17)
    assert len(plan.stages) == stages
    assert plan.cells == 17
    known: set[str] = set()
    for stage in plan.stages:
        assert isinstance(stage.views[0], Estimate)
        assert {view.name for view in stage.views if isinstance(view, Before)} <= known
        known |= {"z"} | {view.name for view in stage.views if isinstance(view, Similar)}
    assert plan.describe()["cells"] == 17
    json.dumps(plan.describe())


@pytest.mark.parametrize(
    ("task", "operator"),
    [
        ("denoise", Identity()),
        ("deblur", Blur(LOPSIDED)),
        ("upsample", Downsample(2)),
        ("inpaint", Mask(HOLES)),
        ("deblur", Compose(Mask(HOLES), Identity())),
    ],
)
def test_a_single_operator_has_the_plan_of_its_task(task: str, operator: Operator) -> None:
    assert cascade_plan(Fixed(operator, 0.01), stages=3) == cascade_plan(FAMILIES[task], stages=3)


def refused(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.argument == argument
    assert argument in str(caught.value)


STAGES = (StagePlan((Estimate(),)),)


def test_bad_plans() -> None:
    refused("partition", lambda: Plan(STAGES, partition="voronoi"))
    refused("stages", lambda: Plan(()))
    refused("cells", lambda: Plan(STAGES, cells=0))


def test_bad_partition_of_a_stage() -> None:
    refused("partition", lambda: Plan((StagePlan((Estimate(),), partition="voronoi"),)))


@pytest.mark.parametrize("shown", [(), (Data(),), (Estimate(), Before()), (Estimate(), Before(name="similar 8"))])
def test_bad_views(shown: tuple[View, ...]) -> None:
    """z itself comes first, and a first stage has none before it."""
    refused("views", lambda: Plan((StagePlan(shown),)))


@every_task
def test_no_stages(task: str) -> None:
    refused("stages", lambda: cascade_plan(FAMILIES[task], stages=0))


def test_what_an_operator_sees_may_lie_anywhere() -> None:
    """Three times the picture: its white is 3, and training sees that."""
    family = Fixed(Linear(3 * sparse.eye(32**2), (32, 32), (32, 32)), 0.01)
    generator = torch.Generator().manual_seed(0)
    for case in crew(draw_crops([torch.from_numpy(IMAGES[0])], [0], family, 8, 32, 4, generator)).cases:
        off = (case.state.y - 3 * case.clean) * case.state.unit
        assert float(off.abs().max()) < 0.06


def test_bad_groups() -> None:
    refused("groups", lambda: fit("denoise", groups=[0, 1, 2]))
    refused("groups", lambda: fit("denoise", groups=[]))


def test_unknown_weights() -> None:
    plan = tiny_plan("denoise", partition="one")
    stages = (dataclasses.replace(plan.stages[0], weights="forest"),)
    refused("weights", lambda: fit("denoise", plan=dataclasses.replace(plan, stages=stages), crops=4))


def test_bad_images() -> None:
    refused("images", lambda: fit_cascade([], FAMILIES["denoise"]))
    refused("images[1]", lambda: fit_cascade([IMAGES[0], 7 * IMAGES[1]], FAMILIES["denoise"]))
    refused("images[1]", lambda: fit_cascade([IMAGES[0], IMAGES[1][:7]], FAMILIES["denoise"]))


@pytest.mark.parametrize(("argument", "value"), [("crops", 0), ("crops", 3), ("folds", 0), ("side", 7)])
def test_nothing_to_learn_from(argument: str, value: int) -> None:
    given: dict[str, Any] = {argument: value}
    refused(argument, lambda: fit("denoise", **given))


def test_groups_are_names() -> None:
    """Two groups are two folds, whatever they are called."""
    model = fit("denoise", plan=tiny_plan("denoise", partition="one"), groups=[1, 5] * 4)
    assert model.provenance["folds"] == 2


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    plan = tiny_plan("denoise", partition="one")
    fit("denoise", plan=plan, crops=4, progress=lambda done, total, what: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]
