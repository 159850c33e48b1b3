"""A cleanup by the cluster's own function: called once, refused, or waited with.

Sessions from before the start of a switch end by themselves as a rule: what only they are in the way of waits
for them, holding nothing. Whatever else the function would lose stays where it is.
"""

from datetime import datetime, timedelta
from typing import Final

from app.events.cleanup.loop import Cleanup
from app.events.cleanup.models import CleanupVia
from app.events.cleanup.switch.report import REF_MAX_CHARS, SHOWN_MAX, session_text
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from spark.events.cleaning.errors import LogStillWritten, UnconfirmedWouldGo
from spark.events.cleaning.native import NativeUnit, run_native
from spark.events.cleaning.records import NativeResult

CALL_MAX_MS: Final = 600_000
"""The cluster's function has no units: on two million events it takes some seconds."""
CHECKPOINT_WRITERS: Final = "writers"
WRITERS_WAIT_MAX: Final = timedelta(minutes=10)
WRITERS_LOOK_AGAIN: Final = timedelta(seconds=2)


def call_native(cleanup: Cleanup) -> NativeResult | None:
    """Let the cluster's function do it; None: it would lose something by now, and nobody insisted on it.

    Raises: UnconfirmedWouldGo, ClusterLocked, other errors of the target. JobWaiting: sessions from before a
        switch may still write; JobFailed: they did not end in WRITERS_WAIT_MAX.
    """
    context, claimed = cleanup.context, cleanup.claimed
    assert claimed is not None, "nothing is removed without a claim"
    unit = NativeUnit(
        job_id=context.job.id,
        token=context.job.token,
        resource=claimed.resource,
        has_ledger=claimed.has_ledger,
        confirmed_before=cleanup.confirmed_before,
        statement_timeout_ms=CALL_MAX_MS,
    )
    try:
        return run_native(cleanup.conn, cleanup.catalog, unit)
    except UnconfirmedWouldGo as error:
        if cleanup.params.via is not CleanupVia.NATIVE:
            return None
        if isinstance(error, LogStillWritten):
            raise _wait_for_writers(cleanup, error) from error
        raise


def _wait_for_writers(cleanup: Cleanup, error: LogStillWritten) -> Exception:
    context = cleanup.context
    now = context.clock.now()
    known = context.checkpoint(CHECKPOINT_WRITERS)
    if known is None:
        known = {"since": now.isoformat()}
        context.save_checkpoint(CHECKPOINT_WRITERS, known)
    if now - datetime.fromisoformat(known["since"]) > WRITERS_WAIT_MAX:
        detail = f"{error.detail}; waited {WRITERS_WAIT_MAX} for them"
        return JobFailed(error.code, detail, retryable=True)
    shown = [
        WaitingOn(kind="OLD_TRANSACTION", ref=session_text(item)[:REF_MAX_CHARS])
        for item in error.writers[:SHOWN_MAX]
    ]
    if not shown:  # they have ended since, or are hidden
        shown = [WaitingOn(kind="OLD_TRANSACTION", ref=error.detail[:REF_MAX_CHARS])]
    return JobWaiting(shown, not_before=now + WRITERS_LOOK_AGAIN, detail=error.detail)
