"""`slir explain`: which examples a pixel of the restored image is made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slir.cli import options, show
from slir.errors import InputError
from slir.problem import NAN, Problem

if TYPE_CHECKING:
    from slir.trust.explain import Explanation


def explain(
    image: Annotated[Path, typer.Argument(metavar="IN", help="The image to restore.")],
    at: Annotated[
        str,
        typer.Option(metavar="ROW,COL", help="The pixel of the restored image, from 0 at the top left."),
    ],
    task: Annotated[options.Task, typer.Option(help="The task.")],
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="auto|NUMBER|PERCENT%|poisson-gaussian",
            help="The noise. Values and default are those of the command of the task.",
        ),
    ] = None,
    psf: options.PsfFile = None,
    gaussian: options.Gaussian = None,
    motion: options.Motion = None,
    defocus: options.Defocus = None,
    border: options.Border = "unknown",
    factor: Annotated[int, typer.Option(min=2, help="With --task upsample: how many times as wide and high.")] = 2,
    antialias: options.Antialias = "bicubic",
    mask: Annotated[
        str | None, typer.Option(metavar="FILE|nan", help="With --task inpaint: the missing pixels.")
    ] = None,
    plane: Annotated[int, typer.Option(min=0, help="The plane of a stack, from 0.")] = 0,
    k: Annotated[int, typer.Option("-k", min=1, metavar="N", help="Number of patches to show.")] = 16,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Draw the patches as a picture.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with the pixels of all patches.")
    ] = False,
    model: options.ModelFile = None,
    data_range: options.Range = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the training patches behind a pixel of the restored image.

    The estimator pulls every patch towards clean training patches, each with a weight. This command lists the patches
    with the largest weights around one pixel, and the pictures that they are from. A colour image is explained by its
    brightness. If the patches look like what you know to be there, the pixel shows the image. If they do not, it shows
    what was learnt. Only the part of the image that the pixel needs is restored.

    Examples:

    slir explain night.png --at 10,12 --task denoise --sigma 15 -o explained.png
    slir explain soft.png --at 10,12 --task deblur --psf psf.npy -k 8 -o explained.png
    slir explain thumbnail.png --at 20,24 --task upsample --factor 2 --json
    """
    place = _place(at)
    kernel = options.psf_value(psf=psf, gaussian=gaussian, motion=motion, defocus=defocus)
    options.check_given(task, psf=kernel)
    if out is not None:
        from slir.io import check_output

        check_output(out)
        options.check_free(out, force=force)
    from slir.files import jobs

    with options.as_options():
        problem = Problem.of(
            task,
            sigma=sigma,
            mask=mask if mask in (None, NAN) else Path(mask),
            psf=kernel,
            border=None if kernel is None else border,
            factor=factor,
            antialias=options.antialias_value(antialias),
        )
        # nothing is written into the image
        job = jobs.Job(problem, image, image, model=model, data_range=options.range_value(data_range))
        found = jobs.explain(job, place, k=k, plane=plane)
    if out is not None:
        from slir.io import Picture, write

        write(out, Picture(found.picture(), -1, data_range=255.0))
    if json:
        typer.echo(show.as_json({"image": str(image), "task": task, "plane": plane, **found.as_json()}))
    elif not quiet:
        _tell(image, found)
        show.done("" if out is None else f"-> {out}", quiet=out is None)


def _place(text: str) -> tuple[int, int]:
    remedy = "Pass the row and the column, such as 120,45."
    row, col = options.numbers("--at", text, (2,), remedy)
    if row != int(row) or col != int(col):
        raise InputError("--at", "be two whole numbers", repr(text), remedy)
    return int(row), int(col)


def _tell(image: Path, found: Explanation) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("weight", "source", "row", "column", box=None)
    for column, side in zip(table.columns, ("right", "left", "right", "right")):
        column.justify, column.overflow = side, "fold"  # type: ignore[assignment]
    for weight, source, (row, col) in zip(found.weights, found.sources, found.positions):
        table.add_row(f"{weight:+.4f}", show.plain(source), str(row), str(col))
    size, (top, left) = found.size, found.corner
    show.done(f"{image}, pixel ({found.row}, {found.col}): the patch of {size} × {size} pixels at ({top}, {left})")
    Console(highlight=False, markup=False).print(table)
    kind = "those of the model" if found.own else "the most local ones that give the patch of the model"
    total = f"{len(found.weights)} of {found.total:,} examples; the weights are {kind}"
    show.done(f"{total}. All examples together give the patch to within {found.reproduces:.1g} of the range.")
