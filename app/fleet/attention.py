"""What needs somebody first, over all stores, in one statement."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Select, String, and_, case, cast, exists, literal, null, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from app.backups.rows import BackupSession, BackupState
from app.db import UtcDateTime
from app.erase.rows import ErasureCycle, ErasureFile, FileState
from app.figures.rows import Figure
from app.figures.sums import Name
from app.fleet.models import Attention, AttentionCode, Severity
from app.fleet.sight import Sight
from app.jobs.rows import Instance, Job
from app.jobs.running.waits import is_marked_late, waits_unplanned
from app.jobs.states import ACTIVE, JobState
from app.kit.texts.help import help_of
from app.replication.rows import Agreement, AgreementState, SessionOutcome
from app.stores.checks.rows import StoreHealth

SHOWN_MAX: Final = 40
EACH_MAX: Final = 100
REMEMBERED: Final = timedelta(days=7)
"""What failed longer ago needs nobody first."""
RESTORED: Final = "REPLICA_RESTORED"
WARNINGS: Final = frozenset(
    {AttentionCode.WAITS_LONG, AttentionCode.CHECK_STALE, AttentionCode.INSTANCE_SILENT}
)
OUTCOMES: Final = {
    SessionOutcome.HALTED: AttentionCode.SESSION_HALTED,
    SessionOutcome.NEEDS_TOTAL: AttentionCode.SESSION_NEEDS_TOTAL,
    SessionOutcome.UNPROVEN: AttentionCode.SESSION_UNPROVEN,
    SessionOutcome.DIVERGED: AttentionCode.SESSION_DIVERGED,
}
OVER: Final = (BackupState.INVALID, BackupState.EXPIRED, BackupState.FAILED)


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something needs somebody.

    Args:
        wait: how long a job may wait, or be queued.
        heartbeat: how long an instance may be silent.
    """

    wait: timedelta
    heartbeat: timedelta


def needs_somebody(db: Session, sight: Sight, limits: Limits) -> tuple[list[Attention], int]:
    """What is to be looked at first, and how much there is of it."""
    branches = [
        _failed(sight),
        _waits(sight, limits),
        _backups(sight),
        _sessions(sight),
        _erasures(sight),
        _unready(sight),
        _stale(sight),
        _silent(sight, limits),
    ]
    rows = db.execute(union_all(*(select(each.limit(EACH_MAX).subquery()) for each in branches))).all()
    found = [_shown(*row) for row in rows]
    found.sort(key=lambda each: (each.severity != Severity.ERROR, each.since or sight.now, each.subject))
    return found[:SHOWN_MAX], len(found)


def _shown(
    code: str, store: str | None, since: datetime | None, subject: str, detail: str | None
) -> Attention:
    known = AttentionCode(code)
    severity = Severity.WARNING if known in WARNINGS else Severity.ERROR
    return Attention(
        code=known,
        severity=severity,
        store=store,
        since=since,
        subject=subject,
        detail=detail or "",
        help=help_of(code),
    )


def _branch(code: Any, store: Any, since: Any, subject: Any, detail: Any) -> Select[Any]:
    """One sort, in the columns of all."""
    return select(
        cast(literal(code) if isinstance(code, str) else code, String).label("code"),
        cast(store, String).label("store"),
        cast(since, UtcDateTime).label("since") if since is None else since.label("since"),
        cast(subject, String).label("subject"),
        cast(detail, String).label("detail"),
    )


def _failed(sight: Sight) -> Select[Any]:
    """Jobs that failed, were not retried, and whose verb has not succeeded there since."""
    again = aliased(Job)
    retried = exists().where(col(again.retried_from) == col(Job.id))
    done_since = exists().where(
        col(Figure.name) == Name.LAST_SUCCESS.value,
        col(Figure.store) == col(Job.store),
        col(Figure.label) == col(Job.kind),
        col(Figure.at) > col(Job.finished_at),
    )
    unproven = and_(col(Job.silence_proved).is_(False), col(Job.fenced_off_at).is_(None))
    code = case((unproven, AttentionCode.SILENCE_UNPROVEN.value), else_=AttentionCode.JOB_FAILED.value)
    subject = literal("jobs/") + col(Job.id)
    failed = col(Job.state) == JobState.FAILED
    ended = or_(failed, and_(col(Job.state) == JobState.ABANDONED, unproven))
    return (
        _branch(code, col(Job.store), col(Job.finished_at), subject, col(Job.error)["code"].as_string())
        .where(col(Job.finished_at) > sight.now - REMEMBERED, ended, sight.sees_job())
        .where(or_(unproven, and_(~retried, ~done_since)))
        .order_by(col(Job.finished_at).desc())
    )


