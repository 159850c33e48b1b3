"""Slony-I: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "FEEDS_BUSY",
        (Seen.HTTP,),
        "So many feeds of Slony-I nodes are read by this service that no other may begin.",
        "Nothing: try again; a client does so by itself.",
        Passes.YES,
    ),
    Entry(
        "ORIGIN_ELSEWHERE",
        (Seen.TARGET,),
        "The changes of a node are read at that node; a receiver has only those that it forwards.",
        "Read the feed from the store of the node that `detail` names.",
        Passes.NO,
    ),
    Entry(
        "POSITION_NOT_A_SYNC",
        (Seen.TARGET,),
        "The event that a feed was to begin behind is of another type than SYNC.",
        "Give the number of the last SYNC that was read, or one of `lethe slony events STORE --type SYNC`.",
        Passes.NO,
    ),
    Entry(
        "READER_TOO_SLOW",
        (Seen.TARGET,),
        "A feed was read for so long that it held up the emptying of a log table, and was cut off.",
        "Ask again from the last SYNC that came whole, with a smaller `limit`, and read faster.",
        Passes.MAYBE,
    ),
    Entry(
        "SET_UNKNOWN",
        (Seen.TARGET,),
        "A set that a feed was to be of is none of this origin: dropped, merged, moved, or mistyped.",
        "Name sets that `detail` lists; what moved is read at its new origin.",
        Passes.NO,
    ),
    Entry(
        "TABLE_UNKNOWN",
        (Seen.TARGET,),
        "A table that a feed was to carry is in none of its sets, or lacks the index that Slony-I names.",
        "Name tables as `schema.table`; those of a set are in `lethe slony copy NODE --set 1`.",
        Passes.NO,
    ),
    Entry(
        "FEED_DIFFERS",
        (Seen.TARGET,),
        "The replica is filled by another feed: of another node, other sets or tables, or another prefix.",
        "Give it a replica of its own, or let it take this one: `lethe slony feed STORE NODE --first-copy`.",
        Passes.NO,
    ),
    Entry(
        "FEED_NOT_ALONE",
        (Seen.TARGET,),
        (
            "Somebody else has written into a replica since its feed did: a client, a session, an"
            " extinction. Nothing of the feed was written over it."
        ),
        "End what writes there, then make a new first copy: `lethe slony feed STORE NODE --first-copy`.",
        Passes.NO,
    ),
    Entry(
        "FEED_ROW_TOO_LARGE",
        (Seen.TARGET,),
        "A row, or its key, is larger than an entry of a replica may be; nothing of its SYNC was written.",
        "Leave its table out: name the others by `--table`, with `--first-copy`.",
        Passes.NO,
    ),
    Entry(
        "FEED_MOVED",
        (Seen.TARGET,),
        "Another attempt of a feed has applied a SYNC meanwhile; this one has written nothing of it.",
        "Nothing: the job begins where the other has ended.",
        Passes.YES,
    ),
    Entry(
        "FEED_SCRIPT",
        (Seen.ANSWER,),
        "An EXECUTE SCRIPT came with a feed. What it did to rows and columns is not in the log.",
        "If it changed either, make a new first copy: `lethe slony feed STORE NODE --first-copy`.",
        Passes.NO,
    ),
    Entry(
        "NODE_COPIED",
        (Seen.HTTP, Seen.TARGET, Seen.FINDING),
        (
            "Another registered database says that it is the same node of a cluster of this name. One "
            "is a copy, or of another cluster; nothing is written to one that `sl_path` does not lead "
            "to."
        ),
        (
            "Find in `sl_path` which database the slons use. Then `lethe store remove STORE` for the "
            "other one: it forgets the registration only, the database is not touched."
        ),
        Passes.NO,
    ),
    Entry(
        "NODE_NOT_REGISTERED",
        (Seen.HTTP,),
        "A node that has to be asked is not registered as a store.",
        "Register it by `lethe store add STORE TARGET_URL`.",
        Passes.NO,
    ),
    Entry(
        "NODE_UNINITIALISED",
        (Seen.TARGET,),
        "The database holds the cluster's schema, but belongs to no node yet.",
        "Initialise the node by slonik, then check the store again.",
        Passes.NO,
    ),
    Entry(
        "NODE_UNREACHABLE",
        (Seen.HTTP,),
        "A node that has to be asked does not answer; `detail` has the codes.",
        "`lethe store check STORE` of that node; try again when it answers.",
        Passes.MAYBE,
    ),
    Entry(
        "NOT_A_SLONY_CLUSTER",
        (Seen.TARGET,),
        "No cluster of Slony-I has its schema in this database.",
        "Check the database in the store's URL.",
        Passes.NO,
    ),
    Entry(
        "UNKNOWN_CLUSTER",
        (Seen.TARGET,),
        "The database has no cluster of this name; `detail` names those that it has.",
        "Correct the cluster's name on the store.",
        Passes.NO,
    ),
    Entry(
        "UNKNOWN_NODE",
        (Seen.HTTP,),
        "The cluster has no such node, as the node that was asked knows it.",
        "Check the id against `lethe slony status STORE`.",
        Passes.NO,
    ),
    Entry(
        "CATALOG_INCOMPLETE",
        (Seen.TARGET,),
        (
            "Tables of the cluster's schema are missing: it was removed in part, or is of a version before "
            "2.2. Of a first copy: the catalog names a table or sequence by an OID that it does not have."
        ),
        (
            "Finish the removal or upgrade Slony-I, then check the store again. For a first copy run slonik's"
            " REPAIR CONFIG for the set, then copy again."
        ),
        Passes.NO,
    ),
    Entry(
        "FUNCTIONS_MISSING",
        (Seen.HTTP, Seen.TARGET, Seen.FINDING),
        "The functions of the cluster are not installed at the node, or the role may not call them.",
        "Have them installed (slonik's UPDATE FUNCTIONS), or use `--via BUILTIN`, which does without.",
        Passes.NO,
    ),
    Entry(
        "VIA_NEEDS_BUILTIN",
        (Seen.HTTP,),
        "NATIVE cannot do what the request asks for.",
        "Leave out what `detail` names, or use `--via BUILTIN`.",
        Passes.NO,
    ),
    Entry(
        "CONFIRMED_BEFORE_IN_THE_FUTURE",
        (Seen.HTTP,),
        "`confirmed_before` is later than the node's clock.",
        "Name an earlier time; compare the clocks if it should not be later.",
        Passes.NO,
    ),
    Entry(
        "EVENT_NOT_FOUND",
        (Seen.HTTP,),
        "The node does not hold this event: it was cleaned away, or has not arrived.",
        "Check origin and number against `lethe slony status STORE`.",
        Passes.NO,
    ),
    Entry(
        "SEQNO_OF_THE_FUTURE",
        (Seen.HTTP,),
        "The origin has not made this event yet, as far as the node that was asked knows.",
        "Check the number, or wait until the origin has made it.",
        Passes.MAYBE,
    ),
    Entry(
        "RECEIVER_IS_ORIGIN",
        (Seen.HTTP,),
        "A node does not confirm its own events.",
        "Name another receiver.",
        Passes.NO,
    ),
    Entry(
        "RECEIVER_NOT_ASKED",
        (Seen.HTTP,),
        (
            "Nobody could ask the receiver whether it has processed the event; a false confirmation would "
            "lose its rows."
        ),
        (
            "Register the receiver as a store and make it reachable; an admin may force it only if the node"
            " is known to have the event."
        ),
        Passes.NO,
    ),
    Entry(
        "NOT_PROCESSED_BY_RECEIVER",
        (Seen.HTTP,),
        "The receiver does not hold the event; a false confirmation would lose its rows.",
        "Wait until it has processed the event; look at its slon if it does not.",
        Passes.MAYBE,
    ),
    Entry(
        "NO_EVENTS",
        (Seen.HTTP,),
        "No event of the origin is known at the node that was asked.",
        "Check that the origin's slon runs, and that paths lead from it.",
        Passes.MAYBE,
    ),
    Entry(
        "NO_RECEIVERS",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        "No other node is active that could confirm.",
        "Check the cluster's nodes (`lethe slony status STORE`); with one node there is nothing to wait for.",
        Passes.NO,
    ),
    Entry(
        "ORIGIN_GONE",
        (Seen.JOB,),
        "The origin of the awaited event was dropped from the cluster.",
        "Nothing will confirm it any more; take the wait out of your procedure.",
        Passes.NO,
    ),
    Entry(
        "RECEIVER_GONE",
        (Seen.JOB,),
        "The node that was to confirm was dropped from the cluster.",
        "Wait for the nodes that are left.",
        Passes.NO,
    ),
    Entry(
        "WAIT_TIMEOUT",
        (Seen.JOB,),
        "Nodes have not confirmed the event within the time given; `detail` names them.",
        "See by `lethe slony status STORE` how far they are and whether their slon runs; then wait again.",
        Passes.NO,
    ),
    Entry(
        "TIMEOUT_ZERO_NEEDS_A_JOB",
        (Seen.HTTP,),
        "A request does not wait without an end; a job does.",
        "Submit it as a job, or name a timeout.",
        Passes.NO,
    ),
    Entry(
        "CLUSTER_LOCKED",
        (
            Seen.TARGET,
            Seen.WAIT,
        ),
        "A session holds Slony's configuration lock (`sl_config_lock`).",
        "Nothing to do while slonik works. If it lasts, end the session that `ref` or `detail` names.",
        Passes.YES,
    ),
    Entry(
        "CLEANUP_DIFFERS",
        (Seen.JOB,),
        "After the cluster's own cleanup other rows are left than were planned.",
        "Compare `detail` with `lethe slony status STORE`, and plan again before the next cleanup.",
        Passes.NO,
    ),
    Entry(
        "UNCONFIRMED_WOULD_GO",
        (Seen.TARGET,),
        "Slony's own cleanup would remove events that not every node has confirmed; nothing was removed.",
        (
            "Wait until old transactions at the node have ended, then `lethe job retry JOB`; or begin a new "
            "one: `lethe slony cleanup STORE --via BUILTIN`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "LOG_NOT_CLEAN",
        (Seen.JOB,),
        "The log table that is called empty gets rows, so it is not switched to.",
        (
            "`lethe job retry JOB`. If it comes again, a session still writes by the old log status: `lethe"
            " slony status STORE` shows it."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "LOG_SWITCH_TIMEOUT",
        (Seen.JOB,),
        "The log switch was not done within its time; `detail` says what held it.",
        "End the sessions that it names, or let the receivers catch up, then `lethe job retry JOB`.",
        Passes.MAYBE,
    ),
)
