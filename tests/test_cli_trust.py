"""Trust on the command line: error maps beside outputs, explanations, calibration."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

import slir
from slir import io
from slir.bank import image_hash
from slir.cli import app
from slir.errors import FileError
from slir.files import jobs, provenance, restore_file
from slir.files.jobs import Job
from slir.io import Picture
from slir.kernel.degradations import Noise
from slir.kernel.shipped import demo_picture, shipped_model
from slir.preprocessing.arrays import grey_plane
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()
# Pictures of the tests are noisy, not blurred, and a restoration says that it doubts the blur or the noise it was told.
doubtful = pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")


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
    known = Noise(0.01, 0.3).describe()
    replace(shipped_model("denoise"), trust=None, provenance={"family": known}).save(str(path))
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


def test_large_planes_have_a_map_too(image, tmp_path, monkeypatch):
    monkeypatch.setattr(restore_file, "LARGE", 500)
    monkeypatch.setattr("slir.trust.files.LARGEST", 500)
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--sigma", 12, "--error-map")
    assert "clean.error.tif" in slirs(*asked)
    assert names(tmp_path) == ["clean.error.png", "clean.error.tif", "clean.png", "clean.png.json", "in.png"]
    height, width = io.read(image).size
    assert tifffile.imread(tmp_path / "clean.error.tif").shape == (height, width)
    shown = io.read(tmp_path / "clean.error.png")
    assert shown.size[1] == -(-width // 2) + 80  # half as large, with its bar
    assert provenance.load(tmp_path / "clean.png.json").job().error_map


def test_a_map_that_was_not_to_be_had_is_not_missed(image, tmp_path, monkeypatch):
    monkeypatch.setattr("slir.estimator.loop.expected_error_map", lambda *about, **told: None)
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--sigma", 12, "--error-map")
    assert "No error map was made: this model gives no expected errors" in slirs(*asked)
    assert names(tmp_path) == ["clean.png", "clean.png.json", "in.png"]
    assert "skipped" in slirs(*asked, "--skip-existing")  # there is nothing more to be had


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
    io.write(tmp_path / "a.error.tif", Picture(picture()))
    job = Job(Problem("denoise"), tmp_path / "a.error.tif", tmp_path / "a.tif", error_map=True)
    with pytest.raises(FileError, match="would be replaced by an error map"):
        job.check()


def test_a_failure_leaves_no_map(image, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise FileError(tmp_path, "is full", "Make room.")

    monkeypatch.setattr(provenance, "write", broken)
    with pytest.raises(FileError):
        jobs.run(Job(Problem("denoise", sigma=12), image, tmp_path / "clean.png", error_map=True))
    assert names(tmp_path) == ["in.png"]


# --- explanations --------------------------------------------------------------------------------------------------


def told_as_json(*words):
    return json.loads(slirs("explain", *words, "--json"))


def agrees(told, found):
    """Whether the command says what `Result.explain` says."""
    assert told["corner"] == list(found.corner)
    assert [patch["source"] for patch in told["patches"]] == found.sources
    np.testing.assert_allclose([patch["weight"] for patch in told["patches"]], found.weights, rtol=1e-5)
    np.testing.assert_allclose(told["restored"], found.restored, atol=1e-5)


@doubtful
def test_explain_says_what_the_result_says(image, tmp_path):
    given = ("--at", "18,22", "-k", 5, "--sigma", 12)
    result = slir.denoise(picture(), sigma=12.0, return_info=True)
    agrees(told_as_json(image, "--task", "denoise", *given), result.explain(18, 22, 5))
    result = slir.deblur(picture(), slir.psf.gaussian(1.1), sigma=12.0, return_info=True)
    agrees(told_as_json(image, "--task", "deblur", "--gaussian", 1.1, *given), result.explain(18, 22, 5))
    told = told_as_json(image, "--task", "upsample", "--at", "70,81", "-k", 2)  # a pixel of the larger image
    agrees(told, slir.upsample(picture(), 2, return_info=True).explain(70, 81, 2))


@doubtful
def test_explain_fills_in_what_is_missing(tmp_path):
    holes = picture().astype(np.float32) / 255
    holes[3:6, 4] = np.nan
    tifffile.imwrite(tmp_path / "holes.tif", np.stack([holes[::-1], holes]), photometric="minisblack")
    given = (tmp_path / "holes.tif", "--plane", 1, "--data-range", 1, "--at", "4,4", "-k", 3)
    told = told_as_json(*given, "--task", "inpaint", "--mask", "nan")
    result = slir.inpaint(holes, np.isnan(holes), data_range=1.0, return_info=True)
    agrees(told, result.explain(4, 4, 3))
    assert np.isfinite(told_as_json(*given, "--task", "denoise", "--sigma", 0.05)["restored"]).all()
    assert "plane must lie in 0 … 1" in slirs("explain", *given, "--plane", 2, "--task", "denoise", code=2)


def test_explain_prints_a_table_and_draws_a_picture(image, tmp_path):
    asked = ("explain", image, "--at", "10,12", "--task", "denoise", "--sigma", 12, "-k", 4)
    told = slirs(*asked, "-o", tmp_path / "why.png")
    found = slir.denoise(picture(), sigma=12.0, return_info=True).explain(10, 12, 4)
    rows = [line.split() for line in told.splitlines()[2:6]]
    wanted = zip(found.weights, found.sources, found.positions)
    assert rows == [[f"{weight:+.4f}", source, str(row), str(col)] for weight, source, (row, col) in wanted]
    assert f"-> {tmp_path / 'why.png'}" in told
    np.testing.assert_array_equal(io.read(tmp_path / "why.png").pixels, found.picture())
    assert "exists already" in slirs(*asked, "-o", tmp_path / "why.png", code=2)
    assert slirs(*asked, "--quiet") == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "10", "--task", "denoise"), "--at must be 2 numbers"),
        (("--at", "1.5,2", "--task", "denoise"), "--at must be two whole numbers"),
        (("--at", "99,2", "--task", "denoise"), "row must lie in 0 … 39"),
        (("--at", "1,2", "--task", "denoise", "--sigma", "0"), "There is nothing to explain"),
        (("--at", "1,2", "--task", "deblur"), "the blur must be given with --task deblur"),
        (("--at", "1,2", "--task", "inpaint"), "--mask must be given to inpaint"),
        (("--at", "1,2", "--task", "inpaint", "--mask", "nan"), "--mask must be a file for images of integers"),
    ],
)
def test_explain_says_what_is_wrong(image, words, said):
    assert said in slirs("explain", image, *words, code=2)


# --- calibration ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Clean pictures that no model of slir's was learnt from."""
    folder = tmp_path_factory.mktemp("photos")
    demo = demo_picture()
    for number, (row, col) in enumerate(((0, 0), (0, 128), (128, 0))):
        io.write(folder / f"{number}.png", Picture(demo[row : row + 128, col : col + 128], -1))
    return folder


