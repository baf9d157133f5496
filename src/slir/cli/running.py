"""What the commands that restore have in common: their options, and the way from files to results on the screen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from slir.cli import many, options, show
from slir.cli.groups import spell_out
from slir.errors import InputError

if TYPE_CHECKING:
    from slir.files.batch import Policy
    from slir.files.jobs import Job
    from slir.files.paths import Pair, Passed


@dataclass(frozen=True)
class Run:
    """The options that all four commands take, in the order of their help."""

    images: many.Inputs
    output: many.Output
    model: options.ModelFile = None
    data_range: options.Range = None
    device: options.Device = None
    seed: options.Seed = 0
    force: options.Force = False
    quiet: options.Quiet = False
    recursive: many.Recursive = False
    format: many.Format = None
    skip_existing: many.SkipExisting = False
    on_error: many.OnError = "continue"
    jobs: many.Jobs = None
    threads: many.Threads = None
    cluster: many.Cluster = None
    dry_run: many.DryRun = False
    error_map: many.ErrorMap = False
    interval: many.Interval = None
    sidecar: many.Sidecar = True
    json: many.Json = False
    config: many.Config = None

    def restore(self, task: str, sigma: str, *, made_by: str = "", **settings: Any) -> None:
        """Do to all images what a command asks for. `mask`, among the settings, may be a folder of masks."""
        from slir.files import paths

        with options.as_options():
            found = paths.search(self.images, self.output, recursive=self.recursive, form=self.format)
            jobs = [self._job(task, pair, sigma, made_by, settings) for pair in found.pairs]
            _check_apart(jobs)
            show.passed_over(found.passed, quiet=self.quiet or self.json)
            if self.dry_run:
                self._plan(jobs, found.passed)
            elif paths.is_folder(self.images, self.output):
                self._many(jobs, found.passed)
            else:
                self._one(jobs[0])

    def _job(self, task: str, pair: Pair, sigma: str, made_by: str, settings: dict[str, Any]) -> Job:
        from slir.files.jobs import Job
        from slir.problem import Problem

        mask = settings.get("mask")
        if isinstance(mask, Path) and mask.is_dir():
            settings = settings | {"mask": _mask_of(mask, pair.name)}
        return Job(
            Problem(task, sigma=sigma, **settings),
            pair.image,
            pair.output,
            made_by=made_by,
            model=self.model,
            data_range=options.range_value(self.data_range),
            device=self.device,
            seed=self.seed,
            threads=self.threads,
            error_map=self.error_map,
            interval=self.interval,
        )

    @property
    def _policy(self) -> Policy:
        from slir.files.batch import Policy

        return Policy(force=self.force, skip_existing=self.skip_existing, sidecar=self.sidecar)

    def _one(self, job: Job) -> None:
        """One image into one file. What goes wrong is the command's error."""
        from slir.cli.progress import progress_bar
        from slir.files import atomic_output, batch, jobs

        screen = show.Screen(quiet=self.quiet, json=self.json, many=False)
        try:
            reason = batch.settled(job, self._policy)
            atomic_output.clear_stale([job.output.parent])
            if reason is not None:
                screen.report(batch.Report(job, "skipped", reason))
            else:
                with suppress(OSError):  # the job's own check says why it cannot be written to
                    job.output.parent.mkdir(parents=True, exist_ok=True)
                with self._client() as client, progress_bar(quiet=self.quiet or self.json) as progress:
                    if client is None:
                        outcome = jobs.run(job, sidecar=self.sidecar, progress=progress or None)
                    else:
                        from slir.cluster import files

                        outcome = files.run(job, client, sidecar=self.sidecar, progress=progress or None)
                screen.report(batch.Report(job, "restored", outcome=outcome))
        except Exception as error:
            if self.json:
                screen.report(batch.Report(job, "failed", " ".join(str(error).split())))
                screen.summary()
            raise
        if self.json:
            screen.summary()

    def _many(self, jobs: list[Job], passed: list[Passed]) -> None:
        """Many images into a folder. What goes wrong with one is told, and the exit code says so in the end."""
        from slir.cli.progress import batch_bar
        from slir.files import batch

        batch.check_shared(jobs[0] if self.cluster is None else replace(jobs[0], device=None))
        workers = batch.workers_for(jobs) if self.jobs is None else self.jobs
        screen = show.Screen(quiet=self.quiet, json=self.json, many=True, expected=len(jobs), passed=passed)
        try:
            with self._client() as client, batch_bar(jobs, quiet=self.quiet or self.json) as bar:
                told: dict[str, Any] = {"policy": self._policy, "on_error": self.on_error, "progress": bar.progress}
                for report in batch.run(jobs, workers=workers, cluster=client, **told):
                    bar.done(report)
                    screen.report(report)
        finally:
            screen.summary()
        if screen.failed or screen.left:
            raise typer.Exit(1)

    def _client(self) -> Any:
        """Of the cluster that is asked for, as a context; None where none is."""
        if self.cluster is None:
            return nullcontext()
        from slir.cluster.connection import connect

        return connect(self.cluster, device=self.device)

    def _plan(self, jobs: list[Job], passed: list[Passed]) -> None:
        from slir.files import batch

        workers = 1 if len(jobs) == 1 else batch.workers_for(jobs) if self.jobs is None else min(self.jobs, len(jobs))
        screen = show.Plan(quiet=self.quiet, json=self.json, workers=workers, passed=passed)
        for planned in batch.plan(jobs, policy=self._policy):
            screen.report(planned)
        screen.summary()
        if screen.failed:
            raise typer.Exit(1)


COMMANDS: list[Callable[..., None]] = []
"""The commands that restore, in the order of the help."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command that restores of function(own options..., run)."""
    COMMANDS.append(spell_out(function))
    return COMMANDS[-1]


def _check_apart(jobs: list[Job]) -> None:
    """Raise where two files would be written under one name: error maps have no suffix of their image's."""
    seen: dict[Path, Job] = {}
    for job in jobs:
        for path in job.outputs:
            other = seen.setdefault(path, job)
            if other is not job:
                rule = "have a name of its own for each output"
                found = f"{path.name} for {other.output} and for {job.output}"
                asked = "--error-map" if job.error_map else "--interval"
                raise InputError(asked, rule, found, "Restore them into folders of their own.")


def _mask_of(folder: Path, name: Path) -> Path:
    """The mask of an image in a folder of masks: of the same name, or with the suffix of another format of masks."""
    exact = folder / name
    others = (exact.with_suffix(suffix) for suffix in (".png", ".tif", ".tiff", ".npy"))
    return next((path for path in (exact, *others) if path.exists()), exact)
