"""A thousand malformed files: each is read and copied, or refused with its reason, quickly and in little memory.

That happens in a process of its own, reference/open_all.py, which may not take more than 1 GB beyond what it takes
before the first file: RLIMIT_AS makes any larger allocation fail, and its peak is looked at too.
"""

import itertools
import json
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import corpus
from slir.errors import FileError
from slir.io import open_source

CHILD = Path(__file__).with_name("reference") / "open_all.py"
GIGABYTE = 1 << 30
BASES = (
    "uint8-RGBA-all.png", "uint16-RGB-all.png", "uint8-grey-plain.png", "RGB-all.jpg", "grey-plain.jpg",
    "RGB-all-lossless.webp", "RGBA-plain-lossy.webp", "uint16-RGB.tif", "deflate-tiles-II-grey16.tif",
    "lzw-strips-MM-RGB8.tif", "zstd-strips-II-float.tif", "big-MM.tif", "exif-RGB.tif", "imagej-hyper.tif",
    "hyper.ome.tif", "shaped-hidden.tif", "uint16-parts.fits", "cube.fits", "packed-int16.fits", "scaled.fits",
)  # fmt: skip


def png(width, height, depth, colour, body, chunks=()):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", body), (b"IEND", b"")]
    packed = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def zeros(count):
    """A zlib stream of so many zeros (a multiple of a megabyte), made without compressing them all."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    check = (count % 65521) << 16 | 1  # Adler-32 of zeros
    return b"\x78\xda" + block * (count >> 20) + b"\x03\x00" + struct.pack(">I", check)


def tiff(entries, body=b"", order="<", after=0):
    """A TIFF file of one directory, whose pixels' bytes begin at 8."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    at = 8 + len(body)
    lines = b"".join(
        struct.pack(order + "HHI", code, kind, count)
        + (
            value
            if isinstance(value, bytes)
            else struct.pack(order + ("HH" if kind == 3 else "I"), *((value, 0) if kind == 3 else (value,)))
        )
        for code, kind, count, value in sorted(entries)
    )
    return (
        mark
        + struct.pack(order + "I", at)
        + body
        + struct.pack(order + "H", len(entries))
        + lines
        + struct.pack(order + "I", after)
    )


def entries(**change):
    """The tags of an 8 × 8 grey page, some of them changed: name=value or name=(kind, count, value)."""
    names = {"width": 256, "height": 257, "bits": 258, "packing": 259, "kind": 262, "at": 273, "samples": 277,
             "rows": 278, "length": 279, "planar": 284, "predictor": 317, "tile_width": 322, "tile_height": 323,
             "tiles_at": 324, "tiles_length": 325, "palette": 320, "form": 339, "extras": 338, "text": 270,
             "exif": 34665, "sub": 330, "icc": 34675, "stk": 33629}  # fmt: skip
    usual = {
        "width": 8,
        "height": 8,
        "bits": 8,
        "packing": 1,
        "kind": 1,
        "at": 8,
        "samples": 1,
        "rows": 8,
        "length": 64,
    }
    values = {**usual, **change}
    return [
        (names[name], *(value if isinstance(value, tuple) else (4, 1, value)))
        for name, value in values.items()
        if value is not None
    ]


