"""A job's progress as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from slir.web.bench import Bench
from slir.web.runs import Run

HEARTBEAT = 15.0


async def events(bench: Bench, run: Run) -> AsyncIterator[str]:
    """The state at once and whenever it changes, a preview whenever there is a newer one; the final state ends it.

    Who comes back after a break is told the state as it is now, which is all that there is to know.
    """
    preview = 0
    while True:
        version, final = run.version, run.final
        if run.preview != preview and not final:
            preview = run.preview
            url = f"/api/jobs/{run.id}/preview.png?stage={preview}"
            yield _event("preview", version, {"stage": preview, "url": url})
        yield _event("state", version, bench.told(run))
        if final:
            return
        while run.version == version:
            await bench.wait(run, version, HEARTBEAT)
            if run.version == version:
                yield ": still here\n\n"  # so that nobody in between takes the connection for dead


def _event(kind: str, number: int, data: dict) -> str:
    return f"event: {kind}\nid: {number}\ndata: {json.dumps(data)}\n\n"
