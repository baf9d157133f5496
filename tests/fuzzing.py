"""Fuzzing: what reads untrusted files, how these files are damaged, and what may become of one.

A target reads a file and does with it what a user would. It may raise SlirError; anything else is a defect. Damage
keeps checksums and lengths valid where a reader would otherwise look no further.
"""

import copy
import json
import random
import re
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import tifffile
import torch
import typer
import zarr
from astropy.io import fits
from PIL import Image

import corpus
import slir
from slir import io, operators
from slir.cli import app, config
from slir.errors import SlirError
from slir.files import provenance
from slir.files.jobs import Job
from slir.io.kernels import read_psf
from slir.io.models import load, load_kernel, write_kernel
from slir.kernel.learnt import LearntKernel
from slir.kernel.network import KernelNetwork
from slir.kernel.stage import stages
from slir.model import Model
from slir.problem import Problem
from slir.trust.examples import Examples

CRASHES = Path(__file__).with_name("crashes")
REFERENCE = Path(__file__).with_name("reference")
OTHERWISE = "a second reader sees other pixels"
SMALL = 1 << 20
"""Pixels of an image that is copied whole."""

IMAGES = {
    "png": ("uint8-RGBA-all.png", "uint16-RGB-all.png", "uint8-grey-plain.png"),
    "jpg": ("RGB-all.jpg", "grey-iptc.jpg"),
    "webp": ("RGB-all-lossless.webp", "RGBA-plain-lossy.webp"),
    "tif": ("uint16-RGB.tif", "deflate-tiles-II-grey16.tif", "lzw-strips-MM-RGB8.tif", "zstd-strips-II-float.tif",
            "big-MM.tif", "exif-RGB.tif", "imagej-hyper.tif", "hyper.ome.tif", "shaped-hidden.tif",
            "jpeg-tiles-ycbcr.tif", "packbits-tiles-MM-grey16.tif", "lzma-strips-II-RGB8.tif"),
    "fits": ("uint16-parts.fits", "cube.fits", "packed-int16.fits", "packed-float32.fits", "scaled.fits", "nan.fits"),
    "zarr": ("0.4-zyx-uint16.ome.zarr", "0.5-yx-uint8.ome.zarr", "array-v2-int16.zarr", "array-v3-float64.zarr"),
    "avif": ("RGB-all.avif", "RGBA-plain.avif"),
}  # fmt: skip
BITMAPS = ("L", "RGB", "RGBA", "P", "1")
CODECS = ("jpeg2000", "jpegxl", "lerc", "webp")
TILES = ("GZIP_2", "HCOMPRESS_1", "PLIO_1", "RICE_1")
CHUNKS = ("bz2", "lzma", "zlib", "gzip", "zstd", "lz4", "blosc")


@dataclass(frozen=True)
class Target:
    """seeds: writes good files into a folder. use: reads one. mutate: damages one."""

    suffix: str
    seeds: Callable[[Path], Iterator[bytes]]
    use: Callable[[Path], Any]
    mutate: Callable[[bytes, random.Random], bytes]


def run(name: str, data: bytes, folder: Path) -> str | None:
    """What a target says of a file: the message of its refusal, or None. Other exceptions pass through.

    OTHERWISE : pixels were read, but a second reader reads others.
    """
    target = TARGETS[name]
    path = folder / f"fuzz.{target.suffix}"
    if target.suffix == "zarr":
        _unpack_store(data, path)
    else:
        path.write_bytes(data)
    try:
        planes = target.use(path)
        return OTHERWISE if planes and not agree(path, planes) else None
    except SlirError as error:
        return str(error)
    finally:
        for made in sorted(folder.rglob("*"), reverse=True):
            made.rmdir() if made.is_dir() else made.unlink()
    return None


def damaged(name: str, rng: random.Random, folder: Path) -> bytes:
    """A seed of a target with one to four defects."""
    data = rng.choice(seeds(name, folder))
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = TARGETS[name].mutate(data, rng)
    return data


@cache
def seeds(name: str, folder: Path) -> list[bytes]:
    made = folder / f"seeds-{name}"
    made.mkdir()
    return list(TARGETS[name].seeds(made))


# --- what is done with a file --------------------------------------------------------------------------------------


def use_image(path: Path) -> list[io.Picture] | None:
    """Its first window and its last row; all its planes where they are small, copied."""
    with io.open_source(path) as source:
        height, width = source.size
        source.read(0, slice(0, min(64, height)), slice(0, min(64, width)))
        source.read(source.planes - 1, slice(-1, None))
        if source.planes * height * width > SMALL:
            return None
        planes = [source.read(plane) for plane in range(source.planes)]
        suffix = ".png" if path.suffix in (".bmp", ".heic") else path.suffix  # which hold more than slir writes
        with io.create(path.with_name("copy" + suffix), source) as sink:
            for number, plane in enumerate(planes):
                sink.write(plane, plane=number)
    return planes


