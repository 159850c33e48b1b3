"""The SQL target of a job, seen from its control connection: open it, claim it, prove it silent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlmodel import Session

from app.clock import Clock
from app.errors import ServiceError
from app.jobs.errors import JobFailed, JobStopped, JobWaiting, LeaseLost
from app.jobs.models import WaitingOn
from app.jobs.running.abandonment import (
    CHECKPOINT_TARGET,
    SILENCE_TRIES_MAX,
    SILENCE_WAIT_S,
    AbandonedStillRuns,
    shut_out_abandoned,
)
from app.jobs.running.claims import claim_target, current_epoch, is_free, next_token, overlapping_claim
from app.jobs.running.context import JobContext
from app.jobs.service import claim_key
from app.jobs.writing import EPOCH_AHEAD
from app.secrets.errors import SecretUnavailable
from app.stores.borders import TargetOfOtherStores, judge
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.service import get_store
from app.stores.targets import session_limits, target_of
from spark.targets.connection import Connection, connect, identity
from spark.targets.errors import (
    ArchiveFailed,
    ArchiveFull,
    FenceRaised,
    TargetCancelled,
    TargetDatabaseMissing,
    TargetError,
    TargetLockTimeout,
    TargetUnreachable,
)
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, has_ledger
from spark.targets.silence import application_name, running_statements, terminate_older

CLAIM_TRIES_MAX = 20
CONFLICT_LOOK_AGAIN = timedelta(minutes=2)
"""A claim that is given back wakes who waits for it; this is for a wake that got lost."""
ARCHIVE_LOOK_AGAIN = timedelta(seconds=15)
ABANDONED_LOOK_AGAIN = timedelta(seconds=5)
REF_MAX_CHARS = 200
CONTROL_UNIT = "control"


def read_store_of(context: JobContext) -> Store:
    """The store of a job, now."""
    assert context.job.store is not None
    name = context.job.store
    return context.read(lambda db: get_store(db, name))


@contextmanager
def controlled(
    context: JobContext, store: Store, *, statement_max_ms: int | None = None
) -> Iterator[Connection]:
    """The control connection of a job; what goes wrong at the target leaves as a signal to the runner.

    Args:
        statement_max_ms: of each statement, where the setting allows more.
    Raises: JobStopped, JobWaiting (transient), JobFailed.
    """
    name = application_name(context.job.id, CONTROL_UNIT, context.job.token)
    try:
        limits = session_limits(context.settings)
        if statement_max_ms is not None:
            limits = replace(limits, statement_timeout_ms=min(limits.statement_timeout_ms, statement_max_ms))
        target = target_of(store, context.settings, context.database, is_judged=True)
        with connect(target, application_name=name, limits=limits) as conn:
            judge(context.database, store, conn)
            forget = context.on_cancel(lambda: conn.cancel())
            try:
                yield conn
            finally:
                forget()
    except TargetError as error:
        raise signal_of(context, error) from error
    except (SecretUnavailable, StoreUrlRefused, TargetOfOtherStores) as error:
        raise JobFailed(error.code, error.detail) from error


def signal_of(context: JobContext, error: TargetError) -> Exception:
    """What an error of the target means for the job."""
    cause = context.stop_cause
    if cause is not None and (isinstance(error, TargetCancelled) or error.transient):
        return JobStopped(cause)
    if isinstance(error, FenceRaised):
        return _fenced(context, error)
    if error.transient or isinstance(error, TargetCancelled):
        waiting_on = [WaitingOn(kind=error.code, ref=context.job.store or "")]
        return JobWaiting(
            waiting_on,
            not_before=None,
            transient=True,
            code=error.code,
            detail=error.detail,
            gives_back=isinstance(error, TargetUnreachable) and is_fenced(context),
        )
    if isinstance(error, ArchiveFull):
        return archive_wait(context, error)
    return JobFailed(error.code, error.detail)


def archive_wait(context: JobContext, error: ArchiveFailed) -> JobWaiting:
    """The wait of a job whose archive cannot be written: it goes on where it was as soon as it can be."""
    until = context.clock.now() + ARCHIVE_LOOK_AGAIN
    waiting_on = [WaitingOn(kind=error.code, ref=error.detail[:REF_MAX_CHARS], until=until)]
    act = "make room there" if isinstance(error, ArchiveFull) else "let the service write there"
    return JobWaiting(
        waiting_on, not_before=until, detail=f"{error.detail}; {act}, and the job goes on by itself"
    )


def _fenced(context: JobContext, error: FenceRaised) -> Exception:
    """A greater token of ours is a lease that went, or a claim in between; a greater one than all of ours is
    another metadata.

    Raises: LeaseLost: the job is not ours any more.
    """
    epoch = context.read(current_epoch)
    # Each of our tokens is given once: the same one of another owner comes from another metadata.
    foreign = error.fence_token == context.job.token
    if error.fence_token is not None and (foreign or error.fence_token > epoch):
        return JobFailed(EPOCH_AHEAD, f"{error.detail}; `lethe recover STORE` raises our epoch")
    if error.fence_token is None or error.fence_token < context.job.token:
        return LeaseLost()
    # The proof of silence of a job that has ended since took a token after our claim: the next is above it.
    context.write(lambda db: context.change(db, {}))
    waiting_on = [WaitingOn(kind=error.code, ref=context.job.store or "")]
    return JobWaiting(waiting_on, not_before=None, transient=True, code=error.code, detail=error.detail)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A target that this attempt may write to."""

    identity: str
    resource: str
    has_ledger: bool


