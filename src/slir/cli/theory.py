"""`slir theory`: more images or more patches?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from slir.cli import clean, options, show
from slir.cli.groups import spell_out
from slir.cli.progress import Progress, progress_bar
from slir.errors import FileError, InputError
from slir.problem import task_named

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Degradation(clean.Degradation):
    """What is to be undone, where a model may say it."""

    task: Annotated[options.Task | None, typer.Option(help="The task. The default is that of --model, or denoise.")] = (
        None  # type: ignore[assignment]
    )
    sigma: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|PERCENT%",
            help="The noise, in pixel values or percent; by default 10% for denoise, 1% for deblur, none for others.",
        ),
    ] = None

    @property
    def usual(self) -> str | None:
        """The noise as given, else what is usual for the task; None leaves it to the model."""
        return self.sigma if self.sigma is not None or not self.task else task_named(self.task).usual_sigma


@spell_out
def theory(
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[IMAGES...]", help="Clean images, or folders of them. The default is 13 inside slir."),
    ] = None,
    *,
    degradation: Degradation,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="Examine a model that `slir fit` wrote.")
    ] = None,
    weights: Annotated[
        Literal["krr", "nw", "nystrom"],
        typer.Option(help="How patches are weighted: kernel ridge, Nadaraya-Watson, or kernel ridge's Nyström form."),
    ] = "krr",
    lam: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|theorem", help="The ridge. The default is the best one on held-out images."),
    ] = None,
    patches: Annotated[
        int | None,
        typer.Option(min=32, help="Largest bank to measure. The default is 1024 for krr, otherwise 4096."),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of groups of images. Each group is held out in turn.")] = 5,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of repetitions with other groups. More give smaller errors.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder for the report (text, JSON), the curves and plots."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all numbers.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an earlier report in DIR.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure how much more images or patches would help, and compare it with the theory.

    It reports the constants of the theory (q, c, lambda and the bound), the error on held-out images as a function of
    the number of patches in the bank and of images, the power law of this error, and advice. The defaults take half a
    minute. More --patches, --folds and --repeats take longer and give smaller errors.

    With --model it examines a model on the images, or by its provenance if there are none.

    Examples:

    slir theory --task denoise --sigma 25 --out theory
    slir theory photos/ scans/ --task deblur --psf psf.npy --sigma 1% --out theory
    slir theory photos/ scans/ --task upsample --weights nw --out theory
    slir theory --model model.safetensors --out theory
    """
    if degradation.task is None and (degradation.kernel is not None or model is None):
        degradation = replace(degradation, task="denoise" if degradation.kernel is None else "deblur")
    settings: dict[str, Any] = {"weights": weights, "lam": _lam(lam), "m": patches, "folds": folds, "repeats": repeats}
    degradation.check()
    if degradation.task is not None:
        degradation.check_one()
    _check_folder(out, force=force)
    with progress_bar(quiet=quiet) as progress:
        limits = options.range_value(degradation.data_range)
        pictures, noise = _images(images, limits, degradation.usual, progress)

        from slir import load
        from slir import theory as measured

        with options.as_options(), clean.name_files(images):
            found = measured.report(
                pictures,
                None if degradation.task is None else degradation.operator(one=True),
                noise,
                model=None if model is None else load(model, device="cpu"),
                seed=degradation.seed,
                progress=progress or None,
                **settings,
            )
    written = [] if out is None else found.save(out)
    if json:
        typer.echo(show.as_json(found.record()))
    else:
        show.done(found.text(), quiet=quiet)
    if written and not json:
        show.done(f"\nwritten: {', '.join(map(str, written))}", quiet=quiet)


def _images(
    places: list[Path] | None, limits: options.DataRange, sigma: str | None, progress: Progress | Literal[False]
) -> tuple[list[np.ndarray] | None, float | None]:
    """Pixels where white is 1, None for slir's own, which have 8 bits; and σ on that scale."""
    if not places:
        return None, None if sigma is None else options.sigma_value(sigma, span=255.0) / 255
    paths = clean.files(places)
    if len(paths) < 2:
        remedy = "Pass more, because images are held out in turn; or none, for those that slir ships."
        raise InputError("IMAGES", "be two at least", f"{paths[0]} alone", remedy)
    pictures = clean.pictures(paths, limits, progress)
    noise = None if sigma is None else clean.noise(pictures, limits, sigma)
    return [pixels for _, pixels in pictures], noise


def _lam(text: str | None) -> float | str | None:
    if text is None or text == "theorem":
        return text
    (value,) = options.numbers("--lam", text, (1,), "Pass a number such as 1e-4, or theorem.")
    if value <= 0:
        raise InputError("--lam", "be positive", repr(text), "Pass a number such as 1e-4, or theorem.")
    return value


def _check_folder(folder: Path | None, *, force: bool) -> None:
    """Raise for a place where no report can be put, before anything is measured."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise FileError(folder, "is a file, not a folder", "Name a folder; it is made if it does not exist.")
    from slir.theory.files import NAMES

    for name in NAMES:
        options.check_free(folder / name, force=force)
