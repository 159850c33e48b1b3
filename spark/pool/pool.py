"""A fixed number of sessions on one context, lent to jobs; the JVM below is watched and replaced.

    STOPPED -> STARTING -> READY <-> REBUILDING (the JVM died, or is to be replaced by request or age)
                             |  DRAINING by request; FAILED after some starts in a row that failed

Invariants:
- a slot is lent to at most one job; slots go to waiting leases in the order in which they came;
- no call but `lease` and `stop` waits, and these no longer than they were told;
- the JVM is started, probed, replaced and ended by one thread, the keeper's;
- a lease knows that its JVM is lost before that JVM is touched;
- at most `queue_max` leases wait.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, Literal

from spark.pool.errors import (
    LeaseRefused,
    LeaseWaitEnded,
    PoolDraining,
    PoolFailed,
    PoolStopped,
    SparkStartFailed,
)
from spark.pool.lease import Lease, Terms
from spark.pool.lending import Lending
from spark.pool.options import SparkOptions
from spark.pool.snapshot import JobClass, PoolSnapshot, PoolState
from spark.pool.started import StartedSession, begin_session, end_session
from spark.pool.waiting import Waiter
from spark.pool.warming import warm_up_beside
from spark.pool.watch import Watch

TICK_S: Final = 0.25
RETRY_START_S: Final = 1.0
CLEAN_STOP_S: Final = 5.0
RELEASE_SHARE: Final = 0.5
HOPELESS: Final = ("NO_JAVA", "NO_SECRET", "NO_IMAGE", "BAD_MASTER")

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The pool's limits.

    Args:
        slots: sessions to lend.
        queue_max: leases that may wait for one.
        max_age_s: a context older than this is replaced when it is idle.
        max_jobs: a context that has run more functions than this is replaced when it is idle.
        idle_s: how long no job may have run before a context is replaced by age or count.
        patience_s: how long the JVM may leave calls unanswered before it counts as hung.
        starts_max: failed starts in a row after which the pool is FAILED.
        close_timeout_s: how long a returned lease's jobs may take to end after their cancel.
        warm_up: whether a new JVM runs a small job of its own first, beside those that come.
    """

    slots: int = 4
    queue_max: int = 32
    max_age_s: float = 86_400.0
    max_jobs: int = 5_000
    idle_s: float = 60.0
    patience_s: float = 10.0
    starts_max: int = 3
    close_timeout_s: float = 10.0
    warm_up: bool = True