def use_model(path: Path) -> None:
    model = load(path)
    slir.denoise(_picture(), sigma=20, model=model, data_range=255, return_info=True)


def use_kernel(path: Path) -> None:
    kernel = load_kernel(path)
    slir.denoise(_picture(), sigma=20, model=kernel.model("denoise"), data_range=255, return_info=True)


def use_sidecar(path: Path) -> None:
    sidecar = provenance.load(path)
    job = sidecar.job()
    for look in (sidecar.changes, sidecar.other_versions, sidecar.maps, sidecar.map_hashes):
        look()
    sidecar.is_own_output()
    provenance.settings(job)
    sidecar.differs(Job(Problem("denoise"), path, path, error_map=True))


def use_psf(path: Path) -> None:
    read_psf(path)


def use_config(path: Path) -> None:
    command = _commands()["denoise"]
    config.apply(typer.Context(command, info_name="denoise"), path)


@cache
def _commands() -> Any:
    return typer.main.get_command(app).commands  # type: ignore[attr-defined]


def _picture() -> np.ndarray:
    return np.random.default_rng(0).integers(60, 190, (16, 20)).astype(np.uint8)


# --- second readers ------------------------------------------------------------------------------------------------


def agree(path: Path, planes: list[io.Picture]) -> bool:
    """Whether a second reader, where it reads the file at all, finds the same pixels."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            others = SECOND[path.suffix](path)
    except BaseException as error:
        if type(error).__name__ == "Late":
            raise
        return True
    if others is None:
        return True
    compared[path.suffix] += 1
    ours = [plane.interleaved() for plane in planes]
    return len(ours) == len(others) and all(
        one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        for one, other in zip(ours, others)
    )


def _deep(pixels: np.ndarray) -> np.ndarray:
    """(H, W, C)."""
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _by_libpng(path: Path) -> Any:
    return [_deep(imagecodecs.png_decode(path.read_bytes()))]


def _by_libavif(path: Path) -> Any:
    return [_deep(imagecodecs.avif_decode(path.read_bytes()))]


def _by_imagecodecs(path: Path) -> Any:
    data = path.read_bytes()
    return None if data[28] < 8 else [_deep(imagecodecs.bmp_decode(data))]  # black and white in RGB


def _by_pillow(path: Path) -> Any:
    with Image.open(path) as image:
        return [_deep(np.asarray(image))] if image.mode in ("L", "RGB", "RGBA") else None


def _by_tifffile(path: Path) -> Any:
    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        if page.photometric not in (1, 2) or page.planarconfig != 1 or page.bitspersample < 8 or len(file.series) != 1:
            return None
        # Each page by its own tags: a damaged note tells of fewer pages, and a series takes all for like the first.
        pixels = file.asarray() if len(file.pages) == 1 else np.stack([each.aspage().asarray() for each in file.pages])
        channels = page.samplesperpixel
    return list(pixels.reshape(-1, page.imagelength, page.imagewidth, channels))


def _by_astropy(path: Path) -> Any:
    with fits.open(path, memmap=False) as parts:
        part = next(part for part in parts if part.is_image and part.header["NAXIS"] >= 2)
        if part.header.get("BLANK") is not None:
            return None
        pixels = part.data
    return list(pixels.reshape(-1, *pixels.shape[-2:], 1))


def _by_zarr(path: Path) -> Any:
    root = zarr.open(path, mode="r")
    if isinstance(root, zarr.Group):
        root = root[root.attrs.asdict().get("ome", root.attrs)["multiscales"][0]["datasets"][0]["path"]]
    pixels = root[:]
    return list(pixels.reshape(-1, *pixels.shape[-2:], 1))


SECOND: dict[str, Callable[[Path], Any]] = {
    ".png": _by_libpng, ".jpg": _by_pillow, ".webp": _by_pillow, ".tif": _by_tifffile, ".fits": _by_astropy,
    ".zarr": _by_zarr, ".bmp": _by_imagecodecs, ".avif": _by_libavif, ".heic": lambda path: None,
}  # fmt: skip
compared: Counter[str] = Counter()
"""How many files a second reader has read, by suffix."""

# --- good files ----------------------------------------------------------------------------------------------------


def _images(kind: str) -> Callable[[Path], Iterator[bytes]]:
    def made(folder: Path) -> Iterator[bytes]:
        for name in IMAGES[kind]:
            path = corpus.make(name, folder)
            yield _pack_store(path) if path.is_dir() else path.read_bytes()

    return made


def _codecs(folder: Path) -> Iterator[bytes]:
    for name in CODECS:
        corpus.tiff(folder / f"{name}.tif", corpus.ramp(3), compression=name, tile=(16, 32))
        yield (folder / f"{name}.tif").read_bytes()


def _tiles(folder: Path) -> Iterator[bytes]:
    for kind in TILES:
        path = folder / f"{kind}.fits"
        pixels = corpus.ramp(1)[..., 0].astype("i2")
        fits.CompImageHDU(pixels, compression_type=kind, tile_shape=(16, 20)).writeto(path)
        yield path.read_bytes()


def _chunks(folder: Path) -> Iterator[bytes]:
    for kind in CHUNKS:
        path = folder / f"{kind}.zarr"
        compressor = numcodecs.registry.get_codec({"id": kind})
        array = zarr.create_array(
            path, shape=corpus.ramp(1).shape[:2], chunks=(16, 20), dtype="u1", compressors=compressor, zarr_format=2
        )
        array[:] = corpus.ramp(1)[..., 0]
        yield _pack_store(path)


def _bitmaps(folder: Path) -> Iterator[bytes]:
    for mode in BITMAPS:
        path = folder / f"{mode}.bmp"
        Image.fromarray(corpus.ramp(4 if mode == "RGBA" else 3)).convert(mode).save(path)
        yield path.read_bytes()


def _heic(folder: Path) -> Iterator[bytes]:
    for path in sorted(REFERENCE.glob("*.heic")):
        yield path.read_bytes()


def _network() -> KernelNetwork:
    torch.manual_seed(0)
    return KernelNetwork((2, 2, 3), blocks=1).requires_grad_(False)


def _examples() -> Examples:
    return Examples(torch.zeros(4, 8, 8, dtype=torch.uint8), torch.zeros(4, 3, dtype=torch.int64), ("a",))


def _models(folder: Path) -> Iterator[bytes]:
    clean = np.random.default_rng(0).random((32, 32))
    paper = slir.paper_model([clean], operators.Identity(), 0.1, m=20, size=4, stages=2)
    squared = slir.paper_model([clean], operators.Identity(), 0.1, "squared", "krr", m=20, size=4)
    learnt = Model(stages(_network(), 2), {"learnt": "from nothing"}, examples=_examples())
    for model in (paper, squared, learnt):
        model.save(folder / "m.safetensors")
        yield (folder / "m.safetensors").read_bytes()


def _kernels(folder: Path) -> Iterator[bytes]:
    write_kernel(folder / "k.safetensors", LearntKernel(_network(), {}, _examples(), {"learnt": "from nothing"}))
    yield (folder / "k.safetensors").read_bytes()


def _sidecars(folder: Path) -> Iterator[bytes]:
    entry = {"path": "a.png", "sha256": "0" * 64}
    made = {"time": "2026-01-01T00:00:00Z", "seconds": 1.5, "threads": 1, "versions": {"slir": "1", "torch": "2"}}
    common = {"slir": "restoration", "version": 1, "input": entry, "output": entry, "made": made}
    own = {"sigma": 25.0, "data_range": [0, 255], "device": "cpu", "seed": 0}
    found = {"sigma": 25.0, "residual": 1.0, "notes": [], "warnings": []}
    kernel = {"kernel": ["0 1 0", "1 2 1", "0 1 0"]}
    yield json.dumps(common | {"task": "denoise", "settings": own, "model": {"inside_slir": "0"}, "found": found,
                               "error_map": {"tif": entry, "png": entry}}).encode()  # fmt: skip
    yield json.dumps(common | {"task": "deblur", "settings": own | {"psf": kernel, "border": "unknown"},
                               "model": entry, "psf_made_by": "--gaussian 1"}).encode()  # fmt: skip
    yield json.dumps(common | {"task": "inpaint", "settings": own, "mask": entry, "model": entry}).encode()


def _configs(folder: Path) -> Iterator[bytes]:
    yield b'images = ["in", "b.png"]\noutput = "out"\nsigma = "10%"\ndata_range = [0, 255]\nrecursive = true\n'
    yield b'# comment\nsigma = 2.5e1\nformat = "tif"\n"on-error" = \'stop\'\nseed = 0x1f\nthreads = 1979-05-27\n'


def _psfs(folder: Path) -> Iterator[bytes]:
    np.save(folder / "psf.npy", np.ones((5, 7)) / 35)
    yield (folder / "psf.npy").read_bytes()


# --- stores as bytes -----------------------------------------------------------------------------------------------

_ENTRY = struct.Struct("<HI")


def _pack_store(path: Path) -> bytes:
    """The files of a folder one after the other: length of the name, of the contents, both."""
    parts = []
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        name, data = file.relative_to(path).as_posix().encode(), file.read_bytes()
        parts += [_ENTRY.pack(len(name), len(data)), name, data]
    return b"".join(parts)


def entries(data: bytes) -> list[tuple[bytes, bytes]]:
    """(name, contents) as far as they can be told apart."""
    found, at = [], 0
    while at + _ENTRY.size <= len(data):
        name, size = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        found.append((data[at : at + name], data[at + name : at + name + size]))
        at += name + size
    return found


def _unpack_store(data: bytes, path: Path) -> None:
    path.mkdir(exist_ok=True)
    for name, contents in entries(data):
        if not re.fullmatch(rb"[\w.]+(/[\w.]+){,5}", name[:100]) or b".." in name:
            continue  # names are not what is tested
        place = path / name.decode()
        if not any(parent.is_file() for parent in place.parents) and not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(contents)


# --- damage --------------------------------------------------------------------------------------------------------

_NUMBERS = (0, 1, 2, 3, 7, 8, 16, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_TEXTS = (b"0", b"-1", b"1e400", b"NaN", b"null", b"[]", b"{}", b'"x"', b"true", b"9" * 30, b"1.5", b"Infinity")
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**30, 1e308, float("nan"), "", "x", "\ud800", [], {}, [[]], {"a": 1}, [0] * 5, "../../x",
)  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Bits turned, numbers put in, parts cut out, doubled, moved."""
    if not data:
        return rng.randbytes(8)
    broken = bytearray(data)
    head = len(data) if rng.random() < 0.5 else min(len(data), 300)
    at = rng.randrange(head)
    kind = rng.randrange(8)
    if kind == 0:
        broken[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        form = rng.choice(("<H", ">H", "<I", ">I", "B"))
        value = struct.pack(form, rng.choice(_NUMBERS) & (256 ** struct.calcsize(form) - 1))
        broken[at : at + len(value)] = value
    elif kind == 2:
        del broken[at : at + rng.choice((1, 2, 4, 16, 200))]
    elif kind == 3:
        broken[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
    elif kind == 4:
        return data[: rng.randrange(len(data))]
    elif kind == 5:
        size = rng.choice((4, 16, 64))
        other = rng.randrange(len(data))
        broken[at : at + size] = data[other : other + size]
    elif kind == 6:
        numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data))
        if numbers:
            found = rng.choice(numbers)
            broken[found.start() : found.end()] = rng.choice(_TEXTS)
    else:
        broken[at : at + 8] = rng.choice((b"\0", b"\xff", b"[", b'"', b" ")) * 8
    return bytes(broken)


