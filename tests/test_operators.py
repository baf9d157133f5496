"""Operators B: against loops, dense matrices, SciPy and Pillow; adjoints, shapes, alignment, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from reference import operators as reference
from slir.errors import InputError
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, Operator, adjoint_error
from slir.operators import convolution as convolution_module
from slir.operators.convolution import Border
from slir.solvers.cg import cg

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float32, torch.float64]
BORDERS = ["unknown", "circular", "reflect"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_psf(tall: int, wide: int, seed: int = 0) -> np.ndarray:
    """Without any symmetry, so that a flip or a shift cannot hide; a few taps are negative."""
    psf = rng(seed).normal(1, 1, (tall, wide))
    psf[0, 0] += 3
    return psf / psf.sum()


def some_missing(height: int, width: int, seed: int = 0) -> np.ndarray:
    missing = rng(seed).random((height, width)) < 0.4
    missing[0, 0] = False
    return missing


def sparse(rows: int, cols: int, seed: int = 0) -> scipy.sparse.csr_array:
    draws = rng(seed).random((2, rows, cols))
    return scipy.sparse.csr_array(np.where(draws[0] < 0.2, draws[1], 0.0))


# name: the operator, the shape of x
CASES: dict[str, tuple[Callable[[], Operator], tuple[int, int]]] = {
    "identity": (Identity, (5, 8)),
    "mask": (lambda: Mask(some_missing(6, 7)), (6, 7)),
    "linear": (lambda: Linear(sparse(20, 42), (6, 7), (4, 5)), (6, 7)),
    "mask-blur": (lambda: Compose(Mask(some_missing(6, 8)), Blur(random_psf(3, 4))), (8, 11)),
    "down-blur": (lambda: Compose(Downsample(2, "box"), Blur(random_psf(3, 5))), (12, 14)),
    "down-blur-circular": (lambda: Compose(Downsample(2, 0.6), Blur(random_psf(4, 3), "circular")), (10, 8)),
    "blur-down": (lambda: Compose(Blur(random_psf(3, 3)), Downsample(2, "box")), (12, 14)),
    "mask-down": (lambda: Compose(Mask(some_missing(5, 4)), Downsample(3, "box")), (15, 12)),
    "blur-down-blur": (
        lambda: Compose(Blur(random_psf(3, 2)), Compose(Downsample(2, "box"), Blur(random_psf(2, 3)))),
        (13, 14),
    ),
}
for _border in BORDERS:
    for _tall, _wide in [(1, 1), (3, 3), (2, 2), (4, 3), (1, 6), (7, 8)]:
        CASES[f"blur-{_tall}x{_wide}-{_border}"] = (
            lambda border=_border, size=(_tall, _wide): Blur(random_psf(*size), border),
            (9, 12),
        )
for _factor, _shape in [(2, (8, 10)), (3, (12, 15)), (4, (16, 20))]:
    CASES[f"down{_factor}-bicubic"] = (lambda factor=_factor: Downsample(factor), _shape)
    CASES[f"down{_factor}-box"] = (lambda factor=_factor: Downsample(factor, "box"), _shape)
    CASES[f"down{_factor}-gauss"] = (lambda factor=_factor: Downsample(factor, 0.8, phase=factor - 1), _shape)
    CASES[f"down{_factor}-kernel-circular"] = (
        lambda factor=_factor: Downsample(factor, random_psf(4, 5), phase=1, border="circular"),
        _shape,
    )
every_case = pytest.mark.parametrize("case", CASES)


def image(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(0.5, 0.3, shape)).to(dtype)


def dense(operator: Operator, x_shape: tuple[int, int]) -> np.ndarray:
    return reference.matrix(lambda x: operator.forward(torch.from_numpy(x)).numpy(), x_shape)


def size(found: Tensor) -> float:
    return max(float(found.abs().max()), 1e-30)


# Each operator, whatever its kind


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
def test_adjoint(case: str, dtype: torch.dtype) -> None:
    make, shape = CASES[case]
    for seed in range(3):
        assert adjoint_error(make(), shape, dtype=dtype, seed=seed) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_adjoint_check_finds_a_wrong_adjoint(dtype: torch.dtype) -> None:
    class Shifted(Identity):
        def adjoint(self, y: Tensor) -> Tensor:
            return y.roll(1, 0)

    assert adjoint_error(Shifted(), (6, 7), dtype=dtype) > 1e-2


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_and_adjoint_are_one_dense_matrix(case: str, dtype: torch.dtype) -> None:
    make, shape = CASES[case]
    operator = make()
    matrix = torch.from_numpy(dense(operator, shape))
    x = image(shape, dtype)
    y = image(operator.y_shape(shape), dtype, seed=1)
    for found, expected in [
        (operator.forward(x), matrix @ x.double().ravel()),
        (operator.adjoint(y), matrix.T @ y.double().ravel()),
        (operator.normal(x), matrix.T @ (matrix @ x.double().ravel())),
    ]:
        assert found.dtype == dtype
        assert size(found.double().ravel() - expected) < TOLERANCE[dtype] * size(expected)


@every_case
def test_linear(case: str) -> None:
    make, shape = CASES[case]
    operator = make()
    a, b = image(shape, seed=2), image(shape, seed=3)
    both = operator.forward(1.7 * a - 0.4 * b)
    torch.testing.assert_close(both, 1.7 * operator.forward(a) - 0.4 * operator.forward(b), rtol=0, atol=1e-12)


@every_case
def test_shapes_are_each_others_inverse(case: str) -> None:
    make, shape = CASES[case]
    operator = make()
    y_shape = operator.y_shape(shape)
    assert operator.x_shape(y_shape) == shape
    x = image(shape)
    y = operator.forward(x)
    assert tuple(y.shape) == y_shape
    assert tuple(operator.adjoint(y).shape) == shape
    assert tuple(operator.guess(y).shape) == shape


@every_case
def test_reach_is_honest(case: str) -> None:
    """No pixel of x further than `reach` from where a pixel of y lies has any part in it."""
    make, shape = CASES[case]
    operator = make()
    y_shape = operator.y_shape(shape)
    matrix = np.abs(dense(operator, shape)).reshape(*y_shape, *shape) > 1e-12
    scale = [max(1, round(n / m)) for n, m in zip(shape, y_shape)] if "down" in case else [1, 1]
    wraps = "circular" in case
    for i in range(y_shape[0]):
        for j in range(y_shape[1]):
            rows, cols = np.nonzero(matrix[i, j])
            for found, place, length in ((rows, i * scale[0], shape[0]), (cols, j * scale[1], shape[1])):
                if len(found):
                    far = np.abs(found - place)
                    assert (np.minimum(far, length - far) if wraps else far).max() <= operator.reach


def test_reach_of_a_blur_after_downsampling_counts_fine_pixels() -> None:
    blur = Blur(random_psf(7, 7))
    simple = Compose(blur, Downsample(2, "box"))
    nested = Compose(blur, Compose(Downsample(2, "box"), Identity()))
    twice = Compose(blur, Compose(Downsample(2, "box"), Downsample(2, "box")))
    for operator, shape in ((simple, (28, 28)), (nested, (28, 28)), (twice, (40, 40))):
        matrix = np.abs(dense(operator, shape)).reshape(*operator.y_shape(shape), *shape) > 1e-12
        assert np.nonzero(matrix[0, 0])[0].max() <= operator.reach


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_are_their_images(case: str, dtype: torch.dtype) -> None:
    make, shape = CASES[case]
    operator = make()
    x = image((2, 3, *shape), dtype)
    y = image((2, 3, *operator.y_shape(shape)), dtype, seed=1)
    near = {"rtol": 0, "atol": 20 * torch.finfo(dtype).eps}
    for batch, function in ((x, operator.forward), (y, operator.adjoint)):
        whole = function(batch)
        for i in range(2):
            for j in range(3):
                torch.testing.assert_close(whole[i, j], function(batch[i, j]), **near)
    if case != "linear":  # its guess is an iterative solve of the whole batch
        torch.testing.assert_close(operator.guess(y)[1, 2], operator.guess(y[1, 2]), **near)


@every_case
def test_input_is_left_as_it_was(case: str) -> None:
    make, shape = CASES[case]
    operator = make()
    x = image(shape)
    y = operator.forward(x).clone()
    before_x, before_y = x.clone(), y.clone()
    operator.forward(x)
    operator.adjoint(y)
    operator.guess(y)
    operator.crop(x, operator.y_shape(shape))
    assert torch.equal(x, before_x)
    assert torch.equal(y, before_y)


@every_case
def test_description_is_json_and_tells_operators_apart(case: str) -> None:
    make, _ = CASES[case]
    description = make().describe()
    assert json.loads(json.dumps(description)) == description
    assert description == make().describe()
    others = [CASES[other][0]().describe() for other in CASES if other != case]
    assert description not in others


# Against loops and other people's code


@settings(max_examples=30)
@given(
    st.integers(1, 6), st.integers(1, 6), st.integers(6, 9), st.integers(6, 10), st.sampled_from(BORDERS), st.booleans()
)
def test_blur_is_the_double_loop(tall: int, wide: int, height: int, width: int, border: str, direct: bool) -> None:
    psf, x = random_psf(tall, wide, tall * wide), image((height, width)).numpy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_module, "DIRECT_TAPS", 10**6 if direct else 0)
        operator = Blur(psf, border)
        found = operator.forward(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(found, reference.convolve(x, psf, border), rtol=0, atol=1e-12)
        assert adjoint_error(operator, x.shape) < 1e-12
        assert adjoint_error(operator, x.shape, dtype=torch.float32) < 1e-5


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("psf_size", [(3, 3), (5, 5), (4, 6), (6, 3), (9, 11)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_direct_and_fft_paths_agree(
    border: str, psf_size: tuple[int, int], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Blur(random_psf(*psf_size), border)
    x = image((2, 17, 22), dtype)
    y = image((2, *operator.y_shape((17, 22))), dtype)
    results = []
    for taps in (0, 10**6):
        monkeypatch.setattr(convolution_module, "DIRECT_TAPS", taps)
        results.append((operator.forward(x), operator.adjoint(y)))
    for by_fft, directly in zip(*results):
        assert size(by_fft - directly) < TOLERANCE[dtype] * size(directly)


def test_small_kernels_are_direct_and_large_ones_are_not() -> None:
    assert Blur(random_psf(5, 5)).convolution._direct(torch.zeros(1))
    assert not Blur(random_psf(19, 19)).convolution._direct(torch.zeros(1))


@pytest.mark.parametrize("psf_size", [(3, 5), (4, 4), (6, 9), (15, 14)])
@pytest.mark.parametrize(
    ("border", "mode", "boundary"),
    [("unknown", "valid", "fill"), ("circular", "same", "wrap"), ("reflect", "same", "symm")],
)
def test_blur_is_scipy_signal(psf_size: tuple[int, int], border: str, mode: str, boundary: str) -> None:
    psf, x = random_psf(*psf_size), image((31, 26))
    expected = scipy.signal.convolve2d(x.numpy(), psf, mode=mode, boundary=boundary)
    np.testing.assert_allclose(Blur(psf, border).forward(x).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("border", "mode"), [("circular", "wrap"), ("reflect", "reflect")])
@pytest.mark.parametrize("psf_size", [(3, 5), (7, 7), (13, 1)])
def test_blur_is_scipy_ndimage(border: str, mode: str, psf_size: tuple[int, int]) -> None:
    psf, x = random_psf(*psf_size), image((31, 26))
    expected = scipy.ndimage.convolve(x.numpy(), psf, mode=mode)
    np.testing.assert_allclose(Blur(psf, border).forward(x).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("border", ["circular", "reflect"])
@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_downsampling_is_the_double_loop(border: str, factor: int) -> None:
    x = image((16 - 16 % factor, 20 - 20 % factor)).numpy()
    for antialias in ("bicubic", "box", 0.7, random_psf(2, 3)):
        for phase in [None, *range(factor)]:
            operator = Downsample(factor, antialias, phase=phase, border=border)
            kept = operator.phase
            assert phase is None or kept == phase
            expected = reference.downsample(x, operator.kernel.numpy(), factor, kept, border)
            found = operator.forward(torch.from_numpy(x)).numpy()
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize(("name", "resample"), [("bicubic", Image.Resampling.BICUBIC), ("box", Image.Resampling.BOX)])
def test_downsampling_is_pillow_inside_the_image(factor: int, name: str, resample: Image.Resampling) -> None:
    height, width = 12 * factor, 15 * factor
    x = image((height, width), torch.float32)
    resized = Image.fromarray(x.numpy()).resize((width // factor, height // factor), resample)
    found = Downsample(factor, name).forward(x).numpy()
    edge = 0 if name == "box" else 2  # Pillow leaves the taps beyond the image out; we mirror
    inside = (slice(edge, 12 - edge), slice(edge, 15 - edge))
    np.testing.assert_allclose(found[inside], np.asarray(resized)[inside], rtol=0, atol=3e-6)


def test_a_gaussian_is_scipys_and_sits_on_the_first_pixel() -> None:
    x = image((24, 30))
    expected = scipy.ndimage.gaussian_filter(x.numpy(), 1.3, mode="reflect", truncate=4)[::3, ::3]
    np.testing.assert_allclose(Downsample(3, 1.3).forward(x).numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sigma", [np.float32(0.8), np.float64(0.8), 1, np.int64(1)])
def test_a_gaussian_may_be_given_by_any_real_number(sigma: float) -> None:
    expected = Downsample(2, float(sigma)).kernel
    torch.testing.assert_close(Downsample(2, sigma).kernel, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("antialias", ["bicubic", "box", 0.9])
def test_filters_sum_to_one_and_are_symmetric(factor: int, antialias: str | float) -> None:
    kernel = Downsample(factor, antialias).kernel
    assert float(kernel.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(kernel, kernel.flip(0, 1), rtol=0, atol=1e-15)
    torch.testing.assert_close(kernel, kernel.T, rtol=0, atol=1e-15)


def test_factor_one_is_the_filter_alone() -> None:
    x = image((7, 9))
    torch.testing.assert_close(Downsample(1).forward(x), x, rtol=0, atol=1e-12)


def test_mask_keeps_what_is_known() -> None:
    missing = some_missing(6, 7)
    x = image((6, 7))
    for given_mask in (missing, torch.from_numpy(missing), missing.astype(np.uint8) * 255):
        y = Mask(given_mask).forward(x).numpy()
        assert (y[missing] == 0).all()
        assert (y[~missing] == x.numpy()[~missing]).all()


def test_what_is_missing_may_be_nan() -> None:
    missing = some_missing(6, 7)
    x = image((6, 7))
    x[torch.from_numpy(missing)] = float("nan")
    operator = Mask(missing)
    assert bool(torch.isfinite(operator.forward(x)).all())
    assert bool(torch.isfinite(operator.guess(x)).all())


def test_compose_applies_the_inner_one_first() -> None:
    blur, mask = Blur(random_psf(3, 4)), Mask(some_missing(6, 8))
    x = image((8, 11))
    assert torch.equal(Compose(mask, blur).forward(x), mask.forward(blur.forward(x)))


@pytest.mark.parametrize("kind", ["sparse", "array", "operator"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_is_its_matrix(kind: str, dtype: torch.dtype) -> None:
    matrix = sparse(20, 42)
    given_as = {"sparse": matrix, "array": matrix.toarray(), "operator": scipy.sparse.linalg.aslinearoperator(matrix)}
    operator = Linear(given_as[kind], (6, 7), (4, 5), reach=3)
    x = image((6, 7), dtype)
    found = operator.forward(x)
    assert found.dtype == dtype
    expected = matrix.toarray() @ x.double().numpy().ravel()
    np.testing.assert_allclose(found.double().numpy().ravel(), expected, rtol=0, atol=TOLERANCE[dtype])
    assert operator.reach == 3


# Where things lie


@settings(max_examples=40)
@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from(BORDERS), st.integers(7, 12), st.integers(7, 12))
def test_a_blurred_point_stays_where_it_was(tall: int, wide: int, border: str, height: int, width: int) -> None:
    """A PSF that is one at its centre moves nothing, so y is the part of x that `crop` shows."""
    psf = np.zeros((tall, wide))
    psf[(tall - 1) // 2, (wide - 1) // 2] = 1
    operator = Blur(psf, border)
    x = image((height, width))
    y_shape = operator.y_shape((height, width))
    for composed in (operator, Compose(Mask(some_missing(*y_shape)), operator)):
        seen = composed.crop(x, y_shape)
        torch.testing.assert_close(operator.forward(x), seen, rtol=0, atol=1e-12)
        guess = composed.guess(operator.forward(x))
        known = ~some_missing(*y_shape) if composed is not operator else np.ones(y_shape, bool)
        torch.testing.assert_close(composed.crop(guess, y_shape)[known], seen[known], rtol=0, atol=1e-12)


@pytest.mark.parametrize("psf_size", [(5, 7), (3, 1), (9, 9)])
def test_the_centre_of_mass_of_a_blurred_point_is_the_point(psf_size: tuple[int, int]) -> None:
    tall, wide = psf_size
    psf = np.outer(np.hanning(tall + 2)[1:-1], np.hanning(wide + 2)[1:-1])
    for border in BORDERS:
        operator = Blur(psf / psf.sum(), border)
        x = torch.zeros(40, 44, dtype=torch.float64)
        x[19, 23] = 1
        y = operator.forward(x)
        place = scipy.ndimage.center_of_mass(y.numpy())
        where = operator.crop(torch.arange(40 * 44).reshape(40, 44), (y.shape[0], y.shape[1]))
        first = int(where[0, 0])
        assert place[0] + first // 44 == pytest.approx(19, abs=1e-9)
        assert place[1] + first % 44 == pytest.approx(23, abs=1e-9)


def ramp(shape: tuple[int, int]) -> Tensor:
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    return torch.from_numpy(0.3 + 0.02 * rows - 0.01 * cols)


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("antialias", ["bicubic", "box", 0.8, "kernel"])
@pytest.mark.parametrize("phase", [None, 0, 1])
def test_downsampling_guesses_a_ramp(factor: int, antialias: str | float, phase: int | None) -> None:
    even = np.full((4, 4), 1 / 16)
    operator = Downsample(factor, even if antialias == "kernel" else antialias, phase=phase)
    x = ramp((16 * factor, 14 * factor))
    guess = operator.guess(operator.forward(x))
    inside = (slice(5 * factor, -5 * factor), slice(5 * factor, -5 * factor))
    torch.testing.assert_close(guess[inside], x[inside], rtol=0, atol=1e-10)


@pytest.mark.parametrize("border", BORDERS)
def test_blur_guesses_a_ramp(border: str) -> None:
    operator = Blur(np.full((5, 3), 1 / 15), border)
    x = ramp((20, 24))
    guess = operator.guess(operator.forward(x))
    assert guess.shape == x.shape
    torch.testing.assert_close(guess[4:-4, 4:-4], x[4:-4, 4:-4], rtol=0, atol=1e-12)
    assert float((guess - x).abs().max()) < 0.5


def test_composed_guess_of_a_ramp() -> None:
    operator = Compose(Downsample(2, "bicubic"), Blur(np.full((3, 3), 1 / 9)))
    x = ramp((42, 42))
    guess = operator.guess(operator.forward(x))
    torch.testing.assert_close(guess[12:-12, 12:-12], x[12:-12, 12:-12], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("shape", "hole"),
    [
        ((5, 5), (slice(2, 3), slice(2, 3))),
        ((3, 40), (slice(0, 2), slice(5, 30))),
        ((64, 64), (slice(10, 54), slice(10, 54))),
        ((40, 200), (slice(0, 40), slice(1, 200))),
        ((1, 9), (slice(0, 1), slice(2, 9))),
        ((33, 47), (slice(0, 33, 2), slice(0, 47))),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_mask_guesses_holes_of_any_size(shape: tuple[int, int], hole: tuple[slice, slice], dtype: torch.dtype) -> None:
    missing = np.zeros(shape, bool)
    missing[hole] = True
    operator = Mask(missing)
    x = 0.2 + 0.6 * image(shape, dtype).clamp(0, 1)
    guess = operator.guess(operator.forward(x))
    assert torch.equal(guess[~missing], x[~missing])
    low, high = float(x[~missing].min()), float(x[~missing].max())
    assert low - 1e-5 <= float(guess.min())
    assert float(guess.max()) <= high + 1e-5
    flat = torch.full(shape, 0.7, dtype=dtype)
    torch.testing.assert_close(operator.guess(operator.forward(flat)), flat, rtol=0, atol=1e-4)


def test_mask_guesses_a_ramp_from_near_neighbours() -> None:
    x = ramp((40, 40))
    missing = rng(3).random((40, 40)) < 0.3
    guess = Mask(missing).guess(Mask(missing).forward(x))
    assert float((guess - x).abs().max()) < 3 * 0.02


def test_any_linear_map_has_a_guess_that_explains_y() -> None:
    blur = Blur(np.full((3, 3), 1 / 9), "reflect")
    operator = Linear(dense(blur, (12, 12)), (12, 12), (12, 12))
    x = ramp((12, 12))
    y = operator.forward(x)
    guess = operator.guess(y)
    assert float((operator.forward(guess) - y).norm() / y.norm()) < 0.02
    assert float((guess - x).norm() / x.norm()) < 0.05
    assert float(operator.guess(torch.zeros(12, 12)).abs().max()) == 0


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 30), st.integers(1, 30), st.integers(1, 4))
def test_shapes_for_any_size(tall: int, wide: int, height: int, width: int, factor: int) -> None:
    blur = Blur(np.full((tall, wide), 1 / (tall * wide)))
    assert blur.y_shape(blur.x_shape((height, width))) == (height, width)
    down = Downsample(factor, "box")
    assert down.y_shape(down.x_shape((height, width))) == (height, width)
    both = Compose(down, blur)
    fine = both.x_shape((height, width))
    assert both.y_shape(fine) == (height, width)
    assert tuple(both.forward(torch.zeros(fine)).shape) == (height, width)


@pytest.mark.parametrize("inner_border", BORDERS)
def test_crop_of_a_composition_is_what_y_shows(inner_border: str) -> None:
    delta = np.zeros((5, 3))
    delta[2, 1] = 1
    decimate = np.ones((1, 1))
    places = torch.arange(22 * 20, dtype=torch.float64).reshape(22, 20)
    blur_first = Compose(Downsample(2, decimate), Blur(delta, inner_border))
    y = blur_first.forward(places)
    shown = blur_first.crop(places, (y.shape[0], y.shape[1]))
    torch.testing.assert_close(shown[::2, ::2], y, rtol=0, atol=1e-9)
    down_first = Compose(Blur(delta, inner_border), Downsample(2, decimate))
    y = down_first.forward(places)
    shown = down_first.crop(places, (y.shape[0], y.shape[1]))
    assert tuple(shown.shape) == (2 * y.shape[0], 2 * y.shape[1])
    torch.testing.assert_close(shown[::2, ::2], y, rtol=0, atol=1e-9)


# Training pictures of another size


@pytest.mark.parametrize("shape", [(31, 45), (30, 44), (64, 17)])
def test_training_shapes_fit(shape: tuple[int, int]) -> None:
    mask = Mask(some_missing(7, 9))
    down, blur = Downsample(2, "box"), Blur(random_psf(3, 4))
    for operator in (
        Identity(),
        blur,
        down,
        mask,
        Compose(mask, blur),
        Compose(down, blur),
        Compose(down, mask),
        Compose(mask, down),
        Compose(blur, down),
        Compose(Compose(down, mask), blur),
        Linear(sparse(20, 42), (6, 7), (4, 5)),
    ):
        own, crop = operator.for_training(shape)
        assert crop[0] <= shape[0]
        assert crop[1] <= shape[1]
        assert tuple(own.forward(torch.zeros(crop)).shape) == own.y_shape(crop)


def test_a_mask_is_repeated_over_a_training_picture() -> None:
    missing = some_missing(5, 6)
    own, shape = Mask(missing).for_training((13, 14))
    assert shape == (13, 14)
    found = own.forward(torch.ones(13, 14)).numpy() == 0
    for i in range(13):
        for j in range(14):
            assert found[i, j] == missing[i % 5, j % 6]


def test_a_small_training_picture_that_meets_holes_alone_is_refused_or_degraded() -> None:
    missing = np.ones((8, 8), bool)
    missing[7, 7] = False
    with pytest.raises(InputError):
        Mask(missing).for_training((4, 4))


# Bad input

BAD: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "psf sum": (lambda: Blur(np.ones((3, 3))), ("psf", "sum to one", "9", "psf / psf.sum()")),
    "psf zero": (lambda: Blur(np.zeros((3, 3))), ("psf", "sum to one", "0", "Divide")),
    "psf nan": (lambda: Blur(np.full((3, 3), np.nan)), ("psf", "finite", "NaN", "Replace")),
    "psf inf": (lambda: Blur(np.array([[np.inf]])), ("psf", "finite", "infinite", "Replace")),
    "psf 3-D": (lambda: Blur(np.ones((3, 3, 3)) / 27), ("psf", "two dimensions", "(3, 3, 3)", "plane")),
    "psf empty": (lambda: Blur(np.ones((0, 3))), ("psf", "non-empty", "(0, 3)", "Pass")),
    "psf words": (lambda: Blur("motion"), ("psf",)),  # type: ignore[arg-type]
    "border": (lambda: Blur([[1.0]], "zero"), ("border", "unknown, circular, reflect", "'zero'", "Pick")),  # type: ignore[arg-type]
    "factor 0": (lambda: Downsample(0), ("factor", "whole number", "0", "slir.upsample")),
    "factor 1.5": (lambda: Downsample(1.5), ("factor", "whole number", "1.5", "slir.upsample")),  # type: ignore[arg-type]
    "factor -2": (lambda: Downsample(-2), ("factor", "whole number", "-2", "slir.upsample")),
    "factor nan": (lambda: Downsample(float("nan")), ("factor", "whole number", "nan")),  # type: ignore[arg-type]
    "factor inf": (lambda: Downsample(float("inf")), ("factor", "whole number", "inf")),  # type: ignore[arg-type]
    "factor none": (lambda: Downsample(None), ("factor", "whole number", "None")),  # type: ignore[arg-type]
    "phase": (lambda: Downsample(2, phase=2), ("phase", "0 … 1", "2", "fine pixels")),
    "phase -1": (lambda: Downsample(2, phase=-1), ("phase", "0 … 1", "-1", "fine pixels")),
    "phase 0.5": (lambda: Downsample(2, phase=0.5), ("phase", "0 … 1", "0.5", "fine pixels")),  # type: ignore[arg-type]
    "antialias name": (lambda: Downsample(2, "lanczos"), ("antialias", "'bicubic' or 'box'", "'lanczos'", "Gaussian")),
    "antialias 0": (lambda: Downsample(2, 0.0), ("antialias", "positive", "0.0", "decimation")),
    "antialias nan": (lambda: Downsample(2, float("nan")), ("antialias", "positive", "nan", "σ")),
    "antialias sum": (lambda: Downsample(2, np.ones((2, 2))), ("antialias", "sum to one", "4", "Divide")),
    "down border": (lambda: Downsample(2, border="unknown"), ("border", "'reflect'", "'unknown'", "Use")),
    "down size": (lambda: Downsample(3, "box").y_shape((10, 12)), ("image", "multiples", "10×12", "9×12")),
    "mask 4-D": (lambda: Mask(np.zeros((1, 3, 3, 1), bool)), ("mask", "two dimensions", "(1, 3, 3, 1)", "plane")),
    "mask all": (lambda: Mask(np.ones((3, 3), bool)), ("mask", "at least one pixel", "true everywhere", "inverted")),
    "mask shape": (lambda: Mask(np.eye(3) > 0).y_shape((4, 5)), ("mask", "(4, 5)", "(3, 3)", "Crop")),
    "linear shape": (lambda: Linear(np.eye(4), (2, 3), (2, 2)), ("matrix", "(4, 6)", "(4, 4)", "x_shape")),
    "linear kind": (lambda: Linear("words", (2, 2), (2, 2)), ("matrix",)),
    "linear x": (lambda: Linear(np.eye(4), (2, 2), (2, 2)).forward(torch.zeros(2, 3)), ("image", "(2, 2)", "(2, 3)")),
    "linear y": (lambda: Linear(np.eye(4), (2, 2), (2, 2)).adjoint(torch.zeros(3, 2)), ("image", "(2, 2)", "(3, 2)")),
    "linear training": (lambda: Linear(np.eye(4), (2, 2), (2, 2)).for_training((1, 5)), ("images", "(2, 2)", "(1, 5)")),
}
for _border in BORDERS:
    BAD[f"psf larger than image, {_border}"] = (
        lambda border=_border: Blur(np.full((5, 5), 1 / 25), border).forward(torch.zeros(4, 9)),
        ("psf", "4×9", "5×5", "Crop"),
    )
for _border in ("circular", "reflect"):
    BAD[f"psf larger than y, {_border}"] = (
        lambda border=_border: Blur(np.full((5, 5), 1 / 25), border).adjoint(torch.zeros(4, 9)),
        ("psf", "4×9", "5×5", "Crop"),
    )


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_value_and_remedy(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert caught.value.argument in words[0]
    for word in words:
        assert word in message
    assert len(message.split(". ", 1)[1]) > 5  # a remedy stands after the fault


# Lines: separable kernels, a third of the time


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize("antialias", ["bicubic", "box", 0.7, 1.9, "two sizes"])
@pytest.mark.parametrize("border", ["reflect", "circular"])
def test_lines_do_what_transforms_do(factor: int, antialias: str | float, border: Border) -> None:
    kernel = np.outer([1, 3, 2, -1], [0.5, 1, 2]) / 17.5 if antialias == "two sizes" else antialias
    x = torch.from_numpy(rng(4).normal(size=(2, 24 * factor, 20 * factor)))
    for phase in range(factor):
        operator = Downsample(factor, kernel, phase=phase, border=border)
        assert operator.lines is not None
        y = operator.forward(x)
        found = operator.adjoint(y)
        operator.lines = None
        torch.testing.assert_close(y, operator.forward(x), rtol=0, atol=1e-12)
        torch.testing.assert_close(found, operator.adjoint(y), rtol=0, atol=1e-12)


def test_a_kernel_that_is_not_separable_has_no_lines() -> None:
    assert Downsample(2, random_psf(3, 4)).lines is None
    assert Downsample(2, np.ones((1, 1))).lines is not None


# Hints at an inverse


HINTED = [
    *(Blur(random_psf(4, 3), border) for border in BORDERS),  # type: ignore[arg-type]
    Mask(some_missing(12, 18)),
]


@pytest.mark.parametrize("operator", HINTED)
@pytest.mark.parametrize(("weight", "ridge", "smooth"), [(1.0, 0.1, 0.0), (40.0, 1.0, 0.0), (1.0, 0.0, 0.3)])
def test_inverse_hints_are_symmetric_and_positive(
    operator: Operator, weight: float, ridge: float, smooth: float
) -> None:
    x, v = (torch.from_numpy(rng(seed).normal(size=(13, 18))) for seed in (1, 2))
    x, v = x[:12], v[:12]
    hint = operator.preconditioner(x, weight, ridge, smooth)
    assert hint is not None
    torch.testing.assert_close((v * hint(x)).sum(), (hint(v) * x).sum())
    assert float((x * hint(x)).sum()) > 0


@pytest.mark.parametrize(
    "operator",
    [
        Blur(random_psf(4, 3), "circular"),
        Mask(some_missing(12, 18)),
    ],
)
def test_an_inverse_hint_is_exact_on_a_torus(operator: Operator) -> None:
    x = torch.from_numpy(rng(1).normal(size=(12, 18)))
    hint = operator.preconditioner(x, 3.0, 0.5)
    assert hint is not None
    torch.testing.assert_close(hint(3 * operator.normal(x) + 0.5 * x), x, rtol=1e-4, atol=1e-4)


def test_an_inverse_hint_saves_steps() -> None:
    operator = Blur(np.ones((5, 5)) / 25)
    y = torch.from_numpy(rng(3).normal(size=(40, 50)))
    rhs = operator.adjoint(y)

    def solve(hint: Callable[[Tensor], Tensor] | None) -> int:
        return int(cg(lambda x: operator.normal(x) + 1e-3 * x, rhs, tol=1e-4, precondition=hint).stats["steps"])

    assert solve(operator.preconditioner(rhs, 1.0, 1e-3)) < 0.5 * solve(None)


@pytest.mark.parametrize("operator", [Downsample(2), Linear(np.eye(12), (3, 4), (3, 4))])
def test_no_hint_where_none_is_known(operator: Operator) -> None:
    assert operator.preconditioner(torch.zeros(3, 4), 1.0, 1.0) is None


# Parts


def test_parts_see_what_the_whole_sees() -> None:
    """Inside, y of a part is a part of y. x of a part begins where the part does, beyond y by the blur's margin."""
    x = torch.from_numpy(rng(4).normal(size=(40, 48)))
    for operator in (
        Identity(),
        Blur(random_psf(5, 4)),
        Blur(random_psf(5, 4), "reflect"),
        Downsample(2, "bicubic"),
        Mask(some_missing(40, 48)),
        Compose(Mask(some_missing(36, 45)), Blur(random_psf(5, 4))),
        Compose(Blur(random_psf(5, 4)), Mask(some_missing(40, 48))),
        Compose(Blur(random_psf(5, 4)), Downsample(2, "bicubic")),
        Compose(Downsample(2, "bicubic"), Mask(some_missing(40, 48))),
    ):
        y, scale = operator.forward(x), operator.scale
        margins = (x.shape[0] - scale * y.shape[0], x.shape[1] - scale * y.shape[1])
        rows, cols = slice(6, 16), slice(4, 18)
        part = operator.part(rows, cols)
        assert part is not None
        tall, wide = scale * 10 + margins[0], scale * 14 + margins[1]
        seen = part.forward(x[scale * 6 : scale * 6 + tall, scale * 4 : scale * 4 + wide])
        deep = -(-operator.reach // scale)
        inner = (slice(deep, 10 - deep), slice(deep, 14 - deep))
        torch.testing.assert_close(seen[inner], y[rows, cols][inner])


def test_what_cannot_be_cut() -> None:
    rows = cols = slice(0, 4)
    missing = np.zeros((8, 8), bool)
    missing[:4, :4] = True
    hole = np.zeros((16, 16), bool)
    hole[:8, :8] = True
    for operator in (
        Blur(random_psf(3, 3), "circular"),
        Downsample(2, border="circular"),
        Mask(missing),
        Linear(np.eye(64), (8, 8), (8, 8)),
        Compose(Downsample(2), Mask(hole)),
    ):
        assert operator.part(rows, cols) is None
