"""Every file of the corpus through every task: planes, axes and metadata of the result, counted by others' readers."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits
from PIL import Image

import corpus
from slir import io
from slir.files import jobs, restore_file
from slir.files.jobs import Job
from slir.io import Picture
from slir.problem import Problem
from test_roundtrip import STRUCTURE, enlarged

SIZE = (corpus.HEIGHT, corpus.WIDTH)
SHIFTED = re.compile(r"(NAXIS|C[RD]|PC|ZNAXIS|CDELT|CRPIX|HISTORY|CHECKSUM|DATASUM|LTV|LTM)")
"""Keywords of FITS that follow the pixels, or tell of how the file was made."""

FOLLOWING = (0x011A, 0x011B, 0x8769)
"""Tags of EXIF that follow the pixels: resolution, and the place of the directory with their size."""

Seen = dict[str, Any]


def by_tifffile(path: Path, scale: int) -> Seen:
    """Shapes are divided by the scale."""
    with tifffile.TiffFile(path) as file:
        pages = [page.aspage() for page in file.pages]
        series = [
            (one.axes, tuple(n // scale if axis in "YX" else n for axis, n in zip(one.axes, one.shape)), one.dtype)
            for one in file.series
        ]
        ome = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"] if file.ome_metadata else {}
        pixels = {name: ome["Pixels"][name] for name in ("SizeC", "SizeZ", "SizeT")} if "Pixels" in ome else {}
        imagej = file.imagej_metadata or {}
        return {
            "series": series,
            "pages": [(page.imagelength / scale, page.imagewidth / scale, page.samplesperpixel) for page in pages],
            "tags": [sorted({tag.code for tag in page.tags} - STRUCTURE - {254}) for page in pages],
            "icc": [page.tags.valueof(34675) for page in pages],
            "artist": [page.tags.valueof(315) for page in pages],
            "private": [str(page.tags.valueof(65001)) for page in pages],
            "resolution": [
                (page.resolution[0] / scale, page.resolution[1] / scale) if 282 in page.tags else None for page in pages
            ],
            "ome": pixels,
            "imagej": {
                name: str(imagej.get(name)) for name in ("spacing", "Labels", "unit", "Info", "slices", "frames")
            },
        }


def by_pillow(path: Path, scale: int) -> Seen:
    with Image.open(path) as image:
        image.load()
        density = image.info.get("dpi")
        kept = ("icc_profile", "xmp", "Title", "Author", "comment", "gamma")
        return {
            "size": (image.width / scale, image.height / scale),
            "mode": image.mode,
            "density": density and tuple(round(value / scale) for value in density),
            "kept": {name: image.info.get(name) for name in kept},
            "exif": {
                code: str(value) for code, value in image.getexif().items() if code not in (0x011A, 0x011B, 0x8769)
            },
        }


def by_astropy(path: Path, scale: int) -> Seen:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fits.open(path) as parts:
            first = next(part for part in parts if part.is_image and part.header["NAXIS"] >= 2)
            shape = first.shape
            return {
                "shape": (*shape[:-2], shape[-2] / scale, shape[-1] / scale),
                "dtype": first.data.dtype.newbyteorder("="),
                "parts": [(part.name, part.shape if part.is_image and part is not first else 0) for part in parts],
                "cards": [
                    (key, str(value), comment)
                    for key, value, comment in first.header.cards
                    if not SHIFTED.match(key) and key != "EXTNAME"
                ],
            }


def by_zarr(path: Path, scale: int) -> Seen:
    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Array):
        return {"arrays": {"": _array(root, scale)}, "attributes": sorted(root.attrs)}
    ome = root.attrs.asdict().get("ome", root.attrs.asdict())
    image = ome["multiscales"][0]
    levels = [dataset["path"] for dataset in image["datasets"]]
    return {
        "arrays": {name: _array(array, scale if name in levels else 1) for name, array in root.arrays()},
        "groups": sorted(name for name, _ in root.groups()),
        "attributes": sorted(root.attrs),
        "axes": image["axes"],
        "channels": ome["omero"],
        "steps": [
            (step["scale"][-2] * scale, step["scale"][-1] * scale)
            for dataset in image["datasets"]
            for step in dataset["coordinateTransformations"]
            if "scale" in step
        ],
    }


def _array(array: Any, scale: int) -> tuple[Any, ...]:
    return (*array.shape[:-2], *(round(side / scale) for side in array.shape[-2:]), str(array.dtype))


READERS = {".tif": by_tifffile, ".fits": by_astropy, ".zarr": by_zarr}
"""The others are read by Pillow."""


def repeated(source: io.Source, sink: io.Sink, work: Any, progress: Any = None) -> Any:
    """In the place of a restoration: pixels as they are, or as blocks."""
    for plane in range(source.planes):
        sink.write(enlarged(source.read(plane), work.problem.factor), plane=plane)
    return restore_file.Found(4.25, 1.0)


@pytest.fixture(scope="module")
def mask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mask") / "mask.png"
    missing = np.zeros(SIZE, np.uint8)
    missing[3, 4] = 255
    io.write(path, Picture(missing))
    return path


CASES = [
    (name, task, scale)
    for number, name in enumerate(corpus.CASES)
    for task, scale in (
        (("denoise", "deblur", "inpaint")[number % 3], 1), ("upsample", 2), ("upsample", 3 + number % 2),
    )
]  # fmt: skip


@pytest.mark.parametrize(("name", "task", "scale"), CASES, ids=lambda value: str(value))
def test_planes_axes_and_metadata_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: Path, name: str, task: Any, scale: int
) -> None:
    monkeypatch.setattr(restore_file, "restore_file", repeated)
    before = corpus.make(name, tmp_path)
    after = tmp_path / "out" / name
    after.parent.mkdir()
    problem = Problem.of(task, sigma=0, psf=np.ones((1, 1)), mask=mask, factor=scale)
    jobs.run(Job(problem, before, after, data_range=(-(2.0**16), 2.0**16), threads=1), sidecar=False)
    read = READERS.get(after.suffix, by_pillow)
    old, new = read(before, 1), read(after, scale)
    for what in old:
        assert new[what] == old[what], what
    with io.open_source(before) as one, io.open_source(after) as other:
        assert (other.planes, other.axes, other.shape) == (one.planes, one.axes, one.shape)
