"""Every file of the corpus, copied by windows: same pixels, same dtype, same metadata, by others' readers too."""

import os
import resource
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits
from PIL import Image

import corpus
from slir import io
from slir.errors import FileError
from slir.io import exif, tiff_codec

#: Tags of TIFF that say where and how pixels are stored, and not what they mean.
STRUCTURE = {
    256,
    257,
    258,
    259,
    262,
    273,
    277,
    278,
    279,
    284,
    317,
    322,
    323,
    324,
    325,
    338,
    339,
    347,
    530,
    532,
    34665,
    34853,
}


def windows(size, band, across):
    """Windows that tile a plane, as a sink wants them."""
    for top in range(0, size[0], band):
        for left in range(0, size[1], across):
            yield slice(top, min(top + band, size[0])), slice(left, min(left + across, size[1]))


def enlarged(picture, scale):
    def finer(plane):
        return None if plane is None else plane.repeat(scale, axis=0).repeat(scale, axis=1)

    return picture.with_pixels(finer(picture.pixels), alpha=finer(picture.alpha)) if scale > 1 else picture


def copied(source_path, path, *, band=11, across=19, scale=1, history=()):
    with (
        io.open_source(source_path) as source,
        io.create(path, source, scale=scale, history=history) as sink,
    ):
        for plane in range(source.planes):
            for rows, cols in windows(source.size, band, across):
                finer = [slice(scale * span.start, scale * span.stop) for span in (rows, cols)]
                window = enlarged(source.read(plane, rows, cols), scale)
                sink.write(window, plane=plane, rows=finer[0], cols=finer[1])


def all_planes(path):
    with io.open_source(path) as source:
        return source.head, [source.read(plane) for plane in range(source.planes)]


def same_planes(one, other):
    np.testing.assert_array_equal(one.pixels, other.pixels)
    assert (one.pixels.dtype, one.layout) == (other.pixels.dtype, other.layout)
    if one.alpha is not None:
        np.testing.assert_array_equal(one.alpha, other.alpha)


def test_the_corpus_is_large():
    assert len(corpus.CASES) >= 200


@pytest.mark.parametrize("name", corpus.CASES)
def test_round_trip(tmp_path, name):
    before = corpus.make(name, tmp_path)
    (tmp_path / "out").mkdir()
    after = tmp_path / "out" / name
    copied(before, after)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name], "nothing is left beside the file"
    head, planes = all_planes(before)
    new_head, new_planes = all_planes(after)
    for field in ("size", "dtype", "layout", "axes", "shape", "data_range"):
        assert getattr(new_head, field) == getattr(head, field), field
    for field in ("icc", "exif", "xmp", "orientation", "resolution", "premultiplied", "text"):
        assert getattr(new_head.meta, field) == getattr(head.meta, field), field
    lossy = name.endswith((".jpg", "lossy.webp", ".avif"))
    for plane, new_plane in zip(planes, new_planes):
        if lossy:
            assert np.abs(plane.interleaved().astype(int) - new_plane.interleaved()).max() <= 12
        else:
            same_planes(plane, new_plane)
    ORACLES[after.suffix](before, after)


# --- what others see in both files ---------------------------------------------------------------------------------


def same_by_pillow(before, after):
    with Image.open(before) as old, Image.open(after) as new:
        old.load()
        new.load()
        assert (old.mode, old.size, old.format) == (new.mode, new.size, new.format)
        ignored = {"jfif", "jfif_version", "progressive", "progression", "loop", "background", "timestamp", "duration"}
        for key in set(old.info) - ignored:
            wanted, found = old.info[key], new.info.get(key)
            if key == "dpi":
                assert found == pytest.approx(wanted, rel=1e-4)
            elif key == "exif":
                assert found.removeprefix(exif.PREFIX) == wanted.removeprefix(exif.PREFIX)
            elif key not in ("jfif_density", "jfif_unit") or "dpi" not in old.info:
                assert found == wanted, key
        if old.format == "JPEG":
            kept = [[part for part in image.applist if part[0] in ("APP1", "APP13")] for image in (old, new)]
            assert sorted(kept[0]) == sorted(kept[1])
        if old.format == "PNG":
            assert private_chunks(before) == private_chunks(after)
        if old.format in ("PNG", "BMP") or "lossless" in before.name:
            np.testing.assert_array_equal(np.asarray(old), np.asarray(new))


def private_chunks(path):
    data = path.read_bytes()
    return [data[at - 4 : at + 10] for at in range(len(data)) if data.startswith(b"prVt", at)]