def fits(*cards, data=b""):
    lines = [f"{key:<8}= {value:>20}" for key, value in cards]
    text = "".join(line.ljust(80) for line in [*lines, "END"])
    text = text.ljust(-(-len(text) // 2880) * 2880)
    return text.encode() + data


def flat_webp(side):
    stream = BytesIO()
    Image.new("RGB", (1, 1)).save(stream, "WEBP", lossless=True)
    data = bytearray(stream.getvalue())
    at = data.index(b"VP8L") + 9
    bits = int.from_bytes(data[at : at + 4], "little") & ~0x0FFFFFFF | (side - 1) | (side - 1) << 14
    data[at : at + 4] = bits.to_bytes(4, "little")
    return bytes(data)


def large_jpeg(width, height):
    data = bytearray(corpus.jpeg_bytes(corpus.ramp(3)))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE OME [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 20}">' for a, b in itertools.pairwise("abcdefghij"))
    + "]><OME>&j;</OME>"
).encode()


def handmade():
    """Files that were made to do harm, by name."""
    small = bytes(64)
    yield "huge.png", png(100_000, 100_000, 8, 2, zlib.compress(small))
    yield "huge16.png", png(2**31 - 1, 2**31 - 1, 16, 6, zlib.compress(small))
    yield "bomb8.png", png(13_000, 13_000, 8, 6, zeros(677 << 20))
    yield "bomb16.png", png(10_000, 10_000, 16, 6, zeros(800 << 20))
    yield "bomb-tiny.png", png(10, 10, 16, 2, zeros(1000 << 20))
    yield (
        "bomb-text.png",
        png(1, 1, 8, 0, zlib.compress(b"\0\0"), [(b"zTXt", b"k%d\0\0" % k + zeros(15 << 20)) for k in range(200)]),
    )
    yield "bomb-icc.png", png(1, 1, 8, 0, zlib.compress(b"\0\0"), [(b"iCCP", b"p\0\0" + zeros(2000 << 20))])
    yield "narrow.png", png(8, 600_000, 16, 2, zlib.compress((b"\4" + bytes(48)) * 600_000))
    yield (
        "no-header.png",
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND")),
    )
    yield "length.png", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 2**32 - 1) + b"IHDR" + small
    yield "huge.jpg", large_jpeg(65_000, 65_000)
    yield "wide.jpg", large_jpeg(65_000, 2_700)
    yield "huge.webp", flat_webp(16_383)
    yield "bomb.webp", flat_webp(13_000)
    yield "length.webp", b"RIFF\xff\xff\xff\xffWEBPVP8L\xff\xff\xff\xff" + small
    yield "none.webp", b"RIFF\x04\0\0\0WEBP"
    yield "circle.tif", tiff(entries(), small, after=72)
    yield "nowhere.tif", tiff(entries(), small, after=2**31)
    yield "first-nowhere.tif", b"II*\0\xff\xff\xff\xff"
    yield "first-zero.tif", b"II*\0\0\0\0\0"
    yield "itself.tif", b"II*\0\x04\0\0\0" + small
    yield "many.tif", b"II*\0\x08\0\0\0\xff\xff" + bytes(12 * 65535)
    yield "big-many.tif", b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0" + b"\xff" * 8 + small
    yield "overlap.tif", b"II*\0\x08\0\0\0" + struct.pack("<HI", 0, 14) * 20_000 + bytes(6)
    for name, change in {
        "huge": {"width": 2**31, "height": 2**31},
        "large": {"width": 60_000, "height": 60_000, "rows": 60_000},
        "deflated": {"width": 60_000, "height": 60_000, "rows": 60_000, "packing": 8},
        "deflated-strips": {"width": 60_000, "height": 60_000, "rows": 1, "packing": 8},
        "lzw": {"width": 30_000, "height": 30_000, "rows": 30_000, "packing": 5},
        "zstd": {"width": 100_000, "height": 100_000, "rows": 100_000, "packing": 50000},
        "jpeg": {"width": 60_000, "height": 60_000, "rows": 60_000, "packing": 7},
        "jpeg2000": {"packing": 34712}, "unknown": {"packing": 12345}, "fax": {"packing": 4, "bits": 1, "rows": 8},
        "zero-width": {"width": 0}, "zero-rows": {"rows": 0}, "no-width": {"width": None}, "no-strips": {"at": None},
        "no-lengths": {"length": None, "packing": 8}, "count": {"at": (4, 2**32 - 1, 8)},
        "counts": {"at": (4, 2**24, 8), "length": (4, 2**24, 8)}, "samples": {"samples": 65_535}, "bits": {"bits": 255},
        "bits-12": {"bits": 12}, "bits-count": {"bits": (3, 2**31, 8)}, "form": {"form": 77},
        "complex": {"form": 6, "bits": 64},
        "tiles": {"tile_width": 2**31, "tile_height": 2**31, "tiles_at": 8, "tiles_length": 64},
        "large-tile": {"tile_width": 2**20, "tile_height": 2**20, "tiles_at": 8, "tiles_length": 64, "packing": 8},
        "zero-tile": {"tile_width": 0, "tile_height": 0}, "no-palette": {"kind": 3},
        "palette": {"kind": 3, "palette": (3, 1, 5)},
        "cmyk": {"kind": 5}, "ycbcr": {"kind": 6, "samples": 3}, "predictor": {"predictor": 99},
        "float": {"predictor": 3},
        "offset-zero": {"at": 0}, "offset-far": {"at": 2**32 - 1}, "length-far": {"length": 2**32 - 1, "packing": 8},
        "length-zero": {"length": 0, "packing": 8}, "exif": {"exif": 2**32 - 1}, "exif-self": {"exif": 72},
        "sub": {"sub": 72},
        "icc": {"icc": (7, 2**32 - 1, 8)}, "type": {"width": (99, 1, 8)}, "text": {"width": (2, 4, b"8888")},
        "stk": {"stk": 5},
        "double": {"width": (12, 1, 8)}, "extras": {"extras": (3, 2**20, 8)}, "old-jpeg": {"packing": 6},
    }.items():  # fmt: skip
        for order in "<>":
            yield f"{name}-{'II' if order == '<' else 'MM'}.tif", tiff(entries(**change), small, order)
    bomb = zeros(900 << 20)
    yield "bomb.tif", tiff(entries(packing=8, length=len(bomb)), bomb)
    side = 30_000
    yield "bomb-declared.tif", tiff(entries(width=side, height=side, rows=side, packing=8, length=len(bomb)), bomb)
    imagej = b"ImageJ=1.53t\nimages=999999999\nslices=999999999\n\0"
    shaped = b'{"shape": [1000000, 1000000, 8, 8], "truncated": true}\0'
    nested = b'{"shape": ' + b"[" * 100_000 + b"\0"
    for name, text in (
        ("imagej", imagej),
        ("shaped", shaped),
        ("nested", nested),
        ("laughs", b"<OME>" + LAUGHS + b"\0"),
    ):
        yield f"{name}.tif", tiff(entries(text=(2, len(text), 72)), small + text)
    axes = [("NAXIS1", 8), ("NAXIS2", 8)]
    start = [("SIMPLE", "T"), ("BITPIX", 16), ("NAXIS", 2)]
    yield "huge.fits", fits(*start, ("NAXIS1", 10**9), ("NAXIS2", 10**9))
    yield "absurd.fits", fits(*start, ("NAXIS1", 10**18), ("NAXIS2", 10**18))
    yield "negative.fits", fits(*start, ("NAXIS1", -8), ("NAXIS2", 8), data=small * 45)
    yield "bitpix.fits", fits(("SIMPLE", "T"), ("BITPIX", 17), ("NAXIS", 2), *axes, data=small * 45)
    yield "axes.fits", fits(("SIMPLE", "T"), ("BITPIX", 8), ("NAXIS", 999), *axes, data=small * 45)
    yield "none.fits", fits(("SIMPLE", "T"), ("BITPIX", 8), ("NAXIS", 0))
    yield "text.fits", fits(*start, ("NAXIS1", "'eight'"), ("NAXIS2", 8), data=small * 45)
    yield "scale.fits", fits(*start, *axes, ("BSCALE", 0), data=small * 45)
    yield "groups.fits", fits(*start, *axes, ("GROUPS", "T"), ("PCOUNT", 10**9), ("GCOUNT", 10**9), data=small * 45)
    yield "no-end.fits", fits(*start, *axes).replace(b"END", b"   ")
    packed = [("XTENSION", "'BINTABLE'"), ("BITPIX", 8), ("NAXIS", 2), ("NAXIS1", 8), ("NAXIS2", 1), ("PCOUNT", 0),
              ("GCOUNT", 1), ("TFIELDS", 1), ("TFORM1", "'1PB(8)'"), ("TTYPE1", "'COMPRESSED_DATA'"), ("ZIMAGE", "T"),
              ("ZCMPTYPE", "'RICE_1'"), ("ZBITPIX", 16), ("ZNAXIS", 2), ("ZNAXIS1", 10**6), ("ZNAXIS2", 10**6),
              ("ZTILE1", 10**6), ("ZTILE2", 10**6)]  # fmt: skip
    first = fits(("SIMPLE", "T"), ("BITPIX", 8), ("NAXIS", 0))
    yield "packed.fits", first + fits(*packed, data=small * 45)
    yield (
        "tiles.fits",
        first
        + fits(*packed[:-4], ("ZNAXIS1", 9), ("ZNAXIS2", 9), ("ZTILE1", 10**9), ("ZTILE2", 10**9), data=small * 45),
    )

    yield from absurd_fits()


