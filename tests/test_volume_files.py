"""Stacks in files as volumes: ImageJ and OME TIFF, with voxel sizes, channels, sidecars."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

import slir
from slir.cli.app import app
from slir.errors import FileError
from slir.files.restore_stack import voxel_size
from slir.io import open_source
from slir.io.kernels import read_psf, write_psf

pytestmark = pytest.mark.usefixtures("one_thread")

PSF = slir.psf.gaussian_volume((1.2, 1, 1), size=(5, 5, 5))


def stack(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).poisson(30 + 20 * np.sin(np.indices(shape).sum(0) / 3)).astype(np.uint16)


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(own) for own in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def psf_file(tmp_path: Path) -> Path:
    write_psf(tmp_path / "psf.tif", PSF)
    return tmp_path / "psf.tif"


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_a_psf_of_three_axes_comes_back(tmp_path: Path, suffix: str) -> None:
    write_psf(tmp_path / f"psf{suffix}", PSF)
    np.testing.assert_allclose(read_psf(tmp_path / f"psf{suffix}"), PSF, rtol=1e-5, atol=1e-8)


def test_a_psf_of_three_axes_does_not_fit_into_a_picture(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="three axes"):
        write_psf(tmp_path / "psf.png", PSF)


def test_a_psf_of_three_axes_is_measured_and_drawn(tmp_path: Path, psf_file: Path) -> None:
    said = run("psf", "file", psf_file, "-o", tmp_path / "own.tif", "--draw", tmp_path / "psf.png")
    assert "5 × 5 × 5 voxels" in " ".join(said.split())
    np.testing.assert_allclose(read_psf(tmp_path / "own.tif"), PSF, rtol=1e-5, atol=1e-8)
    assert (tmp_path / "psf.png").stat().st_size > 1000


def test_an_imagej_stack_is_deblurred_as_a_volume_and_keeps_its_voxels(tmp_path: Path, psf_file: Path) -> None:
    y = stack(7, 20, 18)
    told = {"spacing": 0.2, "unit": "um", "axes": "ZYX"}
    tifffile.imwrite(tmp_path / "y.tif", y, imagej=True, resolution=(10, 10), metadata=told)
    run("deblur", tmp_path / "y.tif", "-o", tmp_path / "x.tif", "--psf", psf_file, "--sigma", "poisson")
    expected = slir.deblur(y, read_psf(psf_file), sigma="poisson", voxel_size=(0.2, 0.1, 0.1))
    with tifffile.TiffFile(tmp_path / "x.tif") as file:
        np.testing.assert_allclose(file.asarray(), expected, atol=1)
        assert file.imagej_metadata is not None
        assert file.imagej_metadata["spacing"] == 0.2
    with open_source(tmp_path / "x.tif") as source:
        assert voxel_size(source) == pytest.approx((0.2, 0.1, 0.1))
    sidecar = json.loads((tmp_path / "x.tif.json").read_text())
    assert "poisson" in json.dumps(sidecar)
    before = (tmp_path / "x.tif").read_bytes()
    run("rerun", tmp_path / "x.tif.json", "-o", tmp_path / "again.tif")
    assert (tmp_path / "again.tif").read_bytes() == before


def test_each_channel_of_an_ome_stack_is_a_volume(tmp_path: Path, psf_file: Path) -> None:
    y = stack(2, 6, 16, 18)
    told = {"axes": "CZYX", "PhysicalSizeX": 0.1, "PhysicalSizeY": 0.1, "PhysicalSizeZ": 0.3}
    tifffile.imwrite(tmp_path / "y.ome.tif", y, metadata=told)
    run("deblur", tmp_path / "y.ome.tif", "-o", tmp_path / "x.ome.tif", "--psf", psf_file, "--sigma", "poisson")
    with tifffile.TiffFile(tmp_path / "x.ome.tif") as file:
        found = file.asarray()
        assert "PhysicalSizeZ" in (file.ome_metadata or "")
    for own, channel in zip(found, y):
        expected = slir.deblur(channel, read_psf(psf_file), sigma="poisson", voxel_size=(0.3, 0.1, 0.1))
        np.testing.assert_allclose(own, expected, atol=1)


def test_a_model_is_not_fitted_for_volumes(tmp_path: Path, psf_file: Path) -> None:
    tifffile.imwrite(tmp_path / "clean.tif", stack(40, 40))
    given = ["fit", tmp_path / "clean.tif", "-o", tmp_path / "model.safetensors", "--task", "deblur", "--psf", psf_file]
    result = CliRunner().invoke(app, [str(own) for own in [*given, "--sigma", "2"]])
    assert result.exit_code != 0
    assert "have two axes here" in " ".join(result.output.split()).replace("│ ", "")


@pytest.mark.parametrize(
    ("shape", "extra", "words"),
    [
        ((3, 20, 18), (), "psf must be no larger than the volume along z"),
        ((20, 18), (), "be a grey stack for a PSF of three axes"),
        ((7, 20, 18), ("--error-map",), "be left out for volumes"),
    ],
)
def test_what_cannot_be_is_said_in_words(
    tmp_path: Path, psf_file: Path, shape: tuple, extra: tuple, words: str
) -> None:
    tifffile.imwrite(tmp_path / "y.tif", stack(*shape), photometric="minisblack")
    given = ["deblur", tmp_path / "y.tif", "-o", tmp_path / "x.tif", "--psf", psf_file, "--sigma", "poisson", *extra]
    result = CliRunner().invoke(app, [str(own) for own in given])
    assert result.exit_code != 0
    assert words in " ".join(result.output.split()).replace("│ ", "")
    assert not (tmp_path / "x.tif").exists()
