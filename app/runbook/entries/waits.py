"""What only jobs wait for: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "JOB",
        (Seen.WAIT,),
        "Another job, `ref`, works on the same tables or files.",
        "Nothing to do: it goes on when that job has ended.",
        Passes.YES,
    ),
    Entry(
        "CHILDREN",
        (Seen.WAIT,),
        "A batch waits for its jobs.",
        "Nothing to do; `lethe job list` shows them.",
        Passes.YES,
    ),
    Entry(
        "WINDOW",
        (Seen.WAIT,),
        "No window is open for the job.",
        "Nothing to do: it goes on at `until`. `lethe window list` shows the windows.",
        Passes.YES,
    ),
    Entry(
        "THROTTLE",
        (Seen.WAIT,),
        "The job keeps the pace that was set for it.",
        "`lethe job throttle JOB` changes it.",
        Passes.YES,
    ),
    Entry(
        "SPARK_POOL",
        (Seen.WAIT,),
        "No session of Spark is free, or Spark does not run; `ref` is its state.",
        (
            "STARTING and REBUILDING take seconds. DRAINING: `lethe spark-pool resume`. FAILED: `lethe "
            "spark-pool status` says why, `recycle` tries again. NO_EXECUTORS: look at the cluster."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "INSTALLATION_REPLACED",
        (Seen.WAIT,),
        "Another version of Lethe, `ref`, was installed over the running one: no job begins with both.",
        "Restart the process: its jobs go on by themselves.",
        Passes.MAYBE,
    ),
    Entry(
        "TARGET_SILENCE",
        (Seen.WAIT,),
        "Nobody can ask the target whether anything of the job still writes.",
        (
            "Bring the target back (`lethe store check STORE`); it is asked again by itself. If it is "
            'gone for good: `lethe job abandon JOB --reason "..."`, as an admin.'
        ),
        Passes.MAYBE,
    ),
    Entry(
        "ABANDONED_JOB",
        (Seen.WAIT,),
        "An abandoned job may still write to the same tables.",
        "It is looked at again by `until`. If its sessions do not end, end them at the database.",
        Passes.MAYBE,
    ),
    Entry(
        "SYM_LOCK",
        (Seen.WAIT,),
        (
            "SymmetricDS runs its own purge of the same kind, or holds its lock. For a lock of JE see "
            "ENVIRONMENT_IN_USE."
        ),
        (
            "Lethe looks every 15 s, and breaks a lock older than SymmetricDS's own "
            "`cluster.lock.timeout.ms`. If `ref` says STOPPED, somebody stopped that purge: start it in "
            "SymmetricDS again (or set "
            "`lock_time` of its row in `sym_lock` to NULL), or end the job by `lethe job abort JOB`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "OLD_TRANSACTION",
        (Seen.WAIT,),
        "A transaction at the node is older than what is to be removed.",
        "Wait for its end, or end the session that `ref` names.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_NOT_DRAINED",
        (Seen.WAIT,),
        "A log table still holds rows that not every node has.",
        "`lethe slony status STORE` shows which node is behind; look at its slon if it does not move.",
        Passes.YES,
    ),
    Entry(
        "LOG_TABLE_LOCKED",
        (Seen.WAIT,),
        "A session at the node holds a lock on the log table that is to be emptied.",
        "Wait for its end, or end the session that `ref` names.",
        Passes.MAYBE,
    ),
    Entry(
        "CONFIRMATION",
        (Seen.WAIT,),
        "Nodes have not confirmed the event yet; `until` is the deadline.",
        "`lethe slony status STORE` shows how far each is; look at the slon of one that does not move.",
        Passes.YES,
    ),
    Entry(
        "PEER",
        (Seen.WAIT,),
        "The consumer of an agreement does not answer, or asks for patience; `cause` is what it said.",
        "Look up the code in `ref` or `cause` (`lethe explain`).",
        Passes.MAYBE,
    ),
    Entry(
        "REPLICA_LAG",
        (Seen.WAIT,),
        "A replica of the database is further behind than the job may let it be.",
        (
            "Nothing to do: it goes on when the replica has caught up. If it does not, look at the replica "
            "that `ref` names."
        ),
        Passes.YES,
    ),
    Entry(
        "BACKUP",
        (Seen.WAIT,),
        "A backup holds the files, `until` its lease runs out at the latest.",
        "Nothing to do: it goes on when the backup ends. `lethe backup list STORE` shows it.",
        Passes.YES,
    ),
    Entry(
        "BACKUP_MARKER",
        (Seen.WAIT,),
        "The log says that a backup which Lethe did not begin is under way.",
        (
            "Wait for its end. If no backup runs, close and open the application, which ends the marker's "
            "life."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "ERASER_DISABLED",
        (Seen.WAIT,),
        "`je.env.runEraser` is off for the store, or `je.erase.period` is PT0S.",
        "`lethe parameter set NAME VALUE` switches it on again.",
        Passes.NO,
    ),
    Entry(
        "SHUTDOWN",
        (Seen.WAIT,),
        "The service is being stopped.",
        "Nothing to do: the cycle goes on after its start.",
        Passes.YES,
    ),
    Entry(
        "TAIL_OF_LOG",
        (Seen.WAIT, Seen.FINDING),
        "The newest part of the log is needed for recovery.",
        (
            "It goes on when the application has made a checkpoint; write or close the application if "
            "it rests. Where it is closed: `lethe je helper --write LetheJe.java` and `java -cp JARS "
            "LetheJe.java DIR checkpoint`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "VLSN_TRUNCATION",
        (Seen.WAIT,),
        "The index of the replicated environment still needs the entries.",
        (
            "It goes on when JE has truncated its VLSN index. `ref` says how far it may, and the "
            "command that does it with the application closed; see `docs/how-to/je-helper.md`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "NO_VLSN",
        (Seen.WAIT, Seen.FINDING),
        "The environment is replicated, and its VLSN index cannot be read.",
        "Have the application open the environment; if it stays, run JE's DbVerify.",
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_METADATA",
        (Seen.WAIT, Seen.FINDING),
        "JE's own record of an extinction is still needed.",
        "Nothing to do: it goes on when the extinction's scan has ended.",
        Passes.YES,
    ),
)