def absurd_fits():
    """FITS files whose headers count too far, or backwards, by name: none may be walked as it says."""
    most, block = 2**31 - 1, bytes(2880)
    sides = [("NAXIS", 2), ("NAXIS1", 8), ("NAXIS2", 8)]
    rest = [("PCOUNT", 0), ("GCOUNT", 1)]

    def part(kind, cards, **change):
        known = dict([("XTENSION", f"'{kind:<8}'"), ("BITPIX", 8), *cards]) | change
        return fits(*known.items(), data=block)

    start = [("SIMPLE", "T"), ("BITPIX", 8)]
    first, picture = fits(*start, ("NAXIS", 0)), part("IMAGE", [*sides, *rest])
    yield "axes-first.fits", fits(*start, ("NAXIS", most))
    yield "axes-next.fits", first + part("IMAGE", [*sides, *rest], NAXIS=most)
    yield "axes-backwards.fits", first + part("IMAGE", [*sides, *rest], NAXIS=-1) + picture
    for name, change in {
        "axes": {"NAXIS": most},
        "columns": {"TFIELDS": most},
        "backwards": {"NAXIS1": -360},
        "back-to-itself": {"NAXIS1": 0, "PCOUNT": -5760},
        "minus-groups": {"GCOUNT": -72},
        "heap": {"PCOUNT": 10**30},
        "bits": {"BITPIX": -(10**18)},
    }.items():
        yield f"table-{name}.fits", first + part("BINTABLE", [*sides, *rest, ("TFIELDS", 0)], **change) + picture
    packed = [*sides, *rest, ("TFIELDS", 1), ("TFORM1", "'1PB(8)'"), ("TTYPE1", "'COMPRESSED_DATA'"), ("ZIMAGE", "T"),
              ("ZCMPTYPE", "'RICE_1'"), ("ZBITPIX", 16), ("ZNAXIS", 2), ("ZNAXIS1", 9), ("ZNAXIS2", 9), ("ZTILE1", 9),
              ("ZTILE2", 1)]  # fmt: skip
    for name, change in {
        "columns": {"TFIELDS": most},
        "axes": {"ZNAXIS": most},
        "rows": {"NAXIS2": 10**12},
        "width": {"TFORM1": f"'{most}A'"},
        "no-side": {"ZNAXIS2": 0},
    }.items():
        yield f"packed-{name}.fits", first + part("BINTABLE", packed, **change)
    card = "NAXIS   =                    2".ljust(80).encode()
    for name, other in (("twice", "NAXIS   = 2147483647"), ("hierarch", "HIERARCH NAXIS = 2147483647")):
        yield f"spelt-{name}.fits", fits(*start, *sides, data=block).replace(card, other.ljust(80).encode() + card)
    yield "long-header.fits", b"SIMPLE  =                    T".ljust(80) + b" " * (80 * 36 * 2000 - 80)


