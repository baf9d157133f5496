"""More than one machine: the same pixels as on one, whoever dies on the way."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

import cloudpickle
import dask
import dask.array as da
import distributed
import psutil
import typer
from scipy.ndimage import convolve
from typer.testing import CliRunner

import slir
from slir import io
from slir.cli import app
from slir.cluster import connection, files, worker
from slir.cluster.folder import Folder, Tile, identity_of, tiles_of
from slir.errors import FileError, FullError, InputError, SlirError
from slir.estimator.loop import restore as loop
from slir.files import batch, restore_file
from slir.files.atomic_output import digest
from slir.files.jobs import Job
from slir.files.jobs import run as run_here
from slir.kernel.shipped import shipped_model
from slir.problem import Problem
from small_models import small_kernel
from test_streams import large

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # A model drawn at random, and images that nothing has blurred.
    pytest.mark.filterwarnings("ignore:The result does not explain", "ignore:The PSF cannot be right"),
]
SMALL = small_kernel(1)
PSF = slir.psf.motion(5, 30)
GREY = large(dtype="uint16")[:200, :330]
HOLES = np.random.default_rng(1).random(GREY.shape) < 0.3


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two processes of one thread."""
    with connection.connect("local:2", memory="2 GB") as client:
        yield client


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is large, and its tiles are small; workers are told so by the client."""
    monkeypatch.setattr(restore_file, "LARGE", 1)
    for module in (restore_file, files):
        monkeypatch.setattr(module, "tile_side", lambda *about: 100)


def apart(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, where the range of the dtype is 1."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    span = np.iinfo(wanted.dtype).max if wanted.dtype.kind in "iu" else 1
    return float(np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max() / span)


# --- arrays ---


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # nothing was blurred by this PSF
@pytest.mark.parametrize("chunks", [64, (77, (100, 30, 200))])  # smaller than four halos, uneven
@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_lazy_arrays_give_what_arrays_give(task: str, chunks: Any) -> None:
    image = da.from_array(GREY, chunks=chunks)
    image = image[:100, 20:220] if task == "upsample" else image
    mask = da.from_array(HOLES, chunks=50) if chunks == 64 else HOLES

    def done(pixels: Any, missing: Any) -> Any:
        if task == "denoise":
            return slir.denoise(pixels, sigma=2570, model=SMALL)
        if task == "deblur":
            return slir.deblur(pixels, PSF, sigma=2570, model=SMALL)
        if task == "upsample":
            return slir.upsample(pixels, 2, model=SMALL)
        return slir.inpaint(pixels, missing, model=SMALL)

    lazy = done(image, mask)
    assert isinstance(lazy, da.Array)
    assert lazy.npartitions > 1
    wanted = done(image.compute(), HOLES)
    found = lazy.compute(scheduler="sync")
    assert apart(found, wanted) <= 1e-4
    if task == "inpaint":
        assert (found[~HOLES] == GREY[~HOLES]).all()


def test_nothing_is_read_before_it_is_computed() -> None:
    read = []

    def block(pixels: np.ndarray) -> np.ndarray:
        read.append(pixels.shape)
        return pixels

    image = da.from_array(GREY, chunks=100).map_blocks(block, dtype=GREY.dtype, meta=np.empty((0, 0), GREY.dtype))
    lazy = slir.denoise(image, model=SMALL)
    assert lazy.shape == GREY.shape
    assert lazy.dtype == GREY.dtype
    corner = lazy[:10, :10]
    assert not read
    assert apart(corner.compute(scheduler="sync"), slir.denoise(GREY, model=SMALL)[:10, :10]) <= 1e-4


def test_noise_and_colours_are_told_from_the_whole_of_each_plane() -> None:
    """Blocks differ in noise, so that each by itself would be restored otherwise; so do planes."""
    colour = large(colour=True)[:128, :256].astype(np.float64)
    colour[:, 128:] += np.random.default_rng(0).normal(0, 20, (128, 128, 3))
    stack = np.stack([colour, colour[::-1] / 2]).clip(0, 255).astype(np.uint8)
    wanted = np.stack([slir.denoise(plane, channel_axis=-1, model=SMALL) for plane in stack])
    found = slir.denoise(da.from_array(stack, chunks=(2, 128, 100, 2)), channel_axis=-1, model=SMALL)
    assert found.chunks[0] == (1, 1)
    assert found.chunks[3] == (3,)
    assert apart(found.compute(scheduler="sync"), wanted) <= 1 / 255  # a grey value, where rounding decides


def test_chunks_of_a_good_size_are_kept() -> None:
    lazy = slir.denoise(da.zeros((960, 1440), chunks=480, dtype=np.uint8), sigma=5, model=SMALL)
    assert lazy.chunks == ((480, 480), (480, 480, 480))


def test_the_engine_takes_lazy_planes() -> None:
    y, operator = convolve(GREY.astype(np.float32) / 65535, PSF), slir.operators.Blur(PSF)
    import torch

    wanted = loop(torch.from_numpy(y), operator, SMALL, sigma=0.04).x
    found = loop(da.from_array(y, chunks=128), operator, SMALL, sigma=0.04).x  # type: ignore[arg-type]
    assert apart(found.compute(scheduler="sync"), operator.crop(wanted, y.shape).numpy()) <= 1e-4  # type: ignore[attr-defined]


def test_a_model_is_one_object_of_the_graph() -> None:
    """Tasks hold its name alone, so that it goes to each worker once."""
    lazy = slir.denoise(da.from_array(GREY, chunks=64), model=SMALL)
    (graph,) = (dict(lazy.__dask_graph__()),)
    size = len(pickle.dumps(SMALL))
    heavy = [key for key, task in graph.items() if len(cloudpickle.dumps(task)) > size]
    assert len(heavy) == 1
    assert "slir-plan" in str(heavy[0])


def test_lazy_arrays_on_a_cluster(client: Any) -> None:
    lazy = slir.denoise(da.from_array(GREY, chunks=100), model=SMALL)
    assert apart(client.compute(lazy).result(), slir.denoise(GREY, model=SMALL)) <= 1e-4


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda image: slir.denoise(image, sigma=-1), "sigma"),
        (lambda image: slir.denoise(image, sigma=5, return_info=True), "return_info"),
        (lambda image: slir.denoise(image, sigma=5, progress=True), "progress"),
        (lambda image: slir.denoise(image, sigma=5, rng=np.random.default_rng()), "rng"),
        (lambda image: slir.denoise(image / 255), "data_range"),
        (lambda image: slir.denoise(image[0]), "image"),
        (lambda image: slir.denoise(image[:8]), "image"),
        (lambda image: slir.denoise(image > 3), "image"),
        (lambda image: slir.denoise(image[image[:, 0] > 3]), "image"),  # of unknown height
        (lambda image: slir.denoise(image, channel_axis=4), "image"),
        (lambda image: slir.deblur(image, PSF, sigma="poisson-gaussian"), "sigma"),
        (lambda image: slir.deblur(image, PSF, border="circular"), "image"),
        (lambda image: slir.deblur(image, np.ones((99, 99)) / 99**2), "psf"),
        (lambda image: slir.inpaint(image, np.zeros((3, 3), bool)), "mask"),
    ],
)
def test_what_is_wrong_is_said_at_once(call: Any, argument: str) -> None:
    with pytest.raises(InputError) as caught:
        call(da.zeros((64, 64), chunks=32, dtype=np.uint8))
    assert caught.value.argument == argument


def test_dask_is_not_imported_for_other_arrays() -> None:
    code = "import sys, numpy, slir; slir.psf.gaussian(1), slir.denoise; print('dask' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


# --- files ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SMALL.save(str(tmp_path / "model.safetensors"))
    io.write(tmp_path / "in.zarr", io.Picture(GREY))
    io.write(tmp_path / "small.zarr", io.Picture(GREY[:64, :160]))
    io.write(tmp_path / "mask.png", io.Picture(HOLES.astype(np.uint8) * 255))
    return tmp_path


def job(folder: Path, output: str, task: Any = "denoise", **settings: Any) -> Job:
    told = {"model": folder / "model.safetensors", "threads": 1, "image": folder / "in.zarr"}
    told |= {name: settings.pop(name) for name in list(settings) if name in Job.__dataclass_fields__}
    return Job(Problem(task, **{"sigma": 2570.0, **settings}), output=folder / output, **told)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("task", "output", "settings"),
    [
        ("denoise", "out.zarr", {"sigma": "auto"}),
        ("deblur", "out.tif", {"psf": PSF}),
        ("upsample", "out.zarr", {"factor": 2, "image": "small.zarr"}),
        ("inpaint", "out.zarr", {"mask": "mask.png", "sigma": 0.0}),
    ],
)
def test_a_file_becomes_the_same_bytes(
    task: str, output: str, settings: dict[str, Any], folder: Path, client: Any
) -> None:
    settings = {name: folder / value if name in ("mask", "image") else value for name, value in settings.items()}
    wanted = run_here(job(folder, f"here-{output}", task, **settings), sidecar=False)
    told: list[tuple[int, int]] = []
    found = files.run(job(folder, output, task, **settings), client, progress=lambda *now: told.append(now[:2]))
    assert digest(folder / output) == digest(folder / f"here-{output}")
    assert found.sigma == wanted.sigma
    assert found.residual == pytest.approx(wanted.residual, rel=1e-9)  # threads add up in another order
    assert told[-1][0] == told[-1][1] > 3
    assert json.loads((folder / f"{output}.json").read_text())["made"]["threads"] == 1
    assert not list(folder.glob(".*"))  # tiles are gone


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("threads", [1, 2])
def test_error_maps_of_tiles_become_the_same_bytes(threads: int, folder: Path, client: Any) -> None:
    known: Any = shipped_model("denoise").trust
    trust = replace(known, sigma=(1e-4, 1.0))
    replace(SMALL, trust=trust).save(str(folder / "model.safetensors"))
    wanted = run_here(job(folder, "here.tif", error_map=True, threads=threads), sidecar=False)
    found = files.run(job(folder, "out.tif", error_map=True, threads=threads), client)
    assert found.warnings == wanted.warnings
    for name in ("out.tif", "out.error.tif", "out.error.png"):
        assert digest(folder / name) == digest(folder / name.replace("out", "here"))


def test_a_stack_of_planes_that_one_machine_restores_whole(folder: Path, client: Any) -> None:
    import tifffile

    tifffile.imwrite(folder / "in.tif", np.stack([GREY[:64, :64], GREY[64:128, :64]]), photometric="minisblack")
    settings = {"image": folder / "in.tif", "sigma": "auto", "error_map": True, "model": None}
    wanted = run_here(job(folder, "here.tif", **settings), sidecar=False)
    found = files.run(job(folder, "out.tif", **settings), client)
    assert (found.sigma, found.residual, found.warnings) == (wanted.sigma, wanted.residual, wanted.warnings)
    for name in ("out.tif", "out.error.tif", "out.error.png"):
        assert digest(folder / name) == digest(folder / name.replace("out", "here"))


@pytest.mark.usefixtures("small_tiles")
def test_a_worker_that_is_killed_costs_its_tiles_alone(folder: Path, client: Any) -> None:
    run_here(job(folder, "here.zarr"), sidecar=False)
    victims = list(client.run(os.getpid).values())

    def progress(done: int, total: int, what: str) -> None:
        if done == 1:
            os.kill(victims[0], signal.SIGKILL)

    files.run(job(folder, "out.zarr"), client, progress=progress)
    assert digest(folder / "out.zarr") == digest(folder / "here.zarr")


@pytest.mark.usefixtures("small_tiles")
def test_a_run_whose_client_died_goes_on(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(job(folder, "here.zarr"), sidecar=False)

    def die(done: int, total: int, what: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.run(job(folder, "out.zarr"), client, progress=die)
    assert not (folder / "out.zarr").exists()
    submitted = []
    flow = files.in_flow

    def counted(client: Any, submit: Any, items: Any) -> Any:
        submitted.extend(items)
        return flow(client, submit, items)

    monkeypatch.setattr(files, "in_flow", counted)
    monkeypatch.setattr(files, "tile_side", lambda *about: 150)  # as if memory had changed: tiles must not
    outcome = files.run(job(folder, "out.zarr"), client)
    assert digest(folder / "out.zarr") == digest(folder / "here.zarr")
    (note,) = outcome.notes
    there, total = (int(word) for word in note.split() if word.isdigit())
    assert there >= 3
    assert len(submitted) == total - there


def test_tiles_belong_to_one_run(folder: Path) -> None:
    def left(own: Job) -> list[str]:
        """What an earlier run left, when this one begins; it dies too."""
        with contextlib.suppress(RuntimeError), tiles_of(own, side=64) as tiles:
            found = sorted(path.name for path in tiles.path.glob("*.npz"))
            Tile(np.zeros((2, 2)), {"sigma": 1.0}).save(tiles.place(0, 0))
            raise RuntimeError
        return found

    first = job(folder, "out.zarr")
    assert left(first) == []
    assert left(first) == ["0-0.npz"]
    assert left(job(folder, "out.zarr", sigma=100.0)) == []
    io.write(folder / "in.zarr", io.Picture(GREY[:150]))
    assert left(job(folder, "out.zarr", sigma=100.0)) == []
    slir.Model(SMALL.stages[:1]).save(str(folder / "model.safetensors"))
    assert left(job(folder, "out.zarr", sigma=100.0)) == []


def test_damaged_tiles_are_made_again(tmp_path: Path) -> None:
    tiles = Folder(tmp_path, 64)
    Tile(np.arange(6).reshape(2, 3), {"sigma": 1.5}, alpha=np.ones((2, 3))).save(tiles.place(0, 0))
    tiles.place(0, 1).write_bytes(tiles.place(0, 0).read_bytes()[:-30])
    tiles.place(0, 2).touch()
    assert tiles.finished_tiles([(0, number) for number in range(4)]) == {(0, 0)}
    tile = Tile.load(tiles.place(0, 0))
    assert (tile.pixels == np.arange(6).reshape(2, 3)).all()
    assert tile.said == {"sigma": 1.5}
    assert tile.alpha is not None
    assert tile.error is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0.npz", "0-1.npz", "0-2.npz"]


def test_a_link_in_the_place_of_the_tiles_is_not_followed(folder: Path) -> None:
    precious = folder / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("ten years")
    (precious / "0-0.npz").write_text("not a tile")
    place = folder / ".out.zarr.slir-tiles"
    place.symlink_to(precious)
    with (
        pytest.raises(FileError, match="is a link, but slir"),
        tiles_of(job(folder, "out.zarr"), side=64),
    ):
        pass
    assert sorted(path.name for path in precious.iterdir()) == ["0-0.npz", "thesis.txt"]
    place.unlink()
    place.write_text("a file")
    with pytest.raises(FileError, match="cannot be written"), tiles_of(job(folder, "out.zarr"), side=64):
        pass


def test_only_files_that_slir_made_are_removed_with_the_tiles(folder: Path) -> None:
    precious = folder / "precious.json"
    precious.write_text("ten years")
    place = folder / ".out.zarr.slir-tiles"
    place.mkdir()
    kept = ["0-0.npz.bak", "notes.txt", "sub"]
    for name in (*kept[:2], "3-14.npz", f".{'0' * 32}.tmp"):
        (place / name).write_text("of another run, or of somebody")
    (place / "sub").mkdir()
    (place / "run.json").symlink_to(precious)
    os.mkfifo(place / "1-1.npz")
    with tiles_of(job(folder, "out.zarr"), side=64) as tiles:
        assert sorted(path.name for path in place.iterdir()) == [*kept[:2], "run.json", "sub"]
        os.mkfifo(tiles.place(0, 1))
        assert tiles.finished_tiles([(0, 0), (0, 1)]) == set()
        Tile(np.zeros((2, 2)), {"sigma": 1.0}).save(tiles.place(0, 0))
    assert sorted(path.name for path in place.iterdir()) == kept
    assert precious.read_text() == "ten years"


def test_two_runs_do_not_share_an_output(folder: Path) -> None:
    with tiles_of(job(folder, "out.zarr"), side=64), pytest.raises(FileError, match="by another run"):  # noqa: SIM117
        with tiles_of(job(folder, "out.zarr"), side=64):
            pass


def test_a_run_is_known_by_all_that_decides_its_pixels(folder: Path) -> None:
    known = identity_of(job(folder, "out.zarr"))
    others = [
        job(folder, "out.zarr", sigma=1.0),
        job(folder, "out.zarr", "deblur", psf=PSF),
        job(folder, "out.zarr", "inpaint", mask=folder / "mask.png"),
        job(folder, "out.zarr", model=None),
        job(folder, "out.zarr", error_map=True),
        job(folder, "out.zarr", data_range=4095.0),
        job(folder, "out.zarr", image=folder / "mask.png"),
    ]
    assert all(identity_of(other) != known for other in others)
    assert identity_of(job(folder, "other.tif")) == known


@pytest.mark.usefixtures("small_tiles")
def test_what_fails_on_a_worker_is_the_users_to_read(folder: Path, client: Any) -> None:
    holes = np.zeros(GREY.shape, bool)
    holes[:, :150] = True
    np.save(folder / "mask.npy", holes)
    with pytest.raises(InputError, match="known pixels in every window"):
        files.run(job(folder, "out.zarr", "inpaint", mask=folder / "mask.npy"), client)


def test_tiles_that_kill_their_workers() -> None:
    from distributed.scheduler import KilledWorker

    class Lost:
        def __init__(self, error: BaseException):
            self.error = error

        def result(self) -> None:
            raise self.error

    with pytest.raises(SlirError, match=r"tile 3: each worker that restored it died.*more memory"):
        connection.result(Lost(KilledWorker("tile", None, 3)), "tile 3")
    with pytest.raises(SlirError, match=r"tile 3: the connection to the cluster was lost\. Run the same command again"):
        connection.result(Lost(CancelledError()), "tile 3")


@pytest.mark.parametrize(
    "error", [InputError("sigma", "be so", 3, "Do."), FileError("a.png", "is bad", "Do."), FullError("cpu", "x")]
)
def test_errors_travel(error: SlirError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


# --- many files, and the command ---


@pytest.fixture
def pictures(folder: Path) -> Path:
    (folder / "many").mkdir()
    for number in range(4):
        io.write(folder / "many" / f"{number}.png", io.Picture((GREY[: 40 + number, :40] // 257).astype(np.uint8)))
    (folder / "many" / "bad.png").write_bytes(b"no picture")
    return folder


def test_many_files(pictures: Path, client: Any) -> None:
    names = [path.name for path in sorted((pictures / "many").iterdir())]

    def jobs(out: str) -> list[Job]:
        (pictures / out).mkdir(exist_ok=True)
        return [job(pictures, f"{out}/{name}", image=pictures / "many" / name, sigma=10.0) for name in names]

    here = list(batch.run(jobs("here")))
    there = list(batch.run(jobs("there"), cluster=client))
    assert sorted((report.job.output.name, report.status) for report in there) == sorted(
        (report.job.output.name, report.status) for report in here
    )
    assert [digest(pictures / "there" / f"{n}.png") for n in range(4)] == [
        digest(pictures / "here" / f"{n}.png") for n in range(4)
    ]
    (pictures / "there" / "2.png").unlink()
    again = batch.run(jobs("there"), cluster=client, policy=batch.Policy(skip_existing=True))
    assert {report.job.output.name: report.status for report in again} == {
        "0.png": "skipped", "1.png": "skipped", "2.png": "restored", "3.png": "skipped", "bad.png": "failed",
    }  # fmt: skip
    assert all("exists already" in report.reason for report in batch.run(jobs("there")[:4], cluster=client))


def test_many_files_stop_at_the_first_that_fails(pictures: Path, client: Any) -> None:
    jobs = [job(pictures, "a/x.png", image=pictures / "many" / "bad.png")] * 3
    assert len(list(batch.run(jobs, cluster=client, on_error="stop"))) == 1


@pytest.fixture
def trusted(client: Any) -> Iterator[None]:
    """Dask's own settings say the key of the cluster, for those that know its address only."""
    own = client.security
    names = {"ca-file": own.tls_ca_file, "client.key": own.tls_client_key, "client.cert": own.tls_client_cert}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in names.items()}):
        yield


