"""What a kind of job is: a task function, and the proof that nothing of it writes any more."""

import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.errors import JobFailed, JobStopped, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import A_DAY
from app.stores.errors import StoreNotFound
from app.tracing import TRACING


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One kind of job.

    Args:
        run: does the work from its checkpoints on and returns the result; raises JobSignal.
        prove_silence: returns only when nothing of the job writes at its target any more, whoever ran it.
        wait_max: how long it may wait for one thing where no parameter says so; None: it has a deadline of
            its own.
    """

    run: Callable[[JobContext], Mapping[str, Any]]
    prove_silence: Callable[[JobContext], None]
    wait_max: timedelta | None = A_DAY

    def attempt(self, context: JobContext) -> Mapping[str, Any]:
        """Do the work as one attempt, and return the result.

        That the metadata was away is no failure of the job, whatever the task takes it for.

        Raises: MetadataUnavailable, MetadataBusy; JobSignal.
        """
        with TRACING.attempt(context.job, rests=(JobStopped, JobWaiting)):
            try:
                return self.run(context)
            except JobFailed as failed:
                if isinstance(failed.__cause__, MetadataUnavailable | MetadataBusy):
                    raise failed.__cause__ from failed
                raise
            except StoreNotFound as error:  # a job of a store that was removed since may be retried
                raise JobFailed("STORE_NOT_FOUND", error.detail) from error


TaskKinds = Mapping[str, TaskKind]
UNANSWERED: Final = "UNANSWERED_IN_TIME"
TIMEOUTS: Final = (TimeoutError, multiprocessing.TimeoutError, sa.exc.TimeoutError)


def unexpected(error: Exception) -> JobFailed | JobWaiting:
    """What becomes of a job whose task met what nobody has foreseen: slowness passes, a bug does not."""
    name = type(error).__name__
    if isinstance(error, TIMEOUTS):
        detail = f"something did not answer in time ({name}); the log of the service has the place"
        waiting_on = [WaitingOn(kind=UNANSWERED, ref="")]
        return JobWaiting(waiting_on, not_before=None, transient=True, code=UNANSWERED, detail=detail)
    return JobFailed("INTERNAL", f"an unexpected error: {name}")