def damaged(rng, name, data):
    """Truncated, with bits turned, with a hole in it, doubled."""
    stem, _, suffix = name.rpartition(".")
    for number, share in enumerate(np.linspace(0, 0.99, 12)):
        yield f"{stem}-cut{number}.{suffix}", data[: int(len(data) * share)]
    for number in range(30):
        broken = bytearray(data)
        head = len(data) if number % 2 else min(len(data), 400)  # where headers are, harm is greatest
        for at in rng.integers(0, head, rng.integers(1, 6)):
            broken[at] ^= 1 << int(rng.integers(8))
        yield f"{stem}-bit{number}.{suffix}", bytes(broken)
    for number in range(6):
        at, length = int(rng.integers(len(data))), int(rng.integers(1, 200))
        fill = b"\0" if number % 2 else b"\xff"
        yield f"{stem}-hole{number}.{suffix}", data[:at] + fill * length + data[at + length :]
    yield f"{stem}-long.{suffix}", data + data


def damaged_stores(rng, folder):
    """Zarr stores with broken metadata and broken chunks."""
    for version, number in itertools.product(("0.4", "0.5"), range(25)):
        name = f"{version}-zyx-uint16.ome.zarr"
        store = folder / f"{version}-{number}.ome.zarr"
        shutil.copytree(corpus.make(name, folder) if not (folder / name).exists() else folder / name, store)
        files = sorted(path for path in store.rglob("*") if path.is_file() and "labels" not in path.parts)
        meta = [path for path in files if path.name.startswith((".z", "zarr"))]
        path = (meta if number % 2 else files)[int(rng.integers(len(meta if number % 2 else files)))]
        data = bytearray(path.read_bytes())
        if number < 5:
            data = data[: len(data) // 2]
        elif number < 8:
            data = data.replace(b"37", b"37000000000").replace(b"16", b"1600000000")
        else:
            for at in rng.integers(0, len(data), 4):
                data[at] = int(rng.integers(32, 127))
        path.write_bytes(data)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of every file: {name: outcome}, and the peak of memory."""
    folder = tmp_path_factory.mktemp("malformed")
    making = tmp_path_factory.mktemp("making")
    rng = np.random.default_rng(0)
    for name in BASES:
        data = corpus.data_of(name, making)
        (folder / f"good-{name}").write_bytes(data)
        for broken, content in damaged(rng, name, data):
            (folder / broken).write_bytes(content)
        stem, _, suffix = name.rpartition(".")
        for other in ("png", "jpg", "webp", "tif", "fits", "dat"):
            if other != suffix:
                (folder / f"{stem}-named.{other}").write_bytes(data)
    for name, content in handmade():
        (folder / f"made-{name}").write_bytes(content)
    for suffix in ("png", "jpg", "webp", "tif", "fits"):
        (folder / f"empty.{suffix}").touch()
        (folder / f"text.{suffix}").write_text("not an image at all, whatever the name says")
        (folder / f"random.{suffix}").write_bytes(rng.bytes(5000))
        (folder / f"folder.{suffix}").mkdir()
    damaged_stores(rng, folder)
    copies = tmp_path_factory.mktemp("copies")
    command = [sys.executable, "-W", "error", str(CHILD), str(folder), str(copies), str(GIGABYTE)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stderr == "", "a library never prints"
    assert not [path for path in copies.iterdir() if path.name.startswith(".")], "nothing is left half-written"
    *lines, last = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["name"]: line for line in lines}, last


@pytest.mark.parametrize(
    ("name", "data"), list(absurd_fits()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_headers_of_fits_are_checked_before_anything_counts_by_them(tmp_path, name, data):
    class Late(BaseException):
        pass

    def late(*_):
        raise Late

    path = tmp_path / name
    path.write_bytes(data)
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        with pytest.raises(FileError, match=r"makes no sense|truncated|of more than 1000 blocks"):
            open_source(path).close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_there_are_a_thousand(outcomes):
    assert len(outcomes[0]) >= 1000


def test_every_file_is_read_or_refused_with_its_reason(outcomes):
    found, _ = outcomes
    for line in found.values():
        assert line["kind"] in ("read", "FileError"), line
        if line["kind"] == "FileError":
            _, _, rest = line["text"].partition(": ")
            reason, _, remedy = rest.partition(". ")
            assert len(reason) >= len("is empty"), line
            assert remedy.endswith("."), line
            assert "fit into memory" not in reason, line


def test_good_files_among_them_are_read(outcomes):
    found, _ = outcomes
    assert {name for name in found if name.startswith("good-")} == {f"good-{name}" for name in BASES}
    assert all(line["kind"] == "read" for name, line in found.items() if name.startswith("good-"))


def test_what_was_made_to_harm_is_refused(outcomes):
    found, _ = outcomes
    harmless = {"bomb-text.png", "bomb-icc.png", "exif-II.tif", "exif-MM.tif", "exif-self-II.tif", "exif-self-MM.tif"}
    harmless |= {"narrow.png"}
    read = {
        name.removeprefix("made-")
        for name, line in found.items()
        if name.startswith("made-") and line["kind"] == "read"
    }
    assert read & {"huge.png", "bomb8.png", "bomb16.png", "huge.webp", "bomb.webp", "bomb.tif", "circle.tif"} == set()
    assert harmless <= read, "damaged metadata do not stop the pixels"


def test_none_takes_long_or_much_memory(outcomes):
    found, last = outcomes
    slowest = max(found.values(), key=lambda line: line["seconds"])
    assert slowest["seconds"] < 5, slowest
    assert last["peak"] - last["before"] < GIGABYTE
