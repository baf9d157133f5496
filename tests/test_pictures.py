"""Pictures for figures: what their pixels are."""

from __future__ import annotations

import numpy as np
import pytest

from slir.errors import InputError
from slir.pictures import heatmap, side_by_side


def lightness(colours: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB colours: (..., 3) uint8 -> (...)."""
    value = colours / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)


def test_heatmap_grows_evenly_lighter() -> None:
    light = lightness(heatmap(np.linspace(0, 1, 64)[None])[0])
    assert (np.diff(light) > 0).all()
    assert np.corrcoef(light, np.arange(64))[0, 1] > 0.99
    assert light[0] < 10
    assert light[-1] > 90


def test_heatmap_ends_and_clips() -> None:
    given = heatmap(np.array([[-5.0, 0.0, 1.0, 7.0]]), low=0, high=1)
    assert given.shape == (1, 4, 3)
    assert given.dtype == np.uint8
    assert (given[0, 0] == given[0, 1]).all()
    assert (given[0, 2] == given[0, 3]).all()
    own = heatmap(np.array([[3.0, 9.0]]))
    assert (own[0] == given[0, 1:3]).all()
    assert (heatmap(np.full((2, 2), 4.0)) == own[0, 0]).all()


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((0, 2)), np.array([[0.0, np.nan]])])
def test_heatmap_refuses(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="array must"):
        heatmap(bad)
    with pytest.raises(InputError, match="high must"):
        heatmap(np.zeros((2, 2)), low=1, high=0)


def test_side_by_side_places_pixels() -> None:
    a, b = np.full((3, 4), 10, np.uint8), np.full((5, 2), 20, np.uint8)
    row = side_by_side([a, b], gap=1)
    assert row.shape == (5, 7)
    assert (row[:3, :4] == 10).all()
    assert (row[:, 5:] == 20).all()
    assert (row[3:, :4] == 255).all()
    assert (row[:, 4] == 255).all()


def test_side_by_side_mixes_colour_and_labels() -> None:
    grey, colour = np.full((40, 60), 90, np.uint8), np.full((40, 60, 3), (1, 2, 3), np.uint8)
    row = side_by_side([grey, colour], labels=["a", "a label that is wider than its picture"])
    top = row.shape[0] - 40
    assert top > 8
    assert row.shape[1] > 60 + 4 + 60
    assert (row[top:, :60] == 90).all()
    assert (row[top:, 64:124] == (1, 2, 3)).all()
    assert row[:top].min() < 128  # something is written
    assert row[:top, 60:64].min() == 255


@pytest.mark.parametrize(
    ("images", "options", "argument"),
    [
        ([], {}, "images"),
        ([np.zeros((2, 2))], {}, r"images\[0\]"),
        ([np.zeros((2, 2, 4), np.uint8)], {}, r"images\[0\]"),
        ([np.zeros((2, 2), np.uint8)], {"labels": ["a", "b"]}, "labels"),
        ([np.zeros((2, 2), np.uint8)], {"gap": -1}, "gap"),
    ],
)
def test_side_by_side_refuses(images: list, options: dict, argument: str) -> None:
    with pytest.raises(InputError, match=f"{argument} must"):
        side_by_side(images, **options)
