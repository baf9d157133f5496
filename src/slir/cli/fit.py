"""`slir fit`: clean images in, a model file out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from slir.cli import clean, options, show
from slir.cli.groups import spell_out
from slir.cli.progress import progress_bar
from slir.errors import InputError


@spell_out
def fit(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Clean images, or folders of them (not their subfolders).")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model, as model.safetensors.")
    ],
    *,
    degradation: clean.Degradation,
    method: Annotated[
        Literal["kernel", "paper"],
        typer.Option(help="kernel: one stage in closed form on top of the learnt kernel; paper: a bank of patches."),
    ] = "kernel",
    base: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="kernel: a model with a learnt kernel, in place of the one that ships."),
    ] = None,
    crops: Annotated[int, typer.Option(min=4, help="kernel: number of crops to learn from. More are better.")] = 80,
    cells: Annotated[int, typer.Option(min=1, help="kernel: number of kinds of patches, each with its own map.")] = 512,
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
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local[:N]|ADDRESS",
            help="kernel: learn on a Dask cluster: on N processes of this machine, or on the workers of the "
            "scheduler at ADDRESS (tcp://host:8786). The model is the same.",
        ),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn a model from clean images of your own.

    A handful of sharp, noise-free pictures is enough, of the kind that the model is to restore: text, cells, faces,
    stars. Without --psf, --gaussian, --motion, --defocus, --antialias, --mask or --missing it serves any blur, filter
    or mask; with one it does better on that. It takes about a minute on a laptop. Pass the file to --model.

    Examples:

    slir fit photos/ -o mine.safetensors --task denoise
    slir fit photos/ -o shaken.safetensors --task deblur --psf psf.png --sigma 1%
    slir fit photos/ -o large.safetensors --task upsample --factor 3 --crops 200
    slir fit scans/ -o holes.safetensors --task inpaint --missing 80%
    slir fit photos/ -o paper.safetensors --task denoise --method paper --sigma 25
    slir fit photos/ -o mine.safetensors --task deblur --crops 1000 --cluster tcp://10.0.0.1:8786
    """
    if method == "paper":
        degradation.check_one("--method paper")
    if method == "paper" and cluster is not None:
        remedy = "Its bank is drawn in seconds; leave the cluster out."
        raise InputError("--cluster", "be left out with --method paper", cluster, remedy)
    if method != "kernel" and base is not None:
        remedy = "Pass --method kernel, or leave --base out."
        raise InputError("--base", "be given with --method kernel alone", f"given with --method {method}", remedy)
    degradation.check()
    if method == "paper" and degradation.sigma is None:
        raise InputError("--sigma", "be given with --method paper", "missing", "Pass the noise to expect, such as 1%.")
    clean.check_model_name(output, force=force)
    paths = clean.files(images)
    start = time.perf_counter()
    with progress_bar(quiet=quiet) as progress:
        pictures, noise = degradation.read(paths, progress)

        import slir  # after the checks: torch takes its time

        operator = degradation.operator(one=method == "paper")
        settings: dict[str, Any] = {"loss": loss, "weights": weights, "m": patches}
        if method == "kernel":
            names = [path.name for path in paths]
            settings = {"base": base, "crops": crops, "cells": cells, "names": names, "cluster": cluster}
            settings["progress"] = progress or None
        with options.as_options():
            model = slir.fit(
                [pixels for _, pixels in pictures],
                task=degradation.task if operator is None else None,
                operator=operator,
                sigma=noise,
                factor=degradation.factor,
                method=method,
                seed=degradation.seed,
                device=device,
                **settings,
            )
    model.save(str(output))
    what = f"{crops} crops" if method != "paper" else f"{patches} patches"
    count = "1 image" if len(paths) == 1 else f"{len(paths)} images"
    taken = show.seconds(time.perf_counter() - start)
    show.done(f"learnt to {degradation.task} from {what} of {count} ({taken}) -> {output}", quiet=quiet)
