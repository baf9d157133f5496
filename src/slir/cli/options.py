"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from slir.errors import FileError, InputError
from slir.problem import REQUIRED, task_named, tasks

if TYPE_CHECKING:
    import numpy as np

if TYPE_CHECKING:
    Task = str
else:
    Task = Literal[tuple(tasks())]

DataRange = float | tuple[float, float] | None
_ARGUMENTS = (
    "sigma", "psf", "factor", "antialias", "mask", "model", "base", "data_range", "device", "threads", "cluster",
    "interval", "size",
)  # fmt: skip

_SIGMA = (
    "Standard deviation of the noise, in units of the pixel values (25 on an 8-bit image), or in percent of their "
    "range (10%). A larger value smooths more and may remove fine texture. A smaller value leaves noise. 'auto' "
    "estimates it from each image."
)
Sigma = Annotated[str, typer.Option(metavar="auto|NUMBER|PERCENT%", help=_SIGMA)]
GrowingSigma = Annotated[
    str,
    typer.Option(
        "--sigma",
        metavar="auto|NUMBER|PERCENT%|poisson-gaussian",
        help=f"{_SIGMA} 'poisson-gaussian' estimates noise that grows with brightness, as in raw data of cameras and "
        "microscopes.",
    ),
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE", help="A model that `slir fit` wrote. The default is the one inside slir."),
]
Device = Annotated[str | None, typer.Option(metavar="cpu|cuda", help="Where to compute. The default is the CPU.")]
Range = Annotated[
    str | None,
    typer.Option(
        "--data-range",
        metavar="WHITE|BLACK,WHITE",
        help="The pixel values of black and white. Needed for float images (1), for images that do not use all of "
        "their bits (4095 for 12 bits in a 16-bit file), and for cameras that add an offset (100,65535).",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers. The same seed gives the same result.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace OUT if it exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")]
PsfFile = Annotated[
    Path | None,
    typer.Option(
        "--psf",
        metavar="FILE",
        help="The blur kernel: .npy, .csv, .txt, or a grey image; divided by its sum. `slir psf` makes one.",
    ),
]
Gaussian = Annotated[
    float | None, typer.Option(metavar="S", help="Instead of --psf: a Gaussian of standard deviation S pixels.")
]
Motion = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH,ANGLE",
        help="Instead of --psf: a straight motion of LENGTH pixels; ANGLE in degrees, 0 is to the right, 90 up.",
    ),
]
Defocus = Annotated[
    float | None, typer.Option(metavar="RADIUS", help="Instead of --psf: a defocus disk of RADIUS pixels.")
]
Border = Annotated[
    Literal["unknown", "circular", "reflect"],
    typer.Option(help="What lies beyond the edges of the image. Photographs: unknown."),
]
Antialias = Annotated[
    str,
    typer.Option(
        metavar="bicubic|box|NUMBER|FILE",
        help="How the image was made smaller: by image software (bicubic, box), through a Gaussian of that standard "
        "deviation in pixels of the result, or through the kernel in a file.",
    ),
]


def sigma_value(text: str, *, span: float) -> float:
    """σ to learn for, in units of the pixel values. `span` is the width of their range."""
    from slir.problem import parse_sigma

    with as_options():
        kind, value = parse_sigma(text)
    if isinstance(value, str):
        remedy = "Pass 25 (pixel values) or 10% (of their range)."
        raise InputError("--sigma", "be a number or a percentage here", repr(text), remedy)
    return value / 100 * span if kind == "percent" else value


def range_value(text: str | None) -> DataRange:
    """ "4095" -> 4095.0, "-1,1" -> (-1.0, 1.0)."""
    if text is None:
        return None
    limits = numbers("--data-range", text, (1, 2), "Pass 1, 255 or 4095, or black and white as -1,1.")
    low, high = (0.0, limits[0]) if len(limits) == 1 else limits
    if not high > low:
        raise InputError("--data-range", "have a white above its black", repr(text), "Pass 1, 255, 4095, or -1,1.")
    return limits[0] if len(limits) == 1 else (low, high)


