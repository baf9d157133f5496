"""Run deepinv's own tests on slir: its operators as physics, its reconstructor as a model (`make test-adapters`).

    python scripts/peer_tests.py [--keep DIR] [pytest's arguments]

The tests come from the source distribution of the deepinv that is installed, which pip downloads. In a copy of them the
list of operators and what makes them are those of `tests/peers.py`, and the backward pass through a restoration is left
out, since slir's results carry no gradient; nothing else is changed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"

PHYSICS = (
    "test_operators_adjointness",
    "test_operator_multiscale_wrapper",
    "test_operator_cropper",
    "test_operators_norm",
    "test_pseudo_inverse",
    "test_decomposable",
    "test_concatenation",
    "test_operators_differentiability",
    "test_physics_state_dict",
    "test_adjoint_autograd",
)
"""Those of deepinv's test_physics.py that run over a list of linear operators."""


def download(folder: Path) -> Path:
    """The tests of the deepinv that is installed."""
    name = f"deepinv=={version('deepinv')}"
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), name], check=True)
    (archive,) = folder.glob("deepinv-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "deepinv" / "tests"


def replaced(source: str, pattern: str, text: str) -> str:
    """The source with one place replaced."""
    changed, count = re.subn(pattern, lambda _: text, source, flags=re.MULTILINE | re.DOTALL)
    if count != 1:
        raise SystemExit(f"deepinv's tests have changed: {pattern!r} is there {count} times. Adapt this script.")
    return changed


def prepare(tests: Path, folder: Path) -> None:
    """Copy what is run, with slir in it."""
    for name in ("conftest.py", "dummy.py", "test_physics.py", "test_models.py"):
        shutil.copy(tests / name, folder / name)
    for name in ("peers.py", "torchvision_ops.py"):
        shutil.copy(TESTS / name, folder / name)
    start = "from torchvision_ops import name_missing_operators\n\nname_missing_operators()\n"
    (folder / "sitecustomize_slir.py").write_text(start)
    physics = (folder / "test_physics.py").read_text()
    physics = replaced(physics, r"^OPERATORS = \[.*?^\]", "from peers import OPERATORS")
    (folder / "test_physics.py").write_text(f"{physics}\n\nfrom peers import find_operator\n")
    models = (folder / "test_models.py").read_text()
    models = replaced(models, r"^    if physics is not None and whsize == .*?(?=^def test_pannet)", "\n")
    (folder / "test_models.py").write_text(f"{models}\n\nfrom peers import choose_restoration_model\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the download, used again the next time")
    given, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        kept = given.keep or Path(name) / "download"
        kept.mkdir(parents=True, exist_ok=True)
        found = list(kept.glob(f"deepinv-{version('deepinv')}/deepinv/tests"))
        folder = Path(name) / "run"
        folder.mkdir()
        prepare(found[0] if found else download(kept), folder)
        command = [sys.executable, "-m", "pytest", "-p", "sitecustomize_slir", "-p", "no:cacheprovider", "-q"]
        command += [f"--rootdir={folder}", "--import-mode=prepend", "-W", "ignore"]
        chosen = [f"test_physics.py::{test}" for test in PHYSICS] + ["test_models.py::test_restoration_models"]
        return subprocess.run([*command, *chosen, "-k", "not None", *more], cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
