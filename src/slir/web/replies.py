"""The shapes of what clients send and of what they are told; the OpenAPI description is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slir.problem import tasks

Numbers = float | list[float] | None
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0123456789abcdef0123456789abcdef"])]
Side = Annotated[int, Field(ge=1, le=16384)]
Place = Annotated[int, Field(ge=0, le=2**31)]
if TYPE_CHECKING:
    TaskName = str
    WindowTaskName = str
else:
    TaskName = Literal[tuple(tasks())]
    WindowTaskName = Literal[tuple(name for name, task in tasks().items() if not task.masked)]


class Refusal(BaseModel):
    """Why a request was refused, as RFC 9457 has it."""

    title: str
    status: int
    detail: str = ""
    argument: str = ""
    remedy: str = ""


class ExampleInfo(BaseModel):
    name: str
    title: str
    task: str
    width: int
    height: int


class Limits(BaseModel):
    bytes: int
    pixels: int
    queue: int
    seconds: float


class Info(BaseModel):
    """What the server is and takes."""

    version: str
    tasks: list[str]
    examples: list[ExampleInfo]
    limits: Limits
    formats: list[str]
    device: str


class FileInfo(BaseModel):
    """A picture that was sent. settings : for an example, what to restore it with."""

    file: str
    name: str
    width: int
    height: int
    colour: bool
    dtype: str
    planes: int
    data_range: float | None
    orientation: int = 1
    notes: list[str] = []
    task_hint: str | None = None
    settings: dict[str, Any] | None = None


class PsfRequest(BaseModel):
    """A blur kernel: a Gaussian of that `width` (standard deviation), a straight motion, a defocused disk, or pixels of
    any scale. Lengths are in pixels, angles in degrees, 0 to the right and 90 up."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["gaussian", "motion", "defocus", "drawn"]
    width: float | None = Field(None, gt=0, le=30)
    length: float | None = Field(None, gt=0, le=200)
    angle: float = Field(0.0, ge=-360, le=360)
    radius: float | None = Field(None, gt=0, le=80)
    pixels: list[list[float]] | None = Field(None, max_length=255)


class Blur(BaseModel):
    """Where a kernel came from: the request that it was built from, but for its pixels, or the name of its file."""

    kind: Literal["gaussian", "motion", "defocus", "drawn", "file"]
    width: float | None = None
    length: float | None = None
    angle: float | None = None
    radius: float | None = None
    name: str | None = None


class PsfInfo(BaseModel):
    psf: str
    height: int
    width: int


class MaskInfo(BaseModel):
    """share : how much of the picture is missing, from 0 to 1."""

    mask: str
    share: float


class Asked(BaseModel):
    """What to do to a picture. sigma : strength of the noise in pixel values, "10%" of their range, "auto", or
    "poisson-gaussian"; by default "auto" to denoise and deblur, 0 to upsample and inpaint. data_range : white, or black
    and white; needed for pictures of floats. strength : to denoise, how much of the noise is removed; 1 is all that was
    found."""

    model_config = ConfigDict(extra="forbid")

    file: Id
    task: TaskName
    sigma: Annotated[float, Field(ge=0)] | Annotated[str, Field(max_length=32)] | None = None
    strength: float = Field(1.0, ge=0, le=3)
    psf: Id | None = None
    mask: Annotated[str, Field(pattern=r"^([0-9a-f]{32}|nan)$")] | None = None
    factor: int = Field(2, ge=2, le=8)
    border: Literal["unknown", "circular", "reflect"] = "unknown"
    data_range: float | Annotated[list[float], Field(min_length=2, max_length=2)] | None = None


class JobRequest(Asked):
    """A restoration. error_map : whether to find the error to expect at each pixel."""

    error_map: bool = True


class PreviewRequest(Asked):
    """A crop to be restored. row, col : the pixel in its middle. plane : of a stack."""

    task: WindowTaskName
    row: Place
    col: Place
    plane: Place = 0


class Preview(BaseModel):
    """A crop before and after, PNG files in base64. row, col, height, width : where it lies in the picture that was
    sent. sigma : the noise that was assumed, one number or one a channel, in pixel values. noise : the same in words,
    where it was estimated."""

    row: int
    col: int
    height: int
    width: int
    sigma: Numbers
    noise: str = ""
    before: str
    after: str


class JobStarted(BaseModel):
    job: str


class Forward(BaseModel):
    """Whether what is left over looks like noise, in words."""

    model_config = ConfigDict(extra="allow")


class Found(BaseModel):
    """A finished restoration. sigma, residual : one number, or one a channel, in pixel values. noise : what was
    estimated, in words. error : whether there is an error map; else error_reason says why not. max_error : what
    is white in its picture."""

    width: int
    height: int
    sigma: Numbers = None
    residual: Numbers = None
    noise: str = ""
    warnings: list[str] = []
    notes: list[str] = []
    forward: Forward | None = None
    error: bool = False
    error_reason: str = ""
    interval_reason: str = ""
    max_error: float | None = None
    unit_text: str = ""


class JobInfo(BaseModel):
    """A job. position : 1 for the next to be worked on, 0 once it is. stage : how many of the stages are finished.
    orientation : of the picture, as EXIF counts it. blur : the kernel of a deblurring."""

    job: str
    file: str
    name: str
    task: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    position: int
    stage: int
    stages: int
    message: str
    seconds: float | None
    created: float
    settings: dict[str, Any]
    orientation: int = 1
    blur: Blur | None = None
    result: Found | None = None
    problem: dict[str, Any] | None = None


class Pixel(BaseModel):
    """A pixel before and after, the error to expect, and intervals, low and high: by channel, in the file's
    units. What is not a number, or not known, is null."""

    row: int
    col: int
    before: list[float | None] | None
    after: list[float | None] | None
    error: list[float | None] | None
    interval: dict[str, list[list[float | None]]]
