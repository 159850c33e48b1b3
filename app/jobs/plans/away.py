"""A plan whose target does not answer: somebody waits for it, so it does not wait for long."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.queries import get_job
from app.jobs.running.context import JobContext
from spark.targets.errors import TargetUnreachable


def ending(plan: Callable[[JobContext], Mapping[str, Any]], context: JobContext) -> Mapping[str, Any]:
    """Plan; a target that has not answered for `plan_away_max_s` ends the job.

    Raises: JobSignal: JobFailed TARGET_UNREACHABLE.
    """
    try:
        return plan(context)
    except JobWaiting as waiting:
        if waiting.transient and waiting.code == TargetUnreachable.code:
            _give_up_late(context, waiting)
        raise


def _give_up_late(context: JobContext, waiting: JobWaiting) -> None:
    """Raise JobFailed where the target has been away too long; return where it may be tried again."""

    def away() -> timedelta:
        with context.database.reading() as db:
            job, now = get_job(db, context.job.id), context.database.now(db)
            is_known = job.waiting_cause == waiting.code and job.waiting_since is not None
            return now - job.waiting_since if is_known and job.waiting_since else timedelta(0)

    found = context.patiently(away)
    if found < timedelta(seconds=context.settings.plan_away_max_s):
        return
    detail = (
        f"{waiting.detail}; the target has not answered for {found.total_seconds():.0f} s: see that its"
        " server and what lies between answer (`:check` of the store tells), then plan again"
    )
    raise JobFailed(waiting.code, detail, retryable=True) from waiting
