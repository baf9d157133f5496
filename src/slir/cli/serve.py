"""`slir serve`: the page in the browser."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer

from slir.cli import options, show
from slir.errors import InputError, SlirError

MEGA = 10**6


def serve(
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. The default accepts this machine only; with any other address, such as 0.0.0.0 "
            "for all, clients need a token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="SLIR_TOKEN",
            help="Token for clients, 16 or more letters and digits; generated and printed if clients need one.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further host name under which the page is opened; may be repeated."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="Restorations at a time. Each uses all cores, so more are rarely faster.")
    ] = 1,
    device: options.Device = None,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Largest file that is accepted.")] = 200,
    max_megapixels: Annotated[float, typer.Option(min=0.01, help="Largest picture that is accepted or made.")] = 50,
    queue: Annotated[
        int, typer.Option(min=1, help="Jobs that may wait; further ones are refused until there is room.")
    ] = 32,
    seconds: Annotated[float, typer.Option(min=1, help="Longest time of one restoration.")] = 900,
    expiry: Annotated[float, typer.Option(min=0.01, help="Hours after which unused files are removed.")] = 6,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to make the private folder for files; by default in the system's folder for temporary files.",
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Start the page in the browser: drop a picture, restore it, download it.

    Nothing leaves this machine, and the page loads nothing from others. Files are kept in a private folder. Unused ones
    are removed after some hours, and all of them when the server ends (Ctrl-C). The HTTP API is described at
    /api/openapi.json.

    Examples:

    slir serve
    slir serve --port 8080 --open
    slir serve --host 0.0.0.0 --max-megapixels 20 --workers 2
    """
    missing = [package for package in ("fastapi", "uvicorn") if importlib.util.find_spec(package) is None]
    if missing:
        raise SlirError(f"slir serve needs {' and '.join(missing)}. Run pip install 'slir[web]'.")
    from slir.web.settings import Settings

    if folder is not None and not folder.is_dir():
        raise InputError("--folder", "be a folder that exists", repr(str(folder)), "Create it first.")
    settings = Settings(
        host=host,
        port=port,
        token=token,
        names=tuple(name or ()),
        workers=workers,
        device=device,
        bytes=max_megabytes * 2**20,
        pixels=int(max_megapixels * MEGA),
        queue=queue,
        seconds=seconds,
        expiry=expiry * 3600,
        folder=folder,
    ).safe()
    _run(settings, open_page=open_page, quiet=quiet)


def _run(settings: Any, *, open_page: bool, quiet: bool) -> None:
    """Listen until Ctrl-C. The socket is opened first, so that a port in use is an error in words."""
    import uvicorn

    from slir.web.app import create_app
    from slir.web.connections import configured

    config = configured(create_app(settings))
    socket = _listening(settings.host, settings.port)
    address = _address(settings, socket.getsockname()[1])
    if not quiet or settings.token:
        show.done(f"slir serves {address}  (Ctrl-C ends it)")
    if open_page:
        import webbrowser

        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):  # which is how it is meant to end
        uvicorn.Server(config).run(sockets=[socket])


def _listening(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = f"be free to listen on ({error.strerror or error})"
        raise InputError(
            "--host and --port", reason, f"{host}:{port}", "Pass --port 0 for any that is free."
        ) from error
    return listener


def _address(settings: Any, port: int) -> str:
    """What to type into the browser."""
    import socket

    host = socket.gethostname() if settings.host in ("0.0.0.0", "::") else settings.host
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/" + (f"?token={settings.token}" if settings.token else "")
