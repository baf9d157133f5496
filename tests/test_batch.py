"""Many files: which ones, what becomes of each, and runs that are killed."""

import dataclasses
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

import corpus
import slir
import test_malformed as malformed
from slir import io
from slir.cli import app
from slir.errors import FileError, InputError
from slir.files import atomic_output, batch, paths, provenance, restore_file
from slir.files.batch import Policy
from slir.files.jobs import Job
from slir.io import Picture
from slir.kernel.shipped import shipped_hash, shipped_model
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()


def write(path, seed=0, side=24):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(60, 190, (side, side)).astype(np.uint8)
    io.write(path, Picture(pixels))


@pytest.fixture
def tree(tmp_path):
    """in/a.png, in/b.jpg, in/deep/c.tif, and what is not to be taken for an image."""
    for number, name in enumerate(("a.png", "b.jpg", "deep/c.tif")):
        write(tmp_path / "in" / name, number)
    (tmp_path / "in" / "notes.txt").write_text("no image")
    shutil.copy(tmp_path / "in" / "a.png", tmp_path / "in" / ".hidden.png")
    stale = tmp_path / "in" / f"{atomic_output.PREFIX}x{atomic_output.SUFFIX}"
    stale.mkdir()
    shutil.copy(tmp_path / "in" / "a.png", stale / "half.png")
    return tmp_path / "in"


@pytest.fixture
def quick(monkeypatch):
    """The identity in the place of the restoration; the names of the files that went through it."""
    seen = []
    monkeypatch.setattr(restore_file, "restore_file", lambda *given: seen.append(given[0].path.name) or copied(*given))
    return seen


def copied(source, sink, work, progress=None):
    """In the place of `slir.files.restore_file.restore_file`: pixels as they are."""
    for plane in range(source.planes):
        sink.write(source.read(plane), plane=plane)
    return restore_file.Found(4.25, 1.0)


def run(*words, code=0):
    result = runner.invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def found(*places, output="out", **options):
    return [
        (pair.image.as_posix(), pair.output.as_posix()) for pair in paths.pairs([*map(str, places)], output, **options)
    ]


