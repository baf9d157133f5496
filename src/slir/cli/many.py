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
        help="Where to write the result. For one image, a file, whose suffix gives the format. For several images, or "
        "if OUT ends in / or is a folder already, a folder. Folders are made as needed. Results in a folder keep the "
        "names of their images.",
        show_default=False,
    ),
]
Recursive = Annotated[
    bool,
    typer.Option(
        "--recursive",
        "-r",
        help="Also restore the images in subfolders. The output folder gets the same tree.",
        rich_help_panel=FILES,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="SUFFIX",
        help="Write all results in this format: png, tif, ... The default is the format of IN.",
        rich_help_panel=FILES,
    ),
]
SkipExisting = Annotated[
    bool,
    typer.Option(
        "--skip-existing",
        help="Skip an image if its output exists and has no sidecar, or one that names this image and these settings. "
        "This continues a run that was stopped or killed. Outputs of other settings count as failures; --force "
        "replaces them.",
        rich_help_panel=FILES,
    ),
]
OnError = Annotated[
    Literal["continue", "stop"],
    typer.Option(help="What to do when a file fails: continue with the others, or stop.", rich_help_panel=FILES),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="How many files to restore at a time. The default is one per core, or fewer if memory is short, and one "
        "on a GPU. The number does not change the results.",
        rich_help_panel=FILES,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="How many cores a file may use. The default is one for many files, and all for a single file. "
        "Another number changes the last bits of results.",
        rich_help_panel=FILES,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local[:N]|ADDRESS",
        help="Restore on a Dask cluster: on N processes of this machine, or on the workers of the scheduler at ADDRESS "
        "(tcp://host:8786), which see the same disks. Workers share the tiles of one file, or the files of a batch. If "
        "the run is stopped or killed, the same command continues a single file; --skip-existing continues a batch.",
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
        help="Write OUT.json beside each output. It holds all settings, hashes and versions; `slir rerun` makes the "
        "same file again from it.",
        rich_help_panel=OUTPUT,
    ),
]
ErrorMap = Annotated[
    bool,
    typer.Option(
        "--error-map",
        help="Write the expected errors beside each output. OUT.error.tif holds the root mean square error of every "
        "pixel, in pixel values; OUT.error.png shows it as a picture. OUT stands for the name without its suffix. The "
        "picture of planes of more than 16 megapixels is smaller.",
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
        "as images = [...]. Options on the command line take precedence.",
        rich_help_panel=OUTPUT,
    ),
]
