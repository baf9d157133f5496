"""Files to pictures and back: nothing lost, and every bad file refused with its reason and remedy."""

import io
import os
import struct
import sys
import zlib
from dataclasses import replace

import numpy as np
import PIL
import pytest
import tifffile
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from slir.errors import FileError
from slir.io import (
    Meta,
    Picture,
    Resolution,
    check_output,
    exif,
    open_source,
    png,
    png_codec,
    read,
    read_mask,
    read_psf,
    tiff_meta,
    write,
)
from slir.io.atomic import whole_file
from slir.io.picture import from_interleaved

LAYOUTS = {"grey": 1, "grey+alpha": 2, "RGB": 3, "RGBA": 4}


def noise(height, width, channels, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal((height, width, channels)).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (height, width, channels), dtype=dtype, endpoint=True)


def picture_of(planes, **meta):
    return from_interleaved(planes, meta=Meta(**meta))


def same(one, other):
    np.testing.assert_array_equal(one.pixels, other.pixels)
    assert one.pixels.dtype == other.pixels.dtype
    assert one.channel_axis == other.channel_axis
    assert (one.alpha is None) == (other.alpha is None)
    if one.alpha is not None:
        np.testing.assert_array_equal(one.alpha, other.alpha)
        assert one.alpha.dtype == other.alpha.dtype


def refused(path, *words):
    """Reading fails with a FileError that names the file, and every one of the words."""
    with pytest.raises(FileError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert text.endswith(".")
    assert text.count(". ") >= 1, "a reason, then a remedy"
    for word in words:
        assert word in text
    return text


# --- round trips ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("suffix", "dtype"),
    [(".png", "uint8"), (".png", "uint16")]
    + [
        (".tif", name)
        for name in ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64")
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (7, 1), (23, 70)])
def test_round_trip(tmp_path, suffix, dtype, layout, size):
    before = picture_of(noise(*size, LAYOUTS[layout], dtype))
    write(tmp_path / f"a{suffix}", before)
    after = read(tmp_path / f"a{suffix}")
    same(before, after)
    assert after.layout == layout
    assert after.data_range == {"uint8": 255.0, "uint16": 65535.0}.get(dtype)
    assert after.notes == ()


@pytest.mark.parametrize("layout", ["grey", "RGB"])
def test_jpeg_comes_back_nearly_the_same(tmp_path, layout):
    ramp = np.linspace(0, 255, 64 * 48).reshape(64, 48)
    planes = np.stack([ramp, ramp[::-1], 255 - ramp], axis=-1)[..., : LAYOUTS[layout]].astype(np.uint8)
    write(tmp_path / "a.jpg", picture_of(planes))
    after = read(tmp_path / "a.jpg")
    assert after.layout == layout
    assert np.abs(after.interleaved().astype(int) - planes).max() <= 4


def test_jpeg_keeps_colour_at_full_resolution(tmp_path):
    write(tmp_path / "a.jpg", picture_of(noise(16, 16, 3, "uint8")))
    with Image.open(tmp_path / "a.jpg") as image:
        assert [layer[1:3] for layer in image.layer] == [(1, 1)] * 3


@settings(max_examples=60)
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 20),
    channels=st.integers(1, 4),
    dtype=st.sampled_from([np.uint8, np.uint16]),
    smooth=st.booleans(),
    seed=st.integers(0, 2**16),
    chosen=st.one_of(st.none(), st.integers(0, 4), st.just("mixed")),
)
def test_png_coding_undoes_itself(height, width, channels, dtype, smooth, seed, chosen):
    rng = np.random.default_rng(seed)
    planes = noise(height, width, channels, dtype, seed)
    if smooth:
        planes = (np.add.outer(np.arange(height), np.arange(width))[..., None] * 257 + np.arange(channels)).astype(
            dtype
        )
    filters = {None: None, "mixed": rng.integers(0, 5, height)}.get(chosen, np.full(height, chosen))
    packed = png_codec.encode(planes, filters=filters)
    cut = int(rng.integers(0, len(packed)))
    pieces = [packed[:cut], packed[cut:]]
    after = png_codec.decode(pieces, height=height, width=width, channels=channels, dtype=dtype)
    np.testing.assert_array_equal(after, planes)
    assert after.dtype == dtype


def png_file(planes, filters=None, interlace=0, extra=()):
    """A PNG put together here, chunk by chunk."""
    height, width, channels = planes.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8 * planes.dtype.itemsize, colour, 0, 0, interlace)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", png_codec.encode(planes, filters=filters)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pillow_reads_what_each_filter_wrote(kind, layout):
    planes = noise(9, 13, LAYOUTS[layout], "uint8")
    with Image.open(io.BytesIO(png_file(planes, np.full(9, kind)))) as image:
        np.testing.assert_array_equal(np.asarray(image).reshape(planes.shape), planes)


