"""What `slir info` says of how far apart pixels are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

from slir import io
from slir.cli import app
from slir.io import Meta, Picture, Resolution, pixel_size

STACK = np.zeros((3, 20, 24), np.uint8)
OME = {"axes": "ZYX", "PhysicalSizeX": 0.065, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.07, "PhysicalSizeZ": 0.2}


def steps(path: Path) -> dict[str, Any]:
    with io.open_source(path) as source:
        return pixel_size(source.meta)


def test_ome_tiff(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", STACK, metadata=OME)
    assert steps(tmp_path / "a.ome.tif") == {"x": (0.065, "µm"), "y": (0.07, "µm"), "z": (0.2, "µm")}


@pytest.mark.parametrize(("unit", "symbol"), [("um", "µm"), ("micron", "µm"), ("nm", "nm")])
def test_imagej_tiff(tmp_path: Path, unit: str, symbol: str) -> None:
    told = {"axes": "ZYX", "spacing": 0.3, "unit": unit}
    tifffile.imwrite(tmp_path / "a.tif", STACK, imagej=True, resolution=(4, 5), metadata=told)
    assert steps(tmp_path / "a.tif") == {"x": (0.25, symbol), "y": (0.2, symbol), "z": (0.3, symbol)}
    tifffile.imwrite(tmp_path / "b.tif", STACK, imagej=True, resolution=(4, 5), metadata={"axes": "ZYX"})
    assert steps(tmp_path / "b.tif") == {}


@pytest.mark.parametrize(
    ("resolution", "unit", "step"),
    [((254, 508), "INCH", (0.1, 0.05, "mm")), ((2000, 2000), "CENTIMETER", (5, 5, "µm"))],
)
def test_plain_tiff(tmp_path: Path, resolution: Any, unit: str, step: tuple[float, float, str]) -> None:
    tifffile.imwrite(tmp_path / "a.tif", STACK[0], resolution=resolution, resolutionunit=unit, metadata=None)
    found = steps(tmp_path / "a.tif")
    assert found["x"] == (pytest.approx(step[0]), step[2])
    assert found["y"] == (pytest.approx(step[1]), step[2])


@pytest.mark.parametrize("turned", [False, True])
def test_fits(tmp_path: Path, turned: bool) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    header = fits.Header()
    for axis, kind in enumerate(("RA---TAN", "DEC--TAN"), 1):
        header[f"CTYPE{axis}"], header[f"CRVAL{axis}"], header[f"CRPIX{axis}"] = kind, 10.0, 5.0
    angle, step = (0.5 if turned else 0.0), 0.05 / 3600
    header["CD1_1"], header["CD1_2"] = -step * np.cos(angle), step * np.sin(angle)
    header["CD2_1"], header["CD2_2"] = step * np.sin(angle), step * np.cos(angle)
    fits.writeto(tmp_path / "a.fits", STACK[0], header)
    found = steps(tmp_path / "a.fits")
    assert found == {"x": (pytest.approx(0.05), "arcsec"), "y": (pytest.approx(0.05), "arcsec")}
    fits.writeto(tmp_path / "b.fits", STACK[0])
    assert steps(tmp_path / "b.fits") == {}


def test_ome_zarr(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    resolution = Resolution(1e4 / 0.5, 1e4 / 0.25, "cm")
    io.write(tmp_path / "a.zarr", Picture(STACK[0], meta=Meta(resolution=resolution)))
    found = steps(tmp_path / "a.zarr")
    assert found == {"x": (pytest.approx(0.5), "µm"), "y": (pytest.approx(0.25), "µm")}


def test_photographs_say_how_to_print_them_and_no_more(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg"):
        io.write(tmp_path / name, Picture(STACK[0], meta=Meta(resolution=Resolution(300, 300))))
        assert steps(tmp_path / name) == {}


@pytest.mark.parametrize("damaged", ['PhysicalSizeX="wide"', 'PhysicalSizeX="0"', 'PhysicalSizeX="nan"'])
def test_what_makes_no_sense_is_left_out(tmp_path: Path, damaged: str) -> None:
    text = f'<?xml version="1.0"?><OME xmlns="x"><Image><Pixels {damaged} PhysicalSizeY="2"/></Image></OME>'
    tifffile.imwrite(tmp_path / "a.tif", STACK[0], description=text, metadata=None)
    assert steps(tmp_path / "a.tif") == {"y": (2.0, "µm")}


def test_info_prints_it(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", STACK, metadata=OME)
    runner = CliRunner()
    shown = runner.invoke(app, ["info", str(tmp_path / "a.ome.tif")]).output
    assert "  voxel size      x 0.065 µm, y 0.07 µm, z 0.2 µm\n" in shown
    record = json.loads(runner.invoke(app, ["info", str(tmp_path / "a.ome.tif"), "--json"]).output)
    assert record["pixel_size"]["z"] == {"step": 0.2, "unit": "µm"}
    tifffile.imwrite(tmp_path / "b.tif", STACK[0], resolution=(2000, 2000), resolutionunit="CENTIMETER", metadata=None)
    assert "  pixel size      x 5 µm, y 5 µm\n" in runner.invoke(app, ["info", str(tmp_path / "b.tif")]).output
