"""The looks of each minute: jobs that wait for long, and successes that are overdue.

Rules:
- where no webhook asks, nothing but the table of webhooks and the oldest of the queue is read; several
  instances may look at once;
- jobs in the queue are judged by `job.wait.max` here, as nothing wakes them, with or without a webhook; of
  each store the oldest few alone are told at once: what keeps them waiting keeps all;
- a wait is what the job's own row says, and told where nobody has planned it (app/jobs/running/waits): a job
  that wakes to look again still waits, one that has gained something does not, and one that works is told
  when it waits again;
- waits are found by the index of `waiting_since`, piece by piece: their number hides none;
- what is told, and that it was told, is one transaction; each piece has its own.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, exists, func, literal, or_, text, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from app.db import Database
from app.jobs.counting import QUEUED
from app.jobs.rows import Job
from app.jobs.running.deadlines import Deadline, note_late, queue_spans
from app.jobs.running.waits import causes_of, is_marked_late, wait_facts, waits_unplanned
from app.jobs.states import JobState
from app.kit.instants import instant_text
from app.outbox.facts import Fact
from app.outbox.rows import Webhook, WebhookExpectation, WebhookWait
from app.outbox.writing import covers, tell
from app.stores.rows import Store

LOOK_EVERY_S: Final = 60.0
PIECE: Final = 500
TOLD_AT_ONCE: Final = 100
"""Of the queue, in one transaction."""
PIECES_MAX: Final = 2_000
OVERDUE_MAX: Final = 500
QUEUE_MIN: Final = timedelta(minutes=1)
"""The least that `job.wait.max` can be."""
QUEUE_OF_STORE_MAX: Final = 20
LOCK: Final = 0x6C657468655F6C6F
"""Of the look at waits, among PostgreSQL's advisory locks."""
CAUSE_MAX_CHARS: Final = 200


def look(database: Database) -> None:
    """Tell webhooks what is due to be told."""
    with database.reading() as db:
        hooks, is_any_queued = _hooks_and_queue(db)
    if is_any_queued:
        look_at_queue(database)
    asking = [hook for hook in hooks if hook.waits_longer_than is not None]
    if asking:
        with database.reading() as db:
            is_any = _is_any_long(db, asking, now=database.now(db))
        if is_any:
            look_at_waits(database, asking)
    if any(Fact.SUCCESS_OVERDUE in hook.events for hook in hooks):
        with database.transaction() as db:
            look_at_expectations(db, now=database.now(db))


def _hooks_and_queue(db: Session) -> tuple[list[Webhook], bool]:
    """The enabled webhooks, and whether anything stands in the queue: one statement, for an idle service."""
    queued = exists().where(col(Job.state) == JobState.QUEUED, col(Job.finished_at).is_(None))
    one = select(literal(1).label("one")).subquery()
    query = select(queued, Webhook).select_from(one)
    rows = db.execute(query.outerjoin(Webhook, col(Webhook.is_enabled).is_(True))).all()
    return [hook for _, hook in rows if hook is not None], bool(rows[0][0])


def look_at_queue(database: Database) -> None:
    """Mark and tell what no runner has taken for longer than its store lets it wait."""
    with database.reading() as db:
        late = _late_in_queue(db, now=database.now(db))
    for first in range(0, len(late), TOLD_AT_ONCE):
        with database.transaction() as db:
            now = database.now(db)
            for job_id, deadline in late[first : first + TOLD_AT_ONCE]:
                note_late(db, job_id, deadline, now=now)


def _unsaid() -> SelectOfScalar[str]:
    """Jobs in the queue whose rows do not say that they wait there: an older version has left them so."""
    says = and_(col(Job.waiting_cause) == QUEUED, col(Job.waiting_since).is_not(None))
    return select(Job.id).where(Job.state == JobState.QUEUED, or_(col(Job.waiting_cause).is_(None), ~says))


