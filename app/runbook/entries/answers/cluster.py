"""Why events stay, and where a log switch or a node stands: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "BEHIND",
        (Seen.ANSWER,),
        "A node has not confirmed the events of another one so far.",
        (
            "Look whether its slon runs, and at its lag: `lethe slony status STORE`. When it has caught "
            "up, `lethe slony cleanup STORE` removes more."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "CURRENT",
        (Seen.ANSWER,),
        "The node has confirmed everything of the other one.",
        "Nothing to do.",
        Passes.YES,
    ),
    Entry(
        "YOUNG_CONFIRMATION",
        (Seen.ANSWER,),
        "Events stay because a node's confirmation of them is younger than the interval of the cleanup.",
        "Nothing to do: a later cleanup takes them.",
        Passes.YES,
    ),
    Entry(
        "NO_SYNC",
        (Seen.ANSWER,),
        (
            "Nothing can be removed or proved: the origin has no SYNC event, so what was replicated is "
            "not known."
        ),
        "Look whether its slon runs, or make one: `lethe slony sync STORE`. Then run the command again.",
        Passes.MAYBE,
    ),
    Entry(
        "NOT_DRAINED",
        (Seen.ANSWER,),
        "The old log table has rows that no confirmed SYNC covers, so it is not emptied.",
        (
            "Look whether every slon runs: `lethe slony status STORE`. Then `lethe slony switch-log STORE"
            " --action FINISH`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "NOT_CONFIRMED",
        (Seen.ANSWER,),
        "A node has not confirmed the SYNC that covers the rows of the old log table, so it is not emptied.",
        (
            "Look at the slon of the node that the answer names: `lethe slony status STORE`. Then `lethe "
            "slony switch-log STORE --action FINISH`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "NOT_ACTIVE",
        (Seen.ANSWER,),
        "The node is not active in the cluster, or is marked as failed, so its confirmations do not count.",
        (
            "No command of slonik activates it. A failed node is dropped and built anew; a new one "
            "becomes active when its STORE NODE has arrived. `lethe slony wait STORE --confirmed ALL` "
            "does not wait for it."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "NOT_REGISTERED",
        (Seen.ANSWER,),
        "The node could not be asked: no store is registered for it.",
        "`lethe store add NAME URL --kind SLONY --cluster CLUSTER`, then ask again.",
        Passes.NO,
    ),
    Entry(
        "UNREACHABLE",
        (Seen.ANSWER,),
        "The node could not be asked: its database does not answer.",
        "`lethe store check STORE` of that node, then ask again.",
        Passes.MAYBE,
    ),
    Entry(
        "NOT_PERMITTED",
        (Seen.ANSWER,),
        "The node could not be asked: your token may not read its store.",
        "Ask with a token that has the store in its list: `lethe whoami` shows what yours has.",
        Passes.NO,
    ),
    Entry(
        "NOT_HEARD",
        (Seen.ANSWER,),
        "A node has processed the event, and the node that slonik asks has not heard of it yet.",
        (
            "Wait. If it stays so, the confirmation finds no way back: `lethe slony health STORE` names a "
            "listen path or a path that misses."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "SLON_NOT_RUNNING",
        (Seen.ANSWER,),
        "The slon of a node is not connected to its database, so the node processes no events.",
        "Start the slon of that node, then ask again.",
        Passes.NO,
    ),
    Entry(
        "TRANSACTION_RUNS",
        (Seen.ANSWER,),
        "A transaction was already open when LOCK SET was asked for; slonik waits until it has ended.",
        "The answer names the session. Wait for it, or end it in its application.",
        Passes.MAYBE,
    ),
    Entry(
        "NO_PATH_TO_BACKUP",
        (Seen.ANSWER,),
        "A receiver of the failed node has no path to the backup node, so slonik refuses FAILOVER.",
        "`store path` by slonik, with the backup node as server and the receiver as client.",
        Passes.NO,
    ),
    Entry(
        "NOT_A_FORWARDER",
        (Seen.ANSWER,),
        "The backup node does not forward a set of the failed node, so slonik refuses FAILOVER.",
        "Choose another backup node, or `subscribe set` with `forward = yes` while the origin lives.",
        Passes.NO,
    ),
    Entry(
        "START",
        (Seen.ANSWER,),
        "What the log switch would do: let writers write the other log table.",
        "Nothing to do, or do it now: `lethe slony switch-log STORE --action START`.",
        Passes.YES,
    ),
    Entry(
        "FINISH",
        (Seen.ANSWER,),
        "What the log switch would do: empty the old log table and end the switch.",
        "Nothing to do, or do it now: `lethe slony switch-log STORE --action FINISH`.",
        Passes.YES,
    ),
    Entry(
        "HEAL",
        (Seen.ANSWER,),
        (
            "What the log switch would do: a log table that should be empty has rows, so its switch "
            "begins again and none is lost."
        ),
        "Nothing to do: the next switch empties it when all is confirmed.",
        Passes.YES,
    ),
    Entry(
        "BLOCKED",
        (Seen.ANSWER,),
        "The old log table may not be emptied yet; nothing was changed.",
        (
            "`why` beside it says the cause: `lethe explain` it. Then `lethe slony switch-log STORE "
            "--action FINISH`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "LOCKED",
        (Seen.ANSWER,),
        "A session of the database holds a lock on the log table that is to be emptied.",
        (
            "The answer lists the sessions with their `pid`: end the one that is stale (`SELECT "
            "pg_terminate_backend(PID)` as its owner), then `lethe slony switch-log STORE --action "
            "FINISH`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "OTHER",
        (Seen.ANSWER,),
        "The log table that writers do not write now.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "STARTED",
        (Seen.ANSWER,),
        "The switch has begun: writers write the other log table.",
        (
            "Nothing to do: a later cleanup, or `lethe slony switch-log STORE --action FINISH`, empties "
            "the old one."
        ),
        Passes.YES,
    ),
    Entry(
        "ALREADY_SWITCHING",
        (Seen.ANSWER,),
        "A switch was under way already, so none was begun.",
        "End it: `lethe slony switch-log STORE --action FINISH`.",
        Passes.YES,
    ),
    Entry(
        "FINISHED",
        (Seen.ANSWER,),
        "The old log table is empty, and the switch is over.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "AS_PLANNED",
        (Seen.ANSWER,),
        "The cleanup removed what the plan had, and nothing else.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "MORE_BY_NEWER_CONFIRMATIONS",
        (Seen.ANSWER,),
        (
            "The cluster's own function removed more than planned, because nodes confirmed more "
            "meanwhile. Nothing unconfirmed is gone."
        ),
        "Nothing to do; `differences` says how much.",
        Passes.FINE,
    ),
    Entry(
        "ALARM",
        (Seen.ANSWER,),
        (
            "What the cluster's own function left is not what was planned: something is missing that no "
            "confirmation explains, too much is left, or the log status moved wrongly or not at all."
        ),
        (
            "Read `differences` in `lethe job show JOB`. Compare the nodes now: `lethe slony status "
            "STORE`. Clean up with `--via BUILTIN` until it is explained."
        ),
        Passes.NO,
    ),
    Entry(
        "FINISHED_ELSEWHERE",
        (Seen.ANSWER,),
        (
            "Somebody else, such as Slony-I's own cleanup, has ended the switch meanwhile; the old "
            "table is empty."
        ),
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "MADE",
        (Seen.ANSWER,),
        "A SYNC was made: the node had made none for the interval.",
        "`lethe slony health STORE` says whether its slon runs; a SYNC does not take its place.",
        Passes.FINE,
    ),
    Entry(
        "NOT_DUE",
        (Seen.ANSWER,),
        "The node's newest SYNC is younger than the interval, so none was made and nothing was written.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "NOTHING_TO_FINISH",
        (Seen.ANSWER,),
        "No switch was under way, so nothing was emptied.",
        "To begin one: `lethe slony switch-log STORE --action FULL`.",
        Passes.NO,
    ),
    Entry(
        "TIMED_OUT",
        (Seen.ANSWER,),
        "The log switch was not finished within its time; nothing was lost, and it is still under way.",
        (
            "`blocked` in `lethe job show JOB` says what held it. Remove that, then `lethe slony switch-log "
            "STORE --action FINISH`."
        ),
        Passes.NO,
    ),
    Entry(
        "BY_PROGRAM",
        (Seen.ANSWER,),
        "The cluster's own function has done the step of the log switch.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "DONE_BEFORE",
        (Seen.ANSWER,),
        "An earlier attempt of the same job has done this step.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "HEALED",
        (Seen.ANSWER,),
        "A log table that should have been empty had rows; its switch has begun again, so none is lost.",
        "Nothing to do: the next switch empties it when all is confirmed.",
        Passes.FINE,
    ),
)
