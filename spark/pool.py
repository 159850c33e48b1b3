"""A fixed number of sessions on one context, lent to jobs; the JVM below is watched and replaced.

States: STOPPED -> STARTING -> READY <-> REBUILDING; DRAINING by request; FAILED after three starts in a row.

Invariants:
- a slot is lent to at most one job; slots go to waiting leases in the order in which they came;
- no call but `lease` and `stop` waits, and these no longer than they were told;
- the JVM is started, probed and replaced by one thread, the keeper's;
- at most `queue_max` leases wait.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from spark.lease import Lease
from spark.options import SparkOptions
from spark.snapshot import JobClass, PoolSnapshot


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The pool's limits.

    Args:
        slots: sessions to lend.
        queue_max: leases that may wait for one.
        max_age_s: a context older than this is replaced when it is idle.
        max_jobs: a context that has run more functions than this is replaced when it is idle.
        idle_s: how long no job may have run before a context is replaced by age or count.
        probe_timeout_s: what a call to the JVM may take.
        probe_misses: calls in a row that may go unanswered before the JVM counts as hung.
        starts_max: failed starts in a row after which the pool is FAILED.
        close_timeout_s: how long a returned lease's jobs may take to end after their cancel.
    """

    slots: int = 4
    queue_max: int = 32
    max_age_s: float = 86_400.0
    max_jobs: int = 5_000
    idle_s: float = 60.0
    probe_timeout_s: float = 2.0
    probe_misses: int = 5
    starts_max: int = 3
    close_timeout_s: float = 10.0


class SparkPool:
    """Sessions lent to jobs; every method may be called from any thread."""

    def __init__(
        self,
        options: SparkOptions,
        *,
        limits: PoolLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a pool that is STOPPED.

        Args:
            monotonic: seconds that only grow; ages and waits are counted by it.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Start in the background; returns at once. Again after FAILED or STOPPED; else nothing."""
        raise NotImplementedError

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the pool within the timeout: refuse waiting leases, cancel running ones, end the JVM."""
        raise NotImplementedError

    def snapshot(self) -> PoolSnapshot:
        """How the pool looks now."""
        raise NotImplementedError

    def lease(
        self,
        *,
        job_id: str,
        job_class: JobClass,
        should_stop: Callable[[], bool] = lambda: False,
        wait_s: float | None = None,
    ) -> Lease:
        """Wait for a slot, first come first served; `with pool.lease(...) as lease: lease.run(...)`.

        While the pool is STARTING or REBUILDING leases wait.

        Args:
            should_stop: asked about four times a second while waiting.
            wait_s: how long to wait; None: until `should_stop`. 0: only what is free now.
        Raises: PoolQueueFull, PoolFailed, PoolStopped, PoolDraining, LeaseWaitEnded.
        """
        raise NotImplementedError

    def recycle(self, *, force: bool = False) -> None:
        """Replace the JVM once the leases in hand are back; waiting leases stay. Returns at once.

        Also the way out of FAILED.

        Args:
            force: do not wait for the leases in hand; they get SparkLost.
        """
        raise NotImplementedError

    def drain(self) -> None:
        """Give no more leases, refuse those that wait; leases in hand go on. Returns at once."""
        raise NotImplementedError

    def resume(self) -> None:
        """Take back drain()."""
        raise NotImplementedError