def same_by_tifffile(before, after):
    with tifffile.TiffFile(before) as old, tifffile.TiffFile(after) as new:
        assert (old.byteorder, old.is_bigtiff) == (new.byteorder, new.is_bigtiff)
        assert [(one.axes, one.shape, one.dtype) for one in old.series] == [
            (one.axes, one.shape, one.dtype) for one in new.series
        ]
        np.testing.assert_array_equal(old.asarray(), new.asarray())
        assert len(old.pages) == len(new.pages)
        for one, other in ((a.aspage(), b.aspage()) for a, b in zip(old.pages, new.pages)):
            kept = [{tag.code: tag for tag in page.tags if tag.code not in STRUCTURE} for page in (one, other)]
            assert kept[0].keys() - {254} == kept[1].keys() - {254}
            assert one.subfiletype == other.subfiletype
            for code in kept[1]:
                assert kept[0][code].dtype == kept[1][code].dtype
                np.testing.assert_equal(kept[0][code].value, kept[1][code].value)
            assert (one.planarconfig, one.extrasamples) == (other.planarconfig, other.extrasamples)
            assert one.photometric == other.photometric or one.photometric == 6, "but YCbCr of JPEG becomes RGB"
            assert (one.is_tiled, one.tile) == (other.is_tiled, other.tile)
            assert (one.compression == 1) == (other.compression == 1)
            for code in (34665, 34853):  # tifffile reads the directory that the tag points to
                assert one.tags.valueof(code) == other.tags.valueof(code)
        assert old.imagej_metadata is None or set(old.imagej_metadata) == set(new.imagej_metadata)


def same_by_astropy(before, after):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fits.open(before) as old, fits.open(after) as new:
            new.verify("exception")
            assert len(old) == len(new)
            for one, other in zip(old, new):
                assert (one.name, one.shape if one.is_image else 0) == (other.name, other.shape if one.is_image else 0)
                ignored = ("CHECKSUM", "DATASUM", "EXTNAME") if "packed" in before.name else ("CHECKSUM", "DATASUM")
                cards = [[card for card in part.header.cards if card[0] not in ignored] for part in (one, other)]
                assert [tuple(card) for card in cards[0]] == [tuple(card) for card in cards[1]]
                if one.data is not None:
                    assert one.data.dtype.newbyteorder("=") == other.data.dtype.newbyteorder("=")
                    np.testing.assert_array_equal(one.data, other.data)


