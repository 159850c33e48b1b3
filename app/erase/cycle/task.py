"""The task of a cycle: from its start or its resumption to its end (the table of design.md, Erase).

Rules:
- a cycle has one job, and ends with it; the states that the table names are written in the transaction that
  orders the job's end, or before its signal is raised;
- a cycle that another process has left, or that was SUSPENDED, is resumed before its end, EXPIRED after it;
- one that reaches its end at work is INCOMPLETE.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session

from app.erase.cycle.attempt import Attempt, EndReached, EraserDisabled, Workshop
from app.erase.cycle.cycle import CycleLoop
from app.erase.cycle.planning import make_plan
from app.erase.cycle.report import result_of
from app.erase.cycle.selecting import select_files
from app.erase.messages import Message, last_message
from app.erase.place import claim_place, store_of
from app.erase.record import CycleEnded, Record, end_cycle
from app.erase.rows import ACTIVE, CycleState, CycleStep, ErasureCycle
from app.erase.rules import eraser_key
from app.erase.service import begin_cycle_of
from app.jobs.errors import JobFailed, JobStopped, JobWaiting, LeaseLost, StopCause
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import suspended_wait
from app.jobs.service import request_abort
from app.jobs.writing import EVENT_WARNING
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store, is_suspended
from app.stores.targets import environment_directory

CYCLE_EXPIRED: Final = "CYCLE_EXPIRED"
PERIOD_CHANGED: Final = "PERIOD_CHANGED"
ACTOR: Final = "eraser"


def run_erasure(context: JobContext, *, workshop: Workshop) -> Mapping[str, Any]:
    """Go on with a cycle, and return the result that clients see.

    Raises: JobSignal.
    """
    store = store_of(context)
    cycle = context.write(lambda db: begin_cycle_of(db, context, store))
    record = Record(context, cycle)
    try:
        return _attempt(record, store, workshop)
    except JobStopped as stopped:
        raise _stopped(record, stopped.cause) from stopped
    except EraserDisabled as disabled:
        raise _disabled(record) from disabled
    except JobFailed as failed:
        facts = {"code": failed.code, "detail": failed.detail}
        _end(record, CycleState.FAILED, Message.FAILED, **facts)
        raise
    except CycleEnded as ended:  # by the tick, which has ordered the job's abort with it
        raise JobStopped(StopCause.ABORT) from ended


def _attempt(record: Record, store: Store, workshop: Workshop) -> Mapping[str, Any]:
    context = record.context
    if record.cycle.state not in ACTIVE:
        return _ended_before(record)
    now = context.metadata_now()
    if is_suspended(store, now=now):
        _suspend(record, "the store rests")
        raise suspended_wait(store.id, now=now, until=store.suspended_until)
    try:
        directory = environment_directory(store, context.settings)
    except StoreUrlRefused as error:
        raise JobFailed(error.code, error.detail) from error
    claim_place(context, directory)
    _resume(record, workshop.process)
    attempt = Attempt(context, store, directory, record, workshop)
    attempt.take_debt()
    try:
        return _finish(record, _work(attempt))
    except EndReached:
        return _finish(record, CycleState.INCOMPLETE)
    finally:
        attempt.close()


def _work(attempt: Attempt) -> CycleState:
    select_files(attempt)
    if attempt.cycle.step == CycleStep.SELECTED:
        attempt.look()
        make_plan(attempt)
    return CycleLoop(attempt).run()


def _ended_before(record: Record) -> Mapping[str, Any]:
    """A crash came between the end of the cycle and that of its job: the job ends now as its cycle did.

    Raises: JobFailed: the cycle has FAILED. CycleEnded: an order to abort the job was written with its end.
    """
    cycle = record.cycle
    if cycle.state in (CycleState.COMPLETE, CycleState.INCOMPLETE):
        return record.read(lambda db: result_of(db, cycle))
    if cycle.state == CycleState.FAILED:
        facts = record.read(lambda db: last_message(db, cycle.job_id, Message.FAILED))
        raise JobFailed(facts.get("code", "INTERNAL"), facts.get("detail", "the cycle has failed"))
    raise CycleEnded(cycle.state)


def _resume(record: Record, process: str) -> None:
    """Take a cycle up again, or say that its end has passed meanwhile.

    Raises: JobStopped: it has EXPIRED.
    """
    cycle, now = record.cycle, record.context.clock.now()
    was_left = cycle.state == CycleState.SUSPENDED or (cycle.process is not None and cycle.process != process)
    if was_left and cycle.ends_at is not None and now >= cycle.ends_at:
        _expire(record)
    if not was_left and cycle.process == process:
        return

    def edit(_db: Session, row: ErasureCycle) -> None:
        row.state, row.process = CycleState.RUNNING, process

    is_begun = was_left and cycle.started_at is not None
    record.change(edit, say=Message.RESUMED if is_begun else None)


def _expire(record: Record) -> None:
    """End a cycle whose end has passed, and its job; a fresh one is begun by the tick."""
    context = record.context

    def edit(db: Session, row: ErasureCycle) -> None:
        now = context.database.now(db)
        request_abort(db, context.job.id, now=now, actor=ACTOR, reason=CYCLE_EXPIRED)
        end_cycle(db, row, CycleState.EXPIRED, now=context.clock.now())

    record.change(edit, say=Message.NOT_RESUMED)
    raise JobStopped(StopCause.ABORT)


def _finish(record: Record, state: CycleState) -> Mapping[str, Any]:
    """End a cycle at work: all files done, or its end reached."""
    is_complete = state is CycleState.COMPLETE
    result = record.change(
        lambda db, row: _ended(db, row, state, now=record.context.clock.now()),
        say=Message.COMPLETED if is_complete else Message.INCOMPLETE,
    )
    for warning in result["warnings"]:
        record.context.note(EVENT_WARNING, warning)
    return result


def _ended(db: Session, cycle: ErasureCycle, state: CycleState, *, now: datetime) -> dict[str, Any]:
    end_cycle(db, cycle, state, now=now)
    result = result_of(db, cycle)
    cycle.incomplete = result["remaining_by_cause"] or None
    return result


def _end(record: Record, state: CycleState, what: Message, **facts: Any) -> None:
    now = record.context.clock.now()
    try:
        record.change(lambda db, row: end_cycle(db, row, state, now=now), say=what, **facts)
    except CycleEnded:
        return


def _suspend(record: Record, why: str) -> None:
    """Note that a cycle rests, if it has begun."""
    if record.cycle.state == CycleState.SUSPENDED:
        return
    record.change(
        lambda _db, row: setattr(row, "state", CycleState.SUSPENDED),
        say=Message.SUSPENDED if record.cycle.started_at is not None else None,
        why=why,
    )


def _stopped(record: Record, cause: StopCause) -> JobStopped | JobWaiting:
    """Note why a cycle stops; a shutdown leaves its job WAITING for the next start."""
    if cause is StopCause.LEASE_LOST:
        return LeaseLost()
    try:
        if cause is not StopCause.ABORT:
            _suspend(record, cause.name)
    except CycleEnded:
        return JobStopped(StopCause.ABORT)
    if cause is not StopCause.SHUTDOWN:
        return JobStopped(cause)
    context = record.context
    waiting = [WaitingOn(kind="SHUTDOWN", ref=context.instance_id)]
    return JobWaiting(waiting, not_before=context.clock.now())


def _disabled(record: Record) -> JobWaiting:
    """The eraser was switched off: the document waits until it is on again."""
    _suspend(record, "je.env.runEraser is off")
    context = record.context
    store = context.job.store or ""
    waiting = [WaitingOn(kind="ERASER_DISABLED", ref=store)]
    return JobWaiting(waiting, not_before=None, wake_key=eraser_key(store))
