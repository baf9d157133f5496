"""Small files that a library would unpack into gigabytes: each is refused with its reason, in little memory.

They are opened by a process of its own, reference/open_all.py, in which larger allocations fail.
"""

import bz2
import json
import lzma
import os
import struct
import subprocess
import sys
import warnings
import zlib
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import imagecodecs
import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits

from slir import io
from slir.errors import FileError

CHILD = Path(__file__).with_name("reference") / "open_all.py"
ROOM = 500 << 20  # bytes; each bomb wants more
SIDE = 8  # of the strips, tiles and chunks whose contents are larger
JPEG2000, LERC, WEBP, JPEGXL = 34712, 34887, 50001, 50002


def tiff(body, compression, sides=(SIDE, SIDE)):
    """A TIFF file of one strip."""
    stream = BytesIO()
    options = {"photometric": "minisblack", "rowsperstrip": sides[0], "metadata": None, "dtype": np.uint8}
    tifffile.imwrite(stream, iter([body]), shape=sides, compression=compression, **options)
    return stream.getvalue()


def lerc(height, width):
    """A blob of zeros, of a version that has no checksum."""
    blob = bytearray(imagecodecs.lerc_encode(np.zeros((8, 8), np.uint8), version=2))
    struct.pack_into("<3I", blob, 10, height, width, height * width)
    return bytes(blob)


def jpeg2000(side, *, tile=64, **places):
    """A codestream of zeros in tiles, all but one of which are missing; places: bytes to put after the mark of COD."""
    data = bytearray(imagecodecs.jpeg2k_encode(np.zeros((64, 64), np.uint8), codecformat="j2k", reversible=True))
    struct.pack_into(">2I", data, 8, side, side)
    struct.pack_into(">2I", data, 24, tile, tile)
    start = data.index(b"\xff\x52")
    for place, value in places.items():
        data[start + int(place[1:])] = value
    return bytes(data)


def webp(side):
    """A file of one pixel that says it has more."""
    data = bytearray(imagecodecs.webp_encode(np.zeros((1, 1, 3), np.uint8), lossless=True))
    at = data.index(b"VP8L") + 9
    bits = int.from_bytes(data[at : at + 4], "little") & ~0x0FFFFFFF | (side - 1) | (side - 1) << 14
    data[at : at + 4] = bits.to_bytes(4, "little")
    return bytes(data)


