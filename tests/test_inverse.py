"""slir.restore: any operator, array in, array out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from skimage import data

import slir
from slir.errors import InputError
from slir.estimator.loop import restore as loop
from slir.kernel.shipped import default_model
from slir.operators import (
    Blur,
    ColourFilterArray,
    Diagonal,
    Downsample,
    Identity,
    Mask,
    Operator,
    Stack,
    VaryingBlur,
    adjoint_error,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def grey(side: int = 64) -> np.ndarray:
    return data.camera()[100 : 100 + side, 180 : 180 + side] / 255.0


def colour(side: int = 64) -> np.ndarray:
    """(side, side, 3)"""
    return data.astronaut()[20 : 20 + side, 180 : 180 + side] / 255.0


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((found - truth) ** 2)))


def shake(angle: float) -> np.ndarray:
    """A straight shake of 5 pixels in a PSF of 7×7."""
    psf = slir.psf.motion(5, angle)
    margins = [((7 - side) // 2, (7 - side) // 2) for side in psf.shape]
    return np.pad(psf, margins)


def views(count: int) -> Stack:
    return Stack([Blur(shake(180 * number / count)) for number in range(count)])


@pytest.mark.parametrize(
    "operator", [Identity(), Blur(slir.psf.gaussian(1.0)), Downsample(2), Mask(noise((64, 64)) > 1)]
)
def test_the_tasks_are_shortcuts(operator: Operator) -> None:
    y = operator(grey())
    task: dict[type, Callable[..., Any]] = {
        Identity: lambda **more: slir.denoise(y, **more),
        Blur: lambda **more: slir.deblur(y, slir.psf.gaussian(1.0), **more),
        Downsample: lambda **more: slir.upsample(y, 2, **more),
        Mask: lambda **more: slir.inpaint(y, noise((64, 64)) > 1, **more),
    }
    expected = task[type(operator)](sigma=0.05, data_range=1.0)
    np.testing.assert_array_equal(slir.restore(y, operator, sigma=0.05, data_range=1.0), expected)


def test_demosaicking_sees_the_colours_together() -> None:
    x, operator = colour(), ColourFilterArray("RGGB")
    y = operator(np.moveaxis(x, -1, 0))
    found = slir.restore(y, operator, sigma=0, data_range=1.0)
    assert found.shape == x.shape
    alone = slir.restore(np.moveaxis(y[None] * np.ones((3, 1, 1)), 0, -1), Mask(~recorded(operator, 64)), sigma=0,
                         data_range=1.0, channel_axis=-1)  # fmt: skip
    assert psnr(found, x) > psnr(alone, x) + 1
    known = np.moveaxis(recorded(operator, 64), 0, -1)
    np.testing.assert_allclose(found[known], x[known], atol=1e-6)
    first = slir.restore(y, operator, sigma=0, data_range=1.0, channel_axis=0)
    np.testing.assert_array_equal(first, np.moveaxis(found, -1, 0))


def recorded(operator: ColourFilterArray, side: int) -> np.ndarray:
    return operator.recorded(torch.zeros(side, side)).numpy() > 0


def test_views_of_one_scene_are_better_than_one() -> None:
    x = grey(72)
    one, many = views(1), views(3)
    y = many(x) + 0.02 * noise((3, 66, 66))
    found = slir.restore(y, many, sigma=0.02, data_range=1.0)
    single = slir.restore(y[0], one.operators[0], sigma=0.02, data_range=1.0)
    assert found.shape == single.shape
    assert psnr(found, x[3:-3, 3:-3]) > psnr(single, x[3:-3, 3:-3]) + 1.5


def test_views_in_colour() -> None:
    x = colour(72)
    operator = views(2)
    y = np.moveaxis(operator(np.moveaxis(x, -1, 0)), 0, -1)  # (2, h, w, 3)
    found = slir.restore(y, operator, sigma=0.01, data_range=1.0, channel_axis=-1)
    assert found.shape == (66, 66, 3)
    assert psnr(found, x[3:-3, 3:-3]) > 30


def test_equal_views_are_their_mean() -> None:
    x, operator = grey(), Stack([Identity(), Identity()])
    y = x + 0.1 * noise((2, 64, 64))
    found = slir.restore(y, operator, sigma=0.1, data_range=1.0)
    mean = slir.denoise(y.mean(0), sigma=0.1 / 2**0.5, data_range=1.0)
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_a_map_of_one_value_is_a_number() -> None:
    for operator in (Identity(), Blur(slir.psf.gaussian(1.0))):
        y = operator(grey()) + 0.05
        number = slir.restore(y, operator, sigma=0.05, data_range=1.0)
        spread = slir.restore(y, operator, sigma=np.full(y.shape, 0.05), data_range=1.0)
        np.testing.assert_allclose(spread, number, atol=5e-4)


@pytest.mark.parametrize("operator", [Identity(), Blur(slir.psf.gaussian(1.0))])
def test_a_map_of_the_noise_is_better_than_its_mean(operator: Operator) -> None:
    x = grey(96)
    y = operator(x)
    sigma = np.linspace(0.005, 0.15, y.shape[1])[None] * np.ones((len(y), 1))
    y = y + sigma * noise(y.shape)
    inner = operator.crop(torch.from_numpy(x), (y.shape[0], y.shape[1])).numpy()
    mean = slir.restore(y, operator, sigma=float((sigma**2).mean() ** 0.5), data_range=1.0)
    found = slir.restore(y, operator, sigma=sigma, data_range=1.0)
    assert psnr(found, inner) > psnr(mean, inner) + 1
    assert psnr(found[:, : len(y) // 4], inner[:, : len(y) // 4]) > psnr(y[:, : len(y) // 4], inner[:, : len(y) // 4])


def test_a_map_for_each_channel_keeps_the_colours_together() -> None:
    x = colour()
    sigma = np.array([0.02, 0.04, 0.1])
    y = x + sigma * noise(x.shape)
    found = slir.restore(y, Identity(), sigma=sigma, data_range=1.0, channel_axis=-1)
    alone = np.stack([slir.denoise(y[..., c], sigma=float(sigma[c]), data_range=1.0) for c in range(3)], -1)
    assert psnr(found, x) > psnr(alone, x) + 1


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # the middle one is wrong elsewhere
def test_a_varying_blur() -> None:
    x = grey(96)
    psfs = np.stack([[shake(30 * i + 50 * j) for j in range(3)] for i in range(3)])
    side = 97 - psfs.shape[-1]
    operator = VaryingBlur(psfs, (side, side))
    y = operator(x) + 0.01 * noise((side, side))
    row = (96 - side) // 2
    inner = x[row : row + side, row : row + side]
    found = slir.restore(y, operator, sigma=0.01, data_range=1.0)
    plain = slir.deblur(y, psfs[1, 1], sigma=0.01, data_range=1.0)
    assert psnr(found, inner) > psnr(plain, inner) + 2


def test_dtype_range_and_kind_come_back() -> None:
    operator = ColourFilterArray()
    y = (65535 * operator(np.moveaxis(colour(), -1, 0))).astype(np.uint16)
    found = slir.restore(y, operator, sigma=300)
    assert found.dtype == np.uint16
    assert found.shape == (64, 64, 3)
    tensor = slir.restore(torch.from_numpy(y.astype(np.float32)), operator, sigma=300, data_range=65535)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor.numpy().clip(0, 65535), found, atol=0.6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_black_counts_for_operators_that_do_not_keep_it(scale: float) -> None:
    """A gain of 2 and a black of 100: x is what it would be without them."""
    operator = 2.0 * Blur(slir.psf.gaussian(1.0))
    x = grey()
    y = operator(scale * (x + 100.0))
    found = slir.restore(y, operator, sigma=0.02 * scale, data_range=(100 * scale, 101 * scale))
    plain = slir.restore(Blur(slir.psf.gaussian(1.0))(x), Blur(slir.psf.gaussian(1.0)), sigma=0.01, data_range=1.0)
    np.testing.assert_allclose(found / scale - 100, plain, atol=3e-3)


def test_what_is_not_shown_may_be_nan() -> None:
    missing = noise((3, 64, 64)) > 0.5
    x = np.moveaxis(colour(), -1, 0)
    y = np.where(missing, np.nan, x)
    found = slir.restore(np.moveaxis(y, 0, -1), Mask(missing), sigma=0, data_range=1.0, channel_axis=-1)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.moveaxis(found, -1, 0)[~missing], x[~missing], atol=1e-6)
    assert psnr(found, colour()) > 28


def test_what_was_measured_comes_back() -> None:
    operator = ColourFilterArray()
    y = operator(np.moveaxis(colour(), -1, 0)) + 0.02 * noise((64, 64))
    result = slir.restore(y, operator, sigma=0.02, data_range=1.0, return_info=True)
    assert result.stats["sigma"] == pytest.approx(0.02)
    assert 0.2 < result.stats["residual"] / 0.02 < 1.4
    assert result.error_map is not None
    assert result.error_map.shape == (64, 64, 3)
    assert "not calibrated for this operator" in result.calibrated
    quick = slir.restore(y, operator, sigma=0.02, data_range=1.0, return_info="stats")
    assert quick.error_map is None
    np.testing.assert_array_equal(quick.image, result.image)


def test_progress_is_told() -> None:
    told = []
    slir.restore(views(2)(grey()), views(2), sigma=0.01, data_range=1.0, progress=lambda *own: told.append(own))
    assert told[-1][0] == told[-1][1]


def test_tiles_agree_with_the_whole() -> None:
    from slir.estimator.tiling import restore_tiled

    pattern = ColourFilterArray("X-Trans")
    x = np.moveaxis(data.astronaut()[100:164, :400] / 255.0, -1, 0)
    y = torch.from_numpy(pattern(x)).float()
    whole = loop(y, pattern, default_model(pattern), sigma=0.02).x
    tiled = restore_tiled(y, pattern, default_model(pattern), sigma=0.02, tile=64).x
    assert tiled.shape == whole.shape
    assert float((tiled - whole).abs().max()) < 1e-2
    assert float((tiled - whole).square().mean().sqrt()) < 3e-4


BAD: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "no operator": (lambda: slir.restore(grey(), np.eye(3), sigma=1), ("operator", "slir.operators")),  # type: ignore[call-overload]
    "float without a range": (lambda: slir.restore(views(2)(grey()), views(2), sigma=0.1), ("data_range", "be given")),
    "axes": (lambda: slir.restore(grey(), views(2), sigma=0.1, data_range=1.0), ("image", "3 dimensions", "(64, 64)")),
    "views": (lambda: slir.restore(noise((3, 64, 64)), views(2), sigma=0.1, data_range=1.0), ("image", "(2,)")),
    "axis": (
        lambda: slir.restore(noise((2, 3, 64, 64)), views(2), sigma=0.1, data_range=1.0, channel_axis=7),
        ("channel_axis", "7"),
    ),
    "complex": (lambda: slir.restore(views(2)(grey()) * 1j, views(2), sigma=0.1), ("image", "complex128")),
    "nan": (lambda: slir.restore(np.nan * views(2)(grey()), views(2), sigma=0.1, data_range=1.0), ("image", "finite")),
    "sigma negative": (lambda: slir.restore(views(2)(grey()), views(2), sigma=-1, data_range=1.0), ("sigma", "-1")),
    "sigma nan": (lambda: slir.restore(grey(), 2.0 * Identity(), sigma=np.nan, data_range=1.0), ("sigma", "nan")),
    "sigma word": (lambda: slir.restore(grey(), 2.0 * Identity(), sigma="auto", data_range=1.0), ("sigma", "'auto'")),  # type: ignore[call-overload]
    "sigma shape": (lambda: slir.restore(grey(), Identity(), sigma=np.ones(5), data_range=1.0), ("sigma", "(64, 64)")),
    "sigma map": (lambda: slir.restore(grey(), Identity(), sigma=-np.ones((64, 64)), data_range=1.0), ("sigma", "neg")),
    "small": (lambda: slir.restore(grey(8), 2.0 * Identity(), sigma=0.1, data_range=1.0), ("image", "16", "8×8")),
    "size": (lambda: slir.restore(grey(), Diagonal(noise((5, 5))), sigma=0.1, data_range=1.0), ("(64, 64)", "(5, 5)")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_what_value_and_remedy(name: str) -> None:
    call, words = BAD[name]
    with pytest.raises(InputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


class Difference(Operator):
    """As in the documentation: x less its left neighbour, and half of x, around the border."""

    reach = 1

    def y_shape(self, x_shape: tuple[int, int]) -> tuple[int, int]:
        return x_shape

    def x_shape(self, y_shape: tuple[int, int]) -> tuple[int, int]:
        return y_shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.5 * x - x.roll(1, -1)

    def adjoint(self, y: torch.Tensor) -> torch.Tensor:
        return 1.5 * y - y.roll(-1, -1)


def test_an_operator_of_ones_own_restores_and_is_learnt_for() -> None:
    x, operator = grey(), Difference()
    assert adjoint_error(operator, (20, 30)) < 1e-12
    y = operator(x) + 0.02 * noise(x.shape)
    assert psnr(slir.restore(y, operator, sigma=0.02, data_range=1.0), x) > 26
    pictures = [data.camera()[:64, 64 * i : 64 * i + 64] for i in range(4)]
    model = slir.fit(pictures, operator=operator, sigma=0.02, cells=2, crops=4)
    assert psnr(slir.restore(y, operator, sigma=0.02, data_range=1.0, model=model), x) > 26
    with pytest.raises(InputError, match="act on one plane"):
        slir.fit(pictures, operator=ColourFilterArray(), sigma=0.02)
