"""Many files on a cluster: each is one task, with its own output, sidecar and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slir.cluster.connection import in_flow, result
from slir.cluster.process import absolute, check_release, release, settle_in
from slir.errors import SlirError
from slir.files.batch import Policy, Report, Reports, attempt, settled
from slir.files.jobs import Job


def spread(client: Any, jobs: Sequence[Job], policy: Policy, stopped: Callable[[], bool]) -> Reports:
    """In place of `slir.files.workers.spread`: reports in the order in which jobs end."""
    ours = release()

    def submit(job: Job) -> Any:
        return client.submit(_attempt, absolute(job), _repeatable(policy), ours, pure=False, retries=1)

    due = []
    for job in jobs:
        refused = _refusal(job, policy)
        if refused is None:
            due.append(job)
            continue
        yield refused
        if stopped():
            return
    for job, future in in_flow(client, submit, due, stopped=stopped):
        try:
            yield replace(result(future, str(job.image)), job=job)
        except SlirError as error:
            yield Report(job, "failed", " ".join(str(error).split()))


def _refusal(job: Job, policy: Policy) -> Report | None:
    """An output that is in the way. It is looked for before any worker begins: later it may be the worker's own."""
    if policy.force or policy.skip_existing:
        return None
    try:
        settled(job, policy)
    except SlirError as error:
        return Report(job, "failed", " ".join(str(error).split()))
    return None


def _repeatable(policy: Policy) -> Policy:
    """What a worker goes by. Where one dies after its file was done, another does it again, and must not be refused."""
    return policy if policy.skip_existing else replace(policy, force=True)


def _attempt(job: Job, policy: Policy, wanted: tuple[str, str]) -> Report:
    from distributed import get_worker

    check_release(wanted, get_worker().address)
    settle_in(job.device)
    return attempt(job, policy)
