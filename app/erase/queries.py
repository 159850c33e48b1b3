"""Reading cycles and their files."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, or_
from sqlmodel import Session, col, select

from app.erase.errors import CycleNotFound
from app.erase.models import (
    AmountRead,
    CauseRead,
    CycleFileRead,
    CycleRead,
    CycleThrottleRead,
    Place,
    PlanFacts,
    RefusalRead,
    VetoRead,
    amounts,
)
from app.erase.rows import ACTIVE, CycleState, ErasureCycle, ErasureFile, FileState
from app.erase.stats import stats_of_cycle
from app.jobs.models import WaitingOn
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.durations import duration_of
from app.kit.pagination import Page, decode_token, make_page, read_page
from app.protection.queries import digests_of, protected_files
from app.protection.rows import LogFileDigest
from app.stores.rows import Store, is_suspended
from spark.erase.reasons import Cause
from spark.formats.je.log import file_name, lsn_file, lsn_offset

SUSPENDED_BY = frozenset({"STORE_SUSPENDED", "SHUTDOWN", "ERASER_DISABLED"})
"""Where its job waits for this, a cycle rests."""


def cycle_of(db: Session, job_id: str) -> ErasureCycle | None:
    """The cycle of a job."""
    return db.exec(select(ErasureCycle).where(ErasureCycle.job_id == job_id)).first()


def newest_cycle(db: Session, store_id: str) -> ErasureCycle | None:
    """The cycle of a store that began last."""
    query = select(ErasureCycle).where(ErasureCycle.store == store_id)
    return db.exec(query.order_by(col(ErasureCycle.id).desc()).limit(1)).first()


def newest_cycles(db: Session) -> dict[str, ErasureCycle]:
    """The same of every store that has one, in one query."""
    newest = select(func.max(ErasureCycle.id)).group_by(col(ErasureCycle.store))
    return {row.store: row for row in db.exec(select(ErasureCycle).where(col(ErasureCycle.id).in_(newest)))}


def get_cycle(db: Session, store_id: str, cycle_id: str) -> ErasureCycle:
    """The row of a cycle; `current` is the newest one.

    Raises: CycleNotFound.
    """
    row = newest_cycle(db, store_id) if cycle_id == "current" else db.get(ErasureCycle, cycle_id)
    if row is None or row.store != store_id:
        raise CycleNotFound("there is no such cycle of this store")
    return row


def state_now(cycle: ErasureCycle, job: Job, store: Store | None, *, now: datetime) -> CycleState:
    """Where a cycle stands by its job, which may have been ordered about while nobody worked at it."""
    if cycle.state not in ACTIVE:
        return CycleState(cycle.state)
    ended = {
        JobState.ABORTED: CycleState.ABORTED,
        JobState.ABANDONED: CycleState.ABORTED,
        JobState.FAILED: CycleState.FAILED,
    }
    if job.state in ended:
        return ended[JobState(job.state)]
    if job.state == JobState.PAUSED or (store is not None and is_suspended(store, now=now)):
        return CycleState.SUSPENDED
    if job.state == JobState.WAITING and any(item["kind"] in SUSPENDED_BY for item in job.waiting_on):
        return CycleState.SUSPENDED
    return CycleState(cycle.state)


def list_cycles(
    db: Session,
    store: Store,
    *,
    states: Sequence[CycleState],
    page_size: int,
    page_token: str,
    now: datetime,
) -> Page[CycleRead]:
    """Cycles of a store, newest first."""
    filters = {"list": "erasure-cycles", "store": store.id, "states": sorted(states)}
    query = select(ErasureCycle).where(ErasureCycle.store == store.id)
    if states:
        ended = col(ErasureCycle.state).in_(sorted(set(states) - ACTIVE))
        query = query.where(or_(ended, col(ErasureCycle.id).in_(_active_in(db, store, states, now=now))))
    return read_page(
        db,
        query,
        col(ErasureCycle.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_cycle(db, row, store, now=now),
    )


def _active_in(db: Session, store: Store, states: Sequence[CycleState], *, now: datetime) -> list[str]:
    """The cycle of a store that has not ended, if its job says that it stands in one of these states."""
    query = select(ErasureCycle).where(
        ErasureCycle.store == store.id, col(ErasureCycle.state).in_(sorted(ACTIVE))
    )
    return [
        row.id
        for row in db.exec(query).all()
        if state_now(row, db.get_one(Job, row.job_id), store, now=now) in states
    ]


def read_cycle(db: Session, cycle: ErasureCycle, store: Store | None, *, now: datetime) -> CycleRead:
    """Show a cycle to a client."""
    job = db.get_one(Job, cycle.job_id)
    rate = 1000 / cycle.ms_per_unit if cycle.ms_per_unit else None
    return CycleRead(
        id=cycle.id,
        store=cycle.store,
        job_id=cycle.job_id,
        job_state=job.state,
        state=state_now(cycle, job, store, now=now),
        origin=cycle.origin,
        mode=cycle.mode,
        engine=cycle.engine,
        period=_span(cycle.period_s),
        min_file_age=timedelta(seconds=cycle.min_file_age_s),
        duration=timedelta(seconds=cycle.duration_s),
        kinds=cycle.kinds,
        created_at=cycle.created_at,
        started_at=cycle.started_at,
        cutoff=cycle.cutoff_at,
        ends_at=cycle.ends_at,
        ended_at=cycle.ended_at,
        waiting_on=[WaitingOn.model_validate(item) for item in job.waiting_on],
        throttle=CycleThrottleRead(
            total_units=cycle.total_units,
            done_units=cycle.done_units,
            rate_per_s=rate,
            next_at=cycle.next_at if rate else None,
        ),
        files=_file_counts(db, cycle.id),
        plan=None if cycle.plan is None else plan_facts_read(cycle.plan),
        incomplete=cycle.incomplete,
        stats=stats_of_cycle(cycle),
    )


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _file_counts(db: Session, cycle_id: str) -> dict[FileState, int]:
    query = select(ErasureFile.state, func.count()).where(ErasureFile.cycle_id == cycle_id)
    return {FileState(state): number for state, number in db.exec(query.group_by(col(ErasureFile.state)))}


def _place(lsn: int) -> Place:
    return Place(file=file_name(lsn_file(lsn)), offset=lsn_offset(lsn))


def plan_facts_read(plan: Mapping[str, Any]) -> PlanFacts:
    """What a plan says of the whole log, as clients see it."""
    torn = plan["torn_at"]
    return PlanFacts(
        first_active=_place(plan["first_active"]),
        checkpoint=_place(plan["checkpoint_lsn"]),
        vetoed_count=plan["vetoed_count"],
        vetoed=[
            VetoRead(file=file_name(lsn_file(lsn)), offset=lsn_offset(lsn), reason=reason)
            for lsn, reason in plan["vetoed"]
        ],
        missing_count=plan["missing_count"],
        vlsn=plan["vlsn"],
        torn_at=None if torn is None else Place(file=torn[0], offset=torn[1]),
        nodes_wait=plan["nodes_wait"],
        after_checkpoint=_after_checkpoint(plan),
    )


def _after_checkpoint(plan: Mapping[str, Any]) -> AmountRead | None:
    """None: an earlier version made the plan."""
    if "after_checkpoint" not in plan:
        return None
    entries, size = plan["after_checkpoint"]
    return AmountRead(code=str(Cause.TAIL_OF_LOG), entries=entries, bytes=size)


def list_files(
    db: Session,
    cycle: ErasureCycle,
    *,
    states: Sequence[FileState],
    page_size: int,
    page_token: str,
    now: datetime,
) -> Page[CycleFileRead]:
    """Files of a cycle, ascending."""
    filters = {"list": "erasure-files", "cycle": cycle.id, "states": sorted(states)}
    query = select(ErasureFile).where(ErasureFile.cycle_id == cycle.id)
    if states:
        query = query.where(col(ErasureFile.state).in_(sorted(states)))
    after = decode_token(page_token, filters, types=[int])
    if after:
        query = query.where(col(ErasureFile.number) > after[0])
    rows = db.exec(query.order_by(col(ErasureFile.number)).limit(page_size + 1)).all()
    held = protected_files(db, cycle.store, [row.number for row in rows], now=now)
    digests = digests_of(db, cycle.store)
    return make_page(
        rows,
        page_size=page_size,
        filters=filters,
        key=lambda row: [row.number],
        item=lambda row: read_file(
            row,
            protected_by=held[row.number].id if row.number in held else None,
            digest=digests.get(row.number),
        ),
    )


def read_file(file: ErasureFile, *, protected_by: str | None, digest: LogFileDigest | None) -> CycleFileRead:
    """Show a file of a cycle to a client."""
    same = set(CycleFileRead.model_fields) & set(ErasureFile.model_fields) - {"causes", "planned", "kept"}
    fields = {name: getattr(file, name) for name in same - {"refusal"}}
    return CycleFileRead.model_validate(
        fields
        | {
            "file": file_name(file.number),
            "created_at": instant_of_ms(file.created_ms),
            "causes": [CauseRead(cause=cause, detail=detail) for cause, detail in file.causes],
            "protected_by": protected_by,
            "planned": amounts(file.planned),
            "kept": amounts(file.kept),
            "reserved": file.is_reserved,
            "barren": file.is_barren,
            "entries_planned": file.entry_count,
            "entries_done": file.rows_done,
            "sha256_now": None if digest is None else digest.sha256,
            "erasure_generation": 0 if digest is None else digest.generation,
            "mtime_before": _instant_ns(file.mtime_before_ns),
            "fsync_times": [duration_of(each) for each in file.fsync_s],
            "refusal": None if file.refusal is None else RefusalRead.model_validate(file.refusal),
            "proved": file.is_proved,
        }
    )


def instant_of_ms(ms: int | None) -> datetime | None:
    """A time as JE writes it."""
    return None if ms is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _instant_ns(ns: int | None) -> datetime | None:
    return None if ns is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)