def same_by_zarr(before, after):
    old, new = zarr.open(before, mode="r"), zarr.open(after, mode="r")
    assert dict(old.attrs) == dict(new.attrs)
    if isinstance(old, zarr.Array):
        assert old.metadata == new.metadata
        np.testing.assert_array_equal(old[:], new[:])
        return
    assert sorted(name for name, _ in old.members(max_depth=None)) == sorted(
        name for name, _ in new.members(max_depth=None)
    )
    for name, one in old.members(max_depth=None):
        assert one.metadata == new[name].metadata
        if isinstance(one, zarr.Array) and name not in ("1", "2"):
            np.testing.assert_array_equal(one[:], new[name][:])
    finest = new["0"][:].astype(float)[..., : corpus.HEIGHT // 2 * 2, : corpus.WIDTH // 2 * 2]
    means = finest.reshape(*finest.shape[:-2], finest.shape[-2] // 2, 2, -1, 2).mean(axis=(-3, -1))
    wanted = means if new["1"].dtype.kind == "f" else np.rint(means)
    np.testing.assert_allclose(new["1"][:], wanted, rtol=1e-6)


ORACLES = {
    ".png": same_by_pillow,
    ".jpg": same_by_pillow,
    ".webp": same_by_pillow,
    ".avif": same_by_pillow,
    ".bmp": same_by_pillow,
    ".tif": same_by_tifffile,
    ".fits": same_by_astropy,
    ".zarr": same_by_zarr,
}


# --- larger pictures -----------------------------------------------------------------------------------------------


def test_ome_tiff_of_twice_the_size(tmp_path):
    copied(corpus.make("hyper.ome.tif", tmp_path), tmp_path / "b.ome.tif", scale=2)
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as file:
        assert file.series[0].axes == "TCYX"
        assert file.series[0].shape == (2, 3, 2 * corpus.HEIGHT, 2 * corpus.WIDTH)
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]
    assert (pixels["SizeX"], pixels["SizeY"]) == (2 * corpus.WIDTH, 2 * corpus.HEIGHT)
    assert (pixels["PhysicalSizeX"], pixels["PhysicalSizeY"]) == (0.05, 0.1)
    assert [channel["Name"] for channel in pixels["Channel"]] == ["a", "b", "c"]


def ome_xml(path):
    with tifffile.TiffFile(path) as file:
        return file.ome_metadata


def test_ome_tiff_names_itself_and_not_the_file_that_it_came_from(tmp_path):
    old = "urn:uuid:11111111-2222-3333-4444-555555555555"
    text = (
        f'<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{old}">'
        f'<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="{corpus.WIDTH}" '
        f'SizeY="{corpus.HEIGHT}" SizeC="1" SizeZ="1" SizeT="1"><TiffData IFD="0" PlaneCount="1">'
        f'<UUID FileName="a.ome.tif">{old}</UUID></TiffData></Pixels></Image></OME>'
    )
    corpus.tiff(tmp_path / "a.ome.tif", corpus.noise(1, "uint16"), description=text)
    for name in ("b.ome.tif", "c.ome.tif"):
        copied(tmp_path / "a.ome.tif", tmp_path / name)
    found = [ome_xml(tmp_path / name) for name in ("b.ome.tif", "c.ome.tif")]
    assert 'FileName="b.ome.tif"' in found[0]
    assert old not in found[0]
    assert found[0] == found[1].replace("c.ome.tif", "b.ome.tif"), "the same work gives the same bytes"
    (tmp_path / "d").mkdir()
    copied(tmp_path / "a.ome.tif", tmp_path / "d" / "a.ome.tif")
    assert ome_xml(tmp_path / "d" / "a.ome.tif") == text


def test_an_ome_tiff_with_a_damaged_identifier_still_names_itself(tmp_path):
    damaged = f"urn:uuid:{'1' * 36}"
    text = f'<OME><Pixels><TiffData><UUID FileName="a.ome.tif">{damaged}</UUID></TiffData></Pixels></OME>'
    corpus.tiff(tmp_path / "a.ome.tif", corpus.noise(1, "uint16"), description=text)
    copied(tmp_path / "a.ome.tif", tmp_path / "b.ome.tif")
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as file:
        assert file.pages[0].description == text.replace("a.ome", "b.ome")


def test_imagej_stack_of_three_times_the_size(tmp_path):
    copied(corpus.make("imagej-hyper.tif", tmp_path), tmp_path / "b.tif", scale=3)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert (file.series[0].axes, file.series[0].shape[-2:]) == ("ZCYX", (3 * corpus.HEIGHT, 3 * corpus.WIDTH))
        assert file.imagej_metadata["spacing"] == 0.3
        assert file.imagej_metadata["Labels"] == corpus.IMAGEJ["Labels"]
        assert [page.aspage().resolution for page in file.pages] == [(24.0, 24.0)] * 6


SHAPED = {
    "axes": ((2, 3, 36, 44), {"metadata": {"axes": "TZYX", "note": "kept"}}, "TZYX", (2, 3, 72, 88)),
    "axes of one": ((1, 3, 1, 36, 44), {"metadata": {"axes": "TZCYX"}}, "TZCYX", (1, 3, 1, 72, 88)),
    "hidden": ((5, 36, 44), {"truncate": True}, "QYX", (5, 72, 88)),
    "hidden cube": ((36, 36, 36), {"truncate": True}, "QYX", (36, 72, 72)),
    "hidden RGB": ((5, 36, 44, 3), {"truncate": True, "photometric": "rgb"}, "QYXS", (5, 72, 88, 3)),
    "hidden planar RGB": (
        (5, 3, 36, 44),
        {"truncate": True, "photometric": "rgb", "planarconfig": "separate"},
        "QSYX",
        (5, 3, 72, 88),
    ),
    "hidden palette": (
        (5, 36, 44),
        {"truncate": True, "photometric": "palette", "colormap": np.arange(768).reshape(3, 256).astype(np.uint16) * 80},
        "QYXS",
        (5, 72, 88, 3),
    ),
    "hidden interleaved channels": (
        (2, 36, 44, 5),
        {"truncate": True, "planarconfig": "contig"},
        "QSYX",
        (2, 5, 72, 88),
    ),
    "channels": ((5, 36, 44), {"planarconfig": "separate"}, "SYX", (5, 72, 88)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_tifffile_stack_of_twice_the_size(tmp_path, name):
    """What tifffile notes of an array's shape is how it finds planes that have no directory of their own."""
    shape, how, axes, wanted = SHAPED[name]
    pixels = (np.arange(np.prod(shape)) % 251).astype(np.uint8).reshape(shape)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **{"photometric": "minisblack"} | how)
    for scale in (1, 2):
        copied(tmp_path / "a.tif", tmp_path / "b.tif", scale=scale)
        with io.open_source(tmp_path / "a.tif") as before, io.open_source(tmp_path / "b.tif") as after:
            assert (after.planes, after.axes, after.shape) == (before.planes, before.axes, before.shape)
            planes = [(before.read(k), after.read(k)) for k in range(before.planes)]
        for old, new in planes:
            same_planes(enlarged(old, scale), new)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert (file.series[0].axes, file.series[0].shape) == (axes, wanted)
        seen = file.asarray()
        assert "note" not in how.get("metadata", {}) or file.shaped_metadata[0]["note"] == "kept"
    colours = [axis for axis, letter in enumerate(axes) if letter == "S"] if planes[0][1].channel_axis else []
    seen = np.moveaxis(seen, colours, [-1] * len(colours))
    np.testing.assert_array_equal(seen.reshape(-1, *planes[0][1].pixels.shape), [new.pixels for _, new in planes])


@pytest.mark.parametrize("suffix", [".tif", ".fits", ".zarr", ".png", ".jpg", ".webp"])
@pytest.mark.parametrize("fault", ["size", "dtype", "colour", "shape"])
def test_a_file_that_does_not_hold_what_was_written_is_not_put_in_place(tmp_path, suffix, fault):
    colour = suffix == ".webp"
    head = io.Head((20, 30), np.dtype(np.uint8), colour)
    picture = io.Picture(np.full((20, 30, 3) if colour else (20, 30), 7, np.uint8), -1 if colour else None)
    path = tmp_path / f"a{suffix}"
    with io.create(path, head) as sink:
        sink.write(picture)
    _, (old,) = all_planes(path)
    claims = {"size": (21, 30), "dtype": np.dtype(np.uint16), "colour": not colour, "shape": (2,)}

    def attempt():
        with io.create(path, head) as sink:
            sink.write(picture)
            sink._plane = 2
            sink.head = replace(head, **{fault: claims[fault]})

    with pytest.raises(FileError, match=r"was not written, since the new file would hold .* instead of .*bug in slir"):
        attempt()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    same_planes(all_planes(path)[1][0], old)


def test_a_stack_whose_planes_nobody_would_find_is_not_put_in_place(tmp_path, monkeypatch):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 36, 44), np.uint16), truncate=True, photometric="minisblack")
    monkeypatch.setattr("slir.io.tiff_text.reshaped", lambda *given, **named: "")
    with pytest.raises(FileError, match=r"would hold one plane of 88 × 72 .* instead of 5 planes of 88 × 72"):
        copied(tmp_path / "a.tif", tmp_path / "b.tif", scale=2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]