def mutate_png(data: bytes, rng: random.Random) -> bytes:
    """Of one chunk; its checksum is then right. Pixels are damaged before they are deflated."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks or rng.random() < 0.2:
        return mutate(data, rng)
    number = rng.randrange(len(chunks))
    kind, body = chunks[number]
    if kind == b"IDAT" and rng.random() < 0.5:
        try:
            body = zlib.compress(mutate(zlib.decompress(body), rng), 1)
        except zlib.error:
            body = mutate(body, rng)
    else:
        body = mutate(body, rng)
    chunks[number] = (kind, body)
    if rng.random() < 0.1:
        chunks.insert(rng.randrange(len(chunks)), chunks[number])
    packed = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return data[:8] + b"".join(packed)


def mutate_tiff(data: bytes, rng: random.Random) -> bytes:
    """One field of one entry of the first directory."""
    order = "<" if data[:2] == b"II" else ">"
    try:
        start = struct.unpack_from(order + "I", data, 4)[0]
        count = struct.unpack_from(order + "H", data, start)[0]
        place = start + 2 + 12 * rng.randrange(min(count, 100))
        struct.unpack_from(order + "HHII", data, place)
    except (struct.error, ValueError):
        return mutate(data, rng)
    if rng.random() < 0.4:
        return mutate(data, rng)
    broken = bytearray(data)
    offset, form = rng.choice(((0, "H"), (2, "H"), (4, "I"), (8, "I"), (8, "H")))
    struct.pack_into(order + form, broken, place + offset, rng.choice(_NUMBERS) & (65535 if form == "H" else 2**32 - 1))
    return bytes(broken)


def mutate_fits(data: bytes, rng: random.Random) -> bytes:
    """The value of one card, in its columns."""
    cards = [found.start() for found in re.finditer(rb"[A-Z0-9_-]{2,8} *= ", data) if found.start() % 80 == 0]
    if not cards or rng.random() < 0.4:
        return mutate(data, rng)
    at = rng.choice(cards)
    value = rng.choice((*_TEXTS, b"'x'", b"T", b"F", b"-32", b"16", b"3", b"2147483647", b"'1PB(5)'"))
    if rng.random() < 0.2:
        return data[:at] + data[at + 80 :].replace(b"END".ljust(80), (b"END".ljust(80)) * 2, 1)
    return data[: at + 10] + value.rjust(20)[:70] + data[at + 30 :]


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """One value of a tree replaced, removed, or wrapped; else its text."""
    tree = _tree(data)
    if tree is None or rng.random() < 0.2:
        return mutate(data, rng)
    _change(tree, rng)
    text = json.dumps(tree)
    if rng.random() < 0.05:
        deep = 5000  # more than Python recurses
        text = text.replace("null", "[" * deep + "]" * deep, 1)
    return text.encode()


def _tree(text: bytes | str) -> Any:
    """Of JSON; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _change(tree: Any, rng: random.Random) -> None:
    """One place of a tree of dicts and lists."""
    places = list(_places(tree))
    if not places:
        return
    parent, key = rng.choice(places)
    value = parent[key]
    inner = _tree(value) if isinstance(value, str) and value.startswith("{") else None
    if inner is not None and rng.random() < 0.9:  # JSON in a string of JSON
        _change(inner, rng)
        parent[key] = json.dumps(inner)
    elif isinstance(parent, dict) and rng.random() < 0.2:
        del parent[key]
    elif rng.random() < 0.2:
        parent[key] = rng.choice(([value], {"a": value}, [value, value]))
    else:
        parent[key] = copy.deepcopy(rng.choice((*_VALUES, *(other[name] for other, name in places))))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _places(value)


