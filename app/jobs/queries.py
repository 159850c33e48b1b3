"""Reads of jobs and their events."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

from sqlalchemy import ColumnElement, Select, bindparam, func
from sqlalchemy import select as sa_select
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar
from starlette.concurrency import run_in_threadpool

from app.db import Database
from app.jobs.errors import JobNotFound
from app.jobs.models import (
    InstanceRead,
    JobEventRead,
    JobRead,
    JobSummary,
    SparkUseRead,
    read_job,
    summarize_job,
)
from app.jobs.rows import Instance, Job, JobCheckpoint, JobEvent
from app.jobs.states import ACTIVE, JobState
from app.kit.metadata.engines import Rows
from app.kit.pagination import Page, decode_token, make_page, read_page
from app.stores.rows import Store

EVENTS_READ_MAX = 1_000
CHECKPOINT_USE: Final = "spark"
"""What a job has taken of Spark, in seconds; clients see it as `SparkUseRead`."""
_JOBS: Final[Any] = Job.__table__  # type: ignore[attr-defined]
_CHECKPOINTS: Final[Any] = JobCheckpoint.__table__  # type: ignore[attr-defined]
JOB_OF_ID: Final[Select[Any]] = sa_select(_JOBS).where(_JOBS.c.id == bindparam("job_id"))
USE_OF_JOB: Final[Select[Any]] = sa_select(_CHECKPOINTS.c.value).where(
    _CHECKPOINTS.c.job_id == bindparam("job_id"), _CHECKPOINTS.c.name == bindparam("name")
)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a list of jobs is narrowed to; empty means all."""

    states: Sequence[JobState] = ()
    kinds: Sequence[str] = ()
    stores: Sequence[str] = ()
    parent_id: str | None = None
    created_after: datetime | None = None
    ended_after: datetime | None = None
    visible_stores: Sequence[str] | None = None


def get_job(db: Session, job_id: str) -> Job:
    """The row of a job.

    Raises: JobNotFound.
    """
    job = db.get(Job, job_id)
    if job is None:
        raise JobNotFound("there is no such job")
    return job


async def look_at_job(database: Database, job_id: str) -> Job:
    """The row of a job as it is now, to be read alone: no object of a session.

    Raises: JobNotFound, MetadataBusy, MetadataUnavailable.
    """
    rows = await _look(database, JOB_OF_ID, job_id=job_id)
    if not rows:
        raise JobNotFound("there is no such job")
    return cast(Job, rows[0])


async def look_at_use(database: Database, job: Job | JobRead) -> SparkUseRead | None:
    """What a job has taken of Spark, which is kept beside its row; None: nothing.

    Raises: MetadataBusy, MetadataUnavailable.
    """
    if job.engine != "SPARK":
        return None
    rows = await _look(database, USE_OF_JOB, job_id=job.id, name=CHECKPOINT_USE)
    return _read_use(rows[0].value) if rows else None


async def _look(database: Database, statement: Select[Any], **parameters: str) -> Rows:
    rows = await database.rows_soon(statement, **parameters)
    return await run_in_threadpool(database.rows, statement, **parameters) if rows is None else rows


def list_jobs(db: Session, wanted: JobFilter, *, page_size: int, page_token: str) -> Page[JobRead]:
    """Jobs, newest first."""
    return _list(db, wanted, page_size=page_size, page_token=page_token, item=read_job)


def list_summaries(db: Session, wanted: JobFilter, *, page_size: int, page_token: str) -> Page[JobSummary]:
    """The same, with little of each."""
    return _list(db, wanted, page_size=page_size, page_token=page_token, item=summarize_job)


