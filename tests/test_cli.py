"""The command line: what users type, what they see, what is written.

Most tests put an identity in the place of the engine; the last ones run the engine itself.
"""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

import slir
from slir import io
from slir.cli import app, show
from slir.cli.options import antialias_value, psf_value, range_value, share_value, sigma_value
from slir.cli.progress import batch_bar, progress_bar
from slir.errors import InputError
from slir.files import restore_file
from slir.files.batch import Report
from slir.files.jobs import Job
from slir.io import Meta, Picture, Resolution
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()


def run(*words, code=0):
    """Run a command; its output is in `.stdout` and `.stderr`. A traceback is never right."""
    result = runner.invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def fails(*words, code=2):
    """Run a command that must fail; the one line that says why."""
    result = run(*words, code=code)
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def squares(height=48, width=48):
    """A grey picture with edges, uint8."""
    rows, cols = np.mgrid[:height, :width]
    return (60 + 120 * ((rows // 12 + cols // 12) % 2)).astype(np.uint8)


@pytest.fixture
def calls(monkeypatch):
    """The engine replaced by the identity; every call is noted as (name, positional, keyword)."""
    noted = []

    def restore_image(image, problem, settings):
        own = {"deblur": "psf", "upsample": "factor"}.get(problem.task.name)
        given = (image, *([problem.options[own]] if own else []), *([] if problem.mask is None else [problem.mask]))
        noted.append((problem.task.name, given, {"sigma": problem.sigma, **problem.options, **vars(settings)}))
        assert settings.return_info == "stats"  # nobody asked for errors
        repeated = image.repeat(problem.factor, 0).repeat(problem.factor, 1)
        return SimpleNamespace(image=repeated, stats={"sigma": 4.25})

    monkeypatch.setattr(restore_file, "restore_image", restore_image)
    return noted


@pytest.fixture
def photo(tmp_path):
    Image.fromarray(squares()).save(tmp_path / "in.png")
    return tmp_path / "in.png"


# --- help ----------------------------------------------------------------------------------------------------------


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text)


def test_help_lists_the_commands():
    text = plain(run("--help").stdout)
    for name in ("denoise", "deblur", "upsample", "inpaint", "fit", "demo"):
        assert re.search(rf"\b{name}\b", text)


@pytest.mark.parametrize("words", ["denoise", "deblur", "upsample", "inpaint", "fit", "demo"])
def test_help_of_every_command_shows_an_example(words):
    text = plain(run(*words.split(), "--help").stdout)
    assert re.search(rf"Examples?:\s+slir {words} ", text)


@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_help_offers_for_sigma_what_the_task_takes(task):
    (option,) = (param for param in get_command(app).commands[task].params if param.name == "sigma")
    offered = "poisson-gaussian" in option.metavar
    assert offered == ("poisson-gaussian" in option.help) == (task == "denoise")


def test_version():
    assert run("--version").stdout == f"slir {slir.__version__}\n"


def test_what_a_terminal_would_obey_is_shown_and_not_sent(tmp_path, calls):
    """Names of files come from anywhere; some hold bytes that are no UTF-8."""
    name = os.fsdecode(b"\x1b]0;title\x07\x1b[2K\xc2\x9b\xff.png")
    Image.fromarray(squares()).save(tmp_path / "in.png")
    (tmp_path / "in.png").rename(tmp_path / name)
    shown = r"\u001b]0;title\u0007\u001b[2K\u009b\udcff.png"
    out = tmp_path / f"out{name}"
    for words in (["denoise", tmp_path / name, "-o", out], ["info", tmp_path / name]):
        assert shown in run(*words).stdout
    assert (tmp_path / f"out{name}.json").exists()
    told = run("denoise", tmp_path / name, "-o", out, "--force", "--json").stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", told)
    assert json.loads(told.splitlines()[0])["output"] == str(out)
    assert shown in fails("info", tmp_path / f"not{name}")
    assert shown in fails("denoise", tmp_path / name, "-o", out)


def test_a_real_process_is_quick_to_help_and_clear_about_errors(tmp_path):
    program = (
        "import sys; from slir.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, 'rich.progress' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
    words = ["denoise", str(tmp_path / "none.png"), "-o", str(tmp_path / "out.png")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "slir", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / 'none.png'}: does not exist. Check the name and the folder.\n"


@pytest.mark.parametrize("words", [["--help"], ["info", "a.png"], ["info", "a.png", "--json"]])
def test_output_that_cannot_be_printed_is_told(tmp_path, words):
    io.write(tmp_path / "a.png", Picture(np.zeros((8, 8), np.uint8)))
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-W", "error", "-m", "slir", *words]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("error: the output cannot be printed (No space left on device)")


# --- the four tasks ------------------------------------------------------------------------------------------------


def test_denoise_says_what_it_did(photo, tmp_path, calls):
    result = run("denoise", photo, "-o", tmp_path / "out.png")
    pattern = r"denoised \S+in\.png \(48 × 48 grey uint8, sigma 4\.25 \(estimated\), \d\.\d s\) -> \S+out\.png\n"
    assert re.fullmatch(pattern, result.stdout)
    assert result.stderr == ""
    np.testing.assert_array_equal(io.read(tmp_path / "out.png").pixels, squares())
    ((name, _, named),) = calls
    assert name == "denoise"
    assert named == {
        "sigma": "auto",
        "strength": 1.0,
        "chroma": None,
        "axes": None,
        "voxel_size": None,
        "model": None,
        "data_range": 255.0,
        "channel_axis": None,
        "device": None,
        "rng": 0,
        "progress": False,
        "observe": None,
        "return_info": "stats",
    }


def test_quiet_is_quiet(photo, tmp_path, calls):
    result = run("denoise", photo, "-o", tmp_path / "out.png", "-q")
    assert (result.stdout, result.stderr) == ("", "")


def test_options_reach_the_engine(photo, tmp_path, calls, monkeypatch):
    monkeypatch.setitem(vars(slir), "load", lambda path, device=None: (path, device))
    run("denoise", photo, "-o", tmp_path / "o.png", "--sigma", "10%", "--device", "cpu", "--seed", 7)
    (tmp_path / "m.safetensors").touch()
    words = ("--sigma", "2.5", "--data-range", "300", "--model", tmp_path / "m.safetensors")
    run("denoise", photo, "-o", tmp_path / "p.png", *words)
    first, second = (named for _, _, named in calls)
    assert (first["sigma"], first["device"], first["rng"]) == (25.5, "cpu", 7)
    assert (second["sigma"], second["data_range"]) == (2.5, 300.0)
    assert second["model"] == (tmp_path / "m.safetensors", None)


def test_deblur_takes_its_blur_in_four_ways(photo, tmp_path, calls):
    np.save(tmp_path / "psf.npy", slir.psf.gaussian(1.0, 5))
    out = tmp_path / "out.png"
    run("deblur", photo, "-o", out, "--psf", tmp_path / "psf.npy", "--border", "reflect")
    run("deblur", photo, "-o", out, "-f", "--gaussian", 1.6)
    run("deblur", photo, "-o", out, "-f", "--motion", "9,30")
    run("deblur", photo, "-o", out, "-f", "--defocus", 2.5)
    wanted = [slir.psf.gaussian(1.0, 5), slir.psf.gaussian(1.6), slir.psf.motion(9, 30), slir.psf.defocus(2.5)]
    for (name, given, _), kernel in zip(calls, wanted):
        assert name == "deblur"
        np.testing.assert_array_equal(given[1], kernel)
    assert [named["border"] for _, _, named in calls] == ["reflect", "unknown", "unknown", "unknown"]
    assert "the blur must be given, but it is missing" in fails("deblur", photo, "-o", out, "-f")
    assert "--gaussian and --defocus" in fails("deblur", photo, "-o", out, "-f", "--gaussian", 1, "--defocus", 2)
    assert "such as 15,30" in fails("deblur", photo, "-o", out, "-f", "--motion", "9")
    assert "sigma must be a positive" in fails("deblur", photo, "-o", out, "-f", "--gaussian", -1)


def test_upsample(photo, tmp_path, calls):
    out = tmp_path / "out.png"
    run("upsample", photo, "-o", out, "--factor", 3)
    assert io.read(out).size == (144, 144)
    np.save(tmp_path / "kernel.npy", np.ones((2, 2)) / 4)
    run("upsample", photo, "-o", out, "-f", "--antialias", "0.8", "--sigma", "1%")
    run("upsample", photo, "-o", out, "-f", "--antialias", tmp_path / "kernel.npy")
    first, second, third = calls
    assert (first[1][1], first[2]["antialias"], first[2]["sigma"]) == (3, "bicubic", 0.0)
    assert (second[1][1], second[2]["antialias"], second[2]["sigma"]) == (2, 0.8, pytest.approx(2.55))
    np.testing.assert_array_equal(third[2]["antialias"], np.ones((2, 2)) / 4)
    assert "--antialias must be" in fails("upsample", photo, "-o", out, "-f", "--antialias", "cubic")


@pytest.mark.parametrize(("words", "size"), [(("--factor", "1.5"), (72, 72)), (("--size", "72x72"), (72, 72))])
def test_upsample_by_any_factor(photo, tmp_path, calls, words, size):
    told = run("upsample", photo, "-o", tmp_path / "out.png", *words)
    assert io.read(tmp_path / "out.png").size == size
    ((_, given, _),) = calls
    assert given[1] == 2
    assert "restored at 2 times its size, then reduced to 1.5 times" in told.stderr


def test_sizes_that_cannot_be(photo, tmp_path, calls):
    out = tmp_path / "out.png"
    assert "--factor must be a number of at least 1" in fails("upsample", photo, "-o", out, "--factor", "0.5")
    assert "--size must be a width and a height" in fails("upsample", photo, "-o", out, "--size", "100")
    assert "--size must keep the proportions" in fails("upsample", photo, "-o", out, "--size", "100x99")
    assert "be given once" in fails("upsample", photo, "-o", out, "--size", "96x96", "--factor", "2")
    assert calls == []
    assert not out.exists()


def test_upsample_enlarges_alpha_and_resolution(tmp_path, calls):
    alpha = np.full((6, 8), 200, np.uint8)
    alpha[:, :4] = 0
    picture = Picture(squares(6, 8), alpha=alpha, meta=Meta(resolution=Resolution(100, 100)))
    io.write(tmp_path / "in.png", picture)
    run("upsample", tmp_path / "in.png", "-o", tmp_path / "out.tif", "--factor", 2)
    after = io.read(tmp_path / "out.tif")
    assert after.alpha is not None
    assert after.alpha.shape == (12, 16)
    np.testing.assert_array_equal(after.alpha[0, [0, 6, 7, 8, 9, 15]], [0, 0, 50, 150, 200, 200])
    assert after.meta.resolution is not None
    assert after.meta.resolution.per_inch() == pytest.approx((200, 200), rel=1e-4)


def test_inpaint(photo, tmp_path, calls):
    mask = np.zeros((48, 48), np.uint8)
    mask[10:20, 10:12] = 1
    Image.fromarray(mask).save(tmp_path / "mask.png")
    run("inpaint", photo, "-o", tmp_path / "out.png", "--mask", tmp_path / "mask.png")
    ((_, given, named),) = calls
    np.testing.assert_array_equal(given[1], mask != 0)
    assert named["sigma"] == 0
    Image.fromarray(mask[:40]).save(tmp_path / "small.png")
    text = fails("inpaint", photo, "-o", tmp_path / "b.png", "--mask", tmp_path / "small.png")
    assert "has 48 × 40 pixels, but the image has 48 × 48" in text


@pytest.mark.parametrize("name", ["in.png", "in.tif"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_an_identity_run_returns_the_same_file(tmp_path, calls, name, dtype, channels):
    rng = np.random.default_rng(channels)
    planes = rng.integers(0, np.iinfo(dtype).max, (9, 13, channels)).astype(dtype)
    picture = Picture(
        planes[..., 0] if channels < 3 else planes[..., :3],
        channel_axis=None if channels < 3 else -1,
        alpha=planes[..., -1] if channels in (2, 4) else None,
        meta=Meta(icc=b"profile" * 30, resolution=Resolution(72, 72), orientation=6),
    )
    io.write(tmp_path / name, picture)
    run("denoise", tmp_path / name, "-o", tmp_path / f"out{name}")
    assert (tmp_path / f"out{name}").read_bytes() == (tmp_path / name).read_bytes()
    assert calls[0][2]["channel_axis"] == (None if channels < 3 else -1)


def test_what_cannot_be_kept_is_noted(tmp_path, calls):
    Image.fromarray(squares() > 100).save(tmp_path / "in.png")
    result = run("denoise", tmp_path / "in.png", "-o", tmp_path / "out.png")
    assert "note:" in result.stderr
    assert "1-bit" in result.stderr


def test_warnings_are_lines(photo, tmp_path, monkeypatch):
    def warns(image, *_):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the blur does not\nfit the image", stacklevel=1)
        return SimpleNamespace(image=image, stats={})

    monkeypatch.setattr(restore_file, "restore_image", warns)
    assert run("denoise", photo, "-o", tmp_path / "o.png").stderr == "warning: the blur does not fit the image\n"


# --- what goes wrong -----------------------------------------------------------------------------------------------


def test_outputs_are_not_replaced_unless_asked(photo, tmp_path, calls):
    (tmp_path / "out.png").write_bytes(b"precious")
    assert "exists already. Pass --force" in fails("denoise", photo, "-o", tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes() == b"precious"
    run("denoise", photo, "-o", tmp_path / "out.png", "--force")
    assert io.read(tmp_path / "out.png").size == (48, 48)


def test_an_image_may_replace_itself(photo, calls):
    run("denoise", photo, "-o", photo, "--force")
    np.testing.assert_array_equal(io.read(photo).pixels, squares())


def test_bad_outputs_are_told_before_the_work(photo, tmp_path, calls):
    io.write(tmp_path / "deep.png", Picture(squares().astype(np.uint16)))
    assert "unknown suffix" in fails("denoise", photo, "-o", tmp_path / "out.gif")
    assert "is a file, not a folder" in fails("denoise", photo, "-o", photo / "out.png")
    assert "Write out.png instead" in fails("denoise", tmp_path / "deep.png", "-o", tmp_path / "out.jpg")
    assert "no suffix" in fails("denoise", photo, "-o", tmp_path / "out")
    assert calls == []


def test_folders_are_made_for_one_image_too(photo, tmp_path, calls):
    run("denoise", photo, "-o", tmp_path / "new" / "deep" / "out.png")
    assert io.read(tmp_path / "new" / "deep" / "out.png").size == (48, 48)


def test_floats_need_their_range(tmp_path, calls):
    tifffile.imwrite(tmp_path / "in.tif", squares() / np.float32(255), metadata=None)
    words = ("denoise", tmp_path / "in.tif", "-o", tmp_path / "out.tif")
    assert "--data-range must be given" in fails(*words)
    run(*words, "--data-range", "1", "--sigma", "10%")
    assert (calls[0][2]["data_range"], calls[0][2]["sigma"]) == (1.0, 0.1)
    assert io.read(tmp_path / "out.tif").pixels.dtype == np.float32


def test_half_a_file_stops_the_command(photo, tmp_path, calls):
    photo.write_bytes(photo.read_bytes()[:80])
    assert "truncated" in fails("denoise", photo, "-o", tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize("sigma", ["-1", "loud", "nan", "inf%", ""])
def test_bad_sigma(photo, tmp_path, calls, sigma):
    assert "--sigma must" in fails("denoise", photo, "-o", tmp_path / "out.png", f"--sigma={sigma}")


def test_model_that_is_not_there(photo, tmp_path):
    text = fails("denoise", photo, "-o", tmp_path / "out.png", "--model", tmp_path / "none.safetensors")
    assert "none.safetensors" in text


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (InputError("psf", "sum to one", "2", "Divide it."), 2, "psf must sum to one, but it is 2. Divide it."),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 1, "memory is full"),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), 1, "memory is full"),
    ],
)
def test_failures_of_the_engine(photo, tmp_path, monkeypatch, failure, code, words):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr(restore_file, "restore_image", fail)
    assert words in fails("denoise", photo, "-o", tmp_path / "out.png", code=code)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.png"]


def test_bugs_keep_their_traceback(photo, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(restore_file, "restore_image", fail)
    result = runner.invoke(app, ["denoise", str(photo), "-o", str(tmp_path / "out.png")])
    assert isinstance(result.exception, ZeroDivisionError)


# --- fit -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fitted(monkeypatch):
    noted = []

    def fake(images, **named):
        noted.append((images, named))
        return SimpleNamespace(save=lambda path: open(path, "wb").close())

    monkeypatch.setitem(vars(slir), "fit", fake)
    return noted


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clean").mkdir()
    for name, pixels in [
        ("b.png", squares()),
        ("a.jpg", squares(40, 60)),
        ("c.tif", squares()[..., None].repeat(3, 2)),
    ]:
        io.write(tmp_path / "clean" / name, Picture(pixels, channel_axis=-1 if pixels.ndim == 3 else None))
    (tmp_path / "clean" / "notes.txt").write_text("not an image")
    return tmp_path / "clean"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--task", "denoise"], "identity"),
        (["--task", "deblur", "--gaussian", "1.6"], "blur"),
        (["--task", "upsample", "--factor", "3", "--antialias", "box"], "downsample"),
        (["--task", "inpaint", "--missing", "80%"], "mask"),
    ],
)
def test_fit_as_in_the_paper(folder, tmp_path, fitted, words, kind):
    extra = ["--method", "paper", "--loss", "squared", "--weights", "krr", "--patches", "50", "--seed", "3"]
    out = tmp_path / "model.safetensors"
    result = run("fit", folder, "-o", out, "--sigma", "25.5", *words, *extra)
    assert "from 50 patches of 3 images" in result.stdout
    assert out.exists()
    ((images, named),) = fitted
    assert [image.shape for image in images] == [(40, 60), (48, 48), (48, 48, 3)]
    assert all(image.dtype == np.float32 and image.min() >= 0 and image.max() <= 1 for image in images)
    assert named["operator"].describe()["kind"] == kind
    assert named["sigma"] == pytest.approx(0.1)
    assert {name: named[name] for name in ("loss", "weights", "m", "seed", "device")} == {
        "loss": "squared",
        "weights": "krr",
        "m": 50,
        "seed": 3,
        "device": None,
    }


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--task", "denoise"], None),
        (["--task", "deblur"], None),
        (["--task", "deblur", "--gaussian", "1.6"], "blur"),
        (["--task", "upsample", "--factor", "3"], None),
        (["--task", "upsample", "--factor", "3", "--antialias", "box"], "downsample"),
        (["--task", "inpaint"], None),
        (["--task", "inpaint", "--missing", "80%"], "mask"),
    ],
)
def test_fit_a_task_or_an_operator(folder, tmp_path, fitted, words, kind):
    extra = ["--crops", "50", "--cells", "9", "--seed", "3"]
    result = run("fit", folder, "-o", tmp_path / "model.safetensors", *words, *extra)
    assert "from 50 crops of 3 images" in result.stdout
    ((_, named),) = fitted
    assert named["method"] == "kernel"
    assert named["sigma"] is None
    assert (named["crops"], named["cells"], named["seed"]) == (50, 9, 3)
    if kind is None:  # any operator of the task
        assert (named["task"], named["operator"]) == (words[1], None)
        assert named["factor"] == (3 if "upsample" in words else 2)
    else:
        assert named["task"] is None
        assert named["operator"].describe()["kind"] == kind


