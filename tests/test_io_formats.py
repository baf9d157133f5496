"""Formats of phones, of old programs and of printers: BMP, AVIF, HEIC, CMYK JPEG."""

import io as streams
import shutil
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from PIL import Image, ImageCms

from slir import io
from slir.errors import FileError
from slir.files import paths
from slir.files.jobs import Job, run
from slir.io import Meta, Picture, Resolution, av1, jpeg
from slir.io.boxes import items
from slir.problem import Problem

REFERENCE = Path(__file__).parent / "reference"


def ramp(height: int = 24, width: int = 32) -> np.ndarray:
    rows, cols = np.mgrid[:height, :width]
    return np.stack([rows * 10, cols * 8, (rows + cols) * 4], -1).clip(0, 255).astype(np.uint8)


# BMP


@pytest.mark.parametrize("colour", [False, True])
def test_bmp_keeps_pixels_and_resolution(tmp_path: Path, colour: bool) -> None:
    pixels = ramp() if colour else ramp()[..., 1]
    picture = Picture(pixels, -1 if colour else None, meta=Meta(resolution=Resolution(300, 200)))
    io.write(tmp_path / "a.bmp", picture)
    found = io.read(tmp_path / "a.bmp")
    np.testing.assert_array_equal(found.pixels, pixels)
    assert found.meta.resolution is not None
    assert found.meta.resolution.per_inch() == pytest.approx((300, 200), rel=1e-3)
    with Image.open(tmp_path / "a.bmp") as image:
        np.testing.assert_array_equal(np.array(image), pixels)


@pytest.mark.parametrize(("mode", "layout", "note"), [("P", "RGB", "palette"), ("1", "grey", "single bits")])
def test_bmp_with_a_palette_or_bits(tmp_path: Path, mode: str, layout: str, note: str) -> None:
    image = Image.fromarray(ramp()).convert(mode)
    image.save(tmp_path / "a.bmp")
    found = io.read(tmp_path / "a.bmp")
    assert found.layout == layout
    np.testing.assert_array_equal(found.pixels, np.array(image.convert("RGB" if mode == "P" else "L")))
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("picture", "remedy"),
    [
        (Picture(ramp().astype(np.uint16), -1), "a.png instead"),
        (Picture(ramp(), -1, alpha=ramp()[..., 0]), "a.png instead"),
        (Picture(ramp(), -1, meta=Meta(orientation=6)), "a.png instead"),
    ],
)
def test_bmp_refuses_what_it_cannot_hold(tmp_path: Path, picture: Picture, remedy: str) -> None:
    with pytest.raises(FileError, match=remedy):
        io.write(tmp_path / "a.bmp", picture)


# AVIF


def test_avif_is_near_and_keeps_what_lies_beside(tmp_path: Path) -> None:
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x0110] = "Phone"
    meta = Meta(icc=icc, exif=exif.tobytes().removeprefix(b"Exif\0\0"), xmp=b"<x:xmpmeta/>")
    alpha = np.full((24, 32), 100, np.uint8)
    alpha[5, 6] = 3
    io.write(tmp_path / "a.avif", Picture(ramp(), -1, alpha=alpha, meta=meta))
    found = io.read(tmp_path / "a.avif")
    assert np.abs(found.pixels.astype(int) - ramp()).mean() < 3
    np.testing.assert_array_equal(found.alpha, alpha)
    assert (found.meta.icc, found.meta.xmp) == (icc, b"<x:xmpmeta/>")
    assert b"Phone" in (found.meta.exif or b"")
    io.write(tmp_path / "b.avif", Picture(ramp(), -1, alpha=alpha, meta=meta))
    assert (tmp_path / "b.avif").read_bytes() == (tmp_path / "a.avif").read_bytes()


@pytest.mark.parametrize(
    "picture", [Picture(ramp()[..., 0]), Picture(ramp().astype(np.uint16), -1)], ids=["grey", "uint16"]
)
def test_avif_refuses_what_it_cannot_hold(tmp_path: Path, picture: Picture) -> None:
    with pytest.raises(FileError, match=r"a\.png instead"):
        io.write(tmp_path / "a.avif", picture)


