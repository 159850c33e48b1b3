"""What needs somebody: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "JOB_FAILED",
        (Seen.ATTENTION,),
        (
            "A job failed in the last seven days, was not retried, and its verb has not succeeded on the "
            "store since; `detail` is its code."
        ),
        "`lethe job show JOB` tells the rest; when the cause is gone: `lethe job retry JOB`.",
        Passes.NO,
    ),
    Entry(
        "SILENCE_UNPROVEN",
        (Seen.ATTENTION,),
        "A job has ended, and nobody could prove that nothing of it writes any more.",
        "Bring its target back. The next job there, or `lethe recover STORE`, shuts it out.",
        Passes.NO,
    ),
    Entry(
        "WAITS_LONG",
        (Seen.ATTENTION,),
        (
            "A job waits, or is in the queue, for longer than an hour (`--waits-longer-than`), or than the "
            "store's `job.wait.max`; `detail` is what it waits for."
        ),
        (
            "Look that up by `lethe explain`. QUEUED: no runner is free, or none has the labels in the "
            "store's `runs_on`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "BACKUP_INVALID",
        (Seen.ATTENTION, Seen.FINDING),
        (
            "The backup's files did not stay as they were, its lease ran out, or it never became "
            "active; no later one with its label was good."
        ),
        (
            "Do not restore from it: take another (`lethe backup run --store STORE -- COMMAND`). Keep "
            "older good copies until it has ended well."
        ),
        Passes.NO,
    ),
    Entry(
        "SESSION_HALTED",
        (Seen.ATTENTION,),
        ("The consumer refused a change; nothing behind it of the same replica ids was sent."),
        (
            "`lethe replication dead-letters STORE` shows the change and why: mend that. Each later "
            "session tries it again."
        ),
        Passes.NO,
    ),
    Entry(
        "SESSION_NEEDS_TOTAL",
        (Seen.ATTENTION,),
        (
            "Changes alone cannot bring the consumer up to date: they are no longer in the changelog "
            "here, or it was made apart."
        ),
        "See NEEDS_TOTAL: a session with `--total` replaces what the consumer holds.",
        Passes.NO,
    ),
    Entry(
        "SESSION_UNPROVEN",
        (Seen.ATTENTION,),
        (
            "All that is known to be missing was sent, but the consumer is ahead, and whether both have"
            " one history cannot be compared any more."
        ),
        ("Begin a session from a replica that is not behind; it settles the question. See UNPROVEN_HISTORY."),
        Passes.NO,
    ),
    Entry(
        "SESSION_DIVERGED",
        (Seen.ATTENTION,),
        (
            "Supplier and consumer hold different histories of the same replica ids. Nothing was sent "
            "or removed."
        ),
        (
            "`lethe replication session list STORE`, then `lethe replication session show STORE "
            "SESSION`, name the "
            "replica ids. Then see DIVERGED before anything is discarded."
        ),
        Passes.NO,
    ),
    Entry(
        "ERASURE_UNPROVEN",
        (Seen.ATTENTION,),
        (
            "A cycle left a file of which nobody can say what is in it: an fsync failed, or bytes are "
            "not what was written."
        ),
        (
            "`lethe erasure files STORE` names the file. Look at the kernel's log and at the disk "
            "first. Only when the disk is sound: `lethe erasure start STORE`."
        ),
        Passes.NO,
    ),
    Entry(
        "STORE_UNREADY",
        (Seen.ATTENTION,),
        "The last check of the store found an error; `detail` is its code.",
        "`lethe store check STORE` tells all of it.",
        Passes.NO,
    ),
    Entry(
        "CHECK_STALE",
        (Seen.ATTENTION,),
        "Nobody has looked at the store for more than twice its period.",
        "Start an instance with the labels in its `runs_on`; if one runs, look whether it hangs.",
        Passes.MAYBE,
    ),
    Entry(
        "INSTANCE_SILENT",
        (Seen.ATTENTION,),
        "A process ended without a word: killed, or cut off from the metadata.",
        "Look at its machine and start it again. Its jobs go on elsewhere when their leases have run out.",
        Passes.MAYBE,
    ),
)
