"""One schedule that is due: its row, the row of the due time and the job, in one transaction.

Rules:
- a due time is fired once: its row is unique, and written with the job that it makes or with its refusal. One
  that comes again after the clock was put back is passed over, and what became of it stays to be seen;
- a crash before the commit leaves all as it was: the next look, of any instance, fires it;
- a schedule that cannot have its job says why, and comes again at its next time;
- a store is locked before its schedule, as by whoever removes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.jobs.errors import QueueFull
from app.jobs.rows import Job
from app.jobs.states import TERMINAL
from app.schedules.models import Outcome
from app.schedules.rows import Schedule, ScheduleFiring
from app.schedules.rules import ScheduleOverlap
from app.schedules.service import set_next, timing_of
from app.schedules.submitting import BUSY, fire_job, writer_of
from app.settings import Settings
from app.stores.rows import Store, is_suspended

QUEUED_AGAIN: Final = timedelta(seconds=30)
"""How often one that is queued looks whether its last job has ended."""
FIRED_MAX: Final = 10_000
DETAIL_MAX_CHARS: Final = 500
logger = structlog.get_logger("lethe.schedules")


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of a due time."""

    outcome: Outcome
    detail: str | None = None
    job: Job | None = None


def fired_since(db: Session, schedule_id: str, since: datetime) -> set[datetime]:
    """The due times from an instant on that were fired: some only where the clock was put back."""
    query = select(ScheduleFiring.due_at).where(
        ScheduleFiring.schedule_id == schedule_id, col(ScheduleFiring.due_at) >= since
    )
    return set(db.exec(query.order_by(col(ScheduleFiring.due_at)).limit(FIRED_MAX)).all())


