"""What is said when something is refused: `application/problem+json` as RFC 9457 has it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from slir.errors import FileError, InputError, SlirError

MEDIA = "application/problem+json"


class Problem(HTTPException):
    """A refusal in words: what is wrong, the argument at fault, and what to do about it."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        *,
        argument: str = "",
        remedy: str = "",
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, title, dict(headers or {}))
        optional = {"detail": detail, "argument": argument, "remedy": remedy}
        self.body = {"title": title, "status": status} | {name: text for name, text in optional.items() if text}

    @staticmethod
    def of(fields: Mapping[str, Any], names: Names | None = None) -> Problem:
        """The problem that a process of the crew has found."""
        texts = {name: str(fields.get(name, "")) for name in ("title", "detail", "argument", "remedy")}
        texts = texts if names is None else {name: names.told(text) for name, text in texts.items()}
        status = int(fields.get("status", 422))
        return Problem(status, texts["title"], texts["detail"], argument=texts["argument"], remedy=texts["remedy"])

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status_code, self.headers, MEDIA)


@dataclass(frozen=True)
class Names:
    """What files are called for people. Messages about them name these, never a path of the server.

    called : path -> name, as the client knows the file. folder : the server's private one, in which all files are.
    """

    called: Mapping[Path, str]
    folder: Path

    def told(self, text: str) -> str:
        """The text with every path, and every name made of one (in "Rename it to ..."), as people know it."""
        for path, name in self.called.items():
            text = text.replace(str(path), name).replace(path.stem, Path(name).stem or name)
        return text.replace(f"{self.folder}{os.sep}", "").replace(str(self.folder), "the server's folder")


def told(error: Exception, names: Names | None = None) -> dict[str, Any]:
    """An error of slir as the fields of a problem."""
    remedy = getattr(error, "remedy", "")
    detail = str(error).removesuffix(remedy).strip()
    if names is not None:
        detail, remedy = names.told(detail), names.told(remedy)
    title = "This setting cannot be used" if isinstance(error, InputError) else "This file cannot be used"
    if not isinstance(error, InputError | FileError):
        title = "The restoration failed"
    return {"title": title, "detail": detail, "argument": getattr(error, "argument", ""), "remedy": remedy}


def refused(error: SlirError, names: Names | None = None, *, status: int = 422) -> Problem:
    """The problem that an error of slir is to a client."""
    return Problem(status, **told(error, names))


def is_full(error: BaseException | None) -> bool:
    """Whether an error came from a disk that takes no more."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full() -> Problem:
    remedy = "Delete files that are no longer needed, or try again later."
    headers = {"Retry-After": "60"}
    return Problem(429, "The disk is full", "The server cannot keep more files.", remedy=remedy, headers=headers)


def missing(what: str) -> Problem:
    remedy = f"Send the {what} again. The server removes what has not been used for some hours."
    return Problem(404, f"There is no such {what}", f"You have no {what} with this ID.", remedy=remedy)
