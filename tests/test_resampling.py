"""Enlarging by any factor, or to a size: restored at the next whole factor, then reduced."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import slir
from slir import io
from slir.errors import InputError, SlirError
from slir.files import jobs, provenance, restore_file
from slir.files.jobs import Job
from slir.io import Meta, Picture, Resolution
from slir.kernel.shipped import demo_picture
from slir.preprocessing.resampling import Reduction, enlarged_size, factor_of
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
uncalibrated = pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")


def photo(side: int = 64) -> np.ndarray:
    """Grey, uint8."""
    return demo_picture()[:side, :side, 1]


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b)[4:-4, 4:-4] ** 2)))


# Factors and sizes


def test_a_size_is_a_factor() -> None:
    assert factor_of(None, (1080, 1920), (360, 640)) == 3
    assert isinstance(factor_of(None, (1080, 1920), (360, 640)), int)
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = (int(rng.integers(16, 900)), int(rng.integers(16, 900)))
        factor = float(rng.uniform(1, 4))
        found = factor_of(None, enlarged_size(shape, factor), shape)
        assert enlarged_size(shape, found) == enlarged_size(shape, factor)


@pytest.mark.parametrize(
    ("factor", "size", "words"),
    [
        (None, None, "factor must be given, or size in its place, but it is missing"),
        (2, (100, 100), "given together with size"),
        (0.9, None, "factor must be a number of at least 1"),
        (float("nan"), None, "factor must be a number of at least 1"),
        ("2", None, "factor must be a number of at least 1"),
        (None, (100, 160), "Pass height 100 and width 100, which fit inside"),
        (None, (25, 25), "slir only enlarges"),
        (None, 100, "size must be two whole numbers, height and width"),
        (None, (75.0, 75.0), "size must be two whole numbers"),
    ],
)
def test_what_is_no_factor_and_no_size(factor: Any, size: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        slir.upsample(photo(50), factor, size=size)


# The filter


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("ratio", [0.55, 2 / 3, 0.75, 0.95])
def test_reductions_keep_constants_and_place_ramps(ratio: float, centred: bool) -> None:
    reduction, size = Reduction(ratio, centred), (round(80 * ratio), round(60 * ratio))
    assert np.allclose(reduction.array(np.full((80, 60), 7.0), size), 7)
    rows, cols = np.mgrid[:80, :60].astype(float)
    found = reduction.array(3 * rows - cols, size)
    down, across = (reduction.places(range(side)) for side in size)
    wanted = 3 * down[:, None] - across
    np.testing.assert_allclose(found[6:-6, 6:-6], wanted[6:-6, 6:-6], atol=0.1)  # a stretched kernel is not exact
    assert down[0] == pytest.approx((1 / ratio - 1) / 2 if centred else 0)


def test_reductions_agree_with_pillow() -> None:
    """Where the new pixels fill the old image to its edge, and apart from the edges, of which Pillow makes less."""
    pixels = photo(96).astype(np.float32)
    wanted = np.asarray(Image.fromarray(pixels).resize((72, 72), Image.Resampling.BICUBIC))
    np.testing.assert_allclose(Reduction(0.75).array(pixels, (72, 72))[4:-4, 4:-4], wanted[4:-4, 4:-4], atol=0.02)


def test_missing_pixels_stay_where_they_are() -> None:
    pixels = np.ones((60, 60))
    pixels[20:40, 10:30] = np.nan
    found = Reduction(0.75).array(pixels, (45, 45))
    wanted = np.zeros((45, 45), bool)
    wanted[15:30, 8:22] = True  # 7.5 to 22.5
    assert (np.isnan(found) != wanted).sum() <= 2 * 15
    np.testing.assert_allclose(found[~np.isnan(found)], 1)


@pytest.mark.parametrize("tile", [(7, 200), (13, 31), (200, 50), (40, 200), (1, 200)])
@pytest.mark.parametrize("alpha", [False, True])
def test_windows_become_what_the_whole_becomes(
    tmp_path: Path, tile: tuple[int, int], alpha: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slir.io.reduced.SIDE", 40)
    monkeypatch.setattr("slir.io.reduced.ROWS", 17)
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 4096, (2, 118, 97, 4 if alpha else 3)).astype(np.uint16)
    reduction, size = Reduction(0.6), (71, 58)
    head = io.Head(size, np.dtype(np.uint16), True, alpha, "Z", (2,))
    with io.ReducedSink(io.create(tmp_path / "out.tif", head), reduction, (118, 97), limits=(0, 4095)) as sink:
        for plane in range(2):
            for top in range(0, 118, tile[0]):
                for left in range(0, 97, tile[1]):
                    own = (slice(top, min(118, top + tile[0])), slice(left, min(97, left + tile[1])))
                    part = fine[plane][own]
                    picture = Picture(part[..., :3], -1, part[..., 3] if alpha else None)
                    sink.write(picture, plane=plane, rows=own[0], cols=own[1])
    with io.open_source(tmp_path / "out.tif") as source:
        for plane in range(2):
            wanted = reduction.array(fine[plane], size, limits=(0, 4095))
            np.testing.assert_array_equal(source.read(plane).interleaved(), wanted)
    assert wanted.max() <= 4095


# Arrays


def test_a_factor_between_two_beats_interpolation() -> None:
    truth = photo(96)
    small = np.asarray(Image.fromarray(truth).resize((64, 64), Image.Resampling.BICUBIC))
    interpolated = np.asarray(Image.fromarray(small).resize((96, 96), Image.Resampling.BICUBIC))
    found = slir.upsample(small, 1.5)
    assert (found.shape, found.dtype) == ((96, 96), np.uint8)
    assert psnr(found, truth) > psnr(interpolated, truth) + 0.5
    np.testing.assert_array_equal(slir.upsample(small, size=(96, 96)), found)
    np.testing.assert_array_equal(slir.upsample(small, 2.0), slir.upsample(small, 2))


def test_arrays_of_all_kinds() -> None:
    colours = np.stack([photo(40), photo(40).T, photo(40)[::-1]])
    assert slir.upsample(colours, 1.5, channel_axis=0).shape == (3, 60, 60)
    tensor = torch.from_numpy(photo(33).astype(np.float32) / 255)
    found = slir.upsample(tensor, 1.5, data_range=1.0, antialias=0.7)
    assert isinstance(found, torch.Tensor)
    assert (found.shape, found.dtype) == ((50, 50), torch.float32)


def test_what_is_told_of_the_result() -> None:
    seen: list[np.ndarray] = []
    result = slir.upsample(photo(40), 1.5, return_info=True, observe=seen.append)
    assert {each.shape for each in seen} == {(60, 60)}
    assert result.error_map.shape == (60, 60)
    assert (result.error_map >= 0).all()
    large = slir.upsample(photo(40), 2, return_info=True)
    assert result.error_map.mean() == pytest.approx(large.error_map.mean(), rel=0.15)
    assert result.calibrated == "the result was reduced from one that is 2 times as large"
    with pytest.raises(SlirError, match="reduced from one that is 2 times as large"):
        result.interval(0.9)


def test_a_pixel_is_explained_where_it_was_restored() -> None:
    result, large = (slir.upsample(photo(40), factor, return_info=True) for factor in (1.5, 2))
    try:
        wanted = large.explain(40, 55, 4)
    except SlirError as error:  # a model may carry no examples
        with pytest.raises(SlirError, match=str(error)[:30]):
            result.explain(30, 41, 4)
        return
    assert result.explain(30, 41, 4).corner == wanted.corner


def test_what_needs_a_whole_factor() -> None:
    with pytest.raises(InputError, match="phase must be left out where the factor is not whole"):
        slir.upsample(photo(40), 1.5, antialias=0.5, phase=0)
    dask = pytest.importorskip("dask.array")
    with pytest.raises(InputError, match="image must be in memory where the factor is not whole"):
        slir.upsample(dask.from_array(photo(40)), 1.5)


# Files


def test_a_file_is_what_the_array_is_and_its_metadata_follow(tmp_path: Path) -> None:
    pixels, alpha = np.stack([photo(40)] * 3, -1), np.full((40, 40), 200, np.uint8)
    meta = Meta(resolution=Resolution(300, 300))
    io.write(tmp_path / "in.png", Picture(pixels, -1, alpha, meta=meta))
    outcome = jobs.run(Job(Problem("upsample", sigma=0, factor=1.5), tmp_path / "in.png", tmp_path / "out.png"))
    found = io.read(tmp_path / "out.png")
    np.testing.assert_array_equal(found.pixels, slir.upsample(pixels, 1.5, channel_axis=-1))
    assert (found.alpha == 200).all()
    assert found.meta.resolution is not None
    assert found.meta.resolution.per_inch() == pytest.approx((450, 450), rel=1e-3)
    assert "restored at 2 times its size, then reduced to 1.5 times" in outcome.notes
    record = json.loads((tmp_path / "out.png.json").read_text())
    assert record["settings"]["factor"] == 1.5
    assert record["found"]["notes"] == list(outcome.notes)


def test_voxels_follow_the_true_factor(tmp_path: Path) -> None:
    said = {"axes": "ZYX", "PhysicalSizeX": 0.3, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.3}
    tifffile.imwrite(tmp_path / "in.ome.tif", np.stack([photo(33)] * 2), metadata=said)
    jobs.run(Job(Problem("upsample", sigma=0, size=(50, 50)), tmp_path / "in.ome.tif", tmp_path / "out.ome.tif"))
    with tifffile.TiffFile(tmp_path / "out.ome.tif") as file:
        assert file.series[0].shape == (2, 50, 50)
        (side,) = re.findall(r'PhysicalSizeX="([^"]*)"', file.ome_metadata)
        assert float(side) == pytest.approx(0.3 * 33 / 50)
    again = provenance.load(tmp_path / "out.ome.tif.json").job(tmp_path / "again.ome.tif")
    assert again.problem.options["size"] == (50, 50)
    assert provenance.load(tmp_path / "out.ome.tif.json").differs(again) is None
    jobs.run(again)
    np.testing.assert_array_equal(tifffile.imread(again.output), tifffile.imread(tmp_path / "out.ome.tif"))


@uncalibrated
def test_files_that_are_restored_by_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io.write(tmp_path / "in.png", Picture(photo(180)[:, :150]))
    job = Job(Problem("upsample", sigma=0, factor=1.3), tmp_path / "in.png", tmp_path / "out.png", error_map=True)
    jobs.run(job)
    whole, errors = io.read(job.output).pixels, tifffile.imread(tmp_path / "out.error.tif")
    monkeypatch.setattr(restore_file, "LARGE", 500)
    monkeypatch.setattr(restore_file, "tile_side", lambda *_: 128)
    jobs.run(job)
    found = io.read(job.output).pixels
    assert found.shape == errors.shape == (234, 195)
    assert np.abs(found.astype(int) - whole).max() <= 1
    np.testing.assert_allclose(tifffile.imread(tmp_path / "out.error.tif"), errors, rtol=0.2, atol=0.05)


def test_intervals_need_a_whole_factor(tmp_path: Path) -> None:
    io.write(tmp_path / "in.png", Picture(photo(40)))
    job = Job(Problem("upsample", sigma=0, size=(60, 60)), tmp_path / "in.png", tmp_path / "out.png", interval=90)
    with pytest.raises(InputError, match="interval must be left out where the factor is not whole"):
        jobs.run(job)
    assert not job.output.exists()