def test_calibrate_makes_a_mute_model_speak(photos, image, tmp_path, mute):
    out = tmp_path / "mine.safetensors"
    few = ("--crops", 6, "--side", 48)
    told = slirs("calibrate", photos, "-o", out, "--task", "denoise", "--sigma", 12, "--model", mute, *few)
    model = slir.load(out)
    assert model.trust.what["pictures"] == 3
    assert model.trust.sigma == pytest.approx((12 / 255, 12 / 255))
    assert f"calibrated to denoise on {model.trust.pixels:,} pixels of 6 crops of 3 images" in told
    assert "holds for sigma 4.71% of the range; intervals of 90% reach" in told
    assert "3 images may not be typical" in told
    assert slir.denoise(picture(), sigma=12.0, model=model, return_info=True).calibrated == ""
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--model", out, "--error-map")
    assert "not calibrated" not in slirs(*asked, "--sigma", 12)
    assert "not calibrated" in slirs(*asked, "--sigma", 30, "--force")
    pixels = [(io.read(path).pixels / 255).astype(np.float32) for path in sorted(photos.iterdir())]
    same = slir.calibrate(pixels, model=slir.load(mute), task="denoise", sigma=12 / 255, crops=6, side=48)
    np.testing.assert_allclose(same.trust.calibrations[0].quantiles, model.trust.calibrations[0].quantiles, rtol=1e-5)


