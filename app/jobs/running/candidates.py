"""Which jobs a runner may claim now, found by indexes: what a look costs does not grow with the queue.

Rules:
- `ix_jobs_open` holds what has not ended, in the order of claims; what waits for a time is found by it;
- labels are told apart by their few texts, each found by one step in the index, not by reading the jobs;
- a look comes with each news: its statements are made once, and the time is a parameter of theirs.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, bindparam, false, func, literal, or_, union_all
from sqlmodel import Session, col, select

from app.db import UtcDateTime
from app.jobs.rows import Job, JobClass
from app.jobs.states import HELD, JobState

CANDIDATES_MAX: Final = 20
KEYS_AT_ONCE: Final = 50
"""SQLite takes 500 parts of a compound select."""
STOPPING: Final = (JobState.PAUSING, JobState.ABORTING)
RESTING: Final = (JobState.QUEUED, JobState.WAITING, *STOPPING)
LimitsOf = Callable[[Session, Collection[str]], Mapping[str, int]]
"""How many jobs of each of some stores may run at once; those that it does not name have no limit."""


_NOW: Final = "now"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs a runner takes.

    Args:
        kinds: what the runner knows how to do; None: everything.
        but: jobs that are left alone.
        full: stores that have as many jobs at work as they may; what is held there already may go on.
    """

    job_class: JobClass
    kinds: tuple[str, ...] | None = None
    but: tuple[str, ...] = ()
    full: tuple[str, ...] = ()

    def conditions(self) -> list[ColumnElement[bool]]:
        """All but the class."""
        found: list[ColumnElement[bool]] = [col(Job.id).not_in(self.but)]
        if self.kinds is not None:
            found.append(col(Job.kind).in_(self.kinds))
        if self.full:
            has_room = or_(col(Job.store).is_(None), col(Job.store).not_in(self.full))
            found.append(or_(has_room, col(Job.state).in_(sorted(HELD))))
        return found


def _now() -> Any:
    return bindparam(_NOW, type_=UtcDateTime())


def _is(state: JobState, job_class: JobClass) -> ColumnElement[bool]:
    return and_(col(Job.state) == state, col(Job.job_class) == job_class)


def _is_due() -> ColumnElement[bool]:
    return or_(col(Job.not_before).is_(None), col(Job.not_before) <= _now())


def is_claimable(job: Job, *, now: datetime) -> bool:
    """Whether a runner may take a job now, wherever it is to run."""
    is_due = job.not_before is None or job.not_before <= now
    if job.state == JobState.WAITING:
        return job.not_before is not None and is_due
    return is_due and (job.state == JobState.QUEUED or (job.state in STOPPING and job.lease_instance is None))


def is_anything_due(db: Session, *, now: datetime) -> bool:
    """Whether a look that writes may find something: a job to claim, or a lease that has run out.

    A runner that looks only reads.
    """
    return bool(db.execute(_due_query(), {_NOW: now}).scalar())


@cache
def _due_query() -> Any:
    # Each is one step in an index; together in one WHERE they would be read to their end.
    leased = and_(col(Job.state).in_(sorted(HELD)), col(Job.lease_expires_at).is_not(None))
    is_expired = select(func.min(Job.lease_expires_at)).where(leased).scalar_subquery() <= _now()
    ways = []
    for job_class in JobClass:
        queued = _is(JobState.QUEUED, job_class)
        ways += [and_(queued, col(Job.not_before).is_(None)), and_(queued, col(Job.not_before) <= _now())]
        ways.append(and_(_is(JobState.WAITING, job_class), col(Job.not_before) <= _now()))
        unheld = and_(col(Job.lease_instance).is_(None), _is_due())
        ways += [and_(_is(state, job_class), unheld) for state in STOPPING]
    is_there = [select(Job.id).where(way).exists() for way in ways]
    return select(or_(func.coalesce(is_expired, false()), *is_there))


def next_due(db: Session, *, now: datetime) -> datetime | None:
    """When time alone brings the next work: a job that is due by then, or a lease that runs out."""
    found = db.execute(_next_due_query(), {_NOW: now}).one()
    return min((time for time in found if time is not None), default=None)