def say_queued(db: Session) -> None:
    """Let rows of an older version say that they wait in the queue, since they were written last.

    It reads the whole queue: with what is cleaned now and then, not with each look.
    """
    found = db.exec(_unsaid().order_by(col(Job.id)).limit(PIECE).with_for_update(skip_locked=True)).all()
    values = {"waiting_cause": QUEUED, "waiting_since": col(Job.updated_at), "waiting_on": []}
    change = update(Job).where(col(Job.id).in_(found)).values(**values)
    db.execute(change.execution_options(synchronize_session=False))


def _late_in_queue(db: Session, *, now: datetime) -> list[tuple[str, Deadline]]:
    """The oldest of each store that nobody has marked, where they are late; the next ones a minute later.

    Stores are judged before their jobs are read: no number of those that may wait hides one that may not.
    """
    old = and_(_in_queue(before=now - QUEUE_MIN), ~is_marked_late())
    oldest = db.exec(select(Job.store, func.min(Job.waiting_since)).where(old).group_by(col(Job.store))).all()
    spans = queue_spans(db, [store for store, _ in oldest])
    late_at = {store: since + spans[store] for store, since in oldest if since is not None}
    late = sorted((at, store or "") for store, at in late_at.items() if at <= now)[:PIECE]
    if not late:
        return []
    of_late = func.coalesce(col(Job.store), "").in_([store for _, store in late])
    ranked = select(Job.id, _place_in_queue().label("place")).where(old, of_late).subquery()
    query = select(Job).join(ranked, ranked.c.id == col(Job.id)).where(ranked.c.place <= QUEUE_OF_STORE_MAX)
    jobs = db.exec(query.order_by(ranked.c.place, col(Job.waiting_since)).limit(PIECE)).all()
    found = [(job.id, _deadline_in_queue(job, spans[job.store])) for job in jobs]
    return [(job_id, deadline) for job_id, deadline in found if deadline.at <= now]


def _deadline_in_queue(job: Job, span: timedelta) -> Deadline:
    assert job.waiting_since is not None, "selected by it"
    return Deadline(QUEUED, job.waiting_since, job.waiting_since + span, fails=False)


def _in_queue(*, before: datetime) -> ColumnElement[bool]:
    is_queued = and_(col(Job.state) == JobState.QUEUED, col(Job.waiting_cause) == QUEUED)
    return and_(is_queued, col(Job.waiting_since) <= before)


def _place_in_queue() -> ColumnElement[int]:
    """The place of a job in the queue of its store, from the oldest on."""
    return func.row_number().over(partition_by=Job.store, order_by=(col(Job.waiting_since), col(Job.id)))


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


def look_at_waits(database: Database, hooks: Sequence[Webhook]) -> int:
    """Tell webhooks of the waits that last too long for them, once each; returns how many were told."""
    with database.transaction(is_news=False) as db:
        if not _alone(db):
            return 0
        now = database.now(db)
        db.execute(delete(WebhookWait).where(~_goes_on()).execution_options(synchronize_session=False))
        # A version that is older by one takes what was not seen for minutes for over, and tells it again.
        db.execute(update(WebhookWait).values(seen_at=now).execution_options(synchronize_session=False))
    told = 0
    after: tuple[datetime, str] | None = None
    for _ in range(PIECES_MAX):
        with database.transaction() as db:
            if not _alone(db):
                break
            piece = _waiting(db, now - _shortest(hooks), after)
            told += _tell_piece(db, hooks, piece, now=now)
        if len(piece) < PIECE:
            break
        last, _ = piece[-1]
        assert last.waiting_since is not None, "selected by it"
        after = (last.waiting_since, last.id)
    return told


def _shortest(hooks: Sequence[Webhook]) -> timedelta:
    return min(hook.waits_longer_than for hook in hooks if hook.waits_longer_than is not None)


