"""Docstrings as Markdown: lists of arguments become lists.

In this project arguments stand one a line, `name: what it does` or `name : what it does`, the next lines of the same
argument indented or not. Markdown would run them together. Griffe calls `on_object` for all that it finds.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\w+(?:, \w+)*) ?: (?=\S)")


class ArgumentLists(griffe.Extension):
    """Rewrites the docstrings of functions, classes and modules."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            names = {parameter.name for parameter in getattr(obj, "parameters", [])} | set(obj.members)
            obj.docstring.value = as_markdown(obj.docstring.value, names)


def as_markdown(text: str, names: set[str]) -> str:
    """Lines that begin with the name of an argument or attribute become items of a list."""
    lines: list[str] = []
    within = False
    for line in text.splitlines():
        found = ARGUMENT.match(line)
        if found and all(name in names for name in found[1].split(", ")):
            if not within:
                lines.append("")
            listed = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines.append(f"- {listed}: {line[found.end() :]}")
            within = True
        elif within and line.strip() and not line.startswith(">>>"):
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line)
            within = False
    return "\n".join(lines)
