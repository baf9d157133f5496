"""Patches: R_p and its adjoint against one patch at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from reference import patches as reference
from slir.errors import InputError
from slir.patches import PatchGrid


@st.composite
def grids(draw: DrawFn) -> PatchGrid:
    size = draw(st.integers(1, 6))
    height, width = draw(st.integers(size, 15)), draw(st.integers(size, 15))
    return PatchGrid((height, width), size, draw(st.integers(1, size)))


def image(shape: tuple[int, int], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape)).to(dtype)


@settings(max_examples=100)
@given(grids(), st.sampled_from([torch.float32, torch.float64]))
def test_patches_come_row_by_row(grid: PatchGrid, dtype: torch.dtype) -> None:
    x = image(grid.shape, dtype)
    found = grid.extract(x)
    corners = reference.corners(grid.shape, grid.size, grid.stride)
    assert found.shape == (len(grid), grid.size**2)
    assert found.dtype == dtype
    assert len(grid) == len(corners)
    for patch, (i, j) in zip(found, corners):
        assert torch.equal(patch.reshape(grid.size, grid.size), x[i : i + grid.size, j : j + grid.size])


@settings(max_examples=100)
@given(grids())
def test_assemble_is_the_adjoint(grid: PatchGrid) -> None:
    x = image(grid.shape)
    patches = torch.from_numpy(np.random.default_rng(1).normal(size=(len(grid), grid.size**2)))
    left, right = (grid.extract(x) * patches).sum(), (x * grid.assemble(patches)).sum()
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
    expected = np.zeros(grid.shape)
    for patch, (i, j) in zip(patches.numpy(), reference.corners(grid.shape, grid.size, grid.stride)):
        expected[i : i + grid.size, j : j + grid.size] += patch.reshape(grid.size, grid.size)
    np.testing.assert_allclose(grid.assemble(patches).numpy(), expected, rtol=0, atol=1e-12)


@settings(max_examples=100)
@given(grids())
def test_counts_and_every_pixel_is_covered(grid: PatchGrid) -> None:
    expected = np.zeros(grid.shape)
    for i, j in reference.corners(grid.shape, grid.size, grid.stride):
        expected[i : i + grid.size, j : j + grid.size] += 1
    counts = grid.counts(image(grid.shape))
    np.testing.assert_array_equal(counts.numpy(), expected)
    assert float(counts.min()) >= 1
    # Σ RᵀR is diagonal, so putting the patches of x back multiplies x by the counts.
    x = image(grid.shape)
    torch.testing.assert_close(grid.assemble(grid.extract(x)), counts * x, rtol=0, atol=1e-12)


@settings(max_examples=50)
@given(grids())
def test_one_number_a_patch_is_a_constant_patch(grid: PatchGrid) -> None:
    values = torch.from_numpy(np.random.default_rng(2).normal(size=(len(grid), 1)))
    whole = values.expand(-1, grid.size**2).contiguous()
    torch.testing.assert_close(grid.assemble(values), grid.assemble(whole), rtol=0, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_dense_matrices(stride: int) -> None:
    grid = PatchGrid((6, 7), 3, stride)
    matrix = np.concatenate([reference.selection((6, 7), 3, c) for c in reference.corners((6, 7), 3, stride)])
    x = image((6, 7))
    np.testing.assert_array_equal(grid.extract(x).numpy().ravel(), matrix @ x.numpy().ravel())
    patches = grid.extract(image((6, 7)) ** 2)
    np.testing.assert_allclose(grid.assemble(patches).numpy().ravel(), matrix.T @ patches.numpy().ravel(), atol=1e-12)
    np.testing.assert_allclose(np.diag(grid.counts(x).numpy().ravel()), matrix.T @ matrix, atol=0)


def test_the_image_is_left_as_it_was() -> None:
    grid, x = PatchGrid((6, 7), 3), image((6, 7))
    before = x.clone()
    grid.extract(x).mul_(2)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("shape", "size", "stride", "words"),
    [
        ((5, 9), 6, 1, ("patch size", "1 and the image's smaller side, 5", "6", "larger image")),
        ((5, 9), 0, 1, ("patch size", "1", "0", "smaller patches")),
        ((5, 9), 3, 4, ("stride", "1 and the patch size, 3", "4", "uncovered")),
        ((5, 9), 3, 0, ("stride", "1", "0", "uncovered")),
    ],
)
def test_bad_input(shape: tuple[int, int], size: int, stride: int, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        PatchGrid(shape, size, stride)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("patches", [1, 7, 40, 10**6])
@pytest.mark.parametrize(
    ("shape", "size", "stride"), [((17, 22), 5, 2), ((16, 21), 4, 4), ((9, 9), 9, 1), ((20, 8), 3, 1)]
)
def test_bands_are_parts_of_the_whole(shape: tuple[int, int], size: int, stride: int, patches: int) -> None:
    grid, x = PatchGrid(shape, size, stride), image(shape)
    bands = list(grid.bands(patches))
    assert [row for band in bands for row in range(len(grid.starts[0]))[band]] == list(range(len(grid.starts[0])))
    for window in (None, size + 4, max(1, size - 2)):
        if window is not None and window - size >= min(shape):
            continue
        parts = [grid.extract(x, window, rows=band) for band in bands]
        assert torch.equal(torch.cat(parts), grid.extract(x, window))
    total = torch.zeros(shape, dtype=x.dtype)
    for band in bands:
        assert grid.assemble(grid.extract(x, rows=band), rows=band, into=total) is total
    torch.testing.assert_close(total, grid.assemble(grid.extract(x)))


def test_patches_can_be_put_between_others() -> None:
    grid, x = PatchGrid((12, 13), 4, 3), image((12, 13))
    wide = torch.full((len(grid), 20), -1.0, dtype=x.dtype)
    grid.extract(x, out=wide[:, 2:18])
    assert torch.equal(wide[:, 2:18], grid.extract(x))
    assert bool((wide[:, :2] == -1).all())
    assert bool((wide[:, 18:] == -1).all())


@settings(max_examples=50)
@given(grids())
def test_folding_is_assembling(grid: PatchGrid) -> None:
    """What a GPU does, which any device can; also of a band of rows, and onto an image."""
    tall, wide = (len(starts) for starts in grid.starts)
    patches = torch.randn(tall, wide, grid.size**2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = grid.assemble(patches.flatten(0, 1))
    found = grid._fold(patches, torch.zeros(grid.shape, dtype=torch.float64), 0, tall)
    torch.testing.assert_close(found, expected)
    upper = grid._fold(patches[: tall // 2], torch.zeros_like(found), 0, tall // 2) if tall // 2 else 0
    lower = grid._fold(patches[tall // 2 :], torch.zeros_like(found), tall // 2, tall)
    torch.testing.assert_close(lower + upper, found)