def files(folder):
    """Names of all that a folder holds, hidden things too, and what the files hold."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()
    }


# --- which files ---------------------------------------------------------------------------------------------------


def test_folders(tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    assert found("in") == [("in/a.png", "out/a.png"), ("in/b.jpg", "out/b.jpg")]
    assert found("in", recursive=True)[-1] == ("in/deep/c.tif", "out/deep/c.tif")
    assert found("in", recursive=True, form="tif") == [
        ("in/a.png", "out/a.tif"),
        ("in/b.jpg", "out/b.tif"),
        ("in/deep/c.tif", "out/deep/c.tif"),
    ]


def test_one_file(tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    assert found("in/a.png", output="clean.png") == [("in/a.png", "clean.png")]
    assert found("in/a.png", output="clean/") == [("in/a.png", "clean/a.png")]
    (tree.parent / "there").mkdir()
    assert found("in/a.png", output="there") == [("in/a.png", "there/a.png")]
    assert found("in/a.png", "in/deep/c.tif") == [("in/a.png", "out/a.png"), ("in/deep/c.tif", "out/c.tif")]
    assert found("in/a.png", "in/a.png") == [("in/a.png", "out/a.png")]
    assert found("none.png", output="clean.png") == [("none.png", "clean.png")]  # reading it will say so


def test_patterns_that_the_shell_left_alone(tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    assert found("in/*") == [("in/a.png", "out/a.png"), ("in/b.jpg", "out/b.jpg")]
    assert found("in/**/*.tif") == [("in/deep/c.tif", "out/deep/c.tif")]
    assert found("**/*.tif") == [("in/deep/c.tif", "out/in/deep/c.tif")]
    assert [image for image, _ in found("in/**")] == ["in/a.png", "in/b.jpg", "in/deep/c.tif"]
    assert found("*/[ab].*") == [("in/a.png", "out/in/a.png"), ("in/b.jpg", "out/in/b.jpg")]
    assert found("in/?.png", output="x/") == [("in/a.png", "x/a.png")]
    shutil.copy(tree / "a.png", tree / "odd[1].png")
    assert found("in/odd[1].png", output="x.png") == [("in/odd[1].png", "x.png")]  # a name first, then a pattern
    with pytest.raises(FileError, match="pattern that no image matches"):
        found("in/*.webp")


def test_links_that_lead_back_are_not_followed(tree, monkeypatch):
    monkeypatch.chdir(tree.parent)
    for name in ("loop", "again"):  # two of them would be 2**40 paths
        (tree / "deep" / name).symlink_to(tree, target_is_directory=True)
    (tree / "gone.png").symlink_to(tree / "none.png")
    wanted = ["in/a.png", "in/b.jpg", "in/deep/c.tif"]
    assert [image for image, _ in found("in", recursive=True)] == wanted
    assert [image for image, _ in found("in/**/*.*")] == wanted
    (tree.parent / "other").mkdir()
    write(tree.parent / "other" / "d.png")
    (tree / "linked").symlink_to(tree.parent / "other", target_is_directory=True)
    assert found("in", recursive=True)[-1] == ("in/linked/d.png", "out/linked/d.png")


def test_what_folders_hold_besides_images_is_told(tree, quick, tmp_path):
    for name in ("x.gif", "deep/y.CR2", "notes.txt", ".hidden.gif"):
        (tree / name).write_bytes(b"x")
    (tree / "gone.png").symlink_to(tree / "none.png")
    told = run("denoise", tree, "-o", tmp_path / "out").stderr
    formats = f"{tree / 'notes.txt'}, {tree / 'x.gif'} (not a format that slir reads)"
    assert f"note: passed over 3 files: {tree / 'gone.png'} (a link that leads nowhere); {formats}\n" in told
    assert "passed over" not in run("denoise", tree, "-o", tmp_path / "out", "-f", "-q").stderr
    again = run("denoise", tree, "-o", tree, "-f", "-r", "--json")  # sidecars are not told of
    summary = json.loads(again.stdout.splitlines()[-1])["summary"]
    assert [each["path"] for each in summary["passed_over"]] == [
        str(tree / name) for name in ("deep/y.CR2", "gone.png", "notes.txt", "x.gif")
    ]
    assert again.stderr == ""
    for number in range(9):
        (tree / f"{number}.gif").write_bytes(b"x")
    told = run("denoise", tree, "-o", tmp_path / "new", "--dry-run").stderr
    assert "10 .gif, 1 .txt (not a format that slir reads)" in told
    assert "passed over" not in run("denoise", tree / "a.png", "-o", tmp_path / "one.png").stderr
    assert "passed over" not in run("denoise", f"{tree}/?.jpg", "-o", tmp_path / "out", "-f").stderr


def test_results_are_not_taken_for_images(tree, quick, monkeypatch):
    monkeypatch.chdir(tree.parent)
    write(tree / "done" / "a.png")
    assert [image for image, _ in found("in", output="in/done", recursive=True)] == [
        "in/a.png",
        "in/b.jpg",
        "in/deep/c.tif",
    ]
    # Into the folder itself, as another format: what was made is known by its sidecar.
    run("denoise", "in/a.png", "-o", "in/a.tif")
    assert found("in", output="in", form="tif") == [("in/a.png", "in/a.tif"), ("in/b.jpg", "in/b.tif")]
    os.remove("in/a.tif.json")
    with pytest.raises(FileError, match=r"both in/a.png and in/a.tif would be written"):
        found("in", output="in", form="tif")


def test_sidecars_are_no_images(tree, quick, monkeypatch):
    monkeypatch.chdir(tree.parent)
    run("denoise", "in/a.png", "-o", "in/z.png")
    assert found("in/a.png", "in/z.png", "in/z.png.json", output="x") == [
        ("in/a.png", "x/a.png"),
        ("in/z.png", "x/z.png"),
    ]
    (tree / "own.json").write_text("{}")
    assert found("in/a.png", "in/own.json", output="x")[1] == ("in/own.json", "x/own.json")  # it will be told of


def test_fits_and_zarr_are_done_again_and_skipped_too(tmp_path, quick):
    fits, zarr = pytest.importorskip("astropy.io.fits"), pytest.importorskip("zarr")
    pixels = np.random.default_rng(0).random((20, 24)).astype(np.float32)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    fits.PrimaryHDU(pixels).writeto(tmp_path / "in" / "a.fits")
    zarr.save_array(tmp_path / "in" / "deep" / "b.zarr", pixels)
    words = ("denoise", tmp_path / "in", "-o", tmp_path / "out", "-r", "-j", 1, "--data-range", 1)
    run(*words)
    made = [tmp_path / "out" / "a.fits", tmp_path / "out" / "deep" / "b.zarr"]
    before = [atomic_output.digest(path) for path in made]
    assert "0 restored, 2 skipped" in run(*words, "--skip-existing").stdout
    for number, path in enumerate(made):
        again = tmp_path / f"again{path.suffix}"
        assert run("rerun", atomic_output.sidecar_of(path), "-o", again).stderr == ""
        assert atomic_output.digest(again) == before[number]
    run(*words, "--force")
    assert [atomic_output.digest(path) for path in made] == before
    assert not list((tmp_path / "out").rglob(f"{atomic_output.PREFIX}*"))


def test_one_output_for_two_inputs_is_refused_before_the_work(tree, quick, tmp_path):
    write(tree / "deep" / "a.png")
    out = tmp_path / "out"
    result = run("denoise", tree / "a.png", tree / "deep" / "a.png", "-o", out, code=2)
    assert "both" in result.stderr
    assert "--recursive" in result.stderr
    assert quick == []
    assert not out.exists()


def test_outputs_that_cannot_be(tree, tmp_path):
    with pytest.raises(InputError, match="be a folder for many images"):
        found(tree, output=tmp_path / "out.png")
    with pytest.raises(InputError, match="be a folder for many images"):
        found(tree / "a.png", tree / "b.jpg", output=tree / "notes.txt")
    with pytest.raises(InputError, match="format must be one of png"):
        found(tree, output=tmp_path / "out", form="gif")
    with pytest.raises(InputError, match="suffix already specifies it"):
        found(tree / "a.png", output=tmp_path / "out.png", form="tif")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"holds no images.*--recursive"):
        found(tmp_path / "empty", output=tmp_path / "out")


# --- what becomes of each ------------------------------------------------------------------------------------------


def test_a_bad_file_among_good_ones(tree, quick, tmp_path):
    (tree / "aa.png").write_bytes((tree / "a.png").read_bytes()[:60])
    out = tmp_path / "out"
    result = run("denoise", tree, "-o", out, "-r", "--jobs", 1, code=1)
    assert sorted(files(out)) == ["a.png", "a.png.json", "b.jpg", "b.jpg.json", "deep/c.tif", "deep/c.tif.json"]
    assert "3 restored, 0 skipped, 1 failed" in result.stdout.splitlines()[-1]
    note, line = result.stderr.splitlines()
    assert note.startswith("note: passed over 1 file")
    assert line.startswith(f"error: {tree / 'aa.png'}: ")
    assert "truncated" in line


def test_stop_at_the_first_error(tree, quick, tmp_path):
    (tree / "aa.png").write_bytes(b"")
    result = run("denoise", tree, "-o", tmp_path / "out", "-r", "-j", 1, "--on-error", "stop", code=1)
    assert quick == ["a.png"]
    assert "1 restored, 0 skipped, 1 failed, 2 not begun" in result.stdout


def test_a_bug_costs_one_file(tree, quick, tmp_path, monkeypatch):
    good = restore_file.restore_file

    def sometimes(source, *rest):
        if source.path.name == "a.png":
            raise ZeroDivisionError("by zero")
        return good(source, *rest)

    monkeypatch.setattr(restore_file, "restore_file", sometimes)
    result = run("denoise", tree, "-o", tmp_path / "out", "-j", 1, code=1)
    assert "a bug in slir (ZeroDivisionError: by zero)" in result.stderr
    assert "Traceback" in result.stderr  # whoever reports it needs it
    assert quick == ["b.jpg"]


def test_failures_name_the_file_and_the_option(tree, quick, tmp_path):
    tifffile.imwrite(tree / "f.tif", np.ones((20, 20), np.float32), metadata=None)
    result = run("denoise", tree, "-o", tmp_path / "out", "-j", 1, code=1)
    assert result.stderr.splitlines()[-1].startswith(
        f"error: {tree / 'f.tif'}: --data-range must be given for an image of floats"
    )
    reports = batch.run([Job(Problem("denoise"), tree / "f.tif", tmp_path / "f.tif")])
    assert next(reports).reason.startswith(f"{tree / 'f.tif'}: data_range must be given")


def test_what_would_fail_for_all_is_told_once(tree, quick, tmp_path):
    out = tmp_path / "out"
    assert (
        "none.safetensors" in run("denoise", tree, "-o", out, "--model", tmp_path / "none.safetensors", code=2).stderr
    )
    assert "--sigma must" in run("denoise", tree, "-o", out, "--sigma", "loud", code=2).stderr
    np.save(tmp_path / "psf.npy", np.zeros((3, 3)))
    assert "sum to 0" in run("deblur", tree, "-o", out, "--psf", tmp_path / "psf.npy", code=2).stderr
    assert not out.exists()


def test_skipping_what_is_done(tree, quick, tmp_path):
    out = tmp_path / "out"
    words = ("denoise", tree, "-o", out, "-j", 1)
    run(*words)
    made = files(out)
    assert "exists already" in run(*words, code=1).stderr  # nothing is replaced unasked
    result = run(*words, "--skip-existing")
    assert quick == ["a.png", "b.jpg"]
    assert "0 restored, 2 skipped, 0 failed" in result.stdout
    assert files(out) == made
    os.remove(out / "a.png")
    run(*words, "--skip-existing")
    assert quick[2:] == ["a.png"]
    (out / "b.jpg.json").unlink()
    run(*words, "--skip-existing")  # without a sidecar, it is taken for what it should be
    assert quick[3:] == []


def test_what_was_made_otherwise_is_not_skipped(tree, quick, tmp_path):
    out = tmp_path / "out"
    words = ("denoise", tree, "-o", out, "-j", 1, "--skip-existing")
    run(*words)
    result = run(*words, "--sigma", 3, code=1)
    assert "was made with another sigma (auto, now 3.0). Pass --force" in result.stderr
    write(tree / "a.png", 9)
    assert "a.png: was made from another input" in run(*words, code=1).stderr
    (out / "b.jpg").write_bytes(b"edited")
    assert "b.jpg: is not the file that its sidecar describes" in run(*words, code=1).stderr
    (out / "a.png.json").write_text("{")
    assert "a.png: has a sidecar that cannot be read" in run(*words, code=1).stderr
    (out / "a.png.json").unlink()
    quick.clear()
    run(*words, "--force")
    assert quick == ["b.jpg"]
    assert run(*words).stdout.count("skipped") == 3


def test_masks_by_folder(tree, tmp_path, monkeypatch):
    seen = {}

    def noting(source, sink, work, progress):
        seen[source.path.name] = work.missing(slice(None), slice(None)).sum()
        return copied(source, sink, work)

    monkeypatch.setattr(restore_file, "restore_file", noting)
    (tmp_path / "masks" / "deep").mkdir(parents=True)
    for count, name in enumerate(("a.png", "deep/c.png"), start=2):
        mask = np.zeros((24, 24), np.uint8)
        mask[3 : 3 + count, 4] = 1
        io.write(tmp_path / "masks" / name, Picture(mask))
    result = run("inpaint", tree, "-o", tmp_path / "out", "-r", "-j", 1, "--mask", tmp_path / "masks", code=1)
    assert seen == {"a.png": 2, "c.tif": 3}
    assert f"{tmp_path / 'masks' / 'b.jpg'}: does not exist" in result.stderr


def malformed_files(folder, making):
    """A thousand files that are damaged, misnamed or made to harm, and good ones among them."""
    rng = np.random.default_rng(1)
    for name in malformed.BASES:
        data = corpus.data_of(name, making)
        (folder / f"good-{name}").write_bytes(data)
        for broken, contents in malformed.damaged(rng, name, data):
            (folder / broken).write_bytes(contents)
    for name, contents in malformed.handmade():
        (folder / f"made-{name}").write_bytes(contents)
    for suffix in ("png", "jpg", "webp", "tif", "fits"):
        (folder / f"empty.{suffix}").touch()
        (folder / f"random.{suffix}").write_bytes(rng.bytes(5000))


def test_a_thousand_malformed_files(tmp_path):
    pytest.importorskip("astropy")
    for name in ("in", "making"):
        (tmp_path / name).mkdir()
    malformed_files(tmp_path / "in", tmp_path / "making")
    words = ["denoise", "in", "-o", "out", "--sigma", "0", "--data-range=-65536,65536", "--jobs", "1", "--json"]
    command = [sys.executable, "-m", "slir", *words]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    records, last, longest = [], time.perf_counter(), 0.0
    for line in process.stdout:
        now = time.perf_counter()
        longest = max(longest, now - last) if records else 0.0  # the first file waits for torch
        last = now
        records.append(json.loads(line))
    _, errors = process.communicate()
    summary = records.pop()["summary"]
    assert process.returncode == 1
    assert errors == ""
    assert len(records) == summary["restored"] + summary["failed"] == len(list((tmp_path / "in").iterdir())) > 1000
    bad = [record for record in records if record["status"] == "failed"]
    assert all(Path(record["image"]).name in record["reason"] for record in bad)
    assert not [record["reason"] for record in bad if "a bug in slir" in record["reason"]]
    assert not [record["reason"] for record in bad if "good-" in record["image"]]
    assert longest < 30  # none hangs; a machine may be busy otherwise
    assert max(record["memory"] for record in records if record["status"] == "restored") < 2**30
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


# --- what machines read --------------------------------------------------------------------------------------------


def test_json_lines(tree, quick, tmp_path):
    (tree / "aa.png").write_bytes(b"")
    result = run("denoise", tree, "-o", tmp_path / "out", "-j", 1, "--json", code=1)
    first, bad, second, last = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["status"], first["sigma"], first["width"], first["height"]) == ("restored", 4.25, 24, 24)
    assert first["output"] == str(tmp_path / "out" / "a.png")
    assert (bad["status"], bad["image"]) == ("failed", str(tree / "aa.png"))
    assert "is empty" in bad["reason"]
    assert second["status"] == "restored"
    assert last["summary"].pop("seconds") >= 0
    assert [each["path"] for each in last["summary"].pop("passed_over")] == [str(tree / "notes.txt")]
    assert last == {"summary": {"restored": 2, "skipped": 0, "failed": 1, "not_begun": 0}}


def test_json_of_one_file(tree, quick, tmp_path):
    words = ("denoise", tree / "a.png", "-o", tmp_path / "out.png", "--json")
    first, last = (json.loads(line) for line in run(*words).stdout.splitlines())
    assert (first["status"], last["summary"]["restored"]) == ("restored", 1)
    result = run(*words, code=2)
    first, last = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["status"], last["summary"]["failed"]) == ("failed", 1)
    assert result.stderr.startswith("error: ")


def test_a_dry_run_writes_nothing(tree, tmp_path):
    (tree / "aa.png").write_bytes(b"")
    before = files(tmp_path)
    words = ("denoise", tree, "-o", tmp_path / "out", "-r", "--dry-run", "--sigma", 5)
    result = run(*words, code=1)
    assert files(tmp_path) == before
    assert not (tmp_path / "out").exists()
    lines = result.stdout.splitlines()
    pattern = r"would denoise \S+a\.png \(24 × 24 grey uint8, about \d+\.\d s, \d+ MB\) -> \S+out/a\.png"
    assert re.fullmatch(pattern, lines[0])
    assert "3 to restore, 0 to skip, 1 that would fail: estimated" in lines[-1]
    assert "nothing was written" in lines[-1]
    assert "is empty" in result.stderr
    records = [json.loads(line) for line in run(*words, "--json", code=1).stdout.splitlines()]
    assert [record.get("would_be") for record in records] == ["restored", "failed", "restored", "restored", None]
    assert records[0]["memory"] > 10**8
    assert files(tmp_path) == before


def test_estimates_grow_with_the_work(tree, tmp_path):
    from slir.files.cost import calibrate, estimate

    job = Job(Problem("upsample", factor=2), tree / "a.png", tmp_path / "out.png", threads=1)
    pace = calibrate(job)
    assert 1e-7 < pace.each < 1e-3
    head = job.check()
    small = estimate(job, head, pace)
    large = estimate(job, head.scaled(4), pace)
    assert large.seconds - pace.fixed == pytest.approx(16 * (small.seconds - pace.fixed))
    assert large.memory > small.memory


def test_estimates_count_the_halos_of_tiles_and_examine_no_more_than_a_sample(tree, tmp_path):
    from slir.files.cost import EXAMINED, Pace, estimate

    job = Job(Problem("denoise"), tree / "a.png", tmp_path / "out.png")
    head = dataclasses.replace(job.check(), size=(3000, 4000))
    pixels = 3000 * 4000
    assert 1.1 * pixels < estimate(job, head, Pace(0.0, 1.0, 0.0)).seconds < 2 * pixels
    assert estimate(job, head, Pace(5.0, 0.0, 1.0)).seconds == 5 + EXAMINED
    circular = Job(Problem("deblur", psf=np.ones((3, 3)) / 9, border="circular"), job.image, job.output)
    assert estimate(circular, head, Pace(0.0, 1.0, 0.0)).seconds == pixels  # which is no tile


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("each", [1e-7, 1e-5, 1e-3])
def test_timing_tells_what_a_pixel_takes_apart_from_the_rest(tree, tmp_path, monkeypatch, each, colour):
    """Of any engine, here one that sets a clock of its own; in the time allowed, if the smallest picture takes less."""
    from slir.files import cost

    clock, sizes = [0.0], []

    def restore_image(pixels, problem, settings):
        assert settings.channel_axis == (-1 if colour else None)
        assert pixels.shape[2:] == ((3,) if colour else ())
        clock[0] += 0.1 * each * pixels.size
        settings.progress(0, 1, "restoring")
        clock[0] += (5.0 if not sizes else 0.02) + each * pixels.size
        settings.progress(1, 1, "restoring")
        sizes.append(pixels.shape[0])

    monkeypatch.setattr(cost, "restore_image", restore_image)
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    pace = cost.calibrate(Job(Problem("denoise"), tree / "a.png", tmp_path / "out.png"), colour=colour)
    small = 64 if each == 1e-3 else 0
    fixed = 0.0 if small else 0.02  # of one size alone nobody can tell
    taken = each * (3 if colour else 1) + (0.02 / small**2 if small else 0)
    assert (pace.fixed, pace.each) == (pytest.approx(fixed), pytest.approx(taken))
    assert pace.examined == pytest.approx(0.1 * each * (3 if colour else 1))
    assert max(sizes) <= cost.MOST
    assert clock[0] - 5 <= cost.PATIENCE + 2 * (0.02 + 1.1 * taken * 64**2)


def test_nobody_is_warned_of_the_picture_that_is_timed(tree, tmp_path):
    """Warnings are errors here."""
    from slir.files.cost import calibrate

    wide = np.outer(np.hanning(17), np.hanning(17))
    calibrate(Job(Problem("deblur", sigma=20, psf=wide / wide.sum()), tree / "a.png", tmp_path / "out.png", threads=1))


# --- options from a file -------------------------------------------------------------------------------------------


def config(folder, text):
    path = folder / "run.toml"
    path.write_text(textwrap.dedent(text))
    return path


def test_options_from_a_file(tree, tmp_path, monkeypatch):
    noted = []
    monkeypatch.setattr(restore_file, "restore_file", lambda *given: noted.append(given[2]) or copied(*given))
    path = config(
        tmp_path,
        f"""
        images = ["{tree}"]
        output = "{tmp_path / "out"}"
        sigma = "10%"
        data_range = [0, 255]
        recursive = true
        sidecar = false
        jobs = 1
        seed = 7
        motion = [9, 30]
        """,
    )
    run("deblur", "--config", path)
    assert len(noted) == 3
    assert (noted[0].problem.sigma, noted[0].data_range, noted[0].seed) == (25.5, (0.0, 255.0), 7)
    np.testing.assert_array_equal(noted[0].problem.options["psf"], slir.psf.motion(9, 30))
    assert not list((tmp_path / "out").glob("*.json"))
    run("deblur", tree / "a.png", "--config", path, "-o", tmp_path / "x.png", "--sigma", 2, "--sidecar")
    assert (noted[3].problem.sigma, noted[3].seed) == (2.0, 7)  # the command line wins
    assert (tmp_path / "x.png.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sigmaa = 3",
            "sigmaa in .*run.toml must be an option of slir denoise, but it is unknown. Did you mean sigma?",
        ),
        ("motion = '9,30'", "an option of slir denoise, but it is unknown"),
        ("sigma = true", "sigma in .* must have a value, but it is True"),
        ("recursive = 'yes'", "recursive in .* must be true or false, but it is 'yes'. Write recursive = true."),
        ("[denoise]\nsigma = 3", "denoise in .* must be an option"),
        ("[sigma]\nvalue = 3", "sigma in .* must be a value, but it is a table"),
        ("sigma = ", "is not TOML"),
    ],
)
def test_files_of_options_that_are_wrong(tree, tmp_path, quick, text, words):
    path = config(tmp_path, text)
    result = run("denoise", tree, "-o", tmp_path / "out", "--config", path, code=2)
    assert re.search(words, " ".join(result.stderr.split())), result.stderr
    assert quick == []


def test_values_in_a_file_are_checked_as_on_the_command_line(tree, tmp_path, quick):
    path = config(tmp_path, "jobs = 'two'")
    assert "--jobs" in run("denoise", tree, "-o", tmp_path / "out", "--config", path, code=2).stderr
    assert "does not exist" in run("denoise", tree, "-o", "out", "--config", tmp_path / "none.toml", code=2).stderr


# --- rerun and info ------------------------------------------------------------------------------------------------


def test_rerun(tree, quick, tmp_path):
    run("denoise", tree, "-o", tmp_path / "out", "-j", 1)
    sidecar, again = tmp_path / "out" / "a.png.json", tmp_path / "again.png"
    assert "exists already" in run("rerun", sidecar, code=2).stderr
    result = run("rerun", sidecar, "-o", again)
    assert result.stderr == ""
    assert again.read_bytes() == (tmp_path / "out" / "a.png").read_bytes()
    run("rerun", *(tmp_path / "out").glob("*.json"), "-o", tmp_path / "all")
    assert sorted(files(tmp_path / "all")) == ["a.png", "a.png.json", "b.jpg", "b.jpg.json"]
    write(tree / "a.png", 9)
    assert f"the input {tree / 'a.png'} has changed. Pass --anyway" in run("rerun", sidecar, "-f", code=2).stderr
    result = run("rerun", sidecar, tmp_path / "out" / "b.jpg.json", "-f", code=1)
    assert "1 restored, 0 skipped, 1 failed" in result.stdout
    result = run("rerun", sidecar, "-o", again, "-f", "--anyway")
    assert "has changed; the result may differ" in result.stderr
    assert f"{again}: differs from the one that {sidecar} describes" in result.stderr


def test_rerun_warns_of_other_versions(tree, quick, tmp_path, monkeypatch):
    run("denoise", tree / "a.png", "-o", tmp_path / "out.png")
    monkeypatch.setattr("slir.files.provenance.versions", lambda: {"slir": slir.__version__, "torch": "9.9"})
    assert re.search(
        r"warning: .*: torch \S+, now 9\.9; the result may differ", run("rerun", tmp_path / "out.png.json", "-f").stderr
    )


def test_info_of_images(tree, tmp_path):
    meta = io.Meta(resolution=io.Resolution(300, 300), orientation=6, text={"Author": "somebody"})
    io.write(tree / "d.png", Picture(np.arange(64, dtype=np.uint16).reshape(8, 8), meta=meta))
    text = run("info", tree / "d.png").stdout
    for part in ("PNG, 8 × 8 grey uint16", "0 to 63 of 0 to 65535", "300 × 300 per inch", "orientation", "somebody"):
        assert part in text
    lines = [json.loads(line) for line in run("info", tree, "--json", "--noise").stdout.splitlines()]
    assert [(line["format"], line["width"]) for line in lines] == [("PNG", 24), ("JPEG", 24), ("PNG", 8)]
    assert all(line["sigma"] >= 0 for line in lines)
    (tree / "bad.png").write_bytes(b"")
    assert "is empty" in run("info", tree, code=1).stderr
    assert "is empty" in run("info", tree / "bad.png", code=2).stderr


def test_info_tells_of_outputs_that_have_changed(tmp_path, quick):
    write(tmp_path / "a.png")
    run("denoise", tmp_path / "a.png", "-o", tmp_path / "b.jpg")
    assert "has changed" not in run("info", tmp_path / "b.jpg").stdout
    write(tmp_path / "b.jpg", 1)
    assert "the file has changed since slir wrote it" in run("info", tmp_path / "b.jpg").stdout


def test_a_disk_without_room_is_told_before_the_work(tree, tmp_path, monkeypatch, quick):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(1000, 999, 100))
    told = run("denoise", tree / "a.png", "-o", tmp_path / "a.png", code=2).stderr
    assert "has 0.0 MB of pixels, but on its disk 0.0 MB are free. Make room" in told
    assert not (tmp_path / "a.png").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(1000, 1, 999))
    run("denoise", tree / "a.png", "-o", tmp_path / "a.png")  # half of its pixels: it may become smaller


def test_info_of_models():
    from importlib.resources import as_file, files

    with as_file(files("slir.models") / "kernel.safetensors") as path:
        found = json.loads(run("info", path, "--json").stdout)
        text = run("info", path).stdout
    assert (found["task"], found["method"]) == ("restore", "kernel")
    assert found["steps"] > 1000
    assert "a model to restore" in text
    assert "calibrated for the whole task, sigma from" in found["intervals"]["denoise"]
    assert found["intervals"]["deblur"] in text
    assert found["inside_slir"] == shipped_hash()  # as sidecars name it
    assert re.search(rf"sha256 +{found['sha256']}\n.*{found['inside_slir']}", text)


def test_info_of_a_model_has_the_hash_of_its_sidecars(tree, tmp_path):

    model = tmp_path / "own.safetensors"
    shipped_model("upsample2").save(str(model))
    found = json.loads(run("info", model, "--json").stdout)
    assert "inside_slir" not in found
    job = Job(Problem("upsample", factor=2), tree / "a.png", tmp_path / "out.png", model=model)
    assert provenance.fingerprints(job)["model"]["sha256"] == found["sha256"]


# --- several processes ---------------------------------------------------------------------------------------------


def engine_jobs(folder, out, count=4):
    for number in range(count):
        write(folder / f"{number}.png", number, side=20)
    return [Job(Problem("denoise", sigma=9), folder / f"{n}.png", out / f"{n}.png") for n in range(count)]


def test_two_workers_give_the_same_bytes_as_one_and_one_that_dies_costs_its_file(tmp_path):
    alone = list(batch.run(engine_jobs(tmp_path / "in", tmp_path / "one")))
    assert [report.status for report in alone] == ["restored"] * 4
    killed = []

    def kill_once(number, done, total, what):
        if not killed:
            (victim, *_) = multiprocessing.active_children()
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    together = list(batch.run(engine_jobs(tmp_path / "in", tmp_path / "two"), workers=2, progress=kill_once))
    (lost,) = [report for report in together if report.status == "failed"]
    assert "was killed by SIGKILL, which is what the system does when memory runs out" in lost.reason
    assert str(lost.job.image) in lost.reason
    assert not lost.job.output.exists()
    policy = Policy(skip_existing=True)
    again = list(batch.run(engine_jobs(tmp_path / "in", tmp_path / "two"), policy=policy))
    assert sorted(report.status for report in again) == ["restored", "skipped", "skipped", "skipped"]
    for number in range(4):
        name = f"{number}.png"
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert sorted(files(tmp_path / "one")) == sorted(files(tmp_path / "two"))
    assert multiprocessing.active_children() == []


def test_how_many_workers_suit(tmp_path, monkeypatch):
    jobs = [Job(Problem("denoise"), tmp_path / f"{n}.png", tmp_path / "out" / f"{n}.png") for n in range(5)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(batch, "_free_memory", lambda: 3 * batch.WORKER_MEMORY)
    assert batch.workers_for(jobs) == 3
    assert batch.workers_for(jobs[:1]) == 1
    monkeypatch.setattr(batch, "_free_memory", lambda: 0)
    assert batch.workers_for(jobs) == 1
    monkeypatch.setattr(batch, "_free_memory", lambda: 2**50)
    assert batch.workers_for(jobs) == 5


# --- runs that are killed ------------------------------------------------------------------------------------------

# The command with the identity in the place of the engine, which makes it quick to start: no torch.
PROGRAM = """
import contextlib, sys, time
from slir import io
from slir.files import jobs, provenance

