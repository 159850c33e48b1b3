"""The proof that nothing of a cycle writes any more, and what an order to its job means to it."""

from typing import Final

from sqlmodel import Session

from app.erase.cycle.attempt import CHECKPOINT_CLAIMED
from app.erase.messages import Message, message
from app.erase.place import store_of
from app.erase.queries import cycle_of
from app.erase.record import end_cycle
from app.erase.rows import ACTIVE, CycleState
from app.errors import ServiceError
from app.jobs.errors import JobWaiting
from app.jobs.rows import Job
from app.jobs.running.claims import next_token
from app.jobs.running.context import JobContext
from app.jobs.states import JobState
from app.protection.service import prove_no_writer

PROOF_S: Final = 5.0


def prove_erasure_silent(context: JobContext) -> None:
    """Return when nothing of the job writes any more; then note what that means to its cycle.

    Raises: JobWaiting: it could not be proved now.
    """
    if context.checkpoint(CHECKPOINT_CLAIMED) is not None:
        _prove(context)
    context.write(lambda db: _note_order(db, context))


def _prove(context: JobContext) -> None:
    store = store_of(context)

    def above(db: Session) -> int:
        context.change(db, {})
        return next_token(db)

    try:
        proved = prove_no_writer(
            context.database,
            context.settings,
            store,
            epoch=context.write(above),
            deadline_s=PROOF_S,
            clock=context.clock,
        )
    except ServiceError as error:
        raise JobWaiting([], not_before=None, detail=f"{error.code}: {error.detail}") from error
    if not proved:
        raise JobWaiting([], not_before=None, detail="a file is still locked by a writer")


def _note_order(db: Session, context: JobContext) -> None:
    """What a pause or an abort means to the cycle; the job's row says which it is."""
    job = db.get_one(Job, context.job.id)
    cycle = cycle_of(db, job.id)
    if cycle is None or cycle.state not in ACTIVE:
        return
    if job.state == JobState.ABORTING:
        end_cycle(db, cycle, CycleState.ABORTED, now=context.clock.now())
        context.change(db, {}, message(db, cycle, Message.ABORTED))
    elif job.state == JobState.PAUSING:
        cycle.state = CycleState.SUSPENDED
        db.add(cycle)
