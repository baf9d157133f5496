"""One file: restored, written down, and restored again to the same bytes."""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import slir
from slir import io
from slir.errors import FileError, InputError
from slir.files import atomic_output, jobs, provenance, restore_file
from slir.files.jobs import Job, parse_sigma, run
from slir.io import Picture, atomic
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")


def noisy(height=32, width=36, seed=0):
    rows, cols = np.mgrid[:height, :width]
    clean = 60 + 120 * ((rows // 8 + cols // 8) % 2)
    return (clean + np.random.default_rng(seed).normal(0, 8, clean.shape)).clip(0, 255).round().astype(np.uint8)


@pytest.fixture
def image(tmp_path):
    io.write(tmp_path / "in.png", Picture(noisy()))
    return tmp_path / "in.png"


@pytest.fixture
def quick(monkeypatch):
    """The identity in the place of the restoration; the rest as it is."""
    monkeypatch.setattr(restore_file, "restore_file", copied)


def copied(source, sink, work, progress=None):
    sink.write(source.read())
    return restore_file.Found(4.25, 1.0)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


# --- the same bytes again ------------------------------------------------------------------------------------------


def tasks(folder):
    """One job of every task, with settings of every kind."""
    image, out = folder / "in.png", folder / "out.png"
    mask = np.zeros((32, 36), np.uint8)
    mask[4:20, 10:13] = 255
    io.write(folder / "mask.png", Picture(mask))
    kernel = np.outer([0.2, 0.5, 0.3], [0.25, 0.5, 0.25])
    return {
        "denoise": Job(Problem("denoise", sigma="poisson-gaussian"), image, out),
        "deblur": Job(Problem("deblur", sigma="3%", psf=slir.psf.motion(5.3, 20)), image, out, made_by="motion 5.3,20"),
        "upsample": Job(Problem("upsample", sigma=0.1, factor=2, antialias=kernel), image, folder / "out.tif"),
        "inpaint": Job(
            Problem("inpaint", sigma=0, mask=folder / "mask.png"), image, out, data_range=(0.0, 255.0), seed=3
        ),
    }


@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_a_sidecar_gives_the_same_bytes(image, tmp_path, task):
    job = tasks(tmp_path)[task]
    outcome = run(job)
    assert (outcome.size, outcome.planes, outcome.dtype) == ((32, 36), 1, "uint8")
    assert outcome.seconds > 0
    beside = atomic_output.sidecar_of(job.output)
    record = json.loads(beside.read_text())
    assert record["output"]["sha256"] == atomic_output.digest(job.output)
    assert record["found"]["sigma"] == outcome.sigma
    again = provenance.load(beside).job(tmp_path / f"again{job.output.suffix}")
    run(again)
    assert again.output.read_bytes() == job.output.read_bytes()
    assert provenance.settings(again) == provenance.settings(job)
    assert provenance.load(beside).changes() == []


def test_kernels_are_written_with_all_their_digits(image, tmp_path, quick):
    psf = np.random.default_rng(0).random((5, 7)) / 3
    run(Job(Problem("deblur", psf=psf, sigma=np.nextafter(2, 3)), image, tmp_path / "out.png"))
    again = provenance.load(tmp_path / "out.png.json").job()
    np.testing.assert_array_equal(again.problem.options["psf"], psf)
    assert again.problem.sigma == np.nextafter(2, 3)
    assert again.output == tmp_path / "out.png"


def test_a_tree_may_be_moved(image, tmp_path, quick):
    home = tmp_path / "home"
    (home / "results").mkdir(parents=True)
    shutil.move(image, home / "in.png")
    run(Job(Problem("denoise"), home / "in.png", home / "results" / "out.png"))
    shutil.move(home, tmp_path / "moved")
    sidecar = provenance.load(tmp_path / "moved" / "results" / "out.png.json")
    assert sidecar.changes() == []
    assert sidecar.job().image == tmp_path / "moved" / "in.png"


def test_what_has_changed_is_noticed(image, tmp_path, quick, monkeypatch):
    job = tasks(tmp_path)["inpaint"]
    (tmp_path / "model.safetensors").write_bytes(b"one")
    monkeypatch.setattr(jobs, "load_model", lambda job: None)
    run(replace(job, model=tmp_path / "model.safetensors"))
    sidecar = provenance.load(tmp_path / "out.png.json")
    io.write(image, Picture(noisy(seed=1)))
    (tmp_path / "model.safetensors").write_bytes(b"two")
    os.remove(tmp_path / "mask.png")
    first, second, third = sidecar.changes()
    assert "input" in first
    assert "has changed" in first
    assert "mask" in second
    assert "is not there" in second
    assert "model.safetensors has changed" in third
    assert sidecar.other_versions() == []
    monkeypatch.setattr(provenance, "versions", lambda: {"slir": "9.9"})
    assert sidecar.other_versions() == [f"slir {slir.__version__}, now 9.9"]


def test_other_models_inside_slir_are_noticed(image, tmp_path, quick, monkeypatch):
    run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    monkeypatch.setattr(provenance, "_inside", lambda: "others")
    (text,) = provenance.load(tmp_path / "out.png.json").changes()
    assert "the models inside slir" in text


def test_threads_are_set_noted_and_set_back(image, tmp_path, monkeypatch):
    import torch

    seen = []
    monkeypatch.setattr(
        restore_file, "restore_file", lambda *given: seen.append(torch.get_num_threads()) or copied(*given)
    )
    run(Job(Problem("denoise"), image, tmp_path / "out.png", threads=3))
    assert seen == [3]
    assert torch.get_num_threads() == 1
    assert provenance.load(tmp_path / "out.png.json").job().threads == 3


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a sidecar"),
        (b'{"slir": "restoration", "version": 99}', "version 99"),
        (b'{"slir": "restoration", "version": 1, "task": "denoise", "settings": {}}', "lacks settings.data_range"),
    ],
)
def test_what_is_no_sidecar(tmp_path, contents, reason):
    (tmp_path / "out.png.json").write_bytes(contents)
    with pytest.raises(FileError, match=reason):
        provenance.load(tmp_path / "out.png.json")


