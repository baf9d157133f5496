"""`slir denoise`, `deblur`, `upsample`, `inpaint`: images in, images out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slir.cli import options
from slir.cli.running import Run, command
from slir.errors import InputError


@command
def denoise(
    sigma: options.GrowingSigma = "auto",
    strength: Annotated[
        float, typer.Option(metavar="0..3", help="How much of the noise to remove: 0.7 keeps grain, 1.5 removes more.")
    ] = 1.0,
    chroma: Annotated[
        float | None,
        typer.Option(metavar="0..3", help="The same for noise in colours. The default is the strength."),
    ] = None,
    *,
    run: Run,
) -> None:
    """Remove noise: high ISO, short exposures, scanners, detectors.

    Each image is examined for white noise, and for noise as cameras and JPEG leave it: coarse, and stronger in dark or
    in bright parts. --sigma specifies white noise instead. For raw data whose noise grows with brightness, pass
    --sigma poisson-gaussian; if the camera adds an offset, pass it as black with --data-range.

    Examples:

    slir denoise night.jpg -o clean.jpg
    slir denoise night.jpg -o clean.jpg --strength 0.7 --chroma 1
    slir denoise night.png -o clean.png --sigma 15 --error-map --interval 90
    slir denoise cells.tif -o clean.tif --sigma poisson-gaussian --data-range 100,65535
    slir denoise photos/ -o clean/ --recursive --skip-existing --jobs 2
    slir denoise 'photos/**/*.jpg' -o clean/ --format png --dry-run
    slir denoise --config run.toml --sigma 10%
    """
    run.restore("denoise", sigma, strength=strength, chroma=chroma)


@command
def deblur(
    psf: options.PsfFile = None,
    gaussian: options.Gaussian = None,
    motion: options.Motion = None,
    defocus: options.Defocus = None,
    border: options.Border = "unknown",
    sigma: options.Sigma = "auto",
    *,
    run: Run,
) -> None:
    """Remove a known blur: a shaken camera, a lens out of focus, a microscope or telescope.

    The blur kernel, or PSF, is the image of one point of light. Specify it with one of --psf, --gaussian, --motion and
    --defocus. `slir psf` makes and draws kernels, also from the picture of a star or a bead. A kernel that is too wide
    gives rings around edges; one that is too narrow leaves blur. A sigma that is too small gives rings; one that is too
    large leaves blur. If the kernel does not fit the image, slir smooths more or deblurs only slightly, and warns. For
    noise that grows with brightness, run slir denoise --sigma poisson-gaussian first, then deblur its output with a
    third of the sigma that it prints.

    Examples:

    slir deblur shaken.jpg -o sharp.jpg --motion 15,30 --sigma 2
    slir deblur soft.png -o sharp.png --defocus 2.5
    slir deblur cells.tif -o sharp.tif --psf psf.npy --data-range 4095
    slir deblur frames/ -o sharp/ --gaussian 1.6 --sigma 1% --json
    """
    kernel = options.psf_value(psf=psf, gaussian=gaussian, motion=motion, defocus=defocus)
    if kernel is None:
        remedy = "Pass --psf FILE, --gaussian S, --motion LENGTH,ANGLE or --defocus RADIUS."
        raise InputError("the blur", "be given", "missing", remedy)
    given = {"psf": psf, "gaussian": gaussian, "motion": motion, "defocus": defocus}
    made_by = next(f"{name} {value}" for name, value in given.items() if value is not None)
    run.restore("deblur", sigma, psf=kernel, made_by=made_by, border=border)


@command
def upsample(
    factor: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="How many times as wide and as high; 2 by default. 2, 3 and 4 are best. With another number, such as "
            "1.5, the image is restored at the next whole one and then reduced.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Instead of --factor: the size of the result in pixels, such as 1920x1080. It keeps the proportions "
            "of the image.",
        ),
    ] = None,
    antialias: options.Antialias = "bicubic",
    sigma: options.Sigma = "0",
    *,
    run: Run,
) -> None:
    """Make images larger, with more detail than interpolation gives.

    It undoes the reduction that --antialias names. An image that was never reduced, or was reduced in another way,
    gains less. A filter wider than the true one over-sharpens. Noise is enlarged as if it were detail, unless --sigma
    specifies how strong it is.

    Examples:

    slir upsample thumbnail.png -o large.png
    slir upsample thumbnail.png -o large.tif --factor 1.5
    slir upsample thumbnail.png -o large.png --size 66x60
    slir upsample old.jpg -o large.png --factor 2 --sigma auto
    slir upsample thumbnails/ -o large/ --factor 2 --antialias box --on-error stop
    """
    if factor is not None and size is not None:
        raise InputError("the size", "be given once", "--factor and --size", "Keep one of them.")
    wanted: dict[str, Any] = {
        "factor": options.factor_value(factor) if size is None else None,
        "size": options.size_value(size),
    }
    run.restore("upsample", sigma, **wanted, antialias=options.antialias_value(antialias))


@command
def inpaint(
    mask: Annotated[
        str,
        typer.Option(
            metavar="FILE|FOLDER|nan",
            help="The missing pixels: an image of the same size, black where pixels are known and not black where they "
            "are missing; a folder of such images with the names of those in IN; or 'nan' for float images whose "
            "missing pixels are NaN.",
            show_default=False,
        ),
    ],
    sigma: options.Sigma = "0",
    *,
    run: Run,
) -> None:
    """Fill in pixels that are missing: scratches, dust, text, dead pixels of a detector.

    Known pixels stay as they are to the last bit, unless --sigma specifies that they are noisy. Gaps of some pixels are
    filled with plausible detail, large holes smoothly.

    Examples:

    slir inpaint scan.tif -o repaired.tif --mask scratches.png
    slir inpaint scans/ -o repaired/ --mask masks/ --recursive
    slir inpaint detector.tif -o repaired.tif --mask nan --data-range 1
    """
    run.restore("inpaint", sigma, mask="nan" if mask == "nan" else Path(mask))
