"""Every file of the corpus, copied by windows: same pixels, same dtype, same metadata, by others' readers too."""

import warnings

import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits
from PIL import Image

import corpus
from slir import io
from slir.io import exif

#: Tags of TIFF that say where and how pixels are stored, and not what they mean.
STRUCTURE = {256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 338, 339, 34665, 34853}


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
    lossy = name.endswith((".jpg", "lossy.webp"))
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
        if old.format == "PNG" or "lossless" in before.name:
            np.testing.assert_array_equal(np.asarray(old), np.asarray(new))


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
            for code in kept[1]:
                assert kept[0][code].dtype == kept[1][code].dtype
                np.testing.assert_equal(kept[0][code].value, kept[1][code].value)
            assert (one.photometric, one.planarconfig, one.extrasamples) == (
                other.photometric,
                other.planarconfig,
                other.extrasamples,
            )
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
    ".tif": same_by_tifffile,
    ".fits": same_by_astropy,
    ".zarr": same_by_zarr,
}