def test_fit_on_top_of_a_kernel(folder, tmp_path, fitted):
    """Without further options the defaults of `fit_on_top`."""
    from slir.kernel.fitting import CELLS, CROPS

    words = ("fit", folder, "-o", tmp_path / "m.safetensors", "--task", "denoise", "--force")
    words += ("--base", "kernel.safetensors")
    assert f"from {CROPS} crops of 3 images" in run(*words).stdout
    assert "from 9 crops of 3 images" in run(*words, "--crops", 9, "--cells", 5, "--seed", 3).stdout
    first, second = (named for _, named in fitted)
    assert (first["method"], str(first["base"]), first["task"]) == ("kernel", "kernel.safetensors", "denoise")
    assert first["names"] == ["a.jpg", "b.png", "c.tif"]
    assert (first["crops"], first["cells"], first["seed"]) == (CROPS, CELLS, 0)
    assert (second["crops"], second["cells"], second["seed"]) == (9, 5, 3)


def test_fit_takes_a_base_with_the_kernel_alone(folder, tmp_path, fitted):
    words = ("fit", folder, "-o", tmp_path / "m.safetensors", "--task", "denoise")
    assert "given with --method paper" in fails(*words, "--method", "paper", "--base", "kernel.safetensors")
    assert fitted == []
    run(*words, "--cluster", "local:2")
    assert fitted[-1][1]["base"] is None  # the one that ships
    assert fitted[-1][1]["cluster"] == "local:2"


