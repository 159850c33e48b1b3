"""Spark: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "SPARK_ERROR",
        (Seen.TARGET,),
        "Spark could not do the work; `detail` says why.",
        "`lethe spark-pool status` tells its state. INLINE does without Spark.",
        Passes.MAYBE,
    ),
    Entry(
        "SPARK_START_FAILED",
        (Seen.TARGET,),
        "No Spark session came up; `detail` says why: no Java, no memory, or a master that is away.",
        "Mend it, then `lethe spark-pool recycle`; or set LETHE_SPARK__ENABLED=false.",
        Passes.NO,
    ),
    Entry(
        "SPARK_LEASE_REFUSED",
        (Seen.TARGET,),
        "No session of Spark was free for the job.",
        "Nothing to do: it is tried again.",
        Passes.YES,
    ),
    Entry(
        "SPARK_QUEUE_FULL",
        (Seen.TARGET,),
        "As many jobs wait for Spark as may.",
        "Wait, or submit with the engine INLINE.",
        Passes.YES,
    ),
    Entry(
        "SPARK_POOL_FAILED",
        (Seen.TARGET,),
        "Spark does not come up again by itself.",
        "`lethe spark-pool status` says why; mend it, then `lethe spark-pool recycle`.",
        Passes.NO,
    ),
    Entry(
        "SPARK_POOL_STOPPED",
        (Seen.TARGET,),
        "Spark does not run in this process, which is ending.",
        "Nothing to do: it comes with the next start of the service.",
        Passes.MAYBE,
    ),
    Entry(
        "SPARK_POOL_DRAINING",
        (Seen.TARGET,),
        "Somebody drained the Spark pool.",
        "`lethe spark-pool resume` when it may work again.",
        Passes.NO,
    ),
    Entry(
        "SPARK_LEASE_WAIT_ENDED",
        (Seen.TARGET,),
        "No session of Spark became free in time, or the job was to stop.",
        "Nothing to do: a job tries again.",
        Passes.YES,
    ),
    Entry(
        "SPARK_RUN_ERROR",
        (Seen.TARGET,),
        "Work on Spark did not end well; `detail` says why.",
        "Look at `lethe spark-pool status` and the service's log, then retry the job.",
        Passes.MAYBE,
    ),
    Entry(
        "SPARK_JOB_CANCELLED",
        (Seen.TARGET,),
        "Lethe cancelled its own work on Spark, because the job was to stop.",
        "Nothing to do; resume or retry the job when it is wanted.",
        Passes.MAYBE,
    ),
    Entry(
        "SPARK_LOST",
        (Seen.TARGET,),
        "The JVM of Spark is gone, with what ran on it; another one is started.",
        "If it comes again, look at the machine's memory and LETHE_SPARK__DRIVER_MEMORY.",
        Passes.MAYBE,
    ),
    Entry(
        "SPARK_JOB_FAILED",
        (Seen.TARGET,),
        "A job of Spark failed.",
        "The service's log has Spark's own words; mend that, then `lethe job retry JOB`.",
        Passes.NO,
    ),
    Entry(
        "HANDS_LOST",
        (
            Seen.HTTP,
            Seen.JOB,
            Seen.WAIT,
        ),
        "The process that erases ended, or could not be started; another one is started.",
        "Nothing to do. If it comes again, look at the service's log and the machine's memory.",
        Passes.YES,
    ),
)
