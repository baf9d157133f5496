"""Route: a crop of a picture, restored at once."""

from __future__ import annotations

from fastapi import APIRouter

from slir.web.files import check_below, check_plane
from slir.web.questions import Question
from slir.web.replies import Preview, PreviewRequest
from slir.web.restoring import job_of
from slir.web.server import Here, Me

router = APIRouter(prefix="/api")


@router.post("/previews")
async def preview(asked: PreviewRequest, here: Here, me: Me) -> Preview:
    """Restore a crop with the settings of a job. The newest request of a client replaces one that still waits."""
    upload = here.store.upload(asked.file, me)
    check_plane(upload, asked.plane)
    for name, place, side in (("row", asked.row, upload.told["height"]), ("col", asked.col, upload.told["width"])):
        check_below(name, place, side)
    job = job_of(asked, upload, upload.path, here, me)
    arguments = (job, asked.plane, asked.row, asked.col, upload.view)
    return Preview(**await here.bench.ask(Question(me, "preview", arguments, upload.names)))
