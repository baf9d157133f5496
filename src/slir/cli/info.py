"""`slir info`: what a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slir.cli import options, show
from slir.errors import FileError, SlirError


def info(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Images, models (.safetensors), or folders of them.")
    ],
    noise: Annotated[
        bool, typer.Option("--noise", help="Also estimate the noise of images, in pixel values. It takes a moment.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, with all details.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Describe images and model files.

    Images: format, size, bits, values, colour profile, camera, resolution, and the size of pixels or voxels. Models:
    what they were learnt for and from, what their intervals hold for, and their hash.

    Use it before a restoration. The values show whether an image uses its whole range. If it does not, pass
    --data-range. The noise is the white noise that --sigma auto finds.

    Examples:

    slir info night.png --noise
    slir info photos/ model.safetensors
    slir info photos/ --json
    """
    from slir.files.inspect import about

    failed = False
    for path in _expand_folders(files):
        try:
            found = about(path, noise=noise)
        except SlirError as error:
            if len(files) == 1 and not files[0].is_dir():
                raise
            failed = True
            show.error(str(error))
            if json:
                typer.echo(show.as_json({"path": str(path), "error": str(error)}))
            continue
        if json:
            typer.echo(show.as_json(found))
        else:
            show.done(_text(found), quiet=quiet)
    if failed:
        raise typer.Exit(1)


def _expand_folders(places: list[Path]) -> list[Path]:
    from slir.files.inspect import MODEL_SUFFIX
    from slir.io import is_image_name

    found: list[Path] = []
    for place in places:
        if not place.is_dir() or is_image_name(place):
            found.append(place)
            continue
        inside = sorted(
            path
            for path in place.iterdir()
            if not path.name.startswith(".") and (is_image_name(path) or path.suffix.lower() == MODEL_SUFFIX)
        )
        if not inside:
            raise FileError(place, "holds no images or models", "Name another folder.")
        found += inside
    return found


def _text(found: dict[str, Any]) -> str:
    """A line that says what it is, and one for each thing that is known of it."""
    return _image_text(found) if found["kind"] == "image" else _model_text(found)


def _image_text(found: dict[str, Any]) -> str:
    planes = f"{found['planes']} planes ({found['axes']}) of " if found["planes"] > 1 else ""
    what = f"{planes}{found['width']} × {found['height']} {found['layout']} {found['dtype']}"
    quality = f" of quality {found['quality']}" if "quality" in found else ""
    rows = [f"{found['path']}: {found['format']}{quality}, {what}, {show.memory(found['bytes'])}"]
    if found["lowest"] is not None:
        whole = "" if found["data_range"] is None else f" of 0 to {found['data_range']:g}"
        broken = f", {found['not_finite']} NaN or infinite" if found["not_finite"] else ""
        rows.append(f"  values          {found['lowest']:g} to {found['highest']:g}{whole}{broken}")
    if "sigma" in found:
        sigmas = found["sigma"] if isinstance(found["sigma"], list) else [found["sigma"]]
        rows.append(f"  noise           sigma {' '.join(f'{sigma:.3g}' for sigma in sigmas)}")
    if found.get("resolution_unit", "none") != "none":
        across, down = found["resolution"]
        rows.append(f"  resolution      {across:.4g} × {down:.4g} per {found['resolution_unit']}")
    if "pixel_size" in found:
        name = "voxel size" if "z" in found["pixel_size"] else "pixel size"
        steps = (f"{axis} {own['step']:.4g} {own['unit']}" for axis, own in found["pixel_size"].items())
        rows.append(f"  {name:<15} {', '.join(steps)}")
    for name in ("colour_profile", "camera", "date", "orientation"):
        if name in found:
            rows.append(f"  {name.replace('_', ' '):<15} {found[name]}")
    rows += [f"  {name:<15} {' '.join(value.split())[:80]}" for name, value in found.get("text", {}).items()]
    rows += [f"  note            {text}" for text in found["notes"]]
    return "\n".join(rows)


_UNITS = {
    "sigma": " of the range",
    "inside_slir": " (the kernel that ships, as in sidecars)",
}


def _model_text(found: dict[str, Any]) -> str:
    rows = [f"{found['path']}: a model to {found['task']}, {found['method']}, {show.memory(found['bytes'])}"]
    for name, label in (
        ("learnt_for", "learnt for"),
        ("factor", "factor"),
        ("sigma", "noise"),
        ("stages", "stages"),
        ("patch", "patch side"),
        ("cells", "cells"),
        ("bank", "bank"),
        ("images", "images"),
        ("crops", "crops"),
        ("weights", "weights"),
        ("steps", "training steps"),
        ("intervals", "intervals"),
        ("slir", "made by slir"),
        ("sha256", "sha256"),
        ("inside_slir", "inside slir"),
    ):
        if name in found:
            value = found[name]
            text = ", ".join(f"{each:.4g}" for each in value) if isinstance(value, list) else f"{value}"
            if isinstance(value, dict):
                text = ("\n" + 18 * " ").join(f"{task}: {each}" for task, each in value.items())
            text += _UNITS.get(name, "")
            rows.append(f"  {label:<15} {text}")
    return "\n".join(rows)