def test_a_sidecar_that_was_tampered_with(image, tmp_path, quick):
    run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    path = tmp_path / "out.png.json"
    record = json.loads(path.read_text())
    record["settings"]["colour"] = "blue"
    path.write_text(json.dumps(record))
    with pytest.raises(FileError, match="damaged sidecar"):
        provenance.load(path).job()


# --- whole or not at all -------------------------------------------------------------------------------------------


def test_a_failure_leaves_what_was_there(image, tmp_path, monkeypatch):
    (tmp_path / "out.png").write_bytes(b"precious")

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(restore_file, "restore_file", fail)
    with pytest.raises(ZeroDivisionError):
        run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    assert names(tmp_path) == ["in.png", "out.png"]
    assert (tmp_path / "out.png").read_bytes() == b"precious"


def test_the_sidecar_comes_first(image, tmp_path, quick, monkeypatch):
    """Killed between the two, a run leaves a sidecar that does not fit what lies beside it."""
    run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    before = (tmp_path / "out.png").read_bytes()
    io.write(image, Picture(noisy(seed=1)))
    replaced = []

    def kill(source, target):
        if Path(target) == tmp_path / "out.png":
            raise KeyboardInterrupt
        if Path(target).parent == tmp_path:
            replaced.append(Path(target).name)
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", kill)
    job = Job(Problem("denoise"), image, tmp_path / "out.png")
    with pytest.raises(KeyboardInterrupt):
        run(job)
    assert replaced == ["out.png.json"]
    assert (tmp_path / "out.png").read_bytes() == before
    assert provenance.load(tmp_path / "out.png.json").differs(job) == "is not the file that its sidecar describes"