class SparkPool:
    """Sessions lent to jobs; every method may be called from any thread.

    A process that ends without `stop` waits for what runs on the slots.
    """

    def __init__(
        self,
        options: SparkOptions,
        *,
        limits: PoolLimits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a pool that is STOPPED.

        Args:
            monotonic: seconds that only grow; ages are counted by it.
        """
        self._options = options
        self._limits = limits = limits or PoolLimits()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._keeper: threading.Thread | None = None
        self._state: PoolState = "STOPPED"
        self._since = monotonic()
        self._lending = Lending(slots=limits.slots, queue_max=limits.queue_max, monotonic=monotonic)
        self._calls: ThreadPoolExecutor | None = None
        self._started: StartedSession | None = None
        self._started_at, self._stop_deadline = 0.0, 0.0
        self._draining, self._stopping = False, False
        self._recycling: Literal["GENTLE", "FORCE"] | None = None
        self._watch: Watch
        self._starts, self._failed_starts = 0, 0
        self._last_error: str | None = None
        self._start_took_s: float | None = None

    def start(self) -> None:
        """Start in the background; returns at once. Again after FAILED or STOPPED; else nothing."""
        with self._lock:
            if self._state not in ("STOPPED", "FAILED"):
                return
            former = self._keeper
            self._stopping, self._recycling, self._failed_starts = False, None, 0
            self._enter("STARTING")
            self._keeper = threading.Thread(
                target=self._keep, args=(former,), name="lethe-spark-keeper", daemon=True
            )
            self._keeper.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the pool within the timeout: refuse waiting leases, cancel running ones, end the JVM."""
        with self._lock:
            keeper = self._keeper
            self._stopping = True
            self._stop_deadline = time.monotonic() + timeout_s
            self._lending.line.refuse_all(PoolStopped("the Spark pool ends"))
            in_hand = self._lending.in_hand
        for lease in in_hand:
            lease.cancel("the Spark pool ends")
        self._wake.set()
        if keeper is not None:
            keeper.join(timeout_s)
        with self._lock:
            if self._state == "FAILED":
                self._enter("STOPPED")

    def snapshot(self) -> PoolSnapshot:
        """How the pool looks now."""
        with self._lock:
            now, started = self._monotonic(), self._started
            return PoolSnapshot(
                state=self._state,
                since_s=now - self._since,
                slots=self._lending.slot_views(),
                queue=self._lending.waiting_views(),
                queue_max=self._limits.queue_max,
                jobs_run=self._lending.jobs_run,
                rebuilds=max(0, self._starts - 1),
                failed_rebuilds=self._failed_starts,
                last_error=self._last_error,
                start_took_s=self._start_took_s,
                uses_cds=started is not None and started.uses_cds,
                spark_version=version("pyspark"),
                master=self._options.master_url,
                jvm_pid=None if started is None else started.jvm.process.pid,
                context_age_s=None if started is None else now - self._started_at,
                executors=None if started is None else self._watch.executors,
                alone=None if started is None else self._watch.alone,
                executor_list=() if started is None else self._watch.listed,
                draining=self._draining,
            )

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
        deadline = None if wait_s is None else time.monotonic() + wait_s
        waiter = Waiter(Terms(job_id, job_class, self._limits.close_timeout_s), self._monotonic())
        with self._lock:
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
            self._lending.line.join(waiter, is_served=self._lends and self._lending.has_place)
            self._grant()
        while not waiter.told.is_set():
            if should_stop():
                self._leave(waiter, LeaseWaitEnded("the job stops", cause="STOP"))
            elif deadline is not None and time.monotonic() >= deadline:
                self._leave(waiter, LeaseWaitEnded(f"no slot within {wait_s:g} s", cause="TIMEOUT"))
            else:
                left_s = TICK_S if deadline is None else deadline - time.monotonic()
                waiter.told.wait(max(0.0, min(TICK_S, left_s)))
        if waiter.lease is None:
            assert waiter.refusal is not None
            raise waiter.refusal
        return waiter.lease

    def recycle(self, *, force: bool = False) -> None:
        """Replace the JVM once the leases in hand are back; waiting leases stay. Returns at once.

        Also the way out of FAILED; nothing while a JVM is coming up anyway.

        Args:
            force: do not wait for the leases in hand; they get SparkLost.
        Raises: PoolStopped.
        """
        with self._lock:
            if self._state == "STOPPED" or self._stopping:
                raise PoolStopped("the Spark pool does not run")
            if self._started is not None:
                self._recycling = "FORCE" if force else self._recycling or "GENTLE"
                self._enter("REBUILDING")
            failed = self._state == "FAILED"
        if failed:
            self.start()
        self._wake.set()

    def drain(self) -> None:
        """Give no more leases, refuse those that wait; leases in hand go on. Returns at once."""
        with self._lock:
            self._draining = True
            if self._state == "READY":
                self._enter("DRAINING")
            self._lending.line.refuse_all(PoolDraining("the Spark pool is being drained"))

    def resume(self) -> None:
        """Take back drain(), and a recycle() that still waits for leases."""
        with self._lock:
            self._draining = False
            if self._recycling == "GENTLE" and self._started is not None:
                self._recycling = None
                self._enter("READY")
            elif self._state == "DRAINING":
                self._enter("READY")
            self._grant()

    # What leases tell.

    def note_run(self, lease: Lease) -> None:
        """Count a function that has ended."""
        with self._lock:
            self._lending.note_run(lease)

    def note_loss(self, started: StartedSession) -> None:
        """Look at the JVM now rather than with the next tick."""
        self._wake.set()

    def take_back(self, lease: Lease) -> None:
        """Lend the slot to the next."""
        with self._lock:
            self._lending.take_back(lease)
            self._grant()
        self._wake.set()

    # Under the lock.

    @property
    def _lends(self) -> bool:
        # A JVM that died a moment ago may not have been noticed; what would be lent is lost already.
        is_up = self._started is not None and self._started.alive
        return self._state == "READY" and is_up and not self._stopping

    def _enter(self, state: PoolState) -> None:
        if state != self._state:
            self._state, self._since = state, self._monotonic()

    def _refusal(self) -> LeaseRefused | None:
        if self._state == "STOPPED" or self._stopping:
            return PoolStopped("the Spark pool does not run")
        if self._state == "FAILED":
            return PoolFailed(f"Spark does not start: {self._last_error}")
        return PoolDraining("the Spark pool is being drained") if self._draining else None

    def _grant(self) -> None:
        if not self._lends:
            return
        assert self._started is not None
        assert self._calls is not None
        self._lending.grant(self._started, lender=self, calls=self._calls)

    def _leave(self, waiter: Waiter, refusal: LeaseRefused) -> None:
        with self._lock:
            if self._lending.line.leave(waiter):
                raise refusal

    # The keeper's thread.

    def _keep(self, former: threading.Thread | None) -> None:
        if former is not None:
            former.join()
        watch = self._watch = Watch(patience_s=self._limits.patience_s, monotonic=self._monotonic)
        with self._lock:
            self._calls = ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-calls")
            self._lending.renew()
        try:
            while not self._stopping and self._state != "FAILED":
                if self._started is None:
                    self._bring_up()
                    watch.begin(is_kubernetes=self._options.is_kubernetes)
                else:
                    self._wake.wait(TICK_S)
                    self._wake.clear()
                    self._look(watch)
        finally:
            watch.end()
            self._take_down()

    def _bring_up(self) -> None:
        try:
            started = begin_session(self._options, should_stop=lambda: self._stopping)
        except SparkStartFailed as failed:
            self._note_failed_start(failed)
            return
        with self._lock:
            self._started, self._started_at = started, self._monotonic()
            self._start_took_s = started.took_s
            self._failed_starts, self._starts = 0, self._starts + 1
            self._lending.begin_context()
            self._enter("DRAINING" if self._draining else "READY")
            self._grant()
        _logger.info("Spark is ready after %.1f s", started.took_s)
        if self._limits.warm_up:
            warm_up_beside(started)

    def _note_failed_start(self, failed: SparkStartFailed) -> None:
        if failed.reason == "STOPPED":
            return
        _logger.warning("Spark did not start: %s: %s", failed.reason, failed.detail)
        with self._lock:
            self._failed_starts += 1
            self._last_error = f"{failed.reason}: {failed.detail}"
            if failed.reason in HOPELESS or self._failed_starts >= self._limits.starts_max:
                self._enter("FAILED")
                self._lending.line.refuse_all(PoolFailed(f"Spark does not start: {self._last_error}"))
                return
        self._wake.wait(RETRY_START_S)

    def _look(self, watch: Watch) -> None:
        assert self._started is not None
        trouble = watch.verdict(self._started)
        if trouble is not None:
            _logger.warning("Spark is lost: %s", trouble)
            with self._lock:
                self._enter("REBUILDING")
                self._last_error = trouble
            self._let_go(trouble, stop_timeout_s=0.0)
        elif self._is_recycle_due():
            force = self._recycling == "FORCE"
            self._let_go("the pool was recycled", stop_timeout_s=0.0 if force else CLEAN_STOP_S)

    def _is_recycle_due(self) -> bool:
        """Whether the context is to go now; from then on nothing is lent."""
        with self._lock:
            if self._recycling == "FORCE":
                return True
            if self._lending.in_hand:
                return False
            if self._recycling is not None:
                return True
            is_old = self._monotonic() - self._started_at > self._limits.max_age_s
            is_used = self._lending.jobs_on_context > self._limits.max_jobs
            if (is_old or is_used) and self._lending.idle_s >= self._limits.idle_s:
                self._enter("REBUILDING")
                return True
            return False

    def _let_go(self, why: str, *, stop_timeout_s: float) -> None:
        with self._lock:
            started, self._started, self._recycling = self._started, None, None
            self._lending.mark_lost(why)
        if started is not None:
            end_session(started, stop_timeout_s=stop_timeout_s)

    def _take_down(self) -> None:
        """Give leases in hand half of the time to come back, then end everything."""
        release_deadline = time.monotonic() + RELEASE_SHARE * (self._stop_deadline - time.monotonic())
        while self._lending.in_hand and self._started is not None and time.monotonic() < release_deadline:
            self._wake.wait(TICK_S)
            self._wake.clear()
        left_s = max(0.0, self._stop_deadline - time.monotonic())
        self._let_go("the Spark pool ends", stop_timeout_s=min(CLEAN_STOP_S, left_s / 2))
        assert self._calls is not None
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._lending.end()
        with self._lock:
            if self._stopping:
                self._enter("STOPPED")
            elif self._keeper is threading.current_thread() and self._state != "FAILED":  # a fault of ours
                self._last_error = "the keeper has ended"
                self._enter("FAILED")
                self._lending.line.refuse_all(PoolFailed(self._last_error))
