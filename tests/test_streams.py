"""Files restored plane by plane and window by window: the same as the whole, and memory that does not grow."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch

import slir
from slir import io
from slir.files import restore_file
from slir.files.jobs import Job, run
from slir.io import Picture
from slir.kernel.shipped import demo_picture, shipped_model
from slir.operators import Identity
from slir.preprocessing import treatment
from slir.problem import Problem
from slir.trust import files
from small_models import small_kernel

SMALL = small_kernel()


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every file is large, its tiles and the model small; gives the pieces that were restored."""
    pieces: list[Any] = []
    monkeypatch.setattr(treatment, "default_model", lambda operator: SMALL)
    monkeypatch.setattr(restore_file, "LARGE", 1)
    monkeypatch.setattr(restore_file, "tile_side", lambda *about: 128)
    by = restore_file.Windows.restore_piece

    def restored(self: Any, piece: Any) -> Any:
        pieces.append(piece)
        return by(self, piece)

    monkeypatch.setattr(restore_file.Windows, "restore_piece", restored)
    return pieces


def large(colour: bool = False, dtype: str = "uint8", side: int = 256) -> np.ndarray:
    """The demonstration's picture beside its mirror image, (side, 2·side), noisy."""
    picture = demo_picture()[:side, :side].astype(np.float64)
    both = np.concatenate([picture, picture[:, ::-1]], axis=1)
    both = both if colour else both.mean(-1)
    noisy = (both + np.random.default_rng(0).normal(0, 10, both.shape)).clip(0, 255)
    scale = {"uint8": 1, "uint16": 257, "float32": 1 / 255}[dtype]
    return (noisy * scale).round().astype(dtype) if dtype != "float32" else (noisy * scale).astype(dtype)


def restored(
    folder: Path, pixels: np.ndarray, task: str, *, alpha: np.ndarray | None = None, **settings: Any
) -> Picture:
    axis = None if pixels.ndim == 2 else -1
    io.write(folder / "in.tif", Picture(pixels, channel_axis=axis, alpha=alpha))
    own = {name: settings.pop(name) for name in list(settings) if name in Job.__dataclass_fields__}
    run(Job(Problem(task, **settings), folder / "in.tif", folder / "out.tif", **own), sidecar=False)
    return io.read(folder / "out.tif")


def nearly(found: np.ndarray, wanted: np.ndarray, span: float) -> None:
    """The same, but for a few pixels where two patches are equally near, and these by little."""
    apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)) / span
    assert found.shape == wanted.shape
    assert (apart > 1e-4).mean() < 1e-3
    assert apart.max() < 1e-3


@pytest.mark.filterwarnings("ignore:The result does not explain", "ignore:The PSF")  # drawn at random
@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_windows_give_what_the_whole_gives(task: str, tmp_path: Path, windows: list[Any]) -> None:
    pixels, rng = large(dtype="uint16"), np.random.default_rng(1)
    psf = slir.psf.motion(5, 30)
    mask = rng.random(pixels.shape) < 0.3
    settings: dict[str, Any] = {"sigma": 2570.0}
    if task == "deblur":
        settings["psf"] = psf
        wanted = slir.deblur(pixels, psf, sigma=2570.0)
    elif task == "upsample":
        pixels, settings = pixels[:96, :200], {"sigma": 2570.0, "factor": 2}
        wanted = slir.upsample(pixels, 2, sigma=2570.0)
    elif task == "inpaint":
        io.write(tmp_path / "mask.png", Picture(mask.astype(np.uint8) * 255))
        settings |= {"mask": tmp_path / "mask.png"}
        wanted = slir.inpaint(pixels, mask, sigma=2570.0)
    else:
        wanted = slir.denoise(pixels, sigma=2570.0)
    found = restored(tmp_path, pixels, task, **settings)
    assert len(windows) > 3
    nearly(found.pixels, wanted, 65535)


def test_colours_by_windows(tmp_path: Path, windows: list[Any]) -> None:
    pixels = large(colour=True)
    alpha = np.linspace(0, 255, pixels[..., 0].size).astype(np.uint8).reshape(pixels.shape[:2])
    found = restored(tmp_path, pixels, "denoise", sigma=10.0, alpha=alpha)
    assert len(windows) > 3
    assert found.alpha is not None
    assert (found.alpha == alpha).all()
    difference = np.abs(found.pixels.astype(int) - slir.denoise(pixels, sigma=10.0, channel_axis=-1).astype(int))
    assert (difference > 0).mean() < 0.02
    assert difference.max() <= 3


