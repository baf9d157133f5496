"""Point spread functions against what they model: moments, areas, symmetry, SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, ndimage, signal, special

from slir import psf
from slir.errors import InputError
from slir.psf.parts import framed

offsets = st.tuples(st.floats(-1, 1), st.floats(-1, 1))


def moments(kernel):
    """(mean row, mean column, covariance) with the centre at zero."""
    rows, cols = (np.arange(side) - side // 2 for side in kernel.shape)
    mean = np.array([(kernel.sum(1) * rows).sum(), (kernel.sum(0) * cols).sum()])
    rr = (kernel.sum(1) * rows**2).sum()
    cc = (kernel.sum(0) * cols**2).sum()
    rc = (kernel * np.outer(rows, cols)).sum()
    return mean, np.array([[rr, rc], [rc, cc]])


def check_rules(kernel, symmetric=True):
    assert kernel.ndim == 2
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


def test_camera_shake_can_have_its_light_centred():
    for seed in range(20):
        kernel = psf.camera_shake(15, seed, centre="light")
        check_rules(kernel, symmetric=False)
        np.testing.assert_allclose(psf.centroid(kernel), 0, atol=0.02)
    assert max(abs(each) for seed in range(20) for each in psf.centroid(psf.camera_shake(15, seed))) > 0.5


# --- a lens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("aperture", "pixel"), [(1.4, 65.0), (0.75, 103.0), (0.3, 1000.0), (1.45, 500.0)])
def test_airy_of_an_aperture_is_the_integral_of_its_pattern_over_pixels(aperture, pixel):
    wave = 520.0

    def intensity(y, x):  # (2 J₁(v)/v)², v = 2π NA r / λ, r in nanometres
        v = 2 * np.pi * aperture / wave * pixel * np.hypot(y, x)
        return (2 * special.j1(v) / v) ** 2 if v else 1.0

    kernel = psf.airy_from_aperture(aperture, wave, pixel, 7)
    check_rules(kernel)
    found = kernel[3, 3:6]
    exact = [
        4 * integrate.dblquad(intensity, 0, 0.5, 0, 0.5, epsabs=1e-9)[0],
        *(2 * integrate.dblquad(intensity, at - 0.5, at + 0.5, 0, 0.5, epsabs=1e-9)[0] for at in (1, 2)),
    ]
    np.testing.assert_allclose(found / found[0], np.array(exact) / exact[0], atol=1e-7)


def test_airy_of_an_aperture_has_its_dark_ring_where_the_formula_says():
    np.testing.assert_allclose(
        psf.airy_from_aperture(0.61, 500, 62.5, 31), psf.airy(8 * special.jn_zeros(1, 1)[0] / (0.61 * 2 * np.pi), 31)
    )
    line = psf.airy_from_aperture(1.0, wavelength=600, pixel_size=0.61 * 60)[27, 27:]  # the ring at ten pixels
    assert line[10] == line[:16].min()


def test_airy_of_an_aperture_depends_on_lengths_by_their_ratio():
    np.testing.assert_allclose(psf.airy_from_aperture(1.2, 600, 80), psf.airy_from_aperture(1.2, 450, 60), atol=1e-15)


# --- between pixels ------------------------------------------------------------------------------------------------


@given(offsets, st.floats(0.01, 5))
def test_gaussians_are_placed_between_pixels(offset, sigma):
    for kernel in (psf.gaussian(sigma, offset=offset), psf.gaussian(sigma, sigma_across=1.0, angle=20, offset=offset)):
        check_rules(kernel, symmetric=False)
    if sigma >= 0.7:
        np.testing.assert_allclose(psf.centroid(psf.gaussian(sigma, offset=offset)), offset, atol=2e-3)
        elongated = psf.gaussian(sigma, sigma_across=1.0, angle=20, offset=offset)
        np.testing.assert_allclose(psf.centroid(elongated), offset, atol=2e-3)


@given(offsets, st.floats(0.1, 20), st.floats(-360, 360))
def test_motion_is_placed_between_pixels(offset, length, angle):
    kernel = psf.motion(length, angle, offset=offset)
    check_rules(kernel, symmetric=False)
    np.testing.assert_allclose(psf.centroid(kernel), offset, atol=1e-9)


@given(offsets, st.floats(0.001, 8))
def test_defocus_is_placed_between_pixels(offset, radius):
    kernel = psf.defocus(radius, offset=offset)
    check_rules(kernel, symmetric=False)
    # A pixel counts as if all its light fell on its middle, which moves the centroid of what is smaller than it.
    np.testing.assert_allclose(psf.centroid(kernel), offset, atol=0.05 if radius > 1 else 0.51)


@given(offsets, st.floats(0.01, 6))
def test_airy_is_placed_between_pixels(offset, radius):
    kernel = psf.airy(radius, offset=offset)
    check_rules(kernel, symmetric=False)
    if radius > 1.5:  # what is cut off at the sides moves the centroid a little
        np.testing.assert_allclose(psf.centroid(kernel), offset, atol=0.05)
        np.testing.assert_allclose(psf.centroid(psf.airy(radius, 201, offset=offset)), offset, atol=0.01)


def test_camera_shake_is_placed_between_pixels():
    kernel = psf.camera_shake(12, 4, centre="light", offset=(0.4, -0.7))
    np.testing.assert_allclose(psf.centroid(kernel), (0.4, -0.7), atol=0.02)


def test_an_offset_of_a_whole_pixel_is_a_shift():
    for make in (
        lambda **at: psf.gaussian(1.3, 15, **at),
        lambda **at: psf.motion(6.5, 25, **at),
        lambda **at: psf.defocus(2.7, **at),
        lambda **at: psf.camera_shake(7, 2, softness=0.4, **at),
    ):
        still, moved = framed(make(), 17), framed(make(offset=(1, -1)), 17)
        np.testing.assert_allclose(moved[1:, :-1], still[:-1, 1:], atol=2e-5)


# --- measures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [1.0, 1.6, 3.0])
def test_widths_and_centroids(sigma):
    down, across = psf.fwhm(psf.gaussian(sigma, sigma_across=2 * sigma))
    assert across == pytest.approx(2.3548 * sigma, rel=0.02)
    assert down == pytest.approx(2 * 2.3548 * sigma, rel=0.02)
    assert psf.fwhm(psf.motion(9, 0))[1] == pytest.approx(9, abs=0.1)
    assert psf.fwhm(psf.defocus(4.0)) == pytest.approx((8, 8), abs=0.2)
    assert psf.centroid(np.array([[0.0, 0.0, 1.0]])) == (0.0, 1.0)


# --- arrays and files ----------------------------------------------------------------------------------------------


def test_arrays_become_kernels():
    uneven = np.arange(12.0).reshape(4, 3)
    kernel = psf.from_array(uneven)
    check_rules(kernel, symmetric=False)
    assert kernel.shape == (5, 3)
    x = np.random.default_rng(0).random((20, 20))  # the centre is where a convolution takes it to be
    np.testing.assert_allclose(
        ndimage.convolve(x, kernel)[5:-5, 5:-5],
        signal.convolve(x, uneven / uneven.sum(), mode="same")[5:-5, 5:-5],
    )
    exact = psf.motion(9, 30)
    np.testing.assert_allclose(psf.from_array(7 * exact), exact, atol=1e-16)
    np.testing.assert_allclose(psf.from_array(7 * exact, centred=True), exact, atol=1e-12)


@pytest.mark.parametrize("away", [(0.5, -0.25), (-0.9, 0.1)])
def test_arrays_are_centred_if_asked(away):
    kernel = np.pad(psf.gaussian(1.5, offset=away), ((0, 6), (3, 0)))
    assert np.abs(psf.centroid(kernel)).min() > 0.5
    centred = psf.from_array(kernel, centred=True)
    check_rules(centred, symmetric=False)
    np.testing.assert_allclose(framed(centred, 13), psf.gaussian(1.5, 13), atol=1e-4)


def test_files_become_kernels(tmp_path):
    np.save(tmp_path / "kernel.npy", 3 * psf.defocus(2.5))
    np.testing.assert_allclose(psf.from_file(tmp_path / "kernel.npy"), psf.defocus(2.5), atol=1e-16)


# --- images of a bead or a star ------------------------------------------------------------------------------------


def bead(kernel=None, at=(0.0, 0.0), *, shape=(48, 56), where=(22, 30), peak=1000.0, level=100.0, noise=0.0, seed=0):
    """A point of light through a Gaussian, or another `kernel`, `at` pixels from the pixel `where`."""
    kernel = psf.gaussian(1.8, 25, offset=at) if kernel is None else kernel
    point = np.zeros(shape)
    point[where] = peak / kernel.max()
    image = level + signal.convolve(point, kernel, mode="same", method="direct")
    return image + np.random.default_rng(seed).normal(0, noise, shape) if noise else image


@given(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_a_clean_bead_gives_its_psf(down, right):
    kernel = psf.from_image(bead(at=(down, right)))
    check_rules(kernel, symmetric=False)
    np.testing.assert_allclose(psf.centroid(kernel), 0, atol=1e-5)
    np.testing.assert_allclose(framed(kernel, 25), psf.gaussian(1.8, 25), atol=3e-4 * psf.gaussian(1.8).max())


@pytest.mark.parametrize(("noise", "off"), [(50, 0.25), (20, 0.1), (5, 0.04)])
@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_bead_gives_about_its_psf(noise, off, seed):
    at = np.random.default_rng(seed).uniform(-0.5, 0.5, 2)
    kernel = psf.from_image(bead(at=tuple(at), noise=noise, seed=seed))
    check_rules(kernel, symmetric=False)
    np.testing.assert_allclose(psf.centroid(kernel), 0, atol=1e-5)
    exact = psf.gaussian(1.8, 31)
    assert np.linalg.norm(framed(kernel, 31) - exact) < off * np.linalg.norm(exact)
    assert psf.fwhm(kernel) == pytest.approx(psf.fwhm(exact), rel=off)


def test_noise_adds_hardly_any_light():
    rows, columns = np.indices((25, 25)) - 12
    outside = np.hypot(rows, columns) > 2.5 * 1.8
    images = [bead(noise=20, seed=seed) for seed in range(10)]
    exact = psf.gaussian(1.8, 25)[outside].sum()
    found = np.mean([psf.from_image(image, size=25)[outside].sum() for image in images])
    clipped = [np.clip(image - 100, 0, None)[10:35, 18:43] for image in images]
    assert np.mean([kernel[outside].sum() / kernel.sum() for kernel in clipped]) > exact + 0.15
    assert found == pytest.approx(exact, abs=0.03)


def test_a_star_counted_in_photons():
    rng = np.random.default_rng(5)
    star = rng.poisson(bead(psf.airy(3.0, 21, offset=(0.3, -0.4)), peak=20_000, level=200)).astype(np.uint16)
    kernel = psf.from_image(star)
    exact = psf.airy(3.0, 21)
    inside = framed(kernel, 21)
    assert np.linalg.norm(inside - exact) < 0.06 * np.linalg.norm(exact)
    assert psf.fwhm(kernel) == pytest.approx(psf.fwhm(exact), rel=0.03)


def test_a_path_is_kept_whole():
    path = psf.camera_shake(15, 3, softness=0.7, centre="light")
    kernel = psf.from_image(bead(path, noise=5, shape=(70, 70), where=(34, 36)))
    assert np.linalg.norm(framed(kernel, 41) - framed(path, 41)) < 0.08 * np.linalg.norm(path)


def test_the_background_may_be_given_and_the_size():
    clean = bead(level=0)
    np.testing.assert_allclose(psf.from_image(clean, background=0.0), psf.from_image(clean + 37), atol=1e-6)
    assert psf.from_image(clean, size=31).shape == (31, 31)
    assert psf.from_image(clean, size=9).sum() == pytest.approx(1)


def test_faint_neighbours_are_left_out():
    crowded = bead(noise=2) + bead(where=(15, 42), level=0, peak=100)
    np.testing.assert_allclose(psf.from_image(crowded), psf.from_image(bead(noise=2)), atol=2e-3)


def test_a_hot_pixel_does_not_win():
    image = bead(noise=2)
    image[6, 8] += 3000
    np.testing.assert_allclose(framed(psf.from_image(image), 25), psf.gaussian(1.8, 25), atol=2e-3)


def saturated(white, dtype=np.float64, **bead_options):
    return np.minimum(bead(noise=5, **bead_options), white).astype(dtype)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((20, 20)), "no brighter than its frame"),
        (np.full((20, 20), 0.1), "no brighter than its frame"),
        (np.random.default_rng(0).normal(100, 5, (40, 40)), "20 times above the noise"),
        (bead(noise=300), "20 times above the noise"),
        (bead() + bead(where=(14, 44), level=0, peak=600), "one bead or star, but it is showing 2"),
        (bead(noise=9) + bead(where=(22, 44), level=0) + bead(where=(34, 14), level=0), "showing 3"),
        (bead(where=(12, 12), shape=(30, 30))[8:], "dark along its edges"),
        (bead()[:8], "at least 9 pixels"),
        (bead()[..., None], "a grey image"),
        (np.where(bead() > 1000, np.nan, bead()), "finite"),
        (saturated(255, np.uint8, peak=400, level=20), "clipped at 255"),
        (saturated(4095, np.uint16, peak=6000), "clipped at 4095"),
        (saturated(900), "clipped at 900"),
        (bead(np.ones((1, 1)), noise=1), "single bright pixels do not count"),
    ],
)
def test_images_that_show_no_psf(image, words):
    with pytest.raises(InputError, match=f"^image must.*{words}"):
        psf.from_image(image)


def test_a_flat_disk_is_not_taken_for_saturation():
    for seed in range(10):
        image = bead(psf.defocus(5.0), peak=150, noise=3, seed=seed).round().astype(np.uint16)
        assert np.linalg.norm(framed(psf.from_image(image), 21) - framed(psf.defocus(5.0), 21)) < 0.02


def test_saturation_may_be_told():
    with pytest.raises(InputError, match="not be saturated"):
        psf.from_image(bead(), saturation=1050)
    psf.from_image(bead(), saturation=1200)


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
        (lambda: psf.airy_from_aperture(0, 520, 65), "numerical_aperture"),
        (lambda: psf.airy_from_aperture(2, 520, 65), "numerical_aperture"),
        (lambda: psf.airy_from_aperture(1.4, 0.52, 65), "wavelength"),
        (lambda: psf.airy_from_aperture(1.4, 520, 0.065), "pixel_size"),
        (lambda: psf.gaussian(1, offset=(2, 0)), "offset"),
        (lambda: psf.gaussian(1e-200), "sigma"),
        (lambda: psf.gaussian(1, sigma_across=1e-310), "sigma_across"),
        (lambda: psf.airy(5e-324), "radius"),
        (lambda: psf.motion(5, 0, offset=(0, float("nan"))), "offset"),
        (lambda: psf.defocus(5, offset=0.5), "offset"),
        (lambda: psf.camera_shake(5, centre="middle"), "centre"),
        (lambda: psf.from_array(-np.eye(3)), "kernel"),
        (lambda: psf.from_array(np.zeros((3, 3))), "kernel"),
        (lambda: psf.from_array(np.ones(3)), "kernel"),
        (lambda: psf.from_image(bead(), background="dark"), "background"),
        (lambda: psf.from_image(bead(), background=float("nan")), "background"),
        (lambda: psf.from_image(bead(), size=12), "size"),
        (lambda: psf.from_image(bead(), size=3), "size"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(InputError, match=f"^{named} must"):
        make()