@pytest.mark.parametrize("kind", range(5))
def test_pillow_agrees_on_sixteen_bit_grey(kind):
    planes = noise(9, 13, 1, "uint16")
    with Image.open(io.BytesIO(png_file(planes, np.full(9, kind)))) as image:
        np.testing.assert_array_equal(np.asarray(image), planes[..., 0])


@pytest.mark.parametrize("kind", range(5))
def test_sixteen_bit_colour_keeps_its_low_bytes(tmp_path, kind):
    planes = noise(9, 13, 3, "uint16")
    (tmp_path / "a.png").write_bytes(png_file(planes, np.full(9, kind)))
    np.testing.assert_array_equal(read(tmp_path / "a.png").pixels, planes)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_of_sixteen_bits_becomes_alpha(tmp_path, channels):
    planes = noise(5, 6, channels, "uint16")
    key = planes[2, 3].astype(">u2").tobytes()
    (tmp_path / "a.png").write_bytes(png_file(planes, extra=[(b"tRNS", key)]))
    after = read(tmp_path / "a.png")
    assert after.alpha is not None
    assert after.alpha[2, 3] == 0
    assert (after.alpha == 65535).sum() == 29
    assert "transparent" in after.notes[0]


def test_palette_becomes_rgb(tmp_path):
    colours = noise(8, 8, 3, "uint8") // 64 * 64
    image = Image.fromarray(colours).quantize(64)
    image.save(tmp_path / "a.png")
    after = read(tmp_path / "a.png")
    np.testing.assert_array_equal(after.pixels, np.asarray(image.convert("RGB")))
    assert "palette" in after.notes[0]


