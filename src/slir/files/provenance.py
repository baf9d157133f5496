"""The JSON file beside an output that says how it was made, in full, so that it can be made again.

Numbers are written with all their digits; kernels row by row. Files that took part are named relative to the sidecar
and known by their SHA-256, so a folder with its results may be moved, and a changed file is noticed.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import slir
from slir.errors import FileError, SlirError
from slir.files.atomic_output import ERROR_MAPS, INTERVALS, SIDECAR, Stage, digest, maps_of
from slir.files.jobs import Job, Outcome
from slir.problem import NAN, Problem, parse_sigma

KIND = "restoration"
VERSION = 1


def settings(job: Job) -> dict[str, Any]:
    """All that decides what the pixels become, other than the files and the number of threads; as JSON has it."""
    limits = list(job.data_range) if isinstance(job.data_range, tuple) else job.data_range
    return problem_settings(job.problem) | {"data_range": limits, "device": job.device or "cpu", "seed": job.seed}


def problem_settings(problem: Problem) -> dict[str, Any]:
    """The settings of a problem, but for a mask that is a file."""
    kind, sigma = parse_sigma(problem.sigma)
    record: dict[str, Any] = {"sigma": f"{sigma:.17g}%" if kind == "percent" else sigma}
    for name, value in problem.options.items():
        if value is not None:
            record[name] = _kernel(list(value) if isinstance(value, tuple) else value)
    return record | ({"mask": NAN} if problem.mask == NAN else {})


def fingerprints(job: Job) -> dict[str, dict[str, str]]:
    """The files that take part, by their hashes. The models inside slir are known by the hash of all of them."""
    files = _files(job)
    return files if "model" in files else files | {"model": {"inside_slir": _inside()}}


def _files(job: Job) -> dict[str, dict[str, str]]:
    files = {"input": {"path": str(job.image), "sha256": digest(job.image)}}
    if "mask" in job.inputs:
        files["mask"] = _file_entry(job.inputs["mask"])
    if job.model is not None:
        files["model"] = _file_entry(job.model)
    return files


def write(stage: Stage, job: Job, outcome: Outcome, *, inputs: dict[str, dict[str, str]], threads: int) -> None:
    """Write the sidecar of an output that lies on its stage."""
    folder = stage.target.parent
    files = {
        what: entry | {"path": _relative(Path(entry["path"]), folder)} if "path" in entry else entry
        for what, entry in inputs.items()
    }
    record = {
        "slir": KIND,
        "version": VERSION,
        "task": job.problem.task.name,
        "settings": settings(job),
        **({"psf_made_by": job.made_by} if job.made_by else {}),
        **files,
        "output": {"path": stage.target.name, "sha256": digest(stage.output)},
        **({"error_map": _made_maps(stage, ERROR_MAPS)} if job.error_map else {}),
        **({"interval": {"percent": job.interval, "files": _made_maps(stage, INTERVALS)}} if job.interval else {}),
        "found": {
            "sigma": outcome.sigma,
            "residual": outcome.residual,
            **({"noise": outcome.noise} if outcome.noise else {}),
            "notes": outcome.notes,
            "warnings": outcome.warnings,
        },
        "made": {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(outcome.seconds, 3),
            "threads": threads,
            "versions": versions(),
        },
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    # The bytes of names that are no UTF-8 are lone surrogates in Python, which JSON has escapes for.
    stage.sidecar.write_text(text, encoding="utf-8", errors="backslashreplace")


def _made_maps(stage: Stage, kinds: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Files beside the output by their hashes; none where they could not be had, which a warning says."""
    made = {kind: stage.maps[kind] for kind in kinds if stage.maps[kind].exists()}
    return {kind: {"path": path.name, "sha256": digest(path)} for kind, path in made.items()}


def versions() -> dict[str, str]:
    """Of what the last bits depend on."""
    from importlib.metadata import version

    return {"slir": slir.__version__, **{name: version(name) for name in ("torch", "numpy", "scipy")}}


