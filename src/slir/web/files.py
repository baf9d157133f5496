"""Routes: pictures, kernels and masks that clients send, and pictures of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from slir.errors import InputError, SlirError
from slir.web import display
from slir.web.display import View
from slir.web.examples import EXAMPLES, Example
from slir.web.problems import Names, Problem, refused
from slir.web.replies import FileInfo, Id, MaskInfo, PsfInfo, PsfRequest
from slir.web.server import LARGEST_SIDE, Here, Me, Server, picture
from slir.web.store import Client, Kernel, Mask, Upload, new_id, shown_name, suffix_of

router = APIRouter(prefix="/api")
WIDEST = 255
"""Longest side of a kernel."""

CARD = 128
"""Longest side of an example's picture."""

ROOM = 2**24
"""Bytes of a file for which room is made at a time."""

Name = Annotated[str, Query(description="The file's name, of which the suffix says the format.", max_length=1000)]
Most = Annotated[int, Query(alias="max", ge=1, description="Longest side; larger pictures are made smaller.")]
Plane = Annotated[int, Query(ge=0, le=2**31, description="Of a stack, counted from 0.")]


def check_below(name: str, place: int, count: int) -> None:
    """Raise a problem where a place is beyond the last one."""
    if place >= count:
        raise refused(InputError(name, f"be below {count}", place, "It is counted from 0."))


def check_plane(upload: Upload, plane: int) -> None:
    check_below("plane", plane, upload.told["planes"])


def raw(media: str = "application/octet-stream") -> dict[str, Any]:
    """A body of bytes, for the OpenAPI description."""
    return {"requestBody": {"required": True, "content": {media: {"schema": {"type": "string", "format": "binary"}}}}}


@router.post("/files", status_code=201, response_model_exclude_none=False, openapi_extra=raw())
async def send_file(request: Request, here: Here, me: Me, name: Name) -> FileInfo:
    """Send a picture: the bytes of its file."""
    shown = shown_name(name)
    if not shown:
        raise refused(InputError("name", "not be empty", "empty", "Pass the file's name."))
    id = new_id()
    upload = Upload(id, me, here.store.folder / "files" / f"{id}{suffix_of(shown)}", shown)
    await _received(request, here, upload.path)
    return await _taken(here, me, upload)


@router.post("/examples/{name}", status_code=201)
async def take_example(name: str, here: Here, me: Me) -> FileInfo:
    """A picture that comes with slir, spoilt, as if it had been sent; with the settings that mend it."""
    example = _example(name)
    pixels, holes = await run_in_threadpool(example.made)
    id = new_id()
    upload = Upload(id, me, here.store.folder / "files" / f"{id}.png", f"{example.name}.png")
    await run_in_threadpool(here.keep, upload.path, display.png(pixels))
    told = await _taken(here, me, upload)
    told.settings = upload.told["settings"] = example.settings | await _mask_of(holes, here, me)
    return told