def test_palette_with_transparency_becomes_rgba(tmp_path):
    image = Image.fromarray(noise(8, 8, 3, "uint8")).quantize(4)
    image.save(tmp_path / "a.png", transparency=1)
    after = read(tmp_path / "a.png")
    assert after.layout == "RGBA"
    assert after.alpha is not None
    np.testing.assert_array_equal(after.alpha == 0, np.asarray(image) == 1)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_one_bit_becomes_black_and_white(tmp_path, suffix):
    bits = noise(9, 11, 1, "uint8")[..., 0] > 100
    if suffix == ".png":
        Image.fromarray(bits).save(tmp_path / "a.png")
    else:
        tifffile.imwrite(tmp_path / "a.tif", bits, metadata=None)
    after = read(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(after.pixels, bits * np.uint8(255))
    assert "1-bit" in after.notes[0]


def test_tiff_palette_becomes_rgb(tmp_path):
    table = np.random.default_rng(0).integers(0, 256, (3, 256)).astype(np.uint16) * 257
    index = noise(6, 7, 1, "uint8")[..., 0]
    tifffile.imwrite(tmp_path / "a.tif", index, photometric="palette", colormap=table, metadata=None)
    np.testing.assert_array_equal(read(tmp_path / "a.tif").pixels, np.moveaxis(table[:, index] >> 8, 0, -1))


@pytest.mark.parametrize(
    "how",
    [
        {"planarconfig": "separate", "photometric": "rgb"},
        {"byteorder": ">", "photometric": "rgb"},
        {"compression": "zlib", "photometric": "rgb"},
        {"bigtiff": True, "photometric": "rgb"},
        {"tile": (16, 16), "photometric": "rgb"},
    ],
)
def test_tiff_of_every_layout(tmp_path, how):
    planes = noise(20, 30, 3, "uint16")
    stored = np.moveaxis(planes, -1, 0) if "planarconfig" in how else planes
    tifffile.imwrite(tmp_path / "a.tif", stored, metadata=None, **how)
    after = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(after.pixels, planes)
    assert after.pixels.dtype.isnative


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I;16"])
def test_tiff_with_lzw_compression(tmp_path, mode):
    planes = noise(20, 30, {"L": 1, "RGB": 3, "RGBA": 4}.get(mode, 1), "uint16" if mode == "I;16" else "uint8")
    Image.fromarray(planes.squeeze()).save(tmp_path / "a.tif", compression="tiff_lzw")
    np.testing.assert_array_equal(read(tmp_path / "a.tif").interleaved(), planes)


def test_tiff_grey_whose_zero_is_white_stays_so(tmp_path):
    grey = noise(5, 6, 1, "uint8")[..., 0]
    tifffile.imwrite(tmp_path / "a.tif", grey, photometric="miniswhite", metadata=None)
    write(tmp_path / "b.tif", read(tmp_path / "a.tif"))
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert file.pages[0].photometric == 0
        np.testing.assert_array_equal(file.asarray(), grey)


# --- metadata ------------------------------------------------------------------------------------------------------


def exif_block():
    tags = Image.Exif()
    tags[0x0112] = 6
    tags[0x010F] = "Maker"
    return tags.tobytes()[6:]


META = Meta(
    icc=bytes(range(200)),
    exif=exif_block(),
    xmp=b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>",
    orientation=6,
    resolution=Resolution(300, 200, "inch"),
    text={"Comment": "a slow river"},
)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("layout", ["grey", "RGB"])
def test_metadata_goes_out_as_it_came_in(tmp_path, suffix, layout):
    before = replace(picture_of(noise(8, 8, LAYOUTS[layout], "uint8")), meta=META)
    write(tmp_path / f"a{suffix}", before)
    after = read(tmp_path / f"a{suffix}").meta
    for name in ("icc", "exif", "xmp", "orientation", "text"):
        assert getattr(after, name) == getattr(META, name), name
    assert after.resolution is not None
    assert after.resolution.per_inch() == pytest.approx((300, 200), rel=1e-4)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_pillow_sees_the_metadata_of_our_png(tmp_path, dtype):
    write(tmp_path / "a.png", replace(picture_of(noise(8, 8, 3, dtype)), meta=META))
    with Image.open(tmp_path / "a.png") as image:
        image.load()
        assert image.info["icc_profile"] == META.icc
        assert image.getexif()[0x0112] == 6
        assert image.info["dpi"] == pytest.approx((300, 200), rel=1e-4)
        assert image.info["Comment"] == "a slow river"


def test_png_text_of_every_kind_and_gamma_are_kept(tmp_path):
    info = PngImagePlugin.PngInfo()
    info.add_text("Title", "plain")
    info.add_text("Long", "packed " * 50, zip=True)
    info.add_itxt("Author", "Jürgen ☃")
    info.add_itxt("Packed", "ü" * 300, zip=True)
    info.add(b"gAMA", struct.pack(">I", 45455))
    Image.fromarray(noise(4, 4, 3, "uint8")).save(tmp_path / "a.png", pnginfo=info)
    write(tmp_path / "b.png", read(tmp_path / "a.png"))
    with Image.open(tmp_path / "b.png") as image:
        image.load()
        assert image.text == {"Title": "plain", "Long": "packed " * 50, "Author": "Jürgen ☃", "Packed": "ü" * 300}
        assert image.info["gamma"] == pytest.approx(0.45455)


def test_tiff_metadata_goes_out_as_it_came_in(tmp_path):
    text = {"ImageDescription": "Fluß, a river", "Software": "microscope 3", "Artist": "Änne N.", "Copyright": "CC0"}
    before = Meta(
        icc=bytes(range(200)),
        xmp=META.xmp,
        orientation=8,
        resolution=Resolution(1234.5, 617.25, "cm"),
        text={**text, "DateTime": "2020:01:02 03:04:05"},
    )
    write(tmp_path / "a.tif", replace(picture_of(noise(8, 8, 3, "uint16")), meta=before))
    after = read(tmp_path / "a.tif").meta
    for name in ("icc", "xmp", "orientation", "resolution", "text"):
        assert getattr(after, name) == getattr(before, name), name


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_orientation_survives_a_change_of_format(tmp_path, suffix):
    picture = replace(picture_of(noise(8, 8, 3, "uint8")), meta=Meta(orientation=3))
    write(tmp_path / f"a{suffix}", picture)
    assert read(tmp_path / f"a{suffix}").meta.orientation == 3
    write(tmp_path / "b.tif", read(tmp_path / f"a{suffix}"))
    assert read(tmp_path / "b.tif").meta.orientation == 3


def test_premultiplied_alpha_stays_so_in_tiff_and_is_refused_by_png(tmp_path):
    planes = noise(5, 6, 4, "uint8")
    tifffile.imwrite(tmp_path / "a.tif", planes, photometric="rgb", extrasamples=["assocalpha"], metadata=None)
    picture = read(tmp_path / "a.tif")
    write(tmp_path / "b.tif", picture)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert file.pages[0].extrasamples == (1,)
    with pytest.raises(FileError, match=r"b\.tif instead"):
        write(tmp_path / "b.png", picture)


def test_resolution_follows_the_size():
    before = replace(picture_of(noise(4, 5, 2, "uint8")), meta=META)
    after = before.with_pixels(np.zeros((8, 10), np.uint8), alpha=np.zeros((8, 10), np.uint8))
    assert after.meta.resolution == Resolution(600, 400, "inch")
    with pytest.raises(ValueError, match="alpha"):
        before.with_pixels(np.zeros((8, 10), np.uint8))


# --- bad files -----------------------------------------------------------------------------------------------------


def test_missing_empty_and_folder(tmp_path):
    refused(tmp_path / "none.png", "does not exist")
    (tmp_path / "empty.png").touch()
    refused(tmp_path / "empty.png", "is empty")
    refused(tmp_path, "is a folder")


def test_text_with_an_image_name(tmp_path):
    (tmp_path / "a.png").write_text("not an image at all, whatever the name says")
    refused(tmp_path / "a.png", "is not a PNG file")


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"GIF89a" + bytes(50), "GIF"), (bytes(4) + b"ftypmp42" + bytes(50), "video"), (b"%PDF-1.4" + bytes(40), "PDF")],
)
def test_foreign_formats_are_named(tmp_path, data, kind):
    for name in ("a.png", "a.xyz"):
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name, kind, "Convert it to PNG")


