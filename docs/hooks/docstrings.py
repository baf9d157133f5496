"""Docstrings as Markdown: lists of arguments become lists, examples become code.

In this project arguments stand one a line, `name: what it does` or `name : what it does`, sometimes several in one
paragraph, and examples after `>>>`. Markdown would run the former together and quote the latter. Griffe calls
`on_object` for all that it finds.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(\w+(?:, \w+)*) ?: (?=\S)")
NEXT = re.compile(r"(?<=[.;)] )(\w+)(?=: )")  # another argument in the middle of a line


class ArgumentLists(griffe.Extension):
    """Rewrites the docstrings of functions, classes and modules."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            names = {parameter.name for parameter in getattr(obj, "parameters", [])} | set(obj.members)
            obj.docstring.value = as_markdown(obj.docstring.value, names)


def as_markdown(text: str, names: set[str]) -> str:
    """The same with arguments as items of a list and examples as blocks of code. names: what may be an argument."""
    text = NEXT.sub(lambda found: f"\n{found[1]}" if found[1] in names else found[1], text)
    lines: list[str] = []
    within = ""
    for number, line in enumerate(text.splitlines()):
        found = ARGUMENT.match(line) if number else None  # the first line says what it is
        listed = found[1].split(", ") if found else []
        argument = bool(listed) and names.issuperset(listed)
        kind = _kind(line, within, argument)
        if kind != within:
            lines += ["```"] * (within == "code") + [""] + ["```python"] * (kind == "code")
            within = kind
        if found and argument:
            lines.append(f"- {', '.join(f'`{name}`' for name in listed)}: {line[found.end() :]}")
        elif kind == "list":
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line[4:] if kind == "code" else line)
    return "\n".join(lines + ["```"] * (within == "code"))


def _kind(line: str, before: str, argument: bool) -> str:
    """ "code", "list" or "" for a line, given what the line before it was."""
    if line.startswith(">>> ") or (before == "code" and line.startswith("... ")):
        return "code"
    if argument or (before == "list" and line.strip()):
        return "list"
    return ""
