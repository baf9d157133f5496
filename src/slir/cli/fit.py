"""`slir fit`: clean images in, a model file out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from slir.cli import options, show
from slir.cli.progress import Progress, progress_bar
from slir.errors import FileError, InputError

if TYPE_CHECKING:
    import numpy as np

    from slir.io import Picture


def fit(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Clean images, or folders of them (not their subfolders).")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model, as model.safetensors.")
    ],
    task: Annotated[
        Literal["denoise", "deblur", "upsample", "inpaint"], typer.Option(help="What the model is to restore.")
    ],
    sigma: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|PERCENT%", help="Noise to expect, in pixel values or percent; all by default."),
    ] = None,
    psf: options.PsfFile = None,
    gaussian: options.Gaussian = None,
    motion: options.Motion = None,
    defocus: options.Defocus = None,
    border: options.Border = "unknown",
    factor: Annotated[int, typer.Option(min=2, help="With --task upsample: how many times as wide and high.")] = 2,
    antialias: Annotated[
        str | None, typer.Option(metavar="NAME|SIGMA|FILE", help="With --task upsample: the one filter to expect.")
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --task inpaint: a mask such as those to be expected.")
    ] = None,
    missing: Annotated[
        str | None, typer.Option(metavar="PERCENT%", help="Instead of --mask: this share of the pixels, at random.")
    ] = None,
    method: Annotated[
        Literal["cascade", "paper"],
        typer.Option(help="cascade: learnt stages, for any blur, filter or mask unless one is named; paper: a bank."),
    ] = "cascade",
    crops: Annotated[int, typer.Option(min=4, help="cascade: how many crops to learn from. More are better.")] = 64,
    cells: Annotated[int, typer.Option(min=1, help="cascade: kinds of patches that are told apart.")] = 100,
    stages: Annotated[
        int | None, typer.Option(min=1, help="cascade: how many; by default what suits the task.")
    ] = None,
    loss: Annotated[
        Literal["euclidean", "squared"],
        typer.Option(help="paper: how patches are compared; euclidean is sharper, squared faster."),
    ] = "euclidean",
    weights: Annotated[
        Literal["nw", "krr", "nystrom"],
        typer.Option(help="paper: how patches are weighted: Nadaraya-Watson, kernel ridge, or its Nyström form."),
    ] = "nw",
    patches: Annotated[
        int, typer.Option(min=1, help="paper: how many patches to learn from. More are better and slower.")
    ] = 10_000,
    device: options.Device = None,
    data_range: options.Range = None,
    seed: options.Seed = 0,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn a model from clean images of your own.

    A handful of sharp, noise-free pictures is enough, of the kind that the model is to restore: text, cells, faces,
    stars. Without --psf, --antialias, --mask or --missing it serves any blur, filter or mask; with one it does better
    on that. It takes minutes on a laptop; --crops and --cells make it quicker or better. Pass the file to --model.

    Examples:

    slir fit photos/ -o mine.safetensors --task denoise
    slir fit photos/ -o shaken.safetensors --task deblur --psf psf.png --sigma 1%
    slir fit photos/ -o large.safetensors --task upsample --factor 3 --crops 200
    slir fit scans/ -o holes.safetensors --task inpaint --missing 80%
    slir fit photos/ -o paper.safetensors --task denoise --method paper --sigma 25
    """
    degradation = _Degradation(
        task=task,
        kernel=options.psf_value(psf=psf, gaussian=gaussian, motion=motion, defocus=defocus),
        border=border,
        factor=factor,
        antialias=antialias,
        mask=mask,
        missing=missing,
        seed=seed,
    )
    degradation.check(paper=method == "paper")
    if method == "paper" and sigma is None:
        raise InputError("--sigma", "be given with --method paper", "missing", "Pass the noise to expect, such as 1%.")
    _check_output(output, force=force)
    paths = _files(images)
    start = time.perf_counter()
    with progress_bar(quiet=quiet) as progress:
        pictures = _pictures(paths, options.range_value(data_range), progress)
        noise = None if sigma is None else _noise(pictures, options.range_value(data_range), sigma)

        import slir  # after the checks: torch takes its time

        operator = degradation.operator(paper=method == "paper")
        settings: dict[str, Any] = {"loss": loss, "weights": weights, "m": patches}
        if method == "cascade":
            settings = {"crops": crops, "cells": cells, "stages": stages, "progress": progress or None}
        model = slir.fit(
            [pixels for _, pixels in pictures],
            task=task if operator is None else None,
            operator=operator,
            sigma=noise,
            factor=factor,
            method=method,
            seed=seed,
            device=device,
            **settings,
        )
    model.save(str(output))
    what = f"{crops} crops" if method == "cascade" else f"{patches} patches"
    count = "1 image" if len(paths) == 1 else f"{len(paths)} images"
    taken = show.seconds(time.perf_counter() - start)
    show.done(f"learnt to {task} from {what} of {count} ({taken}) -> {output}", quiet=quiet)


