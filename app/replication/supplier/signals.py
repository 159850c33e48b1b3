"""What an error of the consumer, or of the own target, means for a session.

    the same request again   no answer, 429, 5xx, a batch whose predecessor is late
    acquire again            a stale epoch, an ended lease, a gap, a copy that is not whole any more
    wait                     all of these that stay, a consumer that another supplier holds
    fail                     everything else: nothing changes by trying again

Source: facts/replication-session, sections 5, 6 and 11.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from app.errors import ServiceError
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import signal_of
from app.replication.peer.answers import PeerAnswerInvalid, PeerError, PeerRefused, PeerUnanswered
from app.replication.replica.replicas import connected_replica
from app.replication.supplier.record import backoff_s
from app.stores.rows import Store
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicationRefused
from spark.targets.connection import Connection
from spark.targets.errors import TargetError

BUSY_WAIT_S: Final = 3.0
GRANT_WAIT_S: Final = 10.0
"""An admin who has just granted something looks at what becomes of it."""
BATCH_GAP: Final = "BATCH_GAP"
BODY_DAMAGED: Final = "BODY_DAMAGED"
PREV_GAP: Final = "PREV_GAP"
TOTAL_INCOMPLETE: Final = "TOTAL_INCOMPLETE"
REPLICA_BUSY: Final = "REPLICA_BUSY"
REACQUIRED: Final = frozenset(
    {
        BATCH_GAP,
        PREV_GAP,
        TOTAL_INCOMPLETE,
        "STALE_EPOCH",
        "SESSION_ENDED",
        "SESSION_NOT_FOUND",
        "SESSION_EXPIRED",
    }
)
DISCARD_NOT_GRANTED: Final = "DISCARD_NOT_GRANTED"
WAITED_FOR: Final = REACQUIRED | {
    REPLICA_BUSY,
    DISCARD_NOT_GRANTED,
    "REPLICA_INITIALIZING",
    "REPLICA_SUPPLIES",
}
OVER: Final = frozenset({"STALE_EPOCH", "SESSION_ENDED", "SESSION_NOT_FOUND", "SESSION_EXPIRED"})
"""What a consumer says of a session that can write no more."""
WAIT_REF_MAX_CHARS: Final = 200


def is_passing(error: PeerError) -> bool:
    """Whether the very same request may succeed a moment later."""
    if isinstance(error, PeerRefused):
        return error.status in (408, 429) or error.status >= 500 or error.code in (BATCH_GAP, BODY_DAMAGED)
    return isinstance(error, PeerUnanswered)


def is_reacquired(error: PeerError) -> bool:
    """Whether the session goes on after another acquire."""
    return is_passing(error) or (isinstance(error, PeerRefused) and error.code in REACQUIRED)


def is_waited_for(error: PeerError) -> bool:
    """Whether time heals it."""
    if isinstance(error, PeerAnswerInvalid):
        return False
    return is_reacquired(error) or error.code in WAITED_FOR


def waiting_for_peer(context: JobContext, error: PeerError, *, consumer: str, failures: int) -> JobWaiting:
    """Let the job wait for its consumer, holding nothing.

    Args:
        failures: in a row, without a change acknowledged in between.
    """
    is_busy = error.code == REPLICA_BUSY
    delay_s = BUSY_WAIT_S if is_busy else backoff_s(max(1, failures))
    if error.code == DISCARD_NOT_GRANTED:
        delay_s = min(delay_s, GRANT_WAIT_S)
    if isinstance(error, PeerRefused) and error.retry_after_s is not None and not is_busy:
        delay_s = max(delay_s, error.retry_after_s)
    until = context.clock.now() + timedelta(seconds=delay_s)
    ref = f"{consumer}: {error.code}"[:WAIT_REF_MAX_CHARS]
    waiting_on = [WaitingOn(kind="PEER", ref=ref, until=until)]
    return JobWaiting(waiting_on, not_before=until, code=error.code, detail=error.detail)


def failed_by_peer(error: PeerError) -> JobFailed:
    """End the job: trying again changes nothing."""
    return JobFailed(error.code, error.detail)


@contextmanager
def supplying_replica(context: JobContext, store: Store) -> Iterator[Connection]:
    """The replica of a session's job; what goes wrong there leaves as a signal to the runner.

    Raises: JobSignal.
    """
    try:
        with connected_replica(context.database, context.settings, store, purpose="session") as conn:
            forget = context.on_cancel(lambda: conn.cancel())
            try:
                yield conn
            finally:
                forget()
    except TargetError as error:
        raise signal_of(context, error) from error
    except ReplicationRefused as error:
        raise JobFailed(error.code, error.detail) from error
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise JobFailed("CLOCK_SKEW", str(error)) from error
    except ServiceError as error:
        raise service_signal(context, error) from error


def service_signal(context: JobContext, error: ServiceError) -> JobFailed | JobWaiting:
    """What an error that a client would get means for the job."""
    if not error.retryable:
        return JobFailed(error.code, error.detail)
    waiting_on = [WaitingOn(kind=error.code, ref=context.job.store or "")]
    return JobWaiting(waiting_on, not_before=None, transient=True, code=error.code, detail=error.detail)
