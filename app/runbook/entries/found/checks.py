"""Findings of checks, hazards of a cleanup, starts of Spark: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "RUNS_ON_ELSEWHERE",
        (Seen.FINDING,),
        (
            "The service that was asked lacks a label in the store's `runs_on`, so it did not look at "
            "the target."
        ),
        (
            "Ask an instance that has the labels (`lethe instance list`), or change them: `lethe "
            "store update STORE --runs-on LABEL`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "OWN_PURGE",
        (Seen.FINDING,),
        "SymmetricDS seems to purge the same tables by itself.",
        (
            "Nothing breaks, but both do the same work. Switch SymmetricDS's own purge job off, or "
            "leave the store to it."
        ),
        Passes.NO,
    ),
    Entry(
        "OWN_CLEANUP",
        (Seen.FINDING,),
        "The slon of the node cleans up by itself.",
        "Usual. If the finding is a warning, Lethe cleans up here too: switch one of both off.",
        Passes.NO,
    ),
    Entry(
        "OWN_ERASER",
        (Seen.FINDING,),
        "The environment's own properties switch JE's eraser on.",
        "Set `je.env.runEraser` to false in `je.properties`: two erasers must not work on one log.",
        Passes.NO,
    ),
    Entry(
        "NO_LEDGER",
        (Seen.FINDING,),
        ("Lethe may not make its own schema or tables at the target, so it cannot note there what is done."),
        (
            "`lethe store grants KIND --role ROLE` prints the SQL. Without it counts are lower "
            "bounds, and one worker is used."
        ),
        Passes.NO,
    ),
    Entry(
        "CLOCK_DIFFERENCE",
        (Seen.FINDING,),
        "The clock of the target differs from the service's clock; `detail` says by how many seconds.",
        "Look at the time service (NTP) of both machines. Cut-offs are reckoned by the target's clock.",
        Passes.NO,
    ),
    Entry(
        "NO_INCOMING",
        (Seen.FINDING,),
        "A purge INCOMING is not possible at this store; `detail` says why.",
        ("Nothing to do if nobody wants it. Else mend what `detail` names, then `lethe store check STORE`."),
        Passes.NO,
    ),
    Entry(
        "NO_DATA_GAP",
        (Seen.FINDING,),
        "A purge DATA_GAP is not possible at this store; `detail` says why.",
        ("Nothing to do if nobody wants it. Else mend what `detail` names, then `lethe store check STORE`."),
        Passes.NO,
    ),
    Entry(
        "NO_READ",
        (Seen.FINDING,),
        "The role may not read what everything else needs; `detail` names the rights.",
        "`lethe store grants SLONY --role ROLE --schema _CLUSTER` prints the SQL.",
        Passes.NO,
    ),
    Entry(
        "NO_CREATE_SYNC",
        (Seen.FINDING,),
        "The role may not make SYNC events at this node.",
        (
            "Needed only for `lethe slony sync STORE`. `lethe store grants SLONY --role ROLE --schema "
            "_CLUSTER` prints the SQL."
        ),
        Passes.NO,
    ),
    Entry(
        "NO_CONFIRM",
        (Seen.FINDING,),
        "The role may not remove old confirmations at this node.",
        ("Needed for a cleanup. `lethe store grants SLONY --role ROLE --schema _CLUSTER` prints the SQL."),
        Passes.NO,
    ),
    Entry(
        "NO_CLEANUP",
        (Seen.FINDING,),
        "The role may not remove old events at this node.",
        ("Needed for a cleanup. `lethe store grants SLONY --role ROLE --schema _CLUSTER` prints the SQL."),
        Passes.NO,
    ),
    Entry(
        "NO_CLEANUP_NATIVE",
        (Seen.FINDING,),
        "The role may not call the cleanup function of Slony-I.",
        ("Nothing to do: Lethe's own statements do the same. For the function, grant what `detail` names."),
        Passes.NO,
    ),
    Entry(
        "NO_LOG_SWITCH",
        (Seen.FINDING,),
        "The role may not switch the log tables.",
        (
            "Needed for `lethe slony switch-log STORE`. `lethe store grants SLONY --role ROLE "
            "--schema _CLUSTER` prints the SQL."
        ),
        Passes.NO,
    ),
    Entry(
        "NO_LOG_INDICES",
        (Seen.FINDING,),
        "The role may not make the indices of the log tables.",
        "Only for databases with many sets. Grant what `detail` names, or leave it to the slon.",
        Passes.NO,
    ),
    Entry(
        "NO_SLON",
        (Seen.FINDING,),
        "No slon is connected to the node: events neither come nor go.",
        "Start the slon of this node, and look at its log.",
        Passes.MAYBE,
    ),
    Entry(
        "NO_OWN_SLON",
        (Seen.FINDING,),
        "The slons of other nodes are connected, the node's own is not.",
        "Start the slon of this node. SYNCs that Lethe makes do not take its place.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_INACTIVE",
        (Seen.FINDING,),
        "Nodes are inactive or failed; nobody waits for their confirmations.",
        "Nothing to do, or remove the node from the cluster by slonik.",
        Passes.NO,
    ),
    Entry(
        "NO_PATH",
        (Seen.FINDING,),
        "No path leads to a node, or none away from it, so its confirmations are lost.",
        "Store the missing path by slonik (`store path`).",
        Passes.NO,
    ),
    Entry(
        "NEVER_CONFIRMED",
        (Seen.FINDING,),
        "A node has never confirmed an event of another node, so all events stay until it does.",
        "Look at the slon of the node and at its paths; remove a node that is gone for good by slonik.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_STATUS_WRONG",
        (Seen.FINDING,),
        ("The status of the log tables calls a table empty which has rows; slons do not read those rows."),
        "`lethe slony switch-log STORE` heals it; see the page on Slony-I before.",
        Passes.NO,
    ),
    Entry(
        "ORIGIN_WITHOUT_SYNC",
        (Seen.FINDING,),
        "A log table has rows of a node that has made no SYNC, so it is never emptied.",
        "Start the slon of that node, or make a SYNC there: `lethe slony sync STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_SWITCH_HELD_BACK",
        (Seen.FINDING,),
        "Long or idle transactions at the node keep a log table from being emptied.",
        "End the sessions that `detail` names, at the database, if nobody needs them.",
        Passes.MAYBE,
    ),
    Entry(
        "SESSIONS_HIDDEN",
        (Seen.FINDING,),
        "The role sees no sessions but its own, so who holds back a log switch cannot be named.",
        "Grant `pg_read_all_stats` to the role.",
        Passes.NO,
    ),
    Entry(
        "SAME_TARGET",
        (Seen.FINDING,),
        (
            "Another store of the same kind is the same tables of the same database, or the same "
            "environment. Each purges by its own retention, limits and schedules, and their jobs exclude "
            "one another."
        ),
        (
            "`lethe store check STORE` names the other one. Move the schedules to one of both, and remove "
            "the other: `lethe store remove STORE`. The target and its archives stay. A store of another "
            "kind on the same database is no fault."
        ),
        Passes.NO,
    ),
    Entry(
        "SAME_NODE",
        (Seen.FINDING,),
        "Another store is the same node of the same cluster.",
        "Remove one of both: `lethe store remove STORE`.",
        Passes.NO,
    ),
    Entry(
        "SAME_REPLICA",
        (Seen.FINDING,),
        "Another store is the same replica.",
        "Remove one of both: `lethe store remove STORE`.",
        Passes.NO,
    ),
    Entry(
        "REPLICA",
        (Seen.FINDING,),
        "The database has a standby; `detail` says how far it is behind.",
        "Nothing to do. A purge can wait for it: `max_replica_lag`.",
        Passes.MAYBE,
    ),
    Entry(
        "IS_REPLICA",
        (Seen.FINDING,),
        "The database follows another server, so nothing can be written here.",
        "Name the primary: `lethe store update STORE --target-url URL`.",
        Passes.NO,
    ),
    Entry(
        "MORE_TABLES",
        (Seen.FINDING,),
        "There are more tables than a check looks at.",
        "Nothing to do: a plan looks at the tables that it is about.",
        Passes.NO,
    ),
    Entry(
        "FOREIGN_KEYS_UNSEEN",
        (Seen.FINDING,),
        "The role cannot see whether tables that it may not read point to this one.",
        "Grant SELECT on them, or let somebody who sees all tables make sure that none does.",
        Passes.NO,
    ),
    Entry(
        "PARTITIONED",
        (Seen.FINDING,),
        "The table is partitioned.",
        "Nothing to do. Where a whole partition is old, dropping it is cheaper than a purge.",
        Passes.NO,
    ),
    Entry(
        "MEDIUM",
        (Seen.FINDING,),
        "The file system and the device of the environment.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "MEDIUM_NOTES",
        (Seen.FINDING,),
        "The medium may keep copies of what is overwritten; `detail` says which.",
        "Read it before you rely on an erasure; an SSD remaps blocks by itself.",
        Passes.NO,
    ),
    Entry(
        "CONTROL_FILE",
        (Seen.FINDING,),
        "The control file is there; `detail` has its epoch and the ranges that are protected.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "NO_ANSWER_IN_TIME",
        (Seen.FINDING,),
        "A node did not answer in time, so nothing is known of it.",
        "Look at that node: `lethe store check STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "HAZARD_NEVER_CONFIRMED",
        (Seen.FINDING,),
        "Slony-I's own cleanup would remove events that a node has never confirmed.",
        "Lethe keeps them. Look why the node does not confirm, or remove it from the cluster.",
        Passes.NO,
    ),
    Entry(
        "HAZARD_LAST_SYNC",
        (Seen.FINDING,),
        "Slony-I's own cleanup would remove the last SYNC of an origin.",
        "Lethe keeps it. Let the slon of that node make a new SYNC.",
        Passes.NO,
    ),
    Entry(
        "HAZARD_LOG_WITHOUT_SYNC",
        (Seen.FINDING,),
        "Slony-I would empty a log table which has rows that no SYNC covers.",
        "Lethe does not empty it. Start the slon of the origin.",
        Passes.NO,
    ),
    Entry(
        "HAZARD_LOG_NOT_CONFIRMED",
        (Seen.FINDING,),
        "Slony-I would empty a log table which has rows that a node has not confirmed.",
        "Lethe waits for the confirmation. Look at the slon of the node that `detail` names.",
        Passes.MAYBE,
    ),
    Entry(
        "HAZARD_LOG_STILL_WRITTEN",
        (Seen.FINDING,),
        ("Sessions that began before the switch may still write to the log table that Slony-I would empty."),
        "Wait for their end, or end the sessions that `detail` names.",
        Passes.MAYBE,
    ),
    Entry(
        "HAZARD_FOLLOWING_NOT_CONFIRMED",
        (Seen.FINDING,),
        "Slony-I would remove rows that belong to an event which is not confirmed by all.",
        "Lethe keeps them. Look at the node that `detail` names.",
        Passes.MAYBE,
    ),
    Entry(
        "HAZARD_CLEAN_LOG_HAS_ROWS",
        (Seen.FINDING,),
        "A log table that counts as empty has rows, so nobody reads them.",
        "`lethe slony switch-log STORE` heals it; see LOG_STATUS_WRONG.",
        Passes.NO,
    ),
    Entry(
        "NO_JAVA",
        (Seen.FINDING,),
        "Spark finds no Java on this machine, or one that is too old.",
        (
            "Install Java 17 or newer and set JAVA_HOME for the service, then `lethe spark-pool "
            "recycle`. Until then AUTO runs inline."
        ),
        Passes.NO,
    ),
    Entry(
        "NO_SECRET",
        (Seen.FINDING,),
        "A Spark cluster beyond this machine has no secret in common with the service.",
        (
            "Write the secret of the master (`spark.authenticate.secret`) into a file, and name that by "
            "LETHE_SPARK__SECRET_FILE. On Kubernetes mount a secret, and name it by LETHE_SPARK__SECRET_NAME "
            "too. Start the service again. A network that you trust: LETHE_SPARK__ENCRYPTION=false."
        ),
        Passes.NO,
    ),
    Entry(
        "NO_IMAGE",
        (Seen.FINDING,),
        "Kubernetes starts the executors of Spark from an image, and none is named.",
        (
            "Name one with Spark 4.3, Java and Python by LETHE_SPARK__IMAGE, and start the service again. "
            "Until then AUTO runs inline."
        ),
        Passes.NO,
    ),
    Entry(
        "BAD_MASTER",
        (Seen.FINDING,),
        "The address of the Spark master cannot be read.",
        "Correct LETHE_SPARK__MASTER, then start the service again.",
        Passes.NO,
    ),
    Entry(
        "MASTER_AWAY",
        (Seen.FINDING,),
        "The Spark master does not answer.",
        "Look at the cluster and the network, then `lethe spark-pool recycle`.",
        Passes.MAYBE,
    ),
    Entry(
        "EXITED",
        (Seen.FINDING,),
        "The JVM of Spark ended before it was ready, often for lack of memory.",
        (
            "Read the service's log and the kernel's log; give it less memory or the machine more; "
            "then `lethe spark-pool recycle`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TIMEOUT",
        (Seen.FINDING,),
        "The JVM of Spark was not ready in time.",
        "Look at the load of the machine, then `lethe spark-pool recycle`.",
        Passes.MAYBE,
    ),
)
