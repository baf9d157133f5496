"""Routes: jobs, from the request to the file that comes out."""

from __future__ import annotations

import json
import math
import mimetypes
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response, StreamingResponse

from slir.errors import InputError, SlirError
from slir.files.jobs import Job
from slir.io import result_suffix
from slir.problem import NAN, Problem, task_named
from slir.web import display, trust, work
from slir.web.events import events
from slir.web.files import Most, Plane, check_below, check_plane
from slir.web.problems import Problem as Refusal
from slir.web.problems import refused
from slir.web.questions import Question
from slir.web.replies import Asked, Id, JobInfo, JobRequest, JobStarted, Pixel, Place
from slir.web.runs import Run
from slir.web.server import LARGEST_SIDE, Here, Me, Server, picture
from slir.web.store import Client, Upload, new_id, size_of

router = APIRouter(prefix="/api/jobs")
PNG: dict[str, Any] = {"response_class": Response, "responses": {200: {"content": {"image/png": {}}}}}
FILE: dict[str, Any] = {"response_class": Response, "responses": {200: {"content": {"application/octet-stream": {}}}}}


@router.post("", status_code=202)
async def begin(asked: JobRequest, here: Here, me: Me) -> JobStarted:
    """Ask for a restoration. It waits for its turn; /api/jobs/ID says how it goes."""
    upload = here.store.upload(asked.file, me)
    id = new_id()
    folder = here.store.folder / "jobs" / id
    job = job_of(asked, upload, folder / f"{id}{result_suffix(upload.path)}", here, me)
    run = Run(
        id,
        me,
        upload,
        job,
        folder,
        asked.model_dump(exclude_none=True),
        trusted=asked.error_map,
        blur=here.store.kernel(asked.psf, me).blur if asked.psf and "psf" in job.problem.options else None,
    )
    # What the output is to be called is checked in a folder that is there.
    await here.read(me, "check", _beside(run.job, upload.path), names=run.names)
    here.bench.check(me)  # before other results go
    await run_in_threadpool(here.make_room, 2 * size_of(upload.path))
    here.bench.submit(run)
    return JobStarted(job=id)


def job_of(asked: Asked, upload: Upload, output: Path, here: Server, me: Client) -> Job:
    """The job that the command line would make of the same settings."""
    pixels = upload.told["width"] * upload.told["height"] * upload.told["planes"]
    try:
        kind = task_named(asked.task)
        kernel = here.store.kernel(asked.psf, me) if asked.psf is not None and "psf" in kind.options else None
        mask = asked.mask if kind.masked else None
        problem = Problem.of(
            asked.task,
            sigma=None if asked.sigma is None else _typed(asked.sigma),
            mask=mask if mask in (None, NAN) else here.store.mask(mask, me).path,
            psf=None if kernel is None else kernel.values,
            border=None if kernel is None else asked.border,
            factor=asked.factor,
            strength=asked.strength,
        )
        if pixels * problem.factor**2 > here.settings.pixels and problem.factor > 1:
            rule = f"keep the result below {here.settings.pixels:,} pixels"
            raise InputError("factor", rule, asked.factor, "Choose a smaller factor, or crop the picture.")
        limits = tuple(asked.data_range) if isinstance(asked.data_range, list) else asked.data_range
        _check_limits(limits)
        return Job(
            problem,
            upload.path,
            output,
            data_range=limits,  # type: ignore[arg-type]
            device=here.settings.device,
            called=upload.name,
            made_by="" if kernel is None else kernel.made_by,
        )
    except SlirError as error:
        raise refused(error) from None


def _typed(sigma: float | str) -> str:
    """As one would type it in a terminal: some formats write it into the file."""
    return sigma if isinstance(sigma, str) else str(int(sigma)) if float(sigma).is_integer() else repr(float(sigma))


def _check_limits(limits: Any) -> None:
    low, high = limits if isinstance(limits, tuple) else (0.0, 1.0 if limits is None else limits)
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        raise InputError("data_range", "have a white above its black", limits, "Pass 1, 255, 4095, or black and white.")


def _beside(job: Job, path: Path) -> Job:
    from dataclasses import replace

    return replace(job, output=path.parent / job.output.name)


@router.get("")
async def jobs(here: Here, me: Me) -> list[JobInfo]:
    """Your jobs, the newest first."""
    return [JobInfo(**here.bench.told(run)) for run in here.bench.of(me)]


@router.get("/{id}")
async def job(id: Id, here: Here, me: Me) -> JobInfo:
    """How a job is going, and in the end what came out."""
    return JobInfo(**_told(here, here.bench.get(id, me)))


def _told(here: Server, run: Run) -> dict[str, Any]:
    return here.bench.told(run)


@router.get("/{id}/events", response_class=Response, responses={200: {"content": {"text/event-stream": {}}}})
async def follow(id: Id, here: Here, me: Me) -> Response:
    """Server-sent events: `state`, as GET of the job has it, and `preview`; they end with a final state."""
    run = here.bench.get(id, me)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(events(here.bench, run), media_type="text/event-stream", headers=headers)


@router.get("/{id}/preview.png", **PNG)
async def preview(
    id: Id,
    here: Here,
    me: Me,
    most: Most = display.LARGEST,
    stage: Annotated[int | None, Query(ge=0)] = None,
    plane: Plane = 0,
) -> Response:
    """The newest estimate, or that of a stage; of a job that is done a plane of the result."""
    run = here.bench.get(id, me)
    check_plane(run.upload, plane)
    if plane and run.state == "done":
        return await here.shown(me, run.job.output, run.upload.view, most, plane, names=run.names)
    if stage is None and run.state == "done":
        assert run.result is not None
        path = run.view_path
        if min(most, max(run.result["width"], run.result["height"])) > display.LARGEST:
            path = run.large_path
            if not path.exists():
                await here.drawn(me, path, "show", run.job.output, run.upload.view, LARGEST_SIDE, names=run.names)
        return await run_in_threadpool(picture, path, most, lasting=True)
    path = work.preview_of(run.folder, run.preview if stage is None else stage)
    return await run_in_threadpool(picture, path, most)


