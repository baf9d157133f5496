"""What happens when memory runs out, on whichever device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import slir
from slir import restoration
from slir.compute import memory_for_tiles, peak_memory, retry_on_oom, rows_that_fit, side_by_side
from slir.compute.transforms import irfft2, rfft2
from slir.errors import FullError, SlirError
from slir.kernel.shipped import demo_picture

CPU = torch.device("cpu")


def test_chunks_and_tiles_shrink_until_the_work_fits() -> None:
    seen: list[tuple[int, int]] = []

    def work() -> str:
        seen.append((rows_that_fit(1000, CPU), memory_for_tiles(CPU)))
        if len(seen) < 3:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return "done"

    assert retry_on_oom(work, CPU) == "done"
    for (rows, tile), (fewer, smaller) in pairwise(seen):
        assert fewer == pytest.approx(rows / 4, abs=1)
        assert smaller <= tile / 3  # what is free may have changed meanwhile
    rows_after = rows_that_fit(1000, CPU)
    assert rows_after == seen[0][0]


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
        RuntimeError("could not create a primitive"),
    ],
)
def test_what_never_fits_is_said_clearly(error: Exception) -> None:
    tries = []

    def work() -> None:
        tries.append(rows_that_fit(1, CPU))
        raise error

    with pytest.raises(FullError, match="memory of cpu is full") as raised:
        retry_on_oom(work, CPU)
    assert isinstance(raised.value, SlirError | MemoryError)
    assert len(tries) == (1 if "primitive" in str(error) else 4)
    assert tries == sorted(tries, reverse=True)


def test_other_errors_are_left_alone() -> None:
    for error in (RuntimeError("shapes do not match"), ValueError("no"), KeyboardInterrupt()):

        def work(own: BaseException = error) -> None:
            raise own

        with pytest.raises(type(error)):
            retry_on_oom(work, CPU)
        assert rows_that_fit(1000, CPU) > 1000


def test_a_full_device_restores_in_smaller_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same picture as in one piece, but for ties: tiles begin where patches do."""
    picture = np.tile(demo_picture()[..., 0], (2, 2))
    expected = slir.denoise(picture, sigma=20)
    tiled, tries = restoration.restore_tiled, []

    def crowded(y: torch.Tensor, *rest, **options):
        tries.append(memory_for_tiles(y.device))
        if len(tries) == 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return tiled(y, *rest, tile=256, **options)

    monkeypatch.setattr(restoration, "restore_tiled", crowded)
    found = slir.denoise(picture, sigma=20)
    assert len(tries) == 2
    assert tries[1] < tries[0]
    assert np.mean(found != expected) < 0.01
    assert np.abs(found.astype(int) - expected).max() <= 8


def test_numbers_that_run_away_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tiled = restoration.restore_tiled

    def broken(*rest, **options):
        outcome = tiled(*rest, **options)
        outcome.x[3, 4] = torch.nan
        return outcome

    monkeypatch.setattr(restoration, "restore_tiled", broken)
    with pytest.raises(SlirError, match="infinite numbers"):
        slir.denoise(demo_picture()[:64, :64, 0], sigma=20)


@pytest.mark.parametrize("threads", [1, 3])
def test_work_side_by_side(threads: int) -> None:
    """In order, each piece on one thread; an error ends it, and the number of threads is what it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        done = list(side_by_side(lambda i: (i, torch.get_num_threads()), range(20), torch.device("cpu")))
        assert [i for i, _ in done] == list(range(20))
        assert {each for _, each in done} == {1}
        assert torch.get_num_threads() == threads
        begun: list[int] = []

        def fail(i: int) -> None:
            begun.append(i)
            raise MemoryError(str(i))

        with pytest.raises(MemoryError, match="0"):
            list(side_by_side(fail, range(10_000), torch.device("cpu")))
        assert len(begun) < 10_000
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_peak_memory_is_that_of_this_process_alone() -> None:
    """A process that a large one starts has not held what that one holds."""
    held = np.ones(80_000_000)
    code = "from slir.compute import peak_memory; print(peak_memory())"
    child = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    here = peak_memory()
    assert here is not None
    assert here > held.nbytes
    assert 50e6 < int(child.stdout) < here - held.nbytes / 4


def _fresh(code: str, **own: str) -> subprocess.CompletedProcess:
    """A new interpreter, in whose environment nothing but `own` is said about waiting."""
    bare = {name: value for name, value in os.environ.items() if name not in slir._WAITING}
    bare |= {"PYTHONPATH": str(Path(slir.__file__).parents[1]), **own}
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=bare)


def test_threads_that_wait_sleep() -> None:
    """As torch's own OpenMP says when it is loaded, be it GNU's or LLVM's, not just as we ask for it."""
    said = _fresh("import slir, torch", OMP_DISPLAY_ENV="VERBOSE").stderr
    assert re.findall(r"(?:GOMP_SPINCOUNT|KMP_BLOCKTIME) *= *'?(\d+)", said) == ["0"]


@pytest.mark.parametrize("name", sorted(slir._WAITING))
def test_how_threads_wait_is_the_users_to_say(name: str) -> None:
    code = "import os, slir; print({name: os.environ[name] for name in slir._WAITING & os.environ.keys()})"
    assert _fresh(code, **{name: "9"}).stdout.strip() == str({name: "9"})


@pytest.mark.parametrize(("shape", "padded"), [((12, 15), None), ((3, 8, 7), (9, 10)), ((5, 6), (4, 6))])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_transforms_are_those_of_torch(shape: tuple, padded: tuple[int, int] | None, kind: torch.dtype) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=kind)
    spectrum = rfft2(x, padded)
    torch.testing.assert_close(spectrum, torch.fft.rfft2(x, s=padded))
    size = padded or (shape[-2], shape[-1])
    torch.testing.assert_close(irfft2(spectrum, size), torch.fft.irfft2(spectrum, s=size))


def test_deblurring_on_a_cpu_makes_no_transform_of_two_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In which MKL's threads spin, whatever OpenMP is told: beside other work it took a hundred times as long."""
    for name in ("rfft2", "irfft2", "fft2", "ifft2", "rfftn", "irfftn", "fftn", "ifftn"):
        monkeypatch.delattr(torch.fft, name)
    psf = np.outer(np.hanning(9), np.hanning(9)) / 16  # of too many values to be applied one by one
    blurred = slir.operators.Blur(psf).forward(torch.from_numpy(demo_picture()[:96, :96, 0]).float())
    noise = torch.randn(blurred.shape, generator=torch.Generator().manual_seed(0))
    slir.deblur(blurred + noise, psf, sigma=1, data_range=255)


FORKED = """
import multiprocessing, os
import numpy as np, torch, slir

torch.set_num_threads(2)  # more than one, whatever the machine has

def restored(seed):
    return slir.denoise(np.random.default_rng(seed).integers(0, 255, (48, 48)).astype(np.uint8), sigma=60)

wanted = restored(1)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for found in pool.map(restored, [1, 1, 1]):
        assert np.abs(found.astype(int) - wanted).max() <= 1
"""


@pytest.mark.parametrize("waiting", ["PASSIVE", "ACTIVE"])
def test_forked_processes_restore_too(waiting: str) -> None:
    """They have none of the threads that the process had."""
    environment = {**os.environ, "OMP_WAIT_POLICY": waiting}
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60, env=environment)
