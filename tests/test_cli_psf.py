"""`slir psf`: what it writes, draws and says, and that `--psf` reads the same back."""

import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from PIL import Image
from typer.testing import CliRunner

from slir import io, psf
from slir.cli import app
from slir.errors import FileError
from slir.files import restore_file
from slir.io.kernels import read_psf, write_psf

runner = CliRunner()
KINDS = ("gaussian", "motion", "shake", "defocus", "airy", "image", "file")
SUMMARY = (
    r"(\w+) \((\d+) × (\d+) pixels, sum 1, FWHM ([\d.]+) across and ([\d.]+) down, "
    r"centroid (-?[\d.]+) right and (-?[\d.]+) down\) -> (.+)\n"
)


def run(*words, code=0):
    """Run a command; a traceback is never right."""
    result = runner.invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def fails(*words):
    """Run a command that must fail; the one line that says why."""
    result = run(*words, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


def bead_image():
    """A bead through a Gaussian of standard deviation 1.8, between pixels, as a camera of 16 bits sees it."""
    star = 30_000 * psf.gaussian(1.8, 41, offset=(0.3, -0.4)) / psf.gaussian(1.8).max()
    return np.random.default_rng(0).normal(500 + star, 20).round().astype(np.uint16)


# --- help ----------------------------------------------------------------------------------------------------------


def help_of(*words):
    return re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", run("psf", *words, "--help").stdout)


@pytest.mark.parametrize("kind", [(), *((kind,) for kind in KINDS)])
def test_examples_run_as_they_are_printed(tmp_path, monkeypatch, kind):
    (example,) = re.findall(r"Example: slir (psf .*?)\s*$", help_of(*kind), flags=re.MULTILINE)
    assert example.startswith(" ".join(("psf", *kind)))
    monkeypatch.chdir(tmp_path)
    tifffile.imwrite("bead.tif", bead_image())
    np.savetxt("kernel.csv", psf.gaussian(1.0), delimiter=",")
    run(*shlex.split(example))
    kernel = read_psf("psf.npy")
    assert kernel.sum() == pytest.approx(1)
    assert ("--draw" in example) == (tmp_path / "picture.png").exists()


def test_help_lists_the_kinds_and_is_quick():
    text = help_of()
    for kind in KINDS:
        assert re.search(rf"^\s*{kind}\b", text, flags=re.MULTILINE)
    program = "import sys; import slir.cli.app; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


# --- what is written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        (["gaussian", "1.6"], psf.gaussian(1.6)),
        (["gaussian", "3,1.5,30", "--size", "21"], psf.gaussian(3, 21, sigma_across=1.5, angle=30)),
        (["gaussian", "1", "--offset", "-0.25,0.5"], psf.gaussian(1, offset=(-0.25, 0.5))),
        (["motion", "15,30"], psf.motion(15, 30)),
        (["motion", "5,0", "--offset", "0,0.5"], psf.motion(5, 0, offset=(0, 0.5))),
        (["shake", "20", "--seed", "3"], psf.camera_shake(20, 3, centre="light")),
        (["shake", "9", "--softness", "0.4", "--size", "25"], psf.camera_shake(9, 0, 25, softness=0.4, centre="light")),
        (["defocus", "3.5"], psf.defocus(3.5)),
        (["airy", "2.4"], psf.airy(2.4)),
        (["airy", "2.4", "--size", "9"], psf.airy(2.4, 9)),
        (["airy", "--na", "1.4", "--wavelength", "520", "--pixel", "65"], psf.airy_from_aperture(1.4, 520, 65)),
    ],
)
def test_kinds_are_the_librarys(tmp_path, words, kernel):
    out = tmp_path / "psf.npy"
    found = re.fullmatch(SUMMARY, run("psf", *words, "-o", out).stdout)
    assert found
    np.testing.assert_array_equal(np.load(out), kernel)
    assert (found[1], int(found[3]), int(found[2])) == (words[0], *kernel.shape)
    assert (float(found[5]), float(found[4])) == pytest.approx(psf.fwhm(kernel), abs=0.006)
    assert (float(found[7]), float(found[6])) == pytest.approx(psf.centroid(kernel), abs=0.0006)
    assert found[8] == str(out)
    assert run("psf", *words, "-o", out, "-f", "-q").output == ""