def zeros(count):
    """A raw stream of deflate of so many zeros (a multiple of a megabyte), made without compressing them all."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)) * (count >> 20) + b"\x03\x00"


def zstd(count, *, declared):
    """A frame of zeros in blocks of one byte that is repeated."""
    size = struct.pack("<Q", count) if declared else b""
    start = b"\x28\xb5\x2f\xfd" + bytes([0xC0 if declared else 0]) + b"\x50" + size
    return start + b"\x02\x00\x10\x00" * (count >> 17) + b"\x01\x00\x00"


@lru_cache
def packed(name, count=1 << 30):
    """A stream of zeros that grows to so many bytes."""
    pattern = bytes(32 << 20)
    if name in ("zlib", "gzip"):
        check = struct.pack(">I", count % 65521 << 16 | 1)
        tail = struct.pack("<II", 0, count) if name == "gzip" else check
        start = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" if name == "gzip" else b"\x78\xda"
        return start + zeros(count) + tail
    if name in ("bz2", "lzma"):
        return (bz2 if name == "bz2" else lzma).compress(pattern) * (count >> 25)
    if name == "zstd":
        return zstd(count, declared=True)
    if name == "zstd-streamed":
        return zstd(count, declared=False)
    if name == "blosc":
        data = bytearray(numcodecs.Blosc("zstd").encode(bytes(1 << 20)))
        struct.pack_into("<I", data, 4, count)
        return bytes(data)
    assert name == "lz4"
    return struct.pack("<I", count) + numcodecs.LZ4().encode(bytes(1 << 20))[4:]


def packed_fits(kind, change):
    """A picture in one tile, whose bytes are changed."""
    stream = BytesIO()
    fits.CompImageHDU(np.arange(4096, dtype="i4").reshape(64, 64), compression_type=kind, tile_shape=(64, 64)).writeto(
        stream
    )
    with fits.open(BytesIO(stream.getvalue()), disable_image_compression=True) as parts:
        header, place = parts[1].header, parts[1].fileinfo()
        body = change(bytes(parts[1].data["COMPRESSED_DATA"][0]))
    header["PCOUNT"], header["TFORM1"] = len(body), f"1PB({len(body)})"
    data = header.tostring().encode() + struct.pack(">2i", len(body), 0) + body
    return stream.getvalue()[: place["hdrLoc"]] + data + bytes(-len(data) % 2880)


V2 = ("zlib", "gzip", "bz2", "lzma", "zstd", "blosc", "lz4")
V3 = {"gzip": {"level": 1}, "zstd": {"level": 0, "checksum": False}, "numcodecs.bz2": {}, "numcodecs.lzma": {},
      "blosc": {"cname": "zstd", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0, "typesize": 1}}  # fmt: skip


def store(path, chunk=b"", *, shape=(SIDE, SIDE), chunks=None, compressor=None, filters=None, dtype="|u1"):
    """An array of version 2 by hand."""
    path.mkdir()
    meta = {"zarr_format": 2, "shape": shape, "chunks": chunks or shape, "dtype": dtype, "fill_value": 0, "order": "C",
            "compressor": compressor, "filters": filters}  # fmt: skip
    (path / ".zarray").write_text(json.dumps(meta))
    if chunk:
        (path / ".".join("0" for _ in shape)).write_bytes(chunk)


def store3(path, chunk=b"", *, shape=(SIDE, SIDE), chunks=None, codecs=()):
    """An array of version 3 by hand."""
    path.mkdir()
    meta = {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks or shape}},
            "chunk_key_encoding": {"name": "default"}, "codecs": list(codecs), "attributes": {}}  # fmt: skip
    (path / "zarr.json").write_text(json.dumps(meta))
    if chunk:
        (path / "c" / "0").mkdir(parents=True)
        (path / "c" / "0" / "0").write_bytes(chunk)


def bombs(folder):
    pictures = {
        "lerc": (LERC, lerc(24_000, 24_000)),
        "lerc-deflated": (LERC, packed("zlib")),
        "lerc-zstd": (LERC, packed("zstd")),
        "jpeg2000": (JPEG2000, jpeg2000(16_000)),
        "jpegxl": (JPEGXL, imagecodecs.jpegxl_encode(np.zeros((16_000, 16_000), np.uint8), lossless=True, effort=1)),
        "webp": (WEBP, webp(16_000)),
    }
    for name, (compression, body) in pictures.items():
        (folder / f"{name}.tif").write_bytes(tiff(body, compression))
    # Of the right size, but in four million code blocks; in sixty thousand tiles.
    (folder / "blocks.tif").write_bytes(tiff(jpeg2000(8000, tile=8000, x10=0, x11=0), JPEG2000, (8000, 8000)))
    (folder / "tiles.tif").write_bytes(tiff(jpeg2000(2000, tile=8), JPEG2000, (2000, 2000)))
    for name in V2:
        store(folder / f"{name}.zarr", packed(name), compressor={"id": name})
    store(folder / "zstd-streamed.zarr", packed("zstd-streamed"), compressor={"id": "zstd"})
    body = packed("gzip")
    (folder / "gzip.fits").write_bytes(packed_fits("GZIP_1", lambda data: body))
    (folder / "hcompress.fits").write_bytes(
        packed_fits("HCOMPRESS_1", lambda data: data[:2] + b"\0\0\0\x41" * 2 + data[10:])
    )
    store(folder / "filter.zarr", packed("bz2"), filters=[{"id": "bz2"}])
    bytes_codec = {"name": "bytes"}
    for name, settings in V3.items():
        codec = {"name": name, "configuration": settings}
        store3(folder / f"v3-{name}.zarr", packed(name.rpartition(".")[2]), codecs=[bytes_codec, codec])
    store3(folder / "declared3.zarr", shape=(1 << 24, 1 << 24), chunks=(1024, 1024), codecs=[bytes_codec])
    store(folder / "declared.zarr", shape=(1 << 24, 1 << 24), chunks=(1024, 1024))
    store(folder / "planes.zarr", shape=(1 << 24, 1 << 10, 1 << 10), chunks=(1, 1024, 1024))
    inner = {"chunk_shape": (1, 1), "codecs": [bytes_codec], "index_codecs": [bytes_codec]}
    shards = {"name": "sharding_indexed", "configuration": {**inner, "index_location": "end"}}
    store3(folder / "shards.zarr", shape=(1 << 13, 1 << 14), codecs=[shards])
    zarr.open_group(folder / "levels.zarr", mode="w", zarr_format=2).attrs.update(
        {"multiscales": [{"axes": ["y", "x"], "datasets": [{"path": "0"}, {"path": "1"}]}]}
    )
    store(folder / "levels.zarr" / "0", shape=(64, 64))
    store(folder / "levels.zarr" / "1", shape=(1 << 24, 1 << 24), chunks=(1024, 1024))


def good(folder):
    """As large in memory as declared, or as tiny: names of files that are to be read."""
    for number in range(2):  # those named good- are read first, which imports what is needed
        (folder / f"{('good-first', 'lerc')[number]}-read.tif").write_bytes(tiff(lerc(SIDE, SIDE), LERC))
    # Twenty chunks of fifty megabytes, which would not fit beside each other.
    plane = {"shape": (10_000, 100_000), "chunks": (10_000, 5000)}
    store(folder / "wide-read.zarr", **plane, compressor={"id": "zlib"})
    chunk = zlib.compress(bytes(5 * 10**7), 1)
    for column in range(20):
        (folder / "wide-read.zarr" / f"0.{column}").write_bytes(chunk)
    store(folder / "sparse-read.zarr", b"\1" * 2**20, shape=(1 << 17, 1 << 17), chunks=(1024, 1024))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder, copies = tmp_path_factory.mktemp("bombs"), tmp_path_factory.mktemp("copies")
    bombs(folder)
    good(folder)
    for path in folder.iterdir():
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
        assert size < 5 << 20, "bombs are small"
    command = [sys.executable, "-W", "error", str(CHILD), str(folder), str(copies), str(ROOM)]
    own = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # else each thread sets addresses aside, which count too
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=own)
    assert run.returncode == 0, run.stderr[-2000:]
    *lines, last = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["name"]: line for line in lines}, last


def test_each_bomb_is_refused_with_its_reason(outcomes):
    found, _ = outcomes
    for name, line in found.items():
        if "-read" in name:
            assert line["kind"] == "read", line
        else:
            assert line["kind"] == "FileError", line
            words = (
                "declares",
                "declared size",
                "instead of",
                "too many parts",
                "cannot read",
                "become smaller",
                "would take",
            )
            assert any(part in line["text"] for part in words), line


def test_none_takes_long_or_much_memory(outcomes):
    found, last = outcomes
    assert max(line["seconds"] for line in found.values()) < 3, found
    assert last["peak"] - last["before"] < ROOM


PIXELS = np.random.default_rng(0).integers(0, 200, (37, 45, 4)).astype(np.uint8)
LOSSLESS = {"jpeg2000": {"reversible": True}, "jpegxl": {"lossless": True}, "webp": {"lossless": True}}


HELD = [(name, dtype, channels) for name, dtypes, layouts in (
    ("jpeg2000", ("uint8", "uint16"), (1, 3, 4)), ("jpegxl", ("uint8", "uint16", "float32"), (1, 3, 4)),
    ("lerc", ("uint8", "uint16", "float32"), (1, 3, 4)), ("webp", ("uint8",), (3, 4)),
) for dtype in dtypes for channels in layouts]  # fmt: skip


@pytest.mark.parametrize("tile", [None, (16, 16)])
@pytest.mark.parametrize(("name", "dtype", "channels"), HELD)
def test_good_codestreams_are_read(tmp_path, name, channels, dtype, tile):
    pixels = PIXELS[..., :channels].astype(dtype)
    options = {"photometric": "rgb" if channels > 1 else "minisblack", "metadata": None, "tile": tile}
    if channels == 4:
        options["extrasamples"] = ["unassalpha"]
    args = LOSSLESS.get(name, {})
    tifffile.imwrite(tmp_path / "a.tif", pixels.squeeze(), compression=name, compressionargs=args, **options)
    assert np.array_equal(io.read(tmp_path / "a.tif").interleaved(), pixels)


@pytest.mark.parametrize("kind", ["GZIP_1", "GZIP_2", "HCOMPRESS_1", "RICE_1", "PLIO_1", "quantised"])
@pytest.mark.parametrize("tile", [(16, 20), (8, 45)])
def test_good_tiles_of_fits_are_read(tmp_path, kind, tile):
    pixels = np.stack([PIXELS[..., channel].astype("i2") for channel in range(3)])
    if kind == "quantised":  # some tiles cannot be quantised and are deflated
        pixels = np.where(np.arange(37)[:, None] < 20, 0, pixels).astype("f4") / 7
    how = {"compression_type": "RICE_1" if kind == "quantised" else kind, "tile_shape": (1, *tile)}
    fits.CompImageHDU(pixels, **how).writeto(tmp_path / "a.fits")
    with io.open_source(tmp_path / "a.fits") as source, fits.open(tmp_path / "a.fits") as found:
        window = source.read(1, slice(3, 30), slice(7, 44)).pixels
        assert np.array_equal(window, found[1].data[1, 3:30, 7:44])
        assert kind == "quantised" or np.array_equal(window, pixels[1, 3:30, 7:44])


@pytest.mark.parametrize("inner", ["deflate", "zstd"])
def test_lerc_that_is_compressed_once_more_is_read(tmp_path, inner):
    body = imagecodecs.lerc_encode(PIXELS[..., 0], compression=inner)
    (tmp_path / "a.tif").write_bytes(tiff(body, LERC, (37, 45)))
    assert np.array_equal(io.read(tmp_path / "a.tif").pixels, PIXELS[..., 0])


@pytest.mark.parametrize("name", [*V2, *(f"v3-{name}" for name in V3), "chain"])
def test_good_chunks_are_read(tmp_path, name):
    plane = PIXELS[..., 0]
    if name == "chain":
        filters = [{"id": "delta", "dtype": "|u1", "astype": "<i2"}, {"id": "zlib"}, {"id": "crc32"}]
        store(tmp_path / "a.zarr", shape=plane.shape, filters=filters, compressor={"id": "gzip"})
    elif name in V2:
        store(tmp_path / "a.zarr", shape=plane.shape, compressor={"id": name})
    else:
        codec = {"name": name[3:], "configuration": V3[name[3:]]}
        store3(tmp_path / "a.zarr", shape=plane.shape, codecs=[{"name": "bytes"}, codec])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codecs that are not in the specification
        zarr.open_array(tmp_path / "a.zarr", mode="r+")[:] = plane
    assert np.array_equal(io.read(tmp_path / "a.zarr").pixels, plane)
    with io.create(tmp_path / "b.zarr", io.open_source(tmp_path / "a.zarr")) as sink:
        sink.write(io.read(tmp_path / "a.zarr"), plane=0)
    assert np.array_equal(io.read(tmp_path / "b.zarr").pixels, plane)


def turned(data, count, seed=0, start=0):
    """Copies of some bytes, each with another bit turned, from a place on."""
    for at in np.random.default_rng(seed).integers(8 * start, 8 * len(data), count):
        broken = bytearray(data)
        broken[at // 8] ^= 1 << (at % 8)
        yield bytes(broken)


def test_a_bit_that_turned_in_our_own_zarr_is_seen(tmp_path):
    io.write(tmp_path / "a.zarr", io.Picture(PIXELS[..., 0]))
    chunk = tmp_path / "a.zarr" / "0" / "0" / "0"
    seen = 0
    for data in turned(chunk.read_bytes(), 300):
        chunk.write_bytes(data)
        try:
            assert np.array_equal(io.read(tmp_path / "a.zarr").pixels, PIXELS[..., 0])  # one bit has no meaning
        except FileError:
            seen += 1
    assert seen >= 299


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_a_bit_that_turned_in_our_own_fits_is_seen(tmp_path, dtype):
    io.write(tmp_path / "a.fits", io.Picture(PIXELS[..., 0].astype(dtype)))
    whole = (tmp_path / "a.fits").read_bytes()
    for data in turned(whole, 100, start=2880):
        (tmp_path / "a.fits").write_bytes(data)
        with pytest.raises(FileError, match="DATASUM"):
            io.read(tmp_path / "a.fits")


def test_our_sums_are_those_of_others(tmp_path):
    parts = [fits.PrimaryHDU(), fits.ImageHDU(PIXELS[:, :, 0].astype("i2"), name="SCI"), fits.ImageHDU(np.ones((3, 4)))]
    fits.HDUList(parts).writeto(tmp_path / "a.fits", checksum=True)
    with io.open_source(tmp_path / "a.fits") as source, io.create(tmp_path / "b.fits", source) as sink:
        sink.write(source.read())
    with fits.open(tmp_path / "b.fits", checksum=True) as found:  # which warns of sums that are wrong
        assert found["SCI"].verify_datasum() == 1
        assert found["SCI"].header["DATASUM"].strip() == fits.getheader(tmp_path / "a.fits", "SCI")["DATASUM"]
    assert np.array_equal(io.read(tmp_path / "b.fits").pixels, PIXELS[..., 0])


@pytest.mark.parametrize("count", [0, 20, 100])
def test_a_blosc_chunk_that_is_cut_short_is_refused(tmp_path, count):
    data = numcodecs.Blosc("lz4").encode(PIXELS[..., 0].tobytes())
    store(tmp_path / "a.zarr", data[: len(data) - 1 - count], shape=PIXELS.shape[:2], compressor={"id": "blosc"})
    with pytest.raises(FileError, match="truncated"):
        io.read(tmp_path / "a.zarr")