@doubtful
def test_calibrate_for_one_blur(photos, tmp_path):
    out = tmp_path / "sharp.safetensors"
    blur = ("--gaussian", 1.0, "--sigma", "2%")
    slirs("calibrate", photos, "-o", out, "--task", "deblur", *blur, "--crops", 4, "--side", 48, "--quiet")
    soft = picture()
    result = slir.deblur(soft, slir.psf.gaussian(1.0), sigma=5.1, model=out, return_info=True)
    assert result.calibrated == ""
    result = slir.deblur(soft, slir.psf.gaussian(1.6), sigma=5.1, model=out, return_info=True)
    assert "another operator" in result.calibrated


def test_calibrate_says_what_is_wrong(photos, tmp_path, mute):
    out = ("-o", tmp_path / "mine.safetensors")
    assert "has the suffix" in slirs("calibrate", photos, "-o", tmp_path / "mine.png", "--task", "denoise", code=2)
    said = slirs("calibrate", photos, *out, "--task", "deblur", "--model", mute, code=2)
    assert "--model must be learnt for the operator 'blur'" in said
    io.write(tmp_path / "small.png", Picture(picture(20, 20)))
    said = slirs("calibrate", photos, tmp_path / "small.png", *out, "--task", "denoise", code=2)
    assert "small.png must have at least" in said
    denoiser = shipped_model("denoise")
    known = image_hash(grey_plane(io.read(photos / "1.png").pixels / np.float32(255)))
    learnt = replace(denoiser, provenance={**denoiser.provenance, "images": [known]})
    learnt.save(str(tmp_path / "learnt.safetensors"))
    said = slirs("calibrate", photos, *out, "--task", "denoise", "--model", tmp_path / "learnt.safetensors", code=2)
    assert "not be those that the model learnt from" in said
    assert names(tmp_path) == ["learnt.safetensors", "small.png"]


def test_a_blank_frame_of_a_stack_is_no_matter_of_calibration(tmp_path):
    rng = np.random.default_rng(0)
    frames = 100 + 300 * np.stack([demo_picture()[:64, :64, 0] / 255.0] * 2) + rng.normal(0, 15, (2, 64, 64))
    stack = np.concatenate([np.full((1, 64, 64), 100), frames]).round().astype(np.uint16)
    tifffile.imwrite(tmp_path / "in.tif", stack, photometric="minisblack", metadata={"axes": "ZYX"})
    job = Job(Problem("denoise"), tmp_path / "in.tif", tmp_path / "out.tif", error_map=True)
    assert not jobs.run(job, sidecar=False).warnings
    found = tifffile.imread(tmp_path / "out.tif")
    assert (found[0] == 100).all()
    errors = tifffile.imread(tmp_path / "out.error.tif")
    assert (errors[0] == 0).all()
    assert 2 < errors[1].mean() < 15


# --- intervals -----------------------------------------------------------------------------------------------------


def bounds(folder, name="clean"):
    return tifffile.imread(folder / f"{name}.low.tif"), tifffile.imread(folder / f"{name}.high.tif")


def test_an_interval_lies_beside_the_output(image, tmp_path):
    out = tmp_path / "clean.png"
    told = slirs("denoise", image, "-o", out, "--sigma", 12, "--interval", 90)
    assert names(tmp_path) == ["clean.high.tif", "clean.low.tif", "clean.png", "clean.png.json", "in.png"]
    assert f"-> {out}, {tmp_path / 'clean.low.tif'}, {tmp_path / 'clean.high.tif'}" in told
    result = slir.denoise(picture(), sigma=12.0, return_info=True)
    for found, wanted in zip(bounds(tmp_path), result.interval(0.9)):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wanted)
    told = slirs("rerun", tmp_path / "clean.png.json", "-o", tmp_path / "again.png")
    assert "differs" not in told
    np.testing.assert_array_equal(bounds(tmp_path, "again"), bounds(tmp_path))
    slirs("denoise", image, "-o", out, "--sigma", 12, "--force", "--error-map")
    assert "clean.low.tif" not in names(tmp_path)  # it would be taken for that of the new output
    assert "clean.error.tif" in names(tmp_path)


