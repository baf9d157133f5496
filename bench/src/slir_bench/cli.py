"""`slir bench`: the paper's tables on one's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slir.cli import options, show
from slir.cli.app import Commands
from slir.cli.progress import progress_bar

Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder with the data sets.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for figures (CSV, JSON) and pictures.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="A minimal run, to check that it works.")]
Peers = Annotated[bool, typer.Option("--peers", help="Run other methods on the same images too.")]
Tables = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this table; may be given more than once.")]
OUT = Path("bench-results")

HELP = "Measure slir against the paper and against other methods."
bench_app = typer.Typer(cls=Commands, no_args_is_help=True, help=HELP)


def main() -> None:
    """The entry point of `slir-bench`."""
    bench_app(prog_name="slir-bench")


@bench_app.callback()
def _bench() -> None:
    """Measure slir against the paper and against other methods."""


@bench_app.command()
def paper(
    data: Data,
    out: Out = OUT,
    subset: Annotated[
        bool, typer.Option("--subset", help="Every eighth of the large set's images, all others.")
    ] = False,
    smoke: Smoke = False,
    peers: Peers = False,
    table: Tables = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Print the paper's tables with our figures beside them. A run that was stopped continues.

    Example: slir bench paper --data datasets --out bench-results --subset
    """
    from slir_bench.paper import main

    part = "smoke" if smoke else "subset9" if subset else "all"

    with progress_bar(quiet=quiet) as progress:
        main(data=data, out=out, subset=part, device=device, peers=peers, tables=table or None, progress=progress)


@bench_app.command()
def learnt(
    data: Data,
    out: Out = OUT,
    full: Annotated[bool, typer.Option("--full", help="All images of the large sets, not every eighth.")] = False,
    smoke: Smoke = False,
    peers: Peers = False,
    paper: Annotated[bool, typer.Option("--paper", help="Run the paper's configurations too.")] = False,
    table: Tables = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Print the PSNR of the model that ships, beside the paper's figures.

    Example: slir bench learnt --data datasets --out bench-results
    """
    from slir_bench.learnt import main

    part = "smoke" if smoke else "all" if full else "subset9"
    with progress_bar(quiet=quiet) as progress:
        main(
            data=data,
            out=out,
            subset=part,
            device=device,
            peers=peers,
            paper=paper,
            tables=table or None,
            progress=progress,
        )


@bench_app.command()
def trust(
    data: Data,
    out: Out = OUT,
    subset: Annotated[bool, typer.Option("--subset", help="Every eighth of the large set's images.")] = False,
    smoke: Smoke = False,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Calibrate for each operator on the benchmark's training images too.")
    ] = False,
    table: Tables = None,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure how often intervals contain the true value, overall and by tenths of expected error, and how well errors
    rank.

    Example: slir bench trust --data datasets --out bench-results --subset
    """
    from slir_bench.trust import main

    part = "smoke" if smoke else "subset9" if subset else "all"

    def say(text: str) -> None:
        show.done(text, quiet=quiet)

    main(data=data, out=out, subset=part, device=device, tables=table or None, say=say, calibrated=calibrated)


@bench_app.command()
def speed(
    out: Out = OUT,
    peers: Peers = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small pictures and banks alone: a minute or two.")] = False,
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this task; may be given more than once.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run into the same folder that was stopped.")
    ] = False,
    device: options.Device = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure time, memory and PSNR against the number of pixels, up to 12 million: an hour. Needs no data.

    Small pictures come first, and each figure is kept as soon as it is known.

    Example: slir bench speed --quick --peers
    """
    from slir.errors import InputError
    from slir_bench.speed import TASKS, main

    for name in task or ():
        if name not in TASKS:
            raise InputError("--task", f"be one of {', '.join(TASKS)}", repr(name), "Pass one of these names.")
    with progress_bar(quiet=quiet) as progress:
        main(out=out, device=device, peers=peers, quick=quick, tasks=task or TASKS, resume=resume, progress=progress)


@bench_app.command()
def correlation(
    data: Data,
    out: Out = OUT,
    images: Annotated[int, typer.Option(metavar="N", min=2, help="How many crops to average over.")] = 30,
    quiet: options.Quiet = False,
) -> None:
    """Draw the paper's figure of how much patches of one image look alike, and measure q.

    Example: slir bench correlation --data datasets --out bench-results
    """
    from slir_bench.figure import correlation_figure

    with progress_bar(quiet=quiet) as progress:
        found = correlation_figure(data, out, images=images, progress=progress)
    for name, value in found.items():
        show.done(f"{name:<36} {value:.4g}", quiet=quiet)
    show.done(f"written: {out / 'correlation.png'}, {out / 'correlation.csv'}", quiet=quiet)