@pytest.mark.parametrize(("true", "name"), [(".png", "a.jpg"), (".jpg", "a.tif"), (".tif", "a.png"), (".png", "a.dat")])
def test_wrong_extension_says_the_right_one(tmp_path, true, name):
    write(tmp_path / f"b{true}", picture_of(noise(8, 8, 3, "uint8")))
    (tmp_path / f"b{true}").rename(tmp_path / name)
    refused(tmp_path / name, f"Rename it to a{true}")


@pytest.mark.parametrize("name", ["a.png", "16.png", "a.jpg", "a.tif", "raw.tif"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_truncated_files(tmp_path, name, share):
    picture = picture_of(noise(64, 64, 3, "uint16" if "16" in name else "uint8"))
    if name == "raw.tif":
        tifffile.imwrite(tmp_path / name, picture.pixels, photometric="rgb", metadata=None)
    else:
        write(tmp_path / name, picture)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    refused(tmp_path / name)


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_are_read_or_refused_but_never_crash(tmp_path_factory, data):
    name = data.draw(st.sampled_from(["a.png", "b.png", "a.jpg", "a.tif"]))
    folder = tmp_path_factory.mktemp("damaged")
    write(folder / name, picture_of(noise(12, 10, 3, "uint16" if name == "b.png" else "uint8")))
    content = bytearray((folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / name).write_bytes(content)
    try:
        read(folder / name)
    except FileError as error:
        assert str(error).endswith(".")  # noqa: PT017


def test_damaged_checksum(tmp_path):
    data = bytearray(png_file(noise(9, 13, 3, "uint16")))
    data[60] ^= 0xFF
    (tmp_path / "a.png").write_bytes(data)
    refused(tmp_path / "a.png", "checksum")


def rewritten_header(data, **change):
    fields = dict(zip(("width", "height", "depth", "colour", "packing", "filter", "interlace"), [0] * 7))
    fields.update(zip(fields, struct.unpack(">IIBBBBB", data[16:29])))
    fields.update(change)
    body = b"IHDR" + struct.pack(">IIBBBBB", *fields.values())
    return data[:12] + body + struct.pack(">I", zlib.crc32(body)) + data[33:]


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("side", [30_000, 12_000])
def test_png_that_declares_far_more_than_it_holds(tmp_path, dtype, side):
    data = rewritten_header(png_file(noise(4, 4, 3, dtype)), width=side, height=side)
    (tmp_path / "a.png").write_bytes(data)
    refused(tmp_path / "a.png", f"declares {side} × {side} pixels")


def test_png_whose_data_grow_beyond_its_size(tmp_path):
    data = png_file(np.zeros((3000, 1000, 3), np.uint16))
    (tmp_path / "a.png").write_bytes(rewritten_header(data, width=10, height=10))
    refused(tmp_path / "a.png", "more pixel data than its size allows")


def test_png_header_without_sense(tmp_path):
    (tmp_path / "a.png").write_bytes(rewritten_header(png_file(noise(4, 4, 3, "uint8")), depth=3))
    refused(tmp_path / "a.png", "header")
    (tmp_path / "b.png").write_bytes(rewritten_header(png_file(noise(4, 4, 3, "uint8")), width=0))
    refused(tmp_path / "b.png", "header")


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (9, 13), (16, 17)])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_interlaced_sixteen_bit_colour(tmp_path, size, channels):
    planes = noise(*size, channels, "uint16")
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    for number, (top, left, down, across) in enumerate(passes):
        part = planes[top::down, left::across]
        if part.size:
            packed = png_codec.encode(part, filters=np.full(len(part), number % 5))
            raw += zlib.decompress(packed)
    header = struct.pack(">IIBBBBB", size[1], size[0], 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 1)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    np.testing.assert_array_equal(read(tmp_path / "a.png").interleaved(), planes)
    with Image.open(tmp_path / "a.png") as image:  # which reads eight bits of them, but knows interlacing
        high = np.asarray(image.convert({2: "LA", 3: "RGB", 4: "RGBA"}[channels]))
        np.testing.assert_array_equal(high.reshape(*size, channels), planes >> 8)


def test_animation(tmp_path):
    frames = [Image.fromarray(noise(4, 4, 3, "uint8", seed)) for seed in range(2)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    refused(tmp_path / "a.png", "animation", "one frame")


def test_tiff_of_several_pages(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 8, 8), np.uint8), photometric="minisblack", metadata=None)
    refused(tmp_path / "a.tif", "3 pages", "open_source")
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((3, 8, 8), np.uint8), imagej=True)
    refused(tmp_path / "b.tif", "3 pages")