def test_image_of_a_bead(tmp_path):
    tifffile.imwrite(tmp_path / "bead.tif", bead_image())
    run("psf", "image", tmp_path / "bead.tif", "-o", tmp_path / "psf.npy")
    kernel = np.load(tmp_path / "psf.npy")
    np.testing.assert_array_equal(kernel, psf.from_image(bead_image()))
    assert psf.fwhm(kernel) == pytest.approx(psf.fwhm(psf.gaussian(1.8)), rel=0.01)
    np.save(tmp_path / "bead.npy", bead_image())
    run("psf", "image", tmp_path / "bead.npy", "-o", tmp_path / "psf.npy", "-f", "--background", 500, "--size", 15)
    np.testing.assert_array_equal(np.load(tmp_path / "psf.npy"), psf.from_image(bead_image(), background=500, size=15))
    words = ("psf", "image", tmp_path / "bead.tif", "-o", tmp_path / "no.npy")
    assert "not be saturated" in fails(*words, "--saturation", 20_000)
    assert "--background must be 1 number" in fails(*words, "--background", "dark")
    colour = np.zeros((30, 30, 3), np.uint8)
    Image.fromarray(colour).save(tmp_path / "colour.png")
    assert "is in colour" in fails("psf", "image", tmp_path / "colour.png", "-o", tmp_path / "no.npy")
    assert "does not exist" in fails("psf", "image", tmp_path / "none.tif", "-o", tmp_path / "no.npy")
    assert not (tmp_path / "no.npy").exists()


def test_file_is_checked_and_scaled(tmp_path):
    (tmp_path / "kernel.txt").write_text("0 1 0 0\n1 4 1 0\n0 1 0 0\n")
    run("psf", "file", tmp_path / "kernel.txt", "-o", tmp_path / "psf.csv")
    expected = np.array([[0, 0, 1, 0, 0], [0, 1, 4, 1, 0], [0, 0, 1, 0, 0]]) / 8
    np.testing.assert_array_equal(read_psf(tmp_path / "psf.csv"), expected)
    np.save(tmp_path / "off.npy", np.pad(psf.gaussian(1.5), ((3, 0), (0, 0))))
    found = re.fullmatch(
        SUMMARY, run("psf", "file", tmp_path / "off.npy", "-o", tmp_path / "psf.npy", "--centre").stdout
    )
    assert found
    assert (found[6], found[7]) == ("0.000", "0.000")
    np.save(tmp_path / "minus.npy", np.eye(3) - np.ones((3, 3)) / 4)
    assert "non-negative" in fails("psf", "file", tmp_path / "minus.npy", "-o", tmp_path / "no.npy")


def worst_of_png(kernel):
    """Largest error over the peak: half a step of 16 bits, and as much again for each pixel that the sum counts."""
    half = 0.5 / 65535
    return half * (1 + kernel.size * kernel.max()) / (1 - half * kernel.size * kernel.max())


@pytest.mark.parametrize(
    "kernel", [psf.airy(3.0), psf.airy(3.0, 101), psf.motion(9, 0), psf.motion(5, 90), np.ones((1, 1))]
)
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("k.npy", lambda _: 0.0),
        ("k.csv", lambda _: 0.0),
        ("k.txt", lambda _: 0.0),
        ("k.tif", lambda _: 1e-7),
        ("k.tiff", lambda _: 1e-7),
        ("k.png", worst_of_png),
    ],
)
def test_deblur_reads_what_was_written(tmp_path, monkeypatch, kernel, name, error):
    write_psf(tmp_path / "kernel.npy", kernel)
    run("psf", "file", tmp_path / "kernel.npy", "-o", tmp_path / name)
    taken = []

    def restore_image(image, problem, settings):
        taken.append(problem.options["psf"])
        return SimpleNamespace(image=image, stats={"sigma": 1.0})

    monkeypatch.setattr(restore_file, "restore_image", restore_image)
    io.write(tmp_path / "in.png", io.Picture(np.zeros((101, 101), np.uint8)))
    run("deblur", tmp_path / "in.png", "-o", tmp_path / "out.png", "--psf", tmp_path / name)
    (read,) = taken
    assert read.shape == kernel.shape
    stored = np.load(tmp_path / "kernel.npy")
    stored = stored / stored.sum()  # `slir psf file` divides by the sum, which may be off by the last digit
    assert np.abs(read - stored).max() <= error(kernel) * kernel.max() + 1e-16
    assert read.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("kernel", [psf.gaussian(1.6), psf.airy(3.0), psf.defocus(5), psf.motion(15, 30)])
