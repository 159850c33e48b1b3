"""Rules of a cycle at its submission: how long, which files, what kinds; one active cycle a store."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from sqlmodel import Session

from app.auth.service import Caller
from app.erase.errors import CycleRunning, EnvironmentRefused, PeriodMissing
from app.erase.models import CycleParams, CycleRequest
from app.erase.place import place_of
from app.erase.queries import cycle_of, newest_cycle
from app.erase.record import end_cycle, store_row
from app.erase.reviewed import ReviewedCycle, params_of_plan
from app.erase.rows import ACTIVE, CycleState, EraseKind, ErasureCycle, Origin
from app.erase.rules import RESOURCE, Wanted, wanted
from app.jobs.engines.choice import check_je
from app.jobs.models import Subject
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.service import JobRequest, refuse_conflict, submit
from app.jobs.states import TERMINAL, JobState
from app.kit.ids import new_id
from app.settings import Settings
from app.stores.borders import require_border
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.service import require_kind
from app.stores.targets import environment_directory
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names

JOB_ERASURE: Final = "ERASURE"


def params_of(
    db: Session,
    store: Store,
    request: CycleRequest,
    *,
    is_plan: bool = False,
    reviewed: ReviewedCycle | None = None,
) -> CycleParams:
    """The snapshot of a request: what it leaves open is taken from the store's parameters.

    Args:
        reviewed: the plan that is executed.
    Raises: StoreKindWrong, PeriodMissing; PlanNotUsable: PLAN_DIFFERS.
    """
    require_kind(store, StoreKind.JE)
    if reviewed is not None:
        return params_of_plan(reviewed, request, target=target_of(store))
    asked = wanted(db, store)
    kinds = request.kinds
    if kinds is None:
        kinds = list(asked.kinds)
    period, min_file_age, duration = _lengths(request, asked, is_plan=is_plan)
    return CycleParams(
        plan="ERASURE" if is_plan else None,
        period=period,
        min_file_age=min_file_age,
        duration=duration,
        follows_period=request.period is None and request.duration is None,
        follows_kinds=request.kinds is None,
        kinds=sorted(set(kinds), key=list(EraseKind).index),
        engine=request.engine,
        throttle=request.throttle,
        origin=Origin.REQUEST,
        target=target_of(store),
    )


def target_of(store: Store) -> dict[str, object]:
    """What tells one environment of a store from another."""
    return {"path": store.path, "mode": None if store.mode is None else str(store.mode)}


def _lengths(
    request: CycleRequest, asked: Wanted, *, is_plan: bool
) -> tuple[timedelta | None, timedelta, timedelta]:
    """Period, age of the files and length of the cycle."""
    if request.duration is not None and request.min_file_age is not None:
        return None, request.min_file_age, request.duration
    period = request.period if request.period is not None else asked.period
    if period <= timedelta(0) and not is_plan:
        raise PeriodMissing(
            "name `period`, or `min_file_age` and `duration`: the store's je.erase.period is PT0S"
        )
    return period, period, period


def look_early(store: Store, settings: Settings) -> str | None:
    """Refuse at once what the job would refuse later; returns what identifies the environment.

    An environment that only other runners can reach is not looked at from here.

    Raises: StoreUrlRefused, EnvironmentRefused, JeNotInstalled.
    """
    if not set(store.runs_on) <= set(settings.labels):
        return None
    check_je(store.runs_on, settings)
    directory = environment_directory(store, settings)
    try:
        file_names(directory)
    except LogRefused as error:
        raise EnvironmentRefused(error) from error
    return place_of(directory)


def submit_cycle(
    db: Session,
    store: Store,
    params: CycleParams,
    *,
    identity: str | None,
    caller: Caller,
    reason: str | None,
    settings: Settings,
    now: datetime,
    parent_id: str | None = None,
) -> tuple[Job, ErasureCycle]:
    """Begin a cycle: its row and its job. The store's row is locked by the caller.

    Raises: CycleRunning, ConflictingJob, QueueFull, TargetOfOtherStores.
    """
    newest = newest_cycle(db, store.id)
    if newest is not None and newest.state in ACTIVE:
        settle(db, newest, now=now)
        if newest.state in ACTIVE:
            raise CycleRunning(newest.id, newest.job_id)
    require_border(db, store, identity)
    refuse_conflict(db, store=store.id, identity=identity, resource=RESOURCE)
    cycle_id = new_id("cyc")
    job = submit(
        db,
        JobRequest(
            kind=JOB_ERASURE,
            store=store.id,
            params=params.model_dump(mode="json"),
            requested_by=caller.name,
            token_id=caller.token_id or None,
            runs_on=store.runs_on,
            parent_id=parent_id,
            reason=reason,
            throttle=params.throttle,
            claim_identity=identity,
            claim_resource=RESOURCE,
            subject=subject_of(store.id, cycle_id),
        ),
        now=now,
        queued_max=settings.jobs_queued_max,
    )
    store_row(db, store.id, now=now)
    return job, _add(db, store.id, cycle_id, job.id, params, now=now)


def subject_of(store_id: str, cycle_id: str) -> Subject:
    """The cycle as its job names it."""
    href = f"/v1/stores/{store_id}/erasure-cycles/{cycle_id}"
    return Subject(type="erasure-cycle", id=cycle_id, href=href)


def _add(
    db: Session, store_id: str, cycle_id: str, job_id: str, params: CycleParams, *, now: datetime
) -> ErasureCycle:
    cycle = ErasureCycle(
        id=cycle_id,
        store=store_id,
        job_id=job_id,
        origin=params.origin,
        period_s=None if params.period is None else params.period.total_seconds(),
        min_file_age_s=params.min_file_age.total_seconds(),
        duration_s=params.duration.total_seconds(),
        follows_period=params.follows_period,
        follows_kinds=params.follows_kinds,
        kinds=[kind.value for kind in params.kinds],
        created_at=now,
        updated_at=now,
    )
    db.add(cycle)
    db.flush()
    return cycle


def begin_cycle_of(db: Session, context: JobContext, store: Store) -> ErasureCycle:
    """The cycle of a job; a job that was made by `:retry` gets a fresh one."""
    known = cycle_of(db, context.job.id)
    if known is not None:
        return known
    params = CycleParams.model_validate(context.job.params)
    cycle_id, now = new_id("cyc"), context.clock.now()
    context.change(db, {"subject": subject_of(store.id, cycle_id).model_dump()})
    store_row(db, store.id, now=now)
    return _add(db, store.id, cycle_id, context.job.id, params, now=now)


ENDS: Final = {
    JobState.ABORTED: CycleState.ABORTED,
    JobState.ABANDONED: CycleState.ABORTED,
    JobState.FAILED: CycleState.FAILED,
    JobState.SUCCEEDED: CycleState.COMPLETE,
}
"""What an end of the job says of a cycle whose own end nobody wrote."""


def settle(db: Session, cycle: ErasureCycle, *, now: datetime) -> bool:
    """Write the end of a cycle whose job has ended without it: aborted while it waited, failed by a bug.

    A job that was paused while it waited suspends its cycle, in the same way.
    """
    job = db.get_one(Job, cycle.job_id)
    if job.state in TERMINAL:
        end_cycle(db, cycle, ENDS[JobState(job.state)], now=now)
        return True
    if job.state == JobState.PAUSED and cycle.state == CycleState.RUNNING:
        cycle.state = CycleState.SUSPENDED
        db.add(cycle)
        db.flush()
        return True
    return False


def directory_of(store: Store, settings: Settings) -> Path:
    """The environment of a store, for a request that reads it here."""
    require_kind(store, StoreKind.JE)
    return environment_directory(store, settings)
