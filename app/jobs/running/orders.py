"""What the control loop of a runner has the jobs do that it holds: stop, slow down, or give up a wait."""

from collections.abc import Callable, Collection, Mapping

from sqlalchemy import select
from sqlmodel import Session, col

from app.db import Database
from app.jobs.errors import StopCause
from app.jobs.models import read_bounds
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import look_at_held_up
from app.jobs.running.openings import Openings, brake
from app.jobs.running.tasks import TaskKinds
from app.jobs.states import JobState

_ROW = (
    col(Job.id),
    col(Job.state),
    col(Job.fencing_token),
    col(Job.throttle_requested),
    col(Job.waiting_on),
)


def give_orders(
    held: Mapping[str, JobContext],
    *,
    database: Database,
    kinds: TaskKinds,
    openings: Openings,
    suspended_stores: Callable[[Session], Collection[str]],
) -> None:
    """Read the rows of all jobs that are held here, and signal to each what it must know.

    Raises: MetadataUnavailable, MetadataBusy.
    """
    with database.reading() as db:
        rows = db.execute(select(*_ROW).where(col(Job.id).in_(list(held)))).all()
        suspended = suspended_stores(db)
    for job_id, state, token, throttle, waiting_on in rows:
        context = held[job_id]
        _order(context, JobState(state), token, throttle, suspended, openings)
        if waiting_on and state == JobState.RUNNING and context.too_late is None:
            _judge_held_up(context, database, kinds)


def _order(
    context: JobContext,
    state: JobState,
    token: int,
    throttle: dict[str, object] | None,
    suspended: Collection[str],
    openings: Openings,
) -> None:
    if token != context.job.token:
        context.signal(StopCause.LEASE_LOST)
    elif state is JobState.ABORTING:
        context.signal(StopCause.ABORT)
    elif state is JobState.PAUSING:
        context.signal(StopCause.PAUSE)
    elif context.job.store in suspended:
        context.signal(StopCause.SUSPEND)
    if not brake(context, openings, read_bounds(throttle or {})):
        context.signal(StopCause.WINDOW)


def _judge_held_up(context: JobContext, database: Database, kinds: TaskKinds) -> None:
    """Stop a job that something holds up for longer than it may wait, where such jobs fail."""
    most = kinds[context.job.kind].wait_max
    context.too_late = look_at_held_up(database, context.job.id, most=most)
    if context.too_late is not None:
        context.signal(StopCause.WAITED_TOO_LONG)