def engine(job, output, progress):
    with io.open_source(job.image) as source, io.create(output, source) as sink:
        time.sleep(0.004)
        sink.write(source.read())
        time.sleep(0.004)
        return source.head, {}

jobs._engine = engine
jobs.using_threads = lambda wanted: contextlib.nullcontext(1)
provenance._inside = lambda: "none"
from slir.cli import main
print("begun", flush=True)
main()
"""


def start(tree, out):
    words = ["denoise", str(tree), "-o", str(out), "--jobs", "1", "--skip-existing", "--json"]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """16 images and their results."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(16):
        write(folder / "in" / f"{number:02}.png", number, side=8)
    start(folder / "in", folder / "out").communicate()
    return folder / "in", files(folder / "out")


def wait_for(count, out):
    """Until a run has made as many outputs."""
    while len(list(out.glob("[!.]*.png"))) < count:
        time.sleep(0.001)


def test_killed_at_any_moment_a_run_goes_on_where_it_was(many, tmp_path, quick):
    images, wanted = many
    assert len(wanted) == 32
    moments = random.Random(0)
    finished = []
    for attempt in range(8):
        out = tmp_path / str(attempt)
        process = start(images, out)
        wait_for(2 * attempt, out)
        time.sleep(moments.uniform(0, 0.03))  # a file takes as long
        process.kill()
        process.communicate()
        left = {name: contents for name, contents in files(out).items() if name.endswith(".png") and name[0] != "."}
        assert all(contents == wanted[name] for name, contents in left.items())
        stamps = {name: (out / name).stat().st_mtime_ns for name in left}
        output = run("denoise", images, "-o", out, "--jobs", 1, "--skip-existing", "--json").stdout
        summary = json.loads(output.splitlines()[-1])["summary"]
        assert (summary["restored"], summary["skipped"], summary["failed"]) == (16 - len(left), len(left), 0)
        assert {name: (out / name).stat().st_mtime_ns for name in left} == stamps
        assert sorted(files(out)) == sorted(wanted)
        assert all(files(out)[name] == wanted[name] for name in wanted if name.endswith(".png"))
        finished.append(len(left))
    assert finished[0] < 16 <= 2 + finished[-1]  # from the start to the end