def test_fit_refuses_what_it_cannot_learn_from(folder, tmp_path, fitted):
    (tmp_path / "empty").mkdir()
    out = ("-o", tmp_path / "m.safetensors", "--sigma", 25)
    assert "is an empty folder" in fails("fit", tmp_path / "empty", *out, "--task", "denoise")
    (tmp_path / "empty" / "notes.txt").touch()
    assert "holds no images" in fails("fit", tmp_path / "empty", *out, "--task", "denoise")
    assert "does not exist" in fails("fit", tmp_path / "none.png", *out, "--task", "denoise")
    paper = ("--method", "paper")
    assert "the blur must be given" in fails("fit", folder, *out, "--task", "deblur", *paper)
    assert "the mask must be given" in fails("fit", folder, *out, "--task", "inpaint", *paper)
    assert "--sigma must be given" in fails("fit", folder, *out[:2], "--task", "denoise", *paper)
    twice = ("--mask", "mask.png", "--missing", "80%")
    assert "the mask must be given once" in fails("fit", folder, *out, "--task", "inpaint", *twice)
    assert "--missing must lie" in fails("fit", folder, *out, "--task", "inpaint", "--missing", "120%")
    assert "m.safetensors" in fails("fit", folder, "-o", tmp_path / "m.bin", "--sigma", 2, "--task", "denoise")
    assert "--sigma must" in fails("fit", folder, *out[:2], "--sigma", "auto", "--task", "denoise")
    io.write(folder / "deep.png", Picture(squares().astype(np.uint16) * 257))
    assert "be a percentage" in fails("fit", folder, *out, "--task", "denoise")
    assert fitted == []
    run("fit", folder, *out[:2], "--sigma", "10%", "--task", "denoise")
    assert fitted[0][1]["sigma"] == pytest.approx(0.1)
    assert "exists already" in fails("fit", folder, *out, "--task", "denoise")


