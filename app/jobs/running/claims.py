"""Claims and leases: who runs which job (api.md, Jobs).

Invariants:
- a lease is judged by the metadata database's clock alone;
- every claim takes a greater fencing token than any claim before it, over all jobs of this metadata;
- two runners never hold the same job: PostgreSQL by FOR UPDATE SKIP LOCKED, SQLite by its one writer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db import Database
from app.errors import Conflict, MetadataBusy
from app.jobs.rows import Counter, Job, JobClaim, JobClass
from app.jobs.running.candidates import (
    CANDIDATES_MAX,
    LimitsOf,
    Wanted,
    full_stores,
    is_claimable,
    oldest,
    reachable_keys,
)
from app.jobs.service import release_claims, serialise, shares
from app.jobs.states import HELD, JobState
from app.jobs.writing import LOOKS_QUIETLY, change_job, state_event

FENCING_COUNTER = "fencing_token"
AHEAD_MAX = 2**40
"""A metadata counts the attempts of its jobs: so many more than ours none has made."""
REAP_MAX = 200  # more than one runner can hold (settings: 64 + 64), so that one pass at its start takes all


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job as its runner holds it: frozen at the claim, with the token that fences its writes."""

    id: str
    kind: str
    store: str | None
    state: JobState
    params: Mapping[str, Any]
    token: int
    attempt: int
    crash_count: int
    retries: int
    requested_by: str
    throttle: Mapping[str, Any] | None
    active_s: float
    done: int = 0
    """What an earlier attempt has shown as done: progress never goes back."""
    removed: int = 0
    """What it has shown as gone."""
    rate_per_s: float | None = None
    """What an earlier attempt has shown last."""
    is_quiet: bool = False
    """It waited, and looks again: its claim had no event, and what it waits for is still shown."""


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims: the instance, its labels and the limits of its leases."""

    instance_id: str
    labels: frozenset[str]
    lease_ttl_s: float
    crash_loop_max: int
    recovered_at_once: int = 4


def current_epoch(db: Session) -> int:
    """The greatest fencing token that was ever given."""
    row = db.get(Counter, FENCING_COUNTER)
    return 0 if row is None else row.value


def raise_epoch(db: Session, at_least: int) -> int:
    """Lift the counter above a foreign token (`lethe recover`).

    Raises: Conflict: EPOCH_AHEAD: it is so far above ours that no metadata has given it.
    """
    ours = next_token(db)
    if at_least - ours > AHEAD_MAX:
        raise Conflict(
            f"the target says {at_least}, and ours is at {ours}: no Lethe has come so far. When nothing else"
            " works there, let its owner take that away (the row of lethe_fence, or the control file), then"
            " `lethe recover STORE` again",
            code="EPOCH_AHEAD",
        )
    db.execute(
        update(Counter)
        .where(col(Counter.name) == FENCING_COUNTER, col(Counter.value) < at_least)
        .values(value=at_least)
        .execution_options(synchronize_session=False)
    )
    db.expire_all()
    return current_epoch(db)


def next_token(db: Session) -> int:
    """Take the next fencing token; the row's lock serialises all claims of this metadata."""
    query = (
        update(Counter)
        .where(col(Counter.name) == FENCING_COUNTER)
        .values(value=Counter.value + 1)
        .returning(col(Counter.value))
        .execution_options(synchronize_session=False)
    )
    row = db.execute(query).first()
    assert row is not None, "the counter is made by the first migration"
    return int(row[0])


