"""Due times of schedules and the health of stores: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "SUBMITTED",
        (Seen.ANSWER,),
        "Of a due time: a job was submitted. It says nothing of how that job ended.",
        "`lethe schedule show SCHEDULE` names the job and its state; `lethe job show JOB` has its result.",
        Passes.YES,
    ),
    Entry(
        "REFUSED",
        (Seen.ANSWER,),
        (
            "Of a due time, a store of a batch or a deletion: the request was refused, so there is no "
            "job. Of a file: the cycle did not write to it. The word beside it says why."
        ),
        (
            "`lethe explain` that word. Schedule: `lethe schedule show SCHEDULE` has the sentence; remove"
            " the cause, and the next time comes by itself. File: `lethe erasure files STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "SKIPPED_RUNNING",
        (Seen.ANSWER,),
        "The due time passed without a job, because the schedule's job before it had not ended.",
        (
            "See why that one takes so long: `lethe schedule show SCHEDULE`, then `lethe job show JOB`. "
            "The next time comes by itself. Where each time must count, make the schedule with `--overlap"
            " QUEUE`."
        ),
        Passes.YES,
    ),
    Entry(
        "SKIPPED_SUSPENDED",
        (Seen.ANSWER,),
        "The due time passed without a job, because the store was suspended.",
        (
            "`lethe store show STORE` says who suspended it and why. When that is over: `lethe store "
            "resume STORE`; the next time comes by itself."
        ),
        Passes.NO,
    ),
    Entry(
        "SKIPPED_MISSED",
        (Seen.ANSWER,),
        "The service did not run at the due time, and the schedule says that missed times are left out.",
        (
            "Nothing is lost that the next time does not do. To make up for it now, start the job by "
            "hand; with `--missed RUN_ONCE` a schedule does it by itself."
        ),
        Passes.YES,
    ),
    Entry(
        "SKIPPED_REFUSED",
        (Seen.ANSWER,),
        (
            "Of what comes by a parameter of the store: the request was refused, so there is no job. The "
            "sentence beside it says why."
        ),
        (
            "`lethe parameter list --store STORE` shows the parameter. Remove the cause that the sentence"
            " names; the next time comes by itself."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "OK",
        (Seen.ANSWER,),
        "Of a store: its last check found nothing wrong. Of a delivery: the receiver took it.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "WARNING",
        (Seen.ANSWER,),
        (
            "Something will need you, but nothing has stopped: of a store's health, of a finding, of what"
            " `lethe status` shows."
        ),
        "Read the code beside it and `lethe explain` it. `lethe store check STORE` looks again.",
        Passes.NO,
    ),
    Entry(
        "ERROR",
        (Seen.ANSWER,),
        (
            "Something does not work and needs you now: of a store's health, of a finding, of what `lethe"
            " status` shows."
        ),
        (
            "Read the code beside it and `lethe explain` it. `lethe store check STORE` looks again after "
            "the repair."
        ),
        Passes.NO,
    ),
    Entry(
        "INFO",
        (Seen.ANSWER,),
        "A finding that is good to know and needs nobody.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "STALE",
        (Seen.ANSWER,),
        "The last check of the store is too old to say how the store is now.",
        (
            "Look again: `lethe store check STORE`. Checks come by themselves while a runner is alive: "
            "`lethe instance list`."
        ),
        Passes.NO,
    ),
    Entry(
        "UNKNOWN",
        (Seen.ANSWER,),
        "Nobody has checked the store yet.",
        "`lethe store check STORE`.",
        Passes.YES,
    ),
    Entry(
        "PLANNED",
        (Seen.ANSWER,),
        (
            "Of a count: what the plan had counted, because the cluster's own function removed the rows "
            "and counts nothing."
        ),
        "Nothing to do. Where you need exact counts, clean up with `--via BUILTIN`.",
        Passes.FINE,
    ),
    Entry(
        "NONE",
        (Seen.ANSWER,),
        "There is nothing of the kind, or it was not wanted.",
        "Nothing to do.",
        Passes.FINE,
    ),
)
