"""The overview: one page of stores, the counters, and what needs somebody; no target is asked.

Rules:
- the number of statements does not depend on how many stores or jobs there are;
- what is told of each store is bounded, and so is what is told of all.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, String, and_, cast, func, literal, null, select, union_all
from sqlmodel import Session, col

from app.auth.service import Caller
from app.backups.rows import BackupSession, BackupState
from app.db import Database
from app.fleet import standing
from app.fleet.attention import Limits, Shown, needs_somebody
from app.fleet.models import Counters, HealthRead, HealthState, OverviewRead, RunningBackup, StoreOverview
from app.fleet.sight import Sight
from app.jobs.rows import Instance, Job
from app.jobs.states import ACTIVE
from app.kit.pagination import decode_token, make_page
from app.stores.checks.models import Finding
from app.stores.checks.rows import StoreHealth
from app.stores.models import StoreKind
from app.stores.rows import Store, is_of_known_kind

LABELS_MAX: Final = 10
FINDINGS_MAX: Final = 5
A_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class OverviewFilter:
    """What the stores and what needs somebody are narrowed to; the counters are of all."""

    stores: Sequence[str] = ()
    kinds: Sequence[str] = ()
    labels: Mapping[str, str] | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """What a store's row must fulfil; nothing: all of them."""
        found: list[ColumnElement[bool]] = []
        if self.stores:
            found.append(col(Store.id).in_(self.stores))
        if self.kinds:
            found.append(col(Store.kind).in_(self.kinds))
        labels = (self.labels or {}).items()
        return found + [col(Store.labels)[name].as_string() == value for name, value in labels]

    def query(self) -> Select[Any] | None:
        """The stores that are asked for; None: all of them."""
        conditions = self.conditions()
        return select(col(Store.id)).where(*conditions) if conditions else None


def overview(
    database: Database,
    caller: Caller,
    wanted: OverviewFilter,
    *,
    limits: Limits,
    shown: Shown,
    now: datetime,
    page_size: int,
    page_token: str,
) -> OverviewRead:
    """All that the caller may see, in one transaction of at most nine statements.

    Raises: InvalidPageToken.
    """
    sight = Sight(caller, now)
    filters = {
        "list": "overview",
        "stores": sorted(wanted.stores),
        "kinds": sorted(wanted.kinds),
        "labels": dict(wanted.labels or {}),
        "visible": sight.stores,
    }
    after = decode_token(page_token, filters, types=[str])
    with database.reading() as db:
        rows = db.execute(_page(sight, wanted, after, page_size)).all()
        labels = {row.id: row.labels or {} for row in rows[:page_size]}
        counters, jobs = _counters(db, sight, limits, list(labels))
        attention, counts = needs_somebody(db, sight.of(wanted.query()), limits, shown)
        told = _told(db, sight, labels, jobs)
    page = make_page(
        rows,
        page_size=page_size,
        filters=filters,
        key=lambda row: [row.id],
        item=lambda row: _store(row, told, sight, is_detailed=len(wanted.stores) == 1),
    )
    return OverviewRead(
        at=now,
        counters=counters,
        attention=attention,
        attention_counts=counts,
        attention_total=sum(counts.values()),
        running=told.work.running,
        backups=_oldest(told.backups),
        batches=told.work.of_stores.get(standing.BATCHES, []),
        stores=page.items,
        next_page_token=page.next_page_token,
    )


def _oldest(backups: Mapping[str, Sequence[RunningBackup]]) -> list[RunningBackup]:
    """Those of all stores, the oldest first; a few."""
    found = [each for of_store in backups.values() for each in of_store]
    return sorted(found, key=lambda each: (each.since, each.id))[: standing.RUNNING_MAX]


@dataclass(frozen=True, slots=True)
class _Told:
    """What was read of the stores of a page."""

    jobs: Mapping[str, dict[str, int]]
    work: standing.Work
    backups: Mapping[str, Any]
    lags: Mapping[str, Any]
    noted: tuple[Mapping[str, dict[str, datetime]], Mapping[str, Any]]
    due: Mapping[str, dict[str, datetime]]


def _told(
    db: Session, sight: Sight, labels: Mapping[str, Mapping[str, str]], jobs: Mapping[str, dict[str, int]]
) -> _Told:
    """What the stores of a page stand at.

    Args:
        labels: of each of them.
        jobs: of each of them that have not ended, by state.
    """
    ids = list(labels)
    return _Told(
        jobs=jobs,
        work=standing.work_of(db, sight, ids),
        backups=standing.backups_of(db, sight, ids),
        lags=standing.lags_of_replicas(db, ids),
        noted=standing.noted_of(db, ids),
        due=standing.due_of(db, labels),
    )