def test_ctrl_c_stops_cleanly(many, tmp_path):
    images, wanted = many
    process = start(images, tmp_path / "out")
    wait_for(4, tmp_path / "out")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    made = files(tmp_path / "out")
    assert 8 <= len(made) < len(wanted)
    assert all(contents == wanted[name] for name, contents in made.items() if name.endswith(".png"))
    assert not list((tmp_path / "out").glob(".*"))
    summary = json.loads(output.splitlines()[-1])["summary"]
    assert 0 <= len([name for name in made if name.endswith(".png")]) - summary["restored"] <= 1  # one untold as yet


# --- runs at the same time -----------------------------------------------------------------------------------------


def test_an_output_and_its_sidecar_are_of_one_run(tmp_path):
    """Two runs put results into the same place again and again: 400 times."""
    target, rounds = tmp_path / "a.png", 200
    together = threading.Barrier(3)

    def commit(name):
        for number in range(rounds):
            with atomic_output.staged(target) as stage:
                stage.output.write_text(f"{name}{number}")
                stage.sidecar.write_text(f"{name}{number}")
                together.wait(30)
            together.wait(30)

    runs = [threading.Thread(target=commit, args=(name,), daemon=True) for name in "ab"]
    for each in runs:
        each.start()
    mixed = 0
    for _ in range(rounds):
        together.wait(30)
        together.wait(30)
        mixed += target.read_text() != atomic_output.sidecar_of(target).read_text()
    for each in runs:
        each.join()
    assert mixed == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.png.json"]


def test_a_folder_that_another_run_keeps_locked_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_output, "PATIENCE", 0.05)
    lock = atomic_output._lock(tmp_path)
    with pytest.raises(FileError, match="locked by another run"), atomic_output.staged(tmp_path / "a.png") as stage:
        stage.output.touch()
    atomic_output._unlock(lock)
    assert list(tmp_path.iterdir()) == []
