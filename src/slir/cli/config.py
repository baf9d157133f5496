"""`--config run.toml`: any option of a command, from a file. Options on the command line take precedence."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import typer

from slir.errors import FileError, InputError

_NEVER = ("config", "help", "install-completion", "show-completion")
_ONE_A_LINE = 'Write one option a line, as in: sigma = "10%"'
_LONGEST = 1 << 18
"""Bytes of a file of options."""

_PARTS = re.compile(r"""(?<![\w-])(?:(?>[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){20}""")
"""A dotted key of more than twenty parts. tomllib's time grows with the square of their number."""


def apply(ctx: typer.Context, path: Path | None) -> Path | None:
    """The callback of --config: puts the file's values where the command looks for its defaults."""
    if path is None or ctx.resilient_parsing:
        return path
    known = {_key(param): param for param in ctx.command.params if _key(param) not in _NEVER}
    values: dict[str, Any] = {}
    for key, value in _table(path).items():
        name = key.replace("_", "-")
        if name not in known:
            raise _unknown(path, key, list(known), ctx.info_name or "slir")
        param = known[name]
        values[str(param.name)] = _value(path, key, value, flag=bool(getattr(param, "is_flag", False)))
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def _key(param: Any) -> str:
    """ "data-range" for --data-range; "images" for the argument IN..."""
    return max((name.lstrip("-") for name in param.opts), key=len).replace("_", "-")


def _table(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as stream:
            text = stream.read(_LONGEST + 1).decode()
        if len(text) > _LONGEST or _PARTS.search(text):
            raise FileError(path, "is not a file of options: it is too long, or its keys are", _ONE_A_LINE)
        return tomllib.loads(text.replace("\r\n", "\n"))
    except FileNotFoundError as error:
        raise FileError(path, "does not exist", "Check the name and the folder.") from error
    except FileError:
        raise
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})", "Change its rights.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(path, f"is not TOML ({' '.join(str(error).split())})", _ONE_A_LINE) from error


def _value(path: Path, key: str, value: Any, *, flag: bool) -> Any:
    """As the command line would have it: text, lists of texts; true and false for switches."""
    name = f"{key} in {path}"
    if isinstance(value, dict):
        raise InputError(name, "be a value", "a table", "Write one option a line, without [headings].")
    if flag != isinstance(value, bool):
        rule = "be true or false" if flag else "have a value"
        raise InputError(name, rule, repr(value), f"Write {key} = true." if flag else f'Write {key} = "...".')
    if flag:
        return value
    if isinstance(value, list):
        texts = [str(each) for each in value]
        return texts if key == "images" else ",".join(texts)
    return [str(value)] if key == "images" else str(value)


def _unknown(path: Path, key: str, known: list[str], command: str) -> InputError:
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=1, cutoff=0.5)
    remedy = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(sorted(known))}."
    return InputError(f"{key} in {path}", f"be an option of slir {command}", "unknown", remedy)