def claim(
    context: JobContext, conn: Connection, *, resource: str, queue: bool, is_fenced: bool = True
) -> Claimed:
    """Take the claim in the metadata, end what an older attempt left running, raise the fence.

    An attempt that goes on after a target that was away takes its claim again, and waits for whoever has it
    by now; what an abandoned job may have left at the target is shut out first.

    Args:
        is_fenced: whether units look at the fence and write to the ledger; else neither is made.

    Raises: JobWaiting or JobFailed: another job writes there. LeaseLost, JobFailed: the fence is above us.
    """
    target_identity = identity(conn)

    def take(db: Session) -> tuple[str, str] | None:
        values = {"claim_identity": target_identity, "claim_resource": resource, "gave_back": False}
        context.change(db, values)
        place = {"job_id": context.job.id, "target_identity": target_identity, "resource": resource}
        beside = overlapping_claim(db, **place)
        if beside is not None:
            return beside
        other = claim_target(db, **place, now=context.database.now(db))
        return None if other is None else (other, resource)

    other = context.write(take)
    known = context.checkpoint(CHECKPOINT_TARGET) or {}
    if other is not None:
        holder, held = other
        raise _conflict(context.clock, holder, target_identity, held, queue=queue or bool(known))
    _shut_out_abandoned(context, conn, target_identity)
    noted = {"identity": target_identity, "resource": resource, "ledger": known.get("ledger")}
    context.save_checkpoint(CHECKPOINT_TARGET, noted)
    # Begun without a ledger it goes on without: one that was made since knows nothing of the first units.
    ledger = is_fenced and ensure_ledger(conn) and known.get("ledger") is not False
    if ledger is not known.get("ledger"):
        context.save_checkpoint(CHECKPOINT_TARGET, noted | {"ledger": ledger})
    terminate_older(conn, context.job.id, token=context.job.token)
    if ledger:
        _raise_fence(context, conn, resource, token=context.job.token)
    return Claimed(target_identity, resource, ledger)


def _shut_out_abandoned(context: JobContext, conn: Connection, target_identity: str) -> None:
    def token(db: Session) -> int:
        context.change(db, {})
        return context.job.token

    try:
        shut_out_abandoned(
            context.database,
            conn,
            identity=target_identity,
            owner=context.job.id,
            token=token,
            clock=context.clock,
        )
    except AbandonedStillRuns as error:
        until = context.clock.now() + ABANDONED_LOOK_AGAIN
        waiting_on = [WaitingOn(kind="ABANDONED_JOB", ref=error.job_id, until=until)]
        raise JobWaiting(waiting_on, not_before=until, detail=error.detail) from error


