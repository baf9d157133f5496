"""`slir demo`: the four tasks on a picture that comes with slir."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slir.cli import options, show
from slir.cli.progress import progress_bar


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the pictures; it is created if necessary.")
    ] = Path("demo"),
    quiet: options.Quiet = False,
) -> None:
    """Restore a picture that comes with slir, and write it before and after.

    Example: slir demo --out demo
    """
    from slir.cli.demonstration import run

    with progress_bar(quiet=quiet) as progress:
        rows = list(run(out, progress))
    if quiet:
        return
    show.done(f"{'task':<10} {'PSNR before':>12} {'after':>9} {'time':>12}  files")
    for row in rows:
        files = ", ".join(str(path) for path in row.files)
        before, after = f"{row.psnr_before:.2f} dB", f"{row.psnr_after:.2f} dB"
        show.done(f"{row.task:<10} {before:>12} {after:>9} {show.seconds(row.seconds):>12}  {files}")
