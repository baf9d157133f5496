"""Print the lowest versions that pyproject.toml promises, one `name==version` a line, as constraints for pip.

python scripts/lowest.py fits zarr        the dependencies of slir itself and of these extras
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(extras: list[str]) -> list[str]:
    """`name==version` for each requirement; those on slir's own extras are followed."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    lines = []
    for requirement in wanted:
        inner = re.fullmatch(r"slir\[([\w, -]+)\]", requirement)
        if inner:
            lines += lowest([name.strip() for name in inner[1].split(",")])
            continue
        found = re.match(r"([\w.-]+)(?:\[[\w, -]+\])?>=([\w.]+)", requirement)
        if not found:
            raise SystemExit(f"{requirement!r} in {PROJECT.name} must start with name>=version")
        lines.append(f"{found[1]}=={found[2]}")
    return sorted(set(lines))


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
