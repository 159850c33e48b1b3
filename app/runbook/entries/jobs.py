"""Jobs, plans, archives: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "JOB_NOT_FOUND",
        (Seen.HTTP,),
        "There is no job of this id, or it was forgotten by retention.",
        "`lethe job list` shows those that are kept.",
        Passes.NO,
    ),
    Entry(
        "JOB_CHANGING",
        (Seen.HTTP,),
        "The job changed several times while the request looked at it.",
        "Send the request again.",
        Passes.YES,
    ),
    Entry(
        "JOB_ENDED",
        (Seen.HTTP,),
        "The job has ended, so this cannot be done to it any more.",
        "`lethe job show JOB` tells how it ended.",
        Passes.NO,
    ),
    Entry(
        "JOB_KIND_UNKNOWN",
        (Seen.HTTP,),
        "Another version of Lethe made the job; this one does not know its kind.",
        "Use a process of the newer version.",
        Passes.NO,
    ),
    Entry(
        "ILLEGAL_TRANSITION",
        (Seen.HTTP,),
        "A job in this state cannot do that; `allowed` says what it can.",
        "Look at the job (`lethe job show JOB`), and choose what its state allows.",
        Passes.NO,
    ),
    Entry(
        "CONFLICTING_JOB",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        "Another job, named in `detail`, works on the same tables, files or node.",
        (
            "Wait for its end, or submit with `overlap: QUEUE` where the request has it. Retry a job that "
            "failed by it: `lethe job retry JOB`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "QUEUE_FULL",
        (Seen.HTTP,),
        "As many jobs wait as may.",
        "Send it again after `Retry-After`. If it lasts, see by `lethe job list` what holds the queue up.",
        Passes.YES,
    ),
    Entry(
        "TARGET_NOT_GONE",
        (Seen.HTTP,),
        "A job is abandoned only where its target cannot be asked whether the job is silent.",
        (
            "`lethe job abort JOB`; if `waiting_on` then says TARGET_SILENCE and the target never comes "
            "back, abandon it."
        ),
        Passes.NO,
    ),
    Entry(
        "ABANDONED_STILL_RUNS",
        (Seen.HTTP,),
        "Sessions of an abandoned job still run at the target, and do not end when Lethe ends them.",
        "End the sessions that `detail` names at the database itself; then the work goes on.",
        Passes.NO,
    ),
    Entry(
        "THROTTLE_NOT_TAKEN",
        (Seen.HTTP,),
        (
            "A job of this kind has no speed that could be set, or not the bound that was asked for: an "
            "erasure cycle counts no rows."
        ),
        (
            "`detail` names the bounds that it keeps: set one of them. Where it keeps none, pause or abort "
            "the job instead."
        ),
        Passes.NO,
    ),
    Entry(
        "SPARK_DISABLED",
        (Seen.HTTP,),
        "Spark is switched off in this service: a job that asks for it is refused, others work inline.",
        (
            "Ask without `--engine SPARK`. If you want Spark: LETHE_SPARK__ENABLED=true, and restart "
            "the service."
        ),
        Passes.NO,
    ),
    Entry(
        "SPARK_NOT_INSTALLED",
        (Seen.HTTP,),
        "Spark's packages are not installed here: a job that asks for it is refused, others work inline.",
        (
            "Ask without `--engine SPARK`; or install `lethe-control-plane[spark]` into the service's "
            "environment, "
            "and restart it. The image has it."
        ),
        Passes.NO,
    ),
    Entry(
        "JE_NOT_INSTALLED",
        (Seen.HTTP, Seen.JOB, Seen.COMMAND, Seen.FINDING),
        "The packages that read logs of Berkeley DB JE are not installed beside this service or worker.",
        (
            "Install `lethe-control-plane[je]` into its environment, restart it, and submit again or "
            "retry the job. The image has it."
        ),
        Passes.NO,
    ),
    Entry(
        "POOL_NOT_RUNNING",
        (Seen.HTTP,),
        "No Spark session runs that could be recycled or drained.",
        "Nothing to do: the first job that needs Spark starts it.",
        Passes.NO,
    ),
    Entry(
        "POOL_QUEUE_FULL",
        (Seen.HTTP,),
        "As many jobs wait for Spark as may.",
        "Wait as `Retry-After` says, or submit with the engine INLINE, which runs now.",
        Passes.YES,
    ),
    Entry(
        "PLAN_NOT_USABLE",
        (Seen.HTTP,),
        (
            "`plan_id` names no finished plan for this store, or a plan cannot be used here; `detail` says "
            "why."
        ),
        "Make a plan for this store, and use its id.",
        Passes.NO,
    ),
    Entry(
        "PLAN_DIFFERS",
        (Seen.HTTP,),
        "The request says something else than the plan that it names.",
        "Repeat the plan's own options, or leave them out; or plan again with the new ones.",
        Passes.NO,
    ),
    Entry(
        "PLAN_NO_LONGER_HOLDS",
        (
            Seen.HTTP,
            Seen.JOB,
            Seen.TARGET,
        ),
        (
            "The target has changed since the plan was reviewed, by more than `max_drift` allows; `detail` "
            "says how."
        ),
        "Plan again, review the new plan, and execute that.",
        Passes.NO,
    ),
    Entry(
        "PLAN_ABORTED",
        (Seen.HTTP,),
        "The plan was aborted before it had its answer.",
        "Ask for the plan again.",
        Passes.NO,
    ),
    Entry(
        "LIMIT_EXCEEDED",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        (
            "The work is larger than the store's limits allow; nothing was removed. A purge ROWS that is"
            " stopped because rows came after its count keeps what it has removed, within the limits."
        ),
        (
            "Review the plan. If it is right, have the limits raised (`lethe store show STORE`) and ask for "
            "it anew, or take a smaller piece. A retry keeps the limits of the job that it retries."
        ),
        Passes.NO,
    ),
    Entry(
        "LIMITS_NOT_COUNTED",
        (Seen.HTTP,),
        (
            "The store has limits, or a plan is executed, and this process cannot reach the target to count"
            " what would go."
        ),
        "Send the request to a process that has the labels in the store's `runs_on`.",
        Passes.NO,
    ),
    Entry(
        "FUTURE_CUTOFF",
        (Seen.HTTP,),
        "The cut-off is later than the target's clock.",
        "Name an earlier cut-off. If it is not later by your clock, compare it with the target's.",
        Passes.NO,
    ),
    Entry(
        "RETENTION_TOO_SHORT",
        (Seen.HTTP,),
        "The retention is below ten minutes: rows may still be on their way through routing. Of TOMBSTONES"
        " below a day: an older change may still come from a consumer.",
        "Name a longer one; `force` only if you know that nothing is under way.",
        Passes.NO,
    ),
    Entry(
        "CHILDREN_FAILED",
        (Seen.JOB,),
        "Jobs of a batch failed; `detail` names their stores.",
        "See why for each (`lethe job list`), mend it, and retry those jobs.",
        Passes.NO,
    ),
    Entry(
        "CRASH_LOOP",
        (Seen.JOB,),
        "The process that ran the job died five times without progress.",
        (
            "Look in the service's log and the system's (memory, kills), mend the cause, then `lethe job "
            "retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "RETRIES_EXHAUSTED",
        (Seen.JOB,),
        "The job waited and tried again without progress until its tries were used up.",
        "`detail` says what it met; mend that, then `lethe job retry JOB`.",
        Passes.NO,
    ),
    Entry(
        "UNANSWERED_IN_TIME",
        (Seen.JOB, Seen.WAIT),
        (
            "The job met something that did not answer in time, and nothing said what: the machine may be "
            "overloaded, or a disk or network is slow. It tries again, ever more slowly."
        ),
        (
            "Nothing to do while it waits. FAILED: the log of the service has the place beside `the task "
            "failed`; look at the load of the machine, then `lethe job retry JOB`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "WAITED_TOO_LONG",
        (Seen.JOB,),
        (
            "The job waited for one thing for longer than `job.wait.max`, and `job.wait.fails` is on for its "
            "store; `detail` says for what. What it held was given back, and what it had done stays done."
        ),
        (
            "Look up what it waited for (`lethe explain`), mend that, then `lethe job retry JOB`. Where such "
            "waits are normal raise `job.wait.max`, or switch `job.wait.fails` off (`lethe parameter "
            "set NAME VALUE`)."
        ),
        Passes.NO,
    ),
    Entry(
        "SPARK_UNITS_LOST",
        (Seen.JOB,),
        "Spark lost the work of units again and again: executors died or the cluster went.",
        (
            "`lethe spark-pool status`, and Spark's own log, for the cause (often memory). Then `lethe job "
            "retry JOB`, or submit with the engine INLINE."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "ARCHIVE_NOT_FOUND",
        (Seen.HTTP,),
        "There is no archive of this job, or none of this store that can be verified.",
        "`lethe archive list` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "ARCHIVE_EMPTY",
        (Seen.JOB,),
        "The archive's directory has no files, or the job removed nothing.",
        (
            "If the job removed rows (`lethe job show JOB`), look whether LETHE_ARCHIVE_ROOT is mounted, "
            "and bring its files back from a backup."
        ),
        Passes.NO,
    ),
    Entry(
        "ARCHIVE_CORRUPT",
        (Seen.JOB, Seen.TARGET),
        (
            "An archive file is missing, cut off, or has other bytes than its manifest says; or the manifest "
            "cannot be read."
        ),
        (
            "Bring the named files back from a backup of LETHE_ARCHIVE_ROOT, and verify again; look at the "
            "disk."
        ),
        Passes.NO,
    ),
    Entry(
        "ARCHIVE_FAILED",
        (
            Seen.JOB,
            Seen.TARGET,
        ),
        (
            "The archive could not be made durable, so nothing was removed without it. Of a verification: a "
            "worker of Spark, whose machine `detail` names, does not see the files that the service sees."
        ),
        (
            "Look at LETHE_ARCHIVE_ROOT: mounted at the same path on each machine, writable, sound; then "
            "`lethe job retry JOB`. A verification needs no Spark: `lethe archive verify JOB --engine "
            "INLINE`."
        ),
        Passes.NO,
    ),
    Entry(
        "ARCHIVE_FULL",
        (Seen.TARGET,),
        "The disk or the quota of the archive has no room left; nothing was removed without its archive.",
        (
            "Give LETHE_ARCHIVE_ROOT a larger disk, or move archives to another one, mounted at their "
            "place. Never delete one: it is the only copy of its rows. A job that waits goes on by "
            "itself; one that failed: `lethe job retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "RESTORE_REFUSED",
        (Seen.JOB,),
        "Some units of the archive were refused; the others are restored.",
        (
            "The job's result says why for each (a key that is taken, a parent that is missing). Mend that "
            "and restore again: what is there is skipped."
        ),
        Passes.NO,
    ),
    Entry(
        "RESTORE_CONFLICT",
        (Seen.JOB, Seen.TARGET),
        "Keys of rows to be restored are taken by other rows, or the schema has those of another store.",
        "Decide which rows stay. Or restore into a file or a new schema by `--into`; copy what is needed.",
        Passes.NO,
    ),
)
