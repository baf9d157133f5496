"""The application put together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files as resources
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from slir import __version__
from slir.io import EXTENSIONS
from slir.problem import tasks
from slir.web import archive, files, previews, restoring
from slir.web.examples import EXAMPLES
from slir.web.files import invalid
from slir.web.guard import Guard
from slir.web.problems import MEDIA, Problem, disk_full, is_full
from slir.web.replies import ExampleInfo, Info, Limits, Refusal
from slir.web.server import Here, Server
from slir.web.settings import Settings
from slir.web.store import private_folder

_FOLDERS = (".zarr",)  # a format whose pictures are folders cannot be sent as one file
_PAGE = Path(str(resources("slir.web") / "static"))


def create_app(settings: Settings | None = None) -> FastAPI:
    """The page and its API. Files live in a private folder from the start of the application to its end."""
    settings = (settings or Settings()).safe()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with private_folder(settings) as folder:
            server = Server.begin(settings, folder)
            app.state.server = server
            tidy = asyncio.create_task(server.keep_tidy())
            try:
                yield
            finally:
                tidy.cancel()
                server.end()

    refusals = {"4XX": {"model": Refusal, "content": {MEDIA: {}}, "description": "Refused, with the reason"}}
    app = FastAPI(
        title="slir",
        version=__version__,
        summary="Restore images: remove noise and blur, enlarge, fill in what is missing.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page would load scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals,  # type: ignore[arg-type]
    )
    app.add_api_route("/api/info", info, methods=["GET"])
    app.include_router(files.router)
    app.include_router(restoring.router)
    app.include_router(previews.router)
    app.include_router(archive.router)
    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.mount("/static", _Static(directory=_PAGE, check_dir=False))
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(OSError, _failed)
    app.add_exception_handler(Exception, _bug)
    app.add_middleware(Guard, settings=settings)
    return app


async def info(here: Here) -> Info:
    """What the server is, takes and allows."""
    limits = here.settings
    known = [
        ExampleInfo(name=each.name, title=each.title, task=each.task, height=each.size[0], width=each.size[1])
        for each in EXAMPLES.values()
    ]
    return Info(
        version=__version__,
        tasks=list(tasks()),
        examples=known,
        limits=Limits(bytes=limits.bytes, pixels=limits.pixels, queue=limits.queue, seconds=limits.seconds),
        formats=[suffix for suffix in EXTENSIONS if suffix not in _FOLDERS],
        device=limits.device or "cpu",
    )


async def page() -> Response:
    return FileResponse(_PAGE / "index.html", media_type="text/html", headers={"Cache-Control": "no-cache"})


class _Static(StaticFiles):
    """Files of the page: a browser asks each time whether it has changed."""

    def file_response(self, *arguments, **named) -> Response:
        response = super().file_response(*arguments, **named)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = (
        error if isinstance(error, Problem) else Problem(error.status_code, str(error.detail), headers=error.headers)
    )
    return problem.response()


async def _misunderstood(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid(error.errors()).response()


async def _gone(request: Request, error: Exception) -> Response:
    return Problem(400, "The body is incomplete", "The connection ended early.").response()  # nobody reads it


async def _failed(request: Request, error: Exception) -> Response:
    if not is_full(error):
        raise error
    return disk_full().response()


async def _bug(request: Request, error: Exception) -> Response:
    return Problem(500, "A bug in slir", type(error).__name__, remedy="Please report it.").response()