def _conflict(clock: Clock, other: str, target_identity: str, resource: str, *, queue: bool) -> Exception:
    if not queue:
        return JobFailed("CONFLICTING_JOB", f"{other} writes to the same tables", retryable=True)
    waiting_on = [WaitingOn(kind="JOB", ref=other)]
    return JobWaiting(
        waiting_on,
        not_before=clock.now() + CONFLICT_LOOK_AGAIN,
        wake_key=claim_key(target_identity, resource),
        overtaken=lambda db: is_free(db, target_identity, resource),
    )


def _raise_fence(context: JobContext, conn: Connection, resource: str, *, token: int) -> None:
    """Raise the fence; a unit below it that still holds it is ended, then waited for."""
    for attempt in range(CLAIM_TRIES_MAX):
        try:
            raise_fence(conn, resource, token=token, owner=context.job.id)
        except TargetLockTimeout:
            if attempt == CLAIM_TRIES_MAX - 1:
                raise
            terminate_older(conn, context.job.id, token=token)
            context.clock.sleep(SILENCE_WAIT_S)
        else:
            return


def is_fenced(context: JobContext) -> bool:
    """Whether every unit of the job looks at the fence: whoever claims its target next shuts it out."""
    known = context.checkpoint(CHECKPOINT_TARGET)
    return known is not None and known.get("ledger") is True


def counts_by_ledger(context: JobContext) -> bool:
    """Whether every unit of the job so far has left its row in the target's ledger."""
    known = context.checkpoint(CHECKPOINT_TARGET)
    return known is not None and known.get("ledger") is not False


def prove_silence(context: JobContext, *, then: Callable[[Connection], None] = lambda _conn: None) -> None:
    """Return when nothing of the job runs at its target, and nothing of an older attempt can begin.

    Args:
        then: called with the connection after the proof.

    Raises: JobWaiting: it could not be proved now.
    Source: design.md, promise 6; api.md, Jobs.
    """
    known = context.checkpoint(CHECKPOINT_TARGET)
    if known is None:  # no attempt came as far as to write anything
        return
    store = read_store_of(context)
    name = application_name(context.job.id, CONTROL_UNIT, context.job.token)
    try:
        limits = session_limits(context.settings)
        target = target_of(store, context.settings, context.database, is_judged=True)
        with connect(target, application_name=name, limits=limits) as conn:
            judge(context.database, store, conn)
            _prove(context, conn, known["resource"])
            then(conn)
    except TargetDatabaseMissing:
        return  # where there is no database nothing is written
    except (TargetError, ServiceError) as error:
        raise JobWaiting([], not_before=None, detail=f"{error.code}: {error.detail}") from error


def _token_above(context: JobContext) -> int:
    """A token that no worker of the job has, nor one of this attempt that was cancelled and lives on.

    Raises: LeaseLost: whoever has the job now has a greater one, which a fence of ours must not pass.
    """

    def take(db: Session) -> int:
        context.change(db, {})
        return next_token(db)

    return context.write(take)


def _prove(context: JobContext, conn: Connection, resource: str) -> None:
    token = _token_above(context)
    terminate_older(conn, context.job.id, token=token)
    if has_ledger(conn):
        with suppress(FenceRaised):  # above us already: no unit of ours can begin
            _raise_fence(context, conn, resource, token=token)
    for _ in range(SILENCE_TRIES_MAX):
        terminate_older(conn, context.job.id, token=token)
        running = running_statements(conn, context.job.id)
        if not running:
            return
        context.clock.sleep(SILENCE_WAIT_S)
    names = ", ".join(sorted({item.application_name for item in running}))
    raise JobWaiting([], not_before=None, detail=f"still running at the target: {names}")
