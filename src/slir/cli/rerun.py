"""`slir rerun`: the same file again, from its sidecar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slir.cli import options, show
from slir.cli.many import Json
from slir.cli.progress import progress_bar
from slir.errors import FileError, SlirError

if TYPE_CHECKING:
    from slir.files.batch import Report
    from slir.files.provenance import Sidecar


def rerun(
    files: Annotated[
        list[Path], typer.Argument(metavar="SIDECAR...", help="Sidecars: OUT.json beside what slir wrote.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write elsewhere: a file, or a folder for several sidecars. The default is where the results were.",
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Repeat it even if images, masks or models have changed; the result differs."),
    ] = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: Json = False,
) -> None:
    """Repeat restorations from their sidecars. The results are the same, byte for byte.

    A sidecar holds all settings and the hashes of the image, the mask and the model. If one of these has changed, the
    sidecar is refused. With other versions of slir, torch, NumPy or SciPy the last bits may differ. A warning says so
    beforehand, and another one after the work if they did.

    Examples:

    slir rerun clean.png.json -o again.png
    slir rerun clean/night.png.json clean/day.png.json -o again/
    slir rerun clean.png.json --force
    """
    many = len(files) > 1
    screen = show.Screen(quiet=quiet, json=json, many=many, expected=len(files))
    for file in files:
        try:
            screen.report(_again(file, output, many=many, anyway=anyway, force=force, quiet=quiet or json))
        except SlirError as error:
            if not many:
                raise
            screen.failure(str(error), {"sidecar": str(file)})
    if json or many:
        screen.summary()
    if screen.failed:
        raise typer.Exit(1)


def _again(file: Path, output: str | None, *, many: bool, anyway: bool, force: bool, quiet: bool) -> Report:
    """Do the job of a sidecar, and see whether its result is what it was."""
    from slir.files import atomic_output, batch, jobs, provenance

    sidecar = provenance.load(file)
    job = sidecar.job(_target(sidecar, output, many=many))
    changes = sidecar.changes()
    if changes and not anyway:
        raise FileError(file, f"cannot be repeated: {'; '.join(changes)}", "Pass --anyway for another result.")
    for text in (*changes, *sidecar.other_versions()):
        show.warn(f"{file}: {text}; the result may differ")
    if many:
        job.output.parent.mkdir(parents=True, exist_ok=True)
    batch.settled(job, batch.Policy(force=force))
    atomic_output.clear_stale([job.output.parent])
    with progress_bar(quiet=quiet) as progress:
        outcome = jobs.run(job, progress=progress or None)
    same_format = job.output.suffix == sidecar.output.suffix
    if same_format and atomic_output.digest(job.output) != sidecar.record["output"]["sha256"]:
        show.warn(f"{job.output}: differs from the one that {file} describes")
    made = (*outcome.error_maps, *outcome.intervals)
    if list(sidecar.map_hashes().values()) != [atomic_output.digest(path) for path in made]:
        show.warn(f"the error map or interval of {job.output} differs from the one that {file} describes")
    return batch.Report(job, "restored", outcome=outcome)


def _target(sidecar: Sidecar, output: str | None, *, many: bool) -> Path | None:
    """Where to write; None for where the result was."""
    if output is None:
        return None
    if many or output.endswith("/") or (Path(output).is_dir() and not Path(output).suffix):
        return Path(output) / sidecar.output.name
    return Path(output)
