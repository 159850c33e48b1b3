"""States of jobs, cycles, backups and sessions: what each means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "QUEUED",
        (Seen.STATE, Seen.WAIT),
        "The job waits for a runner with a free place, and with the labels of its store.",
        (
            "If it lasts: `lethe instance list` shows whether a runner is alive and has the labels, "
            "`lethe job list --state RUNNING` what takes the places."
        ),
        Passes.YES,
    ),
    Entry(
        "RUNNING",
        (Seen.STATE,),
        "The job or the cycle is at work.",
        "Follow it by `lethe job watch JOB`.",
        Passes.YES,
    ),
    Entry(
        "WAITING",
        (Seen.STATE,),
        (
            "The job wrote all that it could and waits for something outside; it goes on by itself "
            "when that is there."
        ),
        (
            "`lethe job show JOB` names what it waits for: `lethe explain` that word, such as "
            "TARGET_UNREACHABLE."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "PAUSING",
        (Seen.STATE,),
        "Somebody asked for a pause; the job stops at its next safe point.",
        "Wait some seconds. If it lasts, the target does not answer: `lethe store check STORE`.",
        Passes.YES,
    ),
    Entry(
        "PAUSED",
        (Seen.STATE,),
        "Somebody paused the job; it writes nothing.",
        "Let it go on by `lethe job resume JOB`, or end it by `lethe job abort JOB`.",
        Passes.NO,
    ),
    Entry(
        "ABORTING",
        (Seen.STATE,),
        (
            "The job ends, but Lethe has not proved yet that nothing of it still writes at the "
            "target. It is ABORTED only after that proof."
        ),
        (
            "`lethe job show JOB`: if it waits for TARGET_SILENCE, the target does not answer. Bring it"
            " back (`lethe store check STORE`); the job then ends by itself. If the target is gone for "
            'good: `lethe job abandon JOB --reason "..."`, as an admin.'
        ),
        Passes.MAYBE,
    ),
    Entry(
        "ABORTED",
        (Seen.STATE,),
        (
            "Somebody ended the job, or the cycle with it; it is proved that nothing of it writes any "
            "more. What it had done stays done. Of a plan of an erasure: entries of transactions that "
            "were rolled back."
        ),
        "Plan: nothing to do. Else: to go on, begin a new one.",
        Passes.NO,
    ),
    Entry(
        "SUCCEEDED",
        (Seen.STATE,),
        "The job did all that was asked of it.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "FAILED",
        (Seen.STATE,),
        "The job, cycle, backup or session ended by an error. What it had done stays done.",
        (
            "`lethe job show JOB` has the error: `lethe explain` its code. When the cause is gone: "
            "`lethe job retry JOB`. A backup: take another. The pool of Spark: `lethe spark-pool status`."
        ),
        Passes.NO,
    ),
    Entry(
        "ABANDONED",
        (Seen.STATE,),
        (
            "An admin ended the job because its target is gone for good. Nobody has proved that "
            "nothing of it writes any more."
        ),
        ("If the target comes back, look at it before other jobs write there: `lethe store check STORE`."),
        Passes.NO,
    ),
    Entry(
        "SUSPENDED",
        (Seen.STATE,),
        (
            "The cycle rests because its process stopped or its environment was taken away; it is "
            "resumed before its end."
        ),
        ("Start the service again if it is stopped. `lethe erasure show STORE` says when the cycle ends."),
        Passes.MAYBE,
    ),
    Entry(
        "COMPLETE",
        (Seen.STATE,),
        "The cycle erased every file that it had selected.",
        "Fetch its certificate: `lethe certificate get STORE`.",
        Passes.NO,
    ),
    Entry(
        "INCOMPLETE",
        (Seen.STATE,),
        (
            "The cycle ended before every selected file was erased: its time was over, or something "
            "held files that would not pass by itself."
        ),
        (
            "`lethe erasure files STORE` names the cause of each file left: `lethe explain` it, and mend "
            "it. Where erasure is on, the next cycle takes them. Else: `lethe erasure plan STORE --period"
            " PERIOD`, then `lethe erasure start STORE --plan-id PLAN`."
        ),
        Passes.NO,
    ),
    Entry(
        "EXPIRED",
        (Seen.STATE,),
        (
            "Its time was over: a cycle was not resumed before its end, or nobody renewed the lease of a "
            "backup, or used a grant in time. Of a plan of an erasure: entries of records whose time to "
            "live is over."
        ),
        (
            "Cycle: the next begins by itself, unless erasure is off and it was of a plan. Backup: take "
            "another, and renew it more often or ask for a longer lease. Grant: make another, with a "
            "longer `--expires-in`. Plan: nothing to do."
        ),
        Passes.NO,
    ),
    Entry(
        "DROPPED",
        (Seen.STATE,),
        (
            "Of a cycle: the store's erase period changed while it ran; its next one goes by the new period. "
            "Of an extinction: it was never committed, and holds for no key."
        ),
        "Cycle: nothing to do, the next one comes by itself if erasure is still switched on. "
        "Extinction: ask for it again if its keys should go.",
        Passes.NO,
    ),
    Entry(
        "PREPARING",
        (Seen.STATE,),
        "The backup waits until nothing writes to the files that it will read.",
        "Wait for ACTIVE. If it lasts, look at the cycle's job: `lethe job list --store STORE`.",
        Passes.YES,
    ),
    Entry(
        "ACTIVE",
        (Seen.STATE,),
        (
            "Of a backup or a protection: no eraser touches its files until it ends or its lease runs "
            "out. Of a log table of Slony-I: writers write it now."
        ),
        "Backup: read the files, then `lethe backup end --session-file FILE`. Log table: nothing to do.",
        Passes.YES,
    ),
    Entry(
        "ENDED",
        (Seen.STATE,),
        ("The backup or the session is over. Of a backup: every file stayed what it was while it was read."),
        "Backup: keep the copy. Session: its `outcome` says how it ended; `lethe explain` that word.",
        Passes.NO,
    ),
    Entry(
        "INVALID",
        (Seen.STATE,),
        ("A file of the backup did not stay what it was while it was read, so the copy may not be restored."),
        (
            "Do not restore from the copy: take another (`lethe backup run --store STORE -- COMMAND`), "
            "and keep older good copies until it has ended well. `lethe backup list STORE` names the "
            "file. If it happens again, look for what else writes, moves or deletes files in that directory."
        ),
        Passes.NO,
    ),
    Entry(
        "UP_TO_DATE",
        (Seen.STATE,),
        "The consumer has everything that the supplier had when the session looked last.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "YIELDED",
        (Seen.STATE,),
        "The session reached its limit of changes or time.",
        "The next session goes on; with an interval it comes by itself.",
        Passes.YES,
    ),
)