@dataclass(frozen=True)
class Sidecar:
    """A sidecar that was read. path : where it lies."""

    path: Path
    record: dict[str, Any]

    @property
    def output(self) -> Path:
        """The file that it tells of, beside it."""
        return self.path.with_name(self.path.name.removesuffix(SIDECAR))

    def job(self, output: Path | None = None) -> Job:
        """The job as it was, to be run again; into another file where one is given."""
        record, own = self.record, dict(self.record["settings"])
        mask = own.pop("mask", None)
        if "mask" in record:
            mask = self._place("mask")
        try:
            limits, device, seed = own.pop("data_range"), own.pop("device"), own.pop("seed")
            options = {name: _array(value) for name, value in own.items()}
            job = Job(
                Problem(record["task"], mask=mask, **options),
                image=self._place("input"),
                output=self.output if output is None else output,
                model=self._place("model") if "path" in record["model"] else None,
                data_range=tuple(limits) if isinstance(limits, list) else limits,
                device=device,
                seed=seed,
                made_by=record.get("psf_made_by", ""),
                threads=record["made"]["threads"],
                error_map="error_map" in record,
                interval=record.get("interval", {}).get("percent"),
            )
            settings(job)  # which looks at them all
            return job
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
            if isinstance(error, SlirError):
                raise
            raise _damage_error(self.path, str(error)) from error

    def changes(self) -> list[str]:
        """In words, which of the files that took part are no longer what they were."""
        changed = []
        for what in ("input", "mask", "model"):
            entry = self.record.get(what, {})
            if "path" not in entry:
                continue
            place = self._place(what)
            if not place.exists():
                changed.append(f"the {what} {place} is not there")
            elif digest(place) != entry["sha256"]:
                changed.append(f"the {what} {place} has changed")
        inside = self.record["model"].get("inside_slir")
        if inside not in (None, _inside()):
            changed.append(f"the models inside slir are not those of slir {self.record['made']['versions']['slir']}")
        return changed

    def other_versions(self) -> list[str]:
        """ "torch 2.4, now 2.5": what may change the last bits of the result."""
        then, now = self.record["made"]["versions"], versions()
        return [f"{name} {then.get(name)}, now {own}" for name, own in now.items() if then.get(name) != own]

    def differs(self, job: Job) -> str | None:
        """Why the output beside it is not what `job` would make; None where it is. Hashes are taken only as needed."""
        if self.record["task"] != job.problem.task.name:
            return f"was made to {self.record['task']}"
        then, now = self.record["settings"], json.loads(json.dumps(settings(job)))
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                return f"was made with another {name}" + _versus(then.get(name), now.get(name))
        if digest(self.output) != self.record["output"]["sha256"]:
            return "is not the file that its sidecar describes"
        if job.error_map and "error_map" not in self.record:
            return "was made without an error map"
        percent = self.record.get("interval", {}).get("percent")
        if job.interval is not None and job.interval != percent:
            return "was made without an interval" if percent is None else f"was made with an interval of {percent:g} %"
        for name, asked, kinds in (("error map", job.error_map, ERROR_MAPS), ("interval", job.interval, INTERVALS)):
            if asked and not {kind for kind in kinds if kind in self.map_hashes()} <= self.maps().keys():
                return f"has lost its {name}, or the {name} has changed"
        files = _files(job)  # a model inside slir is none: another release alone is no reason to do all again
        for what in ("input", "mask", "model"):
            if self.record.get(what, {}).get("sha256") != files.get(what, {}).get("sha256"):
                return f"was made from another {what}"
        return None

    def maps(self) -> dict[str, Path]:
        """The error maps and intervals that it tells of, by kind, as far as they are there and unchanged."""
        told = self.map_hashes()
        places = {kind: place for kind, place in maps_of(self.output).items() if kind in told and place.is_file()}
        return {kind: place for kind, place in places.items() if digest(place) == told[kind]}

    def is_own_output(self) -> bool:
        """Whether the file beside it is the one that it tells of."""
        return self.output.exists() and digest(self.output) == self.record["output"]["sha256"]

    def map_hashes(self) -> dict[str, str]:
        """Of error maps and intervals, by kind: "error.tif", say; none where there are none."""
        try:
            told = self.record.get("error_map", {}) | self.record.get("interval", {}).get("files", {})
            return {kind: entry["sha256"] for kind, entry in told.items()}
        except (AttributeError, TypeError, LookupError) as error:
            raise _damage_error(self.path, "it does not describe its error map or interval") from error

    def _place(self, what: str) -> Path:
        return Path(os.path.normpath(self.path.parent / self.record[what]["path"]))