@router.get("/examples/{name}.png", response_class=Response, responses={200: {"content": {"image/png": {}}}})
async def example_picture(name: str) -> Response:
    """The middle of an example, pixel by pixel."""
    pixels, _ = await run_in_threadpool(_example(name).made)
    top, left = ((side - min(side, CARD)) // 2 for side in pixels.shape[:2])
    shown = pixels[top : top + CARD, left : left + CARD]
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(display.png(shown), media_type="image/png", headers=headers)


def _example(name: str) -> Example:
    if name not in EXAMPLES:
        raise Problem(404, "There is no such example", remedy=f"Choose one of {', '.join(EXAMPLES)}.")
    return EXAMPLES[name]


async def _mask_of(values: np.ndarray | None, here: Server, me: Client) -> dict[str, str]:
    if values is None:
        return {}
    id = new_id()
    mask = Mask(
        id, me, here.store.folder / "masks" / f"{id}.png", float(values.mean()), (values.shape[0], values.shape[1])
    )
    await run_in_threadpool(here.keep, mask.path, display.png(np.where(values, 255, 0).astype(np.uint8)))
    here.store.add(mask)
    return {"mask": id}


async def _received(request: Request, here: Server, path: Path) -> None:
    """The body into a file as it comes in. The guard has an eye on its length.

    Room is made as it is needed: who tells of a long body and sends none costs nobody a result.
    """
    told = request.headers.get("content-length", "")
    length = int(told) if told.isdecimal() else None
    await run_in_threadpool(here.check_room, length or 0)
    room = 0
    try:
        with open(path, "xb") as file:
            async for chunk in request.stream():
                size = file.tell() + len(chunk)
                if size > room:
                    room = size + ROOM if length is None else min(size + ROOM, length)
                    await run_in_threadpool(here.make_room, room - file.tell())
                file.write(chunk)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


async def _taken(here: Server, me: Client, upload: Upload) -> FileInfo:
    """Look at a picture that has come in, and keep it if it is one."""
    try:
        found = await here.drawn(me, upload.view_path, "look", upload.path, here.settings.pixels, names=upload.names)
    except BaseException:
        here.store.drop(upload)
        raise
    upload.view = View(*found.pop("view"))
    upload.told = {"file": upload.id, "name": upload.name, **found}
    here.store.add(upload)
    return FileInfo(**upload.told)


@router.get("/files/{id}")
async def file_info(id: Id, here: Here, me: Me) -> FileInfo:
    """What was told when the picture was sent."""
    return FileInfo(**here.store.upload(id, me).told)


@router.get("/files/{id}/preview.png", response_class=Response, responses={200: {"content": {"image/png": {}}}})
async def file_preview(id: Id, here: Here, me: Me, most: Most = display.LARGEST, plane: Plane = 0) -> Response:
    """A plane of the picture in eight bits."""
    upload = here.store.upload(id, me)
    check_plane(upload, plane)
    if plane:
        return await here.shown(me, upload.path, upload.view, most, plane, names=upload.names)
    path = upload.view_path
    if min(most, max(upload.told["width"], upload.told["height"])) > display.LARGEST:
        path = upload.large_path
        if not path.exists():
            await here.drawn(me, path, "show", upload.path, upload.view, LARGEST_SIDE, names=upload.names)
    return await run_in_threadpool(picture, path, most, lasting=True)


@router.delete("/files/{id}", status_code=204)
async def forget_file(id: Id, here: Here, me: Me) -> None:
    """Remove a picture. Jobs that are done keep their results."""
    upload = here.store.upload(id, me)
    if here.bench.uses(upload):
        raise Problem(409, "The picture is being worked on", remedy="Cancel its jobs first.")
    here.store.drop(upload)


@router.post(
    "/psf",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": PsfRequest.model_json_schema()},
                **raw()["requestBody"]["content"],
            },
        }
    },
)
async def send_psf(request: Request, here: Here, me: Me, name: Name = "") -> PsfInfo:
    """A blur kernel: built from JSON, or, with a name, the bytes of a file (.npy, .csv, .txt, or a grey picture)."""
    if name:
        values, made_by, blur = await _kernel_file(request, here, me, shown_name(name))
    else:
        values, made_by, blur = await run_in_threadpool(_built, await request.body())
    id = new_id()
    kernel = Kernel(id, me, here.store.folder / "files" / f"{id}.npy", made_by, blur)
    stream = io.BytesIO()
    np.save(stream, values)
    await run_in_threadpool(here.keep, kernel.path, stream.getvalue())
    here.store.add(kernel)
    return PsfInfo(psf=id, height=values.shape[0], width=values.shape[1])


_Kernel = tuple[np.ndarray, str, dict[str, Any]]
"""The pixels, where they came from in words, and as `replies.Blur` has it."""


