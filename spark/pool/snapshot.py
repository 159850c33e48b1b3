"""What the pool looks like at one moment, for whoever shows it."""

from dataclasses import dataclass
from typing import Literal

PoolState = Literal["STOPPED", "STARTING", "READY", "REBUILDING", "DRAINING", "FAILED"]
JobClass = Literal["INTERACTIVE", "BULK"]


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot; job fields are None while it is IDLE."""

    number: int
    state: Literal["IDLE", "LEASED"]
    job_id: str | None
    job_class: JobClass | None
    leased_for_s: float | None
    jobs_run: int


@dataclass(frozen=True, slots=True)
class WaitingView:
    """One lease that waits for a slot, in the order of the queue."""

    job_id: str
    job_class: JobClass
    waited_s: float


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """One process that runs tasks; memory in bytes, of its heap, for Spark's own storage."""

    id: str
    address: str
    cores: int
    tasks: int
    memory: int
    memory_used: int


@dataclass(frozen=True, slots=True)
class Alone:
    """A cluster that has no executor for us now.

    Args:
        left_s: until the pool starts anew; None: it does not, for nothing would be better then.
        why: None: the cluster says nothing.
    """

    left_s: float | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The pool at one moment.

    Args:
        state: STARTING and REBUILDING let leases wait; DRAINING, FAILED and STOPPED refuse them.
        since_s: how long it has been in this state.
        jobs_run: functions that `Lease.run` has run since the pool was made.
        rebuilds: times that another JVM took over, recycling included.
        failed_rebuilds: starts that failed in a row; 0 once one has succeeded.
        last_error: why the JVM was lost or did not start; None when the pool has had no trouble.
        start_took_s: what the last start took, None before the first.
        uses_cds: whether the JVM has mapped the class data archive.
        context_age_s: how old the context is, None without one.
        executors: of a cluster; None: no cluster, or not asked yet.
        executor_list: as it was a few seconds ago; on this machine the driver itself.
        alone: None: there are executors, or no cluster.
        draining: drained and not resumed; true of a pool that is not up yet, too.
    """

    state: PoolState
    since_s: float
    slots: tuple[SlotView, ...]
    queue: tuple[WaitingView, ...]
    queue_max: int
    jobs_run: int
    rebuilds: int
    failed_rebuilds: int
    last_error: str | None
    start_took_s: float | None
    uses_cds: bool
    spark_version: str | None
    master: str
    jvm_pid: int | None
    context_age_s: float | None
    executors: int | None = None
    draining: bool = False
    executor_list: tuple[ExecutorView, ...] = ()
    alone: Alone | None = None