def test_skip_existing_counts_intervals(image, tmp_path):
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--sigma", 12, "--skip-existing")
    slirs(*asked)
    assert "was made without an interval" in slirs(*asked, "--interval", 90, code=2)
    slirs(*asked, "--interval", 90, "--force")
    assert "skipped" in slirs(*asked, "--interval", 90)
    assert "was made with an interval of 90 %" in slirs(*asked, "--interval", 80, code=2)
    (tmp_path / "clean.low.tif").unlink()
    assert "has lost its interval" in slirs(*asked, "--interval", 90, code=2)
    (tmp_path / "clean.png.json").unlink()
    assert "has no interval beside it" in slirs(*asked, "--interval", 90, code=2)


def test_intervals_of_files_that_are_restored_by_windows(tmp_path, monkeypatch):
    io.write(tmp_path / "in.png", Picture(np.stack([picture(40, 300, seed) for seed in range(3)], -1), -1))
    asked = ("denoise", tmp_path / "in.png", "--sigma", 12, "--interval", 80, "--error-map", "-o")
    slirs(*asked, tmp_path / "whole.png")
    monkeypatch.setattr(restore_file, "LARGE", 500)
    slirs(*asked, tmp_path / "clean.png")
    pixels = io.read(tmp_path / "clean.png").pixels.astype(float)
    low, high = bounds(tmp_path)
    assert low.shape == pixels.shape
    assert (low <= pixels).all()
    assert (high >= pixels).all()
    error = tifffile.imread(tmp_path / "clean.error.tif")
    wide = (low > 0) & (high < 255)
    assert 1 < np.median((high - low)[wide] / error[wide]) < 4
    for found, wanted in zip((low, high), bounds(tmp_path, "whole")):
        np.testing.assert_allclose(found, wanted, atol=2)


def test_intervals_of_stacks_and_of_missing_pixels(tmp_path):
    holes = np.stack([picture(24, 26, seed).astype(np.float32) / 255 for seed in range(2)])
    holes[1, 3:6, 4] = np.nan
    tifffile.imwrite(tmp_path / "in.tif", holes, photometric="minisblack")
    given = ("-o", tmp_path / "clean.tif", "--data-range", 1, "--sigma", 0.05, "--interval", 90)
    slirs("denoise", tmp_path / "in.tif", *given)
    for found in bounds(tmp_path):
        assert found.shape == holes.shape
        np.testing.assert_array_equal(np.isnan(found), np.isnan(holes))


def test_there_is_no_interval_without_calibration(image, tmp_path, mute):
    asked = ("denoise", image, "-o", tmp_path / "clean.png", "--interval", 90)
    told = slirs(*asked, "--model", mute, code=2)
    assert "--model must be calibrated where an interval is asked for" in told
    assert names(tmp_path) == ["in.png"]
    told = slirs(*asked, "--sigma", "60%")
    assert "No interval was made: the model was calibrated for a sigma of" in told
    assert names(tmp_path) == ["clean.png", "clean.png.json", "in.png"]
    assert "skipped" in slirs(*asked, "--sigma", "60%", "--skip-existing")  # there is nothing more to be had


@pytest.mark.parametrize("percent", [0, 4.9, 99.5, 100, "nan"])
def test_intervals_that_no_calibration_knows(image, tmp_path, percent):
    told = slirs("denoise", image, "-o", tmp_path / "clean.png", "--interval", percent, code=2)
    assert "--interval must lie between 5 and 99" in told


def test_maps_are_not_restored_with_their_folder(image, tmp_path):
    asked = ("--sigma", 12, "--error-map", "--interval", 90, "-o")
    slirs("denoise", image, *asked, f"{tmp_path}/once/")
    io.write(tmp_path / "once" / "mine.error.tif", Picture(picture()))  # nobody's map
    told = slirs("denoise", tmp_path / "once", "--sigma", 12, "-o", tmp_path / "twice")
    assert names(tmp_path / "twice") == ["in.png", "in.png.json", "mine.error.tif", "mine.error.tif.json"]
    assert "passed over 4 files" in told
    assert "an error map or interval that slir wrote" in told