def mutate_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Its header, with the length that belongs to it."""
    size = int.from_bytes(data[:8], "little")
    if size > len(data) or rng.random() < 0.2:
        return mutate(data, rng)
    text, body = data[8 : 8 + size], data[8 + size :]
    tree = _tree(text)
    if isinstance(tree, dict) and rng.random() < 0.8:
        # Mostly the model; places of tensors are safetensors' own to check.
        _change(tree["__metadata__"] if rng.random() < 0.8 and "__metadata__" in tree else tree, rng)
        text = json.dumps(tree).encode()
    else:
        body = mutate(body, rng)
    return len(text).to_bytes(8, "little") + text + body


def mutate_store(data: bytes, rng: random.Random) -> bytes:
    """One file of a store, as JSON where it is JSON."""
    files = entries(data)
    if not files or rng.random() < 0.05:
        return mutate(data, rng)
    meta = [number for number, (name, _) in enumerate(files) if b"zarr" in name or b".z" in name]
    number = rng.choice(meta) if meta and rng.random() < 0.7 else rng.randrange(len(files))
    name, contents = files[number]
    contents = mutate_json(contents, rng) if contents.lstrip()[:1] == b"{" else mutate(contents, rng)
    if rng.random() < 0.05:
        del files[number]
    else:
        files[number] = (name, contents)
    return b"".join(_ENTRY.pack(len(n) & 65535, len(c)) + n + c for n, c in files)


TARGETS = {
    "png": Target("png", _images("png"), use_image, mutate_png),
    "jpg": Target("jpg", _images("jpg"), use_image, mutate),
    "webp": Target("webp", _images("webp"), use_image, mutate),
    "tif": Target("tif", _images("tif"), use_image, mutate_tiff),
    "codec": Target("tif", _codecs, use_image, mutate_tiff),
    "fits": Target("fits", _images("fits"), use_image, mutate_fits),
    "tile": Target("fits", _tiles, use_image, mutate_fits),
    "zarr": Target("zarr", _images("zarr"), use_image, mutate_store),
    "chunk": Target("zarr", _chunks, use_image, mutate_store),
    "bmp": Target("bmp", _bitmaps, use_image, mutate),
    "avif": Target("avif", _images("avif"), use_image, mutate),
    "heic": Target("heic", _heic, use_image, mutate),
    "model": Target("safetensors", _models, use_model, mutate_safetensors),
    "kernel": Target("safetensors", _kernels, use_kernel, mutate_safetensors),
    "sidecar": Target("json", _sidecars, use_sidecar, mutate_json),
    "config": Target("toml", _configs, use_config, mutate),
    "psf": Target("npy", _psfs, use_psf, mutate),
}