def test_tiff_that_declares_too_much(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((8, 8), np.uint8), metadata=None)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        file.pages[0].tags["ImageWidth"].overwrite(100_000)
        file.pages[0].tags["ImageLength"].overwrite(100_000)
    refused(tmp_path / "a.tif", "declares 100000 × 100000 pixels")


def test_tiff_strip_that_grows_without_end(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((16_000, 16_000), np.uint8), compression="zlib", rowsperstrip=16_000)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        for name, value in (("ImageWidth", 100), ("ImageLength", 100), ("RowsPerStrip", 100)):
            file.pages[0].tags[name].overwrite(value)
    refused(tmp_path / "a.tif", "grow far beyond")


def test_jpeg_that_declares_too_much(tmp_path):
    write(tmp_path / "a.jpg", picture_of(noise(8, 8, 3, "uint8")))
    data = bytearray((tmp_path / "a.jpg").read_bytes())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 60_000, 60_000)
    (tmp_path / "a.jpg").write_bytes(data)
    refused(tmp_path / "a.jpg", "exceeds limit", "Crop or tile")


def test_a_large_file_under_the_limit_is_read_without_a_warning(tmp_path):
    Image.new("1", (10_000, 9_000)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png").size == (9_000, 10_000)


@pytest.mark.parametrize("mode", ["CMYK", "LAB"])
def test_colours_that_are_not_rgb(tmp_path, mode):
    Image.new(mode, (8, 8)).save(tmp_path / "a.tif")
    refused(tmp_path / "a.tif", "colours", "RGB")


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("channels", [2, 5])
def test_channels_that_are_no_colours_are_planes(tmp_path, planar, channels):
    planes = noise(8, 9, channels, "uint16")
    stored = np.moveaxis(planes, -1, 0) if planar else planes
    config = "separate" if planar else "contig"
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", planarconfig=config, metadata=None)
    refused(tmp_path / "a.tif", f"{channels} pages", "open_source")
    with open_source(tmp_path / "a.tif") as source:
        assert (source.planes, source.axes, source.layout) == (channels, "S", "grey")
        for plane in range(channels):
            np.testing.assert_array_equal(source.read(plane).pixels, planes[..., plane])


# --- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "channels", "remedy"),
    [
        ("a.jpg", "uint16", 3, "Write a.png instead"),
        ("a.jpg", "uint8", 4, "Write a.png instead"),
        ("a.png", "float32", 1, "Write a.tif instead"),
        ("a.jpg", "float32", 3, "Write a.tif instead"),
        ("a.tif", "int64", 1, "Write a.fits instead"),
        ("a.tif", "int64", 3, "Convert the picture"),
    ],
)
def test_formats_refuse_what_they_cannot_hold(tmp_path, name, dtype, channels, remedy):
    picture = picture_of(noise(4, 4, channels, dtype))
    for attempt in (write, check_output):
        with pytest.raises(FileError, match=remedy):
            attempt(tmp_path / name, picture)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be(tmp_path):
    picture = picture_of(noise(4, 4, 3, "uint8"))
    for name, reason in [
        ("a.gif", "unknown suffix '.gif'"),
        ("a", "no suffix"),
        ("none/a.png", "does not exist. Create it first: mkdir -p"),
        ("folder.png", "is a folder"),
        ("file/a.png", "is a file, not a folder"),
    ]:
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        (tmp_path / "file").touch()
        with pytest.raises(FileError, match=reason):
            write(tmp_path / name, picture)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("bug")])