@dataclass(frozen=True)
class _Degradation:
    """What the model is to undo, as the options say it: one blur, filter or mask, or any of the task's."""

    task: str
    kernel: np.ndarray | None
    border: Literal["unknown", "circular", "reflect"]
    factor: int
    antialias: str | None
    mask: Path | None
    missing: str | None
    seed: int

    def check(self, *, paper: bool) -> None:
        """Raise for a mask that is given twice, and where the paper's method, which knows one operator, has none."""
        if self.mask is not None and self.missing is not None:
            raise InputError("the mask", "be given once", "given twice", "Pass --mask FILE or --missing 80%.")
        if paper and self.task == "deblur" and self.kernel is None:
            remedy = "Pass --psf FILE, --gaussian S, --motion LENGTH,ANGLE or --defocus RADIUS."
            raise InputError("the blur", "be given with --task deblur --method paper", "missing", remedy)
        if paper and self.task == "inpaint" and self.mask is None and self.missing is None:
            remedy = "Pass --mask FILE or --missing 80%."
            raise InputError("the mask", "be given with --task inpaint --method paper", "missing", remedy)

    def operator(self, *, paper: bool) -> Any:
        """The one operator to learn for; None for any of the task's."""
        from slir import operators

        if self.task == "deblur" and self.kernel is not None:
            return operators.Blur(self.kernel, border=self.border)
        if self.task == "upsample" and (self.antialias is not None or paper):
            return operators.Downsample(self.factor, options.antialias_value(self.antialias or "bicubic"))
        if self.task == "inpaint" and (self.mask is not None or self.missing is not None):
            return operators.Mask(_mask(self.mask, self.missing, self.seed))
        return operators.Identity() if self.task == "denoise" and paper else None


def _pictures(
    paths: list[Path], data_range: options.DataRange, progress: Progress | Literal[False]
) -> list[tuple[Picture, np.ndarray]]:
    pictures = []
    for number, path in enumerate(paths):
        pictures.append(_clean(path, data_range))
        if progress:
            progress(number + 1, len(paths), "reading")
    return pictures


def _noise(pictures: list[tuple[Picture, np.ndarray]], data_range: options.DataRange, sigma: str) -> float:
    """σ on the scale where white is 1."""
    scale = _common_range(pictures, data_range, sigma)
    return options.sigma_value(sigma, span=scale) / scale


def _files(places: list[Path]) -> list[Path]:
    """Files as they are named, and the images of every folder, in order of name."""
    from slir.io import is_image_name

    found: list[Path] = []
    for place in places:
        if not place.is_dir():
            found.append(place)
            continue
        inside = sorted(path for path in place.iterdir() if path.is_file() and is_image_name(path))
        if not inside:
            reason = "holds no images" if any(place.iterdir()) else "is an empty folder"
            raise FileError(place, reason, "Put clean PNG, JPEG or TIFF images into it, or name another folder.")
        found.extend(inside)
    return list(dict.fromkeys(found))


def _clean(path: Path, data_range: options.DataRange) -> tuple[Picture, np.ndarray]:
    """A picture, and its pixels as float32 with black at 0 and white at 1."""
    import numpy as np

    from slir.io import read

    picture = read(path)
    limits = picture.data_range if data_range is None else data_range
    if limits is None:
        rule = "be given for images whose file does not say it"
        raise InputError(
            "--data-range", rule, f"missing for {path} ({picture.pixels.dtype})", "Pass 1 where white is 1."
        )
    low, high = limits if isinstance(limits, tuple) else (0.0, limits)
    pixels = (picture.pixels.astype(np.float64) - low) / (high - low)
    if not (np.isfinite(pixels).all() and pixels.min() >= -1e-3 and pixels.max() <= 1 + 1e-3):
        raise FileError(path, f"has pixel values outside {low:g} to {high:g}", "Pass the --data-range that they have.")
    return picture, pixels.astype(np.float32)


def _common_range(pictures: list[tuple[Picture, np.ndarray]], data_range: options.DataRange, sigma: str) -> float:
    """The width of the range that σ is a part of; where images differ in it, only a percentage has a meaning."""
    spans = {_span(data_range, picture.data_range) for picture, _ in pictures}
    if len(spans) > 1 and not sigma.strip().endswith("%"):
        rule = "be a percentage where images have different bit depths"
        raise InputError("--sigma", rule, repr(sigma), "Pass it as 10%, or learn from images of one kind.")
    span = next(iter(spans))
    assert span is not None  # _clean has refused pictures without a range
    return span


def _span(data_range: options.DataRange, default: float | None) -> float | None:
    """Width of the range that is in force: the user's, else the file's."""
    if data_range is None:
        return default
    return data_range[1] - data_range[0] if isinstance(data_range, tuple) else data_range


def _mask(path: Path | None, missing: str | None, seed: int) -> np.ndarray:
    import numpy as np

    from slir.io import read_mask

    if path is not None:
        return read_mask(path)
    assert missing is not None
    return np.random.default_rng(seed).random((256, 256)) < options.share_value("--missing", missing)


def _check_output(path: Path, *, force: bool) -> None:
    from slir.io.atomic import check_folder

    if path.suffix != ".safetensors":
        reason = f"has the suffix {path.suffix!r}" if path.suffix else "has no suffix"
        raise FileError(path, reason, f"Name the model {path.stem or 'model'}.safetensors.")
    check_folder(path)
    options.check_free(path, force=force)
