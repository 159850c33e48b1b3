"""The SQL target of a job, seen from its control connection: open it, claim it, prove it silent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from app.clock import Clock
from app.errors import ServiceError
from app.jobs.claims import claim_target, current_epoch, next_token
from app.jobs.context import JobContext
from app.jobs.errors import JobFailed, JobStopped, JobWaiting, LeaseLost
from app.jobs.models import JobClaim, WaitingOn
from app.jobs.service import claim_key
from app.stores.borders import TargetOfOtherStores, judge
from app.stores.errors import SecretUnavailable, StoreUrlRefused
from app.stores.models import Store
from app.stores.service import get_store
from app.stores.targets import session_limits, target_of
from spark.targets.connection import Connection, connect, identity
from spark.targets.errors import (
    FenceRaised,
    TargetCancelled,
    TargetDatabaseMissing,
    TargetError,
    TargetLockTimeout,
)
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, has_ledger
from spark.targets.silence import application_name, running_statements, terminate_older

SILENCE_TRIES_MAX = 50
SILENCE_WAIT_S = 0.1
CLAIM_TRIES_MAX = 20
CONFLICT_LOOK_AGAIN_S = 5
CONTROL_UNIT = "control"
CHECKPOINT_TARGET = "target"


def read_store_of(context: JobContext) -> Store:
    """The store of a job, now."""
    assert context.job.store is not None
    name = context.job.store
    return context.write(lambda db: get_store(db, name))


@contextmanager
def controlled(context: JobContext, store: Store) -> Iterator[Connection]:
    """The control connection of a job; what goes wrong at the target leaves as a signal to the runner.

    Raises: JobStopped, JobWaiting (transient), JobFailed.
    """
    name = application_name(context.job.id, CONTROL_UNIT, context.job.token)
    try:
        limits = session_limits(context.settings)
        target = target_of(store, is_judged=True)
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
        return JobWaiting(waiting_on, not_before=None, transient=True, code=error.code, detail=error.detail)
    return JobFailed(error.code, error.detail)


def _fenced(context: JobContext, error: FenceRaised) -> Exception:
    """A greater token of ours is a lease that went, or a claim in between; a greater one than all of ours is
    another metadata.

    Raises: LeaseLost: the job is not ours any more.
    """
    epoch = context.write(current_epoch)
    # Each of our tokens is given once: the same one of another owner comes from another metadata.
    foreign = error.fence_token == context.job.token
    if error.fence_token is not None and (foreign or error.fence_token > epoch):
        return JobFailed("EPOCH_AHEAD", f"{error.detail}; `lethe recover STORE` raises our epoch")
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


def claim(context: JobContext, conn: Connection, *, resource: str, queue: bool) -> Claimed:
    """Take the claim in the metadata, end what an older attempt left running, raise the fence.

    Raises: JobWaiting or JobFailed: another job writes there. LeaseLost, JobFailed: the fence is above us.
    """
    target_identity = identity(conn)

    def take(db: Session) -> str | None:
        context.change(db, {"claim_identity": target_identity, "claim_resource": resource})
        return claim_target(
            db,
            job_id=context.job.id,
            target_identity=target_identity,
            resource=resource,
            now=context.database.now(db),
        )

    other = context.write(take)
    if other is not None:
        raise _conflict(context.clock, other, target_identity, resource, queue=queue)
    known = context.checkpoint(CHECKPOINT_TARGET) or {}
    noted = {"identity": target_identity, "resource": resource, "ledger": known.get("ledger")}
    context.save_checkpoint(CHECKPOINT_TARGET, noted)
    # Begun without a ledger it goes on without: one that was made since knows nothing of the first units.
    ledger = ensure_ledger(conn) and known.get("ledger") is not False
    if ledger is not known.get("ledger"):
        context.save_checkpoint(CHECKPOINT_TARGET, noted | {"ledger": ledger})
    terminate_older(conn, context.job.id, token=context.job.token)
    if ledger:
        _raise_fence(context, conn, resource, token=context.job.token)
    return Claimed(target_identity, resource, ledger)


def _conflict(clock: Clock, other: str, target_identity: str, resource: str, *, queue: bool) -> Exception:
    if not queue:
        return JobFailed("CONFLICTING_JOB", f"{other} writes to the same tables", retryable=True)
    until = datetime.fromtimestamp(clock.now().timestamp() + CONFLICT_LOOK_AGAIN_S, tz=clock.now().tzinfo)
    waiting_on = [WaitingOn(kind="JOB", ref=other)]
    return JobWaiting(
        waiting_on,
        not_before=until,
        wake_key=claim_key(target_identity, resource),
        overtaken=lambda db: db.get(JobClaim, (target_identity, resource)) is None,
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
        target = target_of(store, is_judged=True)
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