async def _kernel_file(request: Request, here: Server, me: Client, name: str) -> _Kernel:
    path = here.store.folder / "files" / f"{new_id()}{suffix_of(name)}"
    await _received(request, here, path)
    try:
        values = await here.read(me, "kernel", path, WIDEST, names=Names({path: name}, here.store.folder))
    finally:
        path.unlink(missing_ok=True)
    return np.array(values, np.float64), f"psf {name}", {"kind": "file", "name": name}


def _built(body: bytes) -> _Kernel:
    from slir import psf

    try:
        asked = PsfRequest.model_validate_json(body)
        if asked.kind == "gaussian":
            values, made_by = psf.gaussian(_needed("width", asked.width)), f"gaussian {asked.width:g}"
        elif asked.kind == "motion":
            values = psf.motion(_needed("length", asked.length), asked.angle)
            made_by = f"motion {asked.length:g},{asked.angle:g}"
        elif asked.kind == "defocus":
            values, made_by = psf.defocus(_needed("radius", asked.radius)), f"defocus {asked.radius:g}"
        else:
            values, made_by = psf.from_array(_drawn(asked.pixels)), "drawn"
    except ValidationError as error:
        raise invalid(error.errors()) from None
    except SlirError as error:
        raise refused(error) from None
    return values, made_by, asked.model_dump(exclude={"pixels"}, exclude_none=True)


def _needed(name: str, value: float | None) -> float:
    if value is None:
        raise InputError(name, "be given for a kernel of this kind", "missing", "It counts in pixels.")
    return value


def _drawn(pixels: list[list[float]] | None) -> np.ndarray:
    if not pixels or not pixels[0] or len({len(row) for row in pixels}) > 1 or len(pixels[0]) > WIDEST:
        rule = f"be rows of one length, at most {WIDEST} of at most {WIDEST} numbers"
        raise InputError("pixels", rule, "something else", "Pass a list of rows.")
    return np.array(pixels)


def invalid(errors: Any) -> Problem:
    """What pydantic found wrong with a request."""
    first = errors[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    argument = place[0] if place else "the request"
    detail = f"{'.'.join(place) or 'The request'}: {first['msg'][:300]}."
    return Problem(422, "The request is not understood", detail, argument=argument, remedy="See /api/openapi.json.")


@router.get("/psf/{id}.png", response_class=Response, responses={200: {"content": {"image/png": {}}}})
async def psf_picture(id: Id, here: Here, me: Me, scale: Annotated[int, Query(ge=1, le=32)] = 8) -> Response:
    """A kernel as a grey picture, its largest value white, each of its pixels `scale` wide."""
    values = here.store.kernel(id, me).values
    peak = max(float(values.max()), 1e-300)
    grey = np.rint(np.sqrt(np.clip(values / peak, 0, 1)) * 255).astype(np.uint8)  # roots, or faint wings are black
    large = grey.repeat(scale, axis=0).repeat(scale, axis=1)
    return Response(display.png(large), media_type="image/png")


@router.post("/masks", status_code=201, openapi_extra=raw("image/png"))
async def send_mask(request: Request, here: Here, me: Me, file: Annotated[str, Query(max_length=32)]) -> MaskInfo:
    """Which pixels of a picture are missing: a PNG of its size, not black where they are."""
    told = here.store.upload(file, me).told
    size = (told["height"], told["width"])
    id = new_id()
    path = here.store.folder / "masks" / f"{id}.png"
    await _received(request, here, path)
    try:
        share = await here.read(me, "mask", path, size, names=Names({path: "mask.png"}, here.store.folder))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    here.store.add(Mask(id, me, path, share, size))
    return MaskInfo(mask=id, share=share)


@router.get("/masks/{id}.png", response_class=Response, responses={200: {"content": {"image/png": {}}}})
async def mask_picture(id: Id, here: Here, me: Me) -> Response:
    """A mask as it was sent."""
    return FileResponse(here.store.mask(id, me).path, media_type="image/png")
