"""How long a job may wait for one thing, and what becomes of one that waits longer.

Rules:
- a wait is what the row says: one cause, since `waiting_since`; what somebody has planned has no deadline;
- a job is woken at its deadline at the latest. It looks first, and is judged when it would wait again; one
  that is held up while it runs is judged by the control loop, and stopped at a safe point;
- one in the queue is woken by nobody: the looks of each minute judge it (app/hooks/looks); it never fails;
- where `job.wait.fails` is set it FAILS with WAITED_TOO_LONG after the proof of silence, as with any error,
  and gives its claims back; what waits for an order, a pause or an abort never fails so;
- else its wait is marked and told to webhooks in one transaction, once, and the overview shows it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from sqlmodel import Session, col, select

from app.db import Database, after_commit
from app.jobs.counting import CAUSE_MAX_CHARS, QUEUED
from app.jobs.errors import JobFailed
from app.jobs.queries import get_job
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.running.waits import MARK, NEVER_FAILS, PLANNED, wait_facts
from app.jobs.states import JobState
from app.kit.durations import format_duration
from app.outbox.facts import Fact
from app.outbox.writing import hooks_without_a_time, tell
from app.parameters.service import effective_among, effective_by_name, global_values
from app.parameters.spec import as_timedelta
from app.stores.rows import Store

WAIT_MAX: Final = "job.wait.max"
WAIT_FAILS: Final = "job.wait.fails"
WAITED_TOO_LONG: Final = "WAITED_TOO_LONG"
REF_MAX_CHARS: Final = 200
A_DAY: Final = timedelta(days=1)
AN_HOUR: Final = timedelta(hours=1)
"""Of kinds whose answer somebody waits for."""
logger = structlog.get_logger("lethe.jobs")


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the wait of a job becomes too long.

    Attributes:
        since: when it began.
        at: from then on it is late.
        fails: what is late fails, rather than being told.
    """

    cause: str
    since: datetime
    at: datetime
    fails: bool

    def failure(self, waiting_on: Sequence[dict[str, Any]], detail: str, *, now: datetime) -> JobFailed:
        """The end of a job that is late: what it waited for, and what to do."""
        refs = ", ".join(f"{item['kind']} {item['ref']}".strip() for item in waiting_on)[:REF_MAX_CHARS]
        waited = format_duration(timedelta(seconds=int((now - self.since).total_seconds())))
        most = format_duration(self.at - self.since)
        met = f" ({detail})" if detail and detail not in refs else ""
        told = (
            f"it has waited {waited} for {refs or self.cause}{met}, longer than {most} ({WAIT_MAX});"
            f" `lethe explain {self.cause}` says what to do about that, then retry the job"
        )
        return JobFailed(WAITED_TOO_LONG, told, retryable=True)


def deadline_of(
    db: Session, job: Job, cause: str | None, *, most: timedelta | None, now: datetime
) -> Deadline | None:
    """The deadline of a job that waits for a cause; None: it has none.

    Args:
        cause: of its wait from now on; it is the wait of its row where that has the same.
        most: the default of its kind; None: its kind has a deadline of its own.
    """
    if most is None or cause is None or cause in PLANNED:
        return None
    store = None if job.store is None else db.get(Store, job.store)
    values = {} if store is None else store.parameters
    set_to = effective_by_name(db, WAIT_MAX, values)
    span = most if set_to.source == "DEFAULT" else as_timedelta(set_to.value)
    fails = effective_by_name(db, WAIT_FAILS, values).value is True and cause not in NEVER_FAILS
    is_same = job.waiting_cause == cause and job.waiting_since is not None
    since = job.waiting_since if is_same and job.waiting_since is not None else now
    return Deadline(cause, since, since + span, fails)


def cause_of(waiting_on: Sequence[dict[str, Any]]) -> str | None:
    """What a wait is counted as; None: it says nothing."""
    return str(waiting_on[0]["kind"])[:CAUSE_MAX_CHARS] if waiting_on else None


def note_late(db: Session, job_id: str, deadline: Deadline, *, now: datetime) -> None:
    """Mark the wait of a job as late and tell of it, once; after the wait was written.

    Nothing is told where its wait is another one by now, or somebody changes the job at this moment.
    """
    query = select(Job).where(Job.id == job_id).with_for_update(skip_locked=True)
    job = db.exec(query.execution_options(populate_existing=True)).one_or_none()
    if job is None or not _is_of(deadline, job) or _is_marked(db, job):
        return
    db.merge(JobCheckpoint(job_id=job_id, name=MARK, value={"cause": deadline.cause}, at=now))
    db.flush()
    facts = wait_facts(job)
    hooks = hooks_without_a_time(db, job.store)
    tell(db, Fact.JOB_WAITS_LONG, store=job.store, subject=f"jobs/{job_id}", data=facts, now=now, only=hooks)
    after_commit(db, partial(logger.warning, "job waits too long", **facts))


def _is_of(deadline: Deadline, job: Job) -> bool:
    """Whether a deadline is of the wait that the row shows."""
    is_same = (job.waiting_cause, job.waiting_since) == (deadline.cause, deadline.since)
    return is_same and (deadline.cause == QUEUED) == (job.state == JobState.QUEUED)


def queue_spans(db: Session, stores: Collection[str | None]) -> dict[str | None, timedelta]:
    """How long jobs of these stores may stand in the queue."""
    values = global_values(db)
    named = sorted(store for store in stores if store is not None)
    query = select(Store.id, col(Store.parameters)).where(col(Store.id).in_(named))
    own = dict(db.exec(query).all())
    of_store = {store: {} if store is None else own.get(store, {}) for store in stores}
    return {name: as_timedelta(effective_among(values, WAIT_MAX, each)) for name, each in of_store.items()}


def _is_marked(db: Session, job: Job) -> bool:
    mark = db.get(JobCheckpoint, (job.id, MARK))
    return mark is not None and job.waiting_since is not None and mark.at >= job.waiting_since


def look_at_held_up(database: Database, job_id: str, *, most: timedelta | None) -> JobFailed | None:
    """Look at a job that runs and is held up: how it fails where it is late and fails, else it is marked.

    Raises: MetadataUnavailable, MetadataBusy.
    """
    with database.reading() as db:
        job, now = get_job(db, job_id), database.now(db)
        shown = list(job.waiting_on)
        deadline = deadline_of(db, job, cause_of(shown), most=most, now=now)
        if deadline is None or now < deadline.at:
            return None
        is_known = _is_marked(db, job)
    if deadline.fails:
        return deadline.failure(shown, "", now=now)
    if not is_known:
        with database.transaction() as db:
            note_late(db, job_id, deadline, now=database.now(db))
    return None
