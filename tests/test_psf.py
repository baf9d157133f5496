"""Point spread functions against what they model: moments, areas, symmetry, SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, ndimage, special

from slir import psf
from slir.errors import InputError


def moments(kernel):
    """(mean row, mean column, covariance) with the centre at zero."""
    rows, cols = (np.arange(side) - side // 2 for side in kernel.shape)
    mean = np.array([(kernel.sum(1) * rows).sum(), (kernel.sum(0) * cols).sum()])
    rr = (kernel.sum(1) * rows**2).sum()
    cc = (kernel.sum(0) * cols**2).sum()
    rc = (kernel * np.outer(rows, cols)).sum()
    return mean, np.array([[rr, rc], [rc, cc]])


def check_rules(kernel, symmetric=True):
    assert kernel.dtype == np.float64
    assert all(side % 2 == 1 for side in kernel.shape)
    assert kernel.min() >= 0
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
    if symmetric:
        np.testing.assert_allclose(kernel, kernel[::-1, ::-1], atol=1e-15)


@given(st.floats(0.05, 12))
def test_gaussian_follows_the_rules(sigma):
    check_rules(psf.gaussian(sigma))


@given(st.floats(0.1, 40), st.floats(-720, 720))
def test_motion_follows_the_rules(length, angle):
    check_rules(psf.motion(length, angle))


@given(st.floats(0.05, 20))
def test_defocus_follows_the_rules(radius):
    check_rules(psf.defocus(radius))


@given(st.floats(0.05, 8), st.floats(0.05, 8), st.floats(-720, 720))
def test_an_elongated_gaussian_follows_the_rules(sigma, across, angle):
    check_rules(psf.gaussian(sigma, sigma_across=across, angle=angle))


@given(st.floats(0.01, 12))
def test_airy_follows_the_rules(radius):
    check_rules(psf.airy(radius))


@given(st.floats(0.1, 70), st.integers(0, 2**32), st.floats(0, 1))
def test_camera_shake_follows_the_rules(extent, seed, softness):
    kernel = psf.camera_shake(extent, seed, softness=softness)
    check_rules(kernel, symmetric=False)
    assert max(kernel.shape) <= 2 * np.ceil(extent / 2) + 3 + 2 * np.ceil(4 * softness)
    assert kernel[[0, -1]].max() > 0  # cropped
    assert kernel[:, [0, -1]].max() > 0


@pytest.mark.parametrize("sigma", [0.8, 1.6, 3.0])
def test_gaussian_is_scipys(sigma):
    point = np.zeros((41, 41))
    point[20, 20] = 1
    kernel = psf.gaussian(sigma)
    half = kernel.shape[0] // 2
    expected = ndimage.gaussian_filter(point, sigma, radius=half)[20 - half : 21 + half, 20 - half : 21 + half]
    np.testing.assert_allclose(kernel, expected, atol=1e-12)


def test_gaussian_of_a_given_size():
    assert psf.gaussian(1.6, 25).shape == (25, 25)


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, 135.0])
def test_an_elongated_gaussian_spreads_along_its_angle(angle):
    _, covariance = moments(psf.gaussian(3.0, sigma_across=1.5, angle=angle))
    turn = np.radians(angle)
    along = np.array([-np.sin(turn), np.cos(turn)])  # (row, column); rows count downwards
    across = np.array([np.cos(turn), np.sin(turn)])
    assert along @ covariance @ along == pytest.approx(9, rel=0.01)
    assert across @ covariance @ across == pytest.approx(2.25, rel=0.01)
    assert along @ covariance @ across == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("angle", [0.0, 30.0, 45.0])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.6, 2.25])
def test_a_gaussian_with_equal_sides_is_round(sigma, angle):
    np.testing.assert_allclose(psf.gaussian(sigma, sigma_across=sigma, angle=angle), psf.gaussian(sigma), atol=1e-15)


def test_an_elongated_gaussian_is_cropped_along_each_axis():
    assert psf.gaussian(3.0, sigma_across=1.0).shape == (9, 25)
    assert psf.gaussian(3.0, sigma_across=1.0, angle=90).shape == (25, 9)
    assert psf.gaussian(3.0, 11, sigma_across=1.0).shape == (11, 11)


@pytest.mark.parametrize("angle", [0.0, 30.0, 45.0, 77.0, 90.0, 135.0])
@pytest.mark.parametrize("length", [5.0, 9.3, 20.0])
def test_motion_spreads_along_its_angle_and_hardly_across(length, angle):
    _, covariance = moments(psf.motion(length, angle))
    turn = np.radians(angle)
    along = np.array([-np.sin(turn), np.cos(turn)])  # (row, column); rows count downwards
    across = np.array([np.cos(turn), np.sin(turn)])
    assert along @ covariance @ along == pytest.approx(length**2 / 12, abs=0.26)  # bilinear spreading adds up to 1/4
    assert across @ covariance @ across < 0.26


def test_motion_up_and_to_the_right_lies_in_those_quadrants():
    kernel = psf.motion(15, 45)
    assert kernel[0, -1] + kernel[1, -2] > 0
    assert kernel[:5, :5].sum() == 0


@pytest.mark.parametrize(("angle", "expected"), [(0, (1, 11)), (90, (11, 1)), (180, (1, 11))])
def test_motion_along_an_axis_is_one_pixel_thick(angle, expected):
    kernel = psf.motion(9, angle)
    assert kernel.shape == expected
    np.testing.assert_allclose(np.sort(kernel.ravel())[3:], 1 / 9, rtol=0.15)


def test_motion_between_whole_lengths_changes_the_kernel():
    assert not np.array_equal(psf.motion(9.0, 10), psf.motion(9.4, 10))


@pytest.mark.parametrize("radius", [0.3, 0.5, 1.0, 2.5, 3.7, 10.0])
def test_defocus_pixels_weigh_their_covered_area(radius):
    kernel = psf.defocus(radius)
    fine = (np.arange(kernel.shape[0] * 40) + 0.5) / 40 - kernel.shape[0] / 2
    inside = (fine[:, None] ** 2 + fine[None, :] ** 2 <= radius**2).astype(float)
    area = inside.reshape(kernel.shape[0], 40, kernel.shape[0], 40).mean(axis=(1, 3))
    np.testing.assert_allclose(kernel * np.pi * radius**2, area, atol=0.03)


def test_a_small_defocus_is_no_blur():
    np.testing.assert_array_equal(psf.defocus(0.4), [[1.0]])


@pytest.mark.parametrize("radius", [0.4, 1.0, 3.0, 8.0])
def test_airy_pixels_hold_the_mean_of_the_pattern(radius):
    def intensity(y, x):
        r = np.hypot(y, x) * special.jn_zeros(1, 1)[0] / radius
        return (2 * special.j1(r) / r) ** 2 if r else 1.0

    found = psf.airy(radius, 5)[2, 2:]
    exact = [integrate.dblquad(intensity, at - 0.5, at + 0.5, -0.5, 0.5, epsabs=1e-6)[0] for at in range(3)]
    np.testing.assert_allclose(found / found[0], np.array(exact) / exact[0], atol=2e-3)


def test_airy_is_dark_on_its_ring_and_holds_the_known_share_of_light_inside():
    kernel = psf.airy(8.0, 301)  # wide enough for nearly all the light
    line = kernel[150, 150:]
    assert line[8] < 0.002 * line[0]
    assert line[8] < line[6]
    assert line[8] < line[10]
    rows, cols = np.indices(kernel.shape) - 150
    assert kernel[np.hypot(rows, cols) <= 8].sum() == pytest.approx(0.838, abs=0.02)


def test_a_small_airy_pattern_is_no_blur():
    np.testing.assert_array_equal(psf.airy(0.1), [[1.0]])


@pytest.mark.parametrize("seed", range(20))
def test_camera_shake_is_one_thin_connected_path(seed):
    kernel = psf.camera_shake(25, seed)
    _, pieces = ndimage.label(kernel > 0, np.ones((3, 3)))
    assert pieces == 1
    assert 25 <= max(kernel.shape) <= 27
    assert (kernel > 0).mean() < 0.45  # no blob
    assert kernel.max() > 3 / (kernel > 0).sum()  # dwells in places


def test_camera_shake_comes_from_its_generator_alone():
    one, two = (psf.camera_shake(12.5, np.random.default_rng(7), softness=0.3) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, psf.camera_shake(12.5, 7, softness=0.3))
    rng = np.random.default_rng(7)
    first, second = psf.camera_shake(12.5, rng), psf.camera_shake(12.5, rng)
    assert first.shape != second.shape or not np.array_equal(first, second)


def test_camera_shake_of_a_given_size_is_the_same_in_a_frame():
    kernel, framed = psf.camera_shake(15, 3), psf.camera_shake(15, 3, 31)
    assert framed.shape == (31, 31)
    top, left = ((31 - side) // 2 for side in kernel.shape)
    np.testing.assert_array_equal(framed[top : 31 - top, left : 31 - left], kernel)


def test_camera_shake_has_no_preferred_direction():
    spread = sum(moments(psf.camera_shake(20, seed))[1] for seed in range(200))
    assert spread[0, 0] / spread[1, 1] == pytest.approx(1, abs=0.35)
    assert abs(spread[0, 1]) / spread[0, 0] < 0.25


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: psf.gaussian(0), "sigma"),
        (lambda: psf.gaussian(-1), "sigma"),
        (lambda: psf.gaussian(float("nan")), "sigma"),
        (lambda: psf.gaussian(1, 4), "size"),
        (lambda: psf.gaussian(1, 0), "size"),
        (lambda: psf.gaussian(1, sigma_across=0), "sigma_across"),
        (lambda: psf.gaussian(1, sigma_across=2, angle=float("nan")), "angle"),
        (lambda: psf.airy(0), "radius"),
        (lambda: psf.airy(2, 8), "size"),
        (lambda: psf.camera_shake(0), "extent"),
        (lambda: psf.camera_shake(float("inf")), "extent"),
        (lambda: psf.camera_shake(9, size=10), "size"),
        (lambda: psf.camera_shake(9, size=7), "size"),
        (lambda: psf.camera_shake(9, softness=-1), "softness"),
        (lambda: psf.motion(0, 0), "length"),
        (lambda: psf.motion(5, float("inf")), "angle"),
        (lambda: psf.defocus(-2), "radius"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(InputError, match=f"^{named} must"):
        make()