def test_left_overs_are_removed_and_work_underway_is_not(tmp_path):
    dead = tmp_path / f"{atomic_output.PREFIX}dead{atomic_output.SUFFIX}"
    dead.mkdir()
    (dead / "half.png").write_bytes(b"half")
    with atomic_output.staged(tmp_path / "out.png") as stage:
        assert atomic_output.clear_stale([tmp_path, tmp_path / "none"]) == 1
        assert names(tmp_path) == [stage.output.parent.name]
        stage.output.write_bytes(b"whole")
    assert names(tmp_path) == ["out.png"]


@pytest.mark.parametrize("locks", [True, False])
def test_what_is_no_folder_of_slirs_is_no_left_over(tmp_path, monkeypatch, locks):
    """A pipe would be waited for, and a link leads to what is not slir's."""
    monkeypatch.setattr(atomic_output, "_is_old", lambda folder: True)
    if not locks:
        monkeypatch.setattr(atomic_output, "fcntl", None)  # as on Windows
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("ten years")
    os.mkfifo(tmp_path / f"{atomic_output.PREFIX}pipe{atomic_output.SUFFIX}")
    (tmp_path / f"{atomic_output.PREFIX}link{atomic_output.SUFFIX}").symlink_to(tmp_path / "precious")
    before = names(tmp_path)
    assert atomic_output.clear_stale([tmp_path]) == 0
    assert names(tmp_path) == before
    assert (tmp_path / "precious" / "thesis.txt").exists()


def test_without_locks_only_what_is_old_is_left_over(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_output, "fcntl", None)  # as on Windows
    for name, age in (("old", 2 * atomic_output.DAY), ("new", 60)):
        folder = tmp_path / f"{atomic_output.PREFIX}{name}{atomic_output.SUFFIX}"
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    assert atomic_output.clear_stale([tmp_path]) == 1
    assert names(tmp_path) == [f"{atomic_output.PREFIX}new{atomic_output.SUFFIX}"]
    with atomic_output.staged(tmp_path / "out.png") as stage:
        stage.output.write_bytes(b"whole")
    assert (tmp_path / "out.png").read_bytes() == b"whole"


@pytest.mark.parametrize("suffix", [".png", ".zarr", ".ome.tif"])
def test_names_that_are_no_text_are_written_down_and_found_again(image, tmp_path, quick, suffix):
    """A name is bytes; those that are no UTF-8 have escapes in a sidecar."""
    before = tmp_path / os.fsdecode(b"in-\xff.png")
    image.rename(before)
    if suffix == ".ome.tif":  # which names itself
        own = f'<UUID FileName="x.ome.tif">urn:uuid:{uuid.UUID(int=1)}</UUID>'
        text = f"<OME><Pixels><TiffData>{own}</TiffData></Pixels></OME>"
        tifffile.imwrite(before.with_suffix(".tif"), noisy(), description=text, metadata=None)
        before = before.with_suffix(".tif")
    job = Job(Problem("denoise"), before, tmp_path / os.fsdecode(b"out-\xff" + suffix.encode()))
    run(job)
    found = provenance.load(atomic_output.sidecar_of(job.output))
    assert found.differs(job) is None
    assert found.job().image == before
    assert io.read(job.output).size == (32, 36)


def test_links_stay_links_and_rights_stay(image, tmp_path, quick):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "out.png").write_bytes(b"old")
    os.chmod(tmp_path / "real" / "out.png", 0o640)
    (tmp_path / "out.png").symlink_to(tmp_path / "real" / "out.png")
    run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    assert (tmp_path / "out.png").is_symlink()
    assert io.read(tmp_path / "real" / "out.png").size == (32, 36)
    assert (tmp_path / "real" / "out.png").stat().st_mode & 0o777 == 0o640
    assert names(tmp_path / "real") == ["out.png", "out.png.json"]


