"""`slir denoise`, `deblur`, `upsample`, `inpaint`: one image in, one image out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slir.cli import options, show
from slir.cli.progress import progress_bar
from slir.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from slir.io import Picture


@dataclass(frozen=True)
class _Job:
    """What the four commands have in common. `restore(picture, settings)` calls the library."""

    verb: str
    image: Path
    output: Path
    sigma: str
    model: Path | None
    device: str | None
    data_range: str | None
    seed: int
    force: bool
    quiet: bool

    def run(self, restore: Callable[[Picture, dict[str, Any]], Any], *, factor: int = 1, centred: bool = True) -> None:
        """Read, check everything that can be checked, restore, write, tell."""
        from slir import io

        io.check_output(self.output)
        options.check_free(self.output, force=self.force)
        picture = io.read(self.image)
        io.check_output(self.output, picture)
        for text in picture.notes:
            show.note(f"{self.image}: {text}", quiet=self.quiet)
        data_range = options.range_value(self.data_range)
        if data_range is None:
            data_range = picture.data_range
        if data_range is None and picture.pixels.dtype.kind == "f":
            rule = "be given for an image of floats"
            raise InputError("--data-range", rule, "missing", "Pass 1 where white is 1, 255 where white is 255.")
        settings: dict[str, Any] = {
            "sigma": options.sigma_value(self.sigma, span=options.span_of(data_range, picture.data_range)),
            "model": options.load_model(self.model, self.device),
            "data_range": data_range,
            "channel_axis": picture.channel_axis,
            "device": self.device,
            "rng": self.seed,
            "return_info": True,
        }
        start = time.perf_counter()
        with progress_bar(quiet=self.quiet) as progress:
            result = restore(picture, {**settings, "progress": progress})
        taken = time.perf_counter() - start
        alpha = None if picture.alpha is None or factor == 1 else _enlarged(picture.alpha, factor, centred=centred)
        restored = picture.with_pixels(result.image, alpha=alpha)
        io.write(self.output, restored)
        how = _sigma_used(settings["sigma"], result.stats)
        shown = f"{_pixels(picture)}, {how}, {show.seconds(taken)}"
        show.done(f"{self.verb} {self.image} ({shown}) -> {self.output}", quiet=self.quiet)


def denoise(
    image: options.InputImage,
    output: options.Output,
    sigma: options.Sigma = "auto",
    model: options.ModelFile = None,
    device: options.Device = None,
    data_range: options.Range = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove noise.

    Example: slir denoise night.png -o clean.png --sigma 15
    """
    job = _Job("denoised", image, output, sigma, model, device, data_range, seed, force, quiet)

    def restore(picture: Picture, settings: dict[str, Any]) -> Any:
        import slir

        return slir.denoise(picture.pixels, **settings)

    job.run(restore)


def deblur(
    image: options.InputImage,
    output: options.Output,
    psf: options.PsfFile = None,
    gaussian: options.Gaussian = None,
    motion: options.Motion = None,
    defocus: options.Defocus = None,
    border: options.Border = "unknown",
    sigma: options.Sigma = "auto",
    model: options.ModelFile = None,
    device: options.Device = None,
    data_range: options.Range = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove a blur that is known: from a file, or of a usual kind.

    Example: slir deblur shaken.jpg -o sharp.jpg --motion 15,30 --sigma 2
    """
    kernel = options.psf_value(psf=psf, gaussian=gaussian, motion=motion, defocus=defocus)
    if kernel is None:
        remedy = "Pass --psf FILE, --gaussian S, --motion LENGTH,ANGLE or --defocus RADIUS."
        raise InputError("the blur", "be given", "missing", remedy)
    job = _Job("deblurred", image, output, sigma, model, device, data_range, seed, force, quiet)

    def restore(picture: Picture, settings: dict[str, Any]) -> Any:
        import slir

        return slir.deblur(picture.pixels, kernel, border=border, **settings)

    job.run(restore)


def upsample(
    image: options.InputImage,
    output: options.Output,
    factor: Annotated[int, typer.Option(min=2, help="How many times as wide and as high.")] = 2,
    antialias: options.Antialias = "bicubic",
    sigma: options.Sigma = "0",
    model: options.ModelFile = None,
    device: options.Device = None,
    data_range: options.Range = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Make an image larger, with more detail than interpolation gives.

    Example: slir upsample thumbnail.png -o large.png --factor 2
    """
    kernel = options.antialias_value(antialias)
    job = _Job("upsampled", image, output, sigma, model, device, data_range, seed, force, quiet)

    def restore(picture: Picture, settings: dict[str, Any]) -> Any:
        import slir

        return slir.upsample(picture.pixels, factor, antialias=kernel, **settings)

    job.run(restore, factor=factor, centred=isinstance(kernel, str))


def inpaint(
    image: options.InputImage,
    output: options.Output,
    mask: Annotated[
        Path,
        typer.Option(metavar="FILE", help="An image of the same size: black where IN is good, white where it is not."),
    ],
    sigma: options.Sigma = "0",
    model: options.ModelFile = None,
    device: options.Device = None,
    data_range: options.Range = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Fill in pixels that are missing: scratches, text, dead pixels.

    Example: slir inpaint scan.tif -o repaired.tif --mask scratches.png
    """
    job = _Job("inpainted", image, output, sigma, model, device, data_range, seed, force, quiet)

    def restore(picture: Picture, settings: dict[str, Any]) -> Any:
        import slir
        from slir.io import read_mask

        return slir.inpaint(picture.pixels, read_mask(mask, picture.size), **settings)

    job.run(restore)


def _enlarged(alpha: np.ndarray, factor: int, *, centred: bool) -> np.ndarray:
    """Alpha on the fine pixels, bilinearly, where `slir.upsample` puts them.

    centred : whether a coarse pixel covers its factor × factor fine ones, else it sits on the first of them.
    """
    import numpy as np
    from scipy.ndimage import map_coordinates

    shift = (factor - 1) / 2 if centred else 0.0
    places = [(np.arange(side * factor) - shift) / factor for side in alpha.shape]
    grid = np.meshgrid(*places, indexing="ij")
    values = map_coordinates(alpha.astype(np.float64), grid, order=1, mode="nearest")
    return (np.rint(values) if alpha.dtype.kind in "iu" else values).astype(alpha.dtype)


def _sigma_used(asked: object, stats: object) -> str:
    """ "sigma 12.3 (estimated)". Colour images may have one σ a channel."""
    found = stats.get("sigma") if isinstance(stats, Mapping) else getattr(stats, "sigma", None)
    estimated = isinstance(asked, str)
    value = asked if found is None or not estimated else found
    if isinstance(value, str):
        return "sigma estimated"
    import numpy as np

    text = " ".join(f"{number:.3g}" for number in np.atleast_1d(np.asarray(value, dtype=np.float64)))
    return f"sigma {text}" + (" (estimated)" if estimated else "")


def _pixels(picture: Picture) -> str:
    height, width = picture.size
    return f"{width} × {height} {picture.layout} {picture.pixels.dtype}"