@pytest.mark.parametrize("existing", [b"old", None])
def test_a_failure_while_writing_leaves_what_was_there(tmp_path, monkeypatch, failure, existing):
    if existing is not None:
        (tmp_path / "a.png").write_bytes(existing)

    def fail(stream, planes, meta):
        stream.write(b"half of it")
        stream.flush()
        raise failure

    monkeypatch.setattr(png, "encode", fail)
    expected = FileError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected, match="No space left" if expected is FileError else None):
        write(tmp_path / "a.png", picture_of(noise(4, 4, 3, "uint8")))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([] if existing is None else [existing])


def test_a_failure_of_the_last_step_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"old")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FileError, match="Input/output error"):
        write(tmp_path / "a.png", picture_of(noise(4, 4, 3, "uint8")))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_whole_file_keeps_rights_and_links(tmp_path):
    (tmp_path / "true.txt").write_text("old")
    (tmp_path / "true.txt").chmod(0o640)
    (tmp_path / "link.txt").symlink_to("true.txt")
    with whole_file(tmp_path / "link.txt") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt"
        temporary.write_text("new")
        assert (tmp_path / "true.txt").read_text() == "old"
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "true.txt").read_text() == "new"
    assert (tmp_path / "true.txt").stat().st_mode & 0o777 == 0o640


def test_a_new_file_gets_the_usual_rights(tmp_path):
    write(tmp_path / "a.png", picture_of(noise(4, 4, 1, "uint8")))
    (tmp_path / "b").touch()
    assert (tmp_path / "a.png").stat().st_mode == (tmp_path / "b").stat().st_mode


# --- kernels and masks ---------------------------------------------------------------------------------------------

KERNEL = np.array([[0.1, 0.2, 0.1], [0.1, 0.3, 0.2]])


def test_kernels_from_arrays_and_tables_are_divided_by_their_sum(tmp_path):
    np.save(tmp_path / "a.npy", KERNEL * 2283)
    np.testing.assert_allclose(read_psf(tmp_path / "a.npy"), KERNEL, rtol=1e-15)
    np.save(tmp_path / "a.npy", KERNEL)
    np.testing.assert_array_equal(read_psf(tmp_path / "a.npy"), KERNEL)
    for name, apart in [("a.csv", ","), ("b.csv", ";"), ("a.txt", " "), ("b.txt", "\t")]:
        lines = ["# a kernel", *(apart.join(map(str, row)) for row in KERNEL), ""]
        (tmp_path / name).write_text("\n".join(lines))
        np.testing.assert_array_equal(read_psf(tmp_path / name), KERNEL)


@pytest.mark.parametrize(("name", "dtype"), [("a.png", "uint8"), ("a.png", "uint16"), ("a.tif", "float32")])
@pytest.mark.parametrize("channels", [1, 3])
def test_kernels_from_images_sum_to_one(tmp_path, name, dtype, channels):
    values = (KERNEL * 100).astype(dtype)[..., None].repeat(channels, axis=-1)
    write(tmp_path / name, picture_of(values))
    np.testing.assert_allclose(read_psf(tmp_path / name), KERNEL / KERNEL.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"1,2\n3\n", "rows of one length"),
        ("a.csv", b"1,x\n", "not a number"),
        ("a.csv", b"# nothing\n", "holds no numbers"),
        ("a.csv", b"\xff\xfe\x00", "is not text"),
        ("a.csv", b"1,nan\n", "NaN"),
        ("a.csv", b"1,-1\n", "sum to 0"),
        ("a.csv", b"", "is empty"),
        ("a.npy", b"\x93NUMPY\x01\x00garbage", "cannot be decoded as NumPy"),
        ("a.mat", b"MATLAB", "not a kernel that slir can read"),
    ],
)
def test_bad_kernels(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=reason):
        read_psf(tmp_path / name)


@pytest.mark.parametrize(
    ("array", "reason"), [(np.zeros(3), "shape"), (np.zeros((2, 2), complex), "numbers"), (np.zeros((0, 2)), "shape")]
)
def test_arrays_that_are_no_kernels(tmp_path, array, reason):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FileError, match=reason):
        read_psf(tmp_path / "a.npy")


def test_pickles_are_never_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(FileError, match="cannot be decoded"):
        read_psf(tmp_path / "a.npy")


