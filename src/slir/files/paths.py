"""Which files a command means, and where each result goes.

Inputs are files, folders and patterns (`photos/**/*.png`, for shells that do not expand them). What lies in a folder
keeps its place below the output folder. In folders and patterns only images count; hidden files do not.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from slir.errors import FileError, InputError
from slir.files.atomic_output import ERROR_MAPS, INTERVALS, SIDECAR, sidecar_of
from slir.io import EXTENSIONS, is_image_name, result_suffix

_WILD = "*?["


@dataclass(frozen=True)
class Pair:
    """An image and where its restoration goes. name : the image's place below the folder that was searched."""

    image: Path
    output: Path
    name: Path


@dataclass(frozen=True)
class Passed:
    """A file in a folder that was passed over. reason : why, as words that stand behind its name."""

    path: Path
    reason: str


NO_FORMAT = "not a format that slir reads"
DEAD_LINK = "a link that leads nowhere"


@dataclass(frozen=True)
class Search:
    """What inputs mean. passed : files in folders and patterns that are no images; hidden ones do not count."""

    pairs: list[Pair]
    passed: list[Passed]


def pairs(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    recursive: bool = False,
    form: str | None = None,
) -> list[Pair]:
    """Every image that `inputs` mean, with the file that its restoration goes to. See `search`."""
    return search(inputs, output, recursive=recursive, form=form).pairs


def search(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    recursive: bool = False,
    form: str | None = None,
) -> Search:
    """Every image that `inputs` mean, with the file that its restoration goes to; and what was passed over.

    output : a file for one image; a folder, which need not exist, for more of them or for what is found in a folder.
    recursive : look into the folders of a folder too.
    form : "tif": the suffix of all outputs in a folder, in place of their images' own.
    """
    if not inputs:
        raise InputError("the inputs", "be at least one image or folder", "none", "Name the images to restore.")
    if not is_folder(inputs, output):
        if form is not None and Path(output).suffix.lower() != suffix_of(form):
            raise InputError(
                "the format", f"be that of the file {output}", repr(form), "The suffix already specifies it."
            )
        if not Path(output).suffix:
            remedy = f"Name a file, such as {output}.png, or a folder, which ends in a slash: {output}/"
            raise FileError(output, "has no suffix that gives its format", remedy)
        return Search([Pair(Path(inputs[0]), Path(output), Path(Path(inputs[0]).name))], [])
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        remedy = "Name a folder, which is made where there is none."
        raise InputError("the output", "be a folder for many images", f"the file {folder}", remedy)
    found: list[Pair] = []
    passed: list[Passed] = []
    for place in inputs:
        for image, name in _images(place, recursive=recursive, output=folder, passed=passed):
            target = name.with_suffix(result_suffix(name) if form is None else suffix_of(form))
            found.append(Pair(image, folder / target, name))
    if not found:
        raise FileError(inputs[0], "is not an image", f"slir restores {', '.join(EXTENSIONS)}.")
    return Search(_apart(list(dict.fromkeys(found))), list(dict.fromkeys(passed)))


