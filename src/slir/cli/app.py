"""The commands put together, and what happens when one of them fails."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import slir
from slir.cli import restore, show  # noqa: F401  (restore fills COMMANDS)
from slir.cli.calibrate import calibrate
from slir.cli.demo import demo
from slir.cli.develop import develop
from slir.cli.explain import explain
from slir.cli.fit import fit
from slir.cli.info import info
from slir.cli.psf import psf_app
from slir.cli.rerun import rerun
from slir.cli.running import COMMANDS
from slir.cli.serve import serve
from slir.cli.theory import theory
from slir.errors import SlirError

_WRONG, _NO_MEMORY, _INTERRUPTED = 2, 1, 130
_OUTPUT_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Commands(TyperGroup):
    """Turns errors that the user can mend into one line and an exit code; bugs keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show.warning  # one line, without a path into our code
                return super().invoke(ctx)
        except SlirError as error:
            show.error(str(error))
            raise typer.Exit(_NO_MEMORY if isinstance(error, MemoryError) else _WRONG) from error
        except KeyboardInterrupt as error:
            show.error("interrupted; no incomplete file was left")
            raise typer.Exit(_INTERRUPTED) from error
        except (MemoryError, RuntimeError) as error:
            # torch's own class for a full GPU is a RuntimeError; it is told by name so that torch need not be imported
            if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
                show.error("the memory is full. Crop the image, or pass --device cpu if a GPU was used.")
                raise typer.Exit(_NO_MEMORY) from error
            raise


app = typer.Typer(
    name="slir",
    cls=Commands,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: slir demo",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slir {slir.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Restore images: remove noise and blur, enlarge, fill in what is missing.

    The output keeps the bit depth, the colour profile and the metadata of the input; its size too, unless it is
    enlarged.
    """


def _flowing(text: str | None) -> str:
    """The help of a command, its paragraphs as one line each, which the terminal breaks; examples stay lines."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(each if each.startswith("slir ") else " ".join(each.split()) for each in paragraphs)


def _add(panel: str, *commands: Callable[..., None]) -> None:
    for command in commands:
        app.command(rich_help_panel=panel, help=_flowing(command.__doc__))(command)


_add("Restore", *COMMANDS, develop, rerun)
_add("Learn and measure", fit, calibrate)
app.add_typer(psf_app, name="psf", rich_help_panel="Learn and measure")
_add("Learn and measure", info, explain, theory)
app.command(rich_help_panel="Start here")(demo)
_add("Start here", serve)


def _add_plugins() -> None:
    """Commands of other distributions, which name a typer application as an entry point of this group."""
    from importlib.metadata import entry_points

    for plugin in entry_points(group="slir.commands"):
        app.add_typer(plugin.load(), name=plugin.name, rich_help_panel="Learn and measure")


def main() -> None:
    """The entry point of the command line."""
    _add_plugins()
    try:
        app(prog_name="slir")
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what waits in it is flushed at exit
        show.error(f"the output cannot be printed ({error.strerror}). Files that were reported before are complete.")
        raise SystemExit(_NO_MEMORY) from None
