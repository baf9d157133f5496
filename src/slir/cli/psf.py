"""`slir psf`: blur kernels, written, drawn and measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from slir.cli import options, show
from slir.errors import FileError, InputError

if TYPE_CHECKING:
    import numpy as np

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Where to write the kernel. The suffix gives the format: .npy and .csv keep every digit, .tif seven of "
        "them. .png has 16 bits and its largest value is white, so the scale is lost (--psf divides by the sum), "
        "and so are wings below 1/131070 of the peak.",
    ),
]
Draw = Annotated[
    Path | None,
    typer.Option(metavar="PICTURE", help="Also draw the kernel, enlarged and in colours, as .png, .jpg or .tif."),
]
Size = Annotated[
    int | None, typer.Option(metavar="N", help="Side in pixels, an odd number. The default holds the whole kernel.")
]
Offset = Annotated[
    str,
    typer.Option(metavar="DOWN,RIGHT", help="Shift of the kernel from the centre pixel, in pixels: -1 to 1 each."),
]

psf_app = typer.Typer(no_args_is_help=True)


@psf_app.callback()
def _psf() -> None:
    """Make a blur kernel (PSF): write it, draw it, measure it.

    A kernel sums to one, has no negative values, and has odd sides. Its light is centred on the middle pixel, unless
    --offset moves it, or it comes from `slir psf file` without --centre.

    Pass the file to --psf of `slir deblur` or `slir fit`. Angles are in degrees, 0 is to the right and 90 up.

    Example: slir psf gaussian 1.6 -o psf.npy --draw picture.png
    """


@psf_app.command()
def gaussian(
    width: Annotated[
        str,
        typer.Argument(
            metavar="S|ALONG,ACROSS,ANGLE",
            help="Standard deviation in pixels; or two of them, along the angle and across it.",
        ),
    ],
    output: Output,
    size: Size = None,
    offset: Offset = "0,0",
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """A Gaussian, round or elongated: turbulent air, a lens slightly out of focus.

    Example: slir psf gaussian 3,1.5,30 -o psf.npy
    """
    from slir import psf

    remedy = "Pass 1.6, or 3,1.5,30 for an elongated one."
    sigma, *more = options.numbers("S|ALONG,ACROSS,ANGLE", width, (1, 3), remedy)
    across, angle = more or (None, 0.0)
    _check_outputs(output, draw, force=force)
    kernel = psf.gaussian(sigma, size, sigma_across=across, angle=angle or 0.0, offset=_offset(offset))
    _finish("gaussian", kernel, output, draw, quiet=quiet)


@psf_app.command()
def motion(
    path: Annotated[str, typer.Argument(metavar="LENGTH,ANGLE", help="Length in pixels and direction of the motion.")],
    output: Output,
    offset: Offset = "0,0",
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """A straight, even motion of the camera or of the object.

    Example: slir psf motion 15,30 -o psf.npy
    """
    from slir import psf

    length, angle = options.numbers("LENGTH,ANGLE", path, (2,), "Pass the length in pixels and the angle: 15,30.")
    _check_outputs(output, draw, force=force)
    _finish("motion", psf.motion(length, angle, offset=_offset(offset)), output, draw, quiet=quiet)


@psf_app.command()
def shake(
    length: Annotated[float, typer.Argument(metavar="LENGTH", help="Extent of the path in pixels.")],
    output: Output,
    seed: options.Seed = 0,
    softness: Annotated[
        float, typer.Option(metavar="S", help="Standard deviation in pixels of a Gaussian on top, for the lens.")
    ] = 0.0,
    size: Size = None,
    offset: Offset = "0,0",
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """A random motion, as of a camera held by hand.

    Example: slir psf shake 20 --seed 3 -o psf.npy
    """
    from slir import psf

    _check_outputs(output, draw, force=force)
    kernel = psf.camera_shake(length, seed, size, softness=softness, centre="light", offset=_offset(offset))
    _finish("shake", kernel, output, draw, quiet=quiet)


@psf_app.command()
def defocus(
    radius: Annotated[float, typer.Argument(metavar="RADIUS", help="Radius in pixels of the disk.")],
    output: Output,
    offset: Offset = "0,0",
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """A lens out of focus: an even disk.

    Example: slir psf defocus 3.5 -o psf.npy
    """
    from slir import psf

    _check_outputs(output, draw, force=force)
    _finish("defocus", psf.defocus(radius, offset=_offset(offset)), output, draw, quiet=quiet)


@psf_app.command()
def airy(
    output: Output,
    radius: Annotated[
        float | None, typer.Argument(metavar="RADIUS", help="Radius in pixels of the first dark ring.")
    ] = None,
    na: Annotated[
        float | None,
        typer.Option(metavar="NA", help="Instead of RADIUS: numerical aperture of the objective, or 1/(2 × f-number)."),
    ] = None,
    wavelength: Annotated[
        float | None, typer.Option(metavar="NM", help="With --na: wavelength of the light in nanometres.")
    ] = None,
    pixel: Annotated[
        float | None,
        typer.Option(metavar="NM", help="With --na: size of a pixel in the object, in nanometres."),
    ] = None,
    size: Size = None,
    offset: Offset = "0,0",
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """The diffraction pattern of a perfect lens: a microscope in focus, a telescope in space.

    Its first dark ring has a radius of 0.61 × wavelength / NA. The kernel reaches the third one unless --size is given.

    Example: slir psf airy --na 1.4 --wavelength 520 --pixel 65 -o psf.npy
    """
    from slir import psf

    lens = {"--na": na, "--wavelength": wavelength, "--pixel": pixel}
    given = [name for name, value in lens.items() if value is not None]
    remedy = "Pass RADIUS in pixels, or all of --na, --wavelength and --pixel."
    if radius is not None and given:
        raise InputError("the pattern", "be given once", f"RADIUS and {given[0]}", remedy)
    _check_outputs(output, draw, force=force)
    if radius is not None:
        kernel = psf.airy(radius, size, offset=_offset(offset))
    elif na is not None and wavelength is not None and pixel is not None:
        kernel = psf.airy_from_aperture(na, wavelength, pixel, size, offset=_offset(offset))
    else:
        raise InputError("the pattern", "be given", f"{' and '.join(given)} alone" if given else "missing", remedy)
    _finish("airy", kernel, output, draw, quiet=quiet)


@psf_app.command()
def image(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A grey image of the bead or star: TIFF, PNG, .npy.")],
    output: Output,
    background: Annotated[
        str,
        typer.Option(metavar="auto|NUMBER", help="Value of an empty pixel; 'auto' takes it from the image's frame."),
    ] = "auto",
    saturation: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Value from which pixels are clipped, such as 4095 for a 12-bit camera."),
    ] = None,
    size: Size = None,
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """The PSF from the image of one bead or star: without background, cut out, centred to a fraction of a pixel.

    The image should be linear in the light (no camera JPEG), not clipped, and dark on all sides of one object.

    Example: slir psf image bead.tif -o psf.npy --draw picture.png
    """
    from slir import psf

    _check_outputs(output, draw, force=force)
    remedy = "Pass auto, or the value of an empty pixel."
    level: float | Literal["auto"] = (
        "auto" if background == "auto" else options.numbers("--background", background, (1,), remedy)[0]
    )
    kernel = psf.from_image(_pixels(file, quiet=quiet), background=level, size=size, saturation=saturation)
    _finish("image", kernel, output, draw, quiet=quiet)


@psf_app.command()
def file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A kernel: .npy, .csv, .txt, or a grey image.")],
    output: Output,
    centre: Annotated[
        bool, typer.Option("--centre", help="Move the centroid of the kernel to its centre pixel.")
    ] = False,
    draw: Draw = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """An existing kernel: checked, divided by its sum, padded to odd sides.

    Example: slir psf file kernel.csv -o psf.npy
    """
    from slir import psf

    _check_outputs(output, draw, force=force)
    _finish("file", psf.from_file(file, centred=centre), output, draw, quiet=quiet)


def _offset(text: str) -> tuple[float, float]:
    down, right = options.numbers("--offset", text, (2,), "Pass pixels downwards and to the right, such as 0.25,-0.5.")
    return down, right


def _pixels(path: Path, *, quiet: bool) -> np.ndarray:
    """(H, W) as the file stores them."""
    from slir import io
    from slir.io.kernels import read_npy

    if path.suffix.lower() == ".npy":
        return read_npy(path)
    picture = io.read(path)
    for text in picture.notes:
        show.note(f"{path}: {text}", quiet=quiet)
    if picture.channel_axis is not None:
        raise FileError(path, "is in colour, and each colour has its own blur", "Save one channel as a grey image.")
    return picture.pixels


def _check_outputs(output: Path, draw: Path | None, *, force: bool) -> None:
    """Whatever can be said about the two files before the kernel is made."""
    from slir import io
    from slir.io.kernels import check_psf_output

    check_psf_output(output)
    options.check_free(output, force=force)
    if draw is None:
        return
    if draw.resolve() == output.resolve():
        raise InputError("--draw", "name another file than --output", draw, "The kernel and its picture are two files.")
    io.check_output(draw)
    options.check_free(draw, force=force)


def _finish(kind: str, kernel: np.ndarray, output: Path, draw: Path | None, *, quiet: bool) -> None:
    """Write, draw, and say in one line what the kernel measures."""
    from slir import io, psf
    from slir.io.kernels import write_psf

    write_psf(output, kernel)
    if draw is not None:
        io.write(draw, io.Picture(_drawing(kernel), channel_axis=-1))
    sides = " × ".join(map(str, reversed(kernel.shape)))
    ways = ("in depth", "down", "across")[-kernel.ndim :]
    widths = " and ".join(f"{width:.2f} {way}" for width, way in reversed(list(zip(psf.fwhm(kernel), ways))))
    middle = [round(each, 3) + 0.0 for each in psf.centroid(kernel)]  # + 0.0: no "-0.000"
    ways = ("in depth", "down", "right")[-kernel.ndim :]
    places = " and ".join(f"{own:.3f} {way}" for own, way in reversed(list(zip(middle, ways))))
    pixels = "pixels" if kernel.ndim == 2 else "voxels"
    measures = f"{sides} {pixels}, sum {kernel.sum():.6g}, FWHM {widths}, centroid {places}"
    files = str(output) if draw is None else f"{output}, {draw}"
    show.done(f"{kind} ({measures}) -> {files}", quiet=quiet)


def _drawing(kernel: np.ndarray) -> np.ndarray:
    """The kernel as heat maps, on a linear and on a logarithmic scale: (K, L) -> (H, W, 3) uint8; of volumes the three
    sections through the middle."""
    import numpy as np

    from slir.pictures import heatmap, side_by_side

    times = max(1, 384 // max(kernel.shape))
    sections, names = [kernel], [""]
    if kernel.ndim == 3:
        z, y, x = (side // 2 for side in kernel.shape)
        sections, names = [kernel[z], kernel[:, y], kernel[:, :, x]], ["xy, ", "xz, ", "yz, "]
        tall = max(own.shape[0] for own in sections)
        sections = [np.pad(own, ((0, tall - len(own)), (0, 0))) for own in sections]
    maps, labels = [], []
    for section, name in zip(sections, names):
        large = (section / kernel.max()).repeat(times, axis=0).repeat(times, axis=1)
        logarithm = np.log10(np.maximum(large, 1e-3))
        maps += [heatmap(large, low=0, high=1), heatmap(logarithm, low=-3, high=0)]
        labels += [f"{name}linear", f"{name}logarithmic, from 1/1000"]
    return side_by_side(maps, gap=12, labels=labels)
