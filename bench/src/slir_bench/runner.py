"""Runs methods over tables and stores each figure as soon as it is known, so that a stopped run resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from slir_bench import peers
from slir_bench.protocols import Case, Group, groups, psnr
from slir_bench.results import Result, Results, fingerprint


class Method(Protocol):
    """What the runner needs of a method; `peers.Peer` is one.

    `settings` is plain data that JSON can hold: all that changes the outcome. `prepare` is called once a group, before
    its first case that is not yet done. `restore` returns the shape of `case.clean` or of `case.target`.
    """

    name: str
    settings: dict[str, Any]

    def handles(self, case: Case) -> bool: ...

    def prepare(self, group: Group) -> None: ...

    def restore(self, case: Case) -> np.ndarray: ...


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `result` is None when `method` begins to prepare for the group of `case`."""

    done: int
    total: int
    case: Case
    method: str
    result: Result | None = None


def run(
    tables: Sequence[str],
    methods: Sequence[Method | str],
    data: Path | str,
    out: Path | str,
    *,
    subset: str = "all",
    device: str = "cpu",
    pictures: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Results:
    """Restore every case of `tables` with every method that handles it; returns the store in `out`.

    A method given by name is a peer, built for `device`, whose fits are kept in `out`/fits. A result that is in the
    store already, with the same settings, is not computed again. `progress` is told before each fit and after each
    result; `total` counts the cases of the group at hand that were still to do.
    """
    out = Path(out)
    store = Results(out)
    made = [peers.build(m, device=device, cache=out / "fits") if isinstance(m, str) else m for m in methods]
    say = progress or (lambda _: None)
    for table in tables:
        for group in groups(table, data, subset=subset):
            for method in made:
                _run_group(group, method, store, pictures, say)
    store.export()
    return store


def _run_group(group: Group, method: Method, store: Results, pictures: bool, say: Callable[[Progress], None]) -> None:
    mark = fingerprint(method.settings)
    keys = [(case.table, case.setting, case.name, method.name, mark) for case in group.cases]
    todo = [(case, key) for case, key in zip(group.cases, keys) if method.handles(case) and key not in store]
    if not todo:
        return
    say(Progress(0, len(todo), todo[0][0], method.name))
    method.prepare(group)
    for done, (case, key) in enumerate(todo, start=1):
        start = time.perf_counter()
        restored = method.restore(case)
        seconds = time.perf_counter() - start
        result = Result(*key, psnr=round(psnr(case, restored), 4), seconds=round(seconds, 3))
        if pictures:
            store.picture(result, restored)
        store.add(result)
        say(Progress(done, len(todo), case, method.name, result))