def _page(sight: Sight, wanted: OverviewFilter, after: Sequence[Any] | None, page_size: int) -> Any:
    query = (
        select(col(Store.id), col(Store.kind), col(Store.labels), col(Store.is_suspended))
        .add_columns(col(Store.suspended_until))
        .add_columns(col(StoreHealth.checked_at), col(StoreHealth.trouble), col(StoreHealth.warnings))
        .add_columns(col(StoreHealth.is_reachable), col(StoreHealth.findings), col(StoreHealth.stale_at))
        .join(StoreHealth, col(StoreHealth.store) == col(Store.id), isouter=True)
        .where(sight.sees(Store.id), is_of_known_kind(), *wanted.conditions())
    )
    if after:
        query = query.where(col(Store.id) > after[0])
    return query.order_by(col(Store.id)).limit(page_size + 1)


def _counters(
    db: Session, sight: Sight, limits: Limits, ids: Sequence[str]
) -> tuple[Counters, Mapping[str, dict[str, int]]]:
    """The counters of all, and the jobs of each store of the page that have not ended, by state."""
    number, nothing = func.count(), cast(null(), String)
    active, now = col(Job.state).in_(sorted(ACTIVE)), sight.now
    under_way = col(BackupSession.state).in_((BackupState.PREPARING, BackupState.ACTIVE))
    alive = and_(col(Instance.stopped_at).is_(None), col(Instance.heartbeat_at) > now - limits.heartbeat)
    stale = and_(col(StoreHealth.stale_at) <= now, sight.sees(StoreHealth.store))
    unready = and_(col(StoreHealth.trouble).is_not(None), sight.sees(StoreHealth.store))
    state = cast(Job.state, String)
    ended = select(literal("ended"), nothing, state, number).where(
        col(Job.finished_at) > now - A_DAY, sight.sees_job()
    )
    parts = [
        select(literal("jobs").label("what"), nothing.label("store"), state.label("state"), number.label("n"))
        .where(active, sight.sees_job())
        .group_by(col(Job.state)),
        ended.group_by(col(Job.state)),
        select(literal("store"), cast(Job.store, String), state, number)
        .where(active, col(Job.store).in_(ids))
        .group_by(col(Job.store), col(Job.state)),
        select(literal("stores"), nothing, nothing, number).select_from(Store).where(sight.sees(Store.id)),
        select(literal("unready"), nothing, nothing, number).select_from(StoreHealth).where(unready),
        select(literal("stale"), nothing, nothing, number).select_from(StoreHealth).where(stale),
        select(literal("backups"), nothing, nothing, number)
        .select_from(BackupSession)
        .where(under_way, sight.sees(BackupSession.store)),
        select(literal("instances"), nothing, nothing, number).select_from(Instance).where(alive),
    ]
    found: dict[str, dict[str, int]] = defaultdict(dict)
    by_store: dict[str, dict[str, int]] = defaultdict(dict)
    for what, store, state_name, n in db.execute(union_all(*parts)):
        (by_store[store] if what == "store" else found[what])[state_name or ""] = n
    one = {what: found[what].get("", 0) for what in ("stores", "unready", "stale", "backups", "instances")}
    counters = Counters(
        stores=one["stores"],
        stores_unready=one["unready"],
        stores_stale=one["stale"],
        jobs=found["jobs"],
        ended_last_day=found["ended"],
        backups=one["backups"],
        instances=None if sight.is_limited else one["instances"],
    )
    return counters, by_store


def _store(row: Any, told: _Told, sight: Sight, *, is_detailed: bool) -> StoreOverview:
    done, node_lags = told.noted
    labels = dict(sorted((row.labels or {}).items())[:LABELS_MAX])
    rests = bool(row.is_suspended) and (row.suspended_until is None or row.suspended_until > sight.now)
    return StoreOverview(
        id=row.id,
        kind=StoreKind(row.kind),
        labels=labels,
        suspended=rests,
        health=_health(row, sight, is_detailed=is_detailed),
        jobs=told.jobs.get(row.id, {}),
        work=told.work.of_stores.get(row.id, []),
        lag=told.lags.get(row.id) or node_lags.get(row.id),
        verbs=standing.verbs_of(done.get(row.id, {}), told.due.get(row.id, {})),
        backups=told.backups.get(row.id, []),
    )


def _health(row: Any, sight: Sight, *, is_detailed: bool) -> HealthRead:
    state, now = HealthState.OK, sight.now
    if row.checked_at is None:
        state = HealthState.UNKNOWN
    elif row.stale_at is not None and row.stale_at <= now:
        state = HealthState.STALE
    elif row.trouble is not None:
        state = HealthState.ERROR
    elif row.warnings:
        state = HealthState.WARNING
    age = None if row.checked_at is None else max(timedelta(0), now - row.checked_at)
    details = row.findings or [] if is_detailed else []
    return HealthRead(
        state=state,
        checked_at=row.checked_at,
        age=None if age is None else timedelta(seconds=int(age.total_seconds())),
        reachable=row.is_reachable,
        findings=[str(each["code"]) for each in (row.findings or [])[:FINDINGS_MAX]],
        details=[Finding.of_kept(each).for_reader(sight.stores) for each in details],
    )