def test_a_file_that_cannot_be_read_again_is_not_put_in_place(tmp_path, monkeypatch):
    before = corpus.make("uint8-grey-all.png", tmp_path)
    monkeypatch.setattr("slir.io.png_codec.encode", lambda planes: b"")
    with pytest.raises(FileError, match=r"b\.png: was not written, since .* cannot be read \(holds no pixels"):
        copied(before, tmp_path / "b.png")
    assert [path.name for path in tmp_path.iterdir()] == [before.name]


def test_a_file_that_is_too_large_for_slir_itself_is_written_all_the_same(tmp_path, monkeypatch):
    before = corpus.make("uint8-grey-all.png", tmp_path)
    with io.open_source(before) as source, io.create(tmp_path / "b.png", source, scale=2) as sink:
        sink.write(enlarged(source.read(), 2))
        for module in ("picture", "png"):
            monkeypatch.setattr(f"slir.io.{module}.MAX_PIXELS", 2 * corpus.HEIGHT * corpus.WIDTH)
    with pytest.raises(FileError, match="the most is"):
        io.open_source(tmp_path / "b.png")


def test_each_page_keeps_its_resolution_when_it_grows(tmp_path):
    copied(corpus.make("pages.tif", tmp_path), tmp_path / "b.tif", scale=2)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert [page.aspage().resolution for page in file.pages] == [(200 + 2 * k, 100) for k in range(4)]
        assert [page.aspage().description for page in file.pages] == [f"page {k}" for k in range(4)]


def test_geography_of_twice_the_size(tmp_path):
    copied(corpus.make("geography.tif", tmp_path), tmp_path / "b.tif", scale=2)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert file.pages[0].tags[33550].value == (0.25, 0.25, 0.0)
        assert file.pages[0].tags[33922].value[3:5] == (440720.0, 3751320.0)


@pytest.mark.parametrize("name", ["RGB-all.jpg", "exif-RGB.tif", "uint8-RGB-all.png", "RGB-all-lossless.webp"])
def test_exif_of_twice_the_size(tmp_path, name):
    before = corpus.make(name, tmp_path)
    after = tmp_path / f"b{before.suffix}"
    copied(before, after, scale=2)
    with Image.open(before) as old, Image.open(after) as new:
        tags, new_tags = old.getexif(), new.getexif()
        inner, new_inner = tags.get_ifd(0x8769), new_tags.get_ifd(0x8769)
        assert (new_inner[0xA002], new_inner[0xA003]) == (2 * corpus.WIDTH, 2 * corpus.HEIGHT)
        assert new_inner[0x927C] == inner[0x927C]
        assert new_tags.get_ifd(0x8825) == tags.get_ifd(0x8825)
        assert new_tags[0x0112] == 6


@pytest.mark.parametrize("matrix", ["CDELT", "CD", "PC", "PC3"])
@pytest.mark.parametrize("centred", [True, False])
def test_places_on_the_sky_stay_when_a_fits_picture_grows(tmp_path, matrix, centred):
    from astropy.wcs import WCS

    cards = corpus.header()
    if matrix == "CD":
        del cards["CDELT1"], cards["CDELT2"]
        cards["CD1_1"], cards["CD1_2"], cards["CD2_1"], cards["CD2_2"] = -0.001, 2e-4, 2e-4, 0.001
    elif matrix.startswith("PC"):
        cards["PC1_1"], cards["PC1_2"], cards["PC2_1"], cards["PC2_2"] = 0.8, -0.6, 0.6, 0.8
    if matrix != "PC3":  # astropy knows distortions in two dimensions only
        cards["CTYPE1"], cards["CTYPE2"] = "RA---TAN-SIP", "DEC--TAN-SIP"
        cards["A_ORDER"], cards["B_ORDER"], cards["A_2_0"], cards["B_1_1"] = 2, 2, 1e-4, 2e-4
    pixels = corpus.stack((2,), "float32") if matrix == "PC3" else corpus.stack((), "float32")
    if matrix == "PC3":
        cards["CTYPE3"], cards["CRPIX3"], cards["CRVAL3"], cards["CDELT3"] = "WAVE", 1.0, 5e-7, 1e-9
        cards["PC3_1"] = 0.1
    fits.PrimaryHDU(pixels, cards).writeto(tmp_path / "a.fits")
    with (
        io.open_source(tmp_path / "a.fits") as source,
        io.create(tmp_path / "b.fits", source, scale=2, centred=centred, history=["twice"]) as sink,
    ):
        for plane in range(source.planes):
            sink.write(enlarged(source.read(plane), 2), plane=plane)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of astropy, on axes that it would name otherwise
        old, new = (WCS(fits.getheader(tmp_path / name)) for name in ("a.fits", "b.fits"))
    for x, y in ((0, 0), (10, 3), (44, 36)):
        finer = [2 * at + (0.5 if centred else 0) for at in (x, y)]
        third = [0] * (old.naxis - 2)
        np.testing.assert_allclose(new.all_pix2world([[*finer, *third]], 0), old.all_pix2world([[x, y, *third]], 0))
    assert list(fits.getheader(tmp_path / "b.fits")["HISTORY"]) == ["taken at night", "twice"]


