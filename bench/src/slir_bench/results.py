"""A store of results that a stopped run resumes from: one JSON object a line, appended, never rewritten.

A result is told apart by table, setting, image, method and the fingerprint of the method's settings, so a method whose
settings change is measured anew while its old figures stay on record.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from slir.errors import FileError

REMEDY = "Choose an output folder that can be written to and has room."


@dataclass(frozen=True)
class Result:
    """One method on one case: its PSNR in dB and the seconds that its `restore` took."""

    table: str
    setting: str
    image: str
    method: str
    fingerprint: str
    psnr: float
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        return self.table, self.setting, self.image, self.method, self.fingerprint


@dataclass(frozen=True)
class Mean:
    """A method's mean over the images of one setting."""

    table: str
    setting: str
    method: str
    fingerprint: str
    count: int
    psnr: float
    seconds: float


class Results:
    """The results in `folder`/results.jsonl. Lines that do not parse, such as one torn by a crash, are passed over."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.path = self.folder / "results.jsonl"
        self._found: dict[tuple[str, ...], Result] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text("utf-8", errors="replace") if self.path.exists() else ""
        except OSError as error:
            raise FileError(self.path, f"cannot be read ({error})", REMEDY) from error
        for line in text.splitlines():
            result = _parse(line)
            if result is not None:
                self._remember(result)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: tuple[str, ...]) -> bool:
        return key in self._found

    def add(self, result: Result) -> None:
        """Append one line in one write, on a line of its own even after a torn one, and onto the disk."""
        line = json.dumps(asdict(result), ensure_ascii=False) + "\n"
        try:
            with open(self.path, "a+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = "\n" + line
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(self.path, f"cannot be written ({error})", REMEDY) from error
        self._remember(result)

    def newest(self) -> list[Result]:
        """The results with each method's newest settings: one fingerprint a table, setting and method."""
        last = {(r.table, r.setting, r.method): r.fingerprint for r in self}
        return [r for r in self if last[r.table, r.setting, r.method] == r.fingerprint]

    def _remember(self, result: Result) -> None:
        self._found.pop(result.key, None)  # so that the order is that of the last writing
        self._found[result.key] = result

    def means(self) -> list[Mean]:
        """One mean a table, setting, method and fingerprint, in the order in which they first came."""
        return means(self)

    def export(self) -> list[Path]:
        """Write results.csv, results.json and means.csv beside the store; returns their paths."""
        rows, summary = [asdict(result) for result in self], [asdict(mean) for mean in self.means()]
        texts = {
            "results.csv": _csv(rows, [f.name for f in fields(Result)]),
            "means.csv": _csv(summary, [f.name for f in fields(Mean)]),
            "results.json": json.dumps({"results": rows, "means": summary}, indent=1, ensure_ascii=False) + "\n",
        }
        for name, text in texts.items():
            write_whole(self.folder / name, text.encode())
        return [self.folder / name for name in texts]

    def picture(self, result: Result, image: np.ndarray) -> Path:
        """The restoration as an 8-bit PNG under pictures/table/setting/, whole or not at all."""
        name = f"{result.image}-{result.method}-{result.fingerprint}.png"
        path = self.folder / "pictures" / _plain(result.table) / _plain(result.setting) / _plain(name)
        buffer = io.BytesIO()
        Image.fromarray(np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)).save(buffer, "PNG")
        write_whole(path, buffer.getvalue())
        return path


def means(results: Iterable[Result]) -> list[Mean]:
    """Means over images; see `Results.means`."""
    found: dict[tuple[str, str, str, str], list[Result]] = {}
    for r in results:
        found.setdefault((r.table, r.setting, r.method, r.fingerprint), []).append(r)
    return [
        Mean(*key, len(rs), float(np.mean([r.psnr for r in rs])), float(np.mean([r.seconds for r in rs])))
        for key, rs in found.items()
    ]


def fingerprint(settings: dict[str, Any]) -> str:
    """Twelve hexadecimal digits that change when the settings do, whatever the order of their keys."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise FileError(path, f"cannot be written ({error})", REMEDY) from error


def _parse(line: str) -> Result | None:
    try:
        return Result(**json.loads(line))
    except (ValueError, TypeError):
        return None


def _csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(name: str) -> str:
    """A file name without characters that some file system refuses."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in name)