# --- demo ----------------------------------------------------------------------------------------------------------


def test_demo_prints_its_rows(tmp_path, monkeypatch):
    row = SimpleNamespace(
        task="denoise", psnr_before=20.17, psnr_after=29.5, seconds=75.2, files=["before.png", "after.png"]
    )
    module = SimpleNamespace(run=lambda out, progress: [row])
    monkeypatch.setitem(sys.modules, "slir.cli.demonstration", module)
    lines = run("demo", "--out", tmp_path).stdout.splitlines()
    assert lines[0].split() == ["task", "PSNR", "before", "after", "time", "files"]
    assert lines[1].split("  ")[0] == "denoise"
    for part in ("20.17 dB", "29.50 dB", "1 min 15 s", "before.png, after.png"):
        assert part in lines[1]
    assert run("demo", "--out", tmp_path, "-q").output == ""


# --- small parts ---------------------------------------------------------------------------------------------------


def test_values():
    assert sigma_value(" 10% ", span=65535) == pytest.approx(6553.5)
    assert sigma_value("0", span=1) == 0
    with pytest.raises(InputError, match="--sigma must be a number"):
        sigma_value("auto", span=1)
    assert range_value(None) is None
    assert range_value("4095") == 4095
    assert range_value("-1,1") == (-1, 1)
    for text in ("0", "1,0", "a", "1,2,3", "inf"):
        with pytest.raises(InputError, match="--data-range"):
            range_value(text)
    assert share_value("--missing", "80%") == 0.8
    assert antialias_value("1e-1") == 0.1
    assert psf_value(psf=None, gaussian=None, motion=None, defocus=None) is None