def test_alpha_grows_with_the_picture(tmp_path: Path, windows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = large()[:64, :200]
    alpha = np.random.default_rng(0).integers(0, 256, pixels.shape).astype(np.uint8)
    by_windows = restored(tmp_path, pixels, "upsample", sigma=0.0, alpha=alpha, factor=2)
    monkeypatch.setattr(restore_file, "LARGE", 2**24)
    whole = restored(tmp_path, pixels, "upsample", sigma=0.0, alpha=alpha, factor=2)
    assert by_windows.alpha is not None
    assert whole.alpha is not None
    assert (by_windows.alpha == whole.alpha).all()
    assert whole.alpha.shape == (128, 400)


@pytest.mark.parametrize("task", ["denoise", "upsample"])
@pytest.mark.parametrize("by", ["windows", "whole"])
def test_pixels_that_are_nan_stay_so_and_do_no_harm(
    task: str, by: str, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue("windows")
    if by == "whole":
        monkeypatch.setattr(restore_file, "LARGE", 2**24)
    clean = large(dtype="float32")[:128, :256]
    holed = clean.copy()
    holed[40:43, 30:200] = np.nan
    holed[100, 100] = np.nan
    settings: dict[str, Any] = {"sigma": 0.04, "data_range": 1.0} | ({"factor": 2} if task == "upsample" else {})
    found = restored(tmp_path, holed, task, **settings).pixels
    factor = settings.get("factor", 1)
    missing = np.isnan(holed).repeat(factor, 0).repeat(factor, 1)
    assert (np.isnan(found) == missing).all()
    wanted = restored(tmp_path, clean, task, **settings).pixels
    assert np.sqrt(np.mean((found - wanted)[~missing] ** 2)) < 0.01


def test_nan_is_filled_in_for_good_by_inpainting(tmp_path: Path, windows: list[Any]) -> None:
    pixels = large(dtype="float32")[:128, :256]
    holed = pixels.copy()
    holed[::7, ::5] = np.nan
    found = restored(tmp_path, holed, "inpaint", sigma=0.0, mask="nan", data_range=1.0).pixels
    known = ~np.isnan(holed)
    assert (found[known] == holed[known]).all()
    assert np.isfinite(found).all()


def test_a_plane_of_nan_alone_stays_one(tmp_path: Path, windows: list[Any]) -> None:
    pixels = large(dtype="float32")[:128]
    pixels[:, :330] = np.nan
    found = restored(tmp_path, pixels, "denoise", sigma=0.04, data_range=1.0).pixels
    assert np.isnan(found[:, :330]).all()
    assert np.isfinite(found[:, 330:]).all()


def test_windows_without_a_hole_are_copied(tmp_path: Path, windows: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = large()
    mask = np.zeros(pixels.shape, np.uint8)
    mask[10:14, 10:40] = 255
    io.write(tmp_path / "mask.png", Picture(mask))
    worked: list[Any] = []
    by = restore_file.Windows._restore_seen
    monkeypatch.setattr(restore_file.Windows, "_restore_seen", lambda *given: worked.append(given) or by(*given))
    found = restored(tmp_path, pixels, "inpaint", sigma=0.0, mask=tmp_path / "mask.png").pixels
    assert len(worked) == 1 < len(windows)
    assert (found[mask == 0] == pixels[mask == 0]).all()


@pytest.mark.parametrize("dtype", ["uint32", "int16", "float64"])
@pytest.mark.parametrize("by", ["windows", "whole"])
def test_without_noise_a_file_comes_back_to_the_last_bit(dtype: str, by: str, tmp_path: Path, request: Any) -> None:
    if by == "windows":
        request.getfixturevalue("windows")
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(200, 300)) if dtype == "float64" else rng.integers(0, 30000, (200, 300))
    limits = {"float64": (-9.0, 9.0), "uint32": (0.0, 2.0**32 - 1), "int16": (-32768.0, 32767.0)}[dtype]
    pixels = (pixels * (100_001 if dtype == "uint32" else 1)).astype(dtype)
    assert (restored(tmp_path, pixels, "denoise", sigma=0.0, data_range=limits).pixels == pixels).all()


@pytest.mark.parametrize("by", ["windows", "whole"])
def test_few_counts_of_many_bits_are_restored_as_if_they_filled_them(by: str, tmp_path: Path, request: Any) -> None:
    if by == "windows":
        request.getfixturevalue("windows")
    pixels = large().astype(np.int32) + 300
    found, wanted = (
        restored(tmp_path, pixels, "denoise", sigma=10.0, data_range=limits).pixels for limits in (None, (300.0, 555.0))
    )
    assert found.dtype == np.int32
    assert np.abs(found - wanted).mean() < 0.3
    assert found.std() > 10


@pytest.mark.parametrize("side", [40, 100])
def test_holes_do_not_tell_the_noise(side: int, tmp_path: Path) -> None:
    """They are filled in smoothly before a file is denoised."""
    pixels = large(dtype="float32")
    pixels[60 : 60 + side, 60 : 60 + side] = np.nan
    io.write(tmp_path / "in.tif", Picture(pixels))
    done = run(Job(Problem("denoise"), tmp_path / "in.tif", tmp_path / "out.tif", data_range=1.0), sidecar=False)
    assert done.sigma == pytest.approx(10 / 255, rel=0.15)
    found = io.read(tmp_path / "out.tif").pixels
    assert (np.isnan(found) == np.isnan(pixels)).all()
    assert np.nanstd(found - pixels) > 0.7 * 10 / 255


@pytest.mark.parametrize("by", ["windows", "whole"])
def test_a_range_that_a_model_does_not_say_is_asked_for(by: str, tmp_path: Path, request: Any) -> None:
    if by == "windows":
        request.getfixturevalue("windows")
    pixels = large().astype(np.int32)
    io.write(tmp_path / "in.tif", Picture(pixels))
    SMALL.save(tmp_path / "model.safetensors")
    job = Job(
        Problem("denoise", sigma=0.0), tmp_path / "in.tif", tmp_path / "out.tif", model=tmp_path / "model.safetensors"
    )
    (told,) = run(job, sidecar=False).warnings
    assert "of the range of int32" in told
    assert not run(replace(job, data_range=255.0), sidecar=False).warnings


def test_noise_of_a_large_image_is_told_from_a_sample(tmp_path: Path, windows: list[Any]) -> None:
    shape = (3000, 2500)
    blocks = treatment.sample(shape)
    assert len(blocks) == treatment.BLOCKS**2
    assert {(rows.stop - rows.start, cols.stop - cols.start) for rows, cols in blocks} == {(512, 512)}
    assert min(rows.start for rows, _ in blocks) == 0
    assert max(cols.stop for _, cols in blocks) == shape[1]
    assert treatment.sample((2048, 2048)) == [(slice(0, 2048), slice(0, 2048))]
    assert len(treatment.sample((200, 50_000))) == treatment.BLOCKS  # a strip has one row of blocks
    plane = torch.rand(3000, 2500)
    (seen,) = treatment.sample_planes([plane])
    assert seen.shape == (16 * 512, 512)
    assert torch.equal(seen[:512], plane[:512, :512])


LAYOUTS: dict[str, dict[str, Any]] = {
    "strips": {"rowsperstrip": 4},
    "deflated strips": {"rowsperstrip": 4, "compression": "zlib", "predictor": True},
    "one strip": {"rowsperstrip": 10**6},
    "one deflated strip": {"rowsperstrip": 10**6, "compression": "zlib"},
    "tiles": {"tile": (64, 64), "compression": "zlib"},
}


def peak_of_a_copy(path: Path, output: Path, size: tuple[int, int], layout: dict[str, Any]) -> int:
    """Bytes of arrays held at most while a file of this size goes from disk to disk as it is."""
    pixels = np.random.default_rng(0).integers(0, 60000, size).astype(np.uint16)
    tifffile.imwrite(path, pixels, metadata=None, **layout)
    tracemalloc.start()
    run(Job(Problem("denoise", sigma=0.0), path, output), sidecar=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (io.read(output).pixels == pixels).all()
    return peak


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_does_not_grow_with_the_file(
    name: str, tmp_path: Path, windows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of what is held are smaller here, as the files are."""
    monkeypatch.setattr(restore_file, "tile_side", lambda *about: 320)
    monkeypatch.setattr(treatment, "BLOCK", 64)
    for limit, size in {"_CACHE": 1 << 20, "_LARGE": 1 << 18, "_PART": 1 << 16}.items():
        monkeypatch.setattr(f"slir.io.tiff_segments.{limit}", size)
    monkeypatch.setattr("slir.io.tiff_sink._STRIP", 1 << 15)
    monkeypatch.setattr("slir.io.tiff_sink._MOST_STRIP", 1 << 18)
    _, once, wide, tall = (  # what is imported and loaded once falls on the first
        peak_of_a_copy(tmp_path / f"{size}.tif", tmp_path / "out.tif", size, LAYOUTS[name])
        for size in ((600, 600), (600, 2048), (600, 4096), (1200, 2048))
    )
    added = 600 * 2048 * 2  # bytes by which the larger two exceed the smaller: a list of strips is all that may grow
    assert wide < once + added / 4
    assert tall < once + added / 4
    assert once < added  # less than the file
    assert len(windows) > 50


@pytest.mark.parametrize("suffix", [".zarr", ".fits"])
def test_nor_does_it_in_other_formats(
    suffix: str, tmp_path: Path, windows: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({".zarr": "zarr", ".fits": "astropy"}[suffix])
    monkeypatch.setattr(restore_file, "tile_side", lambda *about: 320)
    monkeypatch.setattr(treatment, "BLOCK", 64)
    monkeypatch.setattr("slir.io.omezarr._CHUNK", 256)
    peaks = []
    for width in (600, 1200, 2400):
        pixels = np.random.default_rng(0).integers(0, 30000, (600, width)).astype(np.int16)
        io.write(tmp_path / f"{width}{suffix}", Picture(pixels))
        job = Job(
            Problem("denoise", sigma=0.0), tmp_path / f"{width}{suffix}", tmp_path / f"out{suffix}", data_range=30000.0
        )
        tracemalloc.start()
        run(job, sidecar=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (io.read(tmp_path / f"out{suffix}").pixels == pixels).all()
    assert peaks[2] < peaks[1] + 600 * 1200 * 2 / 4  # a quarter of what the file is larger by


# --- errors to expect ---


@pytest.fixture
def sure(monkeypatch: pytest.MonkeyPatch, windows: list[Any]) -> list[Any]:
    """The same with a model whose errors are calibrated."""
    known: Any = shipped_model("denoise").trust
    model = replace(SMALL, trust=replace(known, sigma=(1e-4, 1.0)))
    monkeypatch.setattr(treatment, "default_model", lambda operator: model)
    return windows


@pytest.mark.filterwarnings("ignore:The result does not explain", "ignore:The PSF")  # drawn at random
@pytest.mark.parametrize("task", ["denoise", "colours", "deblur", "upsample", "inpaint", "inpaint the rest"])
def test_windows_have_the_error_map_of_the_whole(
    task: str, tmp_path: Path, sure: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, settings = large(colour=task == "colours"), {"sigma": 10.0, "error_map": True}
    mask = np.random.default_rng(1).random(pixels.shape[:2]) < 0.3
    if task == "inpaint the rest":  # far less is known beside the middle
        mask[:, :90] |= np.random.default_rng(2).random(mask[:, :90].shape) < 0.9
        mask[:, -90:] |= np.random.default_rng(3).random(mask[:, -90:].shape) < 0.9
    if task == "deblur":
        settings["psf"] = slir.psf.motion(5, 30)
    elif task == "upsample":
        pixels, settings["factor"] = pixels[:128], 2
    elif task.startswith("inpaint"):
        io.write(tmp_path / "mask.png", Picture(mask.astype(np.uint8) * 255))
        settings |= {"mask": tmp_path / "mask.png", "sigma": 0.0}
    kind = {"colours": "denoise"}.get(task, task.split()[0])
    restored(tmp_path, pixels, kind, **settings)
    found = tifffile.imread(tmp_path / "out.error.tif")
    assert len(sure) > 3
    monkeypatch.setattr(restore_file, "LARGE", 2**24)
    restored(tmp_path, pixels, kind, **settings)
    wanted = tifffile.imread(tmp_path / "out.error.tif")
    assert found.shape == wanted.shape
    assert (found.dtype, wanted.dtype) == (np.float32, np.float32)
    if kind == "inpaint":
        np.testing.assert_array_equal(found > 0, mask)
    np.testing.assert_allclose(found, wanted, rtol=1e-2)


def test_error_maps_by_windows_of_a_model_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = []
    for large_from in (1, 2**24):
        monkeypatch.setattr(restore_file, "LARGE", large_from)
        monkeypatch.setattr(restore_file, "tile_side", lambda *about: 256)
        restored(tmp_path, large()[:200], "denoise", sigma=10.0, error_map=True)
        maps.append(tifffile.imread(tmp_path / "out.error.tif"))
    np.testing.assert_allclose(maps[0], maps[1], rtol=1e-2)


def a_bank(folder: Path, trust: Any = None, **settings: Any) -> Path:
    """The file of a model of the paper's kind."""
    told: dict[str, Any] = {"m": 60, "stages": 1, "size": 6, "window": 6, "weights": "nw", **settings}
    model = slir.paper_model([demo_picture()[:128, :128]], Identity(), 10 / 255, **told)
    replace(model, trust=trust).save(str(folder / "model.safetensors"))
    return folder / "model.safetensors"


def test_maps_of_the_papers_kind_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their spread is seen on a grid of its own."""
    model, maps = a_bank(tmp_path, loss="squared", stride=1), []
    for large_from in (1, 2**24):
        monkeypatch.setattr(restore_file, "LARGE", large_from)
        monkeypatch.setattr(restore_file, "tile_side", lambda *about: 64)
        restored(tmp_path, large()[:100, :263], "denoise", sigma=10.0, model=model, error_map=True)
        maps.append(tifffile.imread(tmp_path / "out.error.tif"))
    np.testing.assert_allclose(maps[0], maps[1], rtol=1e-2, atol=1e-2)


def test_asking_for_errors_changes_no_pixel(tmp_path: Path, sure: list[Any]) -> None:
    """Not even with a solver that draws at random."""
    known: Any = treatment.default_model(Identity()).trust
    model = a_bank(tmp_path, known, loss="euclidean", stride=3, solver="sdca")
    asked: dict[str, Any] = {"sigma": 10.0, "model": model}
    both = [restored(tmp_path, large()[:128, :300], "denoise", error_map=own, **asked) for own in (False, True)]
    assert len(sure) > 3
    np.testing.assert_array_equal(both[0].pixels, both[1].pixels)


def test_error_maps_by_windows_know_what_is_missing(tmp_path: Path, sure: list[Any]) -> None:
    pixels = large(dtype="float32")[:128]
    pixels[:, :330] = np.nan  # some windows have no pixel
    pixels[20:30, 400] = np.nan
    restored(tmp_path, pixels, "denoise", sigma=0.04, data_range=1.0, error_map=True)
    error = tifffile.imread(tmp_path / "out.error.tif")
    np.testing.assert_array_equal(np.isnan(error), np.isnan(pixels))
    assert (error[~np.isnan(error)] > 0).all()
    restored(tmp_path, pixels, "denoise", sigma=0.0, data_range=1.0, error_map=True)  # as it came
    np.testing.assert_array_equal(np.isnan(tifffile.imread(tmp_path / "out.error.tif")), np.isnan(pixels))


def test_what_came_back_as_it_was_has_no_error(tmp_path: Path, sure: list[Any]) -> None:
    io.write(tmp_path / "in.tif", Picture(large()))
    outcome = run(Job(Problem("denoise", sigma=0.0), tmp_path / "in.tif", tmp_path / "out.tif", error_map=True))
    assert ["nothing was restored" in text for text in outcome.warnings] == [True]  # not for each window
    assert (io.read(tmp_path / "out.tif").pixels == large()).all()
    assert not tifffile.imread(tmp_path / "out.error.tif").any()
    mask = np.zeros(large().shape, np.uint8)
    mask[10:14, 10:40] = 255
    io.write(tmp_path / "mask.png", Picture(mask))
    restored(tmp_path, large(), "inpaint", sigma=0.0, mask=tmp_path / "mask.png", error_map=True)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out.error.tif") > 0, mask > 0)


@pytest.mark.parametrize("colour", [False, True])
def test_large_maps_are_drawn_small(colour: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 100)
    rng = np.random.default_rng(0)
    error = rng.random((50, 37, 3) if colour else (50, 37))
    error[:10, :10] = np.nan
    error[30, 30] = np.nan
    small = files.Small((50, 37))
    for rows in (slice(0, 13), slice(13, 50)):
        for cols in (slice(0, 20), slice(20, 37)):
            assert not small.whole
            small.add(error[rows, cols], rows, cols)
    assert small.whole
    assert small.step == 5
    squares = np.square(error).mean(-1) if colour else np.square(error)
    for row, col in np.ndindex(10, 8):
        block = squares[5 * row : 5 * row + 5, 5 * col : 5 * col + 5]
        wanted = np.nan if row < 2 and col < 2 else np.sqrt(np.nanmean(block))
        assert small.mean()[row, col] == pytest.approx(wanted, nan_ok=True)
