"""Point spread functions against what they model: moments, areas, symmetry, SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

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


def check_rules(kernel):
    assert kernel.dtype == np.float64
    assert all(side % 2 == 1 for side in kernel.shape)
    assert kernel.min() >= 0
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
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


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: psf.gaussian(0), "sigma"),
        (lambda: psf.gaussian(-1), "sigma"),
        (lambda: psf.gaussian(float("nan")), "sigma"),
        (lambda: psf.gaussian(1, 4), "size"),
        (lambda: psf.gaussian(1, 0), "size"),
        (lambda: psf.motion(0, 0), "length"),
        (lambda: psf.motion(5, float("inf")), "angle"),
        (lambda: psf.defocus(-2), "radius"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(InputError, match=f"^{named} must"):
        make()
