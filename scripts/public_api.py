"""Print the public API, one line a name: what docs/api lists, and every command with its options.

python scripts/public_api.py >tests/public_api.txt        at a release (`make api`)

A line is a name and, after a colon, its arguments: `sigma=` may be left out, those after `*` go by keyword. The code is
read, not run, so packages of extras need not be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent


def public_api() -> list[str]:
    """All lines, sorted."""
    package: Any = griffe.load("slir", search_paths=[ROOT / "src"], resolve_aliases=True)
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    listed = [line for page in pages for line in of_page(page.read_text(encoding="utf-8"), package)]
    return sorted({*top_level(), *listed, *commands()})


def top_level() -> list[str]:
    """The names of `slir` itself; what they are is listed where they are at home."""
    import slir

    return [f"slir.{name}" for name in slir.__all__]


def of_page(text: str, package: Any) -> Iterator[str]:
    """Lines for what a page of the reference shows: `::: module` with its `members`, or `::: module.name`."""
    for path, options in re.findall(r"^::: ([\w.]+)\n((?:[ \t]+.*\n|\n)*)", text + "\n", flags=re.MULTILINE):
        target = package[path.removeprefix("slir.")]
        if not target.is_module:
            yield from described(path, target)
            continue
        members = re.search(r"members: \[([^\]]*)\]", options)
        own = [name for name, one in target.members.items() if not name.startswith("_") and not one.is_alias]
        for name in members[1].replace(" ", "").split(",") if members else own:
            yield from described(f"{path}.{name}", target[name])


def described(path: str, found: Any) -> Iterator[str]:
    """The line of a function or constant; for a class those of the public members that are its own too."""
    value = found.final_target if found.is_alias else found
    if not value.is_module:
        yield line(path, arguments(value))
    if not value.is_class:
        return
    bases = [base for base in value.mro() if not base.name.startswith("_")]
    told = {name for base in bases for name in base.members}  # by the class that it is from
    for name, member in value.all_members.items():
        if not name.startswith("_") and name not in told:
            yield line(f"{path}.{name}", arguments(member))


def arguments(value: Any) -> list[str]:
    """`image`, `*`, `sigma=`; none for what is not called."""
    if not (value.is_function or value.is_class):
        return []
    words: list[str] = []
    for one in value.parameters:
        kind = one.kind.value
        if kind == "keyword-only" and not any(word.startswith("*") for word in words):
            words.append("*")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        words.append(f"{stars}{one.name}{'=' if one.default is not None and not stars else ''}")
    return [word for word in words if word not in ("self", "cls")]


def commands(group: Any = None, words: str = "slir") -> Iterator[str]:
    """`slir denoise: images * --sigma= ...` for each command: options go by name."""
    from typer.main import get_command

    from slir.cli import app

    for name, command in (group or get_command(app)).commands.items():
        texts = [(one, text) for one in command.params for text in (*one.opts, *one.secondary_opts)]
        named = sorted({f"{text}{'' if one.required else '='}" for one, text in texts if text.startswith("-")})
        placed = [f"{one.name}{'' if one.required else '='}" for one, text in texts if not text.startswith("-")]
        yield line(f"{words} {name}", [*placed, "*", *named])
        if hasattr(command, "commands"):
            yield from commands(command, f"{words} {name}")


def line(name: str, words: list[str]) -> str:
    return f"{name}: {' '.join(words)}" if words else name


def broken(before: str, now: str | None) -> str:
    """Why a call that was right by the line `before` may be wrong by the line `now`; empty if it cannot be."""
    if now is None:
        return "is gone"
    (old_places, had), (new_places, has) = parsed(before), parsed(now)
    if new_places[: len(old_places)] != old_places:
        return f"takes {', '.join(new_places) or 'nothing'} by position instead of {', '.join(old_places)}"
    if gone := sorted(set(had) - set(has)):
        return f"no longer takes {', '.join(gone)}"
    asked = sorted(name for name, optional in has.items() if not optional and had.get(name, True))
    return f"now asks for {', '.join(asked)}" if asked else ""


def parsed(text: str) -> tuple[list[str], dict[str, bool]]:
    """The arguments that go by position, and of all arguments whether they may be left out."""
    words = text.partition(": ")[2].split()
    starred = [place for place, word in enumerate(words) if word.startswith("*")]
    places = [word.rstrip("=") for word in words[: starred[0] if starred else None]]
    return places, {word.rstrip("="): word.endswith("=") or word.startswith("*") for word in words if word != "*"}


if __name__ == "__main__":
    print("\n".join(public_api()))
