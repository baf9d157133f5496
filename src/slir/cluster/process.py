"""The process of a worker: its memory, its GPU, and which slir it has."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from slir.errors import SlirError

if TYPE_CHECKING:
    from slir.files.jobs import Job

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt


def settle_in(device: str | None) -> None:
    """To be called by every task before it computes."""
    _keep_memory()
    _take_gpu(device)


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Let the process keep up to 64 MB that it freed, as processes do by default.

    Dask tells its workers to give all of it back to the system at once (MALLOC_TRIM_THRESHOLD_). A restoration asks for
    the same memory again a moment later, and would spend half of its time on that.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_MAP, 32 * 2**20)
    mallopt(_TRIM, 64 * 2**20)


def _take_gpu(device: str | None) -> None:
    """Let "cuda" mean one GPU a worker: of several that it sees, that of its number among the workers of a machine."""
    if device != "cuda":
        return
    import torch
    from distributed import get_worker

    try:
        number = re.search(r"(\d+)$", str(get_worker().name))
    except ValueError:  # not on a cluster
        return
    count = torch.cuda.device_count()
    if count > 1 and number is not None:
        torch.cuda.set_device(int(number[1]) % count)  # of this thread


def absolute(job: Job) -> Job:
    """The job with paths that mean the same in another process's folder."""
    given = {"image": job.image, "output": job.output, "model": job.model}
    paths: dict[str, Any] = {name: path.absolute() for name, path in given.items() if path is not None}
    if "mask" in job.inputs:
        job = job.with_settings(mask=job.inputs["mask"].absolute())
    return replace(job, **paths)


def release() -> tuple[str, str]:
    """Version and models of this slir: results of another may differ."""
    from slir import __version__
    from slir.kernel.shipped import shipped_hash

    return __version__, shipped_hash()


def check_release(wanted: tuple[str, str], address: str) -> None:
    """Raise where a worker has another slir than the client."""
    found = release()
    if found != wanted:
        told = f"slir {found[0]} with models {found[1]}, but the client has {wanted[0]} with {wanted[1]}"
        raise SlirError(f"The worker at {address} has {told}. Install the same slir on all machines.")
