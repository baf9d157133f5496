"""Route: the results of several jobs in one ZIP file, made while it is sent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from slir.web.replies import Id
from slir.web.restoring import done, saved_as, sidecar_text
from slir.web.runs import Run
from slir.web.server import Here, Me

router = APIRouter(prefix="/api")
PIECE = 2**20
"""Bytes of a file that are read at a time."""

MOST = 256
Jobs = Annotated[list[Id], Query(alias="job", min_length=1, max_length=MOST, description="Jobs that are done.")]


@router.get("/results.zip", response_class=Response, responses={200: {"content": {"application/zip": {}}}})
async def results(here: Here, me: Me, jobs: Jobs) -> Response:
    """The restored files of several jobs with their sidecars."""
    runs = [done(here, id, me) for id in dict.fromkeys(jobs)]
    return StreamingResponse(_zipped(runs), media_type="application/zip", headers=saved_as("slir.zip"))


class _Pipe(io.RawIOBase):
    """What is written into it is taken out again, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data


def _zipped(runs: list[Run]) -> Iterator[bytes]:
    """The bytes of the archive. Images are compressed already, so they are stored as they are."""
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:
        for run, name in zip(runs, _names(runs)):
            with open(run.job.output, "rb") as file, archive.open(name, "w", force_zip64=True) as entry:
                while piece := file.read(PIECE):
                    entry.write(piece)
                    yield pipe.taken()
            archive.writestr(f"{name}.json", sidecar_text(run, name))
            yield pipe.taken()
    yield pipe.taken()


def _names(runs: list[Run]) -> list[str]:
    """The names of the results, each once: "night-denoised.png", "night-denoised-2.png"."""
    names: list[str] = []
    for run in runs:
        own = Path(run.result_name)
        name, count = own.name, 1
        while name.lower() in (other.lower() for other in names):
            count += 1
            name = f"{own.stem}-{count}{own.suffix}"
        names.append(name)
    return names
