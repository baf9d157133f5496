"""What releases promise: version, bounds of the dependencies, names that do not vanish, and warnings before they do."""

import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import slir

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
lowest = importlib.import_module("lowest").lowest
public_api = importlib.import_module("public_api")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in ("dev", "docs", "release")]


# --- the version ---------------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_installed_package():
    assert slir.__version__ == importlib.metadata.version("slir")
    Version(slir.__version__)


def test_the_version_costs_an_import_nothing():
    code = "import sys, slir; print([name for name in ('importlib.metadata', 'numpy', 'torch') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_tree_that_was_not_installed_says_so(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert slir._installed_version() == "0+unknown"


def test_what_is_built_without_a_tag_is_older_than_the_next_release():
    scm = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools_scm"]
    fallback = Version(scm["fallback_version"])
    assert fallback.dev == 0, "setuptools-scm counts commits from .dev0"
    assert f"## [{fallback.base_version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "was released"


# --- dependencies --------------------------------------------------------------------------------------------------


def requirements(extras):
    lines = [*PROJECT["dependencies"], *(line for name in extras for line in PROJECT["optional-dependencies"][name])]
    return [Requirement(line) for line in lines if not line.startswith("slir[")]


def test_every_dependency_has_a_lowest_version_and_no_highest():
    for one in requirements(EXTRAS):
        assert [spec.operator for spec in one.specifier] == [">="], one


def test_lowest_versions_are_those_of_the_project():
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lowest(EXTRAS)}
    for one in requirements(EXTRAS):
        assert pins[canonicalize_name(one.name)] in one.specifier, one


def test_what_we_develop_with_is_pinned_and_allowed():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    pinned = {canonicalize_name(one.name): next(iter(one.specifier)).version for one in pins}
    for one in requirements([*EXTRAS, "release"]):
        assert pinned[canonicalize_name(one.name)] in one.specifier, one


def test_classifiers_name_the_pythons_that_are_tested():
    minors = [int(found[1]) for line in PROJECT["classifiers"] if (found := re.search(r"Python :: 3\.(\d+)$", line))]
    assert PROJECT["requires-python"] == f">=3.{min(minors)}"
    assert sys.version_info.minor in minors


# --- the public API ------------------------------------------------------------------------------------------------


def test_nothing_public_has_vanished():
    recorded = (ROOT / "tests" / "public_api.txt").read_text(encoding="utf-8").splitlines()
    now = {line.partition(": ")[0]: line for line in public_api.public_api()}
    reasons = {line.partition(": ")[0]: public_api.broken(line, now.get(line.partition(": ")[0])) for line in recorded}
    broken = {name: reason for name, reason in reasons.items() if reason}
    assert not broken, "deprecate it first (docs/releases.md); what was never released may be left out by `make api`"
    assert len(recorded) > 400


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ("f: a b * c= d=", "f: a b e= * d= c= g=", ""),
        ("f: a b= * c=", "f: a b= c=", ""),
        ("f: a", "f: a *more **named", ""),
        ("f", "f: a=", ""),
        ("f: a * c=", None, "is gone"),
        ("f: a b", "f: b a", "takes b, a by position instead of a, b"),
        ("f: a b=", "f: a * b=", "takes a by position instead of a, b"),
        ("f: a * c= d=", "f: a * d=", "no longer takes c"),
        ("f: a * c=", "f: a * c", "now asks for c"),
        ("f: a", "f: a b", "now asks for b"),
        ("slir x: image * --sigma= -q=", "slir x: image * --noise= -q=", "no longer takes --sigma"),
    ],
)
def test_what_breaks_a_caller(before, now, reason):
    assert public_api.broken(before, now) == reason


def test_lines_of_the_api_say_what_python_says():
    now = set(public_api.public_api())
    for function in (slir.denoise, slir.deblur, slir.upsample):
        kinds = [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
        places = [name for name, kind, _ in kinds if kind.name == "POSITIONAL_OR_KEYWORD"]
        named = [name for name, kind, default in kinds if kind.name == "KEYWORD_ONLY"]
        shown = [f"{name}{'' if default is inspect.Parameter.empty else '='}" for name, _, default in kinds]
        words = [*shown[: len(places)], *(["*"] if named else []), *shown[len(places) :]]
        assert f"{function.__module__}.{function.__name__}: {' '.join(words)}" in now


# --- files that a forge reads --------------------------------------------------------------------------------------


def test_the_citation_names_the_paper_and_the_licence():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert "version" not in citation, "the tag says it"
    paper = citation["references"][0]
    assert paper["title"] == "Structured and Localized Image Restoration"
    assert [one["family-names"] for one in paper["authors"]] == ["Eboli", "Nowak-Vila", "Sun", "Bach", "Ponce", "Rudi"]
