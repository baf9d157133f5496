"""What fuzzing has found stays mended; a fixed set of damaged files is refused quickly. `make fuzz` looks for more."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from astropy.io import fits

import fuzzing
from slir import io
from slir.errors import FileError
from slir.files import jobs
from slir.files.inspect import about
from slir.files.jobs import Job
from slir.io import Picture
from slir.problem import Problem

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
DEADLINE = 5
"""Seconds of CPU time; a machine may be busy otherwise."""


class Late(BaseException):
    """Nothing that a reader catches."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("crash", sorted(path.name for path in fuzzing.CRASHES.iterdir()))
def test_what_was_found_stays_mended(tmp_path: Path, crash: str) -> None:
    with deadline(DEADLINE):
        fuzzing.run(crash.partition("-")[0], (fuzzing.CRASHES / crash).read_bytes(), tmp_path)


@pytest.mark.parametrize("name", fuzzing.TARGETS)
def test_damaged_files_are_used_or_refused(tmp_path: Path, name: str) -> None:
    rng, room = random.Random(7), tmp_path / "room"
    room.mkdir()
    for seed in fuzzing.seeds(name, tmp_path):
        assert fuzzing.run(name, seed, room) is None, "seeds are good files"
    refused, count = 0, 30 if name == "zarr" else 100  # which is slow
    for _ in range(count):
        data = fuzzing.damaged(name, rng, tmp_path)
        with deadline(DEADLINE):
            refused += fuzzing.run(name, data, room) is not None
    assert 0.1 * count <= refused < count, "damage is neither all that is seen nor nothing"


# --- budgets -------------------------------------------------------------------------------------------------------

NOISE = np.random.default_rng(0)


def pixels_of(shape: tuple[int, int], dtype: str = "uint16") -> np.ndarray:
    return NOISE.integers(0, 256, shape).astype(dtype)


def tiff(**how: Any) -> Callable[[Path, tuple[int, int]], None]:
    dtype = how.pop("dtype", "uint16")
    return lambda path, shape: tifffile.imwrite(path, pixels_of(shape, dtype), metadata=None, **how)


def packed(kind: str) -> Callable[[Path, tuple[int, int]], None]:
    return lambda path, shape: fits.CompImageHDU(pixels_of(shape, "int16"), compression_type=kind).writeto(path)


def ours(dtype: str = "uint16", channels: int = 1) -> Callable[[Path, tuple[int, int]], None]:
    def write(path: Path, shape: tuple[int, int]) -> None:
        pixels = pixels_of(shape, dtype)
        io.write(path, Picture(pixels) if channels == 1 else Picture(np.stack([pixels] * channels, -1), -1))

    return write


WRITERS = {
    "grey.bmp": ours("uint8"), "colour.avif": ours("uint8", 3),
    "grey8.png": ours("uint8"), "grey16.png": ours(), "colour16.png": ours("uint16", 3), "grey.jpg": ours("uint8"),
    "colour.webp": ours("uint8", 3), "plain.tif": tiff(), "deflated.tif": tiff(compression="zlib", predictor=True),
    "lzw.tif": tiff(compression="lzw"), "packbits.tif": tiff(compression="packbits", dtype="uint8"),
    "zstd-tiles.tif": tiff(compression="zstd", tile=(64, 64)), "jpeg.tif": tiff(compression="jpeg", dtype="uint8"),
    "lerc.tif": tiff(compression="lerc"), "jpeg2000.tif": tiff(compression="jpeg2000"),
    "jpegxl.tif": tiff(compression="jpegxl"), "plain.fits": ours("float32"), "rice.fits": packed("RICE_1"),
    "gzip.fits": packed("GZIP_1"), "hcompress.fits": packed("HCOMPRESS_1"), "ours.zarr": ours(),
}  # fmt: skip


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that work takes at most beyond what the process held before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("shape", [(500, 600), (20_000, 16)], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", WRITERS)
def test_every_reader_keeps_to_its_budget(tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
    """Of CPU time and memory for each byte of a file and of its pixels."""
    shape = (500, 600) if name.endswith(".webp") else shape  # which holds no longer sides
    path = tmp_path / name
    WRITERS[name](path, shape)
    io.read(path)  # imports what it needs
    start = time.process_time()
    held = peak_of(lambda: io.read(path))
    taken = time.process_time() - start
    size = io.read(path).interleaved().nbytes
    size += sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
    assert taken < 0.5 + 1e-6 * size
    assert held < (16 << 20) + 8 * size


# --- bits that turn in results -------------------------------------------------------------------------------------


def flipped(path: Path, count: int, seed: int = 0) -> Iterator[None]:
    """So many times, another bit of a file or a folder is turned while the loop's body runs."""
    files = sorted(file for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    bits = [(file, bit) for file in files for bit in range(8 * file.stat().st_size)]
    for file, bit in random.Random(seed).sample(bits, count):
        good = file.read_bytes()
        broken = bytearray(good)
        broken[bit // 8] ^= 1 << bit % 8
        file.write_bytes(broken)
        yield
        file.write_bytes(good)


@pytest.mark.parametrize("suffix", ["png", "tif", "fits", "zarr"])
def test_readers_see_a_bit_that_turned_in_a_result(tmp_path: Path, suffix: str) -> None:
    """Or it has no meaning. Only metadata of Zarr and tags of TIFF have no checksums."""
    path, silent = tmp_path / f"a.{suffix}", 0
    ours("uint8")(path, (37, 45))
    pixels = io.read(path).pixels
    for _ in flipped(path, 100):
        with contextlib.suppress(FileError):
            silent += not np.array_equal(io.read(path).pixels, pixels)
    assert silent <= (1 if suffix in ("tif", "zarr") else 0)


@pytest.mark.parametrize("suffix", ["jpg", "webp", "avif", "bmp", "png", "zarr"])
def test_info_sees_a_bit_that_turned_in_a_result(tmp_path: Path, suffix: str) -> None:
    """By the hash in its sidecar, in formats without checksums too."""
    ours("uint8", 3)(tmp_path / "in.png", (37, 45))
    if suffix == "zarr":
        ours("uint8")(tmp_path / "in.png", (37, 45))
    path = tmp_path / f"a.{suffix}"
    jobs.run(Job(Problem("denoise", sigma=0), tmp_path / "in.png", path))
    assert not about(path)["notes"]
    for _ in flipped(path, 30):
        with contextlib.suppress(FileError):
            assert any("changed since slir wrote it" in note for note in about(path)["notes"])
