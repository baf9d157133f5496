"""Families of degradations: what they draw, how often, and that the same state draws the same again."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import sparse

from slir import psf
from slir.errors import InputError
from slir.kernel.degradations import AnyBlur, AnyDownsampling, AnyMask, Family, Fixed, Noise, family_from
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, adjoint_error

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPES = [(64, 64), (96, 128), (224, 224)]
FAMILIES = [
    Noise(0.01, 0.2),
    AnyBlur(),
    AnyBlur(sizes=(5, 21), low=0.01, high=0.02),
    AnyDownsampling(2),
    AnyDownsampling(4, 0.01, 0.03, share_clean=0.25),
    AnyMask(),
    AnyMask(0.01, 0.02, share_clean=0.0),
]
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)


def draws(family, shape, count=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [family.draw(generator, shape) for _ in range(count)]


def array(operator):
    """What makes one operator differ from another of its kind."""
    for name in ("psf", "kernel", "missing"):
        if getattr(operator, name, None) is not None:
            return getattr(operator, name)
    return torch.zeros(0)


def check_spread(sigmas, low, high):
    """Within the range, and each quarter of it, in logarithms, about as often as the others."""
    assert min(sigmas) >= low
    assert max(sigmas) <= high
    edges = np.geomspace(low, high * (1 + 1e-12), 5)
    counts, _ = np.histogram(sigmas, edges)
    expected = len(sigmas) / 4
    assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)


@by_name
@pytest.mark.parametrize("shape", SHAPES)
def test_a_draw_fits_pictures_of_its_shape(family, shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    for operator, sigma in draws(family, shape, 25):
        assert isinstance(sigma, float)
        own, wanted = operator.for_training(shape)
        assert wanted == shape
        y = own.forward(x)
        assert tuple(y.shape) == operator.y_shape(shape)
        assert operator.x_shape(operator.y_shape(shape)) == shape
        assert torch.isfinite(operator.guess(y)).all()


@by_name
def test_the_adjoint_is_the_adjoint(family):
    assert max(adjoint_error(operator, (64, 64)) for operator, _ in draws(family, (64, 64), 12)) < 1e-12


@by_name
def test_the_same_state_gives_the_same_draw_bit_for_bit(family):
    np.random.seed(0)  # noqa: NPY002  # neither NumPy's global state
    torch.manual_seed(0)  # nor torch's matters
    one = draws(family, (96, 128), 40, seed=5)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    two = draws(family, (96, 128), 40, seed=5)
    for (first, sigma), (second, other) in zip(one, two):
        assert sigma == other
        assert torch.equal(array(first), array(second))
        assert first.describe() == second.describe()
    other_seed = draws(family, (96, 128), 40, seed=6)
    assert [sigma for _, sigma in one] != [sigma for _, sigma in other_seed]


@by_name
def test_a_draw_takes_as_much_of_the_generator_whatever_it_draws(family):
    """So that a stream of crops and draws stays in step when a family's settings change."""
    one, two = (torch.Generator().manual_seed(3) for _ in range(2))
    family.draw(one, (64, 64))
    Noise(0.1, 0.2).draw(two, (224, 224))
    assert torch.equal(one.get_state(), two.get_state())


@by_name
def test_settings_are_json_and_rebuild_the_family(family):
    settings = json.loads(json.dumps(family.describe()))
    assert settings == family.describe()
    assert settings["kind"] == family.kind
    again = family_from(settings)
    assert again == family
    for (first, sigma), (second, other) in zip(draws(family, (64, 64), 5), draws(again, (64, 64), 5)):
        assert sigma == other
        assert torch.equal(array(first), array(second))


def test_kinds_are_tasks():
    kinds = [family.kind for family in (Noise(0.1, 0.2), AnyBlur(), AnyDownsampling(3), AnyMask())]
    assert kinds == ["denoise", "deblur", "upsample", "inpaint"]


def test_noise_levels_are_spread_over_the_decades():
    found = draws(Noise(0.001, 1.0), (64, 64), 1000)
    assert all(isinstance(operator, Identity) for operator, _ in found)
    check_spread([sigma for _, sigma in found], 0.001, 1.0)