def reap(db: Session, database: Database, claimer: Claimer, *, own: bool = False) -> list[str]:
    """Take back leases that have run out; or, at start, all that this instance held before.

    RUNNING becomes QUEUED and counts a crash; PAUSING and ABORTING keep their state and become
    claimable, so that a runner proves silence.

    Args:
        own: the leases of this instance's own id, whose process is gone.
    """
    now = database.now(db)
    expired = Job.lease_instance == claimer.instance_id if own else col(Job.lease_expires_at) <= now
    jobs = db.exec(
        select(Job)
        .where(col(Job.state).in_(sorted(HELD)), col(Job.lease_instance).is_not(None), expired)
        .order_by(col(Job.id))
        .limit(REAP_MAX)
        .with_for_update(skip_locked=True)
    ).all()
    for place, job in enumerate(jobs):
        not_before = now + timedelta(seconds=place // claimer.recovered_at_once) if place else None
        _take_back(db, job, now=now, not_before=not_before)
    return [job.id for job in jobs]


def _take_back(db: Session, job: Job, *, now: datetime, not_before: datetime | None) -> None:
    values: dict[str, Any] = {"lease_instance": None, "lease_expires_at": None, "not_before": not_before}
    event = None
    if job.state == JobState.RUNNING:
        values |= {"state": JobState.QUEUED, "crash_count": Job.crash_count + 1, "waiting_on": []}
        event = state_event(JobState.QUEUED, reason="LEASE_LOST", instance=job.lease_instance)
    change_job(
        db,
        job.id,
        guards=[col(Job.state) == job.state, col(Job.fencing_token) == job.fencing_token],
        values=values,
        now=now,
        event=event,
    )


def claim_next(
    db: Session,
    database: Database,
    claimer: Claimer,
    *,
    job_class: JobClass,
    parallel_limits: LimitsOf,
    but: Collection[str] = (),
    kinds: Collection[str] | None = None,
) -> ClaimedJob | None:
    """Claim the oldest job that this runner may run.

    Args:
        parallel_limits: asked about the stores that have jobs at work.
        but: jobs that are left alone, because an earlier attempt of this very runner has not ended.
        kinds: what the runner knows how to do; a newer instance may have queued more. None: everything.
    """
    now = database.now(db)
    keys = reachable_keys(db, claimer.labels, job_class)
    wanted = Wanted(job_class, None if kinds is None else tuple(sorted(kinds)), tuple(sorted(but)))
    if not keys or not oldest(db, wanted, keys, now=now):
        return None
    token = next_token(db)  # first: its row lock makes the count of running jobs below exact
    wanted = replace(wanted, full=tuple(full_stores(db, parallel_limits)))
    found = oldest(db, wanted, keys, now=now)[:CANDIDATES_MAX]
    query = select(Job).where(col(Job.id).in_(found)).order_by(col(Job.id)).with_for_update(skip_locked=True)
    job = next((each for each in db.exec(query).all() if is_claimable(each, now=now)), None)
    return None if job is None else _take(db, job, claimer, token=token, now=now)


def _take(db: Session, job: Job, claimer: Claimer, *, token: int, now: datetime) -> ClaimedJob | None:
    runs = job.state in (JobState.QUEUED, JobState.WAITING)
    state = JobState.RUNNING if runs else JobState(job.state)
    is_quiet = job.state == JobState.WAITING and job.kind in LOOKS_QUIETLY
    values: dict[str, Any] = {
        "state": state,
        "fencing_token": token,
        "lease_instance": claimer.instance_id,
        "lease_expires_at": now + timedelta(seconds=claimer.lease_ttl_s),
        "attempt": Job.attempt + 1,
        "unproven": True,
        "not_before": None,
        "wake_key": None,
        "throttle_effective": None,
        "throttle_cause": None,
        "started_at": job.started_at or now,
    }
    if runs and not is_quiet:  # else why silence is not proved yet stays to be seen
        values["waiting_on"] = []
    event = state_event(state, instance=claimer.instance_id, attempt=job.attempt + 1)
    won = change_job(
        db,
        job.id,
        guards=[col(Job.state) == job.state, col(Job.version) == job.version],
        values=values,
        now=now,
        event=event if runs and not is_quiet else None,
    )
    if not won:
        return None
    return ClaimedJob(
        id=job.id,
        kind=job.kind,
        store=job.store,
        state=state,
        params=job.params,
        token=token,
        attempt=job.attempt + 1,
        crash_count=job.crash_count,
        retries=job.retries,
        requested_by=job.requested_by,
        throttle=job.throttle_requested,
        active_s=job.active_s,
        done=int((job.progress or {}).get("done", 0)),
        removed=int((job.progress or {}).get("removed") or 0),
        rate_per_s=(job.progress or {}).get("rate_per_s"),
        is_quiet=is_quiet,
    )


def renew(db: Session, database: Database, claimer: Claimer, held: Sequence[tuple[str, int]]) -> list[str]:
    """Prolong leases; returns the jobs that are still held."""
    expires_at = database.now(db) + timedelta(seconds=claimer.lease_ttl_s)
    kept = []
    for job_id, token in sorted(held):  # one order for all who lock many jobs: no deadlock
        row = db.execute(
            update(Job)
            .where(
                col(Job.id) == job_id,
                col(Job.fencing_token) == token,
                col(Job.lease_instance) == claimer.instance_id,
                col(Job.state).in_(sorted(HELD)),
            )
            .values(lease_expires_at=expires_at)
            .returning(col(Job.id))
            .execution_options(synchronize_session=False)
        ).first()
        if row is not None:
            kept.append(job_id)
    return kept


def overlapping_claim(
    db: Session, *, job_id: str, target_identity: str, resource: str
) -> tuple[str, str] | None:
    """Another job that holds a whole or a part of a resource, and which; the same resource is not looked at.

    Two that claim at the same time look one after the other.
    """
    serialise(db, target_identity)
    holds = select(JobClaim.job_id, JobClaim.resource).join(Job, col(Job.id) == col(JobClaim.job_id))
    found = db.exec(
        holds.where(
            col(JobClaim.target_identity) == target_identity,
            shares(col(JobClaim.resource), resource),
            col(JobClaim.resource) != resource,
            col(JobClaim.job_id) != job_id,
            col(Job.finished_at).is_(None),
        ).limit(1)
    ).first()
    return None if found is None else (found[0], found[1])


def claim_target(
    db: Session, *, job_id: str, target_identity: str, resource: str, now: datetime
) -> str | None:
    """Take the right to write to a target's resource until the job ends.

    Returns: None when it is this job's, else the id of the job that holds it.
    """
    place = (target_identity, resource)
    holder = db.get(JobClaim, place, with_for_update=True)
    if holder is not None and holder.job_id != job_id:
        other = db.get(Job, holder.job_id)
        if other is not None and other.finished_at is None:
            return holder.job_id
        release_claims(db, holder.job_id, now=now)
        db.expunge(holder)
        holder = None
    if holder is not None:
        return None
    row = insert(JobClaim).values(
        target_identity=target_identity, resource=resource, job_id=job_id, since=now
    )
    try:
        with db.begin_nested():
            db.execute(row)
    except IntegrityError:  # another job saw the same free place, and was faster
        winner = db.get(JobClaim, place)
        if winner is None:  # and has ended since
            raise MetadataBusy from None
        return winner.job_id
    return None


def is_free(db: Session, target_identity: str, resource: str) -> bool:
    """Whether nobody holds a claim; one that is being given back is waited for: its wake is not missed."""
    return db.get(JobClaim, (target_identity, resource), with_for_update=True, populate_existing=True) is None
