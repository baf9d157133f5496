"""A job of a client's: what was asked for, and what has become of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slir.files.atomic_output import sidecar_of
from slir.files.jobs import Job
from slir.io import result_suffix
from slir.web.crew import Hand
from slir.web.problems import Names
from slir.web.store import Client, Upload

FINAL = ("done", "failed", "cancelled")


@dataclass(eq=False)
class Run:
    """One job of a client's, and what has become of it.

    asked : the settings as the client gave them. blur : the kernel, as `replies.Blur` has it.
    stage, stages : how many are finished, of how many.
    preview : the newest stage that there is a picture of; 0 where there is none.
    version : counts changes, so that those who listen know whether they have heard.
    """

    id: str
    owner: Client
    upload: Upload
    job: Job
    folder: Path
    asked: dict[str, Any]
    trusted: bool = True
    blur: dict[str, Any] | None = None
    state: str = "queued"
    stage: int = 0
    stages: int = 0
    preview: int = 0
    result: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    stop: bool = False
    hand: Hand | None = None
    created: float = field(default_factory=time.time)
    begun: float | None = None
    ended: float | None = None
    used: float = field(default_factory=time.monotonic)
    version: int = 0
    listeners: set[asyncio.Event] = field(default_factory=set)

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def view_path(self) -> Path:
        return self.folder / "view.png"

    @property
    def large_path(self) -> Path:
        return self.folder / "large.png"

    @property
    def sidecar(self) -> Path:
        return sidecar_of(self.job.output)

    @property
    def result_name(self) -> str:
        """ "night.png" -> "night-denoised.png"."""
        name = Path(self.upload.name)
        return f"{name.stem}-{self.job.problem.task.done}{result_suffix(name)}"

    @property
    def names(self) -> Names:
        called = {self.job.image: self.upload.name, self.job.output: self.result_name}
        called |= {path: "mask.png" for what, path in self.job.inputs.items() if what == "mask"}
        return Names(called, self.folder.parents[1])

    @property
    def seconds(self) -> float | None:
        if self.begun is None:
            return None
        return round((time.monotonic() if self.ended is None else self.ended) - self.begun, 3)

    def told(self, position: int) -> dict[str, Any]:
        """The job as clients see it."""
        optional = {"blur": self.blur, "result": self.result, "problem": self.problem}
        return {
            "job": self.id,
            "file": self.upload.id,
            "name": self.upload.name,
            "task": self.job.problem.task.name,
            "state": self.state,
            "position": position,
            "stage": self.stage,
            "stages": self.stages,
            "message": self._message(position),
            "seconds": self.seconds,
            "created": self.created,
            "settings": self.asked,
            "orientation": self.upload.told["orientation"],
        } | {name: value for name, value in optional.items() if value is not None}

    def _message(self, position: int) -> str:
        if self.state == "queued":
            return f"waiting, {position - 1} ahead of it" if position > 1 else "waiting"
        if self.state == "running":
            stage = min(self.stage + 1, self.stages)
            return f"stage {stage} of {self.stages}" if self.stages else "beginning"
        return {"done": "done", "cancelled": "cancelled"}.get(self.state, (self.problem or {}).get("title", "failed"))
