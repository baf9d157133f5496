"""Operators built from others, and those that take several planes together: against loops and dense matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import operators as reference
from slir.errors import InputError
from slir.estimator.start import CHROMA, SLOPE, smooth_start
from slir.operators import (
    Blur,
    ColourFilterArray,
    Diagonal,
    Downsample,
    Identity,
    Linear,
    Mask,
    Operator,
    PerChannel,
    Stack,
    VaryingBlur,
    adjoint_error,
)
from slir.operators.mosaic import PATTERNS
from slir.solvers.system import System

pytestmark = pytest.mark.usefixtures("one_thread")

BORDERS = ["unknown", "circular", "reflect"]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def psf(tall: int, wide: int, seed: int = 0) -> np.ndarray:
    """Without symmetry, so that a flip or a shift cannot hide."""
    values = rng(seed).random((tall, wide)) + 0.1
    return values / values.sum()


def psfs(rows: int, cols: int, tall: int, wide: int) -> np.ndarray:
    return np.stack([[psf(tall, wide, 10 * i + j) for j in range(cols)] for i in range(rows)])


def missing(*shape: int) -> np.ndarray:
    mask = rng(1).random(shape) < 0.4
    mask[..., 0, 0] = False
    return mask


def gains(*shape: int) -> np.ndarray:
    return rng(2).normal(1, 0.4, shape)


# name: the operator, height and width of x
CASES: dict[str, tuple[Callable[[], Operator], tuple[int, int]]] = {
    "mask of channels": (lambda: Mask(missing(3, 6, 7)), (6, 7)),
    "diagonal": (lambda: Diagonal(gains(6, 7)), (6, 7)),
    "diagonal of channels": (lambda: Diagonal(gains(2, 6, 7)), (6, 7)),
    "bayer": (lambda: ColourFilterArray("GRBG"), (7, 9)),
    "x-trans": (lambda: ColourFilterArray("X-Trans"), (8, 13)),
    "pattern": (lambda: ColourFilterArray(np.array([[0, 1, 2]])), (4, 8)),
    "scaled": (lambda: -2.5 * Blur(psf(3, 4)), (8, 9)),
    "divided": (lambda: Blur(psf(3, 4)) / 4, (8, 9)),
    "negative": (lambda: -Downsample(2, "box"), (8, 10)),
    "sum": (lambda: Blur(psf(3, 4), "reflect") + 2 * Identity(), (8, 9)),
    "difference": (lambda: Blur(psf(3, 4, 1)) - Blur(psf(3, 4, 2)), (8, 9)),
    "transpose": (lambda: Blur(psf(3, 4)).T, (6, 6)),
    "transposed mosaic": (lambda: ColourFilterArray().T, (6, 6)),
    "gram": (lambda: Blur(psf(3, 4)).T @ Blur(psf(3, 4)), (8, 9)),
    "mosaic of a blur": (lambda: ColourFilterArray() @ Blur(psf(3, 3)), (9, 10)),
    "weighted mosaic": (lambda: Diagonal(gains(6, 8)) @ ColourFilterArray(), (6, 8)),
    "blurred mosaic": (lambda: Blur(psf(3, 3)) @ ColourFilterArray(), (8, 10)),
    "views": (lambda: Stack([Blur(psf(3, 3), "reflect"), Identity(), Mask(missing(7, 8))]), (7, 8)),
    "views of several reaches": (lambda: Stack([Blur(psf(5, 3)), Blur(psf(2, 4)), Identity()]), (11, 12)),
    "burst": (lambda: Stack([ColourFilterArray(p) @ Blur(psf(3, 3)) for p in ("RGGB", "BGGR")]), (9, 9)),
    "coarse views": (lambda: Stack([Downsample(2, "box"), Downsample(2, 0.6, phase=1)]), (8, 8)),
    "views of views": (lambda: Stack([Stack([Identity(), Blur(psf(3, 3))]), Stack(2 * [Identity()])]), (9, 8)),
    "per channel": (lambda: PerChannel([Blur(psf(3, 4, i), "reflect") for i in range(3)]), (7, 9)),
    "per channel, unknown": (lambda: PerChannel([Blur(psf(3, 4, i)) for i in range(2)]), (7, 9)),
    "masks per channel": (lambda: PerChannel([Mask(missing(6, 7)), Identity(), Identity()]), (6, 7)),
    "blurred views": (lambda: Blur(psf(3, 3)) @ Stack([Identity(), 2 * Identity()]), (9, 8)),
}  # fmt: skip
for _border in BORDERS:
    for _grid, _taps in [((1, 1), (3, 4)), ((2, 3), (3, 3)), ((5, 4), (4, 5)), ((1, 12), (3, 1))]:
        CASES[f"varying-{_grid}-{_taps}-{_border}"] = (
            lambda grid=_grid, taps=_taps, border=_border: VaryingBlur(
                psfs(*grid, *taps),
                (14, 12) if border != "unknown" else (14 - taps[0] + 1, 12 - taps[1] + 1),
                border,
            ),
            (14, 12),
        )
every_case = pytest.mark.parametrize("case", CASES)


def made(case: str) -> tuple[Operator, tuple[int, ...], tuple[int, ...]]:
    """An operator, and the shapes of x and y with the planes that it takes together."""
    make, shape = CASES[case]
    operator = make()
    return operator, (*operator.x_planes, *shape), (*operator.y_planes, *operator.y_shape(shape))


def drawn(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(0.5, 0.3, shape))


def dense(operator: Operator, shape: tuple[int, ...]) -> Tensor:
    count = int(np.prod(shape))
    units = torch.eye(count, dtype=torch.float64).reshape(count, *shape)
    return torch.stack([operator.forward(unit).flatten() for unit in units], 1)


@every_case
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_adjoint(case: str, dtype: torch.dtype, near: float) -> None:
    make, shape = CASES[case]
    assert adjoint_error(make(), shape, dtype=dtype) < near


@every_case
def test_shapes_batches_and_the_dense_matrix(case: str) -> None:
    operator, x_shape, y_shape = made(case)
    assert operator.x_shape((y_shape[-2], y_shape[-1])) == x_shape[-2:]
    matrix = dense(operator, x_shape)
    x, y = drawn((2, *x_shape)), drawn((2, *y_shape), 1)
    seen, back = operator.forward(x), operator.adjoint(y)
    assert tuple(seen.shape) == (2, *y_shape)
    assert tuple(back.shape) == (2, *x_shape)
    assert tuple(operator.guess(y[0]).shape) == x_shape
    for own in range(2):
        torch.testing.assert_close(seen[own].flatten(), matrix @ x[own].flatten(), rtol=0, atol=1e-11)
        torch.testing.assert_close(back[own].flatten(), matrix.T @ y[own].flatten(), rtol=0, atol=1e-11)
    torch.testing.assert_close(operator.normal(x), operator.adjoint(seen), rtol=0, atol=1e-11)


@every_case
def test_the_normal_diagonal_is_that_of_the_dense_matrix(case: str) -> None:
    operator, x_shape, y_shape = made(case)
    weights = drawn(y_shape, 3).square()
    found = operator.normal_diagonal(weights)
    matrix = dense(operator, x_shape)
    whole = matrix.T @ (weights.flatten()[:, None] * matrix)
    if found is not None:
        torch.testing.assert_close(torch.diag(found.flatten()), whole, rtol=0, atol=1e-11)
    elif "transposed" not in case:
        assert float((whole - torch.diag(whole.diagonal())).abs().max()) > 1e-3


@every_case
def test_preconditioners_are_symmetric_positive_and_save_steps(case: str) -> None:
    operator, x_shape, _ = made(case)
    a, b = drawn(x_shape, 4), drawn(x_shape, 5)
    for weight, ridge, smooth in ((1.0, 0.1, 0.0), (40.0, 1.0, 0.0), (1.0, 0.0, 0.3)):
        hint = operator.preconditioner(a, weight, ridge, smooth)
        if hint is not None:
            torch.testing.assert_close((b * hint(a)).sum(), (hint(b) * a).sum())
            assert float((a * hint(a)).sum()) > 0


@pytest.mark.parametrize("case", ["bayer", "diagonal", "mask of channels", "weighted mosaic"])
def test_a_diagonal_system_is_solved_at_once(case: str) -> None:
    operator, _, y_shape = made(case)
    rhs = operator.adjoint(drawn(y_shape))
    assert System(operator, 3.0, 0.5).solve(rhs, target=1e-9).stats["steps"] <= 1


@pytest.mark.parametrize("case", ["views of several reaches", "varying-(5, 4)-(4, 5)-unknown", "mosaic of a blur"])
def test_systems_are_solved_as_by_the_dense_matrix(case: str) -> None:
    operator, x_shape, y_shape = made(case)
    matrix = dense(operator, x_shape)
    y = drawn(y_shape)
    expected = torch.linalg.solve(3 * matrix.T @ matrix + 0.2 * torch.eye(matrix.shape[1]).double(),
                                  3 * matrix.T @ y.flatten())  # fmt: skip
    found = System(operator, 3.0, 0.2).solve(3 * operator.adjoint(y), target=1e-10)
    torch.testing.assert_close(found.value.flatten(), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("grid", [(1, 1), (2, 3), (4, 1)])
def test_a_varying_blur_is_the_loop_over_pixels(border: str, grid: tuple[int, int]) -> None:
    kernels, x = psfs(*grid, 3, 4), drawn((13, 15)).numpy()
    shape = reference.convolve(x, kernels[0, 0], border).shape
    found = VaryingBlur(kernels, shape, border).forward(torch.from_numpy(x)).numpy()  # type: ignore[arg-type]
    np.testing.assert_allclose(found, reference.varying_blur(x, kernels, border), rtol=0, atol=1e-12)


def test_a_varying_blur_with_one_psf_is_a_blur() -> None:
    kernel = psf(5, 4)
    x = drawn((2, 30, 40))
    for border in BORDERS:
        plain = Blur(kernel, border)  # type: ignore[arg-type]
        own = VaryingBlur(np.tile(kernel, (3, 5, 1, 1)), plain.y_shape((30, 40)), border)  # type: ignore[arg-type]
        torch.testing.assert_close(own.forward(x), plain.forward(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_colour_filter_array_is_the_loop_over_pixels(pattern: str) -> None:
    x = drawn((3, 9, 14)).numpy()
    rows = PATTERNS[pattern]
    expected = [[x["RGB".index(rows[i % len(rows)][j % len(rows[0])]), i, j] for j in range(14)] for i in range(9)]
    np.testing.assert_array_equal(ColourFilterArray(pattern)(x), np.array(expected))


def test_x_trans_has_every_colour_in_each_row_and_column() -> None:
    rows = PATTERNS["X-Trans"]
    assert all(set(row) == set("RGB") for row in rows)
    assert all({row[j] for row in rows} == set("RGB") for j in range(6))
    assert sum(row.count("G") for row in rows) == 20


@pytest.mark.parametrize("case", ["views", "views of several reaches", "burst", "bayer", "x-trans", "weighted mosaic",
                                  "sum", "scaled", "varying-(5, 4)-(4, 5)-unknown", "varying-(2, 3)-(3, 3)-reflect",
                                  "mosaic of a blur", "diagonal"])  # fmt: skip
def test_parts_are_parts_of_the_whole(case: str) -> None:
    operator, x_shape, y_shape = made(case)
    height, width = y_shape[-2:]
    rows, cols = slice(2, height), slice(1, width - 1)
    part = operator.part(rows, cols)
    assert part is not None
    x = drawn(x_shape)
    tall, wide = part.x_shape((height - 2, width - 2))
    found = part.forward(x[..., 2 : 2 + tall, 1 : 1 + wide])
    reach = operator.reach if case in ("views", "sum", "per channel") or case.endswith("reflect") else 0
    inner = (..., slice(reach, height - 2 - reach), slice(reach, width - 2 - reach))
    expected = operator.forward(x)[..., rows, cols]
    torch.testing.assert_close(found[inner], expected[inner], rtol=0, atol=1e-12)


@every_case
def test_training_shapes_fit(case: str) -> None:
    operator, _, _ = made(case)
    if case.startswith("transpose") or case == "gram":
        return
    own, shape = operator.for_training((31, 45))
    assert shape[0] <= 31
    assert shape[1] <= 45
    assert tuple(own.forward(torch.zeros(*own.x_planes, *shape)).shape) == (*own.y_planes, *own.y_shape(shape))


def test_operators_are_called_and_combined_as_matrices_are() -> None:
    x = drawn((10, 12))
    a, b = Blur(psf(3, 3), "reflect"), Mask(missing(10, 12))
    torch.testing.assert_close((b @ a)(x), b.forward(a.forward(x)))
    torch.testing.assert_close((2 * a - b / 2)(x), 2 * a.forward(x) - b.forward(x) / 2)
    torch.testing.assert_close((b @ a).T(x), (a.T @ b.T)(x))
    torch.testing.assert_close(a.T.T(x), a(x))
    found = a(x.numpy())
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, a(x).numpy())
    np.testing.assert_allclose(a((100 * x.numpy()).astype(int)), a((100 * x).long().double()).numpy())


def test_a_foreign_operator_of_several_planes_composes() -> None:
    matrix = rng(4).normal(size=(12, 36))
    operator = Linear(matrix, (3, 3, 4), (3, 4))
    assert operator.x_planes == (3,)
    x = drawn((2, 3, 3, 4))
    torch.testing.assert_close(operator(x)[1].flatten(), torch.from_numpy(matrix) @ x[1].flatten())
    assert adjoint_error(operator, (3, 4)) < 1e-12
    assert (operator @ ColourFilterArray().T).x_planes == ()


BAD: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "gains of one axis": (lambda: Diagonal(np.ones(3)), ("gains", "two dimensions", "(3,)")),
    "gains nan": (lambda: Diagonal(np.array([[np.nan, 1]])), ("gains", "finite", "NaN")),
    "gains zero": (lambda: Diagonal(np.zeros((2, 2))), ("gains", "at least one pixel", "zero everywhere")),
    "gains shape": (lambda: Diagonal(np.ones((2, 2))).y_shape((3, 4)), ("gains", "(3, 4)", "(2, 2)")),
    "pattern name": (lambda: ColourFilterArray("RGBG"), ("pattern", "X-Trans", "'RGBG'")),
    "pattern letters": (lambda: ColourFilterArray(("RX", "GB")), ("pattern", "letters")),
    "pattern ragged": (lambda: ColourFilterArray(("RGB", "GB")), ("pattern", "letters")),
    "pattern numbers": (lambda: ColourFilterArray(np.array([[0, 3]])), ("pattern", "0, 1, 2")),
    "psfs of two axes": (lambda: VaryingBlur(psf(3, 3), (9, 9)), ("psfs", "four dimensions", "(3, 3)")),
    "psfs sum": (lambda: VaryingBlur(np.ones((1, 1, 3, 3)), (9, 9)), ("psfs", "sum to one", "9")),
    "varying shape": (lambda: VaryingBlur(psfs(2, 2, 3, 3), (9, 9)).x_shape((8, 9)), ("image", "(9, 9)", "(8, 9)")),
    "channels of several sizes": (lambda: PerChannel([Blur(psf(3, 3)), Blur(psf(5, 5))]), ("operators", "Pad PSFs")),
    "channels that mix": (lambda: PerChannel([ColourFilterArray()]), ("operators", "single planes")),
    "no views": (lambda: Stack([]), ("operators", "list")),
    "views of two scales": (lambda: Stack([Identity(), Downsample(2)]), ("operators", "scale", "[1, 2]")),
    "views of two kinds": (lambda: Stack([Identity(), ColourFilterArray()]), ("operators", "planes")),
    "sum of two sizes": (lambda: Blur(psf(3, 3)) + Blur(psf(5, 5)), ("operator", "as far", "Pad the PSFs")),
    "sum of two kinds": (lambda: Identity() + ColourFilterArray(), ("operator", "x_planes", "(3,)")),
    "planes out of order": (lambda: ColourFilterArray() @ Diagonal(gains(2, 4, 4)), ("operator", "(2,)", "(3,)")),
    "zero": (lambda: 0 * Identity(), ("factor", "not zero", "0")),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_value_and_remedy(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("other", [3, "mask", None, np.eye(2)])
def test_what_is_no_operator_does_not_compose(other: object) -> None:
    with pytest.raises(TypeError):
        Identity() @ other  # type: ignore[operator]
    with pytest.raises(TypeError):
        Identity() + other  # type: ignore[operator]


@pytest.mark.parametrize("case", ["bayer", "mosaic of a blur"])
def test_the_start_of_mixed_colours_is_the_dense_solution(case: str) -> None:
    """argmin ‖y − Bx‖²/σ² + ‖∇x̄‖²/g² + chroma ‖∇(x − x̄)‖²/g², x̄ the mean of the colours."""
    operator, x_shape, y_shape = made(case)
    matrix, y, sigma = dense(operator, x_shape), drawn(y_shape), 0.05
    height, width = x_shape[1:]
    down, across = (torch.diff(torch.eye(n, dtype=torch.float64), dim=0) for n in (height, width))
    rough = torch.kron(down.T @ down, torch.eye(width)) + torch.kron(torch.eye(height), across.T @ across)
    mean = torch.full((3, 3), 1 / 3, dtype=torch.float64)
    colours = mean + CHROMA * (torch.eye(3) - mean)
    weight = (sigma / SLOPE) ** 2
    expected = torch.linalg.solve(matrix.T @ matrix + weight * torch.kron(colours, rough), matrix.T @ y.flatten())
    found = smooth_start(operator, y, sigma)
    torch.testing.assert_close(found.flatten(), expected, rtol=0, atol=1e-4)
