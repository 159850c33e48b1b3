"""What the control loop of a runner has the jobs do that it holds: stop, slow down, or give up a wait."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

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
from app.news.gate import Gate

LONGEST_S: Final = 3.0
_ROW = (
    col(Job.id),
    col(Job.state),
    col(Job.fencing_token),
    col(Job.throttle_requested),
    col(Job.waiting_on),
)


class OrderDesk:
    """Signals to the jobs that are held here what they must know; of the control loop.

    Rows are read when somebody has written, when other jobs are held than before, and every few seconds: an
    order that no news tells of, as where LISTEN is cut off, is heard then. What time alone changes, as a
    window does, is looked at each time.

    Args:
        monotonic: seconds, which go on while the machine sleeps.
    """

    def __init__(
        self,
        database: Database,
        *,
        kinds: TaskKinds,
        openings: Openings,
        suspended_stores: Callable[[Session], Collection[str]],
        monotonic: Callable[[], float],
    ) -> None:
        self._database = database
        self._kinds = kinds
        self._openings = openings
        self._suspended_stores = suspended_stores
        self._gate = Gate(database.news, monotonic, longest_s=LONGEST_S)
        self._read: frozenset[tuple[str, int]] = frozenset()
        self._rows: Sequence[Any] = ()
        self._suspended: Collection[str] = ()

    def give(self, held: Mapping[str, JobContext]) -> None:
        """Give all orders that there are.

        Raises: MetadataUnavailable, MetadataBusy.
        """
        asked = frozenset((job_id, context.job.token) for job_id, context in held.items())
        if self._gate.opens() or asked != self._read:
            self._look(held)
            self._read = asked
        for job_id, state, token, throttle, waiting_on in self._rows:
            context = held[job_id]
            _order(context, JobState(state), token, throttle, self._suspended, self._openings)
            if waiting_on and state == JobState.RUNNING and context.too_late is None:
                _judge_held_up(context, self._database, self._kinds)

    def _look(self, held: Mapping[str, JobContext]) -> None:
        self._read = frozenset()  # a look that fails is made again
        with self._database.reading() as db:
            self._rows = db.execute(select(*_ROW).where(col(Job.id).in_(list(held)))).all()
            self._suspended = self._suspended_stores(db)


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