def test_kernel_images_that_cannot_be(tmp_path):
    write(tmp_path / "black.png", picture_of(np.zeros((3, 3, 1), np.uint8)))
    write(tmp_path / "colour.png", picture_of(noise(3, 3, 3, "uint8")))
    with pytest.raises(FileError, match="sum to 0"):
        read_psf(tmp_path / "black.png")
    with pytest.raises(FileError, match="in colour"):
        read_psf(tmp_path / "colour.png")


def test_masks_of_every_kind(tmp_path):
    missing = np.zeros((5, 7), bool)
    missing[1:3, 2:6] = True
    grey = missing.astype(np.uint8)
    write(tmp_path / "ones.png", picture_of(grey[..., None]))
    write(tmp_path / "full.tif", picture_of(grey[..., None] * np.uint8(255)))
    write(tmp_path / "colour.png", picture_of(np.stack([grey * 200, grey * 0, grey * 0], -1)))
    see_through = np.stack([np.full_like(grey, 255)] * 3 + [grey * 255], -1)
    write(tmp_path / "alpha.png", picture_of(see_through))
    Image.fromarray(missing).save(tmp_path / "bit.png")
    np.save(tmp_path / "array.npy", missing)
    for name in ("ones.png", "full.tif", "colour.png", "alpha.png", "bit.png", "array.npy"):
        found = read_mask(tmp_path / name, (5, 7))
        assert found.dtype == bool
        np.testing.assert_array_equal(found, missing, err_msg=name)


