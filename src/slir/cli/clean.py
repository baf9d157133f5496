"""Clean images, and what is to be undone, as the commands that learn from images name them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from slir.cli import options
from slir.cli.progress import Progress
from slir.errors import FileError, InputError
from slir.problem import Problem, task_named

if TYPE_CHECKING:
    import numpy as np

    from slir.io import Picture
    from slir.operators import Operator


@dataclass(frozen=True)
class Degradation:
    """What a model is to undo, as the options say it: one blur, filter or mask, or any of the task's."""

    task: Annotated[options.Task, typer.Option(help="What the model is to restore.")]
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|PERCENT%", help="Noise to expect, in pixel values or percent. The default is any level."
        ),
    ] = None
    psf: options.PsfFile = None
    gaussian: options.Gaussian = None
    motion: options.Motion = None
    defocus: options.Defocus = None
    border: options.Border = "unknown"
    factor: Annotated[int, typer.Option(min=2, help="With --task upsample: how many times as wide and high.")] = 2
    antialias: Annotated[
        str | None, typer.Option(metavar="NAME|SIGMA|FILE", help="With --task upsample: the filter to expect.")
    ] = None
    mask: Annotated[Path | None, typer.Option(metavar="FILE", help="With --task inpaint: a typical mask.")] = None
    missing: Annotated[
        str | None, typer.Option(metavar="PERCENT%", help="Instead of --mask: this share of the pixels, at random.")
    ] = None
    data_range: options.Range = None
    seed: options.Seed = 0

    @cached_property
    def kernel(self) -> np.ndarray | None:
        """The blur kernel, where one is given."""
        return options.psf_value(psf=self.psf, gaussian=self.gaussian, motion=self.motion, defocus=self.defocus)

    def read(
        self, paths: list[Path], progress: Progress | Literal[False]
    ) -> tuple[list[tuple[Picture, np.ndarray]], float | None]:
        """The clean images, and σ on the scale where white is 1, where it is given."""
        limits = options.range_value(self.data_range)
        found = pictures(paths, limits, progress)
        return found, None if self.sigma is None else noise(found, limits, self.sigma)

    def check(self) -> None:
        """Raise for a blur or a mask that is given twice."""
        _ = self.kernel
        if self.mask is not None and self.missing is not None:
            raise InputError("the mask", "be given once", "given twice", "Pass --mask FILE or --missing 80%.")

    def check_one(self, where: str = "") -> None:
        """Raise where the options do not say which one operator is meant. where: what else asks for that."""
        options.check_given(self.task, where, psf=self.kernel, mask=self.mask or self.missing)

    def operator(self, *, one: bool) -> Operator | None:
        """The operator to learn for; None for any of the task's, unless it has to be `one`."""
        given: dict[str, Any] = {
            "psf": self.kernel,
            "antialias": None if self.antialias is None else options.antialias_value(self.antialias),
            "mask": self.mask or self.missing,
        }
        if given.get(task_named(self.task).particular or "") is None and not one:
            return None
        mask = _mask(self.mask, self.missing, self.seed) if given["mask"] else None
        border = None if self.kernel is None else self.border
        settings = {**given, "mask": mask, "factor": self.factor, "border": border}
        problem = Problem.of(self.task, **settings)
        if problem.volumetric:
            raise InputError("--psf", "have two axes here", "of three axes", "Volumes are restored by slir deblur.")
        return problem.operator()


def pictures(
    paths: list[Path], data_range: options.DataRange, progress: Progress | Literal[False]
) -> list[tuple[Picture, np.ndarray]]:
    pictures = []
    for number, path in enumerate(paths):
        pictures.append(_clean(path, data_range))
        if progress:
            progress(number + 1, len(paths), "reading")
    return pictures


def noise(pictures: list[tuple[Picture, np.ndarray]], data_range: options.DataRange, sigma: str) -> float:
    """σ on the scale where white is 1."""
    scale = _common_range(pictures, data_range, sigma)
    return options.sigma_value(sigma, span=scale) / scale


def files(places: list[Path]) -> list[Path]:
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


@contextlib.contextmanager
def name_files(places: list[Path] | None) -> Iterator[None]:
    """Let errors about one of the images name its file."""
    try:
        yield
    except InputError as error:
        number = error.argument.removeprefix("images[").removesuffix("]")
        if places and number.isdigit():
            path = files(places)[int(number)]
            error.args = (str(error).replace(error.argument, str(path), 1),)
        raise


def check_model_name(path: Path, *, force: bool) -> None:
    """Raise for a file that no model can be written to, before anything is learnt."""
    from slir.io.atomic import check_folder

    if path.suffix != ".safetensors":
        reason = f"has the suffix {path.suffix!r}" if path.suffix else "has no suffix"
        raise FileError(path, reason, f"Name the model {path.stem or 'model'}.safetensors.")
    check_folder(path)
    options.check_free(path, force=force)


def _clean(path: Path, data_range: options.DataRange) -> tuple[Picture, np.ndarray]:
    """A picture, and its pixels as float32 with black at 0 and white at 1."""
    import numpy as np

    from slir.io import read

    picture = read(path)
    limits = picture.data_range if data_range is None else data_range
    if limits is None:
        rule = "be given for images whose file does not specify it"
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