def psf_value(
    *, psf: Path | None, gaussian: float | None, motion: str | None, defocus: float | None
) -> np.ndarray | None:
    """The kernel that one of the four options names; None where none is given."""
    from slir import psf as builders
    from slir.io import read_psf

    given = [
        name
        for name, value in (("--psf", psf), ("--gaussian", gaussian), ("--motion", motion), ("--defocus", defocus))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError("the blur", "be given once", " and ".join(given), "Keep one of them.")
    if psf is not None:
        return read_psf(psf)
    if gaussian is not None:
        return builders.gaussian(gaussian)
    if motion is not None:
        length, angle = numbers("--motion", motion, (2,), "Pass the length in pixels and the angle, such as 15,30.")
        return builders.motion(length, angle)
    if defocus is not None:
        return builders.defocus(defocus)
    return None


_MISSING = {
    "psf": ("the blur", "Pass --psf FILE, --gaussian S, --motion LENGTH,ANGLE or --defocus RADIUS."),
    "mask": ("the mask", "Pass --mask FILE or --missing 80%."),
}


def check_given(task: str, where: str = "", **given: Any) -> None:
    """Raise where one of these options is None that the task needs. where: what else asks for it."""
    kind = task_named(task)
    for name in given:
        needed = kind.masked if name == "mask" else kind.options.get(name) is REQUIRED
        if needed and given[name] is None:
            what, remedy = _MISSING[name]
            raise InputError(what, f"be given with {f'--task {task} {where}'.strip()}", "missing", remedy)


def antialias_value(text: str) -> str | float | np.ndarray:
    """A name and a number pass as what they are; anything else names a file."""
    from slir.io import read_psf

    if text in ("bicubic", "box"):
        return text
    try:
        return float(text)
    except ValueError:
        pass
    if not Path(text).suffix:
        raise InputError("--antialias", "be bicubic, box, a number or a file", repr(text), "bicubic fits most images.")
    return read_psf(text)


def factor_value(factor: float | None) -> float:
    """2 where none is given; whole numbers as such."""
    from slir.preprocessing.resampling import checked_factor

    with as_options():
        return 2 if factor is None else checked_factor(factor)


def size_value(text: str | None) -> tuple[int, int] | None:
    """ "1920x1080" -> (1080, 1920), height and width."""
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) != 2 or not all(side.strip().isdecimal() and int(side) > 0 for side in sides):
        raise InputError("--size", "be a width and a height", repr(text), "Pass 1920x1080.")
    return int(sides[1]), int(sides[0])


def share_value(name: str, text: str) -> float:
    """ "80%" or "0.8" -> 0.8, strictly between 0 and 1."""
    (value,) = numbers(name, text.strip().removesuffix("%"), (1,), "Pass a share such as 80%.")
    value = value / 100 if text.strip().endswith("%") else value
    if not 0 < value < 1:
        raise InputError(name, "lie between 0% and 100%", repr(text), "Pass a share such as 80%.")
    return value


def check_free(path: Path, *, force: bool) -> None:
    """Raise FileError for an output that exists, unless it may be replaced."""
    if path.exists() and not force:
        raise FileError(path, "exists already", "Pass --force to replace it, or choose another name.")


@contextlib.contextmanager
def as_options() -> Iterator[None]:
    """Let errors about an argument of a job name the option that it came from."""
    try:
        yield
    except InputError as error:
        error.args = (spelt(str(error), error.argument),)
        raise


def spelt(text: str, argument: str) -> str:
    """ "data_range must be ..." -> "--data-range must be ..."."""
    if argument not in _ARGUMENTS:
        return text
    return text.replace(f"{argument} must", f"--{argument.replace('_', '-')} must", 1)


def numbers(name: str, text: str, counts: tuple[int, ...], remedy: str) -> list[float]:
    """ "15,30" -> [15.0, 30.0]; InputError unless there are as many as one of `counts`."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in counts or not all(map(math.isfinite, found)):
        wanted = " or ".join(map(str, counts))
        raise InputError(name, f"be {wanted} number{'s' if counts != (1,) else ''}", repr(text), remedy)
    return found
