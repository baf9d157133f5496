"""Trust on the command line: error maps beside outputs, explanations, calibration."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

import slir
from slir import io, jobs, sidecars, streams
from slir.cli import app
from slir.defaults import shipped_model
from slir.errors import FileError
from slir.io import Picture
from slir.jobs import Job

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()


def picture(height=40, width=44, seed=0):
    rows, cols = np.mgrid[:height, :width]
    clean = 60 + 120 * ((rows // 8 + cols // 8) % 2)
    return (clean + np.random.default_rng(seed).normal(0, 12, clean.shape)).clip(0, 255).round().astype(np.uint8)


def slirs(*words, code=0):
    """What the command printed; a bug keeps its traceback."""
    result = runner.invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def image(tmp_path):
    io.write(tmp_path / "in.png", Picture(picture()))
    return tmp_path / "in.png"


@pytest.fixture(scope="module")
def mute(tmp_path_factory):
    """A learnt model that says nothing about its errors."""
    path = tmp_path_factory.mktemp("models") / "mute.safetensors"
    replace(shipped_model("denoise"), trust=None).save(str(path))
    return path


# --- error maps ----------------------------------------------------------------------------------------------------


def test_an_error_map_lies_beside_the_output(image, tmp_path):
    out = tmp_path / "clean.png"
    told = slirs("denoise", image, "-o", out, "--sigma", 12, "--error-map")
    assert names(tmp_path) == ["clean.error.png", "clean.error.tif", "clean.png", "clean.png.json", "in.png"]
    assert f"-> {out}, {tmp_path / 'clean.error.tif'}, {tmp_path / 'clean.error.png'}" in told
    result = slir.denoise(picture(), sigma=12.0, return_info=True)
    error = tifffile.imread(tmp_path / "clean.error.tif")
    assert error.dtype == np.float32
    np.testing.assert_array_equal(error, result.error_map)
    shown = io.read(tmp_path / "clean.error.png").pixels
    assert shown.ndim == 3
    assert shown.shape[1] > 44  # with a colour bar
    plain = tmp_path / "plain.png"
    slirs("denoise", image, "-o", plain, "--sigma", 12)
    assert plain.read_bytes() == out.read_bytes()  # asking for a map changes no pixel


def test_a_sidecar_gives_the_same_map_and_removes_one_that_is_out_of_date(image, tmp_path):
    out, again = tmp_path / "clean.png", tmp_path / "again.png"
    slirs("denoise", image, "-o", out, "--sigma", 12, "--error-map")
    told = slirs("rerun", tmp_path / "clean.png.json", "-o", again)
    assert "differs" not in told
    for kind in ("tif", "png"):
        assert (tmp_path / f"again.error.{kind}").read_bytes() == (tmp_path / f"clean.error.{kind}").read_bytes()
    slirs("denoise", image, "-o", out, "--sigma", 5, "--force")
    assert "clean.error.tif" not in names(tmp_path)
    (tmp_path / "again.error.png").write_bytes(b"mine")  # no longer ours to remove
    slirs("denoise", image, "-o", again, "--sigma", 5, "--force")
    assert (tmp_path / "again.error.png").read_bytes() == b"mine"


def test_skip_existing_counts_maps(image, tmp_path):
    out = tmp_path / "clean.png"
    asked = ("denoise", image, "-o", out, "--sigma", 12)
    slirs(*asked)
    assert "was made without an error map" in slirs(*asked, "--error-map", "--skip-existing", code=2)
    slirs(*asked, "--error-map", "--skip-existing", "--force")
    assert "skipped" in slirs(*asked, "--error-map", "--skip-existing")
    assert "skipped" in slirs(*asked, "--skip-existing")  # more than was asked for is enough
    assert "would skip" in slirs(*asked, "--error-map", "--skip-existing", "--dry-run")
    (tmp_path / "clean.error.tif").unlink()
    assert "has lost its error map" in slirs(*asked, "--error-map", "--skip-existing", code=2)
    (tmp_path / "clean.png.json").unlink()
    assert "has no error map beside it" in slirs(*asked, "--error-map", "--skip-existing", code=2)
    out.unlink()  # as after a run that was killed: what is left is made anew, but not without a word
    assert "clean.error.png" in slirs(*asked, "--error-map", code=2)
    slirs(*asked, "--error-map", "--skip-existing")
    assert "clean.error.tif" in names(tmp_path)


def test_dry_runs_name_the_maps_and_write_nothing(image, tmp_path):
    told = slirs("denoise", image, "-o", tmp_path / "clean.png", "--sigma", 12, "--error-map", "--dry-run")
    assert "clean.error.tif" in told
    assert names(tmp_path) == ["in.png"]


def test_maps_of_stacks_of_colours_and_of_enlarged_images(tmp_path):
    stack = np.stack([picture(24, 26, seed) for seed in range(3)])
    tifffile.imwrite(tmp_path / "stack.tif", stack, photometric="minisblack")
    slirs("denoise", tmp_path / "stack.tif", "-o", tmp_path / "clean.tif", "--sigma", 12, "--error-map")
    errors = tifffile.imread(tmp_path / "clean.error.tif")
    assert errors.shape == stack.shape
    single = slir.denoise(stack[2], sigma=12.0, return_info=True).error_map
    np.testing.assert_array_equal(errors[2], single)
    io.write(tmp_path / "colour.png", Picture(np.stack([picture(20, 18)] * 3, -1), -1))
    report = slirs("upsample", tmp_path / "colour.png", "-o", tmp_path / "large.png", "--error-map", "--json")
    assert json.loads(report.splitlines()[0])["error_maps"][0].endswith("large.error.tif")
    with tifffile.TiffFile(tmp_path / "large.error.tif") as file:
        assert file.pages[0].shape == (40, 36, 3)
        assert file.pages[0].photometric.name == "RGB"


def test_there_is_no_error_where_there_are_no_pixels(tmp_path):
    holes = picture().astype(np.float32) / 255
    holes[3:6, 4] = np.nan
    tifffile.imwrite(tmp_path / "holes.tif", holes)
    given = ("--data-range", 1, "--error-map", "--sigma")
    slirs("denoise", tmp_path / "holes.tif", "-o", tmp_path / "clean.tif", *given, 0.05)
    error = tifffile.imread(tmp_path / "clean.error.tif")
    np.testing.assert_array_equal(np.isnan(error), np.isnan(holes))
    slirs("inpaint", tmp_path / "holes.tif", "-o", tmp_path / "whole.tif", "--mask", "nan", *given, 0)
    error = tifffile.imread(tmp_path / "whole.error.tif")
    assert (error > 0).sum() == 3  # what was known is known
    np.testing.assert_array_equal(error > 0, np.isnan(holes))


def test_large_planes_say_that_they_have_no_map(image, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LARGE", 500)
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--sigma", 12, "--error-map")
    assert "No error map was made: planes of more than 16 megapixels" in slirs(*asked)
    assert names(tmp_path) == ["clean.png", "clean.png.json", "in.png"]
    assert "skipped" in slirs(*asked, "--skip-existing")  # there is nothing more to be had
    assert sidecars.load(tmp_path / "clean.png.json").job().error_map


def test_what_is_not_calibrated_is_said(image, tmp_path):
    told = slirs("denoise", image, "-o", tmp_path / "clean.png", "--sigma", "60%", "--error-map")
    assert "The error map is not calibrated: the model was calibrated for a sigma of" in told
    assert "clean.error.tif" in names(tmp_path)


def test_models_that_say_nothing_are_refused_before_the_work(image, tmp_path, mute):
    asked = ("-o", tmp_path / "clean.png", "--model", mute, "--error-map")
    told = slirs("denoise", image, *asked, code=2)
    assert "--model must be calibrated where an error map is asked for" in told
    assert "slir calibrate" in told
    assert "calibrated" in slirs("denoise", image, image.parent, "-o", tmp_path / "many", *asked[2:], code=2)
    assert names(tmp_path) == ["in.png"]


def test_maps_never_share_a_name_or_replace_what_is_read(image, tmp_path):
    io.write(tmp_path / "in.jpg", Picture(picture()))
    told = slirs("denoise", image, tmp_path / "in.jpg", "-o", tmp_path / "out", "--error-map", code=2)
    assert "in.error.tif for" in told
    with pytest.raises(FileError, match="would be replaced by an error map"):
        io.write(tmp_path / "a.error.tif", Picture(picture()))
        Job("denoise", tmp_path / "a.error.tif", tmp_path / "a.tif", error_map=True).check()


def test_a_failure_leaves_no_map(image, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise FileError(tmp_path, "is full", "Make room.")

    monkeypatch.setattr(sidecars, "write", broken)
    with pytest.raises(FileError):
        jobs.run(Job("denoise", image, tmp_path / "clean.png", sigma=12, error_map=True))
    assert names(tmp_path) == ["in.png"]