def is_folder(inputs: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> bool:
    """Whether the output names a folder: it is one, ends in a slash, or there may be many inputs."""
    text = os.fspath(output)
    if text.endswith(("/", os.sep)):
        return True
    if _is_image(Path(text)):
        many = len(inputs) > 1 or not _is_one(inputs[0])
        if many and not Path(text).is_dir():
            remedy = f"Name a folder, such as {Path(text).stem}/."
            raise InputError("the output", "be a folder for many images", f"the file {text}", remedy)
        return many
    return Path(text).is_dir() or len(inputs) > 1 or not _is_one(inputs[0])


def suffix_of(form: str) -> str:
    """ "tif" -> ".tif", if images are written so."""
    suffix = "." + form.lower().removeprefix(".")
    if suffix not in EXTENSIONS:
        known = ", ".join(extension.removeprefix(".") for extension in EXTENSIONS)
        raise InputError("the format", f"be one of {known}", repr(form), "Pick one of these.")
    return suffix


def _is_one(place: str | os.PathLike[str]) -> bool:
    """Whether an input is one image, rather than a folder or a pattern."""
    path = Path(place)
    if path.is_dir():
        return _is_image(path)
    return path.exists() or not _is_pattern(place)


def _is_pattern(place: str | os.PathLike[str]) -> bool:
    return any(mark in os.fspath(place) for mark in _WILD)


def _is_image(path: Path) -> bool:
    """By its name; a folder is one only where a format is made of folders (Zarr)."""
    return is_image_name(path) and (not path.is_dir() or path.suffix.lower() == ".zarr")


def _images(
    place: str | os.PathLike[str], *, recursive: bool, output: Path, passed: list[Passed]
) -> Iterator[tuple[Path, Path]]:
    """(image, its name below the folder that was searched) of one input; what is passed over is added to `passed`."""
    path = Path(place)
    if _is_one(place):
        if not _is_sidecar(path):  # shells expand photos/* to these too
            yield path, Path(path.name)
        return
    if path.is_dir():
        parts: tuple[str, ...] = ("**", "*") if recursive else ("*",)
        root, what = path, "holds no images"
    else:
        root, parts = _split(path)
        what = "is a pattern that no image matches"
    own = os.path.realpath(output)
    there = [each for each in sorted(set(_matches(root, parts))) if not _is_result(each, root, own)]
    found = [each for each in there if _why_not(each) is None]
    passed += [Passed(each, why) for each in there if (why := _why_not(each)) and not _is_sidecar(each)]
    if not found:
        hint = " Pass --recursive to look into its folders." if path.is_dir() and not recursive else ""
        raise FileError(place, what, f"slir restores {', '.join(EXTENSIONS)}.{hint}")
    for each in found:
        yield each, each.relative_to(root)


def _why_not(path: Path) -> str | None:
    """Why a file in a folder is passed over; None for an image."""
    if path.is_symlink() and not path.exists():
        return DEAD_LINK
    if not _is_image(path):
        return NO_FORMAT
    if _is_map(path):
        return "an error map or interval that slir wrote"
    return None if path.is_dir() or path.is_file() else "not a regular file"


def _split(pattern: Path) -> tuple[Path, tuple[str, ...]]:
    """photos/2024/**/*.png -> photos/2024 and ("**", "*.png")."""
    parts = pattern.parts
    first = next(number for number, part in enumerate(parts) if _is_pattern(part))
    return Path(*parts[:first]), parts[first:]


def _matches(folder: Path, parts: tuple[str, ...], above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Files below a folder whose path matches `parts`; of folders those that are images. A link that leads back to a
    folder above is not followed."""
    here = os.path.realpath(folder)
    if here in above or not folder.is_dir():
        return
    above |= {here}
    try:
        entries = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise FileError(folder, f"cannot be read ({error.strerror or error})", "Change its rights.") from error
    head, rest = parts[0], parts[1:]
    if head == "**":
        yield from _matches(folder, rest or ("*",), above - {here})
        for entry in entries:
            if entry.is_dir() and not _is_image(entry):
                yield from _matches(entry, parts, above)
        return
    for entry in entries:
        if not fnmatch(entry.name, head):
            continue
        if rest:
            yield from _matches(entry, rest, above)
        elif not entry.is_dir() or _is_image(entry):
            yield entry


def _is_result(path: Path, root: Path, output: str) -> bool:
    """Whether a file that was found lies in the output folder because slir put it there.

    Where the output folder is one of the folders below the root, all that it holds does. Where it is the root itself,
    or above it, images lie there too; results are then known by their sidecars.
    """
    real, own = os.path.realpath(path), output.rstrip(os.sep) + os.sep
    if not real.startswith(own):
        return False
    if own.startswith(os.path.realpath(root).rstrip(os.sep) + os.sep) and own != os.path.realpath(root) + os.sep:
        return True
    beside = sidecar_of(path)
    if not _is_sidecar(beside):
        return False
    from slir.files import provenance

    return provenance.load(beside).is_own_output()


def _is_map(path: Path) -> bool:
    """Whether the sidecar of an output beside it tells of this file as its error map or as a bound of its interval."""
    from slir.files import provenance

    for kind in (*ERROR_MAPS, *INTERVALS):
        if path.name.endswith(f".{kind}"):
            stem = glob.escape(path.name.removesuffix(f".{kind}"))
            beside = (own for own in path.parent.glob(f"{stem}.*{SIDECAR}") if _is_sidecar(own))
            return any(kind in provenance.load(own).maps() for own in beside)
    return False


def _is_sidecar(path: Path) -> bool:
    if path.suffix != SIDECAR or not path.is_file():
        return False
    from slir.files import provenance

    return provenance.is_sidecar(path)


def _apart(found: list[Pair]) -> list[Pair]:
    """The pairs, if no two of them share an output."""
    taken: dict[str, Path] = {}
    for pair in found:
        key = os.path.normcase(os.path.abspath(pair.output))
        if key in taken:
            remedy = "Restore them into two folders, or name their folder with --recursive, which keeps its tree."
            reason = f"both {taken[key]} and {pair.image} would be written to it"
            raise FileError(pair.output, reason, remedy)
        taken[key] = pair.image
    return found