def test_seconds():
    assert [show.seconds(value) for value in (0.04, 9.94, 12.4, 59.7, 185, 7530)] == [
        "0.0 s",
        "9.9 s",
        "12 s",
        "1 min 00 s",
        "3 min 05 s",
        "2 h 05 min",
    ]


def test_progress_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    with progress_bar() as progress:
        assert progress is False
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_bar(quiet=True) as progress:
        assert progress is False
    with progress_bar() as progress:
        assert progress is not False
        progress(1, 8, "stage [1]")
        progress(8, 8, "stage [1]")
        progress(1, 2, "other")
    assert capsys.readouterr().out == ""


def test_progress_over_many_files(tmp_path, monkeypatch, capsys):
    jobs = [Job(Problem("denoise"), tmp_path / f"{n}.png", tmp_path / "out" / f"{n}.png") for n in range(3)]
    for number, job in enumerate(jobs):
        job.image.write_bytes(bytes(10 * number + 10))
    with batch_bar(jobs) as bar:
        assert bar.progress is None
        bar.done(Report(jobs[0], "restored"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with batch_bar(jobs) as bar:
        assert bar.progress is not None
        bar.progress(1, 1, 2, "restoring")
        (task,) = bar.bars.tasks
        assert (task.completed, task.total) == (10, 60)
        bar.done(Report(jobs[1], "failed"))
        bar.done(Report(jobs[0], "restored"))
        (task,) = bar.bars.tasks
        assert (task.completed, task.description) == (30, "2 of 3 files")
        print("a result")
    assert capsys.readouterr().out == "a result\n"  # stdout stays what it was


# --- with the engine -----------------------------------------------------------------------------------------------


def psnr(one, other):
    return 10 * np.log10(255**2 / np.mean((one.astype(float) - other) ** 2))


def test_engine_denoises_a_file(tmp_path):
    clean = squares()
    noisy = np.clip(clean + np.random.default_rng(0).normal(0, 20, clean.shape), 0, 255).round().astype(np.uint8)
    Image.fromarray(noisy).save(tmp_path / "in.png")
    result = run("denoise", tmp_path / "in.png", "-o", tmp_path / "out.png", "--sigma", "20", "--device", "cpu")
    assert "sigma 20" in result.stdout
    restored = io.read(tmp_path / "out.png").pixels
    assert restored.dtype == np.uint8
    assert psnr(restored, clean) > psnr(noisy, clean) + 2


def test_engine_upsamples_a_colour_file_of_sixteen_bits(tmp_path):
    small = (squares(24, 20).astype(np.uint16) * 257)[..., None].repeat(3, 2)
    io.write(tmp_path / "in.png", Picture(small, channel_axis=-1))
    run("upsample", tmp_path / "in.png", "-o", tmp_path / "out.tif", "--factor", "2", "--device", "cpu")
    restored = io.read(tmp_path / "out.tif").pixels
    assert restored.dtype == np.uint16
    assert restored.shape == (48, 40, 3)


def test_engine_learns_a_model_and_deblurs_with_it(tmp_path):
    clean = squares()
    io.write(tmp_path / "clean.png", Picture(squares(96, 96).T.copy()))
    model = tmp_path / "model.safetensors"
    words = ["--task", "deblur", "--gaussian", "1", "--sigma", "1%", "--device", "cpu"]
    run("fit", tmp_path / "clean.png", "-o", model, *words, "--crops", "4", "--cells", "2")
    from scipy.ndimage import gaussian_filter

    blurred = gaussian_filter(clean.astype(float), 1.0).round().astype(np.uint8)
    Image.fromarray(blurred).save(tmp_path / "in.png")
    words = ["--gaussian", "1", "--sigma", "1%", "--model", model, "--device", "cpu"]
    run("deblur", tmp_path / "in.png", "-o", tmp_path / "out.png", *words)
    assert psnr(io.read(tmp_path / "out.png").pixels, clean) > psnr(blurred, clean)


def test_engine_errors_are_lines(photo, tmp_path):
    np.save(tmp_path / "psf.npy", np.ones((99, 99)))
    text = fails("deblur", photo, "-o", tmp_path / "out.png", "--psf", tmp_path / "psf.npy", "--device", "cpu")
    assert "--psf must be no larger than the image" in text
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize("total", [1.0, 2283.0, 1e-3])
def test_kernels_of_files_are_divided_by_their_sum(photo, tmp_path, calls, total):
    kernel = slir.psf.gaussian(1.2)
    np.save(tmp_path / "psf.npy", total * kernel)
    run("deblur", photo, "-o", tmp_path / "out.png", "--psf", tmp_path / "psf.npy")
    ((_, given, _),) = calls
    np.testing.assert_allclose(given[1], kernel, rtol=1e-9)
