"""What needs somebody first, over all stores, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Select, String, and_, case, cast, exists, func, literal, null, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from app.backups.rows import BackupSession, BackupState
from app.db import UtcDateTime
from app.erase.rows import ErasureCycle, ErasureFile, FileState
from app.figures.rows import Figure
from app.figures.sums import Name
from app.fleet.models import Attention, AttentionCode, Severity
from app.fleet.sight import Sight
from app.jobs.counting import QUEUED
from app.jobs.rows import Instance, Job
from app.jobs.running.waits import is_marked_late, waits_unplanned
from app.jobs.states import ACTIVE, JobState
from app.kit.texts.help import help_of
from app.replication.rows import Agreement, AgreementState, SessionOutcome
from app.stores.checks.rows import StoreHealth

SHOWN_DEFAULT: Final = 40
SHOWN_MAX: Final = 500
SURE_OF_EACH: Final = 3
"""So many of each code are shown before more of any: many of one hide no other."""
COUNTED_MAX: Final = 10_000
"""So many of a sort are counted."""
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


@dataclass(frozen=True, slots=True)
class Shown:
    """What of it is told one by one; it is counted whatever this says.

    Args:
        codes: none: all.
    """

    most: int = SHOWN_DEFAULT
    codes: Sequence[AttentionCode] = ()


def needs_somebody(
    db: Session, sight: Sight, limits: Limits, shown: Shown
) -> tuple[list[Attention], dict[AttentionCode, int]]:
    """What is to be looked at first: errors before warnings, the newest first; how many have each code."""
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
    found: list[tuple[int, Attention]] = []
    counts: dict[AttentionCode, int] = {}
    for *row, place, number in db.execute(_ranked(branches, shown)):
        each = _shown(*row)
        counts[each.code] = number
        if not shown.codes or each.code in shown.codes:
            found.append((place, each))
    found.sort(key=lambda one: (one[0] > SURE_OF_EACH, _order(one[1])))
    return sorted((each for _, each in found[: shown.most]), key=_order), counts


def _order(each: Attention) -> tuple[bool, float, str]:
    age = 0.0 if each.since is None else -each.since.timestamp()
    return each.severity != Severity.ERROR, age, each.subject


def _ranked(branches: Sequence[Select[Any]], shown: Shown) -> Select[Any]:
    """The newest of each code, with their place and how many of their code there are."""
    newest = [
        select(each.order_by(each.selected_columns.since.desc()).limit(COUNTED_MAX).subquery())
        for each in branches
    ]
    found = union_all(*newest).subquery()
    place = func.row_number().over(
        partition_by=found.c.code, order_by=(found.c.since.desc().nulls_last(), found.c.subject)
    )
    number = func.count().over(partition_by=found.c.code)
    ranked = select(found, place.label("place"), number.label("number")).subquery()
    most: Any = max(1, shown.most)
    if shown.codes:  # of the others one, which tells how many they are
        most = case((ranked.c.code.in_([str(each) for each in shown.codes]), most), else_=1)
    return select(ranked).where(ranked.c.place <= most)


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
    )


def _waits(sight: Sight, limits: Limits) -> Select[Any]:
    """Jobs that wait for longer than they should, for a runner too."""
    before = sight.now - limits.wait
    waits = and_(waits_unplanned(), or_(col(Job.waiting_since) <= before, is_marked_late()))
    is_queued = col(Job.state) == JobState.QUEUED
    # A version that is older leaves the queue without its times.
    unsaid = and_(is_queued, col(Job.waiting_since).is_(None), col(Job.updated_at) <= before)
    subject = literal("jobs/") + col(Job.id)
    since = func.coalesce(col(Job.waiting_since), col(Job.updated_at))
    cause = case((is_queued, QUEUED), else_=col(Job.waiting_cause))
    return _branch(AttentionCode.WAITS_LONG.value, col(Job.store), since, subject, cause).where(
        col(Job.state).in_(sorted(ACTIVE)), or_(waits, unsaid), sight.sees_job()
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
    )


def _unready(sight: Sight) -> Select[Any]:
    """Stores whose last check has found an error."""
    trouble = col(StoreHealth.trouble)
    restored = AttentionCode.REPLICA_RESTORED.value
    code = case((trouble == RESTORED, restored), else_=AttentionCode.STORE_UNREADY.value)
    subject = literal("stores/") + col(StoreHealth.store)
    return _branch(code, col(StoreHealth.store), col(StoreHealth.trouble_since), subject, trouble).where(
        trouble.is_not(None), sight.sees(StoreHealth.store)
    )


def _stale(sight: Sight) -> Select[Any]:
    """Stores that nobody has looked at for too long."""
    subject = literal("stores/") + col(StoreHealth.store)
    return _branch(
        AttentionCode.CHECK_STALE.value,
        col(StoreHealth.store),
        col(StoreHealth.checked_at),
        subject,
        null(),
    ).where(col(StoreHealth.stale_at) <= sight.now, sight.sees(StoreHealth.store))


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
    )