def test_avif_animations_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(ramp() // part) for part in (1, 2)]
    frames[0].save(tmp_path / "a.avif", save_all=True, append_images=frames[1:])
    with pytest.raises(FileError, match="is an animation"):
        io.read(tmp_path / "a.avif")


def lying_avif(path: Path, side: int) -> None:
    """A picture of 64 × 64 pixels, as its file says, whose codestream has sides of so many."""
    stream = streams.BytesIO()
    Image.new("RGB", (side, side), (120, 130, 140)).save(stream, "AVIF", quality=50, speed=10)
    data = bytearray(stream.getvalue())
    at = data.index(b"ispe") + 8
    data[at : at + 8] = (64).to_bytes(4, "big") * 2
    path.write_bytes(data)


def test_a_codestream_larger_than_its_avif_file_says_is_refused(tmp_path: Path) -> None:
    lying_avif(tmp_path / "a.avif", 3000)
    with pytest.raises(FileError, match="declares 4,096 pixels, but its codestream 3000 × 3000"):
        io.read(tmp_path / "a.avif")


@pytest.mark.parametrize("how", [{}, {"bitspersample": 10}, {"pixelformat": "420"}, {"level": 100, "speed": 8}])
@pytest.mark.parametrize(("height", "width"), [(24, 32), (131, 257)])
def test_codestreams_declare_the_sizes_of_avif_files(how: dict[str, Any], height: int, width: int) -> None:
    pixels = np.resize(ramp(), (height, width, 3)).astype(np.uint16 if "bitspersample" in how else np.uint8)
    data = bytes(imagecodecs.avif_encode(pixels, **how))
    found = [size for stream in items(data, b"av01") for size in av1.sizes(stream)]
    assert found == [(height, width)]


# HEIC


def test_heic_is_read_upright() -> None:
    pytest.importorskip("pi_heif")
    found = io.read(REFERENCE / "turned.heic")
    wanted = np.rot90(ramp(), -1)  # its orientation is 6
    assert found.pixels.shape == wanted.shape
    assert np.abs(found.pixels.astype(int) - wanted).mean() < 5
    assert found.meta.orientation == 1
    assert b"Phone" in (found.meta.exif or b"")
    with Image.open(streams.BytesIO(_as_jpeg(found))) as image:
        assert image.getexif()[0x0112] == 1  # nobody turns it again


def _as_jpeg(picture: Picture) -> bytes:
    stream = streams.BytesIO()
    jpeg.encode(stream, picture.interleaved(), picture.meta)
    return stream.getvalue()


def test_heic_of_ten_bits_has_sixteen() -> None:
    pytest.importorskip("pi_heif")
    found = io.read(REFERENCE / "deep.heic")
    assert (found.pixels.dtype, found.data_range) == (np.uint16, 65535)
    assert np.abs(found.pixels / 257 - ramp()).mean() < 5


def test_heic_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"slir reads HEIF but does not write it. Write a\.png instead"):
        io.write(tmp_path / "a.heic", Picture(ramp(), -1))


def test_results_of_heic_are_png(tmp_path: Path) -> None:
    pytest.importorskip("pi_heif")
    (tmp_path / "in").mkdir()
    shutil.copy(REFERENCE / "turned.heic", tmp_path / "in" / "a.HEIC")
    io.write(tmp_path / "in" / "b.tiff", Picture(ramp(), -1))
    found = paths.pairs([tmp_path / "in"], tmp_path / "out")
    assert [pair.output.name for pair in found] == ["a.png", "b.tiff"]
    assert [pair.output.name for pair in paths.pairs([tmp_path / "in"], tmp_path / "out", form="tif")] == [
        "a.tif",
        "b.tif",
    ]
    (tmp_path / "out").mkdir()
    run(Job(Problem("denoise", sigma=0), found[0].image, found[0].output))
    assert io.read(found[0].output).pixels.shape == (32, 24, 3)


def test_without_its_package_heic_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"Run pip install 'slir\[heif\]'"):
        io.read(REFERENCE / "deep.heic")


# Damage