@pytest.mark.usefixtures("small_tiles", "trusted")
def test_the_command(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    run_here(job(folder, "here.zarr"), sidecar=False)
    words = ["denoise", "in.zarr", "-o", "out.zarr", "--sigma", "2570", "--model", "model.safetensors"]
    ran = CliRunner().invoke(app, [*words, "--cluster", client.scheduler.address], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert digest(folder / "out.zarr") == digest(folder / "here.zarr")
    words = ["denoise", "in.zarr", "-o", "out/", "--sigma", "2570", "--model", "model.safetensors"]
    ran = CliRunner().invoke(app, [*words, "--cluster", client.scheduler.address, "--json"], catch_exceptions=False)
    assert json.loads(ran.stdout.splitlines()[-1])["summary"]["restored"] == 1


def _listening() -> set[tuple[str, int]]:
    """(address, port) of all sockets of this process and of those that it started that wait for connections."""
    found = set()
    for process in (own := psutil.Process(), *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            places = process.net_connections("inet")
            found |= {(place.laddr.ip, place.laddr.port) for place in places if place.status == psutil.CONN_LISTEN}
    return found


def test_no_other_command_can_listen() -> None:
    """Those that have a cluster share `connection.connect`; `slir serve` has a test of its own."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    able = {name for name, own in commands.items() if any(param.name == "cluster" for param in own.params)}
    assert able == {"denoise", "deblur", "upsample", "inpaint", "fit"}
    sources = Path(slir.__file__).parent
    listens = re.compile(r"SpecCluster\(|uvicorn\.|\.listen\(|\.bind\(|create_server|http\.server|socketserver")
    found = {path.relative_to(sources).as_posix() for path in sources.rglob("*.py") if listens.search(path.read_text())}
    assert found == {"cluster/connection.py", "cli/serve.py", "web/connections.py"}


def test_the_command_listens_on_loopback_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    io.write("small.tif", io.Picture(GREY[:40, :40]))
    before, seen, done = _listening(), set(), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            seen.update(_listening() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        words = ["denoise", "small.tif", "-o", "alone.tif", "--sigma", "2570", "--model", "model.safetensors"]
        ran = CliRunner().invoke(app, [*words, "--cluster", "local:1"], catch_exceptions=False)
    finally:
        done.set()
        watching.join()
    assert ran.exit_code == 0, ran.output
    assert {address for address, _ in seen} == {"127.0.0.1"}
    assert len(seen) >= 3, "a scheduler, a worker, and its nurse"


def _answer(port: int, words: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """What a port says to whoever has no key."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        try:
            with tls.wrap_socket(plain) if tls else plain as link:
                link.sendall(words)
                return link.recv(1000)
        except (ssl.SSLError, ConnectionError):
            return b""


def test_a_local_cluster_talks_to_its_own_client_alone(client: Any) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    pages = [f"GET /{page} HTTP/1.0\r\n\r\n".encode() for page in ("status", "health", "metrics", "json/counts.json")]
    ports = [port for _, port in _listening()]
    empty = [port for port in ports if all(_answer(port, page).startswith(b"HTTP/1.1 404") for page in pages)]
    assert len(empty) == 3, "Dask opens ports for pages, on which there are none"
    others = set(ports) - set(empty)
    assert len(others) >= 5, "of a scheduler, and of two workers with their nurses"
    for port in others:
        assert not any(_answer(port, pages[0], tls) for tls in (None, anyone))
    address = client.scheduler.address
    for where, security in (
        (address.replace("tls:", "tcp:"), None),
        (address, None),
        (address, distributed.Security.temporary()),
    ):
        with pytest.raises((OSError, TypeError)), distributed.Client(where, security=security, timeout=0.5) as other:
            other.submit(os.getpid).result()
        gc.collect()  # clients that were refused are closed now, and not while another one starts


def test_a_cluster_without_the_package_for_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with (
        pytest.raises(InputError, match=r"cryptography, but it is not installed.*slir\[dask\]"),
        connection.connect("local"),
    ):
        pass


def _surroundings() -> tuple[str | None, bool]:
    """On a worker."""
    import dask

    return os.environ.get("MALLOC_ARENA_MAX"), dask.config.get("distributed.worker.profile.enabled")


def test_local_workers_lose_no_time(client: Any) -> None:
    """Neither to memory that is given back and asked for again, nor to a profiler."""
    assert set(client.run(_surroundings).values()) == {("1", False)}


@pytest.mark.parametrize("where", ["nonsense", "local:0", "local:x", "local:", "10.0.0.1:8786"])
def test_names_of_clusters(where: str) -> None:
    if where == "local:":
        assert connection._local_count(where) == 0
        return
    with pytest.raises(InputError, match="cluster must be local, local:N or the address"), connection.connect(where):
        pass


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.2)
    with (
        pytest.raises(InputError, match=r"127\.0\.0\.1:9 .*Start one with: dask scheduler"),
        connection.connect("tcp://127.0.0.1:9"),
    ):
        pass


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'slir\[dask\]'"), connection.connect("local"):
        pass


def test_a_worker_with_another_slir_says_so_also_where_it_joins_late(tmp_path: Path) -> None:
    """Dask only logs what a plugin raises on a worker that joins later; its tasks have to tell."""
    job = Job(Problem("denoise", sigma=5.0), tmp_path / "in.png", tmp_path / "out.png")
    folder = Folder(tmp_path, 64)
    kit = worker.Kit("late", job, None, folder, True, ("0.0.1", "other models"))
    equip, here = worker.Equip(kit), SimpleNamespace(address="tcp://late:1")
    with pytest.raises(SlirError, match=r"tcp://late:1 has slir .* but the client has 0\.0\.1"):
        equip.setup(here)
    with pytest.raises(SlirError, match="Install the same slir on all machines"):
        worker.restore_tile("late", 0, 0, None)
    equip.teardown(here)
    assert "late" not in worker._REFUSED
