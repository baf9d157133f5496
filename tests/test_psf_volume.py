"""PSFs of volumes against closed forms, SciPy, and the builders of planes."""

import numpy as np
import pytest
from scipy import integrate, ndimage, special

from slir import psf
from slir.errors import InputError
from slir.psf.parts import framed


def check_rules(kernel):
    assert kernel.ndim == 3
    assert kernel.dtype == np.float64
    assert all(side % 2 == 1 for side in kernel.shape)
    assert kernel.min() >= 0
    assert kernel.sum() == pytest.approx(1, abs=1e-12)


def test_a_gaussian_has_a_width_for_each_axis():
    kernel = psf.gaussian_volume((300, 130, 90), voxel_size=(200, 65, 65))
    check_rules(kernel)
    point = np.zeros(kernel.shape)
    point[tuple(side // 2 for side in kernel.shape)] = 1
    expected = ndimage.gaussian_filter(point, (1.5, 2.0, 90 / 65), mode="constant", truncate=20)
    np.testing.assert_allclose(kernel, expected, atol=1e-5)
    plane = psf.gaussian_volume((1e-3, 2, 2), size=(1, 17, 17))[0]
    np.testing.assert_allclose(plane, psf.gaussian(2.0, 17), atol=1e-15)


def intensity(r, z, aperture, wavelength, index, sample, depth):
    """Gibson and Lanni's integral by SciPy's quadrature."""
    k = 2 * np.pi / wavelength

    def wave(rho):
        inside, outside = (np.emath.sqrt(own**2 - (aperture * rho) ** 2) for own in (sample, index))
        phase = np.exp(1j * k * (depth * inside + (z - depth * index / sample) * outside))
        return special.j0(k * aperture * r * rho) * phase * rho

    real, imaginary = (
        integrate.quad(own, 0, 1, limit=400)[0] for own in (lambda rho: wave(rho).real, lambda rho: wave(rho).imag)
    )
    return real**2 + imaginary**2


@pytest.mark.parametrize("depth", [0.0, 2000.0])
def test_widefield_is_the_diffraction_integral(depth):
    """Voxels much smaller than the pattern hold its value at their middle."""
    kernel = psf.widefield(
        1.4, 520, (150, 20, 20), refractive_index=1.515, sample_index=1.33, depth=depth, size=(7, 21, 21)
    )
    check_rules(kernel)
    places = [(3, 10, 10), (0, 10, 10), (5, 10, 14), (6, 4, 10), (2, 13, 15)]
    exact = []
    for plane, row, column in places:
        r = 20 * np.hypot(row - 10, column - 10)
        exact.append(intensity(r, 150 * (plane - 3), 1.4, 520, 1.515, 1.33, depth))
    found = [kernel[place] for place in places]
    np.testing.assert_allclose(np.array(found) / sum(found), np.array(exact) / sum(exact), atol=3e-3)


def test_widefield_in_focus_is_the_airy_pattern():
    kernel = psf.widefield(1.2, 600, (300, 80, 80), refractive_index=1.33, size=(1, 31, 31))[0]
    expected = psf.airy_from_aperture(1.2, 600, 80, 31)
    np.testing.assert_allclose(kernel, expected, atol=2e-3 * expected.max())


def test_all_planes_of_a_widefield_microscope_hold_the_same_light():
    kernel = psf.widefield(0.8, 520, (400, 100, 100), refractive_index=1.0, size=(7, 161, 161))
    light = kernel.sum((1, 2))
    np.testing.assert_allclose(light, light.mean(), rtol=0.03)
    np.testing.assert_allclose(kernel, kernel[::-1], atol=1e-12)


def test_another_index_makes_the_pattern_lopsided():
    aberrated = psf.widefield(1.4, 520, (200, 65, 65), sample_index=1.33, depth=5000, size=(21, 31, 31))
    assert np.abs(aberrated - aberrated[::-1]).max() > 0.1 * aberrated.max()


def test_by_default_the_cone_of_light_fits():
    kernel = psf.widefield(1.0, 520, (300, 100, 100), refractive_index=1.33)
    light = kernel.sum((1, 2))
    assert light[0] > 0.85 * light[len(light) // 2]


def bead(shift=(0.3, -0.2, 0.4), shape=(25, 33, 31), noise=4.0):
    at = np.array(shape) // 2 + np.array(shift)
    grid = np.indices(shape)
    widths = np.array([2.2, 1.5, 1.5])
    square = sum(((axis - middle) / width) ** 2 for axis, middle, width in zip(grid, at, widths))
    random = np.random.default_rng(0).normal(0, noise, shape)
    return 100 + 2000 * np.exp(-square / 2) + random


def test_the_stack_of_a_bead_gives_its_psf():
    kernel = psf.from_image(bead())
    check_rules(kernel)
    np.testing.assert_allclose(psf.centroid(kernel), 0, atol=1e-6)
    expected = framed(psf.gaussian_volume((2.2, 1.5, 1.5)), 21)
    np.testing.assert_allclose(framed(kernel, 21), expected, atol=0.02 * expected.max())
    np.testing.assert_allclose(psf.fwhm(kernel), 2.3548 * np.array([2.2, 1.5, 1.5]), rtol=0.03)


def test_a_bead_that_a_plane_cuts_and_several_beads_are_refused():
    with pytest.raises(InputError, match="dark along its edges"):
        psf.from_image(bead((-11, 0, 0)))
    with pytest.raises(InputError, match="one bead or star"):
        psf.from_image(bead((0, -8, 0)) + bead((0, 8, 0), noise=0))


def test_an_array_becomes_a_psf_of_odd_sides():
    kernel = psf.from_array(np.ones((4, 3, 2)))
    check_rules(kernel)
    assert kernel.shape == (5, 3, 3)
    assert kernel[0].max() == 0
    assert kernel[..., 0].max() == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: psf.gaussian_volume((1, 2)), "sigma must be one number or three"),
        (lambda: psf.gaussian_volume((1, 0, 2)), "sigma along y must be a positive"),
        (lambda: psf.gaussian_volume(2, voxel_size=(1, 1, -1)), "voxel_size along x"),
        (lambda: psf.gaussian_volume(2, size=(5, 4, 5)), "odd number along y"),
        (lambda: psf.gaussian_volume(500), "at most 67108864 voxels"),
        (lambda: psf.widefield(1.4, 520, (0.2, 0.065, 0.065)), "voxel_size along z must be from 1 nanometre"),
        (lambda: psf.widefield(1.4, 0.52, (200, 65, 65)), "wavelength must be from 1 nanometre"),
        (lambda: psf.widefield(1.4, 520, (200, 65, 65), refractive_index=1.33), "refractive_index must be larger"),
        (lambda: psf.widefield(1.4, 520, (200, 65, 65), sample_index=0.5), "sample_index must be from 1 to 4"),
        (lambda: psf.widefield(1.4, 520, (200, 65, 65), depth=-1), "depth must be from 0"),
        (lambda: psf.widefield(float("nan"), 520, (200, 65, 65)), "numerical_aperture"),
    ],
)
def test_wrong_arguments_are_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