@cache
def _next_due_query() -> Any:
    later = col(Job.not_before) > _now()
    times = [
        select(func.min(Job.not_before)).where(_is(state, job_class), later).scalar_subquery()
        for state in RESTING
        for job_class in JobClass
    ]
    held = and_(col(Job.state).in_(sorted(HELD)), col(Job.lease_expires_at) > _now())
    times.append(select(func.min(Job.lease_expires_at)).where(held).scalar_subquery())
    return select(*times)


def reachable_keys(db: Session, labels: frozenset[str], job_class: JobClass) -> list[str]:
    """The distinct `runs_on` among jobs that have not ended which a runner with these labels satisfies."""
    found = db.execute(_keys_query(job_class)).scalars()
    return [key for key in found if set(filter(None, key.split(","))) <= labels]


@cache
def _keys_query(job_class: JobClass) -> Any:
    keys = _first_key(job_class, None).cte("keys", recursive=True)
    following = select(_first_key(job_class, keys.c.key).scalar_subquery()).where(keys.c.key.is_not(None))
    every = keys.union_all(following)
    return select(every.c.key).where(every.c.key.is_not(None))


def _first_key(job_class: JobClass, after: ColumnElement[str] | None) -> Any:
    query = select(func.min(Job.runs_on_key).label("key")).where(
        col(Job.finished_at).is_(None), col(Job.job_class) == job_class
    )
    return query if after is None else query.where(col(Job.runs_on_key) > after)


def full_stores(db: Session, limits_of: LimitsOf) -> list[str]:
    """The stores that have as many jobs at work as they may."""
    held = select(Job.store, func.count()).where(
        col(Job.state).in_(sorted(HELD)), col(Job.store).is_not(None)
    )
    running = {store: count for store, count in db.exec(held.group_by(col(Job.store))).all() if store}
    limits = limits_of(db, running) if running else {}
    return [store for store, count in running.items() if store in limits and count >= limits[store]]


def oldest(db: Session, wanted: Wanted, keys: Sequence[str], *, now: datetime) -> list[str]:
    """The ids of some jobs to claim, the oldest of each kind of place among them.

    Args:
        keys: `runs_on` that the runner satisfies.
    """
    found: list[str] = []
    for first in range(0, len(keys), KEYS_AT_ONCE):
        query = _oldest_query(wanted, tuple(keys[first : first + KEYS_AT_ONCE]))
        found += db.execute(query, {_NOW: now}).scalars()
    return sorted(found)


_BY_KEY: Final = (JobState.QUEUED, *STOPPING)


@lru_cache(maxsize=32)
def _oldest_query(wanted: Wanted, keys: tuple[str, ...]) -> Any:
    conditions = wanted.conditions()
    parts = [_of_key(key, state, wanted.job_class, conditions) for key in keys for state in _BY_KEY]
    # What waits for a time is found by it: many more may wait for later ones.
    waiting = select(Job.id).where(
        _is(JobState.WAITING, wanted.job_class),
        col(Job.not_before) <= _now(),
        col(Job.runs_on_key).in_(keys),
        *conditions,
    )
    parts.append(_first_of(waiting.order_by(col(Job.not_before), col(Job.id))))
    return union_all(*parts)


def _of_key(key: str, state: JobState, job_class: JobClass, conditions: Sequence[ColumnElement[bool]]) -> Any:
    query = select(Job.id).where(
        col(Job.finished_at).is_(None),
        col(Job.job_class) == job_class,
        col(Job.runs_on_key) == key,
        col(Job.state) == literal(state.value),
        _is_due(),
        *conditions,
    )
    if state in STOPPING:
        query = query.where(col(Job.lease_instance).is_(None))
    return _first_of(query.order_by(col(Job.id)))


def _first_of(query: Any) -> Any:
    """The first of an ordered query, as a part of a compound select may be."""
    part = query.limit(CANDIDATES_MAX).subquery()
    return select(part.c.id)