@dataclass(frozen=True, slots=True)
class Firing:
    """Fires schedules.

    Args:
        changed: told of each job that is made, and of its store.
    """

    database: Database
    settings: Settings
    changed: Callable[[str], None] = lambda _: None

    def fire(self, schedule_id: str, *, now: datetime, there_since: datetime) -> str | None:
        """Do what a schedule is due for, unless another instance has; returns its job.

        Args:
            there_since: what came due from then on is not late: it was looked ever since.
        """
        try:
            return self._fire_once(schedule_id, now=now, there_since=there_since)
        except (MetadataUnavailable, MetadataBusy):
            raise
        except Exception as error:
            logger.exception("a schedule could not be fired", schedule=schedule_id)
            detail = f"INTERNAL: an unexpected error: {type(error).__name__}; the log of the service has it"
            known = Fired(Outcome.REFUSED, detail)
        return self._fire_once(schedule_id, now=now, there_since=there_since, known=known)

    def _fire_once(
        self, schedule_id: str, *, now: datetime, there_since: datetime, known: Fired | None = None
    ) -> str | None:
        """Fire in one transaction, or note what is known to become of it."""
        with self.database.transaction() as db:
            row = _locked(db, schedule_id)
            if row is None or row.next_at is None or row.next_at > now:
                return None
            fired = self._do(db, row, now=now, there_since=there_since, known=known)
            store = row.store
        if fired is None or fired.job is None:
            return None
        self.changed(fired.job.id)
        if store is not None:
            self.changed(store)
        return fired.job.id

    def _do(
        self, db: Session, row: Schedule, *, now: datetime, there_since: datetime, known: Fired | None
    ) -> Fired | None:
        timing = timing_of(row)
        first = row.queued_due or row.next_due
        assert first is not None, "what is looked at has a due time"
        before = fired_since(db, row.id, min(first, now - timing.offset))
        decision = timing.decide(first, now, there_since=there_since, fired=before)
        due = row.queued_due or decision.due
        if row.queued_due is None and due in before:
            set_next(row, timing.next_due(now, fired=before), now=now)
            db.add(row)
            return None
        if row.queued_due is not None or decision.fires:
            fired = known or self._fire(db, row, now=now)
        else:
            fired = Fired(Outcome.SKIPPED_MISSED, "nobody was there in time; `missed` says SKIP")
        if fired.outcome is Outcome.QUEUED:
            row.queued_due = due
            row.next_at = now + QUEUED_AGAIN
            row.reckoned_at = now
        else:
            if fired.outcome is not Outcome.SKIPPED_MISSED:
                job_id = None if fired.job is None else fired.job.id
                db.add(
                    ScheduleFiring(
                        schedule_id=row.id, due_at=due, fired_at=now, outcome=fired.outcome, job_id=job_id
                    )
                )
            row.queued_due = None
            set_next(row, timing.next_due(now, fired={*before, due}), now=now)
        self._note(db, row, fired, due=due, now=now)
        db.add(row)
        db.flush()
        return fired

    def _fire(self, db: Session, row: Schedule, *, now: datetime) -> Fired:
        is_queue = row.overlap == ScheduleOverlap.QUEUE
        last = None if row.last_job_id is None else db.get(Job, row.last_job_id)
        if last is not None and last.state not in TERMINAL:
            detail = f"its last job {last.id} is {last.state}"
            return Fired(Outcome.QUEUED if is_queue else Outcome.SKIPPED_RUNNING, detail)
        store = None if row.store is None else db.get(Store, row.store)
        if store is not None and is_suspended(store, now=now):
            return Fired(Outcome.SKIPPED_SUSPENDED, store.suspended_reason)
        try:
            caller = writer_of(db, row, now=now)
            job = fire_job(db, row, caller=caller, settings=self.settings, now=now)
        except QueueFull as error:  # it says nothing of the schedule, and passes
            return Fired(Outcome.QUEUED, error.detail)
        except BUSY as error:
            return Fired(Outcome.QUEUED if is_queue else Outcome.SKIPPED_RUNNING, error.detail)
        except ServiceError as error:
            return Fired(Outcome.REFUSED, _told(error))
        return Fired(Outcome.SUBMITTED, job=job)

    def _note(self, db: Session, row: Schedule, fired: Fired, *, due: datetime, now: datetime) -> None:
        """Show what became of it; a refusal that says the same as the one before is not audited again."""
        detail = None if fired.detail is None else fired.detail[:DETAIL_MAX_CHARS]
        is_new = (row.last_outcome, row.last_detail) != (fired.outcome, detail)
        row.last_due, row.last_at = due, now
        row.last_outcome, row.last_detail = fired.outcome, detail
        if fired.job is not None:
            row.last_job_id = fired.job.id
        facts = {"verb": row.verb, "due": due.isoformat(), "outcome": fired.outcome, "detail": detail}
        if fired.outcome is Outcome.REFUSED and is_new:
            logger.warning("schedule refused", schedule=row.id, store=row.store, **facts)
            db.add(_audit(row, Action.SCHEDULE_REFUSE, facts, now=now))
        elif fired.job is not None:
            logger.info("schedule fired", schedule=row.id, store=row.store, job_id=fired.job.id, **facts)
            db.add(_audit(row, Action.SCHEDULE_FIRE, facts | {"job_id": fired.job.id}, now=now))


def _locked(db: Session, schedule_id: str) -> Schedule | None:
    """The row, behind that of its store; None: it is gone, or somebody else has it at this moment."""
    store = db.exec(select(Schedule.store).where(Schedule.id == schedule_id)).first()
    if store is not None:
        db.get(Store, store, with_for_update=True)
    return db.get(Schedule, schedule_id, with_for_update={"skip_locked": True})


def _told(error: ServiceError) -> str:
    faults = "; ".join(f"{fault['pointer']}: {fault['detail']}" for fault in error.errors)
    return f"{error.code}: {error.detail}" + (f" ({faults})" if faults else "")


def _audit(row: Schedule, action: Action, facts: dict[str, str | None], *, now: datetime) -> AuditEvent:
    return audited(
        action,
        ("schedule", row.id),
        at=now,
        actor=row.created_by,
        token_id=row.token_id,
        store=row.store,
        detail=facts,
    )