def _is_any_long(db: Session, hooks: Sequence[Webhook], *, now: datetime) -> bool:
    """Whether a look that writes may have to: a wait is long, or one that was told may be over."""
    is_long = exists().where(col(Job.waiting_since) <= now - _shortest(hooks), waits_unplanned())
    return bool(db.exec(select(or_(is_long, exists().where(col(WebhookWait.job_id).is_not(None))))).one())


def _alone(db: Session) -> bool:
    """Whether no other instance looks at this moment; SQLite has one writer."""
    if db.get_bind().dialect.name != "postgresql":
        return True
    return bool(db.execute(text("select pg_try_advisory_xact_lock(:n)"), {"n": LOCK}).scalar_one())


def _goes_on() -> ColumnElement[bool]:
    """Whether a wait that was told is still the one of its job."""
    return exists().where(
        col(Job.id) == col(WebhookWait.job_id), col(Job.waiting_since) == col(WebhookWait.since)
    )


def _waiting(
    db: Session, before: datetime, after: tuple[datetime, str] | None
) -> Sequence[tuple[Job, WebhookWait | None]]:
    """A piece of the jobs that have waited since then at least, with who knows; the longest wait first.

    Of the queue of each store the oldest few: the others stand behind them.
    """
    ranked = select(Job.id, _place_in_queue().label("place")).where(_in_queue(before=before)).subquery()
    oldest = select(ranked.c.id).where(ranked.c.place <= QUEUE_OF_STORE_MAX)
    is_shown = or_(col(Job.waiting_cause) != QUEUED, col(Job.id).in_(oldest))
    same = and_(col(WebhookWait.job_id) == col(Job.id), col(WebhookWait.since) == col(Job.waiting_since))
    query = select(Job, WebhookWait).outerjoin(WebhookWait, same)
    query = query.where(col(Job.waiting_since) <= before, waits_unplanned(), is_shown)
    if after is not None:
        since, job_id = after
        later = and_(col(Job.waiting_since) == since, col(Job.id) > job_id)
        query = query.where(col(Job.waiting_since) >= since, or_(col(Job.waiting_since) > since, later))
    query = query.order_by(col(Job.waiting_since), col(Job.id)).limit(PIECE)
    return db.exec(query.execution_options(populate_existing=True)).all()


def _tell_piece(
    db: Session,
    hooks: Sequence[Webhook],
    piece: Sequence[tuple[Job, WebhookWait | None]],
    *,
    now: datetime,
) -> int:
    labels = _labels_of(db, {job.store for job, _ in piece if job.store is not None})
    told = 0
    for job, known in piece:
        assert job.waiting_since is not None, "selected by it"
        waited = now - job.waiting_since
        wanting = [
            hook.id
            for hook in hooks
            if hook.waits_longer_than is not None
            and waited >= hook.waits_longer_than
            and (known is None or hook.id not in known.told)
            and covers(hook.stores, hook.labels, job.store, labels.get(job.store or "", {}))
        ]
        if wanting:
            _tell_wait(db, job, known, wanting, now=now)
            told += 1
    return told


def _labels_of(db: Session, stores: set[str]) -> dict[str, dict[str, str]]:
    rows = db.exec(select(Store.id, col(Store.labels)).where(col(Store.id).in_(sorted(stores)))).all()
    return {store: dict(labels) for store, labels in rows}


def _tell_wait(
    db: Session, job: Job, known: WebhookWait | None, hooks: Sequence[str], *, now: datetime
) -> None:
    assert job.waiting_since is not None, "selected by it"
    data = wait_facts(job)
    subject = f"jobs/{job.id}"
    tell(db, Fact.JOB_WAITS_LONG, store=job.store, subject=subject, data=data, now=now, only=hooks)
    cause = ",".join(causes_of(job))[:CAUSE_MAX_CHARS]
    row = known or WebhookWait(job_id=job.id, cause=cause, since=job.waiting_since, seen_at=now)
    row.told = [*row.told, *hooks]
    db.add(row)
    db.flush()