def test_bad_masks(tmp_path):
    write(tmp_path / "a.png", picture_of(noise(5, 7, 1, "uint8") // 128))
    write(tmp_path / "all.png", picture_of(np.ones((5, 7, 1), np.uint8)))
    write(tmp_path / "a.jpg", picture_of(noise(16, 16, 1, "uint8")))
    np.save(tmp_path / "a.npy", np.zeros((5, 7, 2)))
    for name, shape, reason in [
        ("a.png", (5, 8), "has 7 × 5 pixels, but the image has 8 × 5"),
        ("a.png", (7, 5), "Rotate it"),
        ("all.png", (5, 7), "every pixel"),
        ("a.jpg", (16, 16), "Save the mask as PNG"),
        ("a.npy", (5, 7), "not a mask"),
        ("none.png", (5, 7), "does not exist"),
    ]:
        with pytest.raises(FileError, match=reason):
            read_mask(tmp_path / name, shape)


def test_pictures_tell_their_layout():
    assert Picture(np.zeros((2, 3))).layout == "grey"
    assert Picture(np.zeros((2, 3))).size == (2, 3)


# --- rarer TIFF files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["lzw", "packbits", "lzma", "zstd"])
@pytest.mark.parametrize("layout", ["grey", "RGBA"])
def test_tiff_is_unpacked_without_imagecodecs_too(tmp_path, monkeypatch, compression, layout):
    planes = noise(40, 30, LAYOUTS[layout], "uint16")
    how = {"photometric": "rgb", "extrasamples": ["unassalpha"]} if layout == "RGBA" else {}
    predictor = compression in ("lzw", "zstd")
    tifffile.imwrite(
        tmp_path / "a.tif", planes.squeeze(), compression=compression, predictor=predictor, rowsperstrip=7, **how
    )
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    if compression == "zstd" and int(PIL.__version__.split(".")[0]) < 12:
        refused(tmp_path / "a.tif", "zstd", "Pillow 12", "slir[codecs]")
    else:
        np.testing.assert_array_equal(read(tmp_path / "a.tif").interleaved(), planes)


def test_a_rare_compression_asks_for_imagecodecs(tmp_path, monkeypatch):
    planes = noise(40, 30, 3, "uint8")
    tifffile.imwrite(tmp_path / "a.tif", planes, photometric="rgb", compression="jpeg2000", tile=(16, 16))
    np.testing.assert_array_equal(read(tmp_path / "a.tif").pixels, planes)
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    refused(tmp_path / "a.tif", "JPEG 2000", "pip install 'slir[codecs]'")


@pytest.mark.parametrize("compression", ["group3", "group4", "tiff_ccitt", "packbits"])
def test_fax(tmp_path, compression):
    bits = noise(25, 33, 1, "uint8")[..., 0] > 128
    Image.fromarray(bits).save(tmp_path / "a.tif", compression=compression)
    picture = read(tmp_path / "a.tif")
    white = 255 * bits.astype(np.uint8)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        inverted = file.pages[0].photometric == 0
    np.testing.assert_array_equal(picture.pixels, 255 - white if inverted else white)


@pytest.mark.parametrize("bits", [2, 4])
def test_tiff_of_few_bits(tmp_path, bits):
    grey = noise(9, 11, 1, "uint8")[..., 0] >> (8 - bits)
    tifffile.imwrite(tmp_path / "a.tif", grey, bitspersample=bits, metadata=None)
    np.testing.assert_array_equal(read(tmp_path / "a.tif").pixels, grey * (255 // (2**bits - 1)))


def test_pages_of_different_sizes_are_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for side in (8, 9):
            file.write(np.zeros((side, side), np.uint8), metadata=None)
    refused(tmp_path / "a.tif", "pages of different sizes", "page 2")


def test_thumbnails_are_left_out_and_said_so(tmp_path):
    pixels = noise(32, 32, 1, "uint8")[..., 0]
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        file.write(pixels[::4, ::4], subfiletype=1, metadata=None)
        file.write(pixels, metadata=None, subifds=1)
        file.write(pixels[::2, ::2], subfiletype=1, metadata=None)
    picture = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert "smaller copies" in picture.notes[0]


def test_one_page_with_the_description_of_a_stack(tmp_path):
    pixels = noise(20, 20, 1, "uint8")[..., 0]
    tifffile.imwrite(tmp_path / "a.tif", pixels, description="ImageJ=1.53t\nimages=7\nslices=7\n", metadata=None)
    picture = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert "7 pages, but there is one" in picture.notes[0]


def test_an_ome_tiff_of_several_files_is_refused(tmp_path):
    uuids = [f"urn:uuid:{k}1111111-2222-3333-4444-555555555555" for k in range(2)]
    parts = "".join(f'<TiffData><UUID FileName="{k}.ome.tif">{uuid}</UUID></TiffData>' for k, uuid in enumerate(uuids))
    text = f'<?xml version="1.0"?><OME UUID="{uuids[0]}"><Image><Pixels SizeZ="2">{parts}</Pixels></Image></OME>'
    tifffile.imwrite(tmp_path / "0.ome.tif", np.zeros((8, 8), np.uint8), description=text, metadata=None)
    refused(tmp_path / "0.ome.tif", "one of several files", "OME-TIFF")


# --- folders -------------------------------------------------------------------------------------------------------


def test_zarr_stores_that_hold_no_image(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    refused(tmp_path / "a.zarr", "no Zarr metadata")
    for name, attributes, words in (
        ("plate.zarr", {"plate": {}}, "plate.zarr/A/1/0"),
        ("series.zarr", {"bioformats2raw.layout": 3}, "series.zarr/0"),
        ("other.zarr", {}, "name one of the arrays"),
        ("axes.zarr", {"multiscales": [{"axes": ["y", "x", "c"], "datasets": [{"path": "0"}]}]}, "end in y and x"),
        ("out.zarr", {"multiscales": [{"axes": ["y", "x"], "datasets": [{"path": "../0"}]}]}, "outside"),
    ):
        zarr.open_group(tmp_path / name, mode="w", zarr_format=2).attrs.update(attributes)
        refused(tmp_path / name, words)


def test_an_image_inside_a_zarr_store_can_be_named(tmp_path):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w")
    pixels = noise(8, 9, 1, "uint16")[..., 0]
    root.create_array("0", data=pixels)
    np.testing.assert_array_equal(read(tmp_path / "a.zarr" / "0").pixels, pixels)


def test_a_folder_that_is_no_store_is_never_replaced(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileError, match="is a folder"):
        write(tmp_path / "a.zarr", picture_of(noise(8, 9, 1, "uint16")))
    assert (tmp_path / "a.zarr" / "thesis.txt").exists()


# --- EXIF ----------------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_exif_block_never_stops_the_pixels(data):
    block = bytearray(META.exif or b"")
    for _ in range(data.draw(st.integers(0, 6))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(block[: data.draw(st.integers(0, len(block)))])
    assert exif.orientation(damaged) in range(1, 9)
    exif.resolution(damaged)
    scaled = exif.block(Meta(exif=damaged, scale=2.0))
    assert scaled is not None
    assert len(scaled) == len(damaged)
    tiff_meta.exif_tags(damaged)


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_and_resolution_in_either_byte_order(order):
    tags = Image.Exif()
    tags.endian = order
    tags[0x0112], tags[0x011A], tags[0x011B], tags[0x0128] = 8, 300.0, 150.0, 3
    block = tags.tobytes()[6:]
    assert exif.orientation(block) == 8
    assert exif.resolution(block) == Resolution(300, 150, "cm")
    assert exif.resolution(exif.block(Meta(exif=block, scale=2.0))) == Resolution(600, 300, "cm")
