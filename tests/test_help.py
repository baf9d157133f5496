"""Every example of every command's help is run, in a folder that holds the files it names."""

import os
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from typer.main import get_command
from typer.testing import CliRunner

import dng
import slir
from slir import io
from slir.cli import app
from slir.files.jobs import Job
from slir.files.jobs import run as restore
from slir.io import Picture
from slir.kernel.shipped import shipped_model, training_pictures
from slir.operators.mosaic import checked_pattern
from slir.problem import Problem

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()


def commands(group, words=()):
    """(words, command) of every command and group below one."""
    for name, command in getattr(group, "commands", {}).items():
        yield (*words, name), command
        yield from commands(command, (*words, name))


COMMANDS = dict(commands(get_command(app)))


def examples():
    """(command, example) as the help has them, one a line: "slir ..." or "Example: slir ..."."""
    for words, command in COMMANDS.items():
        for line in (command.help or "").splitlines():
            found = re.match(r"(?:Example: )?(slir .+)", line.strip())
            if found:
                yield words, found[1]


EXAMPLES = list(examples())
SILENT = ("info", "demo", "serve")  # they write nothing that they were not told to replace


def picture(seed=0, height=20, width=22):
    rows, cols = np.mgrid[:height, :width]
    clean = 60 + 120 * ((rows // 5 + cols // 5) % 2)
    return (clean + np.random.default_rng(seed).normal(0, 5, clean.shape)).clip(0, 255).round().astype(np.uint8)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with everything that the examples name."""
    folder = tmp_path_factory.mktemp("desk")
    for place in ("photos", "photos/2024", "frames", "thumbnails", "scans", "masks"):
        (folder / place).mkdir()
    nights = ("night.png", "night.jpg")
    names = (*nights, "soft.png", "thumbnail.png", "shaken.jpg", "old.jpg", "scan.tif", "photos/one.png")
    for seed, name in enumerate((*names, "photos/2024/two.jpg", "frames/1.png", "thumbnails/1.png", "scans/1.png")):
        io.write(folder / name, Picture(picture(seed)))
    io.write(folder / "cells.tif", Picture(picture().astype(np.uint16) * 16))
    scratch = np.zeros((20, 22), np.uint8)
    scratch[4:15, 7] = 255
    for name in ("scratches.png", "masks/1.png"):
        io.write(folder / name, Picture(scratch))
    holes = picture().astype(np.float32) / 255
    holes[3:6, 4] = np.nan
    tifffile.imwrite(folder / "detector.tif", holes, metadata=None)
    spot = slir.psf.gaussian(1.2, 15)
    io.write(folder / "bead.tif", Picture((1000 + 40000 * np.pad(spot, 6) / spot.max()).astype(np.uint16)))
    kernel = slir.psf.gaussian(1.0, 5)
    np.save(folder / "psf.npy", kernel)
    np.savetxt(folder / "kernel.csv", kernel, delimiter=",")
    io.write(folder / "psf.png", Picture(np.rint(kernel / kernel.max() * 65535).astype(np.uint16)))
    pattern = checked_pattern("RGGB").numpy()
    mosaic = dng.mosaic(np.stack([picture(height=40, width=44)] * 3, -1) / 255, pattern)
    for name in ("night.dng", "night.nef", "night.cr3", "photos/three.dng"):
        dng.write(folder / name, mosaic, pattern)
    (folder / "run.toml").write_text('images = ["night.png"]\noutput = "from-config.png"\nsidecar = false\n')
    shipped_model("inpaint").save(str(folder / "model.safetensors"))
    (folder / "clean").mkdir()
    for image, output in (("night.png", "clean.png"), ("night.png", "clean/night.png"), ("soft.png", "clean/day.png")):
        restore(Job(Problem("denoise", sigma=0), folder / image, folder / output))
    return folder


@pytest.fixture
def light(monkeypatch):
    """What takes minutes, or data that do not ship, noted in place of done; the parsing is real."""
    noted = []
    model = SimpleNamespace(save=lambda path: open(path, "wb").close())
    monkeypatch.setitem(vars(slir), "fit", lambda images, **named: noted.append("fit") or model)
    ready = shipped_model("denoise")
    monkeypatch.setitem(vars(slir), "calibrate", lambda images, **named: noted.append("calibrate") or ready)
    report, few = slir.theory.report, training_pictures()[:2]

    def small(images, *args, **named):
        images = few if images is None and named["model"] is None else images
        return report(images, *args, **{**named, "m": 32, "folds": 2, "test": 20})

    monkeypatch.setattr(slir.theory, "report", small)
    row = SimpleNamespace(task="denoise", psnr_before=20.0, psnr_after=29.5, seconds=0.5, files=[])
    monkeypatch.setitem(
        sys.modules, "slir.cli.demonstration", SimpleNamespace(run=lambda *_: noted.append("demo") or [row])
    )
    monkeypatch.setattr("slir.cli.serve._run", lambda *_, **__: noted.append("serve"))
    return noted


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_example(desk, light, monkeypatch, words, example):
    if words[0] == "develop":
        pytest.importorskip("rawpy")
    monkeypatch.chdir(desk)
    told = shlex.split(example)[1:]
    # In this process, since workers would import torch anew; and over what an example before this one wrote.
    if "--jobs" in told:
        told[told.index("--jobs") + 1] = "1"
    elif words[0] in ("denoise", "deblur", "upsample", "inpaint"):
        told += ["--jobs", "1"]
    if not {"--force", "-f", "--skip-existing"} & set(told) and words[0] not in SILENT:
        told.append("--force")
    before = {path: path.stat().st_mtime_ns for path in desk.rglob("*")}
    result = runner.invoke(app, told)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    written = {path for path in desk.rglob("*") if before.get(path) != path.stat().st_mtime_ns}
    assert bool(written) == writes(words[0], example)


def writes(name, example):
    return name not in SILENT and "--dry-run" not in example and (name != "explain" or " -o " in example)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_and_every_option_help(words):
    command = COMMANDS[words]
    if not getattr(command, "commands", None):
        assert any(words == own for own, _ in EXAMPLES), f"slir {' '.join(words)} shows no example"
    assert command.help
    for param in command.params:
        text = getattr(param, "help", None)
        assert text, f"slir {' '.join(words)}: {param.name} has no help"
        assert text.rstrip().endswith((".", ")", '"'))


@pytest.mark.parametrize(
    "name",
    [
        "denoise",
        "deblur",
        "upsample",
        "inpaint",
        "develop",
        "rerun",
        "info",
        "fit",
        "calibrate",
        "explain",
        "theory",
        "serve",
    ],
)
def test_help_says_what_it_does_and_when_to_use_it(name):
    paragraphs = COMMANDS[name,].help.split("\n\n")
    assert len(paragraphs) >= 4  # what, when and how, "Examples:", the examples
    assert all("\n" not in text or text.startswith("slir ") for text in paragraphs)  # the terminal breaks lines
    assert len([line for line in paragraphs[-1].splitlines() if line.startswith("slir ")]) >= 3
    rendered = runner.invoke(app, [name, "--help"], env={"COLUMNS": "100"}).stdout
    for line in paragraphs[-1].splitlines():
        assert line in rendered


# --- completion ----------------------------------------------------------------------------------------------------


def complete(words, folder, shell="bash"):
    """What the shell is told when TAB is pressed after these words."""
    env = {
        **os.environ,
        "_SLIR_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    env["_TYPER_COMPLETE_ARGS"] = words
    program = "from slir.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=folder, capture_output=True, text=True)
    return done.stdout.split()


def test_completion(tmp_path):
    assert {"denoise", "deblur", "rerun", "info"} <= set(complete("slir ", tmp_path))
    assert complete("slir upsa", tmp_path) == ["upsample"]
    assert "--skip-existing" in complete("slir denoise --sk", tmp_path)
    assert set(complete("slir deblur --border ", tmp_path)) == {"unknown", "circular", "reflect"}
    # Paths: no words of ours, upon which bash (complete -o default) and zsh (_files) complete file names.
    assert complete("slir denoise ph", tmp_path) == []
    assert complete("slir denoise a.png -o ", tmp_path) == []
    assert complete("slir denoise ph", tmp_path, "zsh") == ["_files"]


def test_completion_is_installed(tmp_path):
    env = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = "import sys; sys.argv[0] = 'slir'; from slir.cli import main; main()"
    words = ["--install-completion", "bash"]
    subprocess.run([sys.executable, "-c", program, *words], env=env, check=True, capture_output=True)
    script = next((tmp_path / ".bash_completions").iterdir())
    assert "complete -o default -F _slir_completion slir" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()
