"""What can go wrong with Spark itself. Every module of `spark` beside its domains raises only these.

SparkError
├── SparkStartFailed      no session came up; `reason` says which kind of trouble it is
├── LeaseRefused          no slot was lent
│   ├── PoolQueueFull     too many wait already; `retry_after_s`
│   ├── PoolFailed        Spark does not come up again; an administrator must look
│   ├── PoolStopped       the pool was never started, or the service ends
│   ├── PoolDraining      an administrator wants it empty
│   └── LeaseWaitEnded    the caller asked to stop, or the time to wait is over
└── SparkRunError         a slot was lent, and what ran on it did not end well
    ├── SparkJobCancelled our own cancel()
    ├── SparkLost         the JVM is gone; the same work may succeed on the next one
    └── SparkJobFailed    everything else; the detail is the first line of the cause
"""

from typing import ClassVar, Literal

StartReason = Literal[
    "NO_JAVA", "NO_SECRET", "NO_IMAGE", "BAD_MASTER", "MASTER_AWAY", "EXITED", "TIMEOUT", "STOPPED", "FAILED"
]


class SparkError(Exception):
    """A fact about Spark, with a stable `code`; `transient` says that the same call may succeed later."""

    code: ClassVar[str] = "SPARK_ERROR"
    transient: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class SparkStartFailed(SparkError):
    """No session came up.

    Args:
        reason: NO_JAVA; NO_SECRET (a cluster that must have one, or its file cannot be used); NO_IMAGE
            (Kubernetes has nothing to start executors from); BAD_MASTER (it cannot be parsed); MASTER_AWAY
            (nobody answers there); EXITED (the JVM ended before its handshake); TIMEOUT; STOPPED (the caller
            wanted no session any more); FAILED (anything else).
    """

    code = "SPARK_START_FAILED"
    transient = True

    def __init__(self, reason: StartReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: StartReason = reason


class LeaseRefused(SparkError):
    """No slot was lent."""

    code = "SPARK_LEASE_REFUSED"
    transient = True


class PoolQueueFull(LeaseRefused):
    """Too many wait already."""

    code = "SPARK_QUEUE_FULL"

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class PoolFailed(LeaseRefused):
    """Spark does not come up again by itself."""

    code = "SPARK_POOL_FAILED"
    transient = False


class PoolStopped(LeaseRefused):
    """The pool does not run."""

    code = "SPARK_POOL_STOPPED"


class PoolDraining(LeaseRefused):
    """The pool gives no leases until it is resumed."""

    code = "SPARK_POOL_DRAINING"


class LeaseWaitEnded(LeaseRefused):
    """The wait for a slot ended without one."""

    code = "SPARK_LEASE_WAIT_ENDED"

    def __init__(self, detail: str, *, cause: Literal["STOP", "TIMEOUT"]) -> None:
        super().__init__(detail)
        self.cause: Literal["STOP", "TIMEOUT"] = cause


class SparkRunError(SparkError):
    """What ran on a slot did not end well."""

    code = "SPARK_RUN_ERROR"


class SparkJobCancelled(SparkRunError):
    """Our own cancel."""

    code = "SPARK_JOB_CANCELLED"


class SparkLost(SparkRunError):
    """The JVM is gone, with everything that ran on it."""

    code = "SPARK_LOST"
    transient = True


class SparkJobFailed(SparkRunError):
    """A job of Spark, or the function around it, failed."""

    code = "SPARK_JOB_FAILED"