def test_sixteen_bits_are_plenty_for_a_compact_kernel(tmp_path, kernel):
    write_psf(tmp_path / "k.png", kernel)
    assert np.abs(read_psf(tmp_path / "k.png") - kernel).max() < 3e-5 * kernel.max()


def test_files_have_the_type_that_help_says(tmp_path):
    for name in ("k.npy", "k.tif", "k.png"):
        run("psf", "defocus", 3, "-o", tmp_path / name)
    assert np.load(tmp_path / "k.npy").dtype == np.float64
    assert tifffile.imread(tmp_path / "k.tif").dtype == np.float32
    pixels = io.read(tmp_path / "k.png").pixels
    assert (pixels.dtype, pixels.max()) == (np.uint16, 65535)


def test_a_drawing_shows_the_kernel_twice(tmp_path):
    result = run("psf", "motion", "9,0", "-o", tmp_path / "psf.npy", "--draw", tmp_path / "picture.png")
    assert result.stdout.endswith(f"-> {tmp_path / 'psf.npy'}, {tmp_path / 'picture.png'}\n")
    drawn = io.read(tmp_path / "picture.png").pixels
    times = 384 // 11
    assert drawn.shape == (16 + times, 2 * 11 * times + 12, 3)
    light = drawn[-1].astype(int).sum(axis=-1)
    assert light[5 * times + times // 2] == light[: 11 * times].max()
    assert light[0] < light[5 * times]


# --- what goes wrong -----------------------------------------------------------------------------------------------


def test_bad_words_are_told(tmp_path):
    out = ("-o", tmp_path / "psf.npy")
    assert "1.6, or 3,1.5,30" in fails("psf", "gaussian", "1,2", *out)
    assert "sigma must be a positive" in fails("psf", "gaussian", "0", *out)
    assert "15,30" in fails("psf", "motion", "15", *out)
    assert "--offset must be 2 numbers" in fails("psf", "defocus", "3", "--offset", "1", *out)
    assert "offset must be two numbers from -1 to 1" in fails("psf", "defocus", "3", "--offset", "0,7", *out)
    assert "size must be a positive odd number" in fails("psf", "airy", "3", "--size", "4", *out)
    assert "the pattern must be given, but it is missing" in fails("psf", "airy", *out)
    assert "--na and --pixel alone" in fails("psf", "airy", "--na", "1.4", "--pixel", "65", *out)
    assert "be given once" in fails("psf", "airy", "3", "--na", "1.4", *out)
    assert "It is in nanometres" in fails("psf", "airy", "--na", 1.4, "--wavelength", 0.52, "--pixel", 65, *out)
    assert list(tmp_path.iterdir()) == []


def test_bad_outputs_are_told_and_nothing_is_written(tmp_path):
    (tmp_path / "old.npy").write_bytes(b"precious")
    (tmp_path / "old.png").touch()
    words = ("psf", "defocus", 3, "-o")
    assert "holds no kernels" in fails(*words, tmp_path / "psf.jpg")
    assert "has no suffix" in fails(*words, tmp_path / "psf")
    assert "is a folder" in fails(*words, tmp_path)
    assert "does not exist" in fails(*words, tmp_path / "none" / "psf.npy")
    assert "exists already. Pass --force" in fails(*words, tmp_path / "old.npy")
    assert "exists already" in fails(*words, tmp_path / "psf.npy", "--draw", tmp_path / "old.png")
    assert "unknown suffix" in fails(*words, tmp_path / "psf.npy", "--draw", tmp_path / "picture.gif")
    assert "another file" in fails(*words, tmp_path / "psf.png", "--draw", tmp_path / "psf.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.npy", "old.png"]
    assert (tmp_path / "old.npy").read_bytes() == b"precious"
    run(*words, tmp_path / "old.npy", "--force")
    np.testing.assert_array_equal(np.load(tmp_path / "old.npy"), psf.defocus(3))


def test_a_kernel_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "psf.npy").write_bytes(b"precious")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert "No space left" in fails("psf", "defocus", 3, "-o", tmp_path / "psf.npy", "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["psf.npy"]
    assert (tmp_path / "psf.npy").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("name", "kernel", "words"),
    [
        ("k.npy", np.ones(3), "not a kernel"),
        ("k.csv", np.array([[np.nan]]), "not a kernel"),
        ("k.png", -np.eye(3), "below zero"),
        ("k.png", np.zeros((3, 3)), "without light"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, kernel, words):
    with pytest.raises(FileError, match=words):
        write_psf(tmp_path / name, kernel)
    assert list(tmp_path.iterdir()) == []
