"""`slir develop`: raw files of cameras in, pictures out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from slir.cli import many, options, show
from slir.cli.progress import progress_bar
from slir.errors import InputError, SlirError


def develop(
    images: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Raw files, or folders of them.", show_default=False)
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write the picture: a file, whose suffix gives the format, or a folder for several files. "
            "TIFF and PNG hold 16 bits, JPEG and others 8.",
            show_default=False,
        ),
    ],
    sigma: Annotated[
        str,
        typer.Option(
            metavar="auto|NUMBER|PERCENT%",
            help="Noise of the sensor's numbers. 'auto' finds how it grows with brightness in each file; a number, or "
            "a percentage of white, is the standard deviation of white noise.",
        ),
    ] = "auto",
    strength: Annotated[
        float, typer.Option(metavar="0..3", help="How much of the noise to remove: 0.7 keeps grain, 0 all of it.")
    ] = 1.0,
    linear: Annotated[
        bool, typer.Option("--linear", help="Write values proportional to light, for further work, in 16 bits.")
    ] = False,
    space: Annotated[
        Literal["srgb", "rec2020"], typer.Option(help="The primaries of the result. rec2020 holds stronger colours.")
    ] = "srgb",
    exposure: Annotated[
        str,
        typer.Option(
            metavar="auto|STOPS",
            help="Stops by which to brighten. 'auto' is 0 with --linear, and otherwise what brings the brightest "
            "hundredth of the pixels to white.",
        ),
    ] = "auto",
    device: options.Device = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Develop what lies in subfolders too.")] = False,
    format: Annotated[
        str | None, typer.Option("--format", metavar="SUFFIX", help="Format of results in a folder; tif by default.")
    ] = None,
    force: options.Force = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Skip files whose output exists, to continue a run.")
    ] = False,
    quiet: options.Quiet = False,
    json: many.Json = False,
) -> None:
    """Develop raw files of cameras: demosaic and denoise in one step.

    The picture has the camera's white balance and colours, stands upright, and keeps EXIF data such as camera, exposure
    and ISO. A colour profile in the file says which colours its values mean. The default is a picture ready to be
    looked at; --linear is for further work. Raw files need the package rawpy: pip install "slir[raw]".

    Examples:

    slir develop night.dng -o night.tif
    slir develop night.nef -o night.jpg --strength 0.8
    slir develop night.cr3 -o night.tif --linear --space rec2020
    slir develop photos/ -o developed/ --recursive --format png --skip-existing
    """
    from slir.files import raw_file

    with options.as_options():
        work = raw_file.Development(sigma, strength, linear, space, _stops(exposure), device)
        found = raw_file.pairs(images, output, recursive=recursive, form=format)
    screen = show.Screen(quiet=quiet, json=json, many=len(found) > 1, expected=len(found))
    for image, target in found:
        try:
            if skip_existing and target.exists():
                _skipped(screen, image, target)
                continue
            options.check_free(target, force=force)
            with options.as_options(), progress_bar(quiet=quiet or json) as progress:
                outcome = work.run(image, target, progress=progress or None)
            _developed(screen, outcome)
        except SlirError as error:
            if len(found) == 1 and not json:
                raise
            screen.failure(str(error), {"image": str(image), "output": str(target)})
    if json or len(found) > 1:
        screen.summary()
    if screen.failed:
        raise typer.Exit(1)


def _stops(text: str) -> float | None:
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError("--exposure", "be auto or a number of stops", repr(text), "Pass 0.5, say.") from None


def _skipped(screen: show.Screen, image: Path, target: Path) -> None:
    screen.counts["skipped"] += 1
    if screen.json:
        typer.echo(show.as_json({"image": str(image), "output": str(target), "status": "skipped"}))
    else:
        show.done(f"skipped {image} ({target} exists already)", quiet=screen.quiet)


def _developed(screen: show.Screen, outcome: dict[str, Any]) -> None:
    screen.counts["restored"] += 1
    if screen.json:
        typer.echo(show.as_json({**outcome, "status": "restored"}))
        return
    for text in outcome["notes"]:
        show.note(f"{outcome['image']}: {text}", quiet=screen.quiet)
    noise = outcome["noise"]
    level = f"noise {noise['dark']:.3g} in the dark, {noise['light']:.3g} in the light, of {noise['white']:.0f}"
    size = f"{outcome['width']} × {outcome['height']}, {outcome['bits']} bits"
    shown = f"{size}, {level}, {show.seconds(outcome['seconds'])}"
    show.done(f"developed {outcome['image']} ({shown}) -> {outcome['output']}", quiet=screen.quiet)
