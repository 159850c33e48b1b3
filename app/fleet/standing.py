"""What the stores of one page stand at: work, backups, lags, verbs; a statement each, however many stores."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import JSON, Float, case, cast, func, literal, null, or_, select, union_all
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from app.auth.rows import Token
from app.backups.rows import BackupSession, BackupState
from app.db import UtcDateTime
from app.erase.rows import ErasureCycle, ErasureStore
from app.erase.service import JOB_ERASURE
from app.events.cleanup.models import JOB_CLEANUP
from app.events.lags import NEVER
from app.figures.rows import Figure
from app.figures.sums import SEPARATOR, Name
from app.fleet.models import LagRead, RunningBackup, RunningRead, VerbRead
from app.fleet.sight import Sight
from app.jobs.counting import QUEUED
from app.jobs.models import read_bounds
from app.jobs.rows import Job
from app.jobs.states import ACTIVE, HELD, JobState
from app.metrics.stores import lags_of
from app.replication.agreements.sessions.service import JOB_SESSION
from app.replication.rows import Agreement, AgreementState, ReplicaOwn, ReplicationSession
from app.schedules.rows import Schedule
from app.sweeps.purging import JOB_PURGE
from app.sweeps.rows import SweepTick

WORK_MAX: Final = 3
RUNNING_MAX: Final = 40
"""So many jobs that run are told of, wherever they are."""
RUNNING: Final = 0
"""The place of those; places in a store begin with 1."""
BATCHES_MAX: Final = 10
BACKUPS_MAX: Final = 200
BACKUPS_OF_STORE_MAX: Final = 3
AGREEMENTS_MAX: Final = 1_000
DUE_MAX: Final = 2_000
REF_MAX_CHARS: Final = 80
BATCHES: Final = ""
"""Under this name stand the jobs of no store."""
OWN_KIND: Final = frozenset({JOB_CLEANUP})
"""Ticks whose kind is that of their job; the others are kinds of purges."""


@dataclass(frozen=True, slots=True)
class Work:
    """Jobs that have not ended.

    Attributes:
        of_stores: a few of each store of a page: those that run, then those that wait longest.
        running: those that run, of all stores, the oldest first; a few.
    """

    of_stores: Mapping[str, list[RunningRead]]
    running: list[RunningRead]


def work_of(db: Session, sight: Sight, stores: Sequence[str]) -> Work:
    """What is done for the stores of a page, and what runs anywhere: one statement."""
    columns = ("id", "store", "kind", "state", "created_at", "started_at", "waiting_since", "waiting_on")
    shown = [*(getattr(Job, name) for name in columns), col(Job.not_before), col(Job.progress)]
    shown.append(col(Job.throttle_effective))
    since = func.coalesce(col(Job.waiting_since), col(Job.created_at))
    place = func.row_number().over(
        partition_by=col(Job.store),
        order_by=[case((col(Job.state).in_(sorted(HELD)), 0), else_=1), since, col(Job.id)],
    )
    of_page = or_(col(Job.store).in_(stores), col(Job.store).is_(None))
    jobs = (
        select(*shown, place.label("place"))
        .where(col(Job.state).in_(sorted(ACTIVE)), of_page, sight.sees_job())
        .subquery()
    )
    most = case((jobs.c.store.is_(None), BATCHES_MAX), else_=WORK_MAX)
    held = (
        select(*shown, literal(RUNNING).label("place"))
        .where(col(Job.state).in_(sorted(HELD)), sight.sees_job())
        .order_by(col(Job.started_at), col(Job.id))
        .limit(RUNNING_MAX)
        .subquery()
    )
    work = Work(defaultdict(list), [])
    query = union_all(select(jobs).where(jobs.c.place <= most), select(held))
    for row in sorted(db.execute(query), key=lambda row: row.place):
        found = work.running if row.place == RUNNING else work.of_stores[row.store or BATCHES]
        found.append(_work(row))
    work.running.sort(key=lambda each: (each.since or sight.now, each.id))
    return work


def _work(row: Any) -> RunningRead:
    is_queued = row.state == JobState.QUEUED
    waits = {} if is_queued else (row.waiting_on or [None])[0] or {}
    progress = row.progress or {}
    since = row.waiting_since or (row.started_at if row.state in HELD else None) or row.created_at
    return RunningRead(
        id=row.id,
        store=row.store,
        kind=row.kind,
        state=JobState(row.state),
        since=since,
        waits_for=QUEUED if is_queued else waits.get("kind"),
        ref=None if waits.get("ref") is None else str(waits["ref"])[:REF_MAX_CHARS],
        next_look=row.not_before if row.state != JobState.RUNNING else None,
        fraction=progress.get("fraction"),
        eta=progress.get("eta"),
        rate_per_s=progress.get("rate_per_s"),
        unit=progress.get("unit"),
        throttle=None if row.throttle_effective is None else read_bounds(row.throttle_effective),
    )


def backups_of(db: Session, sight: Sight, stores: Sequence[str]) -> Mapping[str, list[RunningBackup]]:
    """The backups of each store that have not ended; of all stores, and those of the page for sure."""
    under_way = (BackupState.PREPARING, BackupState.ACTIVE)
    names = ("id", "store", "state", "label", "created_at", "lease_expires_at", "total_bytes")
    query = (
        select(*(getattr(BackupSession, name) for name in names))
        .where(sight.sees(BackupSession.store), col(BackupSession.state).in_(under_way))
        .order_by(case((col(BackupSession.store).in_(stores), 0), else_=1), col(BackupSession.id))
        .limit(BACKUPS_MAX)
    )
    found: dict[str, list[RunningBackup]] = defaultdict(list)
    for row in db.execute(query):
        is_held = row.lease_expires_at is not None and row.lease_expires_at > sight.now
        if len(found[row.store]) < BACKUPS_OF_STORE_MAX:
            found[row.store].append(
                RunningBackup(
                    id=row.id,
                    store=row.store,
                    state=row.state,
                    label=row.label,
                    since=row.created_at,
                    lease_expires_at=row.lease_expires_at,
                    valid_now=row.state == BackupState.ACTIVE and is_held,
                    total_bytes=row.total_bytes,
                )
            )
    return found


def lags_of_replicas(db: Session, stores: Sequence[str]) -> dict[str, LagRead]:
    """The consumer of each store that is furthest behind, by its last session."""
    query = (
        select(col(Agreement.id), col(Agreement.store), col(ReplicationSession.supplier))
        .add_columns(col(ReplicationSession.consumer), col(ReplicaOwn.own_max_csn))
        .join(ReplicationSession, col(ReplicationSession.id) == col(Agreement.last_session_id))
        .join(ReplicaOwn, col(ReplicaOwn.store) == col(Agreement.store), isouter=True)
        .where(col(Agreement.state) != AgreementState.REMOVED, col(Agreement.store).in_(stores))
        .order_by(col(Agreement.id))
        .limit(AGREEMENTS_MAX)
    )
    found: dict[str, LagRead] = {}
    for agreement, store, supplier, consumer, own in db.execute(query):
        lags = lags_of(supplier or {}, consumer or {}, own).values()
        seconds = max(lags, default=None)
        known = found.get(store)
        if seconds is not None and (known is None or seconds > (known.seconds or 0.0)):
            found[store] = LagRead(seconds=seconds, events=None, consumer=agreement)
    return found


def noted_of(
    db: Session, stores: Sequence[str]
) -> tuple[Mapping[str, dict[str, datetime]], Mapping[str, LagRead]]:
    """When each verb of each store last succeeded, and the node of a cluster that is furthest behind."""
    names = [Name.LAST_SUCCESS, Name.SLONY_LAG_EVENTS, Name.SLONY_LAG_SECONDS]
    query = select(col(Figure.name), col(Figure.store), col(Figure.label), col(Figure.value))
    rows = db.execute(query.where(col(Figure.store).in_(stores), col(Figure.name).in_(names))).all()
    done: dict[str, dict[str, datetime]] = defaultdict(dict)
    events: dict[tuple[str, str], float] = {}
    seconds: dict[tuple[str, str], float] = {}
    for name, store, label, value in rows:
        if name == Name.LAST_SUCCESS:
            done[store][label] = datetime.fromtimestamp(value, UTC)
        else:
            (events if name == Name.SLONY_LAG_EVENTS else seconds)[store, label] = value
    return done, _worst(events, seconds)


def _worst(
    events: Mapping[tuple[str, str], float], seconds: Mapping[tuple[str, str], float]
) -> dict[str, LagRead]:
    found: dict[str, LagRead] = {}
    for (store, pair), lag_s in sorted(seconds.items(), key=lambda each: (each[1] != NEVER, -each[1])):
        origin, _, receiver = pair.partition(SEPARATOR)
        behind = events.get((store, pair))
        lag = LagRead(
            seconds=None if lag_s == NEVER else lag_s,
            events=None if behind is None else int(behind),
            consumer=f"node {receiver} behind {origin}",
        )
        found.setdefault(store, lag)
    return found


def due_of(db: Session, stores: Mapping[str, Mapping[str, str]]) -> Mapping[str, dict[str, datetime]]:
    """When each verb of each store comes next.

    Args:
        stores: their labels, by which schedules of no single store choose.
    """
    found: dict[str, dict[str, datetime]] = defaultdict(dict)
    for row in db.execute(union_all(*map(_soonest, _dues(list(stores))))):
        at = row.at
        if at is None and row.since is not None and row.interval_s is not None:
            at = row.since + timedelta(seconds=row.interval_s)
        if at is None:
            continue
        named = [row.store] if row.store is not None else _chosen(stores, row.labels or {}, row.reach)
        for store in named:
            known = found[store].get(row.verb)
            found[store][row.verb] = at if known is None else min(at, known)
    return found


def _soonest(dues: Any) -> Any:
    """The first of one sort: many of one hide no other."""
    return select(dues.order_by(dues.selected_columns.at).limit(DUE_MAX).subquery())


def _chosen(
    stores: Mapping[str, Mapping[str, str]], labels: Mapping[str, str], reach: Sequence[str] | None
) -> list[str]:
    """The stores that a schedule over labels comes to.

    Args:
        reach: what its token is limited to; None: all.
    """
    return [
        store
        for store, own in stores.items()
        if labels and all(own.get(name) == value for name, value in labels.items())
        if reach is None or store in reach
    ]


def _comes() -> list[Any]:
    return [col(Schedule.is_paused).is_(False), col(Schedule.next_at).is_not(None)]


def _dues(stores: Sequence[str]) -> list[Any]:
    """Schedules, ticks, cycles that follow one another, agreements: in one form."""
    no_json, no_time = cast(null(), JSON), cast(null(), UtcDateTime)
    no_interval = cast(null(), Float)
    each = aliased(ErasureCycle)
    newest = select(func.max(each.id)).where(col(each.store) == col(ErasureStore.store))
    verb = case((col(SweepTick.kind).in_(OWN_KIND), col(SweepTick.kind)), else_=literal(JOB_PURGE))

    def due(store: Any, verb: Any, at: Any, **more: Any) -> Any:
        since, interval_s = more.get("since", no_time), more.get("interval_s", no_interval)
        return select(
            store.label("store"),
            verb.label("verb"),
            at.label("at"),
            more.get("labels", no_json).label("labels"),
            more.get("reach", no_json).label("reach"),
            since.label("since"),
            interval_s.label("interval_s"),
        )

    schedule, comes = (col(Schedule.store), col(Schedule.verb), col(Schedule.next_at)), _comes()
    return [
        due(*schedule).where(col(Schedule.store).in_(stores), *comes),
        due(*schedule, labels=col(Schedule.labels), reach=col(Token.stores))
        .join(Token, col(Token.id) == col(Schedule.token_id))
        .where(col(Schedule.store).is_(None), *comes),
        due(col(SweepTick.store), verb, col(SweepTick.next_at)).where(col(SweepTick.store).in_(stores)),
        due(col(ErasureStore.store), literal(JOB_ERASURE), col(ErasureCycle.ends_at))
        .join(ErasureCycle, col(ErasureCycle.id) == newest.correlate(ErasureStore).scalar_subquery())
        .where(col(ErasureStore.seen_enabled).is_(True), col(ErasureStore.store).in_(stores)),
        due(
            col(Agreement.store),
            literal(JOB_SESSION),
            col(Agreement.next_at),
            since=col(Agreement.last_started_at),
            interval_s=col(Agreement.interval_s),
        ).where(
            col(Agreement.store).in_(stores),
            col(Agreement.interval_s).is_not(None),
            col(Agreement.state) != AgreementState.REMOVED,
        ),
    ]


def verbs_of(done: Mapping[str, datetime], due: Mapping[str, datetime]) -> list[VerbRead]:
    """Each verb that has succeeded or comes."""
    return [
        VerbRead(verb=verb, last_success_at=done.get(verb), next_due_at=due.get(verb))
        for verb in sorted({*done, *due})
    ]