def _waits(sight: Sight, limits: Limits) -> Select[Any]:
    """Jobs that wait for longer than they should, or stand in the queue."""
    before = sight.now - limits.wait
    waits = and_(waits_unplanned(), or_(col(Job.waiting_since) <= before, is_marked_late()))
    is_due = or_(col(Job.not_before).is_(None), col(Job.not_before) <= before)
    queued = and_(col(Job.state) == JobState.QUEUED, col(Job.created_at) <= before, is_due)
    since = case((col(Job.waiting_since).is_not(None), col(Job.waiting_since)), else_=col(Job.created_at))
    detail = case((col(Job.waiting_cause).is_not(None), col(Job.waiting_cause)), else_=literal("QUEUED"))
    subject = literal("jobs/") + col(Job.id)
    return (
        _branch(AttentionCode.WAITS_LONG.value, col(Job.store), since, subject, detail)
        .where(col(Job.state).in_(sorted(ACTIVE)), or_(waits, queued), sight.sees_job())
        .order_by(col(Job.id))
    )


def _backups(sight: Sight) -> Select[Any]:
    """Backups that hold nothing, with no good one of the same store and label since."""
    later = aliased(BackupSession)
    same_label = or_(
        col(later.label) == col(BackupSession.label),
        and_(col(later.label).is_(None), col(BackupSession.label).is_(None)),
    )
    good_since = exists().where(
        col(later.store) == col(BackupSession.store),
        col(later.state) == BackupState.ENDED,
        col(later.id) > col(BackupSession.id),
        same_label,
    )
    subject = (
        literal("stores/") + col(BackupSession.store) + literal("/backup-sessions/") + col(BackupSession.id)
    )
    return (
        _branch(
            AttentionCode.BACKUP_INVALID.value,
            col(BackupSession.store),
            col(BackupSession.ended_at),
            subject,
            col(BackupSession.state),
        )
        .where(col(BackupSession.state).in_(OVER), col(BackupSession.ended_at) > sight.now - REMEMBERED)
        .where(~good_since, sight.sees(BackupSession.store))
        .order_by(col(BackupSession.id).desc())
    )


def _sessions(sight: Sight) -> Select[Any]:
    """Agreements whose last session has ended so that somebody must decide."""
    outcome = col(Agreement.last_outcome)
    code = case(*((outcome == str(end), named.value) for end, named in OUTCOMES.items()), else_="")
    subject = literal("stores/") + col(Agreement.store) + literal("/agreements/") + col(Agreement.id)
    return (
        _branch(code, col(Agreement.store), col(Agreement.last_ended_at), subject, col(Agreement.last_code))
        .where(col(Agreement.state) != AgreementState.REMOVED, outcome.in_([str(end) for end in OUTCOMES]))
        .where(sight.sees(Agreement.store))
        .order_by(col(Agreement.id))
    )


def _erasures(sight: Sight) -> Select[Any]:
    """Cycles with files of which nobody can say what is in them."""
    unproven = exists().where(
        col(ErasureFile.cycle_id) == col(ErasureCycle.id), col(ErasureFile.state) == FileState.UNPROVEN
    )
    of_store = literal("stores/") + col(ErasureCycle.store)
    subject = of_store + literal("/erasure-cycles/") + col(ErasureCycle.id)
    return (
        _branch(
            AttentionCode.ERASURE_UNPROVEN.value,
            col(ErasureCycle.store),
            col(ErasureCycle.created_at),
            subject,
            literal("UNPROVEN"),
        )
        .where(col(ErasureCycle.created_at) > sight.now - REMEMBERED, unproven)
        .where(sight.sees(ErasureCycle.store))
        .order_by(col(ErasureCycle.id).desc())
    )


def _unready(sight: Sight) -> Select[Any]:
    """Stores whose last check has found an error."""
    trouble = col(StoreHealth.trouble)
    restored = AttentionCode.REPLICA_RESTORED.value
    code = case((trouble == RESTORED, restored), else_=AttentionCode.STORE_UNREADY.value)
    subject = literal("stores/") + col(StoreHealth.store)
    return (
        _branch(code, col(StoreHealth.store), col(StoreHealth.trouble_since), subject, trouble)
        .where(trouble.is_not(None), sight.sees(StoreHealth.store))
        .order_by(col(StoreHealth.store))
    )


def _stale(sight: Sight) -> Select[Any]:
    """Stores that nobody has looked at for too long."""
    subject = literal("stores/") + col(StoreHealth.store)
    return (
        _branch(
            AttentionCode.CHECK_STALE.value,
            col(StoreHealth.store),
            col(StoreHealth.checked_at),
            subject,
            null(),
        )
        .where(col(StoreHealth.stale_at) <= sight.now, sight.sees(StoreHealth.store))
        .order_by(col(StoreHealth.store))
    )


def _silent(sight: Sight, limits: Limits) -> Select[Any]:
    """Instances that have gone without a word; of the service itself, so nothing for a limited token."""
    heard = col(Instance.heartbeat_at)
    return (
        _branch(
            AttentionCode.INSTANCE_SILENT.value,
            null(),
            heard,
            literal("instances/") + col(Instance.id),
            col(Instance.hostname),
        )
        .where(col(Instance.stopped_at).is_(None), heard <= sight.now - limits.heartbeat)
        .where(heard > sight.now - REMEMBERED, sight.sees_instances())
        .order_by(col(Instance.id))
    )
