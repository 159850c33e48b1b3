"""Warnings and notes of jobs, and what a certificate says stays: what each means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "RESENT_AFTER_PURGE",
        (Seen.ANSWER,),
        "Somebody had batches sent again after a purge removed their data: they deliver less, or nothing.",
        (
            "`lethe job show JOB` lists them. Before they are delivered, an admin brings their rows back:"
            " `lethe archive restore JOB --live`. Else, or without an archive, reload the node in "
            "SymmetricDS."
        ),
        Passes.NO,
    ),
    Entry(
        "MARKS_NOT_UNDONE",
        (Seen.ANSWER,),
        "A restore brought rows back, but batches that the purge had marked as delivered stay so.",
        "If the nodes should get them after all, set the status of these batches to NE in SymmetricDS.",
        Passes.NO,
    ),
    Entry(
        "CYCLE_LATE",
        (Seen.ANSWER,),
        "Backups have taken so much of the cycle that it will not reach the last files before its end.",
        (
            "`detail` names a period that would do: `lethe parameter set je.erase.period PERIOD --store "
            "STORE`. That drops the cycle under way, if it follows this period, and a new one begins; "
            "what is erased stays so. Or shorten the backups."
        ),
        Passes.NO,
    ),
    Entry(
        "PERIOD_CHANGED",
        (Seen.ANSWER,),
        "The store's erase period was changed while the cycle ran, so the cycle was dropped.",
        "Nothing to do: the next cycle goes by the new period.",
        Passes.FINE,
    ),
    Entry(
        "NOT_REACHED",
        (Seen.ANSWER,),
        "The cycle ended before it came to this file.",
        (
            "Where erasure is on (je.env.runEraser), the next cycle takes it by itself; after an abort "
            "none begins. Else plan one and read it: `lethe erasure plan STORE --period PERIOD`. Then "
            "start just that: `lethe erasure start STORE --plan-id PLAN`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "FENCED_OFF",
        (Seen.ANSWER,),
        "The target of an abandoned job came back, and the job was shut out there: it cannot write any more.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "METADATA_RESTORED",
        (Seen.ANSWER,),
        (
            "The metadata is an older copy of itself. The job had not ended in it, and may have been paused"
            " or aborted since: so it was paused, or failed where its target is ahead."
        ),
        "`lethe job resume JOB` if it is still wanted, else `lethe job abort JOB`.",
        Passes.NO,
    ),
    Entry(
        "RECOVERED_FOREIGN",
        (Seen.ANSWER,),
        (
            "`lethe recover STORE` found in the ledger of the target a job that the restored metadata did"
            " not know, and noted it as ended, with what it had done. Of a protection: only the control"
            " file remembered it."
        ),
        "Of a job nothing; `lethe job show JOB` has its rows. A protection keeps its files for a day: `lethe"
        " protection end STORE PROTECTION` when its tool does not run any more.",
        Passes.FINE,
    ),
    Entry(
        "LEASE_LOST",
        (Seen.ANSWER,),
        (
            "The process that worked on the job died or hung, so the job was given back; another goes on "
            "where it was."
        ),
        (
            "Nothing to do once. If it happens often, look at the memory and the log of that process: "
            "`lethe instance list`."
        ),
        Passes.YES,
    ),
    Entry(
        "HANDED_BACK",
        (Seen.ANSWER,),
        "The process was stopped in good order and gave the job back; another goes on where it was.",
        "Nothing to do.",
        Passes.YES,
    ),
    Entry(
        "HANDS_FULL",
        (Seen.ANSWER,),
        "The job waits because as many erasures run on Spark as may.",
        "Wait, or see what runs: `lethe job list --state RUNNING`.",
        Passes.YES,
    ),
    Entry(
        "NO_EXECUTORS",
        (Seen.ANSWER,),
        "The job waits: the Spark cluster gives no executors. On Kubernetes `ref` says why, and it waits on.",
        (
            "Look at the page of the Spark master, or at the pods. `lethe spark-pool status` says since "
            "when; `lethe spark-pool recycle` asks anew."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "REPLICAS_DIFFER",
        (Seen.ANSWER,),
        "A comparison of two replicas found differences that nothing explains.",
        (
            "`lethe job show JOB` lists them. `lethe replication dead-letters STORE` shows what was "
            "refused; then run a session and compare again: `lethe replication audit STORE AGREEMENT`."
        ),
        Passes.NO,
    ),
    Entry(
        "SESSION_EXPIRED",
        (Seen.ANSWER,),
        "The consumer had given the session up because nothing came for the time of its lease.",
        "Nothing to do: the job begins a new one. If it happens often, look at the network between.",
        Passes.YES,
    ),
    Entry(
        "NOT_COMPARED",
        (Seen.ANSWER,),
        (
            "What the cluster's own function left was not compared with the plan, because an earlier "
            "attempt had run it."
        ),
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "HELD_BEHIND",
        (Seen.ANSWER,),
        "Events stay because a node has not confirmed them.",
        "Look at the slon of the node that `detail` names: `lethe slony status STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "HELD_MEANWHILE",
        (Seen.ANSWER,),
        "Events stay because a confirmation that the plan went by is gone since.",
        "Plan again: `lethe slony cleanup STORE --plan`.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_STATUS_HEALED",
        (Seen.ANSWER,),
        (
            "The log status called a table empty that had rows. It was set right, so that slons read "
            "these rows again."
        ),
        "Nothing to do; find out who rolled a cleanup back.",
        Passes.FINE,
    ),
    Entry(
        "PARTIAL_INDICES",
        (Seen.ANSWER,),
        "The log table was emptied, but the cluster's partial indices on it could not be brought up to date.",
        (
            "`detail` says why. Read at this moment: nothing to do. Not permitted: `lethe store grants "
            "SLONY --role ROLE --schema _CLUSTER` gives neither EXECUTE on addpartiallogindices nor "
            "membership in the owner of the log tables. Slony-I works without, and makes them at its own "
            "next switch."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TIME_WITHOUT_INDEX",
        (Seen.ANSWER,),
        "No index begins with the time column, so the purge reads the whole table.",
        "Nothing to do; an index that begins with this column makes it faster.",
        Passes.FINE,
    ),
    Entry(
        "FOREIGN_KEY_WITHOUT_INDEX",
        (Seen.ANSWER,),
        "A table that refers to this one has no index on its foreign key, so each unit reads all of it.",
        "Nothing to do; an index on the columns that `detail` names makes it faster.",
        Passes.FINE,
    ),
    Entry(
        "EMBEDDED_IN_LIVE_NODES",
        (Seen.ANSWER,),
        "Stays readable: keys, and values that JE keeps within live nodes of the tree.",
        "Nothing can be done from outside; JE writes these nodes anew in time.",
        Passes.FINE,
    ),
    Entry(
        "SEPARATORS",
        (Seen.ANSWER,),
        "Stays readable: keys of removed records that part the slots of upper nodes.",
        "Nothing can be done from outside; JE writes these nodes anew in time.",
        Passes.FINE,
    ),
    Entry(
        "ABORT_DATA",
        (Seen.ANSWER,),
        "Stays readable: the version before, within the abort data of live records.",
        "Nothing can be done from outside; it goes when the record is written again and its file erased.",
        Passes.FINE,
    ),
    Entry(
        "BEFORE_IMAGES",
        (Seen.ANSWER,),
        "Stays readable: before-images that JE still needs.",
        "Nothing to do: a later cycle takes them when they are obsolete.",
        Passes.FINE,
    ),
    Entry(
        "TRACE_ENTRIES",
        (Seen.ANSWER,),
        "Stays readable: texts that JE has logged about itself.",
        "Nothing can be done from outside; they hold no records as a rule.",
        Passes.FINE,
    ),
    Entry(
        "COPIES_OF_THE_MEDIUM",
        (Seen.ANSWER,),
        (
            "May stay readable: copies of the file system or the device, such as snapshots or remapped "
            "blocks of an SSD."
        ),
        (
            "Nothing is wrong: every certificate says so. Where erased data must be gone there too, let "
            "each snapshot run out by its own retention, only once a newer good backup exists. Never "
            "delete one for this."
        ),
        Passes.FINE,
    ),
    Entry(
        "COPIES_ELSEWHERE",
        (Seen.ANSWER,),
        "May stay readable: backups, replicas and exports that were made before.",
        (
            "Nothing is wrong: every certificate says so. Where erased data must be gone there too, let "
            "each copy run out by its own retention, only once a newer good backup exists. A replica is "
            "erased by a cycle of its own. Never delete one for this."
        ),
        Passes.FINE,
    ),
    Entry(
        "OTHER_FILES",
        (Seen.ANSWER,),
        (
            "May stay readable: files beside the log, such as `je.properties`; Lethe does not read what "
            "is in them."
        ),
        (
            "Nothing is wrong. Ask the application's owner what the files hold that the certificate "
            "names. Do not remove je.properties or any other file while a process has the environment "
            "open."
        ),
        Passes.FINE,
    ),
    Entry(
        "OLD_NODES",
        (Seen.ANSWER,),
        "Stays readable: old nodes of the tree that a running process may still use.",
        "Nothing to do: a cycle after the next checkpoint takes them.",
        Passes.YES,
    ),
    Entry(
        "REMAINING",
        (Seen.ANSWER,),
        "Stays readable: files that the cycle did not finish.",
        (
            "`lethe erasure files STORE` says why. Where erasure is on (je.env.runEraser), the next cycle"
            " takes them by itself. Else: `lethe erasure plan STORE --period PERIOD`, read it, then start"
            " just that: `lethe erasure start STORE --plan-id PLAN`."
        ),
        Passes.MAYBE,
    ),
)
