"""Check a wheel as people get it: what is in it, and that it works where nothing but slir is installed.

python scripts/check_wheel.py dist        dist holds one wheel and one source distribution, made by `make wheel`

The wheel is installed with its dependencies, by the versions in constraints.txt, into an environment that is thrown
away. mypy and twine are those of the Python that runs this.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "slir"
LARGEST = 100e6  # what PyPI takes
ALONE = {**os.environ, "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
    ALONE.pop(name, None)
PEOPLES_EXTRAS = {"fits", "zarr", "web", "codecs", "heif", "raw", "dask", "deepinv", "pylops", "sklearn"}


class Wrong(Exception):
    """Something about the wheel that must not be published."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path)
    dist = parser.parse_args().dist
    wheels = sorted(dist.glob("*.whl"))
    try:
        if len(wheels) != 1 or len(list(dist.glob("*.tar.gz"))) != 1:
            raise Wrong(f"{dist} must hold one wheel and one source distribution. Run make wheel.")
        wheel = wheels[0]
        done("contents", check_contents, wheel)
        done("description", tool, "twine", "check", "--strict", *sorted(map(str, dist.iterdir())))
        with tempfile.TemporaryDirectory(prefix="slir-wheel-") as folder:
            python = done("installed", install, wheel, Path(folder) / "env")
            desk = Path(folder) / "desk"
            desk.mkdir()
            shutil.copy(ROOT / "scripts" / "consumer.py", desk)
            done("without extras", check_base, python, wheel)
            done("as a library", run, python, "consumer.py", cwd=desk)
            done("as a command", check_command, python, wheel, desk)
            done("types", check_types, python, desk)
    except Wrong as wrong:
        print(f"{dist}: {wrong}", file=sys.stderr)
        return 1
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, good to publish")
    return 0


def done(what, step, *arguments, **options):
    """Take a step and say how long it took."""
    started = time.perf_counter()
    result = step(*arguments, **options)
    print(f"{what:>16}  {time.perf_counter() - started:5.1f} s", flush=True)
    return result


def check_contents(wheel: Path) -> None:
    """The package, every file of it, byte by byte, and nothing else."""
    if wheel.stat().st_size > LARGEST:
        raise Wrong(f"has {wheel.stat().st_size / 1e6:.0f} MB, PyPI takes {LARGEST / 1e6:.0f}")
    meant = {
        f"slir/{path.relative_to(SOURCE).as_posix()}": path
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        if names != set(meant):
            more, fewer = sorted(names - set(meant)), sorted(set(meant) - names)
            raise Wrong(f"holds {more or 'nothing'} beside the package and lacks {fewer or 'nothing'} of it")
        changed = [name for name, path in meant.items() if archive.read(name) != path.read_bytes()]
    if changed:
        raise Wrong(f"holds other versions of {changed} than the source tree")
    if not {"slir/py.typed", "slir/models/kernel.safetensors", "slir/web/static/index.html"} <= names:
        raise Wrong("lacks its types, its models or its page")


def install(wheel: Path, place: Path) -> Path:
    """A new environment with the wheel and what it depends on; no extras."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    pip = ("pip", "--quiet", "--disable-pip-version-check", "--python", str(python), "install", "--no-compile")
    tool(*pip, *constraints, str(wheel))
    return python


def check_base(python: Path, wheel: Path) -> None:
    """Every public name is there, and none of the packages that extras bring."""
    imported = "import slir; [getattr(slir, name) for name in slir.__all__]"
    run(python, "-W", "error", "-c", imported)
    listed = "import importlib.metadata as m; print(*(one.name.lower().replace('_', '-') for one in m.distributions()))"
    there = set(run(python, "-c", listed).split())
    brought = {name for extra, name in extra_requirements(wheel) if extra in PEOPLES_EXTRAS}
    if there & brought:
        raise Wrong(f"installs {sorted(there & brought)}, which belong to extras")


def extra_requirements(wheel: Path) -> list[tuple[str, str]]:
    """(extra, name of a package) of every requirement that only an extra has."""
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(path).decode())
    wanted = [
        re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)", line) for line in metadata.get_all("Requires-Dist", failobj=[])
    ]
    return [(found[2], found[1].lower().replace("_", "-")) for found in wanted if found]


def check_command(python: Path, wheel: Path, desk: Path) -> None:
    """The command says its version and its help, restores a file, and asks for an extra that is missing."""
    slir = str(python.with_name("slir"))
    version = wheel.name.split("-")[1]
    if run(slir, "--version", cwd=desk) != f"slir {version}\n":
        raise Wrong(f"says it is {run(slir, '--version', cwd=desk)!r} instead of {version}")
    if "denoise" not in run(slir, "--help", cwd=desk):
        raise Wrong("shows no help")
    run(slir, "denoise", "noisy.png", "-o", "clean.png", "--sigma", "20", cwd=desk)
    if sorted(path.name for path in desk.glob("clean*")) != ["clean.png", "clean.png.json"]:
        raise Wrong(f"left {sorted(path.name for path in desk.iterdir())} in a folder with noisy.png")
    asked = subprocess.run([slir, "serve"], cwd=desk, env=ALONE, capture_output=True, text=True, timeout=60)
    if asked.returncode == 0 or "slir[web]" not in asked.stderr:
        raise Wrong(f"does not ask for slir[web]: {asked.stderr[-500:]}")


def check_types(python: Path, desk: Path) -> None:
    """A typed program type-checks against what is installed. It names no torch, which takes a minute to look at."""
    skipped = "[mypy]\nstrict = true\n[mypy-torch.*,scipy.*]\nfollow_imports = skip\n"
    (desk / "mypy.ini").write_text(skipped, encoding="utf-8")
    tool("mypy", "--python-executable", str(python), "consumer.py", cwd=desk)


def tool(module: str, *arguments: str, cwd: Path | None = None) -> str:
    return run(sys.executable, "-m", module, *arguments, cwd=cwd)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Its output; Wrong with all that it said if it fails."""
    ran = subprocess.run([str(part) for part in command], cwd=cwd, env=ALONE, capture_output=True, text=True)
    if ran.returncode:
        raise Wrong(f"fails at {' '.join(map(str, command[1:]))[:200]}:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