@pytest.mark.parametrize("card", ["END     =                    1", "END = 1", "END     / of the first part"])
@pytest.mark.parametrize("other", ["FOCUS   =                   12", "FOCUS   = about 12 µm"])
def test_an_end_in_the_middle_of_a_fits_header_is_refused(tmp_path, card, other):
    """Cards behind it were lost, BZERO among them, and with it where zero is; or some of them were taken for pixels."""
    header = corpus.header(**{f"K{number}": number for number in range(40)})
    fits.PrimaryHDU(corpus.stack((), "uint16"), header).writeto(tmp_path / "a.fits")
    data = (tmp_path / "a.fits").read_bytes()
    at, end = 5 * 80, data.index(b"END" + b" " * 77)
    cards = card.ljust(80).encode() + other.ljust(80).encode("latin-1")
    length = -(-(end + 240) // 2880) * 2880
    before = data[:at] + cards + data[at : end + 80]
    (tmp_path / "a.fits").write_bytes(before.ljust(length) + data[-(-(end + 80) // 2880) * 2880 :])
    with pytest.raises(FileError, match="END card"):
        io.open_source(tmp_path / "a.fits")


def test_fits_cards_that_break_the_rules_stay_as_they_are(tmp_path):
    """Not ASCII, no value, lower case: astropy would mend or refuse them when it writes a header."""
    data = corpus.data_of("int16.fits", tmp_path)
    cards = ["XPIXSZ  =                  3.8 / µm", "FOCUS   = about 12 µm", "lower   = 3", "ODD     ='x"]
    end = data.index(b"END" + b" " * 77)
    text = "".join(card.ljust(80) for card in cards).encode("latin-1")
    (tmp_path / "a.fits").write_bytes(data[:end] + text + data[end : 2880 - len(text)] + data[2880:])
    copied(tmp_path / "a.fits", tmp_path / "b.fits")
    after = (tmp_path / "b.fits").read_bytes()
    at = after.index(b"DATASUM = ")  # the one card that is new
    assert after[:at] + after[at + 80 : 2880] + b" " * 80 + after[2880:] == (tmp_path / "a.fits").read_bytes()
    copied(tmp_path / "a.fits", tmp_path / "c.fits", scale=2)
    found = (tmp_path / "c.fits").read_bytes()[:2880].decode("latin-1")
    assert "XPIXSZ  =                  1.9 / µm" in found
    for card in cards[1:]:
        assert card.ljust(80) in found


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_ome_zarr_of_twice_the_size(tmp_path, version):
    copied(corpus.make(f"{version}-zyx-uint16.ome.zarr", tmp_path), tmp_path / "b.ome.zarr", scale=2)
    old, new = (zarr.open(tmp_path / name, mode="r") for name in (f"{version}-zyx-uint16.ome.zarr", "b.ome.zarr"))
    ome = new.attrs["ome"] if version == "0.5" else new.attrs
    for level, dataset in enumerate(ome["multiscales"][0]["datasets"]):
        steps, moved = (next(iter(list(t.values())[1:])) for t in dataset["coordinateTransformations"])
        assert steps == [1.0, 0.25 * 2**level, 0.125 * 2**level]
        assert moved == [0.0, 10 - 0.125 * 2**level, 20 - 0.0625 * 2**level]
        assert new[str(level)].shape[1:] == tuple(2 * side for side in old[str(level)].shape[1:])
        assert new[str(level)].chunks == old[str(level)].chunks
    np.testing.assert_array_equal(new["0"][:, ::2, 1::2], old["0"][:])
    np.testing.assert_array_equal(new["labels/nuclei"][:], old["labels/nuclei"][:])


# --- from one format to another ------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["RGB-all.jpg", "RGB-exif-MM.jpg", "uint8-RGB-all.png", "RGB-all-lossless.webp"])
@pytest.mark.parametrize("new", [".jpg", ".png", ".webp", ".tif"])
def test_exif_travels_between_formats(tmp_path, old, new):
    before = corpus.make(old, tmp_path)
    copied(before, tmp_path / f"b{new}")
    with Image.open(before) as one, Image.open(tmp_path / f"b{new}") as other:
        tags, new_tags = one.getexif(), other.getexif()
        assert new_tags[0x0112] == 6
        assert (new_tags[0x010F], new_tags[0x0110]) == ("Maker", "Model 3")
        for directory in (0x8769, 0x8825, 0xA005):
            found = [dict(block.get_ifd(directory)) for block in (tags, new_tags)]
            for block in found:
                block.pop(0xA005, None)  # only where the last directory lies in the file
            assert found[0] == found[1]
            assert found[0]
        assert other.info.get("icc_profile") == one.info.get("icc_profile")
    pictures = [io.read(path) for path in (before, tmp_path / f"b{new}")]
    assert pictures[0].size == pictures[1].size, "the pixels are never turned"
    assert pictures[0].meta.xmp == pictures[1].meta.xmp


def test_exif_of_a_tiff_goes_out_as_jpeg_and_comes_back(tmp_path):
    before = corpus.make("exif-RGB.tif", tmp_path)
    copied(before, tmp_path / "b.jpg")
    copied(tmp_path / "b.jpg", tmp_path / "c.tif")
    with Image.open(before) as old, Image.open(tmp_path / "b.jpg") as jpeg, Image.open(tmp_path / "c.tif") as new:
        for directory in (0x8769, 0x8825):
            found = [image.getexif().get_ifd(directory) for image in (old, jpeg, new)]
            assert found[0] == found[1] == found[2]
        assert [image.getexif()[0x0110] for image in (old, jpeg, new)] == ["Model 3"] * 3


@pytest.mark.parametrize("name", ["cube.fits", "imagej-hyper.tif", "0.5-zyx-float32.ome.zarr", "stack.ome.tif"])
@pytest.mark.parametrize("suffix", [".tif", ".fits", ".ome.zarr"])
def test_stacks_travel_between_formats(tmp_path, name, suffix):
    before = corpus.make(name, tmp_path)
    after = tmp_path / f"b{suffix}"
    head, planes = all_planes(before)
    copied(before, after)
    new_head, new_planes = all_planes(after)
    assert (new_head.planes, new_head.size, new_head.dtype) == (head.planes, head.size, head.dtype)
    if suffix == ".tif":
        assert (new_head.axes, new_head.shape) == (head.axes, head.shape)
    if (head.axes, new_head.axes) == ("ZC", "CZ"):
        new_planes = [new_planes[2 * c + z] for z in range(2) for c in range(3)]
    for plane, new_plane in zip(planes, new_planes):
        same_planes(plane, new_plane)


def test_the_size_of_pixels_travels_between_formats(tmp_path):
    corpus.ome_zarr(tmp_path / "a.ome.zarr", "zyx", (2,), "uint16", "0.5")  # 0.25 µm across, 0.5 µm down
    copied(tmp_path / "a.ome.zarr", tmp_path / "b.tif", scale=2)
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert (file.series[0].axes, file.pages[0].resolutionunit) == ("ZYX", 3)
        assert [page.aspage().resolution for page in file.pages] == [pytest.approx((80_000, 40_000))] * 2
    copied(tmp_path / "b.tif", tmp_path / "c.ome.zarr")
    found = zarr.open(tmp_path / "c.ome.zarr", mode="r").attrs["multiscales"][0]
    assert [axis.get("unit") for axis in found["axes"]] == [None, "micrometer", "micrometer"]
    steps = found["datasets"][0]["coordinateTransformations"][0]["scale"]
    assert steps == pytest.approx([1, 0.25, 0.125])


@pytest.mark.parametrize(
    ("name", "suffix", "reason"),
    [
        ("pages.tif", ".png", "PNG holds one picture, but there are 4 planes"),
        ("pages-rgb.tif", ".fits", "FITS holds grey planes"),
        ("uint8-RGB.tif", ".zarr", "OME-Zarr holds grey planes"),
        ("float16-grey.tif", ".fits", "float16"),
        ("uint8-grey.tif", ".webp", "WebP holds RGB"),
        ("uint16-RGB.tif", ".webp", "WebP holds 8-bit"),
        ("premultiplied.tif", ".webp", "WebP holds 8-bit"),
        ("shaped.tif", ".zarr", "OME-Zarr has axes t, c, z"),
    ],
)
def test_refusals_come_before_the_work(tmp_path, name, suffix, reason):
    with io.open_source(corpus.make(name, tmp_path)) as source:
        for attempt in (io.check_output, io.create):
            with pytest.raises(FileError, match=reason):
                attempt(tmp_path / f"b{suffix}", source)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    path = corpus.make("int16.fits", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for attempt in (lambda: io.open_source(path), lambda: io.check_output(tmp_path / "b.fits")):
        with pytest.raises(FileError, match=r"pip install 'slir\[fits\]'"):
            attempt()
    with pytest.raises(FileError, match=r"pip install 'slir\[zarr\]'"):
        io.check_output(tmp_path / "b.ome.zarr")


@pytest.mark.parametrize("place", [".zattrs", "labels/key", "0/0.0.0", "0/9.9.9", "top"])
@pytest.mark.parametrize("kind", ["link", "link to a folder", "link to itself", "pipe"])
def test_a_zarr_store_that_leads_elsewhere_is_refused(tmp_path, place, kind):
    """What lies outside would be copied into the result, a circle would fill the disk, a pipe would be waited for."""
    store = corpus.make("0.4-zyx-uint8.ome.zarr", tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("{}")
    path = store / place
    path.unlink(missing_ok=True)
    targets = {"link": tmp_path / "secret" / "key", "link to a folder": tmp_path / "secret", "link to itself": "."}
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(targets[kind])
    what = "no file or folder" if kind == "pipe" else "a link"
    with pytest.raises(FileError, match=f"is no store of plain files: {place} in it is {what}"):
        io.open_source(store)


def test_a_link_that_comes_after_a_zarr_store_was_opened_is_not_copied(tmp_path):
    store = corpus.make("0.4-zyx-uint8.ome.zarr", tmp_path)
    (tmp_path / "key").write_text("secret")
    with io.open_source(store) as source:
        (store / "labels" / "key").symlink_to(tmp_path / "key")
        with pytest.raises(FileError, match="labels/key in it is a link"), io.create(tmp_path / "b.zarr", source):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [store.name, "key"]


def test_a_zarr_store_may_itself_be_named_by_a_link(tmp_path):
    (tmp_path / "a.zarr").symlink_to(corpus.make("0.5-zyx-uint8.ome.zarr", tmp_path))
    copied(tmp_path / "a.zarr", tmp_path / "b.zarr", scale=2)
    _, planes = all_planes(tmp_path / "a.zarr")
    same_planes(all_planes(tmp_path / "b.zarr")[1][1], enlarged(planes[1], 2))


# --- windows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zstd-tiles-MM-RGB8.tif", "planar-uint16-tiles-zlib.tif", "cube.fits", "pages.tif"])
def test_windows_are_parts_of_the_whole(tmp_path, name):
    rng = np.random.default_rng(0)
    with io.open_source(corpus.make(name, tmp_path)) as source:
        whole = [source.read(plane).interleaved() for plane in range(source.planes)]
        for _ in range(40):
            plane = int(rng.integers(source.planes))
            top, bottom = sorted(rng.choice(corpus.HEIGHT + 1, 2, replace=False))
            left, right = sorted(rng.choice(corpus.WIDTH + 1, 2, replace=False))
            window = source.read(plane, slice(top, bottom), slice(left, right)).interleaved()
            np.testing.assert_array_equal(window, whole[plane][top:bottom, left:right])


STRIPS = ["zlib-RGB16", "planar-uint16", "float32 predicted", "MM"]


def one_strip(folder, name):
    """Deflated in one piece, and its pixels (H, W, C)."""
    rng = np.random.default_rng(0)
    shape = (3, 90, 70) if name == "planar-uint16" else (90, 70) if name == "float32 predicted" else (90, 70, 3)
    pixels = rng.integers(0, 60000, shape).astype(np.float32 if "float" in name else np.uint16)
    tifffile.imwrite(
        folder / "a.tif", pixels, compression="zlib", rowsperstrip=90, metadata=None, predictor=name != "planar-uint16",
        photometric="minisblack" if pixels.ndim == 2 else "rgb", byteorder=">" if name == "MM" else "<",
        planarconfig="separate" if name == "planar-uint16" else None,
    )  # fmt: skip
    return np.moveaxis(pixels, 0, -1) if name == "planar-uint16" else pixels.reshape(90, 70, -1)


@pytest.fixture
def in_parts(monkeypatch):
    """What is decoded by rows in large files is in small ones too, some rows at a time."""
    monkeypatch.setattr("slir.io.tiff_segments._LARGE", 1000)
    monkeypatch.setattr("slir.io.tiff_segments._PART", 1500)


@pytest.mark.parametrize("name", STRIPS)
def test_a_large_strip_is_inflated_by_rows(tmp_path, in_parts, monkeypatch, name):
    pixels = one_strip(tmp_path, name)
    monkeypatch.setattr("slir.io.tiff_codec._inflate", lambda *given: pytest.fail("inflated whole"))
    rng = np.random.default_rng(1)
    with io.open_source(tmp_path / "a.tif") as source:
        for rows, cols in windows(source.size, 25, 30):  # in turn, as files are restored
            np.testing.assert_array_equal(source.read(0, rows, cols).interleaved(), pixels[rows, cols])
        for _ in range(20):  # and in no order
            top, bottom = sorted(rng.choice(91, 2, replace=False))
            np.testing.assert_array_equal(source.read(0, slice(top, bottom)).interleaved(), pixels[top:bottom])


@pytest.mark.parametrize(("harm", "words"), [("cut", "ends before"), ("flip", "damaged pixel data")])
def test_a_damaged_large_strip_is_told(tmp_path, in_parts, harm, words):
    one_strip(tmp_path, "zlib-RGB16")
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        offset, count = file.pages[0].dataoffsets[0], file.pages[0].databytecounts[0]
        place = file.pages[0].tags["StripByteCounts"].valueoffset
    data = bytearray((tmp_path / "a.tif").read_bytes())
    if harm == "cut":
        data[place : place + 4] = (count // 2).to_bytes(4, "little")
    else:
        data[offset + count // 2 : offset + count // 2 + 64] = bytes(range(64))
    (tmp_path / "a.tif").write_bytes(data)
    with io.open_source(tmp_path / "a.tif") as source:
        source.read(0, slice(0, 10))  # what comes before is whole
        with pytest.raises(FileError, match=words):
            source.read(0)


def test_a_segment_is_decoded_once_for_windows_beside_each_other(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 60000, (64, 90)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=4, metadata=None)
    decoded = []
    by = tiff_codec.decode
    monkeypatch.setattr(tiff_codec, "decode", lambda *given: decoded.append(given) or by(*given))
    for room, times in ((1 << 20, 16), (90 * 4 * 2 * 2, 16 + 2 * 8)):  # of four strips a band, two are found again
        monkeypatch.setattr("slir.io.tiff_segments._CACHE", room)
        decoded.clear()
        with io.open_source(tmp_path / "a.tif") as source:
            for rows, cols in windows(source.size, 16, 30):
                np.testing.assert_array_equal(source.read(0, rows, cols).pixels, pixels[rows, cols])
        assert len(decoded) == times


def test_a_full_disk_is_told(tmp_path):
    """Rows that wait lie on the same disk as the file, which may be full before it is."""
    before = corpus.make("uint16-grey.tif", tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(FileError, match="cannot be written"):
            copied(before, tmp_path / "b.tif")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == [before.name]


@pytest.mark.parametrize("window", [(5, 15, 0), (0, 10, 3), (0, 9, 0)])
def test_windows_out_of_turn_are_refused_and_leave_nothing(tmp_path, window):
    top, bottom, left = window

    def attempt():
        with io.create(tmp_path / "b.tif", source) as sink:
            sink.write(source.read(0, slice(0, 10)), rows=slice(top, bottom), cols=slice(left, None))

    with (
        io.open_source(corpus.make("uint16-RGB.tif", tmp_path)) as source,
        pytest.raises(ValueError, match=r"out of turn|cannot be filled"),
    ):
        attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["uint16-RGB.tif"]


@pytest.mark.parametrize("suffix", [".tif", ".fits", ".zarr", ".png"])
@pytest.mark.parametrize(("failure", "words"), [(RuntimeError("half way"), "half way"), (None, "row 20 of plane 0")])
def test_a_failure_half_way_leaves_what_was_there(tmp_path, suffix, failure, words):
    before, after = corpus.make("uint16-grey.tif", tmp_path), tmp_path / f"b{suffix}"
    copied(before, after)
    _, (old,) = all_planes(after)

    def attempt():
        with io.open_source(before) as source, io.create(after, source) as sink:
            sink.write(source.read(0, slice(0, 20)), rows=slice(0, 20))
            if failure is not None:
                raise failure

    with pytest.raises((RuntimeError, ValueError), match=words):
        attempt()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([after.name, before.name])
    _, (new,) = all_planes(after)
    same_planes(old, new)
    copied(before, after)  # and what is there already is replaced
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([after.name, before.name])


def test_a_large_tiled_file_is_copied_in_little_memory(tmp_path):
    side, band = 4000, 512
    tiles = {"tile": (256, 256), "compression": "zlib", "predictor": True}
    row = (np.arange(side, dtype=np.uint16) * 3)[None].repeat(side, axis=0)
    tifffile.imwrite(tmp_path / "a.tif", row + np.arange(side, dtype=np.uint16)[:, None], metadata=None, **tiles)
    del row
    tracemalloc.start()
    copied(tmp_path / "a.tif", tmp_path / "b.tif", band=band, across=band)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    with tifffile.TiffFile(tmp_path / "a.tif") as old, tifffile.TiffFile(tmp_path / "b.tif") as new:
        assert new.pages[0].tile == (256, 256)
        np.testing.assert_array_equal(old.asarray(), new.asarray())


def test_one_large_strip_is_said_to_be_decoded_whole(tmp_path):
    pixels = np.zeros((6000, 6000), np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="zlib", rowsperstrip=6000, metadata=None)
    with io.open_source(tmp_path / "a.tif") as source:
        assert source.large  # deflate is decoded by rows
        assert not source.notes
    data = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        place = file.pages[0].tags["Compression"].valueoffset
    data[place : place + 2] = (5).to_bytes(2, "little")  # LZW is not
    (tmp_path / "a.tif").write_bytes(data)
    with io.open_source(tmp_path / "a.tif") as source:
        assert not source.large
        assert any("decoded whole" in note for note in source.notes)


@pytest.mark.parametrize(("name", "big"), [("uint16-RGB.tif", True), ("imagej-hidden.tif", False)])
def test_what_may_not_fit_into_tiff_is_written_as_bigtiff(tmp_path, monkeypatch, name, big):
    """But for stacks of one directory, which ImageJ reads beyond 4 GB since only the first plane's place is stored."""
    monkeypatch.setattr("slir.io.tiff_sink._CLASSIC", 5000)
    before = corpus.make(name, tmp_path)
    copied(before, tmp_path / "b.tif")
    with tifffile.TiffFile(before) as old, tifffile.TiffFile(tmp_path / "b.tif") as new:
        assert new.is_bigtiff == big
        np.testing.assert_array_equal(old.asarray(), new.asarray())
