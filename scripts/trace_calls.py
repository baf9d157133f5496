"""Figures of how easy the code is to follow: `python scripts/trace_calls.py`.

For one call of `slir.deblur(array, psf)`, after a first one that loads everything:

* modules of slir that are passed, and their names;
* depth: the largest number of calls of slir that are open at once;
* returns up: pairs of modules where one calls another that stands above it in the layers of import-linter.

For the source: lines of each package, modules at the root, and functions whose names are bare participles ("restored"),
by the ending of the word.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "slir"
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "spread", "succeed", "thread"}
IRREGULAR = re.compile(
    "begun|bent|bound|built|caught|done|drawn|fed|felt|found|given|gone|held|kept|known|led|left|lost|made|met|seen|sent|"
    "shown|spelt|swept|taken|thrown|told|understood|worn|woven|written"
)


def module_of(frame: FrameType) -> str | None:
    """The module of slir that a frame belongs to."""
    name = frame.f_globals.get("__name__", "")
    return name if name == "slir" or name.startswith("slir.") else None


def layers() -> list[list[str]]:
    """The layers of the first contract of import-linter, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [[name.strip() for name in layer.split(":")] for layer in contracts[0]["layers"]]


def layer_of(module: str, order: list[list[str]]) -> int | None:
    for number, names in enumerate(order):
        if any(module == name or module.startswith(name + ".") for name in names):
            return number
    return None


class Trace:
    """Modules, depth and calls between modules while it is the profiler."""

    def __init__(self) -> None:
        self.depth = self.deepest = 0
        self.modules: set[str] = set()
        self.calls: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        module = module_of(frame)
        if module is None or frame.f_code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"):
            return
        if event == "call":
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
            self.modules.add(module)
            caller = frame.f_back
            while caller is not None and module_of(caller) is None:
                caller = caller.f_back
            if caller is not None and module_of(caller) != module:
                self.calls.add((str(module_of(caller)), module))
        elif event == "return":
            self.depth -= 1


def trace_deblur() -> Trace:
    import numpy as np
    import torch

    import slir

    torch.set_num_threads(1)
    image = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    psf = np.full((5, 5), 1 / 25)
    slir.deblur(image, psf, sigma=2.5)
    trace = Trace()
    sys.setprofile(trace)
    try:
        slir.deblur(image, psf, sigma=2.5)
    finally:
        sys.setprofile(None)
    return trace


def is_participle(name: str) -> bool:
    """Whether a name is one word, or a last word after "is_" and the like, that ends as a participle does."""
    word = name.lstrip("_")
    return "_" not in word and (
        IRREGULAR.fullmatch(word) is not None or (word.endswith("ed") and word not in NO_PARTICIPLES)
    )


def participles(path: Path) -> list[str]:
    """Functions and methods of a module whose names are bare participles. Properties are none: they name a state."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
            properties = {"property", "cached_property"}
            if not any(isinstance(each, ast.Name) and each.id in properties for each in node.decorator_list):
                found.append(node.name)
    return found


def main() -> None:
    sources = sorted(PACKAGE.rglob("*.py"))
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in sources}
    packages: dict[str, int] = {}
    for path, count in lines.items():
        first = path.relative_to(PACKAGE).parts[0]
        packages[first if not first.endswith(".py") else "(root)"] = (
            packages.get(first if not first.endswith(".py") else "(root)", 0) + count
        )
    print(f"lines of src/slir: {sum(lines.values()):,} in {len(sources)} modules")
    print("  " + ", ".join(f"{name} {count:,}" for name, count in sorted(packages.items())))
    print(f"modules at the root: {sum(path.parent == PACKAGE and path.stem != '__init__' for path in sources)}")
    long = [f"{path.relative_to(PACKAGE)} {count}" for path, count in lines.items() if count > 300]
    print(f"modules over 300 lines: {len(long)}: {', '.join(long)}")
    names = {path: participles(path) for path in sources}
    print(f"functions with a bare participle as name: {sum(map(len, names.values()))}")
    if "--names" in sys.argv:
        for path, found in names.items():
            if found:
                print(f"  {path.relative_to(PACKAGE)}: {', '.join(found)}")
    trace, order = trace_deblur(), layers()
    up = []
    for caller, callee in sorted(trace.calls):
        above, below = layer_of(callee, order), layer_of(caller, order)
        if above is not None and below is not None and above < below:
            up.append(f"{caller} -> {callee}")
    print(f"slir.deblur(array): {len(trace.modules)} modules, {trace.deepest} calls deep, {len(up)} returns up")
    print("  " + ", ".join(sorted(trace.modules)))
    for pair in up:
        print(f"  up: {pair}")


if __name__ == "__main__":
    main()