@pytest.mark.parametrize("name", ["a.bmp", "a.avif", "a.heic"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    if name == "a.heic":
        pytest.importorskip("pi_heif")
        whole = (REFERENCE / "turned.heic").read_bytes()
    else:
        io.write(tmp_path / name, Picture(ramp(), -1))
        whole = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(60):
        data = bytearray(whole[: len(whole) * (trial + 1) // 60] if trial < 30 else whole)
        for place in rng.integers(0, len(data), 4) if trial >= 30 else ():
            data[place] = rng.integers(256)
        (tmp_path / name).write_bytes(data)
        try:
            io.read(tmp_path / name)
        except FileError as error:
            assert str(error).endswith(".")  # noqa: PT017


def test_a_header_that_declares_too_much_is_refused(tmp_path: Path) -> None:
    io.write(tmp_path / "a.bmp", Picture(ramp(), -1))
    data = bytearray((tmp_path / "a.bmp").read_bytes())
    data[18:26] = (60_000).to_bytes(4, "little") * 2
    (tmp_path / "a.bmp").write_bytes(data)
    with pytest.raises(FileError, match="declares"):
        io.read(tmp_path / "a.bmp")


# CMYK


def cmyk(path: Path, **options: Any) -> np.ndarray:
    inks = np.zeros((40, 48, 4), np.uint8)
    inks[:, 12:24, 0], inks[:, 24:36, 1], inks[:, 36:, 3] = 255, 255, 200
    Image.fromarray(inks, mode="CMYK").save(path, quality=95, **options)
    return inks


@pytest.mark.filterwarnings("ignore:'mode' parameter")
def test_cmyk_becomes_srgb_with_a_note(tmp_path: Path) -> None:
    cmyk(tmp_path / "a.jpg", dpi=(300, 300))
    found = io.read(tmp_path / "a.jpg")
    assert found.layout == "RGB"
    for column, colour in ((5, (255, 255, 255)), (18, (0, 255, 255)), (30, (255, 0, 255)), (42, (55, 55, 55))):
        np.testing.assert_allclose(found.pixels[20, column], colour, atol=12)
    assert found.notes == ("its CMYK colours are converted to sRGB without a profile, so they may be off",)
    assert found.meta.icc is None
    assert found.meta.resolution == Resolution(300, 300)
    io.write(tmp_path / "b.jpg", found)
    assert io.read(tmp_path / "b.jpg").layout == "RGB"


@pytest.mark.filterwarnings("ignore:'mode' parameter")
def test_cmyk_is_converted_with_its_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    made = ImageCms.buildTransform
    rgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))

    def build(source: Any, target: Any, before: str, after: str, *rest: Any) -> Any:
        asked.append((before, after))
        return made(rgb, target, "RGB", after, *rest)  # no CMYK profile is free enough to lie here

    monkeypatch.setattr(ImageCms, "buildTransform", build)
    monkeypatch.setattr(ImageCms, "applyTransform", lambda image, transform: image.convert("RGB"))
    cmyk(tmp_path / "a.jpg", icc_profile=rgb.tobytes())
    found = io.read(tmp_path / "a.jpg")
    assert asked == [("CMYK", "RGB")]
    assert found.notes == ("its CMYK colours are converted to sRGB with its profile",)
    assert found.meta.icc is None


@pytest.mark.filterwarnings("ignore:'mode' parameter")
@pytest.mark.parametrize("icc", [b"no profile", "sRGB"])
def test_a_profile_of_other_colours_is_no_help(tmp_path: Path, icc: Any) -> None:
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() if icc == "sRGB" else icc
    cmyk(tmp_path / "a.jpg", icc_profile=icc)
    assert "without a profile" in io.read(tmp_path / "a.jpg").notes[0]


@pytest.mark.parametrize("quality", [20, 50, 75, 90, 95, 100])
@pytest.mark.parametrize("colour", [False, True])
def test_the_quality_of_a_jpeg_is_read_from_its_tables(quality: int, colour: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3), np.uint8)
    Image.fromarray(pixels if colour else pixels[..., 0]).save(path, quality=quality)
    with io.open_source(path) as source:
        assert source.head.quality == pytest.approx(quality, abs=1)
