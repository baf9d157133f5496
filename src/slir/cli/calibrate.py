"""`slir calibrate`: a model that knows how far off it is on images like yours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slir.cli import clean, options, show
from slir.cli.groups import spell_out
from slir.cli.progress import progress_bar

if TYPE_CHECKING:
    from slir.trust.record import Trust

A_START = 12
"""Images below which intervals are told to be rough."""


@spell_out
def calibrate(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Clean images, or folders of them (not their subfolders).")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model, as model.safetensors."),
    ],
    *,
    degradation: clean.Degradation,
    model: options.ModelFile = None,
    crops: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="Number of crops that are degraded, restored and compared with the truth. The default is 96, or "
            "one of each image if there are more, at most 400.",
        ),
    ] = None,
    side: Annotated[int, typer.Option(min=32, metavar="PIXELS", help="Height and width of a crop.")] = 256,
    grain: Annotated[
        float,
        typer.Option(
            min=0,
            max=10,
            metavar="PERCENT",
            help="Largest grain to add, as a share of the range, because compressed or reduced images have lost their "
            "grain. 0 adds none.",
        ),
    ] = 1.0,
    device: options.Device = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the errors of a model on clean images of your own, and store them in it.

    Images are degraded, restored and compared with the truth. --error-map and --interval then hold for images like
    these. Pass at least a dozen images that the model was not learnt from. Specify --psf and --sigma if they are always
    the same, because intervals are most exact for one blur and one noise level. It takes a minute or two.

    Examples:

    slir calibrate photos/ -o mine.safetensors --task denoise
    slir calibrate photos/ -o shaken.safetensors --task deblur --psf psf.npy --sigma 1%
    slir calibrate scans/ -o holes.safetensors --task inpaint --missing 80% --model model.safetensors
    """
    degradation.check()
    clean.check_model_name(output, force=force)
    paths = clean.files(images)
    start = time.perf_counter()
    with progress_bar(quiet=quiet) as progress:
        pictures, noise = degradation.read(paths, progress)

        import slir  # after the checks: torch takes its time

        operator = degradation.operator(one=False)
        with options.as_options(), clean.name_files(images):
            found = slir.calibrate(
                [pixels for _, pixels in pictures],
                model=None if model is None else slir.load(model, device=device),
                task=degradation.task if operator is None else None,
                operator=operator,
                sigma=noise,
                factor=degradation.factor,
                crops=crops,
                side=side,
                grain=grain / 100,
                seed=degradation.seed,
                device=device,
                progress=progress or None,
            )
    found.save(str(output))
    assert found.trust is not None  # that is what was made
    show.done(
        f"{_summary(degradation.task, found.trust)} ({show.seconds(time.perf_counter() - start)}) -> {output}",
        quiet=quiet,
    )
    show.done(_holds(found.trust), quiet=quiet)
    if len(paths) < A_START:
        few = "1 image" if len(paths) == 1 else f"{len(paths)} images"
        show.warn(
            f"{few} may not be typical, so intervals may contain the true value less or more often than stated. "
            "Pass a dozen."
        )


def _summary(task: str, trust: Trust) -> str:
    count = trust.what["pictures"]
    images = "1 image" if count == 1 else f"{count} images"
    return f"calibrated to {task} on {trust.pixels:,} pixels of {trust.what['crops']} crops of {images}"


def _holds(trust: Trust) -> str:
    """Where it holds, and how wide intervals are there."""
    from slir.trust.intervals import LEVELS

    low, high = (f"{100 * sigma:.3g}%" for sigma in trust.sigma)
    noise = f"sigma {low}" if low == high else f"sigma {low} to {high}"
    widths = [calibration.quantiles[LEVELS.index(0.9)] for calibration in trust.calibrations]
    least, most = f"{min(float(own.min()) for own in widths):.2f}", f"{max(float(own.max()) for own in widths):.2f}"
    wide = least if least == most else f"{least} to {most}"
    return f"holds for {noise} of the range; intervals of 90% reach {wide} expected errors to either side"
