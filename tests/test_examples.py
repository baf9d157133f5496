"""The gallery's scripts in their short mode, and the Python code of the documentation."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile
from PIL import Image

import dng
import slir
from slir.io import Picture, write
from slir.operators.mosaic import checked_pattern

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
DOCS = ROOT / "docs"

LEAST_GAIN = {  # dB of each restoration in short mode; about a dB or a fifth below what it is
    "photograph": [8.5, 3.5, 10.5],
    "scan": [8.5],
    "enlarge": [1.2, 1.5],
    "microscopy": [2.6],
    "astronomy": [1.8],
    "own_pictures": [3.3, 4.1],
    "settings": [8.5, 5.3, 5.3],
}
FIGURES = {"photograph": 4, "scan": 2, "enlarge": 4, "microscopy": 2, "astronomy": 2, "own_pictures": 2, "settings": 3}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """A script as a module, with its folder on the path as when it is run."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def loaded(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return loaded


def test_every_script_is_tested() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"story"}
    assert scripts == set(LEAST_GAIN)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # one of them is about wrong settings
@pytest.mark.parametrize("name", LEAST_GAIN)
def test_script(name: str, load, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = load(name).main(["--short", "--out", str(tmp_path)])
    gains = [gain.after - gain.before for gain in story.gains]
    assert len(gains) == len(LEAST_GAIN[name])
    for gain, least in zip(gains, LEAST_GAIN[name]):
        assert gain > least
    assert len(story.figures) == FIGURES[name]
    for path in story.figures:
        assert path.stat().st_size < 150_000
        with Image.open(path) as figure:
            assert figure.format == "JPEG"
            assert np.ptp(np.asarray(figure)) > 200
    told = (tmp_path / f"{name}.txt").read_text(encoding="utf-8")
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line in told.splitlines()] == told.splitlines()
    assert told.count("dB after") == len(gains)
    if name == "microscopy":
        _check_microscope(tmp_path)
    if name == "astronomy":
        _check_telescope(tmp_path)
    if name == "own_pictures":
        assert gains[1] > gains[0] + 0.5  # what fitting is for
        assert slir.load(tmp_path / "pages.safetensors").stages


def _check_microscope(out: Path) -> None:
    """The restored file has the dtype, the scale and ImageJ's metadata of the one that was recorded."""
    with (
        tifffile.TiffFile(out / "microscope.tif") as before,
        tifffile.TiffFile(out / "microscope-restored.tif") as after,
    ):
        assert after.pages[0].dtype == before.pages[0].dtype == np.uint16
        assert after.pages[0].shape == before.pages[0].shape
        for key in ("unit", "min", "max"):
            assert after.imagej_metadata[key] == before.imagej_metadata[key]
        assert after.pages[0].tags["XResolution"].value == before.pages[0].tags["XResolution"].value


def _check_telescope(out: Path) -> None:
    """The restored file has the header of the one that was observed, floats, and no NaN."""
    fits = pytest.importorskip("astropy.io.fits")
    (before, header), (after, kept) = (
        fits.getdata(out / name, header=True) for name in ("telescope.fits", "telescope-restored.fits")
    )
    assert np.isnan(before).any()
    assert np.isfinite(after).all()
    assert after.dtype == before.dtype
    assert all(kept[key] == header[key] for key in ("OBJECT", "BUNIT", "CTYPE1", "CTYPE2", "CRVAL1"))


def test_short_and_full_mode_cut_pictures(load, tmp_path: Path) -> None:
    story = load("story")
    full, short = (story.Story("x", tmp_path, short) for short in (False, True))
    assert short.picture("cat", (0, 0)).shape == (story.SHORT, story.SHORT, 3)
    whole = full.picture("cat", (0, 0))
    np.testing.assert_array_equal(short.picture("cat", (0, 0)), whole[: story.SHORT, : story.SHORT])


def test_figures_of_the_site_are_small_and_complete() -> None:
    """`make gallery` was run for every script, and no figure is heavy."""
    for name, count in FIGURES.items():
        figures = list((DOCS / "images").glob(f"{name}-*.jpg"))
        assert len(figures) == count
        assert all(path.stat().st_size < 150_000 for path in figures)
        assert (DOCS / "images" / f"{name}.txt").exists()


def test_pictures_are_listed_with_their_origin() -> None:
    listed = (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")
    pictures = list((EXAMPLES / "data").glob("*.png"))
    assert pictures
    assert all(f"`{path.name}`" in listed for path in pictures)
    assert sum(path.stat().st_size for path in pictures) < 1_500_000


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Links, anchors, generated pages, docstrings: MkDocs is strict about all of them."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    reference = (tmp_path / "site" / "cli.html").read_text(encoding="utf-8")
    assert all(f"slir {command}" in reference for command in ("denoise", "deblur", "upsample", "inpaint", "fit", "psf"))
    for page in (tmp_path / "site").rglob("*.html"):  # nothing is fetched from elsewhere when it is viewed
        assert not re.search(r'(?:<script|<img)[^>]*src="http|<link[^>]*href="http', page.read_text(encoding="utf-8"))


def test_docstrings_become_lists_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    as_markdown = importlib.import_module("docstrings").as_markdown
    text = "sigma: of the noise.\n\nimage: (H, W). sigma: the noise,\n    as it is: known\nsize, seed : two\n\n>>> f(1)"
    expected = [
        "sigma: of the noise.",  # the first line is no argument
        "- `image`: (H, W).",
        "- `sigma`: the noise,",
        "    as it is: known",
        "- `size`, `seed`: two",
        "```python",
        "f(1)",
        "```",
    ]
    made = as_markdown(text, {"image", "sigma", "size", "seed"}).splitlines()
    assert [line.rstrip() for line in made if line.strip()] == expected


def test_examples_of_commands_become_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    pages = importlib.import_module("pages")
    made = pages.shown_examples("Examples:\n\nslir a &#x27;*.png&#x27;\nslir b\n\n**Usage**:")
    assert made == "```sh\nslir a '*.png'\nslir b\n```\n\n**Usage**:"
    listed = "# x\n\n**Commands**:\n\n* `psf`: Make...\n\n## `slir psf`\n\nMake a kernel.\n"
    assert "* [`slir psf`](#slir-psf): Make a kernel." in pages.whole_summaries(listed)


PAGES = [DOCS / "index.md", DOCS / "faq.md", DOCS / "how-it-works.md", *sorted((DOCS / "guide").glob("*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The Python code of a page, one text a block, indented ones moved to the left."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def test_most_pages_have_code() -> None:
    assert sum(bool(blocks(page)) for page in PAGES) >= 8


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # one picture serves all blocks
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_code_of_the_documentation_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a page run one after the other, as a reader would, in a folder with a photograph and other files."""
    monkeypatch.chdir(tmp_path)
    photo = np.asarray(Image.open(EXAMPLES / "data" / "cat.png"))[20:84, 60:124]
    noisy = photo + np.random.default_rng(0).normal(0, 5, photo.shape)
    write("photo.png", Picture(np.clip(np.rint(noisy), 0, 255).astype(np.uint8), channel_axis=-1))
    write("slide.zarr", Picture(np.clip(np.rint(noisy[..., 0]), 0, 255).astype(np.uint8)))
    if page.stem == "raw":
        pytest.importorskip("rawpy")
        pattern = checked_pattern("RGGB").numpy()
        dng.write(Path("night.dng"), dng.mosaic(photo / 255, pattern, gain=1 / 2000, read=0.002), pattern)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page)):
        exec(compile(code, f"{page.name}, block {number + 1}", "exec"), names)
