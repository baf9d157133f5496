"""What the command line prints. Results go to stdout; notes, warnings and errors to stderr."""

from __future__ import annotations

import sys
from typing import TextIO

import typer


def done(text: str, *, quiet: bool = False) -> None:
    """A line that says what was done."""
    if not quiet:
        typer.echo(text)


def note(text: str, *, quiet: bool = False) -> None:
    """Something that is worth knowing and no cause for worry."""
    if not quiet:
        typer.echo(f"note: {text}", err=True)


def error(text: str) -> None:
    """Why the command stopped, in one line."""
    typer.secho("error: " + " ".join(text.split()), fg=typer.colors.RED, err=True)


def warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of `warnings.showwarning`: the words alone."""
    text = "warning: " + " ".join(str(message).split())
    typer.secho(text, fg=typer.colors.YELLOW, err=file in (None, sys.stderr))


def seconds(value: float) -> str:
    """ "0.8 s", "12 s", "3 min 05 s"."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