def test_one_noise_level_is_that_level_exactly():
    assert {sigma for _, sigma in draws(Noise(0.1, 0.1), (64, 64), 20)} == {0.1}


@pytest.mark.parametrize("shape", [*SHAPES, (9, 40), (16, 16)])
def test_psfs_sum_to_one_and_keep_to_their_sizes(shape):
    found = draws(AnyBlur(), shape, 300)
    for operator, _ in found:
        kernel = operator.psf
        assert operator.border == "unknown"
        assert float(kernel.sum()) == pytest.approx(1, abs=1e-9)
        assert float(kernel.min()) >= 0
        assert all(side % 2 == 1 for side in kernel.shape)
        assert 3 <= max(kernel.shape) <= min(65, min(shape) // 3)
    check_spread([sigma for _, sigma in found], 0.002, 0.1)


def test_psfs_are_of_many_sizes():
    sides = np.array([max(operator.psf.shape) for operator, _ in draws(AnyBlur(), (224, 224), 1000)])
    assert 9 <= np.median(sides) <= 19
    assert (sides <= 7).mean() > 0.05
    assert 0.01 < (sides > 37).mean() < 0.1
    assert sides.max() > 55


@pytest.mark.parametrize("sizes", [(3, 3), (13, 13), (41, 65), (65, 65)])
def test_narrow_ranges_of_psf_sizes_are_met(sizes):
    for operator, _ in draws(AnyBlur(sizes=sizes), (224, 224), 20):
        assert sizes[0] <= max(operator.psf.shape) <= sizes[1]


def test_more_than_half_of_the_blurs_are_camera_shake():
    """The others are symmetric about their centre."""
    kernels = [operator.psf for operator, _ in draws(AnyBlur(), (224, 224), 600)]
    lopsided = [bool((kernel - kernel.flip(0, 1)).abs().max() > 1e-9) for kernel in kernels]
    assert 0.47 < np.mean(lopsided) < 0.63


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_downsampling_mixes_its_filters(factor):
    shape = (24 * factor, 32 * factor)
    found = draws(AnyDownsampling(factor), shape, 400)
    named = {name: Downsample(factor, name).kernel for name in ("bicubic", "box")}
    counts = dict.fromkeys(named, 0)
    for operator, _ in found:
        assert operator.factor == factor
        assert operator.y_shape(shape) == (24, 32)
        assert operator.convolution.border == "reflect"
        assert float(operator.kernel.sum()) == pytest.approx(1, abs=1e-9)
        for name, kernel in named.items():
            counts[name] += operator.kernel.shape == kernel.shape and torch.equal(operator.kernel, kernel)
    assert 0.2 < counts["bicubic"] / 400 < 0.4
    assert 0.12 < counts["box"] / 400 < 0.28


def test_gaussian_filters_are_as_wide_as_promised():
    widths = []
    for operator, _ in draws(AnyDownsampling(2), (64, 64), 300):
        if operator.phase == 0:  # a Gaussian: the named filters sit between fine pixels
            middle = operator.kernel.shape[0] // 2
            line = operator.kernel[middle]
            widths.append(float((line[middle] / line[middle + 1]).log().mul(2).rsqrt()))
    assert min(widths) == pytest.approx(0.6, abs=0.03)
    assert max(widths) == pytest.approx(1.2, abs=0.03)


@pytest.mark.parametrize(("family", "share"), [(AnyDownsampling(2), 0.5), (AnyMask(), 0.7)])
def test_some_draws_are_without_noise(family, share):
    sigmas = np.array([sigma for _, sigma in draws(family, (64, 64), 800)])
    assert (sigmas == 0).mean() == pytest.approx(share, abs=0.07)
    check_spread(sigmas[sigmas > 0], family.low, family.high)


@pytest.mark.parametrize("shape", [*SHAPES, (8, 8), (8, 50)])
def test_masks_always_leave_something_known_and_something_to_do(shape):
    for operator, _ in draws(AnyMask(), shape, 200):
        missing = float(operator.missing.double().mean())
        assert 0.01 <= missing <= 0.97


def test_masks_are_mostly_random_and_mostly_half_to_nine_tenths_missing():
    masks = [operator.missing for operator, _ in draws(AnyMask(), (96, 96), 600)]
    shares = np.array([float(missing.double().mean()) for missing in masks])
    # Pixels missing at random know nothing of their neighbours; text and scratches do.
    differ = np.array([float((missing[:, 1:] != missing[:, :-1]).double().mean()) for missing in masks])
    random = differ > 0.85 * 2 * shares * (1 - shares)
    assert random.mean() == pytest.approx(0.7, abs=0.08)
    assert shares[random].min() > 0.28
    assert shares[random].max() < 0.97
    assert 0.72 < ((shares[random] > 0.5) & (shares[random] < 0.9)).mean() < 0.9
    assert 0.01 <= shares[~random].min() < 0.1
    assert shares[~random].max() < 0.7


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (Identity(), "denoise"),
        (Blur(psf.gaussian(1.0)), "deblur"),
        (Downsample(2), "upsample"),
        (Mask(torch.eye(8).bool()), "inpaint"),
        (Compose(Downsample(2), Identity()), "other"),
        (Linear(sparse.eye_array(64), (8, 8), (8, 8)), "other"),
    ],
)
def test_a_fixed_family_draws_its_operator_for_any_shape(operator, kind):
    family = Fixed(operator, 0.05)
    assert family.kind == kind
    assert json.loads(json.dumps(family.describe())) == family.describe()
    assert family.describe()["operator"] == operator.describe()
    for shape in SHAPES:
        own, sigma = family.draw(torch.Generator(), shape)
        assert sigma == 0.05
        own, wanted = own.for_training(shape)
        assert own.y_shape(wanted)
        assert own.describe()["kind"] == operator.describe()["kind"]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Noise(0.0, 0.1), "low"),
        (lambda: Noise(-0.1, 0.1), "low"),
        (lambda: Noise(0.2, 0.1), "low"),
        (lambda: Noise(float("nan"), 0.1), "low"),
        (lambda: Noise(0.1, float("inf")), "high"),
        (lambda: Noise(0.1, 0), "high"),
        (lambda: AnyBlur(low=0), "low"),
        (lambda: AnyBlur(low=0.2, high=0.1), "low"),
        (lambda: AnyBlur(sizes=(1, 9)), "sizes"),
        (lambda: AnyBlur(sizes=(9, 3)), "sizes"),
        (lambda: AnyBlur(sizes=(3, 64)), "sizes"),
        (lambda: AnyBlur().draw(torch.Generator(), (8, 64)), "shape"),
        (lambda: AnyBlur(sizes=(31, 65)).draw(torch.Generator(), (64, 64)), "shape"),
        (lambda: AnyDownsampling(1), "factor"),
        (lambda: AnyDownsampling(2.5), "factor"),
        (lambda: AnyDownsampling(float("inf")), "factor"),
        (lambda: AnyDownsampling(2, low=0), "low"),
        (lambda: AnyDownsampling(2, share_clean=1.5), "share_clean"),
        (lambda: AnyMask(low=0.2), "low"),
        (lambda: AnyMask(share_clean=-0.1), "share_clean"),
        (lambda: AnyMask().draw(torch.Generator(), (7, 64)), "shape"),
        (lambda: Fixed(Identity(), -0.1), "sigma"),
        (lambda: Fixed(Identity(), float("nan")), "sigma"),
        (lambda: family_from({}), "settings"),
        (lambda: family_from({"family": "AnyCloud"}), "settings"),
        (lambda: family_from({"family": "AnyMask", "colour": 3}), "settings"),
        (lambda: family_from(Fixed(Identity(), 0.1).describe()), "settings"),
        (lambda: family_from({"family": "Noise", "low": 0.2, "high": 0.1}), "low"),
    ],
)
def test_bad_settings_are_named(make, named):
    with pytest.raises(InputError, match=f"^{named} must"):
        make()


def test_a_family_of_ones_own_needs_a_kind_and_a_draw():
    with pytest.raises(TypeError):
        Family()
