"""The options for many files, and for what is written and printed about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from slir.cli import config

FILES = "Many files"
OUTPUT = "Output"

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="IN...",
        help="The images to restore: files, folders, or patterns such as 'photos/**/*.png' in quotes.",
        show_default=False,
    ),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Where to write the result. For one image a file, whose suffix says the format; for more of them a "
        "folder, as for one where OUT ends in / or is there already. Folders are made as needed, results keep the "
        "names of their images.",
        show_default=False,
    ),
]
Recursive = Annotated[
    bool,
    typer.Option(
        "--recursive",
        "-r",
        help="Look into the folders of a folder too. The output folder gets the same tree.",
        rich_help_panel=FILES,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="SUFFIX", help="Write all results as png, tif, ...; else as IN is.", rich_help_panel=FILES
    ),
]
SkipExisting = Annotated[
    bool,
    typer.Option(
        "--skip-existing",
        help="Leave alone what is done: outputs whose sidecar says that they were made from this image with these "
        "settings, and outputs without a sidecar. So a run that was stopped, or killed, goes on where it was. With "
        "--force, outputs of other settings are made again; without, they count as failures.",
        rich_help_panel=FILES,
    ),
]
OnError = Annotated[
    Literal["continue", "stop"],
    typer.Option(help="What to do when a file fails: go on with the others, or stop.", rich_help_panel=FILES),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="How many files to restore at a time. By default one a core, as far as memory goes; one on a GPU. "
        "The results are the same for any number.",
        rich_help_panel=FILES,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="How many cores a file may use. By default one where there are many files, all where there is one. "
        "Another number changes results in their last bits.",
        rich_help_panel=FILES,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local[:N]|ADDRESS",
        help="Restore on a Dask cluster: on N processes of this machine, or on the workers of the scheduler at ADDRESS "
        "(tcp://host:8786), which see the same disks. Of one file, tiles are shared out, of many, the files. After it "
        "was stopped, or killed, the same command does what is missing of one file; --skip-existing does of many.",
        rich_help_panel=FILES,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "-n",
        help="Write nothing; print what would be done, with an estimate of time and memory.",
        rich_help_panel=OUTPUT,
    ),
]
Sidecar = Annotated[
    bool,
    typer.Option(
        "--sidecar/--no-sidecar",
        help="Write OUT.json beside each output: all settings, hashes and versions, from which `slir rerun` makes the "
        "same file again.",
        rich_help_panel=OUTPUT,
    ),
]
ErrorMap = Annotated[
    bool,
    typer.Option(
        "--error-map",
        help="Write the errors to expect beside each output: OUT.error.tif with the root mean square error of every "
        "pixel, in pixel values, and OUT.error.png as a picture, OUT without its suffix. Of planes of more than 16 "
        "megapixels the picture is drawn smaller.",
        rich_help_panel=OUTPUT,
    ),
]
Interval = Annotated[
    float | None,
    typer.Option(
        "--interval",
        metavar="PERCENT",
        help="Write the bounds of an interval beside each output: OUT.low.tif and OUT.high.tif, in pixel values. 90 "
        "means that the true pixel lies between them nine times out of ten. The model must be calibrated.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print one JSON object a line: one for each file as soon as it is done, and a summary last.",
        rich_help_panel=OUTPUT,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml",
        callback=config.apply,
        is_eager=True,
        help='Take options from a file, by their long names: sigma = "10%", jobs = 4, recursive = true; the inputs '
        "as images = [...]. Options on the command line win.",
        rich_help_panel=OUTPUT,
    ),
]
