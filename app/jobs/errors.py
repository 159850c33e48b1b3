"""Errors of jobs: what clients see, and how a task tells its runner why it stops.

ServiceError -> JobNotFound, JobKindUnknown, IllegalTransition, ConflictingJob, TargetNotGone, QueueFull,
                SparkDisabled, SparkNotInstalled, JeNotInstalled,
                PoolNotRunning, PoolQueueFull, PlanNotUsable, PlanNoLongerHolds, LimitExceeded,
                EpochAhead
JobSignal    -> JobStopped, JobWaiting, JobFailed, LeaseLost
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import IntEnum

from sqlmodel import Session

from app.errors import Conflict, NotFound, PreconditionFailed, TooMany, Unprocessable
from app.jobs.models import WaitingOn
from app.jobs.states import TRANSITIONS, JobState
from spark.extras import JE, SPARK


class JobNotFound(NotFound):
    """There is no such job, or it has been forgotten by retention."""


class JobKindUnknown(Conflict):
    """Another version made the job: nobody here can say what a token needs to start it."""


class IllegalTransition(Conflict):
    """The table of transitions does not have it."""

    def __init__(self, state: str, wanted: str) -> None:
        allowed = sorted(TRANSITIONS[JobState(state)])
        super().__init__(
            f"a job that is {state} cannot become {wanted}",
            extra={"state": state, "allowed": allowed},
        )


class ConflictingJob(Conflict):
    """Another job writes to the same tables or files."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"{job_id} writes to the same tables or files", extra={"job_id": job_id})


class TargetNotGone(Conflict):
    """A job is abandoned only where its target could not be asked whether it is silent."""

    def __init__(self, state: str) -> None:
        super().__init__(
            f"the job is {state}, and nothing says that its target is gone; `:abort` ends it as soon as it is"
            " silent; where that cannot be proved `waiting_on` says TARGET_SILENCE, and it may be abandoned",
            extra={"state": state},
        )


class QueueFull(TooMany):
    """The queue has an end."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} jobs are waiting already", headers={"Retry-After": "30"})


class SparkDisabled(Conflict):
    """Spark is needed for this, and switched off in this service."""

    def __init__(self) -> None:
        super().__init__("Spark is switched off here (LETHE_SPARK__ENABLED); INLINE is always there")


class SparkNotInstalled(Conflict):
    """The packages of Spark are not installed here."""

    def __init__(self) -> None:
        super().__init__(f"Spark is not installed here: {SPARK.command}; INLINE is always there")


class JeNotInstalled(Conflict):
    """The compiler that reads the logs of JE environments is not installed here."""

    def __init__(self) -> None:
        super().__init__(f"what reads logs of JE is not installed here: {JE.command}")


class PoolNotRunning(Conflict):
    """The Spark pool has no JVM now."""


class PoolQueueFull(TooMany):
    """Enough jobs wait for Spark already."""

    def __init__(self, limit: int, *, retry_after_s: int) -> None:
        detail = f"{limit} jobs wait for Spark already; INLINE would run now"
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class PlanNotUsable(Unprocessable):
    """`plan_id` names no finished plan of this store, or the request says something else than the plan."""


class PlanNoLongerHolds(PreconditionFailed):
    """What was reviewed is no longer so."""


class LimitExceeded(Conflict):
    """The plan is larger than the store's limits allow."""


class EpochAhead(Conflict):
    """The target has seen a greater epoch than ours: of another metadata, or of a newer state of this one.

    Args:
        fence: what was seen there, in words.
    """

    def __init__(self, fence: str, *, ours: int) -> None:
        super().__init__(
            f"{fence}, ours at {ours}: another Lethe has worked there, or this metadata is an old copy;"
            " stop the other one, then `lethe recover STORE` raises ours"
        )


class StopCause(IntEnum):
    """Why a task must stop; the greater outranks the lesser."""

    WAITED_TOO_LONG = 1
    WINDOW = 2
    SUSPEND = 3
    PAUSE = 4
    SHUTDOWN = 5
    ABORT = 6
    LEASE_LOST = 7


class JobSignal(Exception):
    """A task's word to its runner."""


class JobStopped(JobSignal):
    """The task has stopped at a safe point because it was asked to."""

    def __init__(self, cause: StopCause) -> None:
        super().__init__(cause.name)
        self.cause = cause


class LeaseLost(JobStopped):
    """Somebody else holds the job, or nobody knows: write nothing any more."""

    def __init__(self) -> None:
        super().__init__(StopCause.LEASE_LOST)


class JobWaiting(JobSignal):
    """The task cannot go on now.

    Args:
        not_before: when to look again, at the latest.
        wake_key: an event that wakes it earlier.
        overtaken: whether that event has come already; asked in the transaction that writes WAITING, because
            a wake before it finds nobody who waits.
        transient: counts as a retry; too many without progress fail the job with `code`.
        gives_back: its target is away, or a window closed, and its fence keeps off what may still run there:
            others may have it.
    """

    def __init__(
        self,
        waiting_on: Sequence[WaitingOn],
        *,
        not_before: datetime | None,
        wake_key: str | None = None,
        overtaken: Callable[[Session], bool] = lambda _db: False,
        transient: bool = False,
        code: str = "RETRIES_EXHAUSTED",
        detail: str = "",
        gives_back: bool = False,
    ) -> None:
        super().__init__(detail or ", ".join(f"{item.kind} {item.ref}" for item in waiting_on))
        self.waiting_on = list(waiting_on)
        self.not_before = not_before
        self.wake_key = wake_key
        self.overtaken = overtaken
        self.gives_back = gives_back
        self.transient = transient
        self.code = code
        self.detail = detail


class JobFailed(JobSignal):
    """The task cannot succeed; trying again changes nothing."""

    def __init__(
        self, code: str, detail: str, *, retryable: bool = False, result: dict[str, object] | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retryable = retryable
        self.result = result