def test_folders_are_results_too(tmp_path):
    """As Zarr images are."""
    for text in ("one", "two"):
        with atomic_output.staged(tmp_path / "image.zarr") as stage:
            (stage.output / "0").mkdir(parents=True)
            (stage.output / "0" / "chunk").write_text(text)
    assert (tmp_path / "image.zarr" / "0" / "chunk").read_text() == "two"
    assert names(tmp_path) == ["image.zarr"]
    shutil.copytree(tmp_path / "image.zarr", tmp_path / "copy.zarr")
    assert atomic_output.digest(tmp_path / "image.zarr") == atomic_output.digest(tmp_path / "copy.zarr")
    (tmp_path / "copy.zarr" / "0" / "chunk").rename(tmp_path / "copy.zarr" / "0" / "piece")
    assert atomic_output.digest(tmp_path / "image.zarr") != atomic_output.digest(tmp_path / "copy.zarr")


@pytest.mark.parametrize("step", ["tempfile.mkdtemp", "slir.io.atomic._exchanged", "shutil.rmtree"])
@pytest.mark.parametrize("maker", [atomic_output.staged, atomic.whole_folder])
def test_ctrl_c_waits_until_nothing_is_halfway(maker, step, tmp_path, monkeypatch):
    """However close to a step it comes: the folder is the old one or the new one, and nothing lies beside it."""
    (tmp_path / "image.zarr").mkdir()
    (tmp_path / "image.zarr" / "chunk").write_text("old")
    module, name = step.rsplit(".", 1)
    act = getattr(sys.modules[module], name)

    def interrupted(*args, **options):
        signal.raise_signal(signal.SIGINT)
        made = act(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(sys.modules[module], name, interrupted)

    def replace_it():
        with maker(tmp_path / "image.zarr") as place:
            made = place.output if maker is atomic_output.staged else place
            made.mkdir(exist_ok=True)
            (made / "chunk").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        replace_it()
    monkeypatch.undo()
    assert names(tmp_path) == ["image.zarr"]
    assert (tmp_path / "image.zarr" / "chunk").read_text() == ("old" if step == "tempfile.mkdtemp" else "new")


def test_ctrl_c_leaves_no_temporary_file(tmp_path, monkeypatch):
    make = tempfile.mkstemp

    def interrupted(**options):
        made = make(**options)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(tempfile, "mkstemp", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic.whole_file(tmp_path / "out.png") as place:
        place.write_bytes(b"new")
    assert names(tmp_path) == []


def test_ctrl_c_is_left_alone_in_threads():
    """Only the main thread may set handlers, and only it is interrupted."""
    before = signal.getsignal(signal.SIGINT)

    def inside():
        with atomic.uninterrupted():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result() is before
    assert inside() is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_json_of_others_is_left_alone(image, tmp_path, quick):
    (tmp_path / "out.png.json").write_text("{}")
    with pytest.raises(FileError, match="not a sidecar of slir"):
        run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    run(Job(Problem("denoise"), image, tmp_path / "out.png"), sidecar=False)
    assert (tmp_path / "out.png.json").read_text() == "{}"


def test_without_a_sidecar_the_one_before_goes(image, tmp_path, quick):
    run(Job(Problem("denoise"), image, tmp_path / "out.png"))
    run(Job(Problem("denoise", sigma=3), image, tmp_path / "out.png"), sidecar=False)
    assert names(tmp_path) == ["in.png", "out.png"]


# --- what jobs say before they begin -------------------------------------------------------------------------------


def test_checks(image, tmp_path):
    out = tmp_path / "out.png"
    assert Job(Problem("denoise"), image, out).check().size == (32, 36)
    with pytest.raises(InputError, match="task must be one of"):
        Job(Problem("sharpen"), image, out)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="psf must be given"):
        Job(Problem("deblur"), image, out)
    with pytest.raises(InputError, match="mask must be given"):
        Job(Problem("inpaint"), image, out)
    with pytest.raises(InputError, match="threads must be"):
        Job(Problem("denoise"), image, out, threads=0)
    with pytest.raises(InputError, match="which hold no NaN"):
        Job(Problem("inpaint", mask="nan"), image, out).check()
    with pytest.raises(FileError, match="no such model"):
        Job(Problem("denoise"), image, out, model=tmp_path / "none.safetensors").check()
    with pytest.raises(FileError, match="does not exist"):
        Job(Problem("denoise"), image, tmp_path / "none" / "out.png").check()
    io.write(tmp_path / "mask.png", Picture(np.zeros((3, 3), np.uint8)))
    with pytest.raises(FileError, match="has 3 × 3 pixels, but the image has 36 × 32"):
        Job(Problem("inpaint", mask=tmp_path / "mask.png"), image, out).check()
    assert names(tmp_path) == ["in.png", "mask.png"]


def test_ranges_that_only_the_user_knows(tmp_path):
    tifffile.imwrite(tmp_path / "in.tif", noisy().astype(np.float32) / 255, metadata=None)
    tifffile.imwrite(tmp_path / "int.tif", noisy().astype(np.int32), metadata=None)
    with pytest.raises(InputError, match="data_range must be given"):
        Job(Problem("denoise"), tmp_path / "in.tif", tmp_path / "out.tif").check()
    with pytest.raises(InputError, match="sigma must be in pixel values"):
        Job(Problem("denoise", sigma="10%"), tmp_path / "int.tif", tmp_path / "out.tif").check()
    job = Job(Problem("denoise", sigma="10%"), tmp_path / "int.tif", tmp_path / "out.tif", data_range=(-1.0, 1.0))
    assert job._limits(job.check()) == ((-1.0, 1.0), 0.2)


def test_sigma_is_read():
    assert parse_sigma("auto") == ("name", "auto")
    assert parse_sigma(" Poisson-Gaussian ") == ("name", "poisson-gaussian")
    assert parse_sigma("10%") == ("percent", 10.0)
    assert parse_sigma(2) == ("value", 2.0)
    for bad in ("loud", "", "%", "-1", "nan", "inf%", float("nan"), -2.0):
        with pytest.raises(InputError, match="sigma must"):
            parse_sigma(bad)


# --- stacks, alpha, NaN --------------------------------------------------------------------------------------------


def test_stacks_are_restored_plane_by_plane(tmp_path):
    stack = np.stack([noisy(seed=seed) for seed in range(3)])
    tifffile.imwrite(tmp_path / "in.tif", stack, imagej=True)
    seen = []
    job = Job(Problem("denoise", sigma=8), tmp_path / "in.tif", tmp_path / "out.tif")
    outcome = run(job, progress=lambda done, total, what: seen.append((done, total)))
    assert outcome.planes == 3
    assert outcome.sigma == 8
    restored = tifffile.imread(tmp_path / "out.tif")
    for plane, before in zip(restored, stack):
        np.testing.assert_array_equal(plane, slir.denoise(before, sigma=8))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_pixels_that_are_nan_are_filled(tmp_path):
    image = noisy().astype(np.float32) / 255
    image[5:9, 7] = np.nan
    tifffile.imwrite(tmp_path / "in.tif", image, metadata=None)
    run(Job(Problem("inpaint", sigma=0, mask="nan"), tmp_path / "in.tif", tmp_path / "out.tif", data_range=1.0))
    after = tifffile.imread(tmp_path / "out.tif")
    known = np.isfinite(image)
    assert np.isfinite(after).all()
    np.testing.assert_array_equal(after[known], image[known])
    assert provenance.load(tmp_path / "out.tif.json").job().problem.mask == "nan"


def test_the_noise_of_a_jpeg_is_told_with_its_quality(tmp_path):
    Image.fromarray(noisy(64, 64)).save(tmp_path / "a.jpg", quality=80)
    outcome = run(Job(Problem("denoise", sigma="auto"), tmp_path / "a.jpg", tmp_path / "b.png"))
    assert outcome.noise.endswith("; JPEG of quality 80")
    beside = atomic_output.sidecar_of(tmp_path / "b.png")
    assert provenance.load(beside).record["found"]["noise"] == outcome.noise
    assert run(Job(Problem("denoise", sigma=20), tmp_path / "a.jpg", tmp_path / "c.png")).noise == ""
