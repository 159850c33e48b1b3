"""The looks of each minute: jobs that wait for long, and successes that are overdue.

Rules:
- where no webhook asks, nothing but the table of webhooks is read; several instances may look at once;
- a wait is one as long as its cause is the same and no WAIT_ENDS_AFTER passes in which no look sees it: a job
  that wakes to look again still waits;
- what is told, and that it was told, is one transaction.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, or_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.instants import instant_text
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookExpectation, WebhookWait
from app.outbox.writing import covers, tell
from app.stores.rows import Store

LOOK_EVERY_S: Final = 60.0
WAIT_ENDS_AFTER: Final = timedelta(minutes=3)
WAITS_MAX: Final = 2_000
OVERDUE_MAX: Final = 500
WAITING: Final = (JobState.WAITING, JobState.PAUSING, JobState.ABORTING)
"""The last two wait where the silence of their target is not proved."""
CAUSE_MAX_CHARS: Final = 200


def look(database: Database) -> None:
    """Tell webhooks what is due to be told."""
    with database.reading() as db:
        hooks = db.exec(select(Webhook).where(col(Webhook.is_enabled).is_(True))).all()
    asking = [hook for hook in hooks if hook.waits_longer_than is not None]
    if asking:
        with database.transaction() as db:
            look_at_waits(db, asking, now=database.now(db))
    if any(Fact.SUCCESS_OVERDUE in hook.events for hook in hooks):
        with database.transaction() as db:
            look_at_expectations(db, now=database.now(db))


def look_at_expectations(db: Session, *, now: datetime) -> int:
    """Tell each webhook of the successes that it misses, once; returns how many."""
    rows = db.exec(
        select(WebhookExpectation)
        .join(Webhook, col(Webhook.id) == col(WebhookExpectation.webhook_id))
        .where(col(WebhookExpectation.due_at) <= now, col(Webhook.is_enabled).is_(True))
        .order_by(col(WebhookExpectation.webhook_id), col(WebhookExpectation.store))
        .limit(OVERDUE_MAX)
        .with_for_update(skip_locked=True, of=WebhookExpectation)
    ).all()
    for row in rows:
        last = None if row.last_success_at is None else instant_text(row.last_success_at)
        data = {
            "store": row.store,
            "kind": row.kind,
            "within_s": int(row.within.total_seconds()),
            "last_success_at": last,
        }
        subject = f"stores/{row.store}"
        only = [row.webhook_id]
        tell(db, Fact.SUCCESS_OVERDUE, store=row.store, subject=subject, data=data, now=now, only=only)
        row.due_at = None
        db.add(row)
    return len(rows)


def look_at_waits(db: Session, hooks: Sequence[Webhook], *, now: datetime) -> int:
    """Tell webhooks of the waits that last too long for them, once each; returns how many were told."""
    jobs = _waiting(db)
    seen = {job.id: _cause(job) for job in jobs}
    _remember(db, jobs, seen, now=now)
    db.execute(delete(WebhookWait).where(col(WebhookWait.seen_at) < now - WAIT_ENDS_AFTER))
    rows = db.exec(
        select(WebhookWait)
        .where(col(WebhookWait.seen_at) == now)
        .order_by(col(WebhookWait.job_id))
        .with_for_update()
    ).all()
    known = {job.id: job for job in jobs}
    labels = _labels_of(db, {job.store for job in jobs if job.store is not None})
    told = 0
    for row in rows:
        job = known[row.job_id]
        wanting = [
            hook.id
            for hook in hooks
            if hook.id not in row.told
            and hook.waits_longer_than is not None
            and now - row.since >= hook.waits_longer_than
            and covers(hook.stores, hook.labels, job.store, labels.get(job.store or "", {}))
        ]
        if wanting:
            _tell_wait(db, job, row, wanting, now=now)
            told += 1
    return told


def _waiting(db: Session) -> Sequence[Job]:
    query = select(Job).where(col(Job.state).in_(WAITING)).order_by(col(Job.updated_at)).limit(WAITS_MAX)
    jobs = [job for job in db.exec(query).all() if job.waiting_on]
    return sorted(jobs, key=lambda job: job.id)  # one order for all who lock many rows


def _cause(job: Job) -> str:
    """What a job waits for: the kinds, without what changes from look to look."""
    return ",".join(sorted({str(item["kind"]) for item in job.waiting_on}))[:CAUSE_MAX_CHARS]


def _remember(db: Session, jobs: Sequence[Job], causes: dict[str, str], *, now: datetime) -> None:
    """Note what was seen; a wait for something else, or after a pause, is another one."""
    insert = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    for job in jobs:
        cause = causes[job.id]
        other = or_(col(WebhookWait.cause) != cause, col(WebhookWait.seen_at) < now - WAIT_ENDS_AFTER)
        fresh: dict[str, Any] = {"cause": cause, "since": min(job.updated_at, now), "told": []}
        mine = col(WebhookWait.job_id) == job.id
        quiet = {"synchronize_session": False}
        db.execute(update(WebhookWait).where(mine, other).values(**fresh).execution_options(**quiet))
        row = insert(WebhookWait).values(job_id=job.id, seen_at=now, **fresh)
        db.execute(row.on_conflict_do_update(index_elements=["job_id"], set_={"seen_at": now}))
    db.expire_all()


def _labels_of(db: Session, stores: set[str]) -> dict[str, dict[str, str]]:
    rows = db.exec(select(Store.id, col(Store.labels)).where(col(Store.id).in_(sorted(stores)))).all()
    return {store: dict(labels) for store, labels in rows}


def _tell_wait(db: Session, job: Job, row: WebhookWait, hooks: Sequence[str], *, now: datetime) -> None:
    data = {
        "job_id": job.id,
        "kind": job.kind,
        "store": job.store,
        "state": str(job.state),
        "waiting_on": row.cause.split(","),
        "waits_since": instant_text(row.since),
    }
    subject = f"jobs/{job.id}"
    tell(db, Fact.JOB_WAITS_LONG, store=job.store, subject=subject, data=data, now=now, only=hooks)
    row.told = [*row.told, *hooks]
    db.add(row)
    db.flush()