def load(path: str | os.PathLike[str]) -> Sidecar:
    """Read a sidecar. Raises FileError where there is none, or where it is not one."""
    path = Path(path)
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FileError(path, "does not exist", "Check the name and the folder.") from error
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})", "Name the file OUT.json.") from error
    except (ValueError, RecursionError) as error:
        raise FileError(
            path, "is not a sidecar of slir (not JSON)", "Name the file OUT.json beside an output."
        ) from error
    if not isinstance(record, dict) or record.get("slir") != KIND:
        raise FileError(path, "is JSON, but not a sidecar of slir", "Name the file OUT.json beside an output.")
    if record.get("version") != VERSION:
        remedy = "Install the slir that wrote it, or a newer one."
        raise FileError(path, f"has version {record.get('version')}, this slir reads {VERSION}", remedy)
    if flaw := _flaw(record, _shape_of(record)):
        raise _damage_error(path, flaw)
    return Sidecar(path, record)


def is_sidecar(path: Path) -> bool:
    """Whether a file is there and is a sidecar."""
    try:
        load(path)
    except FileError:
        return False
    return True


_FILE = {"path": str, "sha256": str}
_SHAPE: dict[str, Any] = {
    "task": str,
    "settings": {"data_range": object},
    "input": _FILE,
    "model": {},
    "output": _FILE,
    "made": {"threads": int, "versions": {"slir": str}},
}
"""What every sidecar has: the type of each value, or the same of an object's."""


def _flaw(record: Any, shape: dict[str, Any] = _SHAPE, place: str = "") -> str | None:
    """What is wrong with a record, in words; None where it has the shape of a sidecar's."""
    for name, kind in shape.items():
        if name not in record:
            return f"it lacks {place}{name}"
        inner = dict if isinstance(kind, dict) else kind
        if not isinstance(record[name], inner):
            return f"{place}{name} is of the wrong type"
        if inner is dict and (found := _flaw(record[name], kind, f"{place}{name}.")):
            return found
    return None


def _shape_of(record: dict[str, Any]) -> dict[str, Any]:
    """The shape that a record must have: what some sidecars lack is checked where it is there."""
    shape = dict(_SHAPE)
    if isinstance(record.get("model"), dict) and "path" in record["model"]:
        shape["model"] = _FILE
    if "mask" in record:
        shape["mask"] = _FILE
    if "error_map" in record:
        maps = record["error_map"]
        shape["error_map"] = dict.fromkeys(maps, _FILE) if isinstance(maps, dict) else dict
    return shape


def _damage_error(path: Path, reason: str) -> FileError:
    return FileError(path, f"is a damaged sidecar ({reason})", "Restore the image again.")


def _versus(then: Any, now: Any) -> str:
    plain = all(value is None or isinstance(value, str | int | float) for value in (then, now))
    return f" ({then}, now {now})" if plain else ""


def _file_entry(path: Path) -> dict[str, str]:
    stat = path.stat()
    return {"path": str(path), "sha256": _kept_digest(path, stat.st_mtime_ns, stat.st_size)}


@lru_cache(maxsize=64)
def _kept_digest(path: Path, *version: int) -> str:
    """Of a file that many jobs share."""
    return digest(path)


def _inside() -> str:
    from slir.kernel.shipped import shipped_hash

    return shipped_hash()


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(os.path.realpath(path), folder)).as_posix()
    except ValueError:  # on another drive of Windows
        return str(path.resolve())


def _kernel(value: Any) -> Any:
    """A kernel as rows of numbers with all their digits, of volumes as planes of rows; other values as they are."""
    if not isinstance(value, np.ndarray):
        return value
    kernel = np.asarray(value, dtype=np.float64)
    return {"kernel": _rows(kernel) if kernel.ndim == 2 else [_rows(plane) for plane in kernel]}


def _rows(plane: np.ndarray) -> list[str]:
    return [" ".join(repr(float(number)) for number in row) for row in plane]


def _numbers(rows: list[str]) -> list[list[float]]:
    return [[float(number) for number in row.split()] for row in rows]


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and "kernel" in value:
        kernel = value["kernel"]
        return np.array([_numbers(plane) for plane in kernel] if isinstance(kernel[0], list) else _numbers(kernel))
    return value