@router.get("/{id}/result", **FILE)
async def result(id: Id, here: Here, me: Me) -> Response:
    """The restored file, in the format of the one that was sent, with its metadata."""
    run = done(here, id, me)
    kind = mimetypes.guess_type(run.result_name)[0] or "application/octet-stream"
    return FileResponse(run.job.output, media_type=kind, filename=run.result_name)


@router.get("/{id}/sidecar")
async def sidecar(id: Id, here: Here, me: Me) -> Response:
    """How the result was made, as the command line writes it beside its outputs, with the names that you know."""
    run = done(here, id, me)
    text = sidecar_text(run, run.result_name)
    return Response(text, media_type="application/json", headers=saved_as(f"{run.result_name}.json"))


def sidecar_text(run: Run, name: str) -> str:
    """The sidecar of a result that its client saves under this name."""
    record = json.loads(run.sidecar.read_text("utf-8"))
    record["input"]["path"], record["output"]["path"] = run.upload.name, name
    if "path" in record.get("mask", {}):
        record["mask"]["path"] = "mask.png"
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def saved_as(name: str) -> dict[str, str]:
    from urllib.parse import quote

    return {"Content-Disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}"}


@router.get("/{id}/error.png", **PNG)
async def error_picture(id: Id, here: Here, me: Me, most: Most = display.LARGEST) -> Response:
    """The error to expect, root mean square: black is none, white is the job's `max_error`. Of colours their mean."""
    run = _mapped(here, id, me)
    return await run_in_threadpool(_drawn_error, run, most)


def _drawn_error(run: Run, most: int) -> Response:
    assert run.result is not None
    error = np.load(trust.error_of(run.folder), allow_pickle=False)
    grey = error if error.ndim == 2 else np.sqrt(np.square(error).mean(axis=-1))
    white = max(run.result["max_error"], 1e-30)
    pixels = display.reduced(display.View(0, white).shown(grey), most)
    return Response(display.png(pixels), media_type="image/png", headers={"Cache-Control": "private, max-age=86400"})


@router.get("/{id}/error.tif", **FILE)
async def error_file(id: Id, here: Here, me: Me) -> Response:
    """The same as a TIFF file of floats, in the units of the pixel values."""
    run = _mapped(here, id, me)
    path = run.folder / "error.tif"
    await run_in_threadpool(_write_error, run, path)
    return FileResponse(path, media_type="image/tiff", filename=f"{Path(run.result_name).stem}-error.tif")


def _write_error(run: Run, path: Path) -> None:
    from slir import io

    if not path.exists():
        error = np.load(trust.error_of(run.folder), allow_pickle=False)
        io.write(path, io.Picture(error, channel_axis=-1 if error.ndim == 3 else None))


@router.get("/{id}/pixel")
async def pixel(id: Id, here: Here, me: Me, row: Place, col: Place, plane: Plane = 0) -> Pixel:
    """One pixel of the result: its value, that of the picture there, and of the first plane the error to expect and
    intervals."""
    run = done(here, id, me)
    _check_place(run, plane, row, col)
    scale = run.job.problem.factor
    (after,) = await here.read(me, "values", [run.job.output], plane, row, col, names=run.names)
    before = None
    if run.upload.path.exists():
        (before,) = await here.read(me, "values", [run.upload.path], plane, row // scale, col // scale, names=run.names)
    known: dict[str, Any] = {"error": None, "interval": {}} if plane else trust.at(run.folder, row, col)
    return Pixel(row=row, col=col, before=before, after=after, **known)


@router.get("/{id}/explain")
async def explain(
    id: Id,
    here: Here,
    me: Me,
    row: Place,
    col: Place,
    k: Annotated[int, Query(ge=1, le=64)] = 16,
    plane: Plane = 0,
) -> dict[str, Any]:
    """The training patches that a pixel of the result was made of, with their weights."""
    run = done(here, id, me)
    _check_place(run, plane, row, col)
    arguments = (run.job, run.folder, plane, row, col, k)
    return await here.bench.ask(Question(me, "explain", arguments, run.names, run.hand))


@router.post("/{id}/cancel", status_code=202)
async def cancel(id: Id, here: Here, me: Me) -> JobInfo:
    """Stop a job. Within two seconds it is `cancelled`; a job that has ended stays as it is."""
    run = here.bench.get(id, me)
    if not run.final:
        here.bench.cancel(run)
    return JobInfo(**_told(here, run))


@router.delete("/{id}", status_code=204)
async def remove(id: Id, here: Here, me: Me) -> None:
    """Stop a job and remove all that it made."""
    here.bench.remove(here.bench.get(id, me))


def done(here: Server, id: str, me: Client) -> Run:
    run = here.bench.get(id, me)
    if run.state != "done":
        raise Refusal(409, "There is no result", f"The job is {run.state}.", remedy="Wait until it is done.")
    return run


def _mapped(here: Server, id: str, me: Client) -> Run:
    """A job with an error map."""
    run = done(here, id, me)
    assert run.result is not None
    if not run.result["error"]:
        raise Refusal(409, "There is no error map", run.result["error_reason"])
    return run


def _check_place(run: Run, plane: int, row: int, col: int) -> None:
    assert run.result is not None
    check_plane(run.upload, plane)
    check_below("row", row, run.result["height"])
    check_below("col", col, run.result["width"])