def _list(
    db: Session, wanted: JobFilter, *, page_size: int, page_token: str, item: Callable[[Job], Item]
) -> Page[Item]:
    filters = {
        "list": "jobs",
        "states": sorted(wanted.states),
        "kinds": sorted(wanted.kinds),
        "stores": sorted(wanted.stores),
        "parent": wanted.parent_id,
        "after": wanted.created_after,
        "ended": wanted.ended_after,
        "visible": wanted.visible_stores,
    }
    rows: SelectOfScalar[Job] = cast(Any, sa_select(_JOBS))  # of the table: no objects of a session are made
    query = rows
    if wanted.states:
        query = query.where(col(Job.state).in_(list(wanted.states)))
    if wanted.kinds:
        query = query.where(col(Job.kind).in_(list(wanted.kinds)))
    if wanted.stores:
        query = query.where(col(Job.store).in_(list(wanted.stores)))
    if wanted.parent_id is not None:
        query = query.where(Job.parent_id == wanted.parent_id)
    if wanted.created_after is not None:
        query = query.where(Job.created_at > wanted.created_after, _first_id(wanted.created_after))
    if wanted.ended_after is not None:
        query = query.where(col(Job.finished_at) > wanted.ended_after)
    if wanted.visible_stores is not None:
        query = query.where(col(Job.store).in_(list(wanted.visible_stores)))
    return read_page(
        db,
        query,
        cast(Any, _JOBS.c.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=item,
        unfiltered=rows if wanted.states else None,
    )


def _first_id(created_after: datetime) -> ColumnElement[bool]:
    """Where a list in the order of ids may end: without it one that finds little walks through all jobs."""
    # Not min(id) itself: PostgreSQL would look for that in the order of ids.
    least = select(func.min(col(Job.id).concat(""))).where(Job.created_at > created_after)
    return col(Job.id) >= least.scalar_subquery()


def list_jobs_of(
    database: Database,
    store: Store,
    kind: str,
    *,
    states: Sequence[JobState],
    page_size: int,
    page_token: str,
) -> Page[JobRead]:
    """The jobs of one kind on a store that the caller may see, in a transaction of its own."""
    wanted = JobFilter(states=states, kinds=[kind], stores=[store.id])
    with database.reading() as db:
        return list_jobs(db, wanted, page_size=page_size, page_token=page_token)


def read_events(db: Session, job_id: str, *, after: int, limit: int = EVENTS_READ_MAX) -> list[JobEventRead]:
    """Events of a job after a sequence, oldest first."""
    rows = db.exec(
        select(JobEvent)
        .where(JobEvent.job_id == job_id, col(JobEvent.seq) > after)
        .order_by(col(JobEvent.seq))
        .limit(limit)
    ).all()
    return [_shown(row) for row in rows]


def _shown(row: JobEvent) -> JobEventRead:
    return JobEventRead(seq=row.seq, at=row.at, type=row.type, data=row.data)


def list_events(db: Session, job_id: str, *, page_size: int, page_token: str) -> Page[JobEventRead]:
    """The same as a keyset page."""
    filters = {"list": "events", "job": job_id}
    after = decode_token(page_token, filters, types=[int])
    rows = read_events(db, job_id, after=after[0] if after else 0, limit=page_size + 1)
    return make_page(
        rows, page_size=page_size, filters=filters, key=lambda row: [row.seq], item=lambda row: row
    )


def last_events(db: Session, job_id: str, *, number: int, types: Sequence[str]) -> Page[JobEventRead]:
    """The last events of a job, the oldest of them first, in one page.

    Args:
        types: only these; none: all.
    """
    query = select(JobEvent).where(JobEvent.job_id == job_id)
    if types:
        query = query.where(col(JobEvent.type).in_(types))
    rows = db.exec(query.order_by(col(JobEvent.seq).desc()).limit(number)).all()
    return Page[JobEventRead](items=[_shown(row) for row in reversed(rows)], next_page_token="")


def count_children(db: Session, parent_id: str) -> dict[JobState, int]:
    """How many children of a job are in each state."""
    rows = db.exec(
        select(Job.state, func.count()).where(Job.parent_id == parent_id).group_by(col(Job.state))
    ).all()
    return {JobState(state): count for state, count in rows}


def _read_use(kept: Mapping[str, Any]) -> SparkUseRead:
    return SparkUseRead(
        groups=kept["groups"],
        stages=kept["stages"],
        tasks=kept["tasks"],
        task_time=timedelta(seconds=kept["task_s"]),
        cpu_time=timedelta(seconds=kept["cpu_s"]),
        memory_bytes=kept["memory_bytes"],
    )


def count_siblings(db: Session, job_id: str) -> int:
    """How many children the parent of a job has, the job itself among them; 1 where it has no parent."""
    parent_id = select(Job.parent_id).where(Job.id == job_id).scalar_subquery()
    found = db.exec(select(func.count()).select_from(Job).where(col(Job.parent_id) == parent_id)).one()
    return max(1, found)


def count_active_jobs(db: Session, store_id: str) -> int:
    """How many jobs of a store have not ended."""
    query = select(func.count()).select_from(Job)
    return db.exec(query.where(Job.store == store_id, col(Job.state).in_(sorted(ACTIVE)))).one()


def list_instances(
    db: Session, *, now: datetime, alive_within_s: float, page_size: int, page_token: str
) -> Page[InstanceRead]:
    """All instances that were ever seen, the newest first."""

    def shown(row: Instance) -> InstanceRead:
        is_heard = (now - row.heartbeat_at).total_seconds() < alive_within_s
        return InstanceRead(**row.model_dump(), alive=row.stopped_at is None and is_heard)

    return read_page(
        db,
        select(Instance),
        col(Instance.id),
        filters={"list": "instances"},
        page_size=page_size,
        page_token=page_token,
        item=shown,
    )
